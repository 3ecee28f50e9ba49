"""Integer bases: which counts the mechanism starts from.

"cells": the cells, those that no query tells apart merged into classes; one row per class.
"rows": linearly independent queries of the workload, scaled to integers.

Either way W = L B exactly in the numbers that matter, B is integer, and B x is read from the exact
tables without ever forming x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.linalg import qr, solve_triangular

from fitplug.errors import DesignError
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IndexArray,
    IntArray,
    bound_inverse_norm,
    bound_norm,
    find_largest_entry,
    gamma,
    multiply_exactly,
)
from fitplug.structure import Structure

Counted: TypeAlias = Callable[[tuple[str, ...]], IntArray]

_BIAS = 1e-9
_NO_SPAN = "the basis does not span the workload: answers would be biased"

MAX_COEFFICIENT = 2**20
"""Queries with larger integer coefficients (after scaling) are not used as rows of a basis."""


@dataclass(frozen=True, eq=False)
class Basis:
    """An integer basis B (n, d) whose row space contains that of W.

    kind "cells": `index` (d,) is the class of each cell, -1 for cells never queried.
    kind "rows": `index` (n,) are rows of W and `scale` (n,) the powers of two they are times.
    """

    kind: Literal["cells", "rows"]
    index: IntArray
    scale: FloatArray

    @property
    def size(self) -> int:
        return int(self.index.max()) + 1 if self.kind == "cells" else len(self.index)

    def matrix(self, W: FloatArray) -> IntArray:
        """B, shape (n, d)."""
        if self.kind == "rows":
            return np.asarray(W[self.index] * self.scale[:, None], dtype=np.int64)
        B = np.zeros((self.size, W.shape[1]), dtype=np.int64)
        queried = np.flatnonzero(self.index >= 0)
        B[self.index[queried], queried] = 1
        return B

    def representation(self, W: FloatArray) -> tuple[FloatArray, FloatArray]:
        """L (m, n) with W = L B, and bounds (m,) on the 2-norm of its rows' errors.

        Raises DesignError if B does not span W: exactly for classes of cells, to 1e-9 of each
        query's largest coefficient for rows.
        """
        if self.kind == "cells":
            _, first = np.unique(self.index, return_index=True)
            L = W[:, first[-self.size :]]
            if not np.array_equal(W, np.where(self.index >= 0, L[:, self.index], 0.0)):
                raise DesignError(_NO_SPAN)
            return L, np.zeros(len(W))
        integers = self.matrix(W)
        B = integers.astype(np.float64)
        L = right_solve(W, B)
        L[self.index] = np.diag(1 / self.scale)
        # Where rounding a row of L to integers explains its query no worse, it is exact.
        whole = np.rint(L)
        residual, exact = np.abs(W - L @ B), np.abs(W - whole @ B)
        better = exact.max(axis=1) <= residual.max(axis=1)
        L[better], residual[better] = whole[better], exact[better]
        del whole, exact
        if (residual.max(axis=1) > _BIAS * np.abs(W).max(axis=1)).any():
            raise DesignError(_NO_SPAN)
        # W = L B + D, so the L meant is L + D B^+, and |B^+|_2^2 = |(B B')^-1|_2.
        D = np.abs(L) @ np.abs(B)
        D += np.abs(W)
        D *= gamma(self.size + 1)
        D += residual
        gram = multiply_exactly(integers, integers.T).astype(np.float64)
        pseudo_inverse = np.sqrt(bound_inverse_norm(gram) * (1 + gamma(2)))
        return L, bound_norm(D, axis=1) * pseudo_inverse

    def tables(self, structure: Structure, block: int) -> set[tuple[str, ...]]:
        """The attribute sets whose exact counts give B x for a block."""
        domain, symmetric = structure.workload.domain, structure.attributes_of(block)
        if self.kind == "cells":
            return {domain.ordered(symmetric + self._told_apart(structure)[0])}
        needed = {structure.group_of(row) for row in structure.piece(block).rows[self.index]}
        return {domain.ordered(symmetric + structure.dense_attributes(group)) for group in needed}

    def counts(self, structure: Structure, block: int, counted: Counted) -> AnyArray:
        """B x of a block, exact: int64 or, where that might not hold it, Python integers; an axis
        for each symmetric attribute of the block, and a last one (n,).

        counted: gives the exact counts over some attributes, in the order named.
        """
        symmetric = structure.attributes_of(block)
        shape = structure.workload.domain.shape_of(symmetric)
        if self.kind == "cells":
            dense, index = self._told_apart(structure)
            x = counted(symmetric + dense).reshape(-1, len(index))
            if find_largest_entry(x) * len(index) >= 2**62:
                x = x.astype(object)
            queried = np.flatnonzero(index >= 0)
            merged = np.zeros((self.size, len(x)), dtype=x.dtype)
            np.add.at(merged, index[queried], x.T[queried])
            return merged.T.reshape(*shape, self.size)
        rows = structure.piece(block).rows[self.index]
        groups = np.array([structure.group_of(row) for row in rows])
        found = np.zeros((*shape, self.size), dtype=object)
        for group in np.unique(groups):
            mine = groups == group
            dense = structure.dense_attributes(int(group))
            own_rows = structure.rows_over(int(group), dense)[rows[mine] - structure.starts[group]]
            scaled = np.asarray(own_rows * self.scale[mine, None], dtype=np.int64)
            x = counted(symmetric + dense).reshape(-1, scaled.shape[1])
            found[..., mine] = multiply_exactly(x, scaled.T).reshape(*shape, -1)
        return found

    def _told_apart(self, structure: Structure) -> tuple[tuple[str, ...], IntArray]:
        """The dense attributes along which the class of a cell varies, and the classes over their
        cells: the others are summed out, and need not be counted.
        """
        names = structure.dense
        classes = self.index.reshape(structure.workload.domain.shape_of(names))
        told = [(classes != classes.take([0], axis)).any() for axis in range(len(names))]
        kept = tuple(name for name, varies in zip(names, told, strict=True) if varies)
        return kept, classes[tuple(slice(None) if varies else 0 for varies in told)].ravel()


def choose_basis(W: FloatArray, independent: IndexArray) -> Basis:
    """The integer basis for W (m, d), given k linearly independent rows of it.

    Cells where they are as many as the rank; else rows of W where they scale to moderate
    integers; else cells again, more than the rank: the strategy then measures the directions
    that no query needs with next to no precision.
    """
    classes = cell_classes(W)
    count = int(classes.max()) + 1
    cells = Basis("cells", classes, np.ones(count))
    if count == len(independent):
        return cells
    chosen = np.sort(independent)
    scale = _integer_scale(W[chosen])
    return cells if scale is None else Basis("rows", chosen.astype(np.int64), scale)


def cell_classes(W: FloatArray) -> IntArray:
    """The class of each cell, by first cell: the same for equal columns of W, -1 for zero ones."""
    columns = np.add(W.T, 0.0, order="C")  # which makes zeros of either sign the same
    class_of = {bytes(columns[0].nbytes): -1}
    found = [class_of.setdefault(column.tobytes(), len(class_of) - 1) for column in columns]
    return np.array(found, dtype=np.int64)


def _integer_scale(rows: FloatArray) -> FloatArray | None:
    """Powers of two (n,) that make each row integer within MAX_COEFFICIENT, or None."""
    _, exponent = np.frexp(np.abs(rows).max(axis=1))
    # The largest power of two that keeps a row within bounds: if that leaves fractions, none will.
    largest = np.ldexp(1.0, 20 - exponent)
    scaled = rows * largest[:, None]
    whole = scaled.astype(np.int64)
    if not np.array_equal(whole, scaled):
        return None
    common = np.gcd.reduce(whole, axis=1)
    spare = (common & -common).astype(np.float64)
    return np.asarray(largest / spare)


def right_solve(W: FloatArray, B: FloatArray) -> FloatArray:
    """X (m, n) with W = X B in least squares, for B (n, d) of full row rank."""
    Q, R = qr(B.T, mode="economic")
    try:
        return np.asarray(solve_triangular(R, Q.T @ W.T).T)
    except np.linalg.LinAlgError:
        raise DesignError("the rows of the basis are not linearly independent") from None
