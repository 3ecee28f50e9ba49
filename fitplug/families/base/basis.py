"""Integer bases: the integer queries that the mechanism starts from.

A basis of kind "cells" has one row for each class of cells that no query distinguishes. One of kind
"rows" has linearly independent queries of the workload, scaled to integers. Either way B is
integer, W = L B holds as exactly as the estimates need it, and B x is read from the exact tables
without forming x (docs/theory/integer-mechanism.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.linalg import qr, solve_triangular

from fitplug.domain import get_shape
from fitplug.errors import BAD_INTEGERS, DesignError, PlanError
from fitplug.families.base.structure import Structure
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IndexArray,
    IntArray,
    find_largest_entry,
    gamma,
    multiply_exactly,
    upper_inverse_norm,
    upper_norm,
)
from fitplug.workload import classify_cells

BasisKind: TypeAlias = Literal["cells", "rows"]

_BIAS = 1e-9
_NO_SPAN = "the plan's noisy answers do not determine the answers to all queries"

MAX_COEFFICIENT = 2**20
"""Queries with larger integer coefficients (after scaling) are not used as rows of a basis."""

_NARROW = 16
"""The largest entries of the rows of a basis whose answers have few bits."""


@dataclass(frozen=True, eq=False)
class Reading:
    """The rows of a basis B that are answered from one table.

    Attributes:
        dense: The dense attributes of the table, which has the block's attributes as well.
        rows: The indices of these rows of B, shape (m,).
        classes: For a basis of cells, the row of each dense cell, -1 for none, shape (D,); else
            None.
        queries: For a basis of rows, these rows over the dense cells, shape (m, D); else None.
    """

    dense: tuple[str, ...]
    rows: IntArray
    classes: IntArray | None
    queries: IntArray | None

    def multiply(self, counts: AnyArray) -> AnyArray:
        """Multiply the rows of B by the table's counts, exactly.

        Args:
            counts: An axis for each of the block's attributes, and then one for each of `dense`.

        Returns:
            int64 or, where that might not hold it, Python integers, shape (cells, m).
        """
        if self.queries is not None:
            x = counts.reshape(-1, self.queries.shape[1])
            return multiply_exactly(x, self.queries.T)
        assert self.classes is not None
        x = counts.reshape(-1, len(self.classes))
        if len(self.classes) == 1:
            return x
        if find_largest_entry(x) * len(self.classes) >= 2**62:
            x = x.astype(object)
        queried = np.flatnonzero(self.classes >= 0)
        merged = np.zeros((len(self.rows), len(x)), dtype=x.dtype)
        np.add.at(merged, self.classes[queried], x.T[queried])
        return merged.T


@dataclass(frozen=True, eq=False)
class Basis:
    """An integer basis B (n, d) whose row space contains that of W (m, d).

    Attributes:
        kind: "cells" or "rows".
        index: If the kind is "cells", the class of each cell, -1 for cells that no query counts,
            shape (d,). If it is "rows", the indices of the rows of W, shape (n,).
        scale: The factors that make the rows of W integer, shape (n,); ones for classes of cells.
    """

    kind: BasisKind
    index: IntArray
    scale: FloatArray

    @property
    def size(self) -> int:
        """n, the number of its rows."""
        return int(self.index.max()) + 1 if self.kind == "cells" else len(self.index)

    def build_matrix(self, W: FloatArray) -> IntArray:
        """Build B, shape (n, d)."""
        if self.kind == "rows":
            return np.asarray(W[self.index] * self.scale[:, None], dtype=np.int64)
        B = np.zeros((self.size, W.shape[1]), dtype=np.int64)
        queried = np.flatnonzero(self.index >= 0)
        B[self.index[queried], queried] = 1
        return B

    def represent(self, W: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Find L with W = L B.

        Args:
            W: Shape (m, d).

        Returns:
            L, shape (m, n), and bounds on the 2-norm of its rows' errors, shape (m,).

        Raises:
            DesignError: If B does not span W: exactly for classes of cells, to 1e-9 of each
                query's largest coefficient for rows.
        """
        if self.kind == "cells":
            _, first = np.unique(self.index, return_index=True)
            L = W[:, first[-self.size :]]
            if not np.array_equal(W, np.where(self.index >= 0, L[:, self.index], 0.0)):
                raise DesignError(_NO_SPAN)
            return L, np.zeros(len(W))
        integers = self.build_matrix(W)
        B = integers.astype(np.float64)
        L = solve_from_right(W, B)
        L[self.index] = np.diag(1 / self.scale)
        # Take a row of L rounded to integers wherever it reproduces its query no worse.
        rounded = np.rint(L)
        residual, exact = np.abs(W - L @ B), np.abs(W - rounded @ B)
        better = exact.max(axis=1) <= residual.max(axis=1)
        L[better], residual[better] = rounded[better], exact[better]
        del rounded, exact
        if (residual.max(axis=1) > _BIAS * np.abs(W).max(axis=1)).any():
            raise DesignError(_NO_SPAN)
        # W = L B + D, so the exact L is L + D B^+, and |B^+|_2^2 = |(B B')^-1|_2. Each entry of W
        # may be the difference of two coefficients, rounded once.
        D = np.abs(L) @ np.abs(B)
        D += np.abs(W)
        D *= gamma(self.size + 2)
        D += residual
        gram = multiply_exactly(integers, integers.T).astype(np.float64)
        pseudo_inverse = np.sqrt(upper_inverse_norm(gram) * (1 + gamma(2)))
        return L, upper_norm(D, axis=1) * pseudo_inverse

    def list_tables(self, structure: Structure, blocks: IntArray) -> list[tuple[str, ...]]:
        """List attribute sets whose exact counts give B x for blocks that share this basis."""
        domain = structure.workload.domain
        if self.kind == "cells":
            # The counts of a block give those of the blocks within it.
            largest = structure.subsets.select_largest(blocks)
            names, dense = structure.block_attributes, self._find_classes(structure)[0]
            return [
                domain.ordered(tuple(names[a] for a in subset) + dense)
                for subset in structure.subsets.list_attributes(largest)
            ]
        needed: list[tuple[str, ...]] = []
        for block in blocks.tolist():
            attributes = structure.name_attributes(block)
            rows = structure.find_block_rows(block)[self.index]
            groups = {structure.find_group(row) for row in rows}
            needed += sorted({domain.ordered(attributes + structure.list_dense(g)) for g in groups})
        return needed

    def list_readings(self, structure: Structure, block: int) -> list[Reading]:
        """List the readings of a block's basis, one for each table that it needs.

        Together the readings give each row of B x once.
        """
        if self.kind == "cells":
            dense, index = self._find_classes(structure)
            return [Reading(dense, np.arange(self.size), index, None)]
        rows = structure.find_block_rows(block)[self.index]
        groups = np.array([structure.find_group(row) for row in rows])
        readings = []
        for group in np.unique(groups).tolist():
            mine = np.flatnonzero(groups == group)
            dense = structure.list_dense(group)
            queries = structure.build_measured_rows(block, group)
            queries = queries[rows[mine] - structure.row_starts[group]]
            scaled = np.asarray(queries * self.scale[mine, None], dtype=np.int64)
            readings.append(Reading(dense, mine, None, scaled))
        return readings

    def check_form(self, W: FloatArray) -> None:
        """Check that the basis is of classes of cells, or of distinct integer rows of W (m, d).

        Raises:
            PlanError: If it is neither of these.
        """
        index, scale = self.index, self.scale
        m, d = W.shape
        if self.kind == "cells":
            fits = index.shape == (d,)
            classes = np.unique(index[index >= 0])
            fits = fits and len(classes) > 0 and np.array_equal(classes, np.arange(len(classes)))
            fits = fits and int(index.min()) >= -1
            fits = fits and scale.dtype == np.float64
            fits = fits and np.array_equal(scale, np.ones(len(classes)))
        else:
            fits = self.kind == "rows" and index.ndim == 1
            fits = fits and len(np.unique(index)) == len(index) > 0
            fits = fits and 0 <= int(index.min()) <= int(index.max()) < m
            fits = fits and scale.shape == index.shape and scale.dtype == np.float64
            fits = fits and bool(((scale > 0) & (scale < np.inf)).all())
        if index.dtype != np.int64 or not fits:
            raise PlanError(BAD_INTEGERS)
        if self.kind == "rows":
            # Checked before the cost is computed: casting other floats to integers is undefined.
            rows = W[index] * scale[:, None]
            if not ((np.abs(rows) <= MAX_COEFFICIENT) & (rows == np.rint(rows))).all():
                raise PlanError(BAD_INTEGERS)

    def _find_classes(self, structure: Structure) -> tuple[tuple[str, ...], IntArray]:
        """Find the dense attributes along which classes vary, and the classes over their cells.

        The other attributes are summed out, and need not be counted.
        """
        names = structure.dense
        classes = self.index.reshape(get_shape(structure.workload.domain, names))
        varies = [(classes != classes.take([0], axis)).any() for axis in range(len(names))]
        varying = tuple(name for name, one in zip(names, varies, strict=True) if one)
        return varying, classes[tuple(slice(None) if one else 0 for one in varies)].ravel()


