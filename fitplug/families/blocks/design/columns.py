"""The optimum where neighbours differ in too many ways to list: differences are added as needed.

The dual has a weight p_v for each difference v that is named: persons with several records
(`fitplug.neighbours.persons`), or moves of a record along some of many attributes
(`fitplug.neighbours.move_costs`). There may be more differences than can be listed, but the optimum
has positive weights on a few. So the problem is solved with some differences. Then costly ones of
its covariance are found, which join the others until none of them costs more than those do. The
lower bound of each of these solves is one for all differences.

See docs/theory/persons.md and docs/theory/units.md.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
from scipy.linalg import cholesky

from fitplug.families.base.family import Design, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.rounding import RealBlocks, round_blocks
from fitplug.families.blocks.shape.matrices import PersonStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.neighbours import (
    RecordSets,
)
from fitplug.numeric import AnyArray, FloatArray
from fitplug.solve import (
    Options,
    Simplex,
    Solution,
    explain_end_of_bounds,
)

_ROUNDS = 120
"""The most times that differences are added."""

_COARSE = 0.02
"""The gap of the first solve. Those after it are solved to a part of the gap that is left."""

_TARGET = 0.99
"""The part of the tolerance that is aimed at: bounds on the cost may be rounded up slightly."""

_ROUNDING = 1e-9
"""By how much a cost is larger than one that was found, relatively, if it is not rounding."""

_CHOOSING, _CHOICES = 100, 4
"""The most iterations, and the most solves, that each share of the first differences is given."""

_NEW_SHARE = 0.1
"""The part of all weight that new differences begin with."""


class Costs(Protocol):
    """What differences cost at some precisions of the blocks."""

    def compute_costs(self, sets: RecordSets) -> AnyArray:
        """Compute the costs of differences, shape (v,)."""


C = TypeVar("C", bound=Costs)
N = TypeVar("N", MoveStructure, PairStructure, PersonStructure)


class ColumnProblem(ABC, Generic[N, C]):
    """A design with dual weights on differences that are named.

    Attributes:
        bound_margin: How far below the proven lower bound a plan's claim is, relatively.
        least_share: Differences of less weight than this part of the largest are left out again.
        parts: The parts of a new precision in the mixtures with the best one that are tried.
        work_per_iteration: The most floating-point operations, on average over the iterations that
            are allowed; searches count.
        first_shares: Shares of all weight that the first differences are given at the end, one
            after another, while the bound on the cost is above the largest cost that was found.
            Where few differences have weight, many precisions are optimal, and most of them allow
            no tight bound on the costs of other differences. The wanted one makes the first
            differences cost least. Without it, prefixes of 60 days with a row a day cost 47%
            more rho.
        structure: The structure.
    """

    bound_margin: ClassVar[float]
    least_share: ClassVar[float] = 0.0
    parts: ClassVar[tuple[float, ...]] = (1.0, 0.5, 0.2)
    work_per_iteration: ClassVar[float] = math.inf
    first_shares: ClassVar[tuple[float, ...]] = ()
    structure: N

    @property
    def most(self) -> int:
        """The most differences that have weights."""
        return 2**62

    @property
    def search_work(self) -> float:
        """About the floating-point operations of `find_costly`."""
        return 0.0

    def estimate_work(self, sets: RecordSets) -> float:
        """Estimate the floating-point operations of an iteration with weights on some differences.

        They are 0 where they are not limited.
        """
        return 0.0

    @abstractmethod
    def list_first(self) -> RecordSets:
        """List the differences to begin with."""

    @abstractmethod
    def solve(
        self,
        sets: RecordSets,
        options: Options,
        start: tuple[FloatArray, FloatArray] | None,
        simplices: Sequence[Simplex] | None = None,
    ) -> Solution:
        """Solve the dual with weights on some differences, as `solve_dual` does."""

    def mix_precisions(
        self, first: Sequence[FloatArray], second: Sequence[FloatArray], part: float
    ) -> tuple[FloatArray, ...]:
        """Compute the whiteners of precisions between two others, with a part < 1 of the first."""
        return tuple(
            cholesky(part * a.T @ a + (1 - part) * b.T @ b)
            for a, b in zip(first, second, strict=True)
        )

    @abstractmethod
    def measure(self, whiteners: Sequence[FloatArray]) -> C:
        """Compute what differences cost."""

    @abstractmethod
    def find_costly(self, costs: C, sets: RecordSets, p: FloatArray, upper: float) -> RecordSets:
        """Find costly differences other than those that are named.

        Args:
            costs: What differences cost.
            sets: The differences that are named.
            p: Their weights.
            upper: A search may take long if no difference costs more than the square of this.
        """

    @abstractmethod
    def upper_cost(self, costs: C) -> tuple[float, RecordSets | None]:
        """Bound the cost of all differences from above, and return costly ones that are met."""

    @abstractmethod
    def make_real_blocks(
        self, structure: N, whiteners: Sequence[FloatArray], options: Options
    ) -> Sequence[RealBlocks]:
        """Make the real strategies, with their bases, for a structure that names differences."""


def design_columns(
    problem: ColumnProblem[N, C], objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets, for differences that are too many to list.

    The arguments after the first are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    start: tuple[FloatArray, FloatArray] | None = None
    lower, upper, iterations, tolerance, work = 0.0, math.inf, 0, _COARSE, 0.0
    best: tuple[FloatArray, ...] = ()
    most_work = problem.work_per_iteration * options.max_iterations
    sets = problem.list_first()
    for _ in range(_ROUNDS):
        most, each = options.max_iterations - iterations, problem.estimate_work(sets)
        if each:
            most = min(most, int((most_work - work) / each))
        limits = replace(
            options,
            tolerance=max(tolerance, options.tolerance / 2),
            max_iterations=max(most, 1),
            progress=None,
        )
        solution = problem.solve(sets, limits, start)
        iterations += solution.iterations
        work += each * solution.iterations + problem.search_work
        if solution.lower > lower:
            lower, best_weights = solution.lower, (sets, solution.p, solution.q)
        violated = []
        # All covariances between the new one and the best one meet the targets as well.
        for part in problem.parts if best else (1.0,):
            whiteners = solution.whiteners
            if part < 1:
                whiteners = problem.mix_precisions(whiteners, best, part)
            costs = problem.measure(whiteners)
            costly = problem.find_costly(costs, sets, solution.p, upper)
            squares = costs.compute_costs(costly)
            # A search may miss a difference that is known.
            reached = math.sqrt(max(squares.max(), costs.compute_costs(sets).max()))
            violated.append(costly.take(squares > solution.lower**2 * (1 + options.tolerance / 4)))
            if reached < upper:
                upper, next_best = reached, whiteners
        best, largest = next_best, None
        if upper <= lower * (1 + _TARGET * options.tolerance):
            costs = problem.measure(best)
            largest, missed = problem.upper_cost(costs)
            if missed is not None:
                squares = costs.compute_costs(missed)
                violated.append(missed.take(squares > upper**2 * (1 + _ROUNDING)))
                upper = max(upper, math.sqrt(squares.max()))
        gap = upper / lower - 1
        is_stopped = options.progress is not None and options.progress(iterations, gap) is True
        is_close = gap <= _TARGET * options.tolerance
        is_exhausted = iterations >= options.max_iterations or work >= most_work
        if is_close or is_stopped or is_exhausted:
            break
        weighted = np.flatnonzero(solution.p >= problem.least_share * solution.p.max())
        sets, p = sets.take(weighted), solution.p[weighted]
        new = functools.reduce(RecordSets.append, violated).leave_out(sets)
        new = new.take(np.arange(min(len(new), max(problem.most - len(sets), 1))))
        share = _NEW_SHARE if len(new) else 0.0
        p = p / p.sum() * (1 - share)
        start = np.concatenate([p, np.full(len(new), share / max(len(new), 1))]), solution.q
        sets = sets.append(new)
        tolerance = min(tolerance, gap / 4) if len(new) else tolerance / 4
    if largest is None:
        largest, _ = problem.upper_cost(problem.measure(best))
    best, largest = _choose_provable(problem, best_weights, best, largest, upper, options)
    sets, p, q = best_weights
    bound = math.sqrt(largest)
    weighted = np.flatnonzero(p > 0)
    structure = replace(problem.structure, named=sets.take(weighted))
    real_blocks = problem.make_real_blocks(structure, best, options)
    return Design.in_one_tier(
        round_blocks(structure, real_blocks, objective=objective, upper=bound, loss=loss),
        Duals(p[weighted], q),
        bound_margin=problem.bound_margin,
        iterations=iterations,
        ended=explain_end_of_bounds(bound, upper, lower, options, is_stopped),
    )


def _choose_provable(
    problem: ColumnProblem[N, C],
    weights: tuple[RecordSets, FloatArray, FloatArray],
    whiteners: tuple[FloatArray, ...],
    largest: float,
    upper: float,
    options: Options,
) -> tuple[tuple[FloatArray, ...], float]:
    """Choose precisions whose cost can be bounded, by shares of weight of the first differences.

    With such a share s, the dual's optimum minimises (1 - s) times the largest cost of all
    differences plus s times that of the first ones (D19).

    Args:
        problem: The problem.
        weights: The differences that are named, and the best dual weights of them and of queries.
        whiteners: The best ones.
        largest: The bound on the cost of all differences at these.
        upper: The square root of the largest cost that was found there.
        options: How to solve.

    Returns:
        Whiteners, and the bound on the cost of all differences.
    """
    first = problem.list_first()
    limits = replace(
        options, tolerance=options.tolerance / 10, max_iterations=_CHOOSING, progress=None
    )
    for share in problem.first_shares:
        sets, p, q = weights
        weighted = np.flatnonzero(p > 0)
        sets, p, p_first = sets.take(weighted), p[weighted], np.ones(len(first))
        for _ in range(_CHOICES):
            if largest <= (upper * (1 + options.tolerance / 4)) ** 2:
                return whiteners, largest
            joined = sets.append(first)
            is_named = np.arange(len(joined)) < len(sets)
            parts = Simplex(is_named, 1 - share), Simplex(~is_named, share)
            start = np.concatenate([p, p_first]), q
            solution = problem.solve(joined, limits, start, parts)
            costs = problem.measure(solution.whiteners)
            costly = problem.find_costly(costs, joined, solution.p, upper)
            is_costlier = costs.compute_costs(costly) > (upper * (1 + options.tolerance / 4)) ** 2
            new = costly.take(is_costlier).leave_out(joined)
            if not len(new):
                bound, _ = problem.upper_cost(costs)
                if bound < largest:
                    whiteners, largest = solution.whiteners, bound
                break
            p, p_first, q = solution.p[is_named], solution.p[~is_named], solution.q
            added = np.full(len(new), _NEW_SHARE * p.sum() / len(new))
            sets, p = sets.append(new), np.concatenate([p, added])
    return whiteners, largest
