"""Coefficients of the answers of one query group in a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.numeric import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class SparseCoefficients:
    """The coefficients of a group's answers in a sum, of which most are zero.

    Attributes:
        positions: Shape (n,): the positions of the other answers in C order of the group's shape,
            ascending.
        values: Shape (n,): the coefficients of these answers.
    """

    positions: IntArray
    values: FloatArray

    def to_array(self, shape: tuple[int, ...]) -> FloatArray:
        """Return the coefficients of all answers of the group, as an array of its shape."""
        array = np.zeros(shape)
        array.ravel()[self.positions] = self.values
        return array


def add_coefficients(summands: Sequence[SparseCoefficients]) -> SparseCoefficients:
    """Add several coefficients of one group, whose positions need not be sorted."""
    positions = np.concatenate([summand.positions for summand in summands])
    values = np.concatenate([summand.values for summand in summands])
    distinct, inverse = np.unique(positions, return_inverse=True)
    if len(distinct) == len(positions):
        order = np.argsort(positions, kind="stable")
        return SparseCoefficients(positions[order], values[order])
    sums = np.zeros(len(distinct))
    np.add.at(sums, inverse.ravel(), values)
    return SparseCoefficients(distinct, sums)


def multiply_coefficients(
    factors: Sequence[SparseCoefficients], shape: tuple[int, ...]
) -> SparseCoefficients:
    """Multiply the coefficients of each factor's rows to those of a group of a shape."""
    positions, values = np.zeros(1, dtype=np.int64), np.ones(1)
    for factor, rows in zip(factors, shape, strict=True):
        positions = np.add.outer(positions * rows, factor.positions).ravel()
        values = np.multiply.outer(values, factor.values).ravel()
    return SparseCoefficients(positions, values)