def choose_basis(W: FloatArray, independent: IndexArray, *, narrow: bool = False) -> Basis:
    """Choose the integer basis for a matrix.

    Args:
        W: Shape (m, d).
        independent: The indices of k linearly independent rows of W, where k is its rank.
        narrow: Whether the entries must be small because answers have few bits.

    Returns:
        Classes of cells if there are k of them; else rows of W if they scale to moderate integers;
        else all classes of cells, although they are more than k. The strategy then measures the
        directions that no query needs with next to no precision.
    """
    classes = classify_cells(W)
    count = int(classes.max()) + 1
    cells = Basis("cells", classes, np.ones(count))
    if count == len(independent):
        return cells
    chosen = np.sort(independent)
    scale = (_find_narrow_scale if narrow else _find_integer_scale)(W[chosen])
    return cells if scale is None else Basis("rows", chosen.astype(np.int64), scale)


def _find_integer_scale(rows: FloatArray) -> FloatArray | None:
    """Find powers of two (n,) that make rows integer within MAX_COEFFICIENT; None if none do."""
    _, exponent = np.frexp(np.abs(rows).max(axis=1))
    # The largest power of two that keeps a row within bounds: if it leaves fractions, all do.
    largest = np.ldexp(1.0, 20 - exponent)
    scaled = rows * largest[:, None]
    integers = scaled.astype(np.int64)
    if not np.array_equal(integers, scaled):
        return None
    common = np.gcd.reduce(integers, axis=1)
    spare = (common & -common).astype(np.float64)
    return np.asarray(largest / spare)


