"""Options of a design, its solvers, and why a design ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fitplug.certify import Ended
from fitplug.numeric import FloatArray
from fitplug.solve.dual import Solution, solve_dual
from fitplug.solve.fixed_point import GapProgress
from fitplug.solve.sm2 import solve_sm2

Solver: TypeAlias = Literal["dual", "sm2"]

SOLVERS: dict[str, Callable[..., Solution]] = {"dual": solve_dual, "sm2": solve_sm2}


@dataclass(frozen=True)
class Options:
    """The options of a design, as in `fitplug.design`.

    With `periods`, the integer strategy is made causal along that attribute, which changes neither
    the optimum nor its covariance. `start` holds weights of cells and rows to start from.
    """

    solver: Solver
    tolerance: float
    max_iterations: int
    refine: bool
    progress: GapProgress | None
    periods: str | None = None
    start: tuple[FloatArray, FloatArray] | None = None


def explain_end(solution: Solution, options: Options) -> Ended:
    """Return why a solve ended."""
    if solution.upper <= solution.lower * (1 + options.tolerance):
        return "reached"
    return "stopped" if solution.stopped else "exhausted"


def explain_end_of_bounds(
    bound: float, largest: float, lower: float, options: Options, stopped: bool
) -> Ended:
    """Return why a design ended, from a bound on its cost and the largest cost that was found."""
    if bound <= lower * (1 + options.tolerance):
        return "reached"
    if largest <= lower * (1 + options.tolerance):
        return "apart"  # a better bound on the cost would show that it is the optimum
    return "stopped" if stopped else "exhausted"
