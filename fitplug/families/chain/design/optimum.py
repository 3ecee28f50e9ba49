"""The design of a chain: dual weights, levelled weights, block scales, integers.

The scales of the blocks and the weights along the chain are found alternately, since each
determines the needs of the other.

The coefficient of an answer is a product r_j t_(j - i) m_i M_A of integers, times an entry of the
contrasts of A. These factors share the 64 bits of an answer. The cost of rounding is part of the
plan's gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fitplug.errors import DesignError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.basis import Basis
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.family import (
    LEAST_RECORDS,
    Design,
    Duals,
    add_claim_margins,
    build_strategy,
    evaluate_at_targets,
)
from fitplug.families.base.mechanism import SATURATION
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.chain.design.convolutions import (
    ChainNeeds,
    LevelWeights,
    build_toeplitz,
    choose_cell_weight,
    choose_columns,
    level_chain,
    make_needs,
)
from fitplug.families.chain.design.nested import approximate_optimum, ascend_chain_dual
from fitplug.families.chain.shape.chains import ChainPersonStructure, ChainStructure
from fitplug.families.chain.strategy.chains import NestedChain, place_chain
from fitplug.families.chain.strategy.convolutions import ChainMatrix
from fitplug.families.chain.strategy.nested_triangles import (
    NestedTriangles,
    keep_cells,
    upper_entry,
)
from fitplug.families.chain.strategy.period_chains import PeriodChain
from fitplug.numeric import FloatArray, IntArray
from fitplug.solve import Options, Solution

CHAIN_MARGIN = 1e-9
"""The relative margin of claimed variances above, and claimed bounds below, the proven ones:
another machine may round transforms and sweeps differently."""

_LARGEST = (
    (512, 1024, 32),
    (256, 512, 32),
    (256, 512, 16),
    (128, 256, 16),
    (128, 256, 8),
    (64, 128, 8),
    (64, 128, 4),
    (32, 64, 2),
)
"""The largest weight of a row, the least weight of a column, and the largest value of the least
multiple of a block. A single block has the multiple 1."""

_ENOUGH = 1000
"""A single block takes the first of these for which t_0 is at least this."""

_NEEDED = 64
"""The least t_0."""

_NEGLIGIBLE = 0.01
"""Blocks that cost less than this share of the costliest may have any multiple."""

_ROUNDED_ROOM = 0.999
"""The share of the room to use, since rounding may enlarge entries."""

_NO_ROOM = (
    "tables of so many cells need integers of more than 64 bits; ask for tables of fewer cells"
)

_TRIED = 512
"""The number of multiples of the blocks to try."""


def round_chain(
    structure: ChainStructure, weights: LevelWeights, x: float, scales: FloatArray
) -> IntegerStrategy[Structure]:
    """Round a strategy of a chain to integers.

    Args:
        structure: The structure of the workload.
        weights: The weights of rows and columns.
        x: The parameter of T; see `fitplug.families.chain.design.convolutions`.
        scales: The variance of each block, shape (b,), up to a common factor.

    Returns:
        A strategy with room for `LEAST_RECORDS` records.

    Raises:
        DesignError: If there is none.
    """
    entries = [float(build_contrasts(n).largest_entry) for n in structure.sizes]
    entries[structure.chain_position] = 1.0
    factors = np.append(entries, 1.0)[structure.blocks].prod(axis=1)
    pair = build_toeplitz(structure.n, x)
    best, least_cost = None, math.inf
    for largest_row, least_column, largest_multiple in _LARGEST:
        multiples = _round_scales(structure, scales, largest_multiple)
        room = SATURATION / LEAST_RECORDS / float((factors * multiples).max())
        rows = np.maximum(np.rint(weights.rows / weights.rows.max() * largest_row), 1.0)
        columns = choose_columns(rows, pair.t, least=least_column)
        later = np.maximum.accumulate(rows[::-1])[::-1]
        # The total's weight is relative to the least column weight and to rows of at most 1.
        total = weights.total * largest_row * least_column / float(weights.columns.min())
        most = math.floor(room / max(float((later * columns).max()), total))
        if most < _NEEDED:
            continue
        matrix = ChainMatrix(
            row_weights=rows.astype(np.int64),
            sequence=np.rint(pair.t * most).astype(np.int64),
            column_weights=columns,
            total_weight=np.array([round(total * most)], dtype=np.int64),
        )
        basis = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
        blocks = BlockSet(
            np.arange(len(multiples), dtype=np.int64), basis, multiples[:, None, None]
        )
        strategy = build_strategy(structure, place_chain(structure, matrix), (blocks,))
        cost = strategy.sensitivity**2 * float((strategy.unit_variances / structure.targets).max())
        if cost < least_cost:
            best, least_cost = strategy, cost
        if len(multiples) == 1 and most >= _ENOUGH:
            break
    if best is None:
        raise DesignError(_NO_ROOM)
    return add_claim_margins(best, CHAIN_MARGIN)


def gather_nested(structure: ChainStructure, blocks: Sequence[NestedTriangles]) -> AttributeMatrix:
    """Gather the rounded nested triangles of all blocks, which have one shape."""
    return NestedChain(
        np.array([structure.n], dtype=np.int64),
        np.stack([A.triangles for A in blocks]),
        np.stack([A.sums for A in blocks]),
        np.stack([A.weights for A in blocks]),
        structure.grounded.astype(np.int64),
    )


def round_nested(
    structure: ChainStructure,
    matrices: Sequence[NestedTriangles],
    multiples: IntArray | None = None,
    gather: Callable[[Any, Sequence[NestedTriangles]], AttributeMatrix] = gather_nested,
    totals: FloatArray | None = None,
) -> IntegerStrategy[Structure]:
    """Round nested triangles to integers.

    Args:
        structure: The structure of the workload.
        matrices: The nested triangles of each block, for the noise on the block; their sums are
            integers.
        multiples: The multiple of each block where there are periods, shape (b,).
        gather: Makes the matrix of the chain from the integers of its blocks.
        totals: The further row of the period attribute's block, shape (n,).

    Returns:
        A strategy with room for `LEAST_RECORDS` records.

    Raises:
        DesignError: If there is none.
    """
    entries = [float(build_contrasts(n).largest_entry) for n in structure.sizes]
    precisions = [float(build_contrasts(n).precision) for n in structure.sizes]
    entries[structure.chain_position] = precisions[structure.chain_position] = 1.0
    if isinstance(structure, ChainPersonStructure):
        # The multiples take care of the periods, so that partners are rounded equally.
        precisions[structure.block_attributes.index(structure.periods.name)] = 1.0
    blocks = structure.blocks[structure.noisy_blocks]
    multiples = np.ones(len(blocks), dtype=np.int64) if multiples is None else multiples
    factors, divisors = (np.append(x, 1.0)[blocks].prod(axis=1) for x in (entries, precisions))
    factors, divisors = factors * multiples, divisors**0.5
    counts = structure.measured_cells
    matrices = [keep_cells(A, n) for A, n in zip(matrices, counts, strict=True)]
    largest = max(
        factor / divisor * upper_entry(A)
        for A, factor, divisor in zip(matrices, factors, divisors, strict=True)
    )
    if totals is not None:
        assert isinstance(structure, ChainPersonStructure)
        partner = int(structure.periods.partners[0])
        largest = max(largest, float(factors[partner] * totals.max()))
    scale = _ROUNDED_ROOM * SATURATION / LEAST_RECORDS / largest
    if scale * max(float(A.triangles.max()) for A in matrices) < _NEEDED:
        raise DesignError(_NO_ROOM)
    rounded = []
    for A, divisor, n in zip(matrices, divisors, counts, strict=True):
        b = A.triangles.shape[1]
        triangles = np.rint(A.triangles * (scale / divisor))
        rows = triangles.reshape(A.cells, b)
        at = np.arange(A.cells)
        rows[at, at % b] = np.where(at < n, np.maximum(rows[at, at % b], 1.0), 1.0)
        weights = np.rint(A.weights * (scale / divisor))
        rounded.append(NestedTriangles(triangles, A.sums, weights).astype(np.int64))
    matrix = gather(structure, rounded)
    if totals is not None:
        assert isinstance(matrix, NestedChain)
        rows = np.zeros((len(blocks), structure.n), dtype=np.int64)
        rows[partner] = np.rint(totals * scale)
        matrix = PeriodChain(
            matrix.cells,
            matrix.triangles,
            matrix.sums,
            matrix.weights,
            matrix.grounded,
            totals=rows,
        )
    basis = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
    block_set = BlockSet(np.arange(len(blocks), dtype=np.int64), basis, multiples[:, None, None])
    strategy = build_strategy(structure, place_chain(structure, matrix), (block_set,))
    return add_claim_margins(strategy, CHAIN_MARGIN)


def _round_scales(structure: ChainStructure, scales: FloatArray, largest: int) -> IntArray:
    """Round a multiple of (scale * precision of contrasts)^-1/2 of each block to integers, (b,)."""
    precisions = [float(build_contrasts(n).precision) for n in structure.sizes]
    precisions[structure.chain_position] = 1.0
    real = (np.append(precisions, 1.0)[structure.blocks].prod(axis=1) * scales) ** -0.5
    if len(real) == 1:
        return np.ones(1, dtype=np.int64)
    spent = structure.multiples_of_blocks / scales
    counts = spent >= _NEGLIGIBLE * spent.max()
    wanted = np.linspace(largest / 2, largest, _TRIED)[:, None] * (real / real[counts].min())
    # A block's share of the cost and of the variances changes by the square of its rounding.
    off = np.abs(np.log(np.maximum(np.rint(wanted), 1.0) / wanted))[:, counts].max(axis=1)
    best = wanted[int(off.argmin())]
    return np.maximum(np.rint(best), 1.0).astype(np.int64)


MOST_NESTED = 2**18
"""The most cells of all blocks together for which each block has its own nested triangles. More
would take too much memory; all blocks then share one matrix of convolutions."""

_LONG, _NEAR = 2**15, 0.01
"""Above this number of cells in all blocks together, convolutions, which are found faster, are used
if their gap is at most 1%."""

_GAP = 1.5e-3
"""The gap of the covariance that nested triangles approximate."""

_LEAST_GAP = 3e-4
"""The gap for convolutions, which are compared with the bound of the dual weights."""

_TURNS = 2
"""The number of alternations between scales and weights, if there are several blocks."""

_SCALE_STEPS = 300
_MIXING = 1e-6


def design_chain(
    structure: ChainStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find a strategy of a chain, and dual weights that prove how good it is.

    The arguments are those of `fitplug.families.designs.find_design`. The integers are as exact as
    64 bits allow; `loss` is not used.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    strategy, duals = _find_chain(structure, objective, options)
    return Design.in_one_tier(
        strategy,
        Duals(duals.p, duals.q),
        bound_margin=CHAIN_MARGIN,
        iterations=duals.iterations,
        ended="apart",
    )


def _find_chain(
    structure: ChainStructure, objective: Objective, options: Options
) -> tuple[IntegerStrategy[Structure], Solution]:
    """Find nested triangles, or convolutions for long chains where these cost little more."""
    cells = structure.n * len(structure.blocks)
    if cells > _LONG:
        strategy, duals = _find_convolutions(structure, options)
        gap = evaluate_at_targets(strategy, objective) / duals.lower - 1
        if gap <= _NEAR or cells > MOST_NESTED:
            return strategy, duals
    duals = ascend_chain_dual(structure, options.max_iterations, _GAP)
    if options.progress is not None:
        options.progress(duals.iterations, _GAP)
    return round_nested(structure, approximate_optimum(structure, duals)), duals


def _find_convolutions(
    structure: ChainStructure, options: Options
) -> tuple[IntegerStrategy[Structure], Solution]:
    """Find a strategy whose blocks share one matrix of convolutions."""
    duals = ascend_chain_dual(structure, options.max_iterations, _LEAST_GAP)
    x = choose_cell_weight(structure, duals)
    # Before any variances are known, the dual weights stand for the groups' needs.
    shares = np.add.reduceat(duals.q / structure.targets, structure.row_starts[:-1])
    scales = _take_scales(structure, shares)
    for turn in range(1 if len(scales) == 1 else _TURNS):
        weights, _ = level_chain(_gather_needs(structure, scales), x)
        if options.progress is not None:
            profile = float((structure.multiples_of_blocks / scales).sum())
            cost = weights.cost * math.sqrt(profile)
            options.progress(duals.iterations + turn, cost / duals.lower - 1)
        scales = _find_scales(structure, _find_largest_ratios(structure, weights))
    return round_chain(structure, weights, x, scales), duals


def _gather_needs(structure: ChainStructure, scales: FloatArray) -> ChainNeeds:
    """Gather, for each prefix and cell, the largest multiple over target among all groups."""
    prefixes, cells = np.zeros(structure.n), np.zeros(structure.n)
    multiples = _sum_multiples(structure, scales)
    starts = structure.row_starts
    for g, asked in enumerate(structure.chain_rows):
        needs = multiples[g] / structure.targets[starts[g] : starts[g + 1]]
        for total, mine in ((prefixes, asked.is_prefix), (cells, ~asked.is_prefix)):
            np.maximum.at(total, asked.cells[mine], needs[mine])
    return make_needs(prefixes, cells)


def _find_largest_ratios(structure: ChainStructure, weights: LevelWeights) -> FloatArray:
    """Find each group's largest variance along the chain over its target, shape (groups,)."""
    starts = structure.row_starts
    ratios = []
    for g, asked in enumerate(structure.chain_rows):
        prefixes, cells = weights.prefix_variances[asked.cells], weights.cell_variances[asked.cells]
        variances = np.where(asked.is_prefix, prefixes, cells)
        ratios.append(float((variances / structure.targets[starts[g] : starts[g + 1]]).max()))
    return np.array(ratios)


