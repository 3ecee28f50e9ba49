"""Design: from a workload with targets to a certified plan."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

from fitplug.errors import BudgetError, DesignError, WorkloadError
from fitplug.families import (
    LARGEST_NOISE,
    LEAST_NOISE,
    IntegerStrategy,
    Structure,
    certify_bound,
    find_nearer_structure,
    find_substitute_structure,
    meets_targets,
)
from fitplug.families.designs import find_design
from fitplug.numeric import UNIT_ROUNDOFF, ExactNumber, FloatArray, guard_linear_algebra
from fitplug.plan.design_request import DesignRequest, check_request
from fitplug.plan.plan import Plan
from fitplug.plan.plan_record import Proof
from fitplug.solve import GapProgress, Solver
from fitplug.workload import ONE_RECORD, Unit, Workload, count_changes

_LOG = logging.getLogger("fitplug.design")

_WIDE_GAP = 0.005
"""The gap of rho above which a slower way to the optimum is tried, where there is one."""

_ULPS = 64
_OUT_OF_RANGE = (
    "the targets or the budget are too large or too small for floating-point numbers. Rescale "
    "the queries and their targets."
)


def design(
    workload: Workload,
    *,
    unit: Unit = ONE_RECORD,
    periods: str | None = None,
    rho: ExactNumber | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    cell_budgets: Any = None,
    total_error_weight: float = 0.0,
    tolerance: float = 2e-4,
    solver: Solver = "dual",
    refine: bool = True,
    max_iterations: int = 2000,
    coverage: bool = False,
    progress: GapProgress | None = None,
) -> Plan:
    """Find the mechanism of least privacy cost that meets every target (the paper's Problem 1).

    If a budget is given, all target variances are multiplied by one factor: the smallest with which
    the cost stays within the budget (Problem 2). See `Plan.scale`.

    `cell_budgets`, `total_error_weight` and `solver="sm2"` need an optimization over all cells that
    queries distinguish, so they cannot be used if there are too many cells; see "Large domains" in
    the documentation of workloads. One exception: `cell_budgets` and `total_error_weight` can be
    used with many cells if all queries are levels of one hierarchy.

    Args:
        workload: The query groups and their targets.
        unit: The unit of privacy, which defines how the rows of one person may differ between two
            neighbouring data sets. All privacy costs of the plan are for one person in this unit.
            `fp.AddRemove(records=k)` protects people who have up to k rows each.
        periods: The attribute whose cells are periods of time, in their order, for a release that
            is drawn period by period as data arrive (`fitplug.begin_series`). `periods` does not
            change the cost of the plan, up to rounding. It cannot be used if there are too many
            cells to optimize over (see above), or with `fp.ReplaceOne`.
        rho: A budget in rho of zCDP, for one person in the unit; a float is read as the decimal
            that Python prints. `rho` cannot be combined with `epsilon` and `delta`.
        epsilon: A budget in epsilon and `delta`. The conversion uses the exact curve of Gaussian
            noise, as `Plan.epsilon` does.
        delta: The delta that belongs to `epsilon`.
        cell_budgets: For each cell, the largest allowed squared privacy cost (Delta^2, which is 2
            rho), as an array that broadcasts to the domain's shape. All target variances are
            multiplied by one factor: the smallest with which the cost in every cell stays within
            these budgets and, if a budget in rho is given, within it, too. If `cell_budgets` is the
            unused budget of another plan, both releases together cost no more than the other plan.
        total_error_weight: The weight lambda >= 0 in the paper's hybrid objective: at each privacy
            cost, the design minimises the sum of the largest ratio of variance to target and lambda
            times the total of all variances.
        tolerance: The largest acceptable gap. The gap is the relative distance between rho and its
            certified lower bound. If the tolerance is not reached within `max_iterations`, the best
            plan so far is returned with its true gap; see `Plan.gap` and `Plan.status`.
        solver: "dual", or "sm2" for the paper's own algorithm, which is slower and may stop further
            above the least cost. The certificate is checked in the same way for both algorithms.
        refine: Whether to also lower the cost in cells that cost less than rho, as in the paper's
            refined privacy ordering. This takes up to `max_iterations` more iterations and about a
            minute. rho is minimised with and without it. See `Plan.tiers`. `refine` has an
            effect only with the solver "dual", without `total_error_weight`, and for workloads of
            at most 4,096 cells that are not trees.
        max_iterations: The largest number of iterations for each problem that is solved; queries
            that share no cells are separate problems.
        coverage: Whether releases also estimate, for each attribute, the number of rows with a
            value outside the domain; see `fitplug.Release.coverage`. These estimates cost nothing
            more, because a row is either in all tables or in none. `coverage` needs
            `fp.AddRemove(records=k)` and cannot be combined with `periods`.
        progress: A function that is called with the number of iterations and the gap so far. If the
            function returns True, `design` stops and returns the best plan so far. If the function
            raises an exception, so does `design`.

    Returns:
        A plan that meets the targets with a mechanism on integers.

    Raises:
        TypeError: `workload` has the wrong type.
        InputError: Another argument has the wrong type.
        WorkloadError: The workload is too large, or floating point cannot decide which of its
            queries are linearly dependent.
        BudgetError: A budget, a weight, the tolerance or the iterations are out of range.
        DesignError: No plan can be certified.

    Example:
        >>> plan = fp.design(workload, unit=fp.AddRemove(records=2), tolerance=1e-3)
        >>> plan.gap <= 1e-3
        True
    """
    request = check_request(
        workload,
        unit=unit,
        periods=periods,
        rho=rho,
        epsilon=epsilon,
        delta=delta,
        cell_budgets=cell_budgets,
        total_error_weight=total_error_weight,
        tolerance=tolerance,
        solver=solver,
        refine=refine,
        max_iterations=max_iterations,
        coverage=coverage,
        progress=progress,
    )
    raised: list[BaseException] = []
    if progress is not None:
        recording = _record_errors(progress, raised)
        request = replace(request, options=replace(request.options, progress=recording))
    with guard_linear_algebra(raised):
        plan = _design_plan(request)
    numbers = plan.rho, plan.gap, plan.proof.iterations
    _LOG.info("designed a plan of rho = %r, gap %.1e, in %d iterations", *numbers)
    return plan


def _record_errors(progress: GapProgress, raised: list[BaseException]) -> GapProgress:
    """Return the function for a solver, whose gap is of Delta, that appends errors to `raised`."""

    def call_progress(iterations: int, gap: float) -> object:
        try:
            return progress(iterations, gap * (2 + gap))
        except BaseException as error:
            raised.append(error)
            raise

    return call_progress


def _design_plan(request: DesignRequest) -> Plan:
    """Design and certify the plan for checked arguments."""
    structure = request.build_structure()
    try:
        plan = _design_structure(request, structure)
    except (DesignError, WorkloadError):
        substitute = find_substitute_structure(structure)
        if substitute is None:
            raise
        return _design_structure(request, substitute)
    is_near = plan.gap <= max(_WIDE_GAP, request.tolerance)
    if is_near or plan.proof.ended == "stopped" or not plan.objective.plain:
        return plan
    nearer = find_nearer_structure(structure, plan.gap)
    if nearer is None:
        return plan
    try:
        other = _design_structure(request, nearer)
    except (DesignError, WorkloadError, MemoryError):
        return plan
    is_better = other.gap < plan.gap and other.rho * other.scale <= plan.rho * plan.scale
    return other if is_better else plan


def _design_structure(request: DesignRequest, structure: Structure) -> Plan:
    """Design and certify the plan of one structure."""
    objective = request.build_objective(structure)
    # The best strategy for one record is the best for k records: all costs are k^2 times as large.
    once = objective.divide_budgets(count_changes(request.unit) ** 2)
    designed = find_design(structure, once, request.options, request.rounding_loss)
    strategy, duals = designed.strategy.restate(request.unit), designed.duals
    structure, budget = strategy.structure, request.find_rho(strategy)
    if budget is None and objective.budgets is None:
        noise_std, scale = _find_noise_for_targets(strategy, structure.targets), 1.0
    else:
        noise_std, scale = _find_noise_for_budget(
            strategy, structure.targets, budget, objective.budgets
        )
    objective = objective.rescale(scale)
    bound = certify_bound(structure, objective, scale, duals)
    if not bound > 0:
        raise DesignError(
            "fitplug could not prove a lower bound on the cost of this workload. Use targets of "
            "more similar size."
        )
    return Plan(
        workload=structure.workload,
        strategy=strategy,
        objective=objective,
        noise_std=noise_std,
        scale=scale,
        lower_bound=bound * (1 - designed.bound_margin),
        proof=Proof(duals, designed.tiers, designed.iterations, designed.ended),
        tolerance=request.tolerance,
        has_coverage=request.coverage,
    )


def _find_noise_for_targets(strategy: IntegerStrategy[Structure], targets: FloatArray) -> float:
    """Find the largest sigma, to a few ulps, at which every proven variance is within its target.

    targets has shape (m,).
    """
    counted = strategy.unit_variances > 0
    std = math.sqrt(float((targets[counted] / strategy.unit_variances[counted]).min()))
    for _ in range(_ULPS):
        if meets_targets(strategy.upper_variances(std), 1.0, targets):
            _check_noise(std)
            return std
        std *= 1 - 2 * UNIT_ROUNDOFF
    raise DesignError(_OUT_OF_RANGE)


def _find_noise_for_budget(
    strategy: IntegerStrategy[Structure],
    targets: FloatArray,
    rho: float | None,
    budgets: FloatArray | None,
) -> tuple[float, float]:
    """Find the smallest sigma whose rho, rounded up, and profile are within the budgets.

    targets has shape (m,), budgets (D,).

    Returns:
        sigma, and the least scale k at which it meets the targets.
    """
    std = 0.0 if rho is None else strategy.sensitivity / math.sqrt(2 * rho)
    if budgets is not None:
        std = max(std, math.sqrt(float((strategy.column_squares / budgets).max())))

    def is_affordable(std: float) -> bool:
        return (rho is None or strategy.upper_rho(std) <= rho) and (
            budgets is None or bool((strategy.upper_profile(std) <= budgets).all())
        )

    for _ in range(_ULPS):
        if is_affordable(std):
            break
        std *= 1 + 2 * UNIT_ROUNDOFF
    else:
        raise DesignError(_OUT_OF_RANGE)
    _check_noise(std)
    variances = strategy.upper_variances(std)
    scale = float((variances / targets).max())
    for _ in range(_ULPS):
        if meets_targets(variances, scale, targets):
            return std, scale
        scale *= 1 + 2 * UNIT_ROUNDOFF
    raise DesignError(_OUT_OF_RANGE)


def _check_noise(noise_std: float) -> None:
    """Raise BudgetError for noise that 64-bit integers cannot hold, or that protects nobody."""
    if noise_std > LARGEST_NOISE:
        raise BudgetError(
            "the noise would exceed 64-bit integers. Give tighter targets or a larger rho."
        )
    if noise_std < LEAST_NOISE:
        raise BudgetError(
            "the noise would be too small to protect anybody. Give looser targets or a smaller rho."
        )
