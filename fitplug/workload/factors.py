"""Factors: what a query group asks of one attribute, a matrix of rows over its cells.

A group is the Kronecker product of its factors; an attribute without one is summed out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fitplug.domain import Attribute, Bins, Categories, Hierarchy, Integers
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.workload.labelled_rows import (
    LabelledRows,
    build_matrix,
    check_labels,
    check_matrix_size,
)

NAMED = ("identity", "prefix", "all_ranges", "total")


@dataclass(frozen=True)
class Ranges:
    """Ranges of an attribute in its own values; see `ranges`."""

    bounds: tuple[tuple[Any, Any], ...]


def ranges(bounds: Sequence[Sequence[Any]]) -> Ranges:
    """One row per (low, high), both ends in, in the attribute's own values.

    For Bins the two are edges: the cells between them. For Categories, the cells from the first
    to the second in the order of the domain. Raises WorkloadError for anything but pairs.
    """
    if isinstance(bounds, str) or not isinstance(bounds, Sequence) or not bounds:
        raise WorkloadError(f"ranges must be a list of (low, high) pairs, not {bounds!r}")
    for pair in bounds:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise WorkloadError(f"a range must be a pair (low, high), not {pair!r}")
    return Ranges(tuple((pair[0], pair[1]) for pair in bounds))


@dataclass(frozen=True, eq=False)
class Factor:
    """One attribute's part of a group: `matrix()` has shape (rows, size).

    kind: one of NAMED, "ranges", "matrix" or the name of a level of a Hierarchy.
    cells: for the kinds made of intervals, the first and last cell of each row, shape (rows, 2).
    array: for the kind "matrix", the rows given. names: what these are called, if they have labels.
    """

    attribute: str
    kind: str
    size: int
    cells: IntArray | None = None
    array: FloatArray | None = None
    names: tuple[str, ...] | None = None

    @property
    def rows(self) -> int:
        if self.kind == "identity" or self.kind == "prefix":
            return self.size
        if self.kind == "all_ranges":
            return self.size * (self.size + 1) // 2
        if self.kind == "total":
            return 1
        return len(self._given())

    def matrix(self) -> FloatArray:
        """The rows, shape (rows, size)."""
        if self.kind == "matrix":
            assert self.array is not None
            return self.array
        first, last = self.intervals().T[:, :, None]
        cell = np.arange(self.size)
        return ((first <= cell) & (cell <= last)).astype(np.float64)

    def intervals(self) -> IntArray:
        """First and last cell of each row, shape (rows, 2); not for the kind "matrix"."""
        cell = np.arange(self.size)
        if self.kind == "identity":
            return np.stack([cell, cell], axis=1)
        if self.kind == "prefix":
            return np.stack([np.zeros_like(cell), cell], axis=1)
        if self.kind == "all_ranges":
            return np.stack(np.triu_indices(self.size), axis=1)
        if self.kind == "total":
            return np.array([[0, self.size - 1]])
        if self.cells is None:
            raise WorkloadError(f"a {self.kind} factor has no intervals")
        return self.cells

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        """The rows' answers, from values along an axis of the cells."""
        if self.kind == "identity":
            return values
        moved = np.moveaxis(values, axis, -1)
        if self.kind == "matrix":
            return np.moveaxis(moved @ self.matrix().T, -1, axis)
        sums = np.concatenate([np.zeros_like(moved[..., :1]), moved.cumsum(axis=-1)], axis=-1)
        first, last = self.intervals().T
        return np.moveaxis(sums[..., last + 1] - sums[..., first], -1, axis)

    def adjoint(self, values: AnyArray, axis: int) -> AnyArray:
        """What weights on the rows, along an axis, come to on the cells."""
        if self.kind == "identity":
            return values
        moved = np.moveaxis(values, axis, -1)
        if self.kind == "matrix":
            return np.moveaxis(moved @ self.matrix(), -1, axis)
        steps = np.zeros((self.size + 1, *moved.shape[:-1]), dtype=values.dtype)
        first, last = self.intervals().T
        np.add.at(steps, first, np.moveaxis(moved, -1, 0))
        np.subtract.at(steps, last + 1, np.moveaxis(moved, -1, 0))
        return np.moveaxis(steps[:-1].cumsum(axis=0), 0, axis)

    def labels(self, attribute: Attribute) -> list[Any]:
        """What to call each row in a table: the value itself for single integers and booleans, else
        text. Where one cell takes all other values, its label is text, and so all are.
        """
        if self.kind == "matrix":
            return list(range(self.rows) if self.names is None else self.names)
        if self.kind == "total":
            return ["all"]
        if self.kind == "identity":
            if isinstance(attribute, Integers):
                return list(range(attribute.low, attribute.high + 1))
            if isinstance(attribute, Categories) and attribute.other is None:
                return list(attribute.values)
            return list(attribute.labels)
        if isinstance(attribute, Hierarchy) and self.kind in attribute.levels:
            return list(attribute.named_at(self.kind))
        if isinstance(attribute, Bins):
            edges = attribute.edges
            return [f"[{edges[a]}, {edges[b + 1]})" for a, b in self.intervals()]
        labels = attribute.labels
        return [labels[a] if a == b else f"{labels[a]}..{labels[b]}" for a, b in self.intervals()]

    def _given(self) -> AnyArray:
        given = self.array if self.kind == "matrix" else self.cells
        assert given is not None
        return given


