"""The certificate of chains: the trace of a square root by quadrature, block by block.

T(p, q) is the sum over the blocks A of w_A^1/2 tr N_A^1/2, where N_A combines the weights p of the
chain's cells with the block's share of q / c. The trace of the resolvent along a chain takes linear
time, and only operations on positive numbers. With N = D^1/2 W' diag(w) W D^1/2 and D = diag(p),
the numbers

    y_r(t) = w_r D^1/2 (N + t)^-1 D^1/2 w_r'

are posterior variances: those of the prefixes s_j and of the steps x_i of a random walk. Its steps
have prior variances p_i / t, and each prefix and each step is observed with its weight as
precision. Let a_i = p_i / (t + c_i p_i), with weights c of single cells and w of prefixes. The
variance F_j of s_j given the observations up to j, and the information I_j on it from later
observations, are

    F_j = P / (1 + w_j P),  P = F_(j-1) + a_j            I_(j-1) = J / (1 + a_j J),  J = I_j + w_j
    prefix: y = F_j / (1 + F_j I_j)
    cell:   y = a_j (1 + F_(j-1) J) / (1 + (a_j + F_(j-1)) J)

Segments of the chain are swept in parallel: over a segment, F becomes f + g F / (1 + k F) and I
becomes k + g I / (1 + f I), with three numbers f, g, k that depend on the segment alone
(docs/theory/chains.md, (C4) to (C8)).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import (
    ResolventQuadrature,
    divide_by_mass,
    place_poles,
    scale_weights,
)
from fitplug.families.base.family import Certifier, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.periods import PeriodCertifier
from fitplug.families.chain.shape.chains import ChainStructure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma

_SEGMENTS = 1024
"""The most segments swept in parallel."""

_POLES = 8
"""The number of poles swept in parallel."""


class ChainSums(NamedTuple):
    """Sums over the poles, weighted by the quadrature.

    Attributes:
        prefixes: The sum of y for each prefix, shape (n,).
        cells: The sum of y for each cell, shape (n,).
        slopes: The sum of (1 - t y_i / p_i) / p_i for each cell, shape (n,); its limit where p_i is
            0.
    """

    prefixes: FloatArray
    cells: FloatArray
    slopes: FloatArray


def sweep_chain(
    p: FloatArray,
    prefix_weights: FloatArray,
    cell_weights: FloatArray,
    quadrature: ResolventQuadrature,
) -> ChainSums:
    """Sum the posterior variances of a chain's prefixes and cells over poles.

    Args:
        p: Weights of the cells, shape (n,), at least 0.
        prefix_weights: w, shape (n,), at least 0.
        cell_weights: c, shape (n,), at least 0.
        quadrature: The poles.

    Returns:
        The sums, whose relative errors `upper_sweep_error(n)` bounds.
    """
    n = len(p)
    length, segments = _divide_chain(n)
    # Cells beyond the end have no weight and change nothing.
    weights_p, w, c = (_arrange(x, length, segments) for x in (p, prefix_weights, cell_weights))
    total = np.zeros((3, length, segments))
    for at in range(0, len(quadrature.poles), _POLES):
        poles, weights = (x[at : at + _POLES] for x in quadrature)
        total += _sweep_segments(weights_p, w, c, poles[:, None], weights)
    prefixes, cells, slopes = (x.T.ravel()[:n] for x in total)
    return ChainSums(prefixes, cells, slopes)


def upper_sweep_error(n: int) -> float:
    """Bound the relative error of the sums over the prefixes and cells of a chain of n cells."""
    length, segments = _divide_chain(n)
    return 16 * (length + 3) ** 2 * (segments + 2) * UNIT_ROUNDOFF


def _divide_chain(n: int) -> tuple[int, int]:
    """Divide n cells into segments.

    Returns:
        The cells of a segment and the number of segments.
    """
    segments = min(_SEGMENTS, max(1, math.isqrt(n)))
    return -(-n // segments), segments


def _arrange(x: FloatArray, length: int, segments: int) -> FloatArray:
    """Arrange the numbers of cells by their place in their segment, shape (length, segments)."""
    padded = np.zeros(length * segments)
    padded[: len(x)] = x
    return np.ascontiguousarray(padded.reshape(segments, length).T)


def _sweep_segments(
    p: FloatArray, w: FloatArray, c: FloatArray, t: FloatArray, weights: FloatArray
) -> FloatArray:
    """Sum over some poles t (k, 1); see `ChainSums`.

    Args:
        p: Weights of the cells, shape (length, segments).
        w: Weights of the prefixes, likewise.
        c: Weights of the single cells, likewise.
        t: The poles, shape (k, 1).
        weights: The poles' weights, shape (k,).

    Returns:
        The three sums, shape (3, length, segments).
    """
    length, segments = p.shape
    shape = (len(t), segments)
    f, g, k = _fold_cells(p, w, c, t)
    F, information = _join_segments(f, g, k)
    filtered = np.empty((length + 1, *shape))
    filtered[0] = F
    for i, (p_i, w_i, c_i) in enumerate(zip(p, w, c, strict=True)):
        P = filtered[i] + p_i / (t + c_i * p_i)
        filtered[i + 1] = P / (1 + w_i * P)
    sums = np.empty((3, length, segments))
    for i in range(length - 1, -1, -1):
        before, after = filtered[i], filtered[i + 1]
        step = p[i] / (t + c[i] * p[i])
        sums[0, i] = weights @ (after / (1 + after * information))
        J = information + w[i]
        known = 1 + (step + before) * J
        shrunk = (1 + before * J) / known
        sums[1, i] = weights @ (step * shrunk)
        # Without cancellation, 1 - t y / p = (p c + t a J / known) / (t + p c).
        sums[2, i] = weights @ ((c[i] + t / (t + c[i] * p[i]) * J / known) / (t + c[i] * p[i]))
        information = J / (1 + step * J)
    return sums


def _fold_cells(
    p: FloatArray, w: FloatArray, c: FloatArray, t: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Compute f, g and k of each segment and pole, shape (poles, segments) each.

    The arguments are those of `_sweep_segments`.
    """
    shape = (len(t), p.shape[1])
    f, g, k = np.zeros(shape), np.ones(shape), np.zeros(shape)
    for p_i, w_i, c_i in zip(p, w, c, strict=True):
        f += p_i / (t + c_i * p_i)
        d = 1 / (1 + w_i * f)
        f *= d
        k += w_i * g * d
        g *= d * d
    return f, g, k


