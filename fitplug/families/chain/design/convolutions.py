"""Chains measured by convolutions: T from an infinite chain, with R and M levelling the ends.

With equal weights everywhere, the optimum along an infinite chain is the Toeplitz matrix of

    ((1 - x z) / (1 - z))^1/2        0 <= x < 1

where x grows from 0 with the weight of single cells relative to prefixes. R and M handle the ends
and varying targets: M levels the privacy profile, and R the variances over targets. For given R,
the column weights m_i = (sum_j r_j^2 t_(j - i)^2)^-1/2 level the profile. They are rounded to
integers at once, because variances are cheap only if many columns share one weight. Then each row's
weight grows by a power of the ratio of its variance to its target, and the two steps repeat. They
start with a shorter chain, whose weights are close to those of the long one
(docs/theory/chains.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fitplug.families.chain.shape.chains import ChainStructure
from fitplug.families.chain.strategy.convolution_variances import (
    find_total_covariances,
    upper_prefix_stds,
)
from fitplug.numeric import FloatArray, IntArray, convolve, correlate, to_positions
from fitplug.solve import Solution


@dataclass(frozen=True, eq=False)
class ToeplitzPair:
    """The sequences of T, of T^-1 and of the prefix sums of T^-1, each of shape (n,)."""

    t: FloatArray
    v: FloatArray
    u: FloatArray


def build_toeplitz(n: int, x: float) -> ToeplitzPair:
    """Build the sequences of T for a weight x of single cells."""
    rising, falling = _build_powers(n)
    powers = x ** np.arange(n)
    t = convolve(rising, falling * powers)
    v = convolve(falling, rising * powers)
    return ToeplitzPair(t, v, np.cumsum(v))


def choose_cell_weight(structure: ChainStructure, duals: Solution) -> float:
    """Choose x for the average dual weights of prefixes and cells over all blocks.

    With q_s per prefix and q_c per cell, T has the squared spectrum (q_s / |1 - z|^2 + q_c)^1/2,
    which factors into the form above: with a - b = q_s^1/2 and a b = q_c it is x = b / a.
    """
    row_weights = duals.q / structure.targets
    prefixes, cells = 0.0, 0.0
    for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
        weights = structure.gather_weights(block, row_weights)
        # The total may have its own row, and plays no part in the infinite chain.
        prefixes += math.sqrt(multiple) * float(weights[0][:-1].sum())
        cells += math.sqrt(multiple) * float(weights[1].sum())
    difference = math.sqrt(prefixes)
    a = (difference + math.sqrt(prefixes + 4 * cells)) / 2
    return (a - difference) / a if a > 0 else 0.0


def place_cells(n: int) -> FloatArray:
    """Place cells on a line that aligns the ends of chains of different lengths, shape (n,)."""
    middle = (np.arange(n) + 0.5) / n
    return np.asarray(np.log(middle / (1 - middle)))


def _build_powers(n: int) -> tuple[FloatArray, FloatArray]:
    """Build the sequences of (1 - z)^-1/2 and (1 - z)^1/2, each of shape (n,)."""
    k = np.arange(1.0, n)
    rising = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    falling = np.concatenate([[1.0], np.cumprod((2 * k - 3) / (2 * k))])
    return rising, falling


_POWER = 0.85
"""The power of the ratio of a variance to its target by which a row's weight grows."""

_SHORTER, _SHORTEST = 16, 512
"""A chain starts from one that is 16 times shorter, if this has at least 512 cells."""

_FIRST_STEPS, _FURTHER_STEPS = 40, 12
"""The numbers of steps of the shortest chain, and of longer ones."""

_COARSE = 1e-2
"""The relative resolution of column weights, until the last few steps."""

_FINE, _FINE_LONG, _LONG = 1e-3, 3e-3, 2**18
"""The final relative resolution of column weights, for chains of up to 2^18 cells and for longer
ones. Each different weight costs a pass over the cells."""

