"""Labelled rows: queries of one attribute that are sets of its values, or weigh them, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.domain import Attribute, Members
from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray

MOST_ENTRIES = 2**27
"""Of a query matrix, which is held dense: a GiB."""


@dataclass(frozen=True)
class LabelledRows:
    """Labelled rows in an attribute's own values; see `rows`."""

    named: tuple[tuple[str, tuple[tuple[Any, float], ...]], ...]


def rows(named: Mapping[str, Any]) -> LabelledRows:
    """One row per label: a list of values counts everybody who has one of them, once; a mapping
    {value: coefficient} weighs them, such as {"15001": 1, "15003": -1} for a difference.

        fp.rows({"coast": ["15001", "15009"], "change": {"15001": 1, "15003": -1}})

    A list always holds values and never coefficients. Values are the attribute's own, or as tables
    show them ("[0, 10)" of bins); of a Hierarchy also nodes of any level, for all that lies in
    them. The coefficients of nodes that lie in each other add up. The labels name the rows in
    tables, files of targets and expressions. Raises WorkloadError.
    """
    if not isinstance(named, Mapping):
        raise WorkloadError(
            f"rows must be a mapping from labels to lists of values, not {_shown(named)}"
        )
    if not named:
        raise WorkloadError("rows names no row; give at least one label and its values")
    found = []
    for label, given in named.items():
        if not isinstance(label, str) or is_blank(label):
            raise WorkloadError(
                f"the label {label!r} of a row must be a non-empty string that can be seen"
            )
        try:
            found.append((label, _terms(given)))
        except WorkloadError as error:
            raise WorkloadError(f"row {label!r} {error}") from None
    return LabelledRows(tuple(found))


def _terms(given: Any) -> tuple[tuple[Any, float], ...]:
    """Values and their coefficients; nan stands for a member of a set."""
    if isinstance(given, Mapping):
        for value, weight in given.items():
            number = isinstance(weight, (int, float, np.integer, np.floating))
            if not number or isinstance(weight, bool) or not np.isfinite(weight):
                raise WorkloadError(f"has no finite number as the coefficient of {value!r}")
        terms = tuple((value, float(weight)) for value, weight in given.items())
    elif isinstance(given, Sequence) and not isinstance(given, str):
        terms = tuple((value, float("nan")) for value in given)
    else:
        raise WorkloadError(
            f"must be a list of values, or a table of values and coefficients, not {_shown(given)}"
        )
    if not terms:
        raise WorkloadError("names no value; give at least one")
    return terms


def build_matrix(
    name: str, attribute: Attribute, asked: LabelledRows
) -> tuple[FloatArray, tuple[str, ...]]:
    """The rows (r, cells) that labelled rows are on an attribute, and their labels (r,). Raises
    WorkloadError.
    """
    check_matrix_size(name, len(asked.named), attribute.size)
    members = Members(attribute)
    matrix = np.zeros((len(asked.named), attribute.size))
    for row, (label, terms) in zip(matrix, asked.named, strict=True):
        for value, weight in terms:
            first, last = _cells(name, label, members, value, weighs=weight == weight)
            if weight != weight:  # a set, in which nobody counts twice
                row[first : last + 1] = 1.0
            else:
                row[first : last + 1] += weight
        if not row.any():
            raise WorkloadError(
                f"{name}: row {label!r} asks for nothing, as its coefficients come to zero; "
                "give others or leave it out"
            )
        if is_misnamed(members, label, row):
            raise WorkloadError(
                f"{name}: row {label!r} is both a value and a row of others; rename the row"
            )
    return matrix + 0.0, tuple(label for label, _ in asked.named)


def is_blank(label: str) -> bool:
    """Whether nothing of a row's label can be seen: it has only spaces and control characters."""
    return not any(letter.isprintable() and not letter.isspace() for letter in label)


def is_misnamed(members: Members, label: str, row: FloatArray) -> bool:
    """Whether the label of a row (cells,) names a value or a node of its attribute, and the row
    does not count exactly that.
    """
    cells = np.arange(len(row))
    named = [(first <= cells) & (cells <= last) for first, last in members.find(label)]
    return bool(named) and not any(np.array_equal(row, own) for own in named)


def _cells(name: str, label: str, members: Members, value: Any, *, weighs: bool) -> tuple[int, int]:
    found = members.find(value)
    if not found:
        number = isinstance(value, (int, float)) and not weighs
        use = "; a list names values, and a table { value = number } weighs them" if number else ""
        raise WorkloadError(f"{name}: row {label!r}: {members.unknown(value, name)}{use}")
    if len(found) > 1:
        raise WorkloadError(
            f"{name}: row {label!r}: {value!r} is a node of several levels; list the leaves that "
            "are meant"
        )
    return found.pop()


def check_matrix_size(name: str, rows: int, cells: int) -> None:
    """Raise WorkloadError for a matrix that is too large to be held dense."""
    if rows * cells > MOST_ENTRIES:
        raise WorkloadError(
            f"{name}: the query matrix has {rows} x {cells} entries, more than the {MOST_ENTRIES} "
            "that are held in memory; ask in several groups, or by levels, ranges or prefixes"
        )


def check_labels(name: str, labels: Any, rows: int) -> tuple[str, ...]:
    """The labels of a matrix's rows, as a plan file has them. Raises WorkloadError."""
    texts = isinstance(labels, (list, tuple)) and all(isinstance(text, str) for text in labels)
    if not texts or len(labels) != rows or len(set(labels)) != rows:
        raise WorkloadError(f"{name}: the labels are not one different text per row")
    return tuple(labels)


def _shown(given: Any) -> str:
    return repr(given) if isinstance(given, (str, int, float, bool)) else type(given).__name__
