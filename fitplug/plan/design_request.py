"""Requests for a design: the arguments of `fitplug.design`, checked, and the rules between them.

Most arguments are independent of each other. These are not:

1. The budget is `rho`, or `epsilon` with `delta`, or nothing.
2. `solver="sm2"` needs the optimum over all cells that are distinguished. `cell_budgets` and
   `total_error_weight` need this optimum or the family of trees. The product family, in which
   attributes whose product is too large are split, knows only the plain privacy cost and the dual
   solver. So a workload that needs the product family is refused with one of these arguments,
   although it can be designed without them.
3. `solver="sm2"` knows no blocks, so it tells the cells of every attribute apart. `cell_budgets`
   tell the cells of those attributes apart along which they differ.
4. A unit of privacy other than `AddRemove(records=k)`, k records anywhere, goes with none of the
   arguments of rule 2.
5. `refine` has no effect with `solver="sm2"`, with a weight on the total error, in the product
   family, in the family of trees, with a unit of rule 4, or over more than 4,096 cells.
6. `periods` needs the optimum of rule 2, and goes neither with `ReplaceOne` nor with `coverage`,
   which needs the unit `AddRemove(records=k)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

from fitplug.domain import list_measures, list_names_without_other
from fitplug.errors import BudgetError, InputError, WorkloadError, check_type, suggest_nearest
from fitplug.families import (
    CellBudgets,
    IntegerStrategy,
    Objective,
    Structure,
    analyse_structure,
    check_weight,
    read_cell_budgets,
)
from fitplug.numeric import UNIT_ROUNDOFF, ExactNumber, FloatArray, floor_float
from fitplug.plan.coverage import Coverage, check_coverage
from fitplug.plan.plan_record import LEAST_TOLERANCE
from fitplug.privacy import DiscreteNoise, check_budget, read_rho, rho_of_budget
from fitplug.solve import SOLVERS, GapProgress, Options, Solver
from fitplug.workload import (
    ONE_RECORD,
    AddRemove,
    ReplaceOne,
    Unit,
    Workload,
    allows_any_rows,
    check_unit,
)

ROUNDING_SHARE = 0.1
"""The share of the tolerance, in Delta, that rounding to integers may use up."""


@dataclass(frozen=True, eq=False)
class DesignRequest:
    """The checked arguments of a design.

    Attributes:
        workload: The query groups and their targets.
        unit: The unit of privacy.
        rho: The rho to spend, or None without a budget. For a budget in epsilon it is the most rho;
            `find_rho` may return less.
        epsilon_delta: The budget as (epsilon, delta), if it was given so.
        cell_budgets: The largest privacy cost squared of each cell, or None.
        total_error_weight: The weight lambda of the total squared error.
        tolerance: The largest acceptable gap of rho, rounding to integers included.
        coverage: Whether records outside the domain are counted.
        options: The solver's options.
    """

    workload: Workload
    unit: Unit
    rho: float | None
    epsilon_delta: tuple[float, float] | None
    cell_budgets: CellBudgets | None
    total_error_weight: float
    tolerance: float
    coverage: bool
    options: Options

    @property
    def unit_shapes_structure(self) -> bool:
        """Whether the structure depends on the unit: it is not k records anywhere."""
        return not allows_any_rows(self.unit)

    @property
    def rounding_loss(self) -> float:
        """The relative loss of Delta that rounding to integers is allowed."""
        return ROUNDING_SHARE * convert_gap(self.tolerance)

    def build_structure(self) -> Structure:
        """Analyse the workload's symmetry, by rules 2, 3 and 6 of this module.

        Raises:
            WorkloadError: The workload is too large; the message names the arguments that make it
                so.
        """
        needing, is_causal = self.list_arguments_for_optimum(), self.options.periods is not None
        if is_causal:
            needing.append("periods")
        try:
            return analyse_structure(
                self.workload,
                self._list_distinct_attributes(),
                False if needing else None,
                tree=() if is_causal or self.options.solver == "sm2" else None,
                # k records are designed for as one, and multiplied afterwards.
                unit=self.unit if self.unit_shapes_structure else ONE_RECORD,
            )
        except WorkloadError as error:
            if needing and _can_be_analysed(self.workload):
                raise WorkloadError(
                    f"{str(error).rstrip('.')}, or remove {' and '.join(needing)}."
                ) from None
            raise

    def find_rho(self, strategy: IntegerStrategy[Structure]) -> float | None:
        """Find the rho to spend on this strategy, or None if no budget is given.

        A budget in epsilon may allow less than `rho`: the discrete noise loses more than the
        Gaussian curve where sigma is small, as it is with few answers. The loss is computed at the
        sigma of `rho`, and it is no larger at the larger sigma that is then used.
        """
        if self.rho is None or self.epsilon_delta is None:
            return self.rho
        noise_std = strategy.sensitivity / math.sqrt(2 * self.rho) * (1 - 2 * UNIT_ROUNDOFF)
        of_coverage = Coverage.from_strategy(strategy).size if self.coverage else 0
        noise = DiscreteNoise(noise_std, strategy.size + of_coverage)
        return min(self.rho, rho_of_budget(*self.epsilon_delta, noise.loss))

    def build_objective(self, structure: Structure) -> Objective:
        """Build the objective over the dense cells of the structure.

        Raises:
            BudgetError: A cell that some query counts has a budget of zero or out of range.
        """
        if self.cell_budgets is None:
            return Objective(None, self.total_error_weight)
        budgets: FloatArray = self.cell_budgets.reduce_to_differences(structure)
        if self.rho is not None:
            budgets = np.minimum(budgets, floor_float(2 * Fraction(self.rho)))
        return Objective(budgets, self.total_error_weight)

    def list_arguments_for_optimum(self) -> list[str]:
        """List the given arguments that need the optimum over all cells, by rule 2."""
        given = {
            'solver="sm2"': self.options.solver == "sm2",
            "cell_budgets": self.cell_budgets is not None,
            "total_error_weight": self.total_error_weight > 0,
        }
        return [name for name, is_given in given.items() if is_given]

    def _list_distinct_attributes(self) -> tuple[str, ...]:
        """List the attributes whose cells the arguments distinguish, by rules 3 and 6."""
        if self.options.solver == "sm2":
            return self.workload.attributes
        periods = self.options.periods
        varying = () if self.cell_budgets is None else self.cell_budgets.varying
        return (*varying, *(() if periods is None else (periods,)))


def check_request(
    workload: Workload,
    *,
    unit: Unit,
    periods: str | None,
    rho: ExactNumber | None,
    epsilon: float | None,
    delta: float | None,
    cell_budgets: Any,
    total_error_weight: float,
    tolerance: float,
    solver: Solver,
    refine: bool,
    max_iterations: int,
    coverage: bool,
    progress: GapProgress | None,
) -> DesignRequest:
    """Check the arguments of `fitplug.design`, whose docstring describes them.

    Raises:
        BudgetError: A number is out of range, or rule 1 of this module is broken.
        DomainError: The unit names an attribute that the domain does not have.
        InputError: `unit`, `refine`, `coverage`, `progress` or `solver` is of the wrong kind.
        TypeError: The workload has the wrong type.
    """
    check_type("workload", workload, Workload, "fitplug.design(workload)")
    budget = _read_budget(rho, epsilon, delta)
    if not isinstance(tolerance, Real) or not LEAST_TOLERANCE <= tolerance < 1:
        raise BudgetError(f"tolerance must be at least 1e-9 and below 1, not {tolerance!r}")
    integral = isinstance(max_iterations, Integral) and not isinstance(max_iterations, bool)
    if not integral or max_iterations < 1:
        raise BudgetError(
            f"max_iterations must be an integer of at least 1, not {max_iterations!r}"
        )
    if not isinstance(refine, (bool, np.bool_)):
        raise InputError(f"refine must be True or False, not {refine!r}")
    if not isinstance(coverage, (bool, np.bool_)):
        raise InputError(f"coverage must be True or False, not {coverage!r}")
    if progress is not None and not callable(progress):
        raise InputError(
            f"progress must be a function of the number of iterations and the gap, not {progress!r}"
        )
    if solver not in SOLVERS:
        raise InputError(f"unknown solver {solver!r}. {suggest_nearest(solver, SOLVERS)}")
    if not isinstance(unit, AddRemove | ReplaceOne):
        raise InputError(f"unit must be a unit of privacy, such as fp.AddRemove(), not {unit!r}")
    check_unit(unit, workload.domain)
    # Rounding to integers takes its share of the tolerance, and the bound that measures this loss
    # may lose as much again.
    options = Options(
        solver=solver,
        tolerance=(1 - 2 * ROUNDING_SHARE) * convert_gap(tolerance),
        max_iterations=int(max_iterations),
        refine=bool(refine),
        progress=progress,
        periods=periods,
    )
    request = DesignRequest(
        workload=workload,
        unit=unit,
        rho=budget,
        epsilon_delta=None if epsilon is None or delta is None else (epsilon, delta),
        total_error_weight=check_weight(total_error_weight),
        cell_budgets=(
            None if cell_budgets is None else read_cell_budgets(workload.domain, cell_budgets)
        ),
        tolerance=tolerance,
        coverage=bool(coverage),
        options=options,
    )
    if request.unit_shapes_structure and (needing := request.list_arguments_for_optimum()):
        raise BudgetError(
            f"{needing[0]} cannot be combined with the unit of privacy {unit!r}. Remove "
            f"{needing[0]}."
        )
    if periods is not None:
        _check_periods(periods, workload, unit)
    if coverage:
        check_coverage(workload, unit)
        if periods is not None:
            raise BudgetError(
                "the settings 'coverage' and 'periods' cannot be combined. Remove one of them."
            )
    return request


def convert_gap(gap: float) -> float:
    """Convert a gap of rho to the gap of Delta: rho is Delta^2 / 2."""
    return math.expm1(math.log1p(gap) / 2)


def _check_periods(periods: str, workload: Workload, unit: Unit) -> None:
    """Check that a strategy can be causal along an attribute, by rule 6 of this module.

    Raises:
        InputError: The workload does not use the attribute, it is a measure, it has only one cell,
            or one of its cells is not a period.
        BudgetError: The unit makes totals public that are known only at the end.
    """
    if periods not in workload.attributes:
        raise InputError(
            f"periods = {periods!r} must be the name of an attribute that the queries use. "
            f"{suggest_nearest(str(periods), workload.attributes)}"
        )
    if list_measures(workload.domain, [periods]):
        raise InputError(f"periods = {periods!r} is a measure. Name another attribute.")
    if workload.domain[periods].size == 1:
        raise InputError(f"periods = {periods!r} has only one cell. Remove the setting 'periods'.")
    if not list_names_without_other(workload.domain, (periods,)):
        raise InputError(
            f"periods = {periods!r} has a cell for all other values. Remove the setting 'other' "
            "from the attribute."
        )
    if isinstance(unit, ReplaceOne):
        raise BudgetError(
            f"the setting 'periods' cannot be combined with the unit of privacy {unit!r}. Design "
            "for fp.AddRemove(records=2)."
        )


def _read_budget(
    rho: ExactNumber | None, epsilon: float | None, delta: float | None
) -> float | None:
    """Return the rho to spend, as the largest float below it, or None if no budget is given."""
    check_budget(rho, epsilon, delta)
    if rho is not None:
        # The charge for the plan is exactly a float, so it fits into a budget of this rho.
        return floor_float(read_rho(rho))
    if epsilon is None or delta is None:
        return None
    return rho_of_budget(epsilon, delta)


def _can_be_analysed(workload: Workload) -> bool:
    """Tell whether the workload can be designed for the plain privacy cost."""
    try:
        analyse_structure(workload)
    except WorkloadError:
        return False
    return True
