"""Column generation: the optimum where differences between neighbours are too many to list.

The dual has a weight p_v for each named difference v: persons with several records
(`fitplug.neighbours.persons`), or moves of a record along some of many attributes
(`fitplug.neighbours.move_costs`). There may be more differences than can be listed, but few have
positive weights at the optimum. So the problem is solved with a few differences. Then costly
differences at the solution's covariance are found and added, until no difference costs more than
the named ones. The lower bound of each solve holds for all differences.

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
"""The most rounds in which differences are added."""

_COARSE = 0.02
"""The tolerance of the first solve. Later solves aim at a fraction of the remaining gap."""

_TARGET = 0.99
"""The share of the tolerance to aim at, since bounds on the cost may be rounded up slightly."""

_ROUNDING = 1e-9
"""The relative excess over the largest cost found so far that is more than rounding."""

_CHOOSING, _CHOICES = 100, 4
"""The most iterations per solve, and the most solves, for each share of `first_shares`."""

_NEW_SHARE = 0.1
"""The share of all weight with which new differences start."""


class Costs(Protocol):
    """The costs of differences at given precisions of the blocks."""

    def compute_costs(self, sets: RecordSets) -> AnyArray:
        """Compute the costs of differences, shape (v,)."""


C = TypeVar("C", bound=Costs)
N = TypeVar("N", MoveStructure, PairStructure, PersonStructure)


class ColumnProblem(ABC, Generic[N, C]):
    """A design problem with dual weights on named differences.

    Attributes:
        bound_margin: The relative margin of a plan's claim below the proven lower bound.
        least_share: Differences with less than this share of the largest weight are dropped again.
        parts: The shares of a new precision to try in mixtures with the best one.
        work_per_iteration: The most floating-point operations per allowed iteration on average,
            searches included.
        first_shares: Shares of all weight to give to the first differences at the end, tried in
            this order while the bound on the cost is above the largest cost found. If few
            differences have weight, many precisions are optimal, but most of them allow no tight
            bound on the costs of other differences. The right one minimises the cost of the first
            differences. Without it, prefixes of 60 days with a row a day cost 47% more rho.
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
        """The most differences that may have weights."""
        return 2**62

    @property
    def search_work(self) -> float:
        """The approximate floating-point operations of `find_costly`."""
        return 0.0

    def estimate_work(self, sets: RecordSets) -> float:
        """Estimate the floating-point operations of an iteration with weights on `sets`.

        The estimate is 0 if work is not limited.
        """
        return 0.0

    @abstractmethod
    def list_first(self) -> RecordSets:
        """List the differences to start with."""

    @abstractmethod
    def solve(
        self,
        sets: RecordSets,
        options: Options,
        start: tuple[FloatArray, FloatArray] | None,
        simplices: Sequence[Simplex] | None = None,
    ) -> Solution:
        """Solve the dual with weights on `sets`, as `solve_dual` does."""

    def mix_precisions(
        self, first: Sequence[FloatArray], second: Sequence[FloatArray], part: float
    ) -> tuple[FloatArray, ...]:
        """Compute whiteners of the mixture part * first + (1 - part) * second of precisions."""
        return tuple(
            cholesky(part * a.T @ a + (1 - part) * b.T @ b)
            for a, b in zip(first, second, strict=True)
        )

    @abstractmethod
    def measure(self, whiteners: Sequence[FloatArray]) -> C:
        """Prepare the costs of differences at the precisions of some whiteners."""

    @abstractmethod
    def find_costly(self, costs: C, sets: RecordSets, p: FloatArray, upper: float) -> RecordSets:
        """Find costly differences in addition to the named ones.

        Args:
            costs: The costs of differences.
            sets: The named differences.
            p: The weights of the named differences.
            upper: The square root of a cost; a longer search pays off only if no named or found
                difference costs more.
        """

    @abstractmethod
    def upper_cost(self, costs: C) -> tuple[float, RecordSets | None]:
        """Bound the cost of all differences from above; return costly ones met on the way, if
        any."""

    @abstractmethod
    def make_real_blocks(
        self, structure: N, whiteners: Sequence[FloatArray], options: Options
    ) -> Sequence[RealBlocks]:
        """Build the real strategies and their bases for a structure with named differences."""


def design_columns(
    problem: ColumnProblem[N, C], objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets, for differences too many to list.

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
        # Mixtures of the new covariance and the best one meet the targets as well.
        for part in problem.parts if best else (1.0,):
            whiteners = solution.whiteners
            if part < 1:
                whiteners = problem.mix_precisions(whiteners, best, part)
            costs = problem.measure(whiteners)
            costly = problem.find_costly(costs, sets, solution.p, upper)
            squares = costs.compute_costs(costly)
            # A search may miss a difference that is already named.
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
    """Choose precisions whose cost can be bounded, by giving weight to the first differences.

    With share s, the dual's optimum minimises (1 - s) times the largest cost of all differences
    plus s times the largest of the first ones (D19).

    Args:
        problem: The problem.
        weights: The named differences, and the best dual weights of them and of the queries.
        whiteners: The best whiteners so far.
        largest: The bound on the cost of all differences at these whiteners.
        upper: The square root of the largest cost found there.
        options: How to solve.

    Returns:
        The chosen whiteners, and the bound on the cost of all differences at these.
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