def fold_chain(
    p: FloatArray, prefix_weights: FloatArray, poles: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Compute f, g and k of a whole chain without single cells, shape (poles,) each.

    `upper_sweep_error` bounds the relative errors of f and k, and the error of g^1/2.
    """
    a, w, c = (_arrange(x, *_divide_chain(len(p))) for x in (p, prefix_weights, 0 * p))
    f, g, k = (x.T for x in _fold_cells(a, w, c, poles[:, None]))
    F, information, slope = f[0], k[0], g[0]
    for next_f, next_g, next_k in zip(f[1:], g[1:], k[1:], strict=True):
        known = 1 + next_k * F
        information = information + slope * next_k / known
        slope = slope * next_g / known**2
        F = next_f + next_g * F / known
    return F, slope, information


def _join_segments(f: FloatArray, g: FloatArray, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find F at the start of each segment and I at its end, shape (poles, segments) each."""
    F, information = np.zeros_like(f), np.zeros_like(f)
    for i in range(f.shape[1] - 1):
        before = F[:, i]
        F[:, i + 1] = f[:, i] + g[:, i] * before / (1 + k[:, i] * before)
    for i in range(f.shape[1] - 1, 0, -1):
        after = information[:, i]
        information[:, i - 1] = k[:, i] + g[:, i] * after / (1 + f[:, i] * after)
    return F, information


_NEGLIGIBLE = 1e-100
"""Weights below this share of the largest count as zero, which only lowers a bound. Then all
numbers of a sweep stay within the range of floats."""


class ChainCertifier(Certifier[ChainStructure]):
    """The certificate of `ChainStructure`, for the plain objective."""

    is_refined = False

    def count_duals(self, structure: ChainStructure) -> tuple[int, int]:
        return structure.n, structure.rows

    def lower_cost(
        self, structure: ChainStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        p = scale_weights("p", duals.p, structure.n)
        q = scale_weights("q", duals.q, structure.rows)
        row_weights = q / (scale * structure.targets)
        total = 0.0
        for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
            prefixes, cells = structure.gather_weights(block, row_weights)
            total += math.sqrt(multiple) * lower_chain_trace(p, prefixes, cells)
        total *= 1 - gamma(len(structure.blocks) + structure.rows + 16)
        return divide_by_mass(total, p, q)


class ChainPersonCertifier(PeriodCertifier[ChainStructure], ChainCertifier):
    """The certificate of `ChainPersonStructure`."""

    def multiply_groups(self, structure: ChainStructure, duals: Duals, times: FloatArray) -> Duals:
        return duals._replace(q=duals.q * np.repeat(times, structure.row_counts))

    def upper_mean(self, structure: ChainStructure, scale: float, duals: Duals) -> float:
        # In the block of the chain alone, the other attributes have equal weights.
        p = duals.p / duals.p.sum()
        prefixes, cells = structure.gather_weights(0, duals.q / (scale * structure.targets))
        square = float(prefixes @ np.cumsum(p) ** 2 + cells @ p**2)
        return math.sqrt(square / float(duals.q.sum()))


def lower_chain_trace(p: FloatArray, prefix_weights: FloatArray, cell_weights: FloatArray) -> float:
    """Bound tr N^1/2 of a chain from below, rounding included.

    Args:
        p: Weights of the cells, shape (n,), at most 1.
        prefix_weights: Weights of the prefixes, shape (n,).
        cell_weights: Weights of the single cells, shape (n,).

    Returns:
        The bound; 0 if all weights are zero.
    """
    largest = float(max(prefix_weights.max(), cell_weights.max()))
    if not largest > 0:
        return 0.0
    w, c = prefix_weights / largest, cell_weights / largest
    p, w, c = (np.where(x < _NEGLIGIBLE, 0.0, x) for x in (p, w, c))
    trace = compute_chain_trace(p, w, c)
    if not trace > 0:
        return 0.0
    sums = sweep_chain(p, w, c, place_poles(trace, len(p)))
    total = float((w * sums.prefixes + c * sums.cells).sum())
    # Roundings of the sums over poles and cells, and of the division by the largest weight.
    error = upper_sweep_error(len(p)) + gamma(len(p) + 256)
    return total * math.sqrt(largest) * (1 - error)


def compute_chain_trace(
    p: FloatArray, prefix_weights: FloatArray, cell_weights: FloatArray
) -> float:
    """Compute tr N of a chain; the arguments are those of `lower_chain_trace`."""
    return float(prefix_weights @ np.cumsum(p) + cell_weights @ p)
