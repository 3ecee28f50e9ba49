"""Verification: a plan's claims, recomputed from what it contains by code that knows no solver.

Every claim must equal the recomputed value. Integers must be equal exactly. Floats, which another
machine may round differently, may be off to the safe side, relatively by at most LOOSEST. The
requested tolerance, the iterations and the way the design ended are for information: no claim
depends on them.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import get_args

import numpy as np

from fitplug.certify import Ended, Tiers
from fitplug.errors import BAD_PROOF, BudgetError, DesignError, PlanError
from fitplug.families import (
    FEWEST_RECORDS,
    LARGEST_NOISE,
    LEAST_NOISE,
    Frame,
    Objective,
    certify_bound,
    find_family,
    meets_targets,
)
from fitplug.numeric import AnyArray
from fitplug.plan.plan_record import LEAST_TOLERANCE, PlanRecord, evaluate_objective
from fitplug.plan.unbiasedness import check_unbiasedness

LOOSEST = 1e-8
"""How much worse than what is recomputed a claim in floats may be, relatively: ten times the widest
margin that designs leave for other machines."""

REPLACE = "Design the plan again, or get an unchanged copy of the file."

_BAD_CELL_COSTS = "the plan's proof of its costs per cell does not fit its cells"

QUICK_WORK = 2**31
"""The work that takes about a second: rows times cells, times the smaller of the two numbers."""


def describe_failure(error: PlanError) -> str:
    """Say what to do about a plan whose check failed, and which check it was."""
    return f"the plan fails its check: {str(error).rstrip('.')}. {REPLACE}"


def check_form(plan: PlanRecord) -> None:
    """Check that every part has the shape, type and range that it must have.

    Raises:
        PlanError: If a part has another shape or type, or is out of range.
    """
    structure, strategy = plan.strategy.structure, plan.strategy
    m, d = structure.rows, structure.profile_size
    strategy.check_form()
    fits = LEAST_NOISE <= plan.noise_std <= LARGEST_NOISE
    if not fits or not all(0 < number < math.inf for number in (plan.scale, plan.lower_bound)):
        raise PlanError("the plan's noise, lower bound or scale of targets is out of range")
    unit, squares = strategy.unit_variances, strategy.column_squares
    if unit.shape != (m,) or unit.dtype != np.float64 or not (unit >= 0).all():
        raise PlanError("the plan does not have exactly one variance for each query")
    if squares.shape != (d,) or squares.dtype != np.float64 or not (squares >= 0).all():
        raise PlanError("the plan does not have exactly one privacy cost for each cell")
    fits = LEAST_TOLERANCE <= plan.tolerance < 1 and plan.proof.iterations >= 0
    fits = fits and plan.proof.ended in get_args(Ended)
    if not fits or type(plan.has_coverage) is not bool:
        raise PlanError("the plan's tolerance, iterations, status or coverage is not valid")
    if type(plan.proof.duals.frame) is not Frame:
        raise PlanError(BAD_PROOF)
    certifier = find_family(structure).certifier
    certifier.check_form(structure, plan.objective, plan.proof.duals.frame)
    _check_objective(plan.objective, d)
    _check_tiers(plan.proof.tiers, d, *certifier.count_duals(structure))


def check_privacy(plan: PlanRecord) -> None:
    """Check that the plan claims the privacy cost of the integers that will run.

    Raises:
        PlanError: If the plan claims another cost, profile or number of records than the integers
            have, if they hold too few records, if the tiers leave out cells that cost something, or
            if the profile exceeds the cell budgets.
    """
    strategy = plan.strategy
    exact, above, records = strategy.confirm_cost()
    if exact != strategy.sensitivity_squared:
        raise PlanError("the plan's stated privacy cost differs from its actual privacy cost")
    if strategy.max_records != records:
        raise PlanError(
            "the number of rows that the plan can count differs from the number it states"
        )
    if records < FEWEST_RECORDS:
        raise PlanError(f"the plan's integers may overflow with {FEWEST_RECORDS:,} rows")
    if not _is_claimed(strategy.column_squares, above):
        raise PlanError("the actual privacy cost of some cell differs from the plan's stated cost")
    if not np.array_equal(plan.proof.tiers.of_cell < 0, above == 0):
        raise PlanError(_BAD_CELL_COSTS)
    try:
        coverage = plan.coverage
    except BudgetError as error:
        raise PlanError(str(error)) from None
    # k records outside the domain, or some outside and some inside, cost no more than k inside
    if coverage and coverage.sensitivity_squared * plan.strategy.structure.changes**2 > exact:
        raise PlanError("rows outside the domain cost more than the plan states")
    budgets = plan.objective.budgets
    if budgets is not None and not (strategy.upper_profile(plan.noise_std) <= budgets).all():
        raise PlanError("some cell costs more than its budget in cell_budgets")


def verify_on_reading(plan: PlanRecord) -> None:
    """Check every claim of a plan, but of large plans only the form and the privacy cost.

    Raises:
        PlanError: If a claim does not hold; the message says which.
    """
    check_form(plan)
    rows, cells = plan.strategy.structure.rows, plan.strategy.structure.cells
    if rows * cells * min(rows, cells) <= QUICK_WORK:
        verify(plan)
    else:
        check_privacy(plan)


def verify(plan: PlanRecord) -> None:
    """Check every claim of a plan.

    Raises:
        PlanError: If a claim does not hold; the message says which.
    """
    check_form(plan)
    check_privacy(plan)
    structure, strategy = plan.strategy.structure, plan.strategy
    try:
        variances = strategy.upper_unit_variances()
        certified = certify_bound(structure, plan.objective, plan.scale, plan.proof.duals)
    except (DesignError, ValueError) as error:
        raise PlanError(str(error)) from None
    if not _is_claimed(strategy.unit_variances, variances):
        raise PlanError("the plan's stated variances differ from its actual variances")
    reached = strategy.upper_variances(plan.noise_std)
    if not meets_targets(reached, plan.scale, structure.targets):
        raise PlanError("the plan misses at least one of its targets")
    if not plan.scale * (1 - LOOSEST) <= float((reached / structure.targets).max()):
        raise PlanError("the plan multiplies its targets by more than necessary")
    # A mechanism meets the targets at this cost, so no true bound is above it.
    highest = max(certified, plan.lower_bound)
    is_above_rho = plan.objective.plain and Fraction(highest) ** 2 > 2 * plan.rho_exact
    if is_above_rho or not highest <= evaluate_objective(plan):
        raise PlanError("the plan's lower bound is higher than its own cost")
    if not certified * (1 - LOOSEST) <= plan.lower_bound <= certified:
        raise PlanError("the numbers that prove the plan's lower bound do not prove it")
    check_unbiasedness(strategy, reached)


def _is_claimed(bounds: AnyArray, proven: AnyArray) -> bool:
    """Tell whether upper bounds are the proven ones, or above them by LOOSEST at most."""
    return bool(((proven <= bounds) & (bounds <= proven * (1 + LOOSEST))).all())


def _check_objective(objective: Objective, d: int) -> None:
    """Check that budgets and the weight of the total error are in range."""
    budgets = objective.budgets
    if budgets is not None and (budgets.shape != (d,) or not _are_positive(budgets)):
        raise PlanError(
            "the plan does not have exactly one positive number for each cell in cell_budgets"
        )
    if not 0 <= objective.weight < math.inf:
        raise PlanError("the plan's setting 'total_error_weight' is not a number of at least 0")


def _check_tiers(tiers: Tiers, cells: int, d: int, m: int) -> None:
    """Check that tiers are numbered cells, with dual weights of these sizes."""
    of_cell, p, q = tiers.of_cell, tiers.p, tiers.q
    fits = of_cell.dtype == np.int64 and of_cell.shape == (cells,)
    fits = fits and int(of_cell.min()) >= -1 and int(of_cell.max()) <= len(p) + 1
    fits = fits and p.shape == (len(p), d) and q.shape == (len(p), m)
    fits = fits and len(np.unique(of_cell[of_cell >= 0])) == int(of_cell.max()) + 1
    if not fits or not all(_are_weights(x) for x in (p, q)):
        raise PlanError(_BAD_CELL_COSTS)


def _are_weights(rows: AnyArray) -> bool:
    """Tell whether each row holds finite numbers >= 0 that are not all zero."""
    finite = rows.dtype == np.float64 and bool(((rows >= 0) & (rows < math.inf)).all())
    return finite and bool((rows.sum(axis=1) > 0).all())


def _are_positive(values: AnyArray) -> bool:
    """Tell whether values are finite floats above zero."""
    return values.dtype == np.float64 and bool(((values > 0) & (values < math.inf)).all())
