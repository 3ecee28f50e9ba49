"""Hulls of the rows of a factor: the rows that can have the largest variance.

If targets do not vary along an attribute, the variance (F10) of a group's queries along it is
alpha mu^2 + beta gamma with alpha, beta >= 0. It is largest at a vertex of the upper right hull of
the points (mu^2, gamma). See docs/theory/product-family.md, "Queries that can be left out".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.numeric import FloatArray


def find_hull(table: FloatArray, slack: float) -> FloatArray:
    """Find points (h, 2) whose mixtures dominate all rows (mu^2, gamma) of a table (r, 2).

    Args:
        table: Numbers >= 0, shape (r, 2).
        slack: The points may exceed the hull by a factor of 1 + slack. More slack leaves fewer.
    """
    points = table[np.lexsort((-table[:, 1], -table[:, 0]))]
    # Most rows have less gamma than a row with more mu^2, and are dropped in one step.
    highest = np.maximum.accumulate(points[:, 1])
    points = points[np.append(True, highest[1:] > highest[:-1])]
    hull: list[FloatArray] = []
    for point in points:
        while len(hull) > 1 and _measure_excess(hull[-2], point, hull[-1]) <= 1:
            hull.pop()
        hull.append(point)
    kept = [0]
    for j in range(2, len(hull)):
        last, between = hull[kept[-1]], hull[kept[-1] + 1 : j]
        if any(_measure_excess(last, hull[j], point) > 1 + slack for point in between):
            kept.append(j - 1)
    if len(hull) > 1:
        kept.append(len(hull) - 1)
    return np.array(hull)[kept] * (1 + slack)


def _measure_excess(a: FloatArray, b: FloatArray, point: FloatArray) -> float:
    """Return how many times as far from zero `point` is as the line through a and b, all (2,).

    a has more mu^2 than b, and b has more gamma.
    """
    normal = b[1] - a[1], a[0] - b[0]
    at_line = normal[0] * a[0] + normal[1] * a[1]
    return float((normal[0] * point[0] + normal[1] * point[1]) / at_line)


def stack_hulls(hulls: Sequence[FloatArray]) -> FloatArray:
    """Stack hulls (h, 1 + K) to (g, most, 1 + K); shorter ones repeat their points."""
    most = max(map(len, hulls))
    return np.stack([np.resize(hull, (most, hull.shape[1])) for hull in hulls])
