"""The family of a tree whose root has public totals.

The sums of classes that are public have next to no variance, and what measures them has no price:
so the best member is that of `fitplug.optimizer.tree_family` where the variance of these sums tends
to zero. It is then centred at the weights p: the other classes, or the root's children, are
measured apart from their weighted mean (docs/theory/units.md).
"""

from __future__ import annotations

import numpy as np

from fitplug.numeric import FloatArray
from fitplug.optimizer.tree_family import TreeFamily
from fitplug.structure import RootTotals, TreePairStructure

_LEFT = 1e-4
"""The variance that public sums keep, relative to what they would have."""

_RIDGE = 1e-12
"""The weight of directions that no query asks for, relative to the others."""


class PublicRootFamily(TreeFamily):
    """The family of a block with public totals."""

    def __init__(self, structure: TreePairStructure, block: int) -> None:
        super().__init__(structure, block)
        self._sums: RootTotals = structure.find_totals(block)

    def _find_root(self, P: FloatArray, K: FloatArray) -> tuple[FloatArray, FloatArray]:
        sums, p = self._sums, P[0]
        T = (np.arange(sums.count)[:, None] == sums.of_class).astype(np.float64)
        mass = T @ p
        # Each public sum keeps a little of the variance that it would have if it were measured.
        left = _LEFT * np.sqrt(mass / np.einsum("kc,cd,kd->k", T * p, K[0], T * p)) * mass
        S = np.einsum("k,kc,kd->cd", left / mass**2, T * p, T * p)
        if not len(sums.measured):
            return S[None], np.zeros_like(K)
        G, kept = sums.reduction.astype(np.float64), sums.measured
        # Given the sums, the weights p are those of the other classes less what they share.
        prior = np.diag(p[kept]) - (T * p)[:, kept].T @ ((T * p)[:, kept] / mass[:, None])
        mean = _find_full_mean(prior, G.T @ K[0] @ G)
        # What is measured is a class less its part of the sum that it is in.
        H = np.eye(len(p))[kept] - (T * p)[:, kept].T @ (T / mass[:, None])
        precision = H.T @ np.linalg.solve(mean, H)
        return (S + G @ mean @ G.T)[None], precision[None]


def _find_full_mean(P: FloatArray, K: FloatArray) -> FloatArray:
    """Find P # K^-1 for two matrices (n, n) > 0."""
    L = np.linalg.cholesky(P)
    N = L.T @ K @ L
    n = len(N)
    N[np.diag_indices(n)] += _RIDGE * np.trace(N) / n
    values, vectors = np.linalg.eigh(N)
    half = L @ vectors
    return np.asarray((half / np.sqrt(np.maximum(values, _RIDGE * values[-1]))) @ half.T)
