"""A bound from above on the cost of all moves of a record, of which there may be 2^100.

f(D) = 2 (sum_T w_T - g), and g = sum_T w_T prod_{a in T} s_a is bounded from below
(docs/theory/units.md, "Too many moves to list"). The weights are divided into a main part and the
rest,

    w_T = k_j prod_{a in T} v_a + e_T      for T of j = 1, 2, 3 attributes

* The main part of g depends on L = sum_a v_a s_a, and on the sums of v_a^2 s_a^2 and v_a^3 s_a^3.
  The range of L is divided into intervals. In each interval the main part is at least a constant
  plus a number for each attribute, which depends on whether the attribute is in D.
* Each term of the rest is at least its value at one reference move, plus a number for each
  attribute at which a move differs from the reference.

So in each interval g is at least a sum over attributes. Each term of it is minimised alone, with a
multiplier for the condition that L is in the interval. Intervals with the least bounds are divided
again, until the bound reaches the move's cost or nothing more is gained.

All floats are the same on every machine: see `fitplug.neighbours.move_costs`. Their rounding errors
are far below `_SLACK` times the sum of the absolute values of all terms, and sums are taken of
integers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.neighbours.move_costs import MOST_LISTED, MoveCosts, add_by_attribute, add_in_order
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property

_SLACK = 2.0**-42
"""Relative; each term carries fewer than 2^10 roundings."""

_PARTS = (1.0, 0.9, 0.75, 0.6)
"""The shares of the best fit that are tried as main part. A negative rest costs more than a
positive one.
"""

_FITTING, _BISECTIONS, _DIVISIONS = 40, 32, 16
_FIRST_INTERVALS, _DIVIDED, _PIECES = 64, 64, 4
_LARGEST_SET = 6
"""The most attributes of a set whose rest is bounded attribute by attribute. The rest of a larger
set is bounded by a constant.
"""

_LARGEST_SIZE = 2.0**57
"""The largest sum of the absolute values of all terms, so that int64 can hold them."""

_GAIN = 2e-6
"""The relative gain of a division from which on another one follows."""

_MOST_TIGHT = 3
"""The most moves at which the bound on the rest is made tight."""

_CLOSE = 1e-5
"""The relative distance between the bound and a move's cost that is good enough."""


def upper_costliest_move(costs: MoveCosts, moves: BoolArray) -> int:
    """Bound the cost of all moves from above: each move's cost, up to `MOST_LISTED` attributes.

    Args:
        costs: The costs of moves.
        moves: Costly moves (v, m), the costliest first. The bound is made tight at some of them.

    Returns:
        An upper bound on the cost of every move. It is the same on every machine.
    """
    if costs.size <= MOST_LISTED:
        rounding = _SLACK * add_in_order(costs.weights)
        return math.ceil(float(costs.evaluate_all().max()) + rounding)
    total = int(costs.weights.sum())
    attained = float(costs.evaluate(moves[:1])[0])
    # Each set's product is at least the least of its ratios.
    least = costs.ratios[costs.members].min(axis=1)
    bound = 2 * (total - int(np.floor(costs.weights * least * (1 + _SLACK)).sum()))
    main = _fit_main_part(costs)
    tight = _select_different([*moves, np.ones(costs.size, dtype=bool)])
    for parts in (_PARTS[:1], _PARTS):
        if main is not None and bound > attained * (1 + _CLOSE):
            least_sum = _lower_sum(main, parts, tight, total - attained / 2)
            bound = min(bound, 2 * (total - least_sum))
    return bound


def _select_different(moves: Sequence[BoolArray]) -> list[BoolArray]:
    """Select the first moves whose numbers of attributes differ by at least a tenth of m."""
    chosen: list[BoolArray] = []
    for move in moves:
        others = [abs(int(move.sum()) - int(other.sum())) for other in chosen]
        if len(chosen) < _MOST_TIGHT and all(10 * other >= len(move) for other in others):
            chosen.append(move)
    return chosen


@dataclass(frozen=True, eq=False)
class _MainPart:
    """The main part k_j prod v_a, and the polynomial with all sets for which it is not zero.

    Attributes:
        costs: The polynomial, with weights of zero for sets that it does not have.
        values: v_a >= 0, and 1 after them, shape (m + 1,).
        multiples: k_0 = 0, k_1, k_2, k_3, and zeros, by the number of attributes.
    """

    costs: MoveCosts
    values: FloatArray
    multiples: FloatArray

    @property
    def weights(self) -> FloatArray:
        """The main part of the weights, shape (t,)."""
        counts = _count_members(self.costs)
        weights = self.multiples[counts]
        for place in self.costs.members.T:
            weights = weights * self.values[place]
        return np.asarray(weights)


