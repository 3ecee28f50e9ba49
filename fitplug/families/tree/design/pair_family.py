"""The family of a block of a tree where neighbours replace a record.

What the leaves share has another price than for one record added or removed: the root's totals of
the regions of dense cells cost 1 - theta of what they cost there (docs/theory/units.md, (U17)).
Where theta is 1 they are public. Then they have next to no variance, and the other classes, or the
root's children, are measured apart from their mean at the weights p.
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
"""The largest theta of a block whose totals are not public."""

_RIDGE = 1e-12
"""The weight of directions that no query asks for, relative to the others."""


class TreePairFamily(TreeFamily):
    """The family of a block.

    Attributes:
        theta: The part of the price of the root's totals that is taken off.
        masses: The weights of the regions of dense cells, shape (R,).
        shared: What the totals of the regions add to the cost of a cell, on average. It is 0 where
            they are public.
    """

    def __init__(self, structure: TreePairStructure, block: int) -> None:
        super().__init__(structure, block)
        self.theta = 0.0
        self.masses: FloatArray = np.ones(int(structure.regions.max()) + 1)
        self.shared = 0.0
        self._sums = structure.find_totals(block)
        regions = structure.regions[self.classes[0].first]
        self._regions = (np.arange(len(self.masses))[:, None] == regions).astype(np.float64)

    def _find_root(self, P: FloatArray, K: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self._sums.count:
            return self._find_public_root(P[0], K[0])
        share = np.divide(
            self._regions * P[0],
            np.sqrt(self.masses)[:, None],
            out=np.zeros_like(self._regions),
            where=self.masses[:, None] > 0,
        )
        theta = min(self.theta, _LARGEST)
        mean = find_full_mean(np.diag(P[0]) - theta * share.T @ share, K[0])
        precision: FloatArray = np.asarray(np.linalg.inv(mean))
        image = share @ precision
        self.shared = float((image * share).sum())
        # The derivative by p of tr (diag(p) - theta sum_r p_r p_r' / P_r) Y.
        root = np.sqrt(self.masses)[:, None]
        towards = np.divide(image, root, out=np.zeros_like(image), where=root > 0)
        squares = np.divide(
            (image * share).sum(axis=1), self.masses, out=np.zeros(len(root)), where=root[:, 0] > 0
        )
        shift = (self._regions * (squares[:, None] - 2 * towards)).sum(axis=0)
        profile = np.asarray(np.diagonal(precision) + theta * shift)
        return mean[None], precision[None], profile[None]

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
        if not len(sums.measured):
            return S[None], np.zeros((1, *K.shape)), np.zeros((1, len(p)))
        G, kept = sums.reduction.astype(np.float64), sums.measured
        # Given the sums, the weights p are those of the other classes less what they share.
        prior = np.diag(p[kept]) - (T * p)[:, kept].T @ ((T * p)[:, kept] / mass[:, None])
        mean = find_full_mean(prior, G.T @ K @ G)
        # What is measured is a class less its part of the sum that it is in.
        H = np.eye(len(p))[kept] - (T * p)[:, kept].T @ (T / mass[:, None])
        precision = (H.T @ np.linalg.solve(mean, H))[None]
        return (S + G @ mean @ G.T)[None], precision, get_diagonals(precision)


def find_full_mean(P: FloatArray, K: FloatArray) -> FloatArray:
    """Find P # K^-1 for two matrices (n, n) > 0."""
    L = np.linalg.cholesky(P)
    N = L.T @ K @ L
    n = len(N)
    N[np.diag_indices(n)] += _RIDGE * np.trace(N) / n
    values, vectors = np.linalg.eigh(N)
    half = L @ vectors
    return np.asarray((half / np.sqrt(np.maximum(values, _RIDGE * values[-1]))) @ half.T)
