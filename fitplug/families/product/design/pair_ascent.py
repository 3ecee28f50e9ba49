"""Steps of ascent for the dual weights of pairs of values of an attribute."""

from __future__ import annotations

import numpy as np

from fitplug.numeric import BoolArray, FloatArray
from fitplug.solve import mix_with_uniform


def join_sides(p: FloatArray, s: FloatArray) -> FloatArray:
    """Compute the weights (n, n) of an attribute's pairs of values that all its moves share."""
    return np.outer(p, p) - np.outer(p * s, p * s)


def ascend_pairs(
    p: FloatArray,
    S: FloatArray,
    move: BoolArray,
    stay: FloatArray,
    apart: FloatArray,
    mixing: float,
) -> tuple[FloatArray, FloatArray]:
    """Raise the weights of an attribute's values and pairs of values, separately per move."""
    p, S = p * stay, S * apart
    n = S.shape[-1]
    for k in range(len(S)):
        total = float(S[k].sum())
        S[k] *= (1 - mixing) / (total or 1.0)
        S[k] += mixing * (1 - np.eye(n)) / (n * (n - 1))
    totals = p.sum(axis=1, keepdims=True)
    p = (1 - mixing) * p / np.where(totals > 0, totals, 1.0) + mixing / n
    p[move] = S.sum(axis=2)
    return p / p.sum(axis=1, keepdims=True), S


def ascend_leaves(p: FloatArray, gains: FloatArray, mixing: float) -> FloatArray:
    """Raise the weights (t, n) of a hierarchy's leaves for each move; gains (t, n), or (n,)."""
    grown = p * gains
    totals = grown.sum(axis=1, keepdims=True)
    shares = np.divide(grown, totals, out=p.copy(), where=totals > 0)
    return (1 - mixing) * shares + mixing / p.shape[1]


def ascend_shared_pairs(
    p: FloatArray,
    s: FloatArray,
    shares: FloatArray,
    move: BoolArray,
    stay: FloatArray,
    apart: FloatArray,
    mixing: float,
) -> tuple[FloatArray, FloatArray]:
    """Raise the weights p of an attribute's values and their sides s, which all moves share.

    The weights are then those of i drawn from p (1 + s) and j drawn from p (1 - s).
    """
    low, high = p * (1 + s), p * (1 - s)
    low, high = low / low.sum(), high / high.sum()
    apart = np.tensordot(shares[move], apart, 1)
    alone = (shares * ~move) @ stay
    low, high = low * (apart @ high + alone), high * (apart @ low + alone)
    low, high = (mix_with_uniform(side / side.sum(), mixing) for side in (low, high))
    p = (low + high) / 2
    s = (low - high) / (low + high)
    return p, s
