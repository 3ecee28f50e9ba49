"""The dual weights of a chain, and their optimal covariance as a sum of walks, one for each pole.

A step is p <- p (g / T)^1.8 and q <- q (h / T)^1.8, with the gradients that the sweeps of the
certificate give: the ratios g / T and h / T fall about as the root of the weights, so a power near
2 levels them fast. A little weight is mixed in everywhere, so that none vanishes.

For dual weights p and q the optimum is Sigma = D^1/2 N^-1/2 D^1/2, and by the quadrature of the
certificate it is a weighted sum over poles t of the posterior covariances
D^1/2 (N + t)^-1 D^1/2. Each is a walk's covariance: with y_j the variance of the prefix s_j and
r_j what s_(j+1) has of s_j, cov(s_i, s_j) = y_i r_i ... r_(j-1) for i <= j (docs/theory/chains.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import place_poles
from fitplug.families.chain.certificate import compute_chain_trace, sweep_chain
from fitplug.families.chain.shape import ChainStructure
from fitplug.numeric import FloatArray, IntArray

_STEP, _TAIL = 1, 1e-4
"""Poles that are enough for the gradients: fewer than those of the certificate."""

_ENOUGH = 1e-6
"""The ascent ends when a step adds no more than this to the bound, relatively."""

_POWER, _MIXING = 1.8, 1e-4
"""The power of a step, and the weight that is mixed in."""

_MOST_STEPS = 60


class ChainDuals(NamedTuple):
    """Dual weights of a chain.

    Attributes:
        p: Weights of the cells, shape (n,); they sum to 1.
        q: Weights of the structure's rows, shape (rows,); they sum to 1.
        value: T(p, q), about.
        steps: The steps made.
    """

    p: FloatArray
    q: FloatArray
    value: float
    steps: int


def ascend_chain_dual(
    structure: ChainStructure, most_steps: int, gap: float | None = None
) -> ChainDuals:
    """Find dual weights whose bound is nearly the largest.

    Args:
        structure: The structure of the workload.
        most_steps: The most steps.
        gap: How far the cost of their optimal covariance may be above the bound, relatively; None
            if the bound alone is wanted.
    """
    n, rows = structure.n, structure.rows
    p, q = np.full(n, 1 / n), np.full(rows, 1 / rows)
    duals = ChainDuals(p, q, 0.0, 0)
    for step in range(min(most_steps, _MOST_STEPS)):
        g, h = _compute_gradients(structure, p, q)
        value = float(p @ g)
        gained, last = value - duals.value, duals.value
        if gained > 0:
            duals = ChainDuals(p, q, value, step + 1)
        reached = math.sqrt(float(g.max() * h.max())) / value - 1
        if reached <= gap if gap is not None else gained <= _ENOUGH * last:
            break
        p, q = (_mix(x * (slope / value) ** _POWER) for x, slope in ((p, g), (q, h)))
    return duals


def _mix(weights: FloatArray) -> FloatArray:
    """Scale weights to a sum of 1, with a little of it spread evenly."""
    return (weights / weights.sum() + _MIXING / len(weights)) / (1 + _MIXING)


def _compute_gradients(
    structure: ChainStructure, p: FloatArray, q: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Compute twice the derivatives of T along p (n,) and q (rows,)."""
    row_weights = q / structure.targets
    g, h = np.zeros(structure.n), np.zeros(structure.rows)
    starts = structure.row_starts
    for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
        prefixes, cells = structure.gather_weights(block, row_weights)
        trace = compute_chain_trace(p, prefixes, cells)
        if not trace > 0:
            continue
        # The poles are placed for weights that give N a trace of 1.
        quadrature = place_poles(1.0, structure.n, step=_STEP, tail=_TAIL)
        sums = sweep_chain(p, prefixes / trace, cells / trace, quadrature)
        scale = math.sqrt(multiple)
        g += scale * math.sqrt(trace) * sums.slopes
        groups, multiples = structure.subsets.find_groups(block)
        for group, group_multiple in zip(groups.tolist(), multiples.tolist(), strict=True):
            asked = structure.chain_rows[group]
            y = np.where(asked.is_prefix, sums.prefixes[asked.cells], sums.cells[asked.cells])
            h[starts[group] : starts[group + 1]] += scale * group_multiple / math.sqrt(trace) * y
    return g, h / structure.targets


_WALK_TAIL = 1e-8
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
    t, weights = place_poles(1.0, n, tail=_WALK_TAIL)
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
