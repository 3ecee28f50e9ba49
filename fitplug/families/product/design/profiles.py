"""The profile of a member of the product family, as a function of its scales.

With eta_(a,k) of the cells of every attribute given, the profile is G z^-1 for a factored G >= 0
with a row for each combination of cells and a column for each scale. Attributes with one grade have
their largest eta in all rows: where that is, the other cells' profile is no larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.product.shape.grades import BlockScales
from fitplug.numeric import FloatArray, to_positions


@dataclass(frozen=True, eq=False)
class ProfileMatrix:
    """G, factored.

    Attributes:
        scales: The scales.
        undivided: The product of the largest eta of a scale's undivided attributes, shape (count,).
        tables: 1 and eta of the different cells of each divided attribute, shape (c_i, 1 + K_i).
    """

    scales: BlockScales
    undivided: FloatArray
    tables: tuple[FloatArray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of different cells (c_1, ...)."""
        return tuple(map(len, self.tables))

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(np.prod(self.shape, dtype=np.int64))

    def multiply(self, precisions: FloatArray) -> FloatArray:
        """Return the profile (size,) of precisions 1 / z (count,)."""
        grid = np.bincount(
            to_positions(self.scales.places),
            self.undivided * precisions,
            int(np.prod(self.scales.grid, dtype=np.int64)),
        )
        shaped = grid.reshape(self.scales.grid).astype(np.float64)
        return _multiply_axes(shaped, self.tables).ravel()

    def multiply_transposed(self, p: FloatArray) -> FloatArray:
        """Return the mean cost (count,) of each scale at 1, of weights p (size,) of the rows."""
        grid = _multiply_axes(p.reshape(self.shape), [table.T for table in self.tables])
        return np.asarray(self.undivided * grid.ravel()[self.scales.places])


def build_profiles(scales: BlockScales, eta: Sequence[FloatArray]) -> ProfileMatrix:
    """Build G.

    Args:
        scales: The scales.
        eta: Of each attribute, shape (n, K), or of all its cells, shape (1, K).
    """
    largest = [
        own.max(axis=0, initial=0.0) if k == 1 else np.ones(k)
        for own, k in zip(eta, scales.counts, strict=True)
    ]
    tables = tuple(_add_total(np.unique(eta[a], axis=0)) for a in scales.divided.tolist())
    return ProfileMatrix(scales, scales.multiply(largest).astype(np.float64), tables)


def _add_total(eta: FloatArray) -> FloatArray:
    """Add the total's column of ones to eta (c, K) of different cells."""
    return np.concatenate([np.ones((len(eta), 1)), eta], axis=1)


def _multiply_axes(array: FloatArray, tables: Sequence[FloatArray]) -> FloatArray:
    """Multiply each axis of an array (m_1, m_2, ...) by a table (r_i, m_i)."""
    for table in tables:
        # The first axis is contracted, and the new one comes last.
        array = np.tensordot(array, table, (0, 1))
    return np.asarray(array)