def _fit_main_part(costs: MoveCosts) -> _MainPart | None:
    """Fit a main part to the weights; None if too few of all sets have weights."""
    counts = _count_members(costs)
    m, most = costs.size, costs.members.shape[1]
    have = {j: int((counts == j).sum()) for j in range(1, min(most, m, 3) + 1)}
    full = [j for j, number in have.items() if j == 1 or 2 * number >= math.comb(m, j)]
    sums = {j: add_in_order(costs.weights[counts == j]) for j in full}
    largest = max(sums, key=lambda j: sums[j], default=1)
    if largest == 1:
        return None
    for j in full:
        if have[j] < math.comb(m, j):
            costs = _add_absent(costs, j)
    counts = _count_members(costs)
    chosen = counts == largest
    members, weights = costs.members[chosen][:, :largest], costs.weights[chosen]
    wanted = add_by_attribute(members, weights, m)
    values = (wanted > 0).astype(np.float64)
    for _ in range(_FITTING):
        reached = add_by_attribute(members, values[members].prod(axis=1), m)
        values = values * np.sqrt(wanted / np.where(reached > 0, reached, 1.0))
        values = values / max(float(values.max()), 1e-300)
    values = np.append(values, 1.0)
    multiples = np.zeros(most + 1)
    for j in full:
        sets = costs.members[counts == j][:, :j]
        size = add_in_order(values[sets].prod(axis=1))
        multiples[j] = sums[j] / size if size > 0 else 0.0
    return _MainPart(costs, values, multiples)


def _add_absent(costs: MoveCosts, j: int) -> MoveCosts:
    """Add all sets of j attributes that a polynomial does not have, with weights of zero."""
    m, most = costs.size, costs.members.shape[1]
    base = (m + 1) ** np.arange(j, dtype=np.int64)
    chosen = itertools.chain.from_iterable(itertools.combinations(range(m), j))
    every = np.fromiter(chosen, np.int64, math.comb(m, j) * j).reshape(-1, j)
    present = costs.members[_count_members(costs) == j][:, :j]
    absent = every[~np.isin(every @ base, present @ base)]
    padded = np.full((len(absent), most), m, dtype=np.int64)
    padded[:, :j] = absent
    return MoveCosts(
        costs.ratios,
        np.concatenate([costs.members, padded]),
        np.concatenate([costs.weights, np.zeros(len(absent))]),
    )


def _lower_sum(
    main: _MainPart, parts: Sequence[float], moves: Sequence[BoolArray], wanted: float
) -> int:
    """Bound g from below.

    Args:
        main: The main part.
        parts: The shares of it to try.
        moves: The moves at which the bound on the rest is tight. In each interval the best share
            and the best of these moves count.
        wanted: g at a move: intervals in which g is larger need no better bound.
    """
    costs = main.costs
    of_main = main.weights
    size = add_in_order(costs.weights + of_main)
    entries = np.stack([main.values[:-1], main.values[:-1] * costs.ratios[:-1]])
    rests = [
        (part, *_lower_rest(costs, costs.weights - part * of_main, move))
        for part in parts
        for move in moves
    ]
    sums = _Sums(
        entries=entries,
        multiples=np.outer([part for part, _, _ in rests], np.append(main.multiples, np.zeros(3))),
        constants=np.array([constant for _, constant, _ in rests], dtype=np.int64),
        changes=np.stack([changes for _, _, changes in rests]),
    )
    if not float(sums.sizes.max()) < _LARGEST_SIZE:
        return -math.ceil(size)  # the attributes differ too much for a main part
    lowest = add_in_order(entries.min(axis=0))
    highest = add_in_order(entries.max(axis=0))
    margin = 2.0**-40 * add_in_order(main.values[:-1])
    ends = np.linspace(lowest - margin, highest + margin, _FIRST_INTERVALS + 1)
    low, high = ends[:-1], ends[1:]
    bounds, before = sums.lower_intervals(low, high), -math.inf
    for _ in range(_DIVISIONS):
        is_low = bounds < wanted - 1e-9 * size
        worst = np.argsort(bounds, kind="stable")[:_DIVIDED]
        worst = worst[is_low[worst]]
        if not len(worst) or float(bounds.min()) < before + _GAIN * size:
            break
        before = float(bounds.min())
        cuts = np.linspace(low[worst], high[worst], _PIECES + 1)
        new_low, new_high = cuts[:-1].ravel(), cuts[1:].ravel()
        is_undivided = np.ones(len(low), dtype=bool)
        is_undivided[worst] = False
        low, high = np.append(low[is_undivided], new_low), np.append(high[is_undivided], new_high)
        bounds = np.append(bounds[is_undivided], sums.lower_intervals(new_low, new_high))
    return int(bounds.min()) - math.ceil(_SLACK * size)


