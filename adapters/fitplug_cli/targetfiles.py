"""Target files: a table of how accurate each number must be, as CSV.

    group,SEX,AGEP,moe,confidence
    pyramid,,,30,0.90
    pyramid,2,0..17,12,0.90

A row sets the target of the queries whose labels it names, those of the release's tables; an empty
cell, or a column that is not there, stands for all. Of several rows that reach a query the one that
names most counts. One of the columns variance, std and moe is needed, and moe may have a
confidence. Rows of the spec's other groups are passed over; without a column "group" all are meant.

The wrong file may be given, the records themselves for instance: errors name lines and columns and
what the spec knows, never what is on a line.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fitplug.domain import Domain
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.workload import (
    DEFAULT_CONFIDENCE,
    Factor,
    build_factor,
    check_confidence,
    two_sided_quantile,
)
from fitplug_cli.files import text_of

KEY = "targets"
_KINDS = ("variance", "std", "moe")
_COLUMNS = ("group", *_KINDS, "confidence")


@dataclass(frozen=True)
class _Row:
    """A line of the file, its amount, and the labels it names."""

    line: int
    amount: float
    confidence: float | None
    named: Mapping[str, str]


def read(
    path: Path, name: str, factors: Mapping[str, Any], domain: Domain, groups: Sequence[str]
) -> dict[str, Any]:
    """The target of a group, as keywords of `fitplug.queries`: an array of the group's shape, and
    its confidence.

    groups: the names of all groups there are; a line may be of none else. Raises WorkloadError
    naming the file and the line.
    """
    bound = [
        build_factor(attribute, domain[attribute], asked) for attribute, asked in factors.items()
    ]
    kind, rows = _rows(path, name, [f.attribute for f in bound], domain, groups)
    shape = tuple(f.rows for f in bound)
    places = [_places(f, domain) for f in bound]
    amounts, confidences = np.full(shape, np.nan), np.full(shape, np.nan)
    lines, strength = np.zeros(shape, dtype=np.int64), np.full(shape, -1)
    clash = np.zeros(shape, dtype=np.int64)
    for row in sorted(rows, key=lambda row: len(row.named)):
        at = tuple(_place(path, row, f, known) for f, known in zip(bound, places, strict=True))
        confidence = row.confidence or 0.0
        same = (amounts[at] == row.amount) & (confidences[at] == confidence)
        again = (strength[at] == len(row.named)) & ~same
        clash[at] = np.where(again, lines[at], 0)
        amounts[at], confidences[at], lines[at] = row.amount, confidence, row.line
        strength[at] = len(row.named)
    if clash.any():
        first = np.flatnonzero(clash)[0]
        raise WorkloadError(
            f"{path}: lines {clash.flat[first]} and {lines.flat[first]} give the same query of "
            f"{name!r} different targets; keep one, or name more in one of them"
        )
    if (strength < 0).any():
        missing = np.argwhere(strength < 0)[0]
        labels = [f.labels(domain[f.attribute])[i] for f, i in zip(bound, missing, strict=True)]
        said = ", ".join(f"{f.attribute} = {label}" for f, label in zip(bound, labels, strict=True))
        raise WorkloadError(
            f"{path}: no line gives the target of {name!r}" + (f" at {said}" if said else "")
        )
    return _target(kind, amounts, confidences)


def _target(kind: str, amounts: Any, confidences: Any) -> dict[str, Any]:
    if kind != "moe":
        return {kind: amounts}
    levels = np.unique(confidences)
    if len(levels) == 1:
        return {"moe": amounts, "confidence": float(levels[0])}
    quantiles = np.vectorize(two_sided_quantile, otypes=[float])(confidences)
    return {"std": amounts / quantiles * (1 - 2.0**-50)}


def _rows(
    path: Path, name: str, attributes: Sequence[str], domain: Domain, groups: Sequence[str]
) -> tuple[str, list[_Row]]:
    text = text_of(path, "file of targets", "a CSV file", WorkloadError)
    reader = csv.DictReader(text.splitlines(), strict=True)
    try:
        columns = list(reader.fieldnames or [])
    except csv.Error:
        raise WorkloadError(f"{path}: the first line is no CSV; check its quotes") from None
    kinds = [kind for kind in _KINDS if kind in columns]
    if len(kinds) != 1:
        raise WorkloadError(f"{path}: needs exactly one of the columns {', '.join(_KINDS)}")
    by_group = "group" in columns
    for number, column in enumerate(columns, 1):
        # With a column "group" the others may belong to other groups.
        known = (*_COLUMNS, *(domain.names if by_group else attributes))
        if column not in known:
            whose = "the domain" if by_group else repr(name)
            raise WorkloadError(
                f"{path}: {whose} has no attribute that is named as column {number} is; "
                f"{suggest_nearest(column, known)}"
            )
    rows = []
    try:
        for cells in reader:
            if by_group and cells["group"] not in groups:
                raise WorkloadError(
                    f"{path}: line {reader.line_num}: its group is no query group of the spec; "
                    f"{suggest_nearest(str(cells['group']), groups)}"
                )
            if by_group and cells["group"] != name:
                continue
            rows.append(_row(path, reader.line_num, cells, kinds[0], attributes))
    except csv.Error:
        raise WorkloadError(f"{path}: line {reader.line_num} is no CSV; check its quotes") from None
    return kinds[0], rows


def _row(
    path: Path, line: int, cells: Mapping[str, str | None], kind: str, attributes: Sequence[str]
) -> _Row:
    where = f"{path}: line {line}"
    if None in cells or None in cells.values():
        raise WorkloadError(f"{where} has another number of cells than the first line")
    amount = _number(where, kind, cells[kind])
    if not 0 < amount < float("inf"):
        raise WorkloadError(f"{where}: {kind} must be finite, greater than zero")
    confidence = None
    if kind != "moe" and cells.get("confidence"):
        raise WorkloadError(f"{where}: confidence belongs to moe, not to {kind}; leave it empty")
    if kind == "moe":
        given = cells.get("confidence")
        confidence = _number(where, "confidence", given) if given else DEFAULT_CONFIDENCE
        try:
            check_confidence(confidence)
        except WorkloadError:
            raise WorkloadError(f"{where}: confidence must lie strictly between 0 and 1") from None
    named = {name: str(cells[name]) for name in attributes if cells.get(name)}
    for column, cell in cells.items():
        if cell and column not in (*_COLUMNS, *attributes):
            raise WorkloadError(f"{where}: the group has no attribute {column!r}; leave it empty")
    return _Row(line, amount, confidence, named)


def _number(where: str, column: str, text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise WorkloadError(f"{where}: {column} is no number") from None


def _places(f: Factor, domain: Domain) -> dict[str, int]:
    """The rows of a factor by their labels; those of prefixes by their last cell's too."""
    attribute = domain[f.attribute]
    labels = f.labels(attribute)
    places = {str(label): i for i, label in enumerate(labels)}
    # As the released tables write them in CSV.
    places |= {str(label).lower(): i for i, label in enumerate(labels) if isinstance(label, bool)}
    if f.kind == "prefix":
        ends = Factor(f.attribute, "identity", f.size).labels(attribute)
        places |= {str(label): i for i, label in enumerate(ends)}
    return places


def _place(path: Path, row: _Row, f: Factor, known: Mapping[str, int]) -> Any:
    label = row.named.get(f.attribute)
    if label is None:
        return slice(None)
    if label not in known:
        raise WorkloadError(
            f"{path}: line {row.line}: its {f.attribute} is no row of the group; "
            f"{suggest_nearest(label, list(known))}"
        )
    return known[label]
