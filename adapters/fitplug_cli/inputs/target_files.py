"""Target files: CSV tables of how accurate each number must be.

    group,SEX,AGEP,moe,confidence
    pyramid,,,30,0.90
    pyramid,2,0..17,12,0.90

A row sets the target of the queries whose labels it names, written as in the release's tables. An
empty cell or missing column means all labels. If several rows apply to a query, the row that names
the most labels counts. Exactly one of the columns variance, std and moe is needed; moe may have a
confidence. Rows for other groups are skipped; without a column "group", all rows are for the group
that names the file.

Someone may name the confidential data by mistake, so errors give lines and columns and never quote
the file.
"""

from __future__ import annotations

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
from fitplug_cli.inputs.code_files import CodeFile

TARGETS_KEY = "targets"
"""The key of a target file in a [[query]]."""

_KINDS = ("variance", "std", "moe")
_COLUMNS = ("group", *_KINDS, "confidence")


@dataclass(frozen=True)
class _Row:
    """A row of the file.

    Attributes:
        number: Its number in the file, from 0.
        amount: The variance, std or moe.
        confidence: The confidence of a moe; None for other targets.
        labels: Its label of each attribute that it names.
    """

    number: int
    amount: float
    confidence: float | None
    labels: Mapping[str, str]


def read_targets(
    path: Path, name: str, factors: Mapping[str, Any], domain: Domain, groups: Sequence[str]
) -> dict[str, Any]:
    """Read the targets of a group of queries.

    Args:
        path: The file.
        name: The name of the group.
        factors: The group's query on each attribute, for `fitplug.queries`.
        domain: The domain.
        groups: The names of all groups of the spec; a row for any other group is an error.

    Returns:
        Keywords for `fitplug.queries`: targets in the group's shape, and the confidence of a moe.

    Raises:
        WorkloadError: If the file is wrong, two rows disagree, or a query has no target.
    """
    bound = [
        build_factor(attribute, domain[attribute], asks) for attribute, asks in factors.items()
    ]
    file = CodeFile(path, "file of targets", WorkloadError)
    kind, rows = _read_rows(file, name, [f.attribute for f in bound], domain, groups)
    shape = tuple(f.rows for f in bound)
    positions = [_index_labels(f, domain) for f in bound]
    amounts, confidences = np.full(shape, np.nan), np.full(shape, np.nan)
    numbers, named = np.zeros(shape, dtype=np.int64), np.full(shape, -1)  # of the row that applies
    conflicts = np.full(shape, -1)  # the number of another row with as many labels
    for row in sorted(rows, key=lambda row: len(row.labels)):
        at = tuple(
            _find_row(file, row, f, known) for f, known in zip(bound, positions, strict=True)
        )
        confidence = row.confidence or 0.0
        same = (amounts[at] == row.amount) & (confidences[at] == confidence)
        disagrees = (named[at] == len(row.labels)) & ~same
        conflicts[at] = np.where(disagrees, numbers[at], -1)
        amounts[at], confidences[at], numbers[at] = row.amount, confidence, row.number
        named[at] = len(row.labels)
    if (conflicts >= 0).any():
        first = np.flatnonzero(conflicts >= 0)[0]
        one, other = (file.locate_row(int(n.flat[first])) for n in (conflicts, numbers))
        raise WorkloadError(
            f"{path}: {one} and {other} set different targets for the same answer of {name!r}. "
            "Remove one of these lines."
        )
    if (named < 0).any():
        missing = np.argwhere(named < 0)[0]
        labels = [f.labels(domain[f.attribute])[i] for f, i in zip(bound, missing, strict=True)]
        query = ", ".join(
            f"{f.attribute} = {label}" for f, label in zip(bound, labels, strict=True)
        )
        answer = f"the answer {query} of {name!r}" if query else repr(name)
        raise WorkloadError(f"{path}: {answer} has no target. Add a line for this answer.")
    return _build_keywords(kind, amounts, confidences)


