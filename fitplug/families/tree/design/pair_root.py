"""The root's covariance in a tree for pairs of cells, which share the root's measurements."""

from __future__ import annotations

import numpy as np

from fitplug.families.tree.shape.root_totals import RootTotals
from fitplug.numeric import FloatArray

_LEFT = 1e-4
"""The variance that public sums keep, relative to the variance with measurement."""

_LARGEST = 1 - 1e-6
"""The largest share of theta that is subtracted if totals are not public."""

_RIDGE = 1e-12
"""The weight of directions that no query needs, relative to the others."""


def find_pair_root(
    theta: FloatArray, totals: RootTotals, p: FloatArray, K: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Find the covariance of the root and its inverse, shape (r, r) each.

    Args:
        theta: The matrix that is subtracted from the price of the root's classes, shape (r, r).
        totals: The public sums of the classes.
        p: The weights of the classes in the profile, shape (r,).
        K: The weights of the classes' covariance, shape (r, r).
    """
    if not totals.count:
        mean = _find_full_mean(np.diag(p) - _LARGEST * theta, K)
        return mean, np.asarray(np.linalg.inv(mean))
    T = (np.arange(totals.count)[:, None] == totals.of_class).astype(np.float64)
    mass = T @ p
    # Each public sum keeps a little of the variance that it would have with measurement.
    left = _LEFT * np.sqrt(mass / np.einsum("kc,cd,kd->k", T * p, K, T * p)) * mass
    S = np.einsum("k,kc,kd->cd", left / mass**2, T * p, T * p)
    precision = np.zeros_like(K)
    if len(totals.measured):
        G, measured = totals.reduction.astype(np.float64), np.ix_(totals.measured, totals.measured)
        mean = _find_full_mean((np.diag(p) - theta)[measured], G.T @ K @ G)
        precision[measured] = np.linalg.inv(mean)
        S = S + G @ mean @ G.T
    return S, precision


def _find_full_mean(P: FloatArray, K: FloatArray) -> FloatArray:
    """Compute P # K^-1 for two positive definite matrices (n, n)."""
    L = np.linalg.cholesky(P)
    N = L.T @ K @ L
    n = len(N)
    N[np.diag_indices(n)] += _RIDGE * np.trace(N) / n
    values, vectors = np.linalg.eigh(N)
    half = L @ vectors
    return np.asarray((half / np.sqrt(np.maximum(values, _RIDGE * values[-1]))) @ half.T)
