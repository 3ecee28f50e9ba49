"""Contrasts: integer matrices that measure one symmetric attribute without its total.

H (r, n) with H 1 = 0 and H'H = precision * (I - J/n), so H x with noise of equal variance is
equivalent to the projection of x on the contrasts with such noise. A Hadamard matrix without its
row of ones has n - 1 rows with entries +-1: Sylvester's for powers of two, Paley's if n - 1 is a
prime and n a multiple of four. For other n, H is n I - J. Its n rows are one more than its rank,
which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np

from fitplug.families.base.structure import Structure
from fitplug.numeric import AnyArray, FloatArray, IntArray, ceil_float, freeze
from fitplug.workload import Factor

_LARGEST_PALEY = 128
"""For larger n, multiplying by Paley's matrix takes longer than drawing less noise saves."""


@dataclass(frozen=True, eq=False)
class ContrastMatrix:
    """The contrasts of n cells: the matrix A_a = H of a symmetric attribute.

    Attributes:
        n: The number of cells.
        kind: The construction of the matrix; "centred" for n I - J.
        paley: The rows, shape (n - 1, n), if the construction is Paley's.
    """

    n: int
    kind: Literal["sylvester", "paley", "centred"]
    paley: IntArray | None = None

    @property
    def is_symmetric(self) -> bool:
        return True

    def of_block(self, block: int) -> ContrastMatrix:
        return self

    def has_form(self, n: int) -> bool:
        return (self.n, self.kind) == (n, build_contrasts(n).kind)

    @property
    def rows(self) -> int:
        """The number of rows of H."""
        return self.n if self.kind == "centred" else self.n - 1

    @property
    def precision(self) -> int:
        """The factor in H'H = precision * (I - J/n)."""
        return self.n**2 if self.kind == "centred" else self.n

    @property
    def column_square(self) -> int:
        """|H e_i|^2 = precision * (1 - 1/n), the same for every cell."""
        return self.n * (self.n - 1) if self.kind == "centred" else self.n - 1

    @property
    def largest_entry(self) -> int:
        """The largest entry of H."""
        return max(self.n - 1, 1) if self.kind == "centred" else 1

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {}  # the number of cells decides the matrix

    @property
    def grades(self) -> None:
        return None

    @property
    def growth(self) -> int:
        return 2 * self.n

    def compute_reference(self) -> FloatArray:
        """Return each cell's share of the total, shape (n,)."""
        return np.full(self.n, 1 / self.n)

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound the two parts of a cell's variance, shape (1, 2): all cells have the same."""
        contrast_variance = Fraction(self.n - 1, self.n * self.precision)
        return np.array([[ceil_float(Fraction(1, self.n**2)), ceil_float(contrast_variance)]])

    def upper_adjoint_error(self, values: FloatArray, axis: int) -> float:
        return 0.0

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        """Multiply by H along an axis."""
        if self.kind == "centred":
            return self.n * values - values.sum(axis=axis, keepdims=True)
        moved = np.moveaxis(values, axis, -1)
        if self.paley is None:
            return np.moveaxis(_multiply_walsh(moved)[..., 1:], -1, axis)
        return np.moveaxis(moved @ self.paley.T.astype(values.dtype), -1, axis)

    def invert(self, values: FloatArray, axis: int) -> FloatArray:
        """Multiply by H^+ along an axis, which is H' over the precision."""
        if self.kind == "centred":
            return np.asarray((values - values.mean(axis=axis, keepdims=True)) / self.n)
        moved = np.moveaxis(values, axis, -1)
        if self.paley is None:
            # Sylvester's matrix is symmetric; H leaves out its row of ones.
            padded = np.concatenate([np.zeros((*moved.shape[:-1], 1)), moved], axis=-1)
            return np.moveaxis(_multiply_walsh(padded) / self.n, -1, axis)
        return np.moveaxis(moved @ (self.paley / self.n), -1, axis)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        """Multiply by (H^+)' along an axis, up to an isometry."""
        centred = values - values.mean(axis=axis, keepdims=True)
        return np.asarray(centred / math.sqrt(self.precision))


@lru_cache(maxsize=256)
def build_contrasts(n: int) -> ContrastMatrix:
    """Build the contrasts of n >= 1 cells."""
    if n > 1 and n & (n - 1) == 0:
        return ContrastMatrix(n, "sylvester")
    p = n - 1
    if n % 4 == 0 and n <= _LARGEST_PALEY and all(p % i for i in range(2, int(p**0.5) + 1)):
        return ContrastMatrix(n, "paley", _build_paley(n))
    return ContrastMatrix(n, "centred")


def make_contrasts(structure: Structure) -> tuple[ContrastMatrix, ...]:
    """Make the contrasts of each of a structure's `block_attributes`."""
    return tuple(build_contrasts(n) for n in structure.sizes)


def compute_precisions(structure: Structure, blocks: IntArray) -> FloatArray:
    """Compute the product of the precisions of the contrasts of each block, shape (b,)."""
    precisions = [build_contrasts(n).precision for n in structure.sizes]
    return structure.subsets.multiply(precisions, blocks).astype(np.float64)


def _multiply_walsh(values: AnyArray) -> AnyArray:
    """Multiply by Sylvester's matrix along the last axis, in n log n additions."""
    n = values.shape[-1]
    step = 1
    while step < n:
        halves = values.reshape(*values.shape[:-1], n // (2 * step), 2, step)
        a, b = halves[..., 0, :], halves[..., 1, :]
        values = np.stack([a + b, a - b], axis=-2).reshape(values.shape)
        step *= 2
    return values


def _build_paley(n: int) -> IntArray:
    """Build I + S without its row of ones; S is skew, from the squares modulo n - 1."""
    p = n - 1
    squares = {i * i % p for i in range(1, p)}
    residues = np.array([0] + [1 if i in squares else -1 for i in range(1, p)])
    H = np.eye(n, dtype=np.int64)
    H[0, 1:], H[1:, 0] = 1, -1
    H[1:, 1:] += residues[(np.arange(p)[None, :] - np.arange(p)[:, None]) % p]
    return freeze(np.asarray(H[1:]))  # the first row is all ones
