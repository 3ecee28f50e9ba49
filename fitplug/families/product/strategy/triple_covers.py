"""Few triples that stand for those of all pairs of an attribute's values.

A pair of values (i, j) of an attribute has the triple x = (|a_i|^2, |a_j|^2, a_i'a_j), and what a
pair of cells costs is affine in each of them, with coefficients of x_1 and x_2 that are >= 0. So
the cost is largest at some of the triples in the corners of their convex hull, and if each x is at
most a mean of some triples v, plus r, in x_1 and x_2, and within r in x_3, no pair costs more than
the costliest of v + (r_1, r_2, r_3) and v + (r_1, r_2, -r_3). How the v were chosen need not be
believed: r is computed from the weights of the means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import Delaunay, QhullError

from fitplug.numeric import FloatArray, IntArray

_GRIDS = (32, 24, 16, 12, 8, 6, 5, 4, 3, 2, 1)
"""Into how many steps each of two ratios of coefficients is divided, tried in this order."""

_SHRINKS = (0.0, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.6, 0.9)
"""By how much a triple is moved to the middle until it is inside of the hull, in this order."""

_SLACK = 2.0**-40
"""Relative to the largest number; every number here carries fewer than 2^8 roundings."""


@dataclass(frozen=True, eq=False)
class TripleCover:
    """Triples that no pair of values costs more than.

    Attributes:
        triples: Shape (c, 3).
        origins: The pair of values next to each, shape (c,).
    """

    triples: FloatArray
    origins: IntArray


def cover_triples(triples: IntArray, most: int) -> TripleCover | None:
    """Cover triples (k, 3) by at most about `most`, or by all if they are no more.

    Returns:
        The cover; None if the triples lie in a plane, but for rounding.
    """
    if len(triples) <= most:
        return TripleCover(triples.astype(np.float64), np.arange(len(triples)))
    scale = float(triples.max())
    if not scale > 0:  # all columns are zero
        return TripleCover(np.zeros((1, 3)), np.zeros(1, dtype=np.int64))
    X = triples.astype(np.float64) / scale
    for steps in _GRIDS:
        s, t = np.meshgrid(np.linspace(0, 1, steps + 1), np.linspace(-1, 1, 2 * steps + 1))
        directions = np.stack([1 - s.ravel(), s.ravel(), t.ravel()])
        directions = np.concatenate([directions, [[0, 0], [0, 0], [1, -1]]], axis=1)
        chosen = np.unique([int((X @ direction).argmax()) for direction in directions.T])
        if 2 * len(chosen) <= most:
            break
    # Triples of smaller squares cost no more.
    lowered = [X[chosen] * part for part in ((1, 1, 1), (0, 1, 1), (1, 0, 1), (0, 0, 1))]
    try:
        left = _measure_rest(X, np.concatenate(lowered))
    except QhullError:
        return None
    above = np.maximum(left, 0.0).max(axis=0)
    above[2] = np.abs(left[:, 2]).max()
    if not np.isfinite(above).all():
        return None
    above += 2 * _SLACK
    cover = [X[chosen] + above * sign for sign in ((1, 1, 1), (1, 1, -1))]
    return TripleCover(np.concatenate(cover) * scale * (1 + _SLACK), np.tile(chosen, 2))


def _measure_rest(X: FloatArray, corners: FloatArray) -> FloatArray:
    """Subtract from each point (k, 3) the mean of some corners (c, 3) that is next to it."""
    hull = Delaunay(corners, qhull_options="QJ Qbb Qc")
    middle = corners.mean(axis=0)
    means = np.full_like(X, np.nan)
    outside = np.arange(len(X))
    for shrink in _SHRINKS:
        points = X[outside] + shrink * (middle - X[outside])
        simplex = hull.find_simplex(points)
        inside = (simplex >= 0) & np.isfinite(hull.transform[simplex]).all(axis=(1, 2))
        transforms = hull.transform[simplex[inside]]
        parts = np.einsum("kij,kj->ki", transforms[:, :3], points[inside] - transforms[:, 3])
        weights = np.concatenate([parts, 1 - parts.sum(axis=1, keepdims=True)], axis=1)
        weights = np.maximum(weights, 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
        among = corners[hull.simplices[simplex[inside]]]
        means[outside[inside]] = np.einsum("kc,kci->ki", weights, among)
        outside = outside[~inside]
    return X - means
