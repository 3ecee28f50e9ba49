"""Design: from a workload with targets to a certified plan."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

from fitplug.errors import BudgetError, DesignError, InputError, suggest_nearest
from fitplug.mechanism import LARGEST_NOISE, LEAST_NOISE, Strategy, within
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, floor_float, guard_linear_algebra
from fitplug.optimizer import (
    CLAIM_MARGIN,
    SOLVERS,
    SPLIT_MARGIN,
    Options,
    Progress,
    Solver,
    ascend_bound,
    find_optimum,
    integer_strategy,
    solve_residual,
    split_strategy,
)
from fitplug.plan.plan import Plan
from fitplug.privacy import check_rho, privacy_cost_at
from fitplug.proof import (
    LEAST_TOLERANCE,
    WHOLE,
    Ended,
    Frame,
    Tiers,
    certified_bound,
    dual_sizes,
    one_tier,
    pack_duals,
)
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
        raise InputError(f"solver = {solver!r} is unknown; {suggest_nearest(solver, SOLVERS)}")
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
    with guard_linear_algebra(passing):
        structure = analyse_structure(workload, varying, family)
        budgets = None if given is None else given.over(structure)
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
    draft = _split_apart if structure.ordered else _exact
    drafted = draft(structure, objective, options, _ROUNDING_SHARE * tolerance)
    strategy, (p, q, frame) = drafted.strategy, drafted.duals
    if budget is None and objective.budgets is None:
        noise_std, scale = _noise_for_targets(strategy, structure.targets), 1.0
    else:
        noise_std, scale = _noise_for_budget(strategy, structure.targets, budget, objective.budgets)
    objective = objective.at(scale)
    bound = certified_bound(structure, objective, scale, p, q, frame)
    if not bound > 0:
        raise DesignError("no lower bound could be certified; the targets are too far apart")
    return Plan(
        workload=structure.workload,
        strategy=strategy,
        objective=objective,
        noise_std=noise_std,
        scale=scale,
        lower_bound=bound * (1 - (SPLIT_MARGIN if structure.ordered else CLAIM_MARGIN)),
        p=p,
        q=q,
        frame=frame,
        weights=drafted.tiers,
        tolerance=tolerance,
        iterations=drafted.iterations,
        ended=drafted.ended,
    )


@dataclass(frozen=True, eq=False)
class _Draft:
    """A strategy with the dual weights that say how good it is."""

    strategy: Strategy
    duals: tuple[FloatArray, FloatArray, Frame]
    tiers: Tiers
    iterations: int
    ended: Ended


def _exact(structure: Structure, objective: Objective, options: Options, loss: float) -> _Draft:
    """The optimum."""
    found = find_optimum(structure, objective, options)
    strategy = integer_strategy(
        structure,
        found.reals,
        found.independent,
        objective=objective,
        upper=found.upper,
        loss=loss,
    )
    tiers = found.tiers.covering(strategy.column_squares > 0)
    return _Draft(strategy, (found.p, found.q, WHOLE), tiers, found.iterations, found.ended)


def _split_apart(
    structure: Structure, objective: Objective, options: Options, loss: float
) -> _Draft:
    """The best of the residual family, for the plain objective."""
    assert objective.plain
    found = solve_residual(
        structure,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    strategy = split_strategy(found, loss=loss)
    duals, _bound = ascend_bound(found.batched, found.weights)
    tiers = one_tier(np.ones(1), *reversed(dual_sizes(structure)))
    ended: Ended = "stopped" if found.stopped else "apart"
    return _Draft(strategy, pack_duals(duals), tiers, found.iterations, ended)


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
        if within(strategy.variances(std), 1.0, c):
            return _fitting(std)
        std *= 1 - 2 * UNIT_ROUNDOFF
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
        std *= 1 + 2 * UNIT_ROUNDOFF
    else:
        raise DesignError(_OUT_OF_RANGE)
    _fitting(std)
    variances = strategy.variances(std)
    scale = float((variances / c).max())
    for _ in range(_ULPS):
        if within(variances, scale, c):
            return std, scale
        scale *= 1 + 2 * UNIT_ROUNDOFF
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
