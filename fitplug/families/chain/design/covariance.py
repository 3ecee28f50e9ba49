"""The optimal covariance of a chain: that of a sum of walks, one for each pole.

For dual weights p and q the optimum is Sigma = D^1/2 N^-1/2 D^1/2 (docs/theory/chains.md), and by
the quadrature of the certificate it is a weighted sum over poles t of the posterior covariances
D^1/2 (N + t)^-1 D^1/2. Each of them is that of a walk: with y_j the variance of the prefix s_j and
r_j what s_(j+1) has of s_j, cov(s_i, s_j) = y_i r_i ... r_(j-1) for i <= j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fitplug.certify import place_poles
from fitplug.numeric import FloatArray, IntArray

_TAIL = 1e-8
"""The part of the trace of N^1/2 that poles left out may have: its inverse needs more than it."""


class Walks(NamedTuple):
    """The walks of a chain: of the prefixes before each cell, and of the total.

    Attributes:
        variances: y times the weight of the pole, shape (n + 1, poles); 0 before the first cell.
        decays: log (r_0 ... r_(j-1)), shape (n + 1, poles), descending along each walk.
    """

    variances: FloatArray
    decays: FloatArray

    def compute_increments(self, edges: IntArray) -> FloatArray:
        """Compute the covariance of the counts between cells, ascending, (edges - 1, edges - 1)."""
        y, log = self.variances[edges], self.decays[edges]
        S = (np.exp(np.minimum(log[None] - log[:, None], 0.0)) * y[:, None]).sum(axis=2)
        S = np.triu(S) + np.triu(S, 1).T
        return np.diff(np.diff(S, axis=0), axis=1)


def find_walks(p: FloatArray, prefix_weights: FloatArray, cell_weights: FloatArray) -> Walks:
    """Find the walks of the optimum for dual weights.

    Args:
        p: Weights of the cells, shape (n,), above 0.
        prefix_weights: Weights of the prefixes, shape (n,).
        cell_weights: Weights of the single cells, shape (n,).
    """
    n = len(p)
    trace = float(prefix_weights @ np.cumsum(p) + cell_weights @ p)
    t, weights = place_poles(1.0, n, tail=_TAIL)
    w, c = prefix_weights / trace, cell_weights / trace
    steps = p[:, None] / (t + np.outer(c * p, np.ones_like(t)))
    F, J = np.zeros((n + 1, len(t))), np.empty((n, len(t)))
    for j in range(n):
        before = F[j] + steps[j]
        F[j + 1] = before / (1 + w[j] * before)
    after = np.zeros_like(t)
    for j in range(n - 1, -1, -1):
        # F is the variance given what lies before, and `after` the information of what comes later.
        F[j + 1] /= 1 + F[j + 1] * after
        J[j] = after + w[j]
        after = J[j] / (1 + steps[j] * J[j])
    decays = np.zeros((n + 1, len(t)))
    np.cumsum(-np.log1p(steps[1:] * J[1:]), axis=0, out=decays[2:])
    return Walks(F * (weights / np.sqrt(trace)), decays)
