"""Divisions of counts among their parts: nearest numbers within limits, and their rounding.

A family is the parts of one count. Many families are divided at once.
"""

from __future__ import annotations

import numpy as np

from fitplug.numeric import FloatArray, IntArray

_MOST_STEPS = 200

_TOLERANCE = 1e-12
"""How far the sum of a family may be off, relative to its total or to one."""


def project_families(
    values: FloatArray,
    families: IntArray,
    totals: FloatArray,
    lower: FloatArray | None = None,
    upper: FloatArray | None = None,
) -> FloatArray:
    """Find the numbers nearest to some values that are within limits and add up to family totals.

    For a family with total T, they are v - t, cut to the limits, where t makes their sum T.
    Newton's method finds t, and bisection takes over where it leaves the bracket.

    Args:
        values: Shape (n,).
        families: The family of each value, ascending; each has at least one, shape (n,).
        totals: The total of each family, shape (f,), between the sums of its limits.
        lower: The lower limits, shape (n,), not negative; zero if None.
        upper: The upper limits, shape (n,); infinite if None.

    Returns:
        Shape (n,). The sums are the totals up to rounding.
    """
    low = np.zeros(len(values)) if lower is None else lower
    starts = np.searchsorted(families, np.arange(len(totals)))
    # No part is more than what the others leave of the total.
    most = (totals - np.add.reduceat(low, starts))[families] + low
    high = np.maximum(most if upper is None else np.minimum(most, upper), low)
    found = np.empty(len(values))
    left = np.arange(len(totals))
    v, least, most, of, sums = values, low, high, families, totals
    below = np.minimum.reduceat(v - most, starts)
    above = np.maximum.reduceat(v - least, starts)
    sizes = np.diff(starts, append=len(values))
    shift = np.clip((np.add.reduceat(v, starts) - sums) / sizes, below, above)
    at = np.arange(len(values))
    for _ in range(_MOST_STEPS):
        moved = v - shift[of]
        x = np.clip(moved, least, most)
        over = np.add.reduceat(x, starts) - sums
        free = np.add.reduceat((moved > least) & (moved < most), starts, dtype=np.int64)
        done = np.abs(over) <= _TOLERANCE * np.maximum(np.abs(sums), 1.0)
        done |= above - below <= 4e-16 * np.maximum(np.abs(above), np.abs(below))
        if done.all():
            break
        below = np.where(over > 0, shift, below)
        above = np.where(over > 0, above, shift)
        step = shift + over / np.maximum(free, 1)
        is_inside = (free > 0) & (step > below) & (step < above)
        shift = np.where(done, shift, np.where(is_inside, step, (below + above) / 2))
        if 2 * np.count_nonzero(done) > len(done):  # go on with the other families only
            stays = ~done[of]
            found[at[~stays]] = x[~stays]
            at, v, least, most = at[stays], v[stays], least[stays], most[stays]
            left, sums, shift = left[~done], sums[~done], shift[~done]
            below, above = below[~done], above[~done]
            of = np.searchsorted(left, families[at])
            starts = np.searchsorted(of, np.arange(len(left)))
    found[at] = np.clip(v - shift[of], least, most)
    return found


def round_families(
    values: FloatArray,
    families: IntArray,
    totals: FloatArray,
    upper: FloatArray | None = None,
) -> FloatArray:
    """Round numbers that are not negative down or up, so that families have integer totals.

    The numbers with the largest fractions are raised; among equal fractions, the first. Numbers
    within integer limits stay there.

    Args:
        values: Shape (n,).
        families: The family of each value, ascending; each has at least one, shape (n,).
        totals: The integer total of each family, which is the sum of its values up to rounding.
        upper: The upper limits, shape (n,); infinite if None.
    """
    starts = np.searchsorted(families, np.arange(len(totals)))
    low = np.floor(values)
    short = np.rint(totals - np.add.reduceat(low, starts))
    fractions = values - low
    if upper is not None:
        fractions = np.where(low < upper, fractions, -1.0)
    order = np.lexsort((-fractions, families))
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values)) - starts[families]
    return low + (rank < short[families])
