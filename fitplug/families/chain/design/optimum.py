"""The plan of a chain: dual weights, levelled weights, block scales, integers.

The scales of the blocks and the weights along the chain are found in turn, since each decides what
the other must meet.
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.families.base.design import Design, evaluate_at_targets
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.chain.design.convolutions import (
    ChainNeeds,
    LevelWeights,
    choose_cell_weight,
    level_chain,
    make_needs,
)
from fitplug.families.chain.design.nested import approximate_optimum
from fitplug.families.chain.design.optimal_covariance import ChainDuals, ascend_chain_dual
from fitplug.families.chain.design.rounding import CHAIN_MARGIN, round_chain, round_nested
from fitplug.families.chain.shape import ChainStructure
from fitplug.numeric import FloatArray
from fitplug.solve import Options

MOST_NESTED = 2**18
"""The most cells, of all blocks together, for which blocks have nested triangles of their own.
More take too much memory, and all blocks share one matrix of convolutions."""

_LONG, _NEAR = 2**15, 0.01
"""Chains of more cells, of all blocks together, take convolutions, which are found faster, if these
cost so little more than the bound, relatively."""

_GAP = 1.5e-3
"""How near the least cost the covariance is that nested triangles come close to."""

_TURNS = 2
"""How often scales and weights are found in turn, where there are several blocks."""

_SCALE_STEPS = 300
_MIXING = 1e-6


def design_chain(
    structure: ChainStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find a strategy of a chain and the dual weights that show how good it is.

    The arguments are those of `fitplug.families.designs.find_design`. Integers are as exact as
    64 bits allow, whatever the loss.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    strategy, duals = _find_chain(structure, objective, options)
    return Design.in_one_tier(
        strategy,
        Duals(duals.p, duals.q),
        bound_margin=CHAIN_MARGIN,
        iterations=duals.steps,
        ended="apart",
    )


def _find_chain(
    structure: ChainStructure, objective: Objective, options: Options
) -> tuple[IntegerStrategy[Structure], ChainDuals]:
    """Find nested triangles, or convolutions for long chains where these cost little more."""
    cells = structure.n * len(structure.blocks)
    if cells > _LONG:
        strategy, duals = _find_convolutions(structure, options)
        gap = evaluate_at_targets(strategy, objective) / duals.value - 1
        if gap <= _NEAR or cells > MOST_NESTED:
            return strategy, duals
    duals = ascend_chain_dual(structure, options.max_iterations, _GAP)
    if options.progress is not None:
        options.progress(duals.steps, _GAP)
    return round_nested(structure, approximate_optimum(structure, duals)), duals


def _find_convolutions(
    structure: ChainStructure, options: Options
) -> tuple[IntegerStrategy[Structure], ChainDuals]:
    """Find a strategy whose blocks share one matrix of convolutions."""
    duals = ascend_chain_dual(structure, options.max_iterations)
    x = choose_cell_weight(structure, duals)
    # Before any variances are known, a group needs what its dual weights say.
    shares = np.add.reduceat(duals.q / structure.targets, structure.row_starts[:-1])
    scales = _take_scales(structure, shares)
    for turn in range(1 if len(scales) == 1 else _TURNS):
        weights = level_chain(_gather_needs(structure, scales), x)
        if options.progress is not None:
            profile = float((structure.multiples_of_blocks / scales).sum())
            cost = weights.cost * math.sqrt(profile)
            options.progress(duals.steps + turn, cost / duals.value - 1)
        scales = _find_scales(structure, _find_largest_ratios(structure, weights))
    return round_chain(structure, weights, x, scales), duals


def _gather_needs(structure: ChainStructure, scales: FloatArray) -> ChainNeeds:
    """Gather the largest multiple over target of each prefix and cell, over all groups."""
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
    found = []
    for g, asked in enumerate(structure.chain_rows):
        prefixes, cells = weights.prefix_variances[asked.cells], weights.cell_variances[asked.cells]
        variances = np.where(asked.is_prefix, prefixes, cells)
        found.append(float((variances / structure.targets[starts[g] : starts[g + 1]]).max()))
    return np.array(found)


def _find_scales(structure: ChainStructure, ratios: FloatArray) -> FloatArray:
    """Find the scales s of the blocks that make the cost least.

    They make (sum_A w_A / s_A) max_t ratio_t (sum over A of t of multiple s_A) least, whose dual is
    the largest sum_A (w_A Q_A)^1/2 with Q_A = sum over t of q_t ratio_t multiple.

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
    """Take (w_A / Q_A)^1/2 for the groups' weights (groups,), shape (b,)."""
    groups, blocks = structure.subsets.pairs
    Q = np.bincount(
        blocks, weights[groups] * structure.subsets.variance_multiples, len(structure.blocks)
    )
    return np.asarray(np.sqrt(structure.multiples_of_blocks / Q))


def _sum_multiples(structure: ChainStructure, scales: FloatArray) -> FloatArray:
    """Sum the multiples of the blocks' scales in each group's variances, shape (groups,)."""
    groups, blocks = structure.subsets.pairs
    own = structure.subsets.variance_multiples * scales[blocks]
    sums = np.zeros(len(structure.workload.groups))
    np.add.at(sums, groups, own)
    return sums
