"""The refined optimum: among all optima, the one whose sorted profile is lexicographically least.

It is the unique solution of the paper's Problem 1, found tier by tier. The cells of the first tier
have the largest profile in every optimum. With the profiles of earlier tiers F held at their
levels, those of the next are where the largest profile of the rest R cannot be lowered. They are
found by making

    max_F g_i / level_i  +  kappa * max_R g_i / level_R

least for a small kappa: the same dual, with mass 1 of p on F and kappa on R. It raises F by order
kappa^2 and tells the level of R to order gap / kappa, so kappa is the root of the tolerance.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from fitplug.numeric import BoolArray, FloatArray
from fitplug.optimizer import dual
from fitplug.optimizer.dual import Part, Progress, Solution
from fitplug.optimizer.problem import Problem
from fitplug.proof import Tiers, one_tier

Weights: TypeAlias = tuple[FloatArray, FloatArray]

_SLACK = 10.0
"""Times the root of the tolerance: no cell is called tight whose profile could be lower by more."""

_SHARE = 0.05
"""A cell with this part of the average weight can be told to be tight: sets how far tiers are
solved."""

_SHARPEST = 1e-9
_ROUND = 500
"""The most iterations of one solve, and the least gap asked of it."""

_KAPPAS = (1.0, 0.1, 0.01)
"""Over the root of the tolerance, in turn while F is raised beyond the tolerance."""

MAX_TIERS = 256


def refine(
    problem: Problem,
    first: Solution,
    *,
    tolerance: float,
    max_iterations: int,
    progress: Progress | None = None,
) -> tuple[Solution, Tiers]:
    """The refined optimum, from an optimal solution, as far as max_iterations (more) allow.

    Cells within the root of the tolerance of a tier's level are in that tier. The cost stays within
    the tolerance of the least.
    """
    tiers = one_tier(first.profile, problem.queries)
    rest = first.profile > 0
    if (first.profile[rest] >= (1 - math.sqrt(tolerance)) * first.profile.max()).all():
        return first, tiers
    search = _Search(problem, tolerance, first.iterations, max_iterations, progress)
    sharper = search.solve(problem, (first.p, first.q), int(rest.sum()))
    if sharper is None:
        return search.closing(first), tiers
    best = first = replace(sharper, lower=max(sharper.lower, first.lower))
    weights, gap = (first.p, first.q), sharper.gap
    level, of_cell = np.ones(problem.cells), tiers.of_cell
    certificates: list[Weights] = []
    while len(certificates) < MAX_TIERS:
        tight = rest & _tight(best.profile, weights[0] * best.profile, rest, gap, tolerance)
        level[tight] = best.profile[tight].max()
        rest = rest & ~tight
        if not rest.any():
            break
        of_cell[rest] += 1
        level[rest] = best.profile[rest].max()
        found = search.tier(level, rest, weights, first.lower)
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
    kept = replace(first, whiteners=best.whiteners, profile=best.profile, upper=best.upper)
    return search.closing(kept), Tiers(of_cell, p, q)


def _tight(
    profile: FloatArray, spent: FloatArray, rest: BoolArray, gap: float, tolerance: float
) -> BoolArray:
    """The cells of `rest` (d,) at the top of the profile whose weight proves that they must be.

    spent: p * profile (d,). By weak duality, at any other solution within the levels, what the
    profile lacks to the top costs at most twice the gap: sum_i p_i (top - profile_i) <= 2 gap sum.
    """
    width = math.sqrt(tolerance)
    top = profile >= (1 - width) * profile[rest].max()
    proven = spent * _SLACK * width >= 2 * gap * spent.sum()
    return np.asarray((top & proven) | (spent >= spent[rest].max()))


class _Search:
    """Solves of one problem, scaled in many ways, that share a number of iterations."""

    def __init__(
        self,
        problem: Problem,
        tolerance: float,
        done: int,
        max_iterations: int,
        progress: Progress | None,
    ) -> None:
        self._problem = problem
        self._tolerance = tolerance
        self._done, self._end = done, done + max_iterations
        self._progress = progress
        self._stopped = False

    def solve(
        self,
        problem: Problem,
        start: Weights,
        cells: int,
        parts: tuple[Part, ...] | None = None,
    ) -> Solution | None:
        """The optimum, sharp enough to tell which of so many cells are tight; None if it is not
        even within the tolerance.
        """
        if self._done >= self._end or self._stopped:
            return None
        done, report = self._done, self._progress
        mass = parts[-1].mass if parts else 1.0
        sharp = _SHARE * _SLACK * math.sqrt(self._tolerance) * mass / cells
        found = dual.solve(
            problem,
            tolerance=max(_SHARPEST, min(sharp, self._tolerance / 4)),
            max_iterations=min(_ROUND, self._end - done),
            progress=report and (lambda iteration, gap: report(done + iteration, gap)),
            parts=parts,
            start=start,
        )
        self._done += found.iterations
        self._stopped = found.stopped
        return found if found.gap <= self._tolerance / 2 else None

    def tier(
        self, level: FloatArray, rest: BoolArray, weights: Weights, lower: float
    ) -> tuple[Solution, float] | None:
        """The solution with the least profile of `rest` while the others keep their levels, as
        one of the unscaled problem, and the gap of the scaled one. None if it is not reached with
        a cost within the tolerance of `lower`.
        """
        scaled = self._problem.within(level)
        for factor in _KAPPAS:
            kappa = factor * math.sqrt(self._tolerance)
            parts = (Part(~rest, 1 / (1 + kappa)), Part(rest, kappa / (1 + kappa)))
            start = (weights[0] * level, weights[1])
            found = self.solve(scaled, start, int(rest.sum()), parts)
            if found is None:
                return None
            profile = found.profile * level
            upper = math.sqrt(float(profile.max()))
            if upper <= lower * (1 + self._tolerance):
                unscaled = replace(found, p=found.p / level, profile=profile, upper=upper)
                return unscaled, found.gap
        return None

    def closing(self, solution: Solution) -> Solution:
        """A solution with all the iterations that were made."""
        return replace(solution, iterations=self._done, stopped=self._stopped)
