"""The optimum where a record moves along attributes: all moves have weights, or only some.

The dual has a weight for each named move, and P_A = sum_D p_D c_A(D) in block A
(docs/theory/units.md, (U9)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from fitplug.families.base.family import PRODUCT_BOUND_MARGIN, Design
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.columns import ColumnProblem, design_columns
from fitplug.families.blocks.design.optimum import round_one_tier
from fitplug.families.blocks.design.rounding import RealBlocks, share_basis
from fitplug.families.blocks.shape.moves import MoveStructure, list_first_moves, name_moves
from fitplug.neighbours import (
    LARGEST_SUM,
    MoveCosts,
    RecordSets,
    upper_costliest_move,
)
from fitplug.numeric import FloatArray, IndexArray
from fitplug.solve import (
    DualValue,
    Options,
    Problem,
    Simplex,
    Solution,
    evaluate_numbers,
    solve_dual,
)

_LEAST_SHARE = 1e-7
"""Moves with less than this share of the largest weight are dropped again."""

_MOST_ENTRIES = 40_000_000
"""The most pairs of a block and a move."""

_DRAWN = 12
"""The number of random starts of a search for moves; the generator has a fixed seed."""


@dataclass(frozen=True, eq=False)
class _CostsInUnits:
    """The costs of moves, in a unit that makes all weights integers."""

    costs: MoveCosts
    unit: float

    def compute_costs(self, sets: RecordSets) -> FloatArray:
        return self.costs.evaluate(sets.labels[:, 0].astype(np.bool_)) * self.unit


@dataclass(frozen=True, eq=False)
class MoveProblem(ColumnProblem[MoveStructure, _CostsInUnits]):
    """The problem for moves of a record: blocks that are numbers, and queries with noise.

    Attributes:
        rows: The queries that public totals do not answer.
        incidence: The matrix that maps the variances of the noisy blocks to the queries' variances
            over targets.
        generator: Draws the random starts of searches.
    """

    structure: MoveStructure
    rows: IndexArray
    incidence: csr_array
    generator: np.random.Generator

    bound_margin, least_share = PRODUCT_BOUND_MARGIN, _LEAST_SHARE

    @classmethod
    def select(cls, structure: MoveStructure) -> MoveProblem:
        """Select the noisy blocks of a structure, and the queries to which they contribute."""
        of_targets = csr_array(structure.incidence / structure.targets[:, None])
        incidence = of_targets[:, structure.noisy_blocks]
        rows = np.flatnonzero(incidence.sum(axis=1))
        return cls(structure, rows, csr_array(incidence[rows]), np.random.default_rng(0))

    @property
    def most(self) -> int:
        return _MOST_ENTRIES // len(self.structure.noisy_blocks)

    def solve(
        self,
        sets: RecordSets,
        options: Options,
        start: tuple[FloatArray, FloatArray] | None,
        simplices: Sequence[Simplex] | None = None,
    ) -> Solution:
        if start is not None:
            start = start[0], start[1][self.rows]
        multiples = replace(self.structure, named=sets).multiples
        return self.solve_weights(multiples, options, start, simplices)

    def solve_weights(
        self,
        multiples: FloatArray,
        options: Options,
        start: tuple[FloatArray, FloatArray] | None = None,
        simplices: Sequence[Simplex] | None = None,
    ) -> Solution:
        """Solve the dual with weights on given moves.

        Args:
            multiples: c_A(D) of each noisy block and each move, shape (blocks, v).
            options: How to solve.
            start: Positive weights of the moves and of `rows` to begin from.

        Returns:
            The solution. Queries that public totals answer have weight 0.

        Raises:
            DesignError: If floating point cannot evaluate the dual.
        """

        def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
            return evaluate_numbers(multiples, self.incidence, p, q)

        solution = solve_dual(
            Problem(multiples.shape[1], len(self.rows), ()),
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            progress=options.progress,
            simplices=simplices,
            start=start,
            evaluate=evaluate,
        )
        q = np.zeros(self.structure.rows)
        q[self.rows] = solution.q
        return replace(solution, q=q)

    def mix_precisions(
        self, first: Sequence[FloatArray], second: Sequence[FloatArray], part: float
    ) -> tuple[FloatArray, ...]:
        return (np.sqrt(part * first[0] ** 2 + (1 - part) * second[0] ** 2),)

    def measure(self, whiteners: Sequence[FloatArray]) -> _CostsInUnits:
        structure, (members, index) = self.structure, self.structure.sets
        of_blocks = structure.subsets.profile_multiples[structure.noisy_blocks] * whiteners[0] ** 2
        weights = np.bincount(index, of_blocks, minlength=len(members))
        unit = float(weights.sum()) / (LARGEST_SUM / 2)
        costs = MoveCosts(structure.ratios, members, np.ceil(weights / unit))
        return _CostsInUnits(costs, unit)

    def find_costly(
        self, costs: _CostsInUnits, sets: RecordSets, p: FloatArray, upper: float
    ) -> RecordSets:
        # Some searches start from random moves along a tenth to all of the attributes.
        parts, m = np.linspace(0.1, 1.0, _DRAWN), len(self.structure.free)
        drawn = [self.generator.random(m) < part for part in parts]
        starts = [*costs.costs.list_starts(), *drawn]
        starts += list(sets.take(np.argsort(-p)[:_DRAWN]).labels[:, 0].astype(np.bool_))
        return name_moves(costs.costs.search(starts))

    def upper_cost(self, costs: _CostsInUnits) -> tuple[float, RecordSets | None]:
        moves = costs.costs.search(costs.costs.list_starts())
        return upper_costliest_move(costs.costs, moves) * costs.unit, None

    def make_real_blocks(
        self, structure: MoveStructure, whiteners: Sequence[FloatArray], options: Options
    ) -> list[RealBlocks]:
        return [share_basis(structure, whiteners[0])]

    def list_first(self) -> RecordSets:
        """List the first moves; add moves along single attributes if some block has no cost."""
        m = len(self.structure.free)
        sets = name_moves(list_first_moves(m))
        if (replace(self.structure, named=sets).multiples.max(axis=1) > 0).all():
            return sets
        return sets.append(name_moves(np.eye(m, dtype=np.int64)))


def design_moves(
    structure: MoveStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets, for moves of a record.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    problem = MoveProblem.select(structure)
    if not structure.fits:
        return design_columns(problem, objective, options, loss)
    solution = problem.solve_weights(structure.multiples, options)
    real_blocks = [share_basis(structure, solution.whiteners[0])]
    return round_one_tier(structure, objective, real_blocks, solution, options, loss)