def build_factor(name: str, attribute: Attribute, asked: Any) -> Factor:
    """The factor that `asked` names on an attribute. Raises WorkloadError."""
    if isinstance(asked, str):
        return _named(name, attribute, asked)
    if isinstance(asked, Factor):
        if (asked.attribute, asked.size) != (name, attribute.size):
            raise WorkloadError(f"{name}: this factor was made for another attribute")
        return asked
    if isinstance(asked, Ranges):
        cells = [_interval(name, attribute, pair) for pair in asked.bounds]
        return build_interval_factor(name, attribute, np.array(cells, dtype=np.int64))
    if isinstance(asked, LabelledRows):
        array, names = build_matrix(name, attribute, asked)
        return Factor(name, "matrix", attribute.size, array=array, names=names)
    return Factor(name, "matrix", attribute.size, array=read_matrix(name, asked, attribute.size))


def build_labelled_factor(name: str, attribute: Attribute, array: Any, labels: Any) -> Factor:
    """A matrix whose rows have labels, as a plan file holds it. Raises WorkloadError."""
    matrix = read_matrix(name, array, attribute.size)
    names = check_labels(name, labels, len(matrix))
    return Factor(name, "matrix", attribute.size, array=matrix, names=names)


def _named(name: str, attribute: Attribute, asked: str) -> Factor:
    levels: tuple[str, ...] = ()
    if isinstance(attribute, Hierarchy):
        levels = attribute.levels
        if asked in levels[:-1]:
            return Factor(name, asked, attribute.size, cells=attribute.intervals(asked))
    if asked not in (*NAMED, *levels):
        hint = suggest_nearest(asked, (*NAMED, *levels))
        raise WorkloadError(f"{name} = {asked!r} is no kind of query; {hint}")
    # The finest level has the cells themselves: the identity, which the optimizer knows.
    return Factor(name, "identity" if asked in levels else asked, attribute.size)


def build_interval_factor(name: str, attribute: Attribute, cells: Any) -> Factor:
    """Ranges by their first and last cell, shape (rows, 2). Raises WorkloadError."""
    fits = isinstance(cells, np.ndarray) and cells.dtype == np.int64 and cells.ndim == 2
    if not fits or cells.shape[1] != 2 or not len(cells):
        raise WorkloadError(f"{name}: ranges by cells are pairs of integers")
    first, last = cells.T
    if not ((first >= 0) & (first <= last) & (last < attribute.size)).all():
        raise WorkloadError(f"{name}: a range lies outside the attribute's {attribute.size} cells")
    return Factor(name, "ranges", attribute.size, cells=cells)


def read_matrix(name: str, given: Any, cells: int | None = None) -> FloatArray:
    """A finite matrix (rows >= 1, cells) as float64, dense also if it is given as a sparse one of
    SciPy. Raises WorkloadError naming what is off.
    """
    if sparse.issparse(given):
        if given.ndim == 2:
            check_matrix_size(name, *given.shape)
        given = given.toarray()
    if isinstance(given, (Mapping, set)):
        raise WorkloadError(f"{name}: {type(given).__name__} is no query; give a 2-d array")
    try:
        array = np.asarray(given)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind == "c":
        raise WorkloadError(
            f"{name}: the query matrix is complex; give real numbers, such as its .real"
        )
    if array.dtype.kind not in "iufb":
        raise WorkloadError(
            f"{name}: the query matrix is not an array of numbers; give rows of equal length"
        )
    array = array.astype(np.float64)
    if array.ndim != 2:
        raise WorkloadError(f"{name}: the query matrix has {array.ndim} dimensions; give 2")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise WorkloadError(f"{name}: the query matrix is empty, shape {array.shape}; give a row")
    if cells is not None and array.shape[1] != cells:
        raise WorkloadError(
            f"{name}: the query matrix has {array.shape[1]} columns for {cells} cells"
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        row, column = bad[0]
        raise WorkloadError(
            f"{name}: the query matrix holds {array[row, column]} at row {row}, column {column}; "
            "give finite numbers"
        )
    # +0.0 turns -0.0 into 0.0, so that equal columns are equal bytes.
    return array + 0.0


def _interval(name: str, attribute: Attribute, pair: tuple[Any, Any]) -> tuple[int, int]:
    low, high = (attribute.position(value) for value in pair)
    for value, cell in zip(pair, (low, high), strict=True):
        if cell is None:
            first, last = _ends(attribute)
            what = "an edge of" if isinstance(attribute, Bins) else "in the domain of"
            raise WorkloadError(
                f"{name}: range {list(pair)}: {value!r} is not {what} {name}; use its own values, "
                f"from {first} to {last}"
            )
    assert low is not None
    assert high is not None
    if isinstance(attribute, Bins):
        high -= 1
    if low > high:
        raise WorkloadError(f"{name}: range {list(pair)} is empty; give the lower end first")
    return low, high


def _ends(attribute: Attribute) -> tuple[Any, Any]:
    if isinstance(attribute, Integers):
        return attribute.low, attribute.high
    if isinstance(attribute, Bins):
        return attribute.edges[0], attribute.edges[-1]
    return attribute.labels[0], attribute.labels[-1]
