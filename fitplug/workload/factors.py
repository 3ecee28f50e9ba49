"""Factors: the matrix of a query group for one attribute, with a row per query.

A query group is the Kronecker product of its factors. An attribute without a factor is summed out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from fitplug.domain import Attribute, get_codec
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.numeric import AnyArray, FloatArray, IntArray, read_array
from fitplug.workload.labelled_rows import (
    LabelledRows,
    build_matrix,
    check_labels,
    check_matrix_size,
)

NAMED = ("identity", "prefix", "all_ranges", "total")

Kind: TypeAlias = Literal["identity", "prefix", "all_ranges", "total", "sum"]
"""The named kinds of queries, for editors to offer; levels have names too."""


@dataclass(frozen=True)
class Ranges:
    """Ranges of an attribute in its own values, before they are bound to a domain.

    Attributes:
        bounds: One (low, high) per row.
    """

    bounds: tuple[tuple[Any, Any], ...]


def ranges(bounds: Sequence[Sequence[Any]]) -> Ranges:
    """Ask for the counts of ranges of an attribute.

    Args:
        bounds: A pair (low, high) for each range, with values of the attribute. Both ends belong to
            the range. For Bins, `low` and `high` are edges, and the range has the cells between
            them. For Categories, the range contains all values from `low` to `high` in the order of
            the domain. A range includes the cell `other` if its high end is the label of this cell,
            such as (65, "missing").

    Raises:
        WorkloadError: `bounds` is not a list of pairs.

    Example:
        >>> bands = fp.queries({"age": fp.ranges([(0, 1), (2, 3)])}, std=5.0, name="bands")
        >>> fp.Workload(domain, [bands])["bands"].shape
        (2,)
    """
    if isinstance(bounds, str) or not isinstance(bounds, Sequence) or not bounds:
        raise WorkloadError(f"ranges must be a list of (low, high) pairs, not {bounds!r}")
    for pair in bounds:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise WorkloadError(f"a range must be a pair (low, high), not {pair!r}")
    return Ranges(tuple((pair[0], pair[1]) for pair in bounds))


@dataclass(frozen=True, eq=False)
class Factor:
    """The matrix of a query group for one attribute.

    Attributes:
        attribute: The name of the attribute.
        kind: One of NAMED, "ranges", "matrix", the name of a level of a Hierarchy, or for a measure
            "sum" or "count".
        size: The number of the attribute's cells.
        cells: Shape (rows, 2): the first and the last cell of each row, for ranges and levels.
        array: Shape (rows, size): the matrix, for the kind "matrix" and for measures.
        names: The labels of the rows of `array`, if they have labels.
        left_out: The number of last cells that "prefix" and "all_ranges" leave out: 1 if the last
            cell is for null and all other values.
    """

    attribute: str
    kind: str
    size: int
    cells: IntArray | None = None
    array: FloatArray | None = None
    names: tuple[str, ...] | None = None
    left_out: int = 0

    @property
    def ordered(self) -> int:
        """The number of cells that "prefix" and "all_ranges" run over."""
        return self.size - self.left_out

    @property
    def rows(self) -> int:
        """The number of rows."""
        if self.kind == "identity":
            return self.size
        if self.kind == "prefix":
            return self.ordered
        if self.kind == "all_ranges":
            return self.ordered * (self.ordered + 1) // 2
        if self.kind == "total":
            return 1
        stored = self.cells if self.array is None else self.array
        assert stored is not None
        return len(stored)

    def matrix(self) -> FloatArray:
        """Build the matrix, shape (rows, size)."""
        if self.array is not None:
            return self.array
        first, last = self.intervals().T[:, :, None]
        cell = np.arange(self.size)
        return ((first <= cell) & (cell <= last)).astype(np.float64)

    def intervals(self) -> IntArray:
        """Build the first and last cells of the rows, shape (rows, 2).

        Raises:
            WorkloadError: The factor has a matrix instead.
        """
        if self.kind == "all_ranges":
            return np.asarray(np.stack(np.triu_indices(self.ordered), axis=1), dtype=np.int64)
        cell = np.arange(self.size, dtype=np.int64)
        if self.kind == "identity":
            return np.stack([cell, cell], axis=1)
        if self.kind == "prefix":
            return np.stack([np.zeros_like(cell), cell], axis=1)[: self.ordered]
        if self.kind == "total":
            return np.array([[0, self.size - 1]], dtype=np.int64)
        if self.cells is None:
            raise WorkloadError(f"queries of the kind {self.kind} have no intervals")
        return self.cells

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        """Multiply the matrix by values along an axis.

        Args:
            values: An array with an axis of `size` cells.
            axis: That axis.

        Returns:
            The array with an axis of `rows` answers in its place.
        """
        if self.kind == "identity":
            return values
        moved = np.moveaxis(values, axis, -1)
        if self.array is not None:
            return np.moveaxis(moved @ self.matrix().T, -1, axis)
        sums = np.concatenate([np.zeros_like(moved[..., :1]), moved.cumsum(axis=-1)], axis=-1)
        first, last = self.intervals().T
        return np.moveaxis(sums[..., last + 1] - sums[..., first], -1, axis)

    def adjoint(self, values: AnyArray, axis: int) -> AnyArray:
        """Multiply the transposed matrix by values along an axis.

        Args:
            values: An array with an axis of `rows` values.
            axis: That axis.

        Returns:
            The array with an axis of `size` cells in its place.
        """
        if self.kind == "identity":
            return values
        moved = np.moveaxis(values, axis, -1)
        if self.array is not None:
            return np.moveaxis(moved @ self.matrix(), -1, axis)
        # The differences between neighbouring cells: a row begins at its first cell and ends after
        # its last one.
        differences = np.zeros((self.size + 1, *moved.shape[:-1]), dtype=values.dtype)
        first, last = self.intervals().T
        np.add.at(differences, first, np.moveaxis(moved, -1, 0))
        np.subtract.at(differences, last + 1, np.moveaxis(moved, -1, 0))
        return np.moveaxis(differences[:-1].cumsum(axis=0), 0, axis)

    def labels(self, attribute: Attribute) -> list[Any]:
        """List the labels of the rows, as tables show them.

        The label of a single integer or boolean is the value itself; other labels are texts. If the
        attribute has a cell for all other values, all labels are texts, like that cell's label.
        """
        if self.kind == "matrix":
            return list(range(self.rows) if self.names is None else self.names)
        if self.kind == "total":
            return ["all"]
        codec = get_codec(attribute)
        if self.kind in codec.quantities:
            return [self.kind]
        if self.kind == "identity":
            return list(codec.column_values())
        if self.kind in codec.levels:
            return list(codec.named_at(self.kind))
        return codec.label_runs(self.intervals())

    def labels_between(self, attribute: Attribute, start: int, stop: int) -> list[Any]:
        """List the labels of the rows `start` to `stop` - 1; see `labels`."""
        codec = get_codec(attribute)
        level = codec.levels[-1] if codec.levels and self.kind == "identity" else self.kind
        if level in codec.levels:
            return codec.named_between(level, start, stop)
        if self.kind == "identity":
            return list(codec.column_values()[start:stop])
        return self.labels(attribute)[start:stop]


def build_factor(name: str, attribute: Attribute, query: Any) -> Factor:
    """Build the factor for one attribute of a query group.

    Args:
        name: The name of the attribute.
        attribute: The attribute.
        query: What a user may give for an attribute; see `queries`. A Factor is returned as it is.

    Raises:
        WorkloadError: The query is not well formed, or does not fit the attribute.
    """
    if isinstance(query, str):
        return _build_named_factor(name, attribute, query)
    if isinstance(query, Factor):
        if (query.attribute, query.size) != (name, attribute.size):
            raise WorkloadError(f"{name}: this query was made for another attribute")
        return query
    if get_codec(attribute).quantities:
        raise _make_measure_error(name, attribute)
    if isinstance(query, Ranges):
        cells = [_find_interval(name, attribute, pair) for pair in query.bounds]
        return build_interval_factor(name, attribute, np.array(cells, dtype=np.int64))
    if isinstance(query, LabelledRows):
        array, names = build_matrix(name, attribute, query)
        return Factor(name, "matrix", attribute.size, array=array, names=names)
    return Factor(name, "matrix", attribute.size, array=read_matrix(name, query, attribute.size))


def _make_measure_error(name: str, attribute: Attribute) -> WorkloadError:
    """Make the error for a query that is not possible on a measure."""
    kinds = " or ".join(map(repr, (*get_codec(attribute).quantities, "total")))
    return WorkloadError(f"{name} is a measure. Use {kinds}.")


def build_labelled_factor(name: str, attribute: Attribute, array: Any, labels: Any) -> Factor:
    """Build a factor from a matrix whose rows have labels, as a plan file holds it.

    Args:
        name: The name of the attribute.
        attribute: The attribute.
        array: The matrix, shape (rows, size).
        labels: One text per row, all different.

    Raises:
        WorkloadError: The matrix or the labels are not well formed.
    """
    matrix = read_matrix(name, array, attribute.size)
    names = check_labels(name, labels, len(matrix))
    return Factor(name, "matrix", attribute.size, array=matrix, names=names)


def _build_named_factor(name: str, attribute: Attribute, kind: str) -> Factor:
    """Build a factor of one of the kinds NAMED, or of a level of a hierarchy."""
    codec = get_codec(attribute)
    levels, quantities = codec.levels, codec.quantities
    if kind in quantities:
        return Factor(name, kind, attribute.size, array=quantities[kind][None])
    if quantities and kind != "total":
        raise _make_measure_error(name, attribute)
    if kind in levels[:-1]:
        return Factor(name, kind, attribute.size, cells=codec.intervals(kind))
    if kind not in (*NAMED, *levels):
        hint = suggest_nearest(kind, (*NAMED, *levels))
        raise WorkloadError(f"{name} = {kind!r} is not a kind of query. {hint}")
    # The finest level is the identity, for which the optimizer is faster.
    kind = "identity" if kind in levels else kind
    left_out = codec.size - codec.value_count
    if kind in ("prefix", "all_ranges") and not codec.value_count:
        raise WorkloadError(f"{name} = {kind!r} needs an attribute with values in order")
    return Factor(name, kind, attribute.size, left_out=left_out)


def build_interval_factor(name: str, attribute: Attribute, cells: Any) -> Factor:
    """Build a factor from the first and last cells of ranges, as a plan file holds them.

    Args:
        name: The name of the attribute.
        attribute: The attribute.
        cells: Shape (rows, 2), int64.

    Raises:
        WorkloadError: `cells` is not such an array, or a range lies outside the attribute.
    """
    fits = isinstance(cells, np.ndarray) and cells.dtype == np.int64 and cells.ndim == 2
    if not fits or cells.shape[1] != 2 or not len(cells):
        raise WorkloadError(
            f"{name}: each range must be a pair of integers: its first and last cell"
        )
    first, last = cells.T
    if not ((first >= 0) & (first <= last) & (last < attribute.size)).all():
        raise WorkloadError(
            f"{name}: a range lies outside the {attribute.size} cells of the attribute"
        )
    return Factor(name, "ranges", attribute.size, cells=cells)


def read_matrix(name: str, given: Any, cells: int | None = None) -> FloatArray:
    """Convert a matrix that a user gave to a dense array of finite numbers.

    Args:
        name: The name of the attribute, for messages.
        given: Rows of numbers, an array, or a SciPy sparse matrix or linear operator.
        cells: The number of columns that it must have, if that is known.

    Returns:
        Shape (rows, cells), with at least one row.

    Raises:
        WorkloadError: The matrix is not well formed; the message says where.
    """
    if sparse.issparse(given):
        if given.ndim == 2:
            check_matrix_size(name, *given.shape)
        given = given.toarray()
    elif isinstance(given, LinearOperator):
        check_matrix_size(name, *given.shape)
        given = given.matmat(np.eye(given.shape[1]))
    if isinstance(given, (Mapping, set)):
        raise WorkloadError(
            f"{name}: {type(given).__name__} is not a query. Give the name of a kind of query or a "
            "2-d array."
        )
    array = read_array(given)
    if array.dtype.kind == "c":
        raise WorkloadError(f"{name}: the matrix must have real numbers, not complex numbers")
    if array.dtype.kind not in "iufb":
        raise WorkloadError(
            f"{name}: the rows of the matrix must be lists of numbers, all of one length"
        )
    array = array.astype(np.float64)
    if array.ndim != 2:
        raise WorkloadError(f"{name}: the matrix must have 2 dimensions, not {array.ndim}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise WorkloadError(
            f"{name}: the matrix is empty, shape {array.shape}. Give at least one row."
        )
    if cells is not None and array.shape[1] != cells:
        raise WorkloadError(
            f"{name}: the matrix must have {cells} columns, one per cell, not {array.shape[1]}. "
            "For ranges of values, use `ranges`."
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        row, column = bad[0]
        raise WorkloadError(
            f"{name}: the matrix has {array[row, column]} at row {row}, column {column}. "
            "Give finite numbers."
        )
    # +0.0 turns -0.0 into 0.0, so that equal columns are equal bytes.
    return array + 0.0


def _find_interval(name: str, attribute: Attribute, pair: tuple[Any, Any]) -> tuple[int, int]:
    """Find the first and last cell of a range, or raise WorkloadError."""
    codec = get_codec(attribute)
    ends = [codec.size - 1 if codec.is_other(v) else codec.find_end(v) for v in pair]
    for value, cell in zip(pair, ends, strict=True):
        if cell is None:
            first, last = codec.ends
            what = "an edge of" if codec.is_half_open else "in the domain of"
            raise WorkloadError(
                f"{name}: range {list(pair)}: {value!r} is not {what} {name}. Use values from "
                f"{first} to {last}."
            )
    low, high = (cell for cell in ends if cell is not None)
    if codec.is_half_open and not codec.is_other(pair[1]):
        high -= 1
    if low > high:
        raise WorkloadError(f"{name}: range {list(pair)} is empty. Give the lower end first.")
    return low, high
