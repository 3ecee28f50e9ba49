"""The refined optimum: among all optima, the one whose sorted profile is lexicographically least.

It is the unique solution of the paper's Problem 1, and it is found tier by tier. The cells of the
first tier have the largest profile in every optimum. Let F be the cells of the earlier tiers, whose
profiles are fixed at their levels, and R the other cells. The next tier consists of the cells of R
at which the largest profile of R cannot be lowered. The search minimises

    max_F g_i / level_i  +  kappa * max_R g_i / level_R

for a small kappa (R4). This is the same dual, with mass 1 of p on F and kappa on R. It finds
the level of R to the order of gap / kappa (R5), and where that level grows as (R6) says, it raises
the profile of F by the order of kappa^2. Therefore kappa is about the square root of the tolerance.

Components are sets of queries that share no cell with other queries, directly or through others.
They do not constrain each other. Sigma has a diagonal block for each of them, at the refined
optimum of the component. See docs/theory/refinement.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fitplug.certify import Tiers, make_one_tier
from fitplug.numeric import BoolArray, FloatArray, IndexArray
from fitplug.solve.dual import Simplex, Solution, solve_dual
from fitplug.solve.fixed_point import GapProgress
from fitplug.solve.problem import Problem

DualWeights: TypeAlias = tuple[FloatArray, FloatArray]
"""p (d,) and q (m,)."""

_SLACK = 10.0
"""A cell is tight if its profile can be lower by at most this times the root of the tolerance."""

_SHARE = 0.05
"""Tiers are solved until a cell with this share of the average weight can be proven tight."""

_SMALLEST_GAP = 1e-9
"""The smallest tolerance of one solve."""

_SOLVE_ITERATIONS = 500
"""The most iterations of one solve."""

_KAPPAS = (1.0, 0.1, 0.01)
"""Multiples of the square root of the tolerance, tried until F rises by at most the tolerance."""

MAX_TIERS = 256


def refine(
    problem: Problem,
    first: Solution,
    *,
    tolerance: float,
    max_iterations: int,
    progress: GapProgress | None = None,
) -> tuple[Solution, Tiers]:
    """Find the refined optimum from an optimal solution.

    The privacy cost stays within the tolerance of the least.

    Args:
        problem: The reduced workload.
        first: A solution whose gap is within the tolerance.
        tolerance: Cells within its square root of the level of a tier belong to this tier.
        max_iterations: The largest number of further iterations.
        progress: Called with the iterations and the gap so far; it may ask to stop.

    Returns:
        The refined solution, and the tiers that were found within these iterations.
    """
    tiers = make_one_tier(first.profile, problem.queries)
    rest = first.profile > 0
    if (first.profile[rest] >= (1 - math.sqrt(tolerance)) * first.profile.max()).all():
        return first, tiers
    search = _Search(problem, tolerance, first.iterations, max_iterations, progress)
    sharper = search.solve(problem, (first.p, first.q), int(rest.sum()))
    if sharper is None:
        return search.complete(first), tiers
    best = first = replace(sharper, lower=max(sharper.lower, first.lower))
    weights, gap = (first.p, first.q), sharper.gap
    level, of_cell = np.ones(problem.cells), tiers.of_cell
    certificates: list[DualWeights] = []
    while len(certificates) < MAX_TIERS:
        spent = weights[0] * best.profile
        tight = rest & _find_tight(best.profile, spent, rest, gap, tolerance)
        level[tight] = best.profile[tight].max()
        rest = rest & ~tight
        if not rest.any():
            break
        of_cell[rest] += 1
        level[rest] = best.profile[rest].max()
        solved = search.solve_tier(level, rest, weights, first.lower)
        if solved is None:
            break
        best, gap = solved
        weights = (best.p, best.q)
        certificates.append(weights)
    p, q = (
        (np.array(rows) for rows in zip(*certificates, strict=True))
        if certificates
        else (tiers.p, tiers.q)
    )
    refined = replace(first, whiteners=best.whiteners, profile=best.profile, upper=best.upper)
    return search.complete(refined), Tiers(of_cell, p, q)


def _find_tight(
    profile: FloatArray, spent: FloatArray, rest: BoolArray, gap: float, tolerance: float
) -> BoolArray:
    """Find the cells of `rest` whose profile must be the largest, as a mask (d,).

    A cell's weight proves this, or the cell has the largest spent weight of `rest`.

    Args:
        profile: The profile of the last solution, shape (d,).
        spent: p * profile, shape (d,). By (R3), sum_i p_i (top - profile_i) <= 2 gap sum_i
            spent_i for every other solution within the levels.
        rest: Mask of the cells that are in no earlier tier, shape (d,).
        gap: The relative gap of the last solve.
        tolerance: The relative gap of the refinement.
    """
    width = math.sqrt(tolerance)
    top = profile >= (1 - width) * profile[rest].max()
    proven = spent * _SLACK * width >= 2 * gap * spent.sum()
    return np.asarray((top & proven) | (spent >= spent[rest].max()))


class _Search:
    """Solves of one problem with different scalings, with a common limit of iterations."""

    def __init__(
        self,
        problem: Problem,
        tolerance: float,
        done: int,
        max_iterations: int,
        progress: GapProgress | None,
    ) -> None:
        self._problem = problem
        self._tolerance = tolerance
        self._done, self._end = done, done + max_iterations
        self._progress = progress
        self._stopped = False

    def solve(
        self,
        problem: Problem,
        start: DualWeights,
        cells: int,
        simplices: tuple[Simplex, ...] | None = None,
    ) -> Solution | None:
        """Solve to a gap that shows which of `cells` cells are tight.

        Returns None if not even the tolerance is reached.
        """
        if self._done >= self._end or self._stopped:
            return None
        done, report = self._done, self._progress
        mass = simplices[-1].mass if simplices else 1.0
        sharp = _SHARE * _SLACK * math.sqrt(self._tolerance) * mass / cells
        solution = solve_dual(
            problem,
            tolerance=max(_SMALLEST_GAP, min(sharp, self._tolerance / 4)),
            max_iterations=min(_SOLVE_ITERATIONS, self._end - done),
            progress=report and (lambda iteration, gap: report(done + iteration, gap)),
            simplices=simplices,
            start=start,
        )
        self._done += solution.iterations
        self._stopped = solution.stopped
        return solution if solution.gap <= self._tolerance / 2 else None

    def solve_tier(
        self, level: FloatArray, rest: BoolArray, weights: DualWeights, lower: float
    ) -> tuple[Solution, float] | None:
        """Minimise the largest profile of `rest` while the other cells keep their levels.

        Returns the solution of the problem without levels, and the gap of the problem with levels;
        or None if no solution has a cost within the tolerance of `lower`.
        """
        scaled = self._problem.divide_profile(level)
        for factor in _KAPPAS:
            kappa = factor * math.sqrt(self._tolerance)
            simplices = (Simplex(~rest, 1 / (1 + kappa)), Simplex(rest, kappa / (1 + kappa)))
            start = (weights[0] * level, weights[1])
            solution = self.solve(scaled, start, int(rest.sum()), simplices)
            if solution is None:
                return None
            profile = solution.profile * level
            upper = math.sqrt(float(profile.max()))
            if upper <= lower * (1 + self._tolerance):
                unscaled = replace(solution, p=solution.p / level, profile=profile, upper=upper)
                return unscaled, solution.gap
        return None

    def complete(self, solution: Solution) -> Solution:
        """Return a solution with the number of all iterations of the search."""
        return replace(solution, iterations=self._done, stopped=self._stopped)


@dataclass(frozen=True, eq=False)
class Component:
    """A component of a workload matrix W (m, d), and its optimum.

    Attributes:
        rows: Its rows of W in the order of the solution, shape (r,).
        cells: Its cells in the order of the solution, shape (c,).
        solution: The optimum for these rows and cells.
        tiers: The tiers of these cells.
    """

    rows: IndexArray
    cells: IndexArray
    solution: Solution
    tiers: Tiers


def find_components(W: FloatArray) -> list[tuple[IndexArray, IndexArray]]:
    """Find the rows and cells of each component of W (m, d), in the order of their first cell."""
    m, d = W.shape
    rows, cells = np.nonzero(W)
    graph = csr_array((np.ones(len(rows), dtype=np.int8), (rows + d, cells)), shape=(m + d, m + d))
    count, label = connected_components(graph, directed=False)
    if count == 1:
        return [(np.arange(m), np.arange(d))]
    order = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label, minlength=count))
    members = np.split(order, ends[:-1])
    # A lone row is a query without coefficients; a lone cell is counted by no query.
    return [(nodes[nodes >= d] - d, nodes[nodes < d]) for nodes in members if len(nodes) > 1]


def merge_tiers(shape: tuple[int, ...], components: Sequence[Component], tolerance: float) -> Tiers:
    """Merge the tiers of all components of a W of this shape (m, d) in the order of their levels.

    Levels that differ by less than the square root of the tolerance become one tier, with the
    certificate of its highest level.
    """
    m, d = shape
    levels = []
    for component in components:
        profile, of_cell = component.solution.profile, component.tiers.of_cell
        for tier in range(int(of_cell.max()) + 1):
            levels.append((float(profile[of_cell == tier].max()), component, tier))
    levels.sort(key=lambda entry: -entry[0])
    of_cell = np.full(d, -1, dtype=np.int64)
    top = levels[0][0]
    certificates: list[tuple[FloatArray, FloatArray]] = []
    for level, component, tier in levels:
        solution, tiers = component.solution, component.tiers
        cells = component.cells[tiers.of_cell == tier]
        if tier > len(tiers.p) or len(certificates) == MAX_TIERS:
            of_cell[cells] = MAX_TIERS + 1
            continue
        if level < (1 - tolerance**0.5) * top:
            top = level
            p, q = (tiers.p[tier - 1], tiers.q[tier - 1]) if tier else (solution.p, solution.q)
            certificates.append((scatter(p, component.cells, d), scatter(q, component.rows, m)))
        of_cell[cells] = len(certificates)
    of_cell[of_cell > len(certificates)] = len(certificates) + 1
    p, q = (
        np.array([pair[i] for pair in certificates]).reshape(len(certificates), shape[1 - i])
        for i in (0, 1)
    )
    return Tiers(of_cell, p, q)


def join_solutions(shape: tuple[int, ...], components: Sequence[Component]) -> Solution:
    """Join the solutions of all components of a W of this shape (m, d).

    The weights are those of the costliest component, and the whiteners those of all components.
    """
    m, d = shape
    solutions = [component.solution for component in components]
    costliest = max(components, key=lambda component: component.solution.lower)
    return Solution(
        p=scatter(costliest.solution.p, costliest.cells, d),
        q=scatter(costliest.solution.q, costliest.rows, m),
        whiteners=tuple(whitener for solution in solutions for whitener in solution.whiteners),
        profile=np.sum([scatter(c.solution.profile, c.cells, d) for c in components], axis=0),
        lower=costliest.solution.lower,
        upper=max(solution.upper for solution in solutions),
        iterations=sum(solution.iterations for solution in solutions),
        stopped=any(solution.stopped for solution in solutions),
    )


def scatter(values: FloatArray, indices: IndexArray, size: int) -> FloatArray:
    """Return an array (size,) with the values (n,) at the indices (n,), and zeros elsewhere."""
    spread = np.zeros(size)
    spread[indices] = values
    return spread
