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
        shared: The sum of t cov(x_i, total) / p_i for each cell, shape (n,), if the total is
            observed.
    """

    prefixes: FloatArray
    cells: FloatArray
    slopes: FloatArray
    shared: FloatArray


def sweep_chain(
    p: FloatArray,
    prefix_weights: FloatArray,
    cell_weights: FloatArray,
    quadrature: ResolventQuadrature,
    total: float = 0.0,
) -> ChainSums:
    """Sum the posterior variances of a chain's prefixes and cells over poles.

    Args:
        p: Weights of the cells, shape (n,), at least 0.
        prefix_weights: w, shape (n,), at least 0.
        cell_weights: c, shape (n,), at least 0.
        quadrature: The poles.
        total: At each pole t the total is observed with t times this precision, more than -1 / sum
            p. The slopes are those of no such observation.

    Returns:
        The sums, whose relative errors `upper_sweep_error(n)` bounds.
    """
    n = len(p)
    length, segments = _divide_chain(n)
    # Cells beyond the end have no weight and change nothing.
    weights_p, w, c = (_arrange(x, length, segments) for x in (p, prefix_weights, cell_weights))
    sums = np.zeros((4, length, segments))
    for at in range(0, len(quadrature.poles), _POLES):
        poles, weights = (x[at : at + _POLES] for x in quadrature)
        sums += _sweep_segments(weights_p, w, c, poles[:, None], weights, total)
    return ChainSums(*(x.T.ravel()[:n] for x in sums))


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
    p: FloatArray, w: FloatArray, c: FloatArray, t: FloatArray, weights: FloatArray, total: float
) -> FloatArray:
    """Sum over some poles t (k, 1); see `ChainSums`.

    Args:
        p: Weights of the cells, shape (length, segments).
        w: Weights of the prefixes, likewise.
        c: Weights of the single cells, likewise.
        t: The poles, shape (k, 1).
        weights: The poles' weights, shape (k,).
        total: As in `sweep_chain`.

    Returns:
        The four sums, shape (4, length, segments).
    """
    length, segments = p.shape
    shape = (len(t), segments)
    f, g, k = _fold_cells(p, w, c, t)
    # What observations within a segment leave of the covariance with its last prefix.
    reach = np.ones(shape)
    F, information = _join_segments(f, g, k, max(total, 0.0) * t)
    filtered = np.empty((length + 1, *shape))
    filtered[0] = F
    for i, (p_i, w_i, c_i) in enumerate(zip(p, w, c, strict=True)):
        P = filtered[i] + p_i / (t + c_i * p_i)
        filtered[i + 1] = P / (1 + w_i * P)
        reach *= filtered[i] / np.maximum(P, _TINY)
    # The covariance of each segment's last prefix with the total, from the total's variance.
    last = filtered[length, :, -1:]
    last = last / (1 + last * max(total, 0.0) * t)
    shared = np.ones(shape)
    shared[:, :-1] = np.cumprod(reach[:, :0:-1], axis=1)[:, ::-1]
    shared *= last
    further = max(-total, 0.0) * t
    further = weights * (further / (1 - further * last))[:, 0]
    sums = np.zeros((4, length, segments))
    for i in range(length - 1, -1, -1):
        before, after = filtered[i], filtered[i + 1]
        step = p[i] / (t + c[i] * p[i])
        sums[0, i] = weights @ (after / (1 + after * information))
        if total != 0:
            P = np.maximum(before + step, _TINY)
            sums[0, i] += further @ np.square(shared)
            of_cells = further @ np.square(shared * step / P)
            sums[3, i] = weights @ (t * shared / (t + c[i] * p[i]) / P)
            shared = shared * (before / P)
        J = information + w[i]
        known = 1 + (step + before) * J
        shrunk = (1 + before * J) / known
        sums[1, i] = weights @ (step * shrunk)
        if total != 0:
            sums[1, i] += of_cells
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


def _join_segments(
    f: FloatArray, g: FloatArray, k: FloatArray, last: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Find F at the start of each segment and I at its end, shape (poles, segments) each.

    Args:
        f: For each pole and segment; see the module's docstring.
        g: Likewise.
        k: Likewise.
        last: I at the end of the chain, shape (poles, 1).
    """
    F, information = np.zeros_like(f), np.zeros_like(f)
    information[:, -1:] = last
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

