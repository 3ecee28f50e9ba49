"""The record of a plan, and all that can be computed from the plan alone.

Verification and plan files use this record; `fitplug.plan.Plan` is the facade above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from fitplug.certify import Ended, Tier, TierClaims, Tiers
from fitplug.domain import Domain
from fitplug.errors import BudgetError, DesignError
from fitplug.families import (
    MAX_AXES,
    Duals,
    IntegerStrategy,
    Objective,
    Structure,
    certify_bound,
    find_family,
)
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    ceil_float,
    floor_float,
    floor_written,
    freeze,
    guard_linear_algebra,
    read_exact_number,
)
from fitplug.plan.coverage import Coverage
from fitplug.privacy import DiscreteNoise, delta_at, epsilon_at
from fitplug.workload import (
    ArraysByGroup,
    BoundUnit,
    Unit,
    Workload,
    allows_any_rows,
    select_largest_sets,
)

ByGroup: TypeAlias = Mapping[str, AnyArray]

LEAST_TOLERANCE = 1e-9
"""The smallest tolerance, a relative gap of rho. A smaller gap is lost in rounding."""


@dataclass(frozen=True, eq=False)
class Proof:
    """What proves the lower bound of a plan, and how the design that found it ended.

    Attributes:
        duals: The dual weights that prove the bound.
        tiers: The dual weights of the further tiers; see `PlanRecord.tiers`.
        iterations: The number of iterations of the design.
        ended: Why the design ended.
    """

    duals: Duals
    tiers: Tiers
    iterations: int
    ended: Ended


@dataclass(frozen=True, eq=False)
class PlanRecord:
    """The content of a plan, which cannot be changed.

    Attributes:
        workload: The queries and targets for which the plan was designed.
        strategy: The integer queries to which noise is added.
        objective: What the design minimised: the privacy cost, or another quantity if
            `cell_budgets` or `total_error_weight` were given.
        noise_std: sigma of the strategy's discrete Gaussian noise.
        scale: k of the paper's Problem 2; variances are at most scale * targets. It is 1.0 unless
            a budget or cell budgets were given.
        lower_bound: A certified lower bound on Delta: no mechanism that meets scale * targets with
            Gaussian noise has a lower privacy cost. `rho_lower_bound` is the same bound in rho. If
            the design minimised another quantity, `lower_bound` is a lower bound on that quantity.
        proof: The weights that prove the lower bound, and how the design ended.
        tolerance: The largest gap that the design was asked for.
        has_coverage: Whether releases also estimate the numbers of rows outside the domain.
    """

    workload: Workload
    strategy: IntegerStrategy[Structure]
    objective: Objective
    noise_std: float
    scale: float
    lower_bound: float
    proof: Proof
    tolerance: float
    has_coverage: bool = False

    def __post_init__(self) -> None:
        freeze(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self)  # unpickled arrays may be written to

    @property
    def domain(self) -> Domain:
        """The workload's domain."""
        return self.workload.domain

    @property
    def unit(self) -> Unit:
        """The unit of privacy. All costs and the profile are for one person in this unit."""
        return self.strategy.structure.unit

    @property
    def bound_unit(self) -> BoundUnit:
        """The unit of privacy with the plan's cells, to compare the claims of two plans."""
        return BoundUnit.bind(self.unit, self.domain, self.workload.attributes)

    @cached_property
    def rho_exact(self) -> Fraction:
        """rho of zCDP for one person in the unit of privacy, without rounding.

        This is the exact cost, or an upper bound on it if `overstatement` is above 0.
        """
        return self.strategy.compute_rho(self.noise_std)

    @cached_property
    def rho(self) -> float:
        """rho of zCDP for one person in the unit of privacy: `rho_exact`, rounded up.

        The sensitivity is rounded up first, as in OpenDP's privacy map. A ledger may be charged
        the decimal that Python prints for rho. So that this decimal also covers the costs per cell,
        rho is rounded up to the next float where needed.
        """
        bound = self.strategy.upper_rho(self.noise_std)
        read = read_exact_number(bound)  # None is infinity
        if read is None or read >= Fraction(ceil_float(self.rho_exact)):
            return bound
        return math.nextafter(bound, math.inf)

    @cached_property
    def privacy_cost(self) -> float:
        """Delta of the integer mechanism, rounded up; its square is at least twice `rho_exact`."""
        cost = ceil_float(Fraction(self.strategy.sensitivity) / Fraction(self.noise_std))
        # Squaring rounds to nearest, so the square might be below the largest entry of the profile.
        return cost if cost * cost >= 2 * self.rho_exact else math.nextafter(cost, math.inf)

    @cached_property
    def overstatement(self) -> float:
        """An upper limit on the relative excess of `privacy_cost` over the exact cost.

        This is 0 if `privacy_cost` is exact. If neighbouring data sets can differ in too many ways
        to try them all, `privacy_cost` is only an upper limit on the exact cost.
        """
        return self.strategy.upper_overstatement()

    @property
    def rho_lower_bound(self) -> float:
        """The certified bound in rho, rounded down.

        No mechanism that meets scale * targets with Gaussian noise has a lower rho.

        Raises:
            DesignError: The plan minimises something other than rho.
        """
        if not self.objective.plain:
            raise DesignError(
                "a plan with cell_budgets or total_error_weight has no lower bound on rho. Use "
                "plan.gap."
            )
        return floor_written(Fraction(self.lower_bound) ** 2 / 2)

    @cached_property
    def gap(self) -> float:
        """rho / rho_lower_bound - 1, rounded up: how far rho may exceed the least possible.

        The gap includes the cost of rounding to integers. If the design minimised something other
        than rho, the gap is (objective / lower_bound) ** 2 - 1, where `objective` is what it
        minimised.
        """
        if self.objective.plain:
            ratio = Fraction(self.rho) / Fraction(self.rho_lower_bound)
        else:
            ratio = (Fraction(evaluate_objective(self)) / Fraction(self.lower_bound)) ** 2
        return ceil_float(ratio - 1)

    @cached_property
    def noise(self) -> DiscreteNoise:
        """The noise on each integer answer of a release."""
        of_coverage = 0 if self.coverage is None else self.coverage.size
        return DiscreteNoise(self.noise_std, self.strategy.size + of_coverage)

    @cached_property
    def coverage(self) -> Coverage | None:
        """The answers about rows outside the domain; None if the plan has no such answers."""
        return Coverage.from_strategy(self.strategy) if self.has_coverage else None

    def epsilon(self, delta: float) -> float:
        """Compute epsilon at delta for one person in the unit of privacy.

        epsilon comes from the exact privacy curve of continuous Gaussian noise, which is proven to
        hold for the plan's discrete noise, too (docs/theory/privacy.md, Theorem 4).

        Args:
            delta: The delta of (epsilon, delta) differential privacy.

        Returns:
            epsilon, rounded up.

        Raises:
            BudgetError: delta does not lie between 0 and 1.

        Example:
            >>> total = fp.Workload(domain, [fp.total(std=10)])
            >>> f"{fp.design(total, unit=fp.AddRemove()).epsilon(1e-9):.3f}"
            '0.535'
        """
        return epsilon_at(self.privacy_cost, delta, self.noise.loss)

    def delta(self, epsilon: float) -> float:
        """Compute delta at epsilon for one person in the unit of privacy, as `epsilon` does.

        Args:
            epsilon: The epsilon of (epsilon, delta) differential privacy.

        Returns:
            delta, rounded up.

        Raises:
            BudgetError: epsilon is not a number of at least 0.
        """
        return delta_at(self.privacy_cost, epsilon, self.noise.loss)

    @cached_property
    def variances(self) -> ByGroup:
        """For each group, an array of its shape: the variance of each answer, rounded up."""
        return self.strategy.structure.group_values(self.strategy.upper_variances(self.noise_std))

    @cached_property
    def targets(self) -> ByGroup:
        """For each group, an array of its shape: the target variance of each answer."""
        return ArraysByGroup(self.workload, self._read_targets)

    def _read_targets(self, g: int) -> FloatArray:
        return self.workload.groups[g].variances

    @cached_property
    def tables(self) -> tuple[tuple[str, ...], ...]:
        """The sets of attributes whose exact tables the mechanism needs."""
        needed = dict.fromkeys(self.strategy.list_tables())
        # Together the tables name every attribute of the workload, needed for the answers or not,
        # because a record outside the domain on any of them must be left out of all tables.
        named = {name for names in needed for name in names}
        for group in self.workload.groups if not named.issuperset(self.workload.attributes) else ():
            if not named.issuperset(group.attributes):
                needed[self.domain.ordered(group.attributes)] = None
                named.update(group.attributes)
        return select_largest_sets(needed)

    def profile(self) -> FloatArray:
        """Compute the squared privacy cost of each cell, rounded up.

        Returns:
            An array that broadcasts to the domain's shape. The axis of an attribute has length 1 if
            all cells of the attribute cost the same, by symmetry or because no query uses the
            attribute. In a domain of more than 64 attributes, such an attribute has no axis. The
            maximum of the array is privacy_cost ** 2. In the product family, which distinguishes no
            cells, every cell has this maximum.
        """
        structure = self.strategy.structure
        varying = structure.profile_attributes
        cost = self.strategy.upper_profile(self.noise_std)
        names = varying if len(self.domain.names) > MAX_AXES else self.domain.names
        shape = [self.domain[name].size if name in varying else 1 for name in names]
        return structure.arrange_by_cell(cost).reshape(shape)

    def unused_budget(self) -> FloatArray:
        """Compute how far each cell's cost is below the plan's cost: privacy_cost ** 2 - profile.

        Pass the result to `fitplug.design` as `cell_budgets`, with the same unit of privacy, to
        make a second plan that costs nothing more: in every cell, the profiles of both plans add up
        to at most twice this plan's rho.

        Returns:
            Numbers >= 0, rounded down, of the shape of `profile`. They are 0 in the product
            family, which distinguishes no cells.

        Raises:
            BudgetError: The unit is not `AddRemove`, or it has `distinct` or `once_per`: a person
                then changes several cells together, and the unused budgets of single cells do not
                limit this change. Or the plan has coverage, so no budget is left for rows outside
                the domain.
        """
        if self.has_coverage:
            raise BudgetError("a plan with coverage has no unused budget. Design without coverage.")
        if not allows_any_rows(self.unit):
            raise BudgetError(
                f"a plan for this unit of privacy ({self.unit}) has no unused budget. Design for "
                "fp.AddRemove(records=k)."
            )
        most = floor_float(2 * self.rho_exact)
        return np.maximum((most - self.profile()) * (1 - 2 * UNIT_ROUNDOFF), 0.0)

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers of the profile in the paper's refined privacy ordering, the costliest first.

        Each tier is a set of cells, and has a certified lower bound on the largest cost of these
        cells. Cells that no query counts are in no tier.
        """
        duals, further = self.proof.duals, self.proof.tiers
        claims = TierClaims(
            profile=self.objective.divide_by_budgets(self.strategy.upper_profile(self.noise_std)),
            excess=self.objective.upper_excess(self.strategy.upper_total_variance(self.noise_std)),
            lower_bound=self.lower_bound,
            tiers=Tiers(
                further.of_cell, np.vstack([duals.p, further.p]), np.vstack([duals.q, further.q])
            ),
        )
        structure = self.strategy.structure

        def lower_bound_at(p: FloatArray, q: FloatArray) -> float:
            weights = Duals(p, q, duals.frame)
            return certify_bound(structure, self.objective, self.scale, weights)

        with guard_linear_algebra():
            certifier = find_family(structure).certifier
            return tuple(certifier.certify_tiers(claims, lower_bound_at))


def evaluate_objective(plan: PlanRecord) -> float:
    """Compute the value of the plan's objective, rounded up: the privacy cost or another one."""
    return plan.objective.evaluate(
        plan.privacy_cost,
        plan.strategy.upper_profile(plan.noise_std),
        plan.strategy.upper_total_variance(plan.noise_std),
    )
