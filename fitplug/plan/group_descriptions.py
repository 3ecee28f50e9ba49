"""Descriptions of query groups in plan files, for a million of them.

The text of each group is what JSON makes of its description, with sorted keys. Groups share most of
it, so it is put together from the texts of their factors and of the forms of their targets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from fitplug.files import Arrays, EncodedJson
from fitplug.workload import Factor, QueryGroups


def describe_groups(groups: QueryGroups) -> tuple[EncodedJson, Arrays]:
    """Describe groups by a list of JSON objects, and the arrays that their factors need."""
    starts = ['{"confidence": ' + json.dumps(form.confidence) for form in groups.forms]
    ends = [
        f', "shape": {json.dumps(form.shape)}'
        + (', "simultaneous": true' if form.simultaneous else "")
        + f', "target": {json.dumps(form.kind)}}}'
        for form in groups.forms
    ]
    factors = [json.dumps([factor.attribute, factor.kind]) for factor in groups.factors]
    encode, indices = json.encoder.encode_basestring_ascii, groups.factor_indices.tolist()
    texts, begin = [], 0
    for name, count, form in zip(
        groups.names, groups.factor_counts.tolist(), groups.form_indices.tolist(), strict=True
    ):
        own = indices[begin : begin + count]
        begin += count
        asked = ", ".join([factors[f] for f in own])
        labels = _describe_labels([groups.factors[f] for f in own]) if groups.with_labels else ""
        texts.append(
            f'{starts[form]}, "factors": [{asked}]{labels}, "name": {encode(name)}{ends[form]}'
        )
    return EncodedJson("[" + ", ".join(texts) + "]"), _gather_arrays(groups)


def _describe_labels(factors: Sequence[Factor]) -> str:
    """Describe the labels of the rows of a group's factors, if they have any."""
    labels = {str(f): factor.names for f, factor in enumerate(factors) if factor.names is not None}
    return f', "labels": {json.dumps(labels, sort_keys=True)}' if labels else ""


def _gather_arrays(groups: QueryGroups) -> Arrays:
    """Gather what the file holds of factors that their kinds do not describe."""
    arrays: Arrays = {}
    for i, factor in enumerate(groups.factors):
        if factor.kind not in ("ranges", "matrix"):
            continue
        array = factor.intervals() if factor.kind == "ranges" else factor.matrix()
        for place in np.flatnonzero(groups.factor_indices == i).tolist():
            g = int(np.searchsorted(groups.factor_starts, place, side="right")) - 1
            arrays[f"group{g}.factor{place - groups.factor_starts[g]}"] = array
    return arrays