_FINE_STEPS = 6
"""The number of last steps, which have the final resolution."""

_TOTAL_STEPS = 4
"""The number of alternations between the weight of the total and the resulting variances."""

_LEAST_ROWS = (0.5, 0.0625)
"""The least row weights to try, as shares of the largest. Some targets are slack at the optimum,
such as those near the ends and those much looser than their neighbours. Without a limit, their rows
would shrink forever, and the columns' weights would grow."""


@dataclass(frozen=True, eq=False)
class LevelWeights:
    """Weights of a chain, with the cost that they reach.

    Attributes:
        rows: r, shape (n,), at most 1.
        columns: m, shape (n,).
        prefix_variances: The variances of the prefixes at noise of variance 1, shape (n,).
        cell_variances: The variances of the single cells, shape (n,); zeros if no query asks for
            one.
        total: The weight of a separate row for the total; 0 for none.
        cost: The privacy cost at the targets.
    """

    rows: FloatArray
    columns: IntArray
    prefix_variances: FloatArray
    cell_variances: FloatArray
    total: float
    cost: float


@dataclass(frozen=True, eq=False)
class ChainNeeds:
    """The factors of a chain's variances, whose products must be at most 1; 0 without queries.

    Attributes:
        prefixes: The factor of each prefix, shape (n,).
        cells: The factor of each single cell, shape (n,).
        total: The factor of the total if it exceeds that of all other prefixes; else 0.
    """

    prefixes: FloatArray
    cells: FloatArray
    total: float

    def compute_ratios(self, prefixes: FloatArray, cells: FloatArray) -> FloatArray:
        """Compute the larger ratio of each prefix and its last cell, from variances (n,) of
        both."""
        return np.maximum(self.prefixes * prefixes, self.cells * cells)

    def shorten(self, n: int) -> ChainNeeds:
        """Shorten to n cells, each with the largest needs of the cells that it stands for."""
        starts = to_positions(np.arange(n, dtype=np.int64) * len(self.prefixes) // n)
        return ChainNeeds(
            np.maximum.reduceat(self.prefixes, starts),
            np.maximum.reduceat(self.cells, starts),
            self.total,
        )


def make_needs(prefixes: FloatArray, cells: FloatArray) -> ChainNeeds:
    """Make needs from the factors of all prefixes and cells, shape (n,) each."""
    total, most = float(prefixes[-1]), float(prefixes[:-1].max(initial=0.0))
    # A total with a tighter target gets a separate row, if there are other prefixes.
    if not 0 < most < total:
        return ChainNeeds(prefixes, cells, 0.0)
    return ChainNeeds(np.append(prefixes[:-1], most), cells, total)


def level_chain(needs: ChainNeeds, x: float) -> tuple[LevelWeights, float]:
    """Find the weights of the rows and columns for T of parameter x.

    Args:
        needs: The needs.
        x: The parameter of T; see `fitplug.families.chain.design.convolutions`.

    Returns:
        The best weights found, and the least row weight that was best for the shortest chain.
    """
    n = len(needs.prefixes)
    shorter = n // _SHORTER
    if shorter < _SHORTEST:
        tried = [(_level(needs, x, np.ones(n), _FIRST_STEPS, one), one) for one in _LEAST_ROWS]
        return min(tried, key=lambda pair: pair[0].cost)
    start, least_row = level_chain(needs.shorten(shorter), x)
    rows = np.exp(np.interp(place_cells(n), place_cells(shorter), np.log(start.rows)))
    return _level(needs, x, rows, _FURTHER_STEPS, least_row), least_row


def choose_columns(
    rows: FloatArray, t: FloatArray, *, least: int = 1024, resolution: float | None = None
) -> IntArray:
    """Choose integer column weights that level the profile.

    Args:
        rows: The weights of the rows, shape (n,).
        t: The sequence of T, shape (n,).
        least: The least weight.
        resolution: The relative step between different weights of adjacent columns; None for the
            finest.

    Returns:
        The weights, shape (n,), equal over long runs, since each run costs a pass for the
        variances.
    """
    if resolution is None:
        resolution = _FINE if len(rows) <= _LONG else _FINE_LONG
    sums = np.maximum(correlate(t * t, rows * rows), 1e-12 * float((rows * rows).max()))
    levels = -0.5 * np.log(sums / sums.max()) / resolution
    # In quarters of a step. A weight half a step behind the wanted one jumps to half a step ahead
    # of it, so that small waves do not change it back.
    quarters = np.rint(4 * levels).astype(np.int64)
    starts = np.flatnonzero(np.diff(quarters, prepend=quarters[0] - 1))
    chosen, current = [], int(quarters[0])
    for wanted in quarters[starts].tolist():
        if abs(wanted - current) > 2:
            current = wanted + 2 if wanted > current else wanted - 2
        chosen.append(current)
    pieces = np.repeat(chosen, np.diff([*starts.tolist(), len(rows)]))
    weights = least * np.exp((pieces - min(chosen)) * (resolution / 4))
    return np.rint(weights).astype(np.int64)


def _level(
    needs: ChainNeeds, x: float, rows: FloatArray, steps: int, least_row: float
) -> LevelWeights:
    """Level in some steps from given weights of the rows."""
    pair = build_toeplitz(len(rows), x)
    best: LevelWeights | None = None
    for step in range(steps):
        rows = np.maximum(rows / rows.max(), least_row)
        resolution = None if step >= steps - _FINE_STEPS else _COARSE
        levelled = _evaluate(needs, pair, rows, choose_columns(rows, pair.t, resolution=resolution))
        if best is None or levelled.cost < best.cost:
            best = levelled
        ratios = needs.compute_ratios(levelled.prefix_variances, levelled.cell_variances)
        rows = rows * _fill_gaps(ratios / ratios.max()) ** _POWER
    assert best is not None
    return best


def _evaluate(
    needs: ChainNeeds, pair: ToeplitzPair, rows: FloatArray, columns: IntArray
) -> LevelWeights:
    """Evaluate weights of rows and columns, and choose the weight of the total."""
    prefixes = upper_prefix_stds(pair.u, 0.0, rows, columns) ** 2
    cells = np.zeros(len(rows))
    if needs.cells.any():
        squares = convolve(pair.v**2, rows**-2.0)
        cells = np.maximum(squares, 0.0) / columns.astype(np.float64) ** 2
    weight, ratios = 0.0, needs.compute_ratios(prefixes, cells)
    if needs.total:
        alone = prefixes, cells
        covariances, _ = find_total_covariances(pair.u, 0.0, rows, columns)
        total = float(covariances[-1])
        for _ in range(_TOTAL_STEPS):
            weight = max(needs.total / float(ratios.max()) - 1 / total, 0.0)
            share = weight / (1 + weight * total)
            prefixes = alone[0] - share * covariances**2
            cells = alone[1] - share * np.diff(covariances, prepend=0.0) ** 2
            ratios = needs.compute_ratios(prefixes, cells)
    profile = correlate(pair.t**2, rows * rows) * columns.astype(np.float64) ** 2
    worst = max(float(ratios.max()), needs.total * float(prefixes[-1]))
    cost = math.sqrt((float(profile.max()) + weight) * worst)
    return LevelWeights(rows, columns, prefixes, cells, math.sqrt(weight), cost)


def _fill_gaps(ratios: FloatArray) -> FloatArray:
    """Give rows without queries the ratio of the next row that has one."""
    n = len(ratios)
    asked = np.where(ratios > 0, np.arange(n), n)
    following = np.minimum.accumulate(asked[::-1])[::-1]
    last = int(np.flatnonzero(ratios > 0)[-1])
    return np.asarray(ratios[np.minimum(following, last)])
