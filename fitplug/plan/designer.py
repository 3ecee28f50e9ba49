"""Design: from a workload with targets to a certified plan."""

from __future__ import annotations

import logging
import math
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

from fitplug.errors import BudgetError, DesignError, InputError, nearest
from fitplug.mechanism import LARGEST_NOISE, LEAST_NOISE, Strategy, meets_targets
from fitplug.numeric import UNIT, FloatArray, floor_float, linear_algebra
from fitplug.optimizer import SOLVERS, Options, Progress, Solver, draft_plan
from fitplug.plan.plan import Plan
from fitplug.privacy import check_rho, privacy_cost_at
from fitplug.proof import LEAST_TOLERANCE, certify_bound
from fitplug.structure import (
    Objective,
    Structure,
    analyse_structure,
    check_weight,
    read_cell_budgets,
)
from fitplug.workload import Workload

_LOG = logging.getLogger("fitplug.design")

_ULPS = 64
_OUT_OF_RANGE = "targets and budget lie outside what floats can hold; rescale the queries"

_ROUNDING_SHARE = 0.1
"""The part of the tolerance that rounding to integers may use up."""


def design(
    workload: Workload,
    *,
    rho: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    cell_budgets: Any = None,
    total_error_weight: float = 0.0,
    tolerance: float = 1e-4,
    solver: Solver = "dual",
    refine: bool = True,
    max_iterations: int = 2000,
    progress: Progress | None = None,
) -> Plan:
    """The mechanism of least privacy cost that meets every target (the paper's Problem 1).

    rho, or epsilon with delta (on the exact Gaussian curve): spend this and scale all targets by
        the least common factor instead (Problem 2); see Plan.scale.
    cell_budgets: the largest privacy cost squared allowed per cell, an array that broadcasts to
        the domain's shape: all targets are scaled by the least factor that keeps the profile
        within (and rho too, if given). With the slack of another plan, both releases together cost
        no more than that one.
    total_error_weight: lambda >= 0 of the paper's hybrid: at each privacy cost, the largest
        variance over target plus lambda times the sum of all variances is made least.
    tolerance: relative gap wanted between the privacy cost Delta and its certified lower bound.
        If it is not reached within max_iterations, the best plan comes back with its true gap;
        see Plan.status.
    solver: "dual", or "sm2" for the paper's own algorithm (slower, and it may stop further above
        the optimum); the certificate is checked the same way for both.
    refine: also make the profile least in the paper's refined privacy ordering, which has one
        optimum only: with the dual solver, no total error weight, and as far as max_iterations more
        and about a minute of work allow. Plan.tiers says how near the least each tier is. The
        privacy cost is the least either way.
    max_iterations: of each solve; queries that share no cells are solved apart.
    progress: called with (iterations so far, gap so far). If it returns True the best plan so far
        comes back; what it raises passes through.
    Raises WorkloadError, BudgetError, and DesignError if nothing can be certified.
    """
    budget = _budget(rho, epsilon, delta)
    if not isinstance(tolerance, Real) or not LEAST_TOLERANCE <= tolerance < 1:
        raise BudgetError(f"tolerance = {tolerance!r} must lie between 1e-9 and 1")
    whole = isinstance(max_iterations, Integral) and not isinstance(max_iterations, bool)
    if not whole or max_iterations < 1:
        raise BudgetError(f"max_iterations = {max_iterations!r} must be a whole number, at least 1")
    if not isinstance(refine, (bool, np.bool_)):
        raise InputError(f"refine = {refine!r} must be True or False")
    if progress is not None and not callable(progress):
        raise InputError(f"progress = {progress!r} must be a function of iterations and gap")
    if solver not in SOLVERS:
        raise InputError(f"solver = {solver!r} is unknown; {nearest(solver, SOLVERS)}")
    passing: list[BaseException] = []  # what progress raises
    # Rounding to integers takes its share of the tolerance, and so may what it is measured with.
    options = Options(
        solver=solver,
        tolerance=(1 - 2 * _ROUNDING_SHARE) * float(tolerance),
        max_iterations=int(max_iterations),
        refine=bool(refine),
        progress=None if progress is None else _noting(progress, passing),
    )
    weight = check_weight(total_error_weight)
    given = None if cell_budgets is None else read_cell_budgets(workload.domain, cell_budgets)
    # The paper's own solver knows no blocks; the residual family no other objective.
    varying = workload.attributes if solver == "sm2" else given.varying if given else ()
    family = False if given or weight or solver == "sm2" else None
    with linear_algebra(passing):
        structure = analyse_structure(workload, varying, family)
        budgets = None if given is None else given.reduce_to_dense(structure)
        if budgets is not None and budget is not None:
            budgets = np.minimum(budgets, floor_float(2 * Fraction(budget)))
        plan = _designed(structure, Objective(budgets, weight), budget, tolerance, options)
    told = plan.rho, plan.gap, plan.iterations
    _LOG.info("designed a plan of rho = %r, gap %.1e, in %d iterations", *told)
    return plan