_TINY = 1e-300

_LEAST_MEAN = 1e-9

_ROUNDING = 1e-10
"""More than the relative rounding of the sum of p."""

_LARGEST_DECAY = 3000
"""More than twice the logarithm of the ratio of two floats; see docs/theory/persons.md."""


class ChainCertifier(Certifier[ChainStructure]):
    """The certificate of `ChainStructure`, for the plain objective."""

    is_refined = False

    def count_duals(self, structure: ChainStructure) -> tuple[int, int]:
        return structure.n, structure.rows

    def lower_cost(
        self, structure: ChainStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        return lower_cost_with_mean(structure, scale, duals, 1.0)


def lower_cost_with_mean(
    structure: ChainStructure, scale: float, duals: Duals, mean: float
) -> float:
    """Bound the cost from below for differences of the moment D + (mean - 1) p p'.

    Args:
        structure: The structure.
        scale: The factor on all targets.
        duals: The weights, with D = diag(p) if p is scaled to the sum 1.
        mean: The variance of the total, relative to independent cells.
    """
    p = scale_weights(duals.p, structure.n)
    q = scale_weights(duals.q, structure.rows)
    row_weights = q / (scale * structure.targets)
    total = 0.0
    for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
        prefixes, cells = structure.gather_weights(block, row_weights)
        # In blocks of other attributes, whose cells have equal weights, p p' is zero.
        bound = lower_chain_trace(p, prefixes, cells, mean if block == 0 else 1.0)
        total += math.sqrt(multiple) * bound
    total *= 1 - gamma(len(structure.blocks) + structure.rows + 16)
    return divide_by_mass(total, p, q)


class ChainPersonCertifier(PeriodCertifier[ChainStructure], ChainCertifier):
    """The certificate of `ChainPersonStructure`."""

    def multiply_groups(self, structure: ChainStructure, duals: Duals, times: FloatArray) -> Duals:
        return duals._replace(q=duals.q * np.repeat(times, structure.row_counts))

    def lower_period(
        self, structure: ChainStructure, scale: float, duals: Duals, mean: float
    ) -> float:
        return lower_cost_with_mean(structure, scale, duals, mean)


def lower_chain_trace(
    p: FloatArray, prefix_weights: FloatArray, cell_weights: FloatArray, mean: float = 1.0
) -> float:
    """Bound tr N^1/2 of a chain from below, rounding included.

    Args:
        p: Weights of the cells, shape (n,), at most 1.
        prefix_weights: Weights of the prefixes, shape (n,).
        cell_weights: Weights of the single cells, shape (n,).
        mean: P is D + (mean - 1) p p' / sum p; at least `_LEAST_MEAN`, or the bound is 0.

    Returns:
        The bound; 0 if all weights are zero.
    """
    largest = float(max(prefix_weights.max(), cell_weights.max()))
    if not largest > 0 or not mean >= _LEAST_MEAN:
        return 0.0
    w, c = prefix_weights / largest, cell_weights / largest
    p, w, c = (np.where(x < _NEGLIGIBLE, 0.0, x) for x in (p, w, c))
    trace = compute_chain_trace(p, w, c)
    if not trace > 0:
        return 0.0
    # P^-1 = D^-1 + observed 1 1'. Less of the norm is proven if more is observed.
    observed = 0.0
    if mean != 1:
        observed = (1 / mean - 1 + _ROUNDING * (1 / mean + 1)) / float(p.sum())
    sums = sweep_chain(p, w, c, place_poles(trace * max(mean, 1.0), len(p)), observed)
    total = float((w * sums.prefixes + c * sums.cells).sum())
    # Roundings of the sums over poles and cells, and of the division by the largest weight.
    error = upper_sweep_error(len(p)) + gamma(len(p) + 256)
    if mean > 1:
        error *= _LARGEST_DECAY + 4 * mean
    return total * math.sqrt(largest) * (1 - error)


def compute_chain_trace(
    p: FloatArray, prefix_weights: FloatArray, cell_weights: FloatArray
) -> float:
    """Compute tr N of a chain; the arguments are those of `lower_chain_trace`."""
    return float(prefix_weights @ np.cumsum(p) + cell_weights @ p)
