"""Contrasts: integer matrices that measure one symmetric attribute without its total.

H (r, n) with H 1 = 0 and H'H = precision * (I - J/n), so that noise of one variance on H x carries
what the projection of x on the contrasts does. The rows of a Hadamard matrix other than the ones
do with n - 1 rows of entries +-1: Sylvester's for powers of two, Paley's where n - 1 is a prime one
less than a multiple of four. For other n it is n I - J, whose n rows have a direction more than
they need, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np

from fitplug.numeric import AnyArray, FloatArray, IntArray, ceil_float, freeze
from fitplug.workload import Factor

_LARGEST_PALEY = 128
"""Above, applying the matrix takes longer than drawing less noise saves."""


@dataclass(frozen=True, eq=False)
class Contrast:
    """The contrasts of n cells.

    kind: whose matrix it is; "centred" for n I - J. paley: Paley's rows, shape (n - 1, n).
    """

    n: int
    kind: Literal["sylvester", "paley", "centred"]
    paley: IntArray | None = None

    @property
    def rows(self) -> int:
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
    def entry(self) -> int:
        """The largest entry of H."""
        return max(self.n - 1, 1) if self.kind == "centred" else 1

    def arrays(self) -> Mapping[str, IntArray]:
        """None: its size makes it."""
        return {}

    @property
    def growth(self) -> int:
        """At least the sum of |H_ri| over any row."""
        return 2 * self.n

    def mean(self) -> FloatArray:
        """What a cell has of the total, (n,)."""
        return np.full(self.n, 1 / self.n)

    def moments(self, factor: Factor) -> FloatArray:
        """Upper bounds on the variances of a cell, (1, 2): from a total of variance 1, and from
        H x with noise of variance 1.
        """
        own = Fraction(self.n - 1, self.n * self.precision)
        return np.array([[ceil_float(Fraction(1, self.n**2)), ceil_float(own)]])

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        """H along an axis; exact for Python integers, and for int64 that `growth` times cannot
        leave.
        """
        if self.kind == "centred":
            return self.n * values - values.sum(axis=axis, keepdims=True)
        moved = np.moveaxis(values, axis, -1)
        if self.paley is None:
            return np.moveaxis(_walsh(moved)[..., 1:], -1, axis)
        return np.moveaxis(moved @ self.paley.T.astype(values.dtype), -1, axis)

    def invert(self, values: FloatArray, axis: int) -> FloatArray:
        """H^+ along an axis: H' over the precision."""
        if self.kind == "centred":
            return np.asarray((values - values.mean(axis=axis, keepdims=True)) / self.n)
        moved = np.moveaxis(values, axis, -1)
        if self.paley is None:
            # Sylvester's matrix is symmetric; the ones have nothing to say.
            whole = np.concatenate([np.zeros((*moved.shape[:-1], 1)), moved], axis=-1)
            return np.moveaxis(_walsh(whole) / self.n, -1, axis)
        return np.moveaxis(moved @ (self.paley / self.n), -1, axis)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        """(H^+)' along an axis, up to an isometry."""
        centred = values - values.mean(axis=axis, keepdims=True)
        return np.asarray(centred / math.sqrt(self.precision))


@lru_cache(maxsize=256)
def contrast(n: int) -> Contrast:
    """The contrasts of n >= 1 cells."""
    if n > 1 and n & (n - 1) == 0:
        return Contrast(n, "sylvester")
    p = n - 1
    if n % 4 == 0 and n <= _LARGEST_PALEY and all(p % i for i in range(2, int(p**0.5) + 1)):
        return Contrast(n, "paley", _paley(n))
    return Contrast(n, "centred")


def _walsh(values: AnyArray) -> AnyArray:
    """Sylvester's matrix times the last axis, in n log n additions."""
    n = values.shape[-1]
    step = 1
    while step < n:
        halves = values.reshape(*values.shape[:-1], n // (2 * step), 2, step)
        a, b = halves[..., 0, :], halves[..., 1, :]
        values = np.stack([a + b, a - b], axis=-2).reshape(values.shape)
        step *= 2
    return values


def _paley(n: int) -> IntArray:
    """The rows of I + S other than the ones, with S skew and made of squares modulo n - 1."""
    p = n - 1
    squares = {i * i % p for i in range(1, p)}
    residues = np.array([0] + [1 if i in squares else -1 for i in range(1, p)])
    H = np.eye(n, dtype=np.int64)
    H[0, 1:], H[1:, 0] = 1, -1
    H[1:, 1:] += residues[(np.arange(p)[None, :] - np.arange(p)[:, None]) % p]
    return freeze(np.asarray(H[1:]))  # the first row is all ones
