"""The optimum where a record moves along many attributes: moves are added as they are needed.

The dual has a weight for each move that is named (`fitplug.families.blocks.design.pairs`). It is
solved for some moves. Then costly moves of its covariance are searched for, and join the others
until none costs more than those do. The lower bound of each of these solves is one for all moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fitplug.families.base.design import PRODUCT_BOUND_MARGIN, Design
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.pairs import MovedBlocks
from fitplug.families.blocks.design.rounding import round_blocks
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.neighbours import LARGEST_SUM, MoveCosts, upper_costliest_move
from fitplug.numeric import BoolArray, FloatArray, IntArray
from fitplug.solve import Options, explain_end_of_bounds

_ROUNDS = 40
"""The most times that moves are added."""

_COARSE = 0.02
"""The gap of the first solve. Those after it are solved to a part of the gap that is left."""

_PARTS = (1.0, 0.5, 0.2)
"""The parts of a new precision in the mixtures with the best one that are tried."""

_NEW_SHARE = 0.1
"""The part of all weight that new moves begin with."""

_LEAST_SHARE = 1e-7
"""Moves of less weight than this are left out again."""

_MOST_ENTRIES = 40_000_000
"""The most pairs of a block and a move."""

_DRAWN = 12
"""How many starts of a search are drawn, by a generator with a fixed seed."""


def design_moves(
    structure: MoveStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets, for moves of a record.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    blocks = MovedBlocks.build(structure)
    structure = replace(structure, named=_cover_blocks(structure))
    rng = np.random.default_rng(0)
    start: tuple[FloatArray, FloatArray] | None = None
    lower, upper, iterations, tolerance = 0.0, math.inf, 0, _COARSE
    best = np.zeros(0)
    stopped = False
    for _ in range(_ROUNDS):
        own = replace(
            options,
            tolerance=max(tolerance, options.tolerance / 2),
            max_iterations=max(options.max_iterations - iterations, 1),
            progress=None,
        )
        found = blocks.solve(structure.multiples, own, start)
        iterations += found.iterations
        if found.lower > lower:
            lower, best_weights = found.lower, (structure, found)
        costly: list[BoolArray] = []
        next_best = best
        # All precisions between the new one and the best one meet the targets as well.
        for part in _PARTS if len(best) else (1.0,):
            precisions = found.whiteners[0] ** 2
            if part < 1:
                precisions = part * precisions + (1 - part) * best
            costs, unit = _weigh_sets(structure, precisions)
            starts = [*costs.list_starts(), *_draw_starts(costs.size, rng)]
            starts += list(structure.moves[np.argsort(-found.p)[:_DRAWN]].astype(bool))
            moves = costs.search(starts)
            reached = costs.evaluate(moves) * unit
            costly += list(moves[reached > found.lower**2 * (1 + options.tolerance / 4)])
            if math.sqrt(reached.max()) < upper:
                upper, next_best = math.sqrt(reached.max()), precisions
        best = next_best
        gap = upper / lower - 1
        stopped = options.progress is not None and options.progress(iterations, gap) is True
        if gap <= options.tolerance or stopped or iterations >= options.max_iterations:
            break
        kept = np.flatnonzero(found.p >= _LEAST_SHARE * found.p.max())
        new = _leave_out(costly, structure.moves[kept])
        room = _MOST_ENTRIES // len(structure.noisy_blocks) - len(kept)
        new = new[: max(room, 1)]
        share = _NEW_SHARE if len(new) else 0.0
        old = found.p[kept] / found.p[kept].sum() * (1 - share)
        start = np.concatenate([old, np.full(len(new), share / max(len(new), 1))]), found.q
        structure = replace(structure, named=np.concatenate([structure.moves[kept], new]))
        tolerance = min(tolerance, gap / 4) if len(new) else tolerance / 4
    costs, unit = _weigh_sets(structure, best)
    bound = math.sqrt(upper_costliest_move(costs, costs.search(costs.list_starts())) * unit)
    structure, found = best_weights
    kept = np.flatnonzero(found.p > 0)
    structure = replace(structure, named=structure.moves[kept])
    real_blocks = [blocks.scale_real(np.sqrt(best))]
    return Design.in_one_tier(
        round_blocks(structure, real_blocks, objective=objective, upper=bound, loss=loss),
        Duals(found.p[kept], blocks.spread(found).q),
        bound_margin=PRODUCT_BOUND_MARGIN,
        iterations=iterations,
        ended=explain_end_of_bounds(bound, upper, lower, options, stopped),
    )


def _cover_blocks(structure: MoveStructure) -> IntArray:
    """List the first moves, and those along one attribute if blocks have no cost otherwise."""
    moves = structure.moves
    if (structure.multiples.max(axis=1) > 0).all():
        return moves
    return np.concatenate([moves, np.eye(len(structure.free), dtype=np.int64)])


def _weigh_sets(structure: MoveStructure, precisions: FloatArray) -> tuple[MoveCosts, float]:
    """Compute the costs of moves at precisions of the noisy blocks, and the unit they are in."""
    members, index = structure.sets
    exact = structure.subsets.profile_multiples[structure.noisy_blocks] * precisions
    weights = np.bincount(index, exact, minlength=len(members))
    unit = float(weights.sum()) / (LARGEST_SUM / 2)
    return MoveCosts(structure.ratios, members, np.ceil(weights / unit)), unit


def _draw_starts(m: int, rng: np.random.Generator) -> list[BoolArray]:
    """Draw moves along about a tenth to all of the attributes, to begin searches from."""
    parts = np.linspace(0.1, 1.0, _DRAWN)
    return [rng.random(m) < part for part in parts]


def _leave_out(found: Sequence[BoolArray], known: IntArray) -> IntArray:
    """Join moves without those that are known, shape (v, m)."""
    seen = {move.astype(bool).tobytes() for move in known}
    new = {move.tobytes(): move for move in found if move.tobytes() not in seen}
    return np.array(list(new.values()), dtype=np.int64).reshape(-1, known.shape[1])
