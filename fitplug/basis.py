"""Integer bases: which counts the mechanism starts from.

"cells": the cells, those that no query tells apart merged into classes; one row per class.
"rows": linearly independent queries of the workload, scaled to integers.

Either way W = L B exactly in the numbers that matter, B is integer, and B x is read from the exact
tables without ever forming x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr, solve_triangular

from fitplug.errors import DesignError
from fitplug.rounding import exact_product, gamma, inverse_norm_above, norm_above
from fitplug.tables import Tables
from fitplug.workload import Workload

Array: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

_BIAS = 1e-9

MAX_COEFFICIENT = 2**20
"""Queries with larger integer coefficients (after scaling) are not used as rows of a basis."""


@dataclass(frozen=True, eq=False)
class Basis:
    """An integer basis B (n, d) whose row space contains that of W.

    kind "cells": `index` (d,) is the class of each cell, -1 for cells never queried.
    kind "rows": `index` (n,) are rows of W and `scale` (n,) the powers of two they are times.
    """

    kind: Literal["cells", "rows"]
    index: npt.NDArray[np.int64]
    scale: Array

    @property
    def size(self) -> int:
        return int(self.index.max()) + 1 if self.kind == "cells" else len(self.index)

    def matrix(self, W: Array) -> Integers:
        """B, shape (n, d)."""
        if self.kind == "rows":
            return np.asarray(W[self.index] * self.scale[:, None], dtype=np.int64)
        B = np.zeros((self.size, W.shape[1]), dtype=np.int64)
        queried = np.flatnonzero(self.index >= 0)
        B[self.index[queried], queried] = 1
        return B

    def representation(self, W: Array) -> tuple[Array, Array]:
        """L (m, n) with W = L B, and bounds (m,) on the 2-norm of its rows' errors.

        Raises DesignError if B does not span W to 1e-9 of each query's largest coefficient.
        """
        if self.kind == "cells":
            _, first = np.unique(self.index, return_index=True)
            return W[:, first[-self.size :]], np.zeros(len(W))
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
            raise DesignError("the basis does not span the workload: answers would be biased")
        # W = L B + D, so the L meant is L + D B^+, and |B^+|_2^2 = |(B B')^-1|_2.
        D = np.abs(L) @ np.abs(B)
        D += np.abs(W)
        D *= gamma(self.size + 1)
        D += residual
        gram = exact_product(integers, integers.T).astype(np.float64)
        pseudo_inverse = np.sqrt(inverse_norm_above(gram) * (1 + gamma(2)))
        return L, norm_above(D, axis=1) * pseudo_inverse

    def tables(self, workload: Workload) -> tuple[tuple[str, ...], ...]:
        """The attribute sets whose exact counts give B x.

        Together they name every attribute the workload uses, even where B x alone would not need
        one: a record outside the domain on it must be left out of all tables.
        """
        if self.kind == "cells":
            return (workload.attributes,)
        ends = np.cumsum([group.size for group in workload.groups])
        needed = {int(g) for g in np.searchsorted(ends, self.index, side="right")}
        groups = [workload.groups[g] for g in sorted(needed)]
        for name in workload.attributes:
            if not any(name in group.attributes for group in groups):
                groups.append(next(g for g in workload.groups if name in g.attributes))
        return workload.tables_of(groups)

    def answers(self, workload: Workload, tables: Tables) -> npt.NDArray[Any]:
        """B x, exact, shape (n,): int64 or, where that might not hold it, Python integers.

        Raises TablesError if a table needed is missing.
        """
        if self.kind == "cells":
            x = tables.marginal(workload.attributes).ravel()
            counts = np.zeros(self.size, dtype=np.int64)
            np.add.at(counts, self.index[self.index >= 0], x[self.index >= 0])
            return counts
        found = np.zeros(self.size, dtype=object)
        start = 0
        for group in workload.groups:
            mine = (self.index >= start) & (self.index < start + group.size)
            if mine.any():
                axes = workload.domain.ordered(group.attributes)
                rows = workload.rows(group, axes)[self.index[mine] - start]
                scaled = np.asarray(rows * self.scale[mine, None], dtype=np.int64)
                found[mine] = exact_product(scaled, tables.marginal(axes).reshape(-1, 1))[:, 0]
            start += group.size
        return found


def choose_basis(W: Array, independent: npt.NDArray[np.intp]) -> Basis:
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


def cell_classes(W: Array) -> Integers:
    """The class of each cell, by first cell: the same for equal columns of W, -1 for zero ones."""
    columns = np.add(W.T, 0.0, order="C")  # which makes zeros of either sign the same
    class_of = {bytes(columns[0].nbytes): -1}
    found = [class_of.setdefault(column.tobytes(), len(class_of) - 1) for column in columns]
    return np.array(found, dtype=np.int64)


def _integer_scale(rows: Array) -> Array | None:
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


def right_solve(W: Array, B: Array) -> Array:
    """X (m, n) with W = X B in least squares, for B (n, d) of full row rank."""
    Q, R = qr(B.T, mode="economic")
    try:
        return np.asarray(solve_triangular(R, Q.T @ W.T).T)
    except np.linalg.LinAlgError:
        raise DesignError("the rows of the basis are not linearly independent") from None
