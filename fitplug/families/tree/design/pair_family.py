"""The family of a block of a tree where neighbours replace a record.

What two cells share at the root, by their dense cells, is taken off what their profiles cost
(docs/theory/units.md, (U17)). Where totals of the root are public, they have next to no variance,
and the other classes are measured apart from one class of each total.
"""

from __future__ import annotations

import numpy as np

from fitplug.families.tree.design.child_covariances import get_diagonals
from fitplug.families.tree.design.family import TreeFamily
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import FloatArray

_LEFT = 1e-4
"""The variance that public sums keep, relative to what they would have."""

_LARGEST = 1 - 1e-6
"""The largest part of theta that is taken off where totals are not public."""

_RIDGE = 1e-12
"""The weight of directions that no query asks for, relative to the others."""


class TreePairFamily(TreeFamily):
    """The family of a block.

    Attributes:
        theta: What is taken off the price of the root's classes of dense cells, shape (r, r).
    """

    def __init__(self, structure: TreePairStructure, block: int) -> None:
        super().__init__(structure, block)
        r = self.classes[0].size
        self.theta: FloatArray = np.zeros((r, r))
        self._sums = structure.find_totals(block)

    def _find_root(self, P: FloatArray, K: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self._sums.count:
            return self._find_public_root(P[0], K[0])
        mean = find_full_mean(np.diag(P[0]) - _LARGEST * self.theta, K[0])
        precision: FloatArray = np.asarray(np.linalg.inv(mean))[None]
        return mean[None], precision, get_diagonals(precision)

    def _find_public_root(
        self, p: FloatArray, K: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Find the covariance of the root, whose totals are public, its inverse and the profile."""
        sums = self._sums
        T = (np.arange(sums.count)[:, None] == sums.of_class).astype(np.float64)
        mass = T @ p
        # Each public sum keeps a little of the variance that it would have if it were measured.
        left = _LEFT * np.sqrt(mass / np.einsum("kc,cd,kd->k", T * p, K, T * p)) * mass
        S = np.einsum("k,kc,kd->cd", left / mass**2, T * p, T * p)
        precision = np.zeros((1, *K.shape))
        if len(sums.measured):
            G, kept = sums.reduction.astype(np.float64), np.ix_(sums.measured, sums.measured)
            mean = find_full_mean((np.diag(p) - self.theta)[kept], G.T @ K @ G)
            precision[0][kept] = np.linalg.inv(mean)
            S = S + G @ mean @ G.T
        return S[None], precision, get_diagonals(precision)


def find_full_mean(P: FloatArray, K: FloatArray) -> FloatArray:
    """Find P # K^-1 for two matrices (n, n) > 0."""
    L = np.linalg.cholesky(P)
    N = L.T @ K @ L
    n = len(N)
    N[np.diag_indices(n)] += _RIDGE * np.trace(N) / n
    values, vectors = np.linalg.eigh(N)
    half = L @ vectors
    return np.asarray((half / np.sqrt(np.maximum(values, _RIDGE * values[-1]))) @ half.T)