def _find_narrow_scale(rows: FloatArray) -> FloatArray | None:
    """Find numbers (n,) that make rows integer within _NARROW; None if there are none.

    They need not be powers of two: a row of zeros and 200,000 becomes one of zeros and ones.
    """
    largest = np.abs(rows).max(axis=1)
    for steps in range(1, _NARROW + 1):
        scale = steps / largest
        if _are_integers(rows * scale[:, None]):
            return np.asarray(scale)
    scale = _find_integer_scale(rows)
    if scale is None:
        return None
    integers = (rows * scale[:, None]).astype(np.int64)
    scale = scale / np.gcd.reduce(integers, axis=1)
    scaled = rows * scale[:, None]
    return scale if _are_integers(scaled) and np.abs(scaled).max() <= _NARROW else None


def _are_integers(rows: FloatArray) -> bool:
    """Tell whether floats are integers, exactly."""
    return bool((rows == np.rint(rows)).all())


def solve_from_right(W: FloatArray, B: FloatArray) -> FloatArray:
    """Solve W = X B in least squares for X (m, n), with B (n, d) of full row rank."""
    Q, R = qr(B.T, mode="economic")
    try:
        return np.asarray(solve_triangular(R, Q.T @ W.T).T)
    except np.linalg.LinAlgError:
        raise DesignError(
            "fitplug could not find linearly independent queries. Round the coefficients of the "
            "queries."
        ) from None
