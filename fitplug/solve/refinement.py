"""The refined optimum: among all optima, the one whose sorted profile is lexicographically least.

It is the unique solution of the paper's Problem 1, and it is found tier by tier. The cells of the
first tier have the largest profile in every optimum. Let F be the cells of the earlier tiers, whose
profiles are held at their levels, and R the other cells. The next tier consists of the cells of R
at which the largest profile of R cannot be lowered. The search minimises

    max_F g_i / level_i  +  kappa * max_R g_i / level_R

for a small kappa (R4). This is the same dual, with mass 1 of p on F and kappa on R. It finds
the level of R to the order of gap / kappa (R5), and where that level grows as (R6) says, it raises
the profile of F by the order of kappa^2. Therefore kappa is about the square root of the tolerance.
See docs/theory/refinement.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from fitplug.certify import Tiers, make_one_tier
from fitplug.numeric import BoolArray, FloatArray
from fitplug.solve.dual import Simplex, Solution, solve_dual
from fitplug.solve.fixed_point import GapProgress
from fitplug.solve.problem import Problem

DualWeights: TypeAlias = tuple[FloatArray, FloatArray]
"""p (d,) and q (m,)."""

_SLACK = 10.0
"""A cell is tight if its profile could be lower by this times the square root of the tolerance."""

_SHARE = 0.05
"""Tiers are solved so far that a cell with this part of the average weight can prove tight."""

_SMALLEST_GAP = 1e-9
"""The smallest gap that is asked of one solve."""

_SOLVE_ITERATIONS = 500
"""The most iterations of one solve."""

_KAPPAS = (1.0, 0.1, 0.01)
"""Multiples of the square root of the tolerance, tried while F is raised beyond the tolerance."""

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
        found = search.solve_tier(level, rest, weights, first.lower)
        if found is None:
            break
        best, gap = found
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
    """Find the cells at the top of the profile of `rest` that must be there, as a mask (d,).

    The weight of such a cell proves it, or the cell has the largest spent weight of `rest`.

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
    """Solves of one problem with different scalings, which share a number of iterations."""

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
        """Solve to a gap that tells which of so many cells are tight.

        Returns None if not even the tolerance is reached.
        """
        if self._done >= self._end or self._stopped:
            return None
        done, report = self._done, self._progress
        mass = simplices[-1].mass if simplices else 1.0
        sharp = _SHARE * _SLACK * math.sqrt(self._tolerance) * mass / cells
        found = solve_dual(
            problem,
            tolerance=max(_SMALLEST_GAP, min(sharp, self._tolerance / 4)),
            max_iterations=min(_SOLVE_ITERATIONS, self._end - done),
            progress=report and (lambda iteration, gap: report(done + iteration, gap)),
            simplices=simplices,
            start=start,
        )
        self._done += found.iterations
        self._stopped = found.stopped
        return found if found.gap <= self._tolerance / 2 else None

    def solve_tier(
        self, level: FloatArray, rest: BoolArray, weights: DualWeights, lower: float
    ) -> tuple[Solution, float] | None:
        """Minimise the largest profile of `rest` while the other cells keep their levels.

        Returns the solution in terms of the problem without levels, and the gap of the problem with
        levels; or None if no solution is reached whose cost is within the tolerance of `lower`.
        """
        scaled = self._problem.divide_profile(level)
        for factor in _KAPPAS:
            kappa = factor * math.sqrt(self._tolerance)
            simplices = (Simplex(~rest, 1 / (1 + kappa)), Simplex(rest, kappa / (1 + kappa)))
            start = (weights[0] * level, weights[1])
            found = self.solve(scaled, start, int(rest.sum()), simplices)
            if found is None:
                return None
            profile = found.profile * level
            upper = math.sqrt(float(profile.max()))
            if upper <= lower * (1 + self._tolerance):
                unscaled = replace(found, p=found.p / level, profile=profile, upper=upper)
                return unscaled, found.gap
        return None

    def complete(self, solution: Solution) -> Solution:
        """Return a solution with the count of all iterations that were made."""
        return replace(solution, iterations=self._done, stopped=self._stopped)
