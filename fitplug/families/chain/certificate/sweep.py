"""The trace of the resolvent along a chain, in linear time and with positive operations only.

With weights p of the cells, N = D^1/2 W' diag(w) W D^1/2 and D = diag(p), the numbers

    y_r(t) = w_r D^1/2 (N + t)^-1 D^1/2 w_r'

are posterior variances: those of the prefixes s_j and of the steps x_i of a random walk whose steps
have prior variances p_i / t, where each prefix, and each step, is observed with the precision of
its weight. With a_i = p_i / (t + c_i p_i) for the weights c of single cells and w those of
prefixes, the variance F_j of s_j given what is up to j, and the information I_j on it from what
comes after, are

    F_j = P / (1 + w_j P),  P = F_(j-1) + a_j            I_(j-1) = J / (1 + a_j J),  J = I_j + w_j
    prefix: y = F_j / (1 + F_j I_j)
    cell:   y = a_j (1 + F_(j-1) J) / (1 + (a_j + F_(j-1)) J)

Segments of the chain are swept side by side: over a segment, F becomes f + g F / (1 + k F) and I
becomes k + g I / (1 + f I), with three numbers f, g, k that do not depend on what is outside
(docs/theory/chains.md, (C4) to (C8)).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import Quadrature
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray

_SEGMENTS = 1024
"""The most segments that are swept side by side."""

_POLES = 8
"""The poles that are swept side by side."""


class ChainSums(NamedTuple):
    """Sums over the poles, with the quadrature's weights.

    Attributes:
        prefixes: Of y of each prefix, shape (n,).
        cells: Of y of each cell, shape (n,).
        slopes: Of (1 - t y_i / p_i) / p_i of each cell, shape (n,); where p is 0, their limit.
    """

    prefixes: FloatArray
    cells: FloatArray
    slopes: FloatArray


def sweep_chain(
    p: FloatArray, prefix_weights: FloatArray, cell_weights: FloatArray, quadrature: Quadrature
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
    own, w, c = (_arrange(x, length, segments) for x in (p, prefix_weights, cell_weights))
    total = np.zeros((3, length, segments))
    for at in range(0, len(quadrature.poles), _POLES):
        poles, weights = (x[at : at + _POLES] for x in quadrature)
        total += _sweep_segments(own, w, c, poles[:, None], weights)
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
    """Arrange the numbers of cells by their place in the segment, shape (length, segments)."""
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
        weights: Their weights, shape (k,).

    Returns:
        The three sums, shape (3, length, segments).
    """
    length, segments = p.shape
    shape = (len(t), segments)
    f, g, k = np.zeros(shape), np.ones(shape), np.zeros(shape)
    for own, above, beside in zip(p, w, c, strict=True):
        f += own / (t + beside * own)
        d = 1 / (1 + above * f)
        f *= d
        k += above * g * d
        g *= d * d
    F, information = _join_segments(f, g, k)
    filtered = np.empty((length + 1, *shape))
    filtered[0] = F
    for i, (own, above, beside) in enumerate(zip(p, w, c, strict=True)):
        P = filtered[i] + own / (t + beside * own)
        filtered[i + 1] = P / (1 + above * P)
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


def _join_segments(f: FloatArray, g: FloatArray, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find F at the start of each segment, and I at its end, all of shape (poles, segments)."""
    F, information = np.zeros_like(f), np.zeros_like(f)
    for i in range(f.shape[1] - 1):
        own = F[:, i]
        F[:, i + 1] = f[:, i] + g[:, i] * own / (1 + k[:, i] * own)
    for i in range(f.shape[1] - 1, 0, -1):
        own = information[:, i]
        information[:, i - 1] = k[:, i] + g[:, i] * own / (1 + f[:, i] * own)
    return F, information