def _find_scales(structure: ChainStructure, ratios: FloatArray) -> FloatArray:
    """Find the scales s of the blocks that minimise the cost.

    They minimise (sum_A w_A / s_A) max_t ratio_t (sum over A of t of multiple s_A). The dual
    maximises sum_A (w_A Q_A)^1/2 with Q_A = sum over t of q_t ratio_t multiple.

    Args:
        structure: The structure.
        ratios: The largest ratio of each group, shape (groups,).

    Returns:
        Shape (b,).
    """
    q = np.full(len(ratios), 1 / len(ratios))
    for _ in range(_SCALE_STEPS):
        scales = _take_scales(structure, q * ratios)
        h = ratios * _sum_multiples(structure, scales)
        q = q * h / float(q @ h)
        q = (q + _MIXING / len(q)) / (1 + _MIXING)
    return _take_scales(structure, q * ratios)


def _take_scales(structure: ChainStructure, weights: FloatArray) -> FloatArray:
    """Compute (w_A / Q_A)^1/2 for given weights of the groups (groups,), shape (b,)."""
    groups, blocks = structure.subsets.pairs
    Q = np.bincount(
        blocks, weights[groups] * structure.subsets.variance_multiples, len(structure.blocks)
    )
    return np.asarray(np.sqrt(structure.multiples_of_blocks / Q))


def _sum_multiples(structure: ChainStructure, scales: FloatArray) -> FloatArray:
    """Sum multiple s_A over the blocks A of each group, shape (groups,)."""
    groups, blocks = structure.subsets.pairs
    variances = structure.subsets.variance_multiples * scales[blocks]
    sums = np.zeros(len(structure.workload.groups))
    np.add.at(sums, groups, variances)
    return sums
