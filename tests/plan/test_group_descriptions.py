"""Descriptions of groups in plan files: the bytes that JSON gives, whatever the groups are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.files import compute_digest
from fitplug.plan.plan_file import describe_plan, read_workload
from tests.helpers.plans import describe

QUERIES = [
    {"a": "identity"},
    {"b": "identity", "a": "prefix"},
    {"a": fp.ranges([(0, 1), (1, 2)])},
    {"a": [[1.0, -1.0, 0.0]], "b": "total"},
    {"b": fp.subsets({'both "é"': ["x", "y"]}), "a": "all_ranges"},
    {},
]
TARGETS = [
    {"std": 2.0},
    {"variance": [[3.0]]},
    {"moe": 4.0, "confidence": 0.9},
    {"moe": 1.5, "simultaneous": True},
]
DOMAIN = fp.Domain({"a": fp.Integers(0, 2), "b": ["x", "y"]})


def describe_one_by_one(workload):
    """What plan files held of groups before they were columns."""
    described = []
    for group in workload.groups:
        one = {
            "name": group.name,
            "factors": [[factor.attribute, factor.kind] for factor in group.factors],
            "target": group.target.kind,
            "shape": list(group.target.value.shape),
            "confidence": group.target.confidence,
        }
        if group.target.simultaneous:
            one["simultaneous"] = True
        labels = {str(f): x.names for f, x in enumerate(group.factors) if x.names is not None}
        if labels:
            one["labels"] = labels
        described.append(one)
    return described


@given(
    st.lists(
        st.tuples(
            st.sampled_from(QUERIES),
            st.sampled_from(TARGETS),
            st.none() | st.text(min_size=1).filter(str.strip),
        ),
        min_size=1,
        max_size=6,
    )
)
@pytest.mark.slow
def test_text_arrays_and_digest(asked):
    names = [name for _, _, name in asked if name is not None]
    if len(set(names)) < len(names):
        return
    groups = [fp.marginal("a", std=9.0)]
    for factors, target, name in asked:
        is_small = len(factors) < 2 and "variance" in target
        groups.append(fp.queries(factors, name=name, **({"std": 1.0} if is_small else target)))
    try:
        workload = fp.Workload(DOMAIN, groups)
    except fp.WorkloadError:  # a name that is derived for another group
        return
    plan = fp.design(workload, tolerance=0.1)
    header, arrays = describe_plan(plan)
    expected = json.dumps(describe_one_by_one(workload), sort_keys=True)
    assert header["groups"].text == expected
    decoded, _ = describe(plan)
    assert compute_digest(decoded, arrays) == compute_digest(header, arrays) == plan.digest
    read = read_workload(decoded, arrays)
    np.testing.assert_array_equal(read.matrix(), workload.matrix())
    np.testing.assert_array_equal(read.targets(), workload.targets())
    assert read.names == workload.names