def _build_keywords(kind: str, amounts: Any, confidences: Any) -> dict[str, Any]:
    """Build the keywords of `fitplug.queries`; moes at several confidences become stds."""
    if kind != "moe":
        return {kind: amounts}
    levels = np.unique(confidences)
    if len(levels) == 1:
        return {"moe": amounts, "confidence": float(levels[0])}
    quantiles = np.vectorize(two_sided_quantile, otypes=[float])(confidences)
    # Rounded down, so that no std exceeds its target.
    return {"std": amounts / quantiles * (1 - 2.0**-50)}


def _read_rows(
    file: CodeFile, name: str, attributes: Sequence[str], domain: Domain, groups: Sequence[str]
) -> tuple[str, list[_Row]]:
    """Read the rows of a group, and the kind of their amounts: variance, std or moe."""
    path, columns = file.path, file.names
    kinds = [kind for kind in _KINDS if kind in columns]
    if len(kinds) != 1:
        raise WorkloadError(f"{path} must have exactly one of the columns {', '.join(_KINDS)}")
    by_group = "group" in columns
    for number, column in enumerate(columns, 1):
        # With a column "group", columns may be attributes of other groups.
        known = (*_COLUMNS, *(domain.names if by_group else attributes))
        if column not in known:
            whose = "the domain" if by_group else repr(name)
            raise WorkloadError(
                f"{path}: the name of column {number} is not an attribute of {whose}. "
                f"{suggest_nearest(column, known)}"
            )
    rows = []
    for number, cells in file.iterate_rows():
        if by_group and cells["group"] not in groups:
            raise WorkloadError(
                f"{file.locate(number)}: the spec has no such query group. "
                f"{suggest_nearest(cells['group'], groups)}"
            )
        if not by_group or cells["group"] == name:
            rows.append(_parse_row(file, number, cells, kinds[0], attributes))
    return kinds[0], rows


def _parse_row(
    file: CodeFile, number: int, cells: Mapping[str, str], kind: str, attributes: Sequence[str]
) -> _Row:
    where = file.locate(number)
    amount = _parse_number(where, kind, cells[kind])
    if not 0 < amount < float("inf"):
        raise WorkloadError(f"{where}: {kind!r} must be finite and above zero")
    confidence = None
    if kind != "moe" and cells.get("confidence"):
        raise WorkloadError(f"{where}: 'confidence' must be empty for {kind!r}")
    if kind == "moe":
        given = cells.get("confidence")
        confidence = _parse_number(where, "confidence", given) if given else DEFAULT_CONFIDENCE
        try:
            check_confidence(confidence)
        except WorkloadError:
            raise WorkloadError(f"{where}: 'confidence' must be above 0 and below 1") from None
    labels = {name: cells[name] for name in attributes if cells.get(name)}
    for column, cell in cells.items():
        if cell and column not in (*_COLUMNS, *attributes):
            raise WorkloadError(
                f"{where}: the group has no attribute {column!r}. Leave this column empty."
            )
    return _Row(number, amount, confidence, labels)


def _parse_number(where: str, column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WorkloadError(f"{where}: {column!r} must be a number") from None


def _index_labels(f: Factor, domain: Domain) -> dict[str, int]:
    """Map each label to its row of a factor; a prefix is also known by its last cell."""
    attribute = domain[f.attribute]
    labels = f.labels(attribute)
    positions = {str(label): i for i, label in enumerate(labels)}
    # The CSV tables of a release write booleans in lower case.
    positions |= {
        str(label).lower(): i for i, label in enumerate(labels) if isinstance(label, bool)
    }
    if f.kind == "prefix":
        positions |= {str(label): i for i, label in enumerate(attribute.values)}
    return positions


def _find_row(file: CodeFile, row: _Row, f: Factor, known: Mapping[str, int]) -> Any:
    """Return which of the factor's rows a row of the file sets: one, or all."""
    label = row.labels.get(f.attribute)
    if label is None:
        return slice(None)
    if label not in known:
        raise WorkloadError(
            f"{file.locate(row.number)}: unknown label of {f.attribute!r}. "
            f"{suggest_nearest(label, list(known))}"
        )
    return known[label]