def _noting(progress: Progress, raised: list[BaseException]) -> Progress:
    """The same function; what it raises is kept too."""

    def told(iterations: int, gap: float) -> object:
        try:
            return progress(iterations, gap)
        except BaseException as error:
            raised.append(error)
            raise

    return told


def _designed(
    structure: Structure,
    objective: Objective,
    budget: float | None,
    tolerance: float,
    options: Options,
) -> Plan:
    draft = draft_plan(structure, objective, options, _ROUNDING_SHARE * tolerance)
    strategy, duals = draft.strategy, draft.duals
    if budget is None and objective.budgets is None:
        noise_std, scale = _noise_for_targets(strategy, structure.targets), 1.0
    else:
        noise_std, scale = _noise_for_budget(strategy, structure.targets, budget, objective.budgets)
    objective = objective.rescale(scale)
    bound = certify_bound(structure, objective, scale, duals)
    if not bound > 0:
        raise DesignError("no lower bound could be certified; the targets are too far apart")
    return Plan(
        workload=structure.workload,
        strategy=strategy,
        objective=objective,
        noise_std=noise_std,
        scale=scale,
        lower_bound=bound * (1 - draft.bound_margin),
        p=duals.p,
        q=duals.q,
        frame=duals.frame,
        weights=draft.tiers,
        tolerance=tolerance,
        iterations=draft.iterations,
        ended=draft.ended,
    )


def _budget(rho: float | None, epsilon: float | None, delta: float | None) -> float | None:
    """The rho to spend, or None."""
    if rho is not None and (epsilon is not None or delta is not None):
        raise BudgetError("give rho, or epsilon with delta, not both")
    if rho is not None:
        check_rho(rho)
        return float(rho)
    if epsilon is None and delta is None:
        return None
    if epsilon is None or delta is None:
        raise BudgetError("epsilon and delta go together; give both, or rho")
    return floor_float(Fraction(privacy_cost_at(epsilon, delta)) ** 2 / 2)


def _noise_for_targets(strategy: Strategy, c: FloatArray) -> float:
    """The largest sigma, to a few ulps, at which every proven variance is within its target."""
    asked = strategy.unit_variances > 0
    std = math.sqrt(float((c[asked] / strategy.unit_variances[asked]).min()))
    for _ in range(_ULPS):
        if meets_targets(strategy.variances(std), 1.0, c):
            return _fitting(std)
        std *= 1 - 2 * UNIT
    raise DesignError(_OUT_OF_RANGE)


def _noise_for_budget(
    strategy: Strategy, c: FloatArray, rho: float | None, budgets: FloatArray | None
) -> tuple[float, float]:
    """The smallest sigma whose rho, rounded up, and profile are within the budgets; and the scale
    k that it meets.
    """
    std = 0.0 if rho is None else strategy.sensitivity / math.sqrt(2 * rho)
    if budgets is not None:
        std = max(std, math.sqrt(float((strategy.column_squares / budgets).max())))

    def afforded(std: float) -> bool:
        return (rho is None or strategy.rho(std) <= rho) and (
            budgets is None or bool((strategy.profile(std) <= budgets).all())
        )

    for _ in range(_ULPS):
        if afforded(std):
            break
        std *= 1 + 2 * UNIT
    else:
        raise DesignError(_OUT_OF_RANGE)
    _fitting(std)
    variances = strategy.variances(std)
    scale = float((variances / c).max())
    for _ in range(_ULPS):
        if meets_targets(variances, scale, c):
            return std, scale
        scale *= 1 + 2 * UNIT
    raise DesignError(_OUT_OF_RANGE)


def _fitting(noise_std: float) -> float:
    if noise_std > LARGEST_NOISE:
        raise BudgetError(
            "targets this loose, or a rho this small, need more noise than 64-bit integers hold; "
            "give tighter targets or a larger rho"
        )
    if noise_std < LEAST_NOISE:
        raise BudgetError(
            "targets this tight, or a rho this large, leave next to no noise, which protects "
            "nobody; give looser targets or a smaller rho"
        )
    return noise_std
