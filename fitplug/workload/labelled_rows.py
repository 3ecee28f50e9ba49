"""Labelled rows: queries on one attribute, each a set of values or a weighted sum, with a label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.domain import Attribute, ValueLookup
from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray

MOST_ENTRIES = 2**27
"""The largest number of entries of a query matrix, which is held dense: one GiB."""


@dataclass(frozen=True)
class LabelledRows:
    """Labelled rows in an attribute's own values, before they are bound to a domain.

    Attributes:
        named: The label of each row, and its values with their coefficients. The coefficient nan
            stands for a member of a set.
    """

    named: tuple[tuple[str, tuple[tuple[Any, float], ...]], ...]


def subsets(named: Mapping[str, Any]) -> LabelledRows:
    """Ask for the counts of sets of values, or for weighted sums of counts, each with a label.

        fp.subsets({"coast": ["15001", "15009"], "change": {"15001": 1, "15003": -1}})

    Args:
        named: For each label, a list of values or a mapping from values to coefficients. With a
            list, the query counts the rows that have one of the values. With a mapping, it
            multiplies the count of each value by the coefficient, and adds up the products. Values
            are written as in the domain, or as tables show them, such as "[0, 10)" for bins. For a
            Hierarchy, a node of any level stands for all leaves in it. If a node lies within
            another node of the same mapping, its leaves get the sum of both coefficients. Tables,
            target files and expressions refer to these queries by their labels.

    Raises:
        WorkloadError: A label is invalid, or the values for it are.
    """
    if not isinstance(named, Mapping):
        raise WorkloadError(
            f"rows must be a mapping of labels to lists of values, not {_describe(named)}"
        )
    if not named:
        raise WorkloadError("rows is empty. Give at least one label and its values.")
    labelled = []
    for label, given in named.items():
        if not isinstance(label, str) or is_blank(label):
            raise WorkloadError(
                f"row label {label!r} must be a string with at least one visible character"
            )
        try:
            labelled.append((label, _read_coefficients(given)))
        except WorkloadError as error:
            raise WorkloadError(f"row {label!r} {error}") from None
    return LabelledRows(tuple(labelled))


def _read_coefficients(given: Any) -> tuple[tuple[Any, float], ...]:
    """Read the values of a row and their coefficients; nan stands for a member of a set."""
    if isinstance(given, Mapping):
        for value, coefficient in given.items():
            number = isinstance(coefficient, (int, float, np.integer, np.floating))
            if not number or isinstance(coefficient, bool) or not np.isfinite(coefficient):
                raise WorkloadError(f"needs a finite number as the coefficient of {value!r}")
        pairs = tuple((value, float(coefficient)) for value, coefficient in given.items())
    elif isinstance(given, Sequence) and not isinstance(given, str):
        pairs = tuple((value, float("nan")) for value in given)
    else:
        raise WorkloadError(
            "must be a list of values, or a mapping of values to coefficients, not "
            f"{_describe(given)}"
        )
    if not pairs:
        raise WorkloadError("has no values. Give at least one.")
    return pairs


def build_matrix(
    name: str, attribute: Attribute, labelled: LabelledRows
) -> tuple[FloatArray, tuple[str, ...]]:
    """Build the query matrix of labelled rows.

    Args:
        name: The name of the attribute.
        attribute: The attribute.
        labelled: The rows.

    Returns:
        The matrix, shape (rows, cells), and the labels of its rows.

    Raises:
        WorkloadError: A value is not in the attribute, a row is zero, or a label is the name of
            another value.
    """
    check_matrix_size(name, len(labelled.named), attribute.size)
    members = ValueLookup(attribute)
    matrix = np.zeros((len(labelled.named), attribute.size))
    for row, (label, pairs) in zip(matrix, labelled.named, strict=True):
        for value, coefficient in pairs:
            is_set = math.isnan(coefficient)
            first, last = _find_cells(name, label, members, value, is_set=is_set)
            if is_set:  # nobody counts twice
                row[first : last + 1] = 1.0
            else:
                row[first : last + 1] += coefficient
        if not row.any():
            raise WorkloadError(
                f"{name}: all coefficients of row {label!r} are zero or cancel each other. Leave "
                "out the row."
            )
        if is_misnamed(members, label, row):
            raise WorkloadError(
                f"{name}: the row label {label!r} is already the label of a value. Rename the row."
            )
    return matrix + 0.0, tuple(label for label, _ in labelled.named)


def is_blank(label: str) -> bool:
    """Return whether a label cannot be seen: it has only spaces and control characters."""
    return not any(letter.isprintable() and not letter.isspace() for letter in label)


def is_misnamed(members: ValueLookup, label: str, row: FloatArray) -> bool:
    """Return whether a row's label names a value or a node but the row does not count just that.

    Args:
        members: The values and nodes of the attribute.
        label: The label of the row.
        row: Shape (cells,): the coefficients of the row.
    """
    cells = np.arange(len(row))
    named = [(first <= cells) & (cells <= last) for first, last in members.find(label)]
    return bool(named) and not any(np.array_equal(row, matrix) for matrix in named)


def _find_cells(
    name: str, label: str, members: ValueLookup, value: Any, *, is_set: bool
) -> tuple[int, int]:
    """Find the first and last cell of a value in a row, or raise WorkloadError."""
    intervals = members.find(value)
    if not intervals:
        unknown = members.describe_unknown(value, name)
        if is_set and isinstance(value, (int, float)) and members.codec.value_type is str:
            unknown = f"{name} has no value {value!r}. Write coefficients as {{ value = number }}."
        raise WorkloadError(f"{name}: row {label!r}: {unknown}")
    if len(intervals) > 1:
        raise WorkloadError(
            f"{name}: row {label!r}: nodes of several levels have the name {value!r}. List leaves "
            "instead."
        )
    return intervals.pop()


def check_matrix_size(name: str, rows: int, cells: int) -> None:
    """Check that a dense query matrix fits into memory.

    Args:
        name: The name of the attribute, for the message.
        rows: The number of rows.
        cells: The number of columns.

    Raises:
        WorkloadError: The matrix has too many entries.
    """
    if rows * cells > MOST_ENTRIES:
        raise WorkloadError(
            f"{name}: a matrix can have at most {MOST_ENTRIES:,} entries, not {rows:,} x "
            f"{cells:,}. Use levels, ranges or prefixes instead."
        )


def check_labels(name: str, labels: Any, rows: int) -> tuple[str, ...]:
    """Check the labels of a matrix, as a plan file holds them.

    Args:
        name: The name of the attribute, for the message.
        labels: One text per row, all different.
        rows: The number of rows.

    Returns:
        The labels.

    Raises:
        WorkloadError: The labels are not well formed.
    """
    texts = isinstance(labels, (list, tuple)) and all(isinstance(text, str) for text in labels)
    if not texts or len(labels) != rows or len(set(labels)) != rows:
        raise WorkloadError(f"{name}: each row needs one label, and all labels must differ")
    return tuple(labels)


def _describe(given: Any) -> str:
    """Describe a wrong argument: by its value if it is a scalar, else by its type."""
    return repr(given) if isinstance(given, (str, int, float, bool)) else type(given).__name__