def _lower_rest(costs: MoveCosts, rest: FloatArray, move: BoolArray) -> tuple[int, FloatArray]:
    """Bound sum_T e_T prod s_a from below by its value at a move plus a number for each change.

    Returns:
        The constant, and for each attribute the number that is added if another move is not along
        it, and if it is, shape (2, m): integers.
    """
    m, counts = costs.size, _count_members(costs)
    here, there = costs.place(move), costs.place(~move)
    constant, changes = 0, np.zeros(m)
    for j in range(1, costs.members.shape[1] + 1):
        chosen = counts == j
        members, e = costs.members[chosen][:, :j], rest[chosen]
        if j > _LARGEST_SET:
            # The main part has no sets this large, so these rests are weights > 0.
            constant += int(np.floor(e * costs.ratios[members].min(axis=1)).sum())
            continue
        at_move = e * here[members].prod(axis=1)
        constant += int(np.floor(at_move).sum())
        least = np.full(members.shape, np.inf)
        for differs in itertools.product((False, True), repeat=j):
            if not any(differs):
                continue
            product = e.copy()
            for place, other in zip(members.T, differs, strict=True):
                product *= (there if other else here)[place]
            # Each attribute that differs bears an equal share of the change.
            part = (product - at_move) / sum(differs)
            for i in np.flatnonzero(differs).tolist():
                least[:, i] = np.minimum(least[:, i], part)
        changes += add_by_attribute(members, np.floor(least), m)
    return constant, np.stack([np.where(move, changes, 0.0), np.where(move, 0.0, changes)])


@dataclass(frozen=True, eq=False)
class _Sums:
    """Bounds of g that are sums over attributes in each interval, for k divisions of the weights.

    Attributes:
        entries: v_a s_a of attributes that are not in D, and that are, shape (2, m).
        multiples: k_0, k_1, k_2, k_3 of each division's main part, shape (k, 4 or more).
        constants: What each division's rest adds to g at any move, integers, shape (k,).
        changes: What it adds for each attribute out of D and in D, integers, shape (k, 2, m).
    """

    entries: FloatArray
    multiples: FloatArray
    constants: IntArray
    changes: FloatArray

    @frozen_property
    def sizes(self) -> FloatArray:
        """A bound on the sum of the absolute values of the main part's terms, shape (k,)."""
        _, k1, k2, k3 = self.multiples[:, :4].T
        size = add_in_order(np.abs(self.entries).max(axis=0))
        return np.asarray(k1 * size + k2 * size * size + k3 * size * size * size)

    def lower_intervals(self, low: FloatArray, high: FloatArray) -> IntArray:
        """Bound g from below, for L in intervals (i,), shape (i,).

        With P2 and P3 the sums of squares and of cubes of the entries, the main part is
        k_1 L + k_2 (L^2 - P2) / 2 + k_3 (L^3 - 3 L P2 + 2 P3) / 6.
        """
        _, k1, k2, k3 = self.multiples[:, :4].T[:, :, None]
        square = np.where((low < 0) & (high > 0), 0.0, np.minimum(low * low, high * high))
        constant = k1 * low + k2 * square / 2 + k3 * (low * low * low) / 6
        # L <= high, and P2 >= 0. The arrays are (k, i, m), for attributes out of D and in D.
        outside, inside = (
            (k3 * (v * v * v / 3))[:, None]
            - (k2 + k3 * high)[:, :, None] / 2 * (v * v)
            + self.changes[:, None, side]
            for side, v in enumerate(self.entries)
        )
        largest_entries = add_in_order(np.abs(self.entries).max(axis=0))
        terms = np.cumsum(np.maximum(np.abs(outside), np.abs(inside)), axis=2)[:, :, -1]
        size = terms + np.abs(constant) + self.sizes[:, None]
        least = float(self.entries[0][self.entries[0] > 0].min())
        most = min(float(size.max()) / least, 2.0**58 / largest_entries)
        below, above = np.full(size.shape, -most), np.full(size.shape, most)
        best = np.full(size.shape, np.iinfo(np.int64).min // 2)
        steering = np.rint(self.entries * 2.0**30).astype(np.int64)
        ends = np.floor(low * 2.0**30).astype(np.int64), np.ceil(high * 2.0**30).astype(np.int64)
        for _ in range(_BISECTIONS):
            # For each y, g is at least the sum of the least (term + y v_a s_a), minus y L.
            y = (below + above) / 2
            outer = outside + y[:, :, None] * self.entries[0]
            inner = inside + y[:, :, None] * self.entries[1]
            sums = np.floor(np.minimum(outer, inner)).astype(np.int64).sum(axis=2)
            limit = np.where(y > 0, y * high, y * low)
            slack = _SLACK * (size + 2 * np.abs(y) * largest_entries)
            bound = sums + np.floor(constant - limit - slack).astype(np.int64) - 1
            best = np.maximum(best, bound)
            reached = np.where(outer <= inner, steering[0], steering[1]).sum(axis=2)
            is_above = reached > np.where(y > 0, ends[1], ends[0])
            below, above = np.where(is_above, y, below), np.where(is_above, above, y)
        return np.asarray((best + self.constants[:, None]).max(axis=0))


def _count_members(costs: MoveCosts) -> IntArray:
    """Count the attributes of each set, shape (t,)."""
    return np.asarray((costs.members < costs.size).sum(axis=1))
