"""What a plan consists of, and what follows from it alone.

Verification and plan files take this record; `fitplug.plan.Plan` is the facade above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from fitplug.domain import Domain
from fitplug.mechanism import Strategy
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    ceil_float,
    floor_float,
    freeze,
    guard_linear_algebra,
)
from fitplug.privacy import Method, delta_at, epsilon_at
from fitplug.proof.certificate import Frame, certified_bound
from fitplug.proof.tiers import Tier, Tiers, certified
from fitplug.structure import MAX_AXES, Objective, Structure
from fitplug.workload import Workload, select_largest_sets

ByGroup: TypeAlias = Mapping[str, AnyArray]
Ended: TypeAlias = Literal["reached", "exhausted", "stopped", "apart"]

LEAST_TOLERANCE = 1e-9
"""Of the relative gap: less is lost in rounding."""


@dataclass(frozen=True, eq=False)
class PlanRecord:
    """The content of a plan; immutable.

    workload: the queries and targets it was designed for.
    strategy: the integer strategy that runs. noise_std: sigma of its discrete Gaussian noise.
    objective: what was made least, beyond the plain privacy cost.
    scale: k of the paper's Problem 2; variances are at most scale * targets. 1.0 when accuracy
        was prioritised.
    lower_bound: certified; no mechanism meeting scale * targets with Gaussian noise costs less.
        With another objective than the plain one, a bound on that; see `cost`.
    p, q: the dual weights that prove it, over the dense cells (D,) and rows (m,) of the
        strategy's structure; products of them in the residual family, whose norm is pinched in
        `frame`.
    weights: the dual weights of the further tiers; see `tiers`.
    tolerance: what was asked of the solver. iterations: what it took. ended: why it ended.
    """

    workload: Workload
    strategy: Strategy
    objective: Objective
    noise_std: float
    scale: float
    lower_bound: float
    p: FloatArray
    q: FloatArray
    frame: Frame
    weights: Tiers
    tolerance: float
    iterations: int
    ended: Ended

    def __post_init__(self) -> None:
        freeze(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self)  # unpickled arrays may be written to

    @property
    def domain(self) -> Domain:
        return self.workload.domain

    @property
    def structure(self) -> Structure:
        """The symmetry of the workload, and the blocks that it leaves."""
        return self.strategy.structure

    @cached_property
    def rho_exact(self) -> Fraction:
        """rho of zCDP for one record added or removed, exact."""
        return self.strategy.rho_exact(self.noise_std)

    @cached_property
    def rho(self) -> float:
        """`rho_exact` rounded up through the rounded sensitivity, as OpenDP's map does."""
        return self.strategy.rho(self.noise_std)

    @cached_property
    def privacy_cost(self) -> float:
        """Delta of the integer mechanism, rounded up, and its square too."""
        cost = ceil_float(Fraction(self.strategy.sensitivity) / Fraction(self.noise_std))
        # The square of a float rounds to the nearest: it might be below the profile's largest.
        return cost if cost * cost >= 2 * self.rho_exact else math.nextafter(cost, math.inf)

    @cached_property
    def cost(self) -> float:
        """What was made least: the privacy cost, or with cell budgets or a weight on the total
        squared error the value of that objective (see `fitplug.structure.objective`), rounded up.
        """
        return self.objective.value(
            self.privacy_cost,
            self.strategy.profile(self.noise_std),
            self.strategy.total_variance(self.noise_std),
        )

    @property
    def gap(self) -> float:
        """cost / lower_bound - 1, rounding to integers included; cost is the privacy cost unless
        another objective was asked for.
        """
        return self.cost / self.lower_bound - 1

    def epsilon(self, delta: float, method: Method = "gaussian") -> float:
        """Least epsilon at delta: the exact Gaussian curve, or with method="zcdp" the conversion
        from rho that is proven for the discrete noise. Raises BudgetError.
        """
        return epsilon_at(self.privacy_cost, delta, method)

    def delta(self, epsilon: float, method: Method = "gaussian") -> float:
        """Least delta at epsilon; see `epsilon`. Raises BudgetError."""
        return delta_at(self.privacy_cost, epsilon, method)

    @cached_property
    def variances(self) -> ByGroup:
        """Variance of each answer, rounded up; per group, of the group's shape."""
        return self.structure.by_group(self.strategy.variances(self.noise_std))

    @cached_property
    def targets(self) -> ByGroup:
        """Variance asked of each answer; per group, of the group's shape."""
        return MappingProxyType({g.name: g.variances for g in self.workload.groups})

    @cached_property
    def tables(self) -> tuple[tuple[str, ...], ...]:
        """Attribute sets whose exact counts the mechanism needs."""
        needed: dict[tuple[str, ...], None] = {}
        for family in self.strategy.block_sets:
            for block in family.blocks.tolist():
                needed |= dict.fromkeys(sorted(family.basis.tables(self.structure, block)))
        # Together they name every attribute the workload uses, even where the answers would not
        # need one: a record outside the domain on it must be left out of all tables.
        named = {name for names in needed for name in names}
        for group in self.workload.groups:
            if not named.issuperset(group.attributes):
                needed[self.domain.ordered(group.attributes)] = None
                named.update(group.attributes)
        return select_largest_sets(needed)

    def profile(self) -> FloatArray:
        """Privacy cost squared of each cell, rounded up, broadcastable to the domain's shape:
        attributes whose cells all cost the same, since no query uses them or by symmetry, have one
        cell here (and no axis in a domain of more attributes than an array has axes, 64). Its
        maximum is privacy_cost ** 2. In the residual family, which tells no cells apart, it is that
        everywhere, and `slack` is 0.
        """
        dense = self.structure.dense
        names = dense if len(self.domain.names) > MAX_AXES else self.domain.names
        shape = [self.domain[n].size if n in dense else 1 for n in names]
        return self.strategy.profile(self.noise_std).reshape(shape)

    def slack(self) -> FloatArray:
        """What each cell has left below the plan's cost: privacy_cost ** 2 - profile, rounded
        down, >= 0; of the shape of `profile`. As cell_budgets of another design it makes queries
        for free: at no cell do both profiles come to more than twice this plan's rho.
        """
        most = floor_float(2 * self.rho_exact)
        return np.maximum((most - self.profile()) * (1 - 2 * UNIT_ROUNDOFF), 0.0)

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers of the profile in the paper's refined privacy ordering, the costliest first.

        Cells that no query counts are in none. Computed from the dual weights: a singular value
        decomposition for each tier.
        """
        if self.structure.ordered:  # no cells are told apart
            level = self.strategy.profile(self.noise_std)[0]
            return (Tier(1, float(level), self.lower_bound**2 * (1 - 4 * UNIT_ROUNDOFF)),)
        duals = Tiers(
            self.weights.of_cell,
            np.vstack([self.p, self.weights.p]),
            np.vstack([self.q, self.weights.q]),
        )
        profile = self.objective.relative(self.strategy.profile(self.noise_std))
        excess = self.objective.excess(self.strategy.total_variance(self.noise_std))
        with guard_linear_algebra():
            return tuple(certified(self.bound_at, profile, excess, duals))

    def bound_at(self, p: FloatArray, q: FloatArray) -> float:
        """The certified lower bound that dual weights p and q give, of the plan's shapes; any will
        do.
        """
        return certified_bound(self.structure, self.objective, self.scale, p, q, self.frame)
