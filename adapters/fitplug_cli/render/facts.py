"""The facts of a plan's report, computed from the plan alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug import baselines
from fitplug.domain import get_codec
from fitplug.errors import DesignError, WorkloadError
from fitplug.families import list_names
from fitplug.plan import NEGLIGIBLE_GAP, GroupRow, Plan, describe_gap, estimate_saving, price_groups
from fitplug.releases import (
    About,
    DisplayRequest,
    Limited,
    choose_method,
    describe_planned_population,
)
from fitplug.workload import ReplaceOne, allows_any_rows, list_measure_rules
from fitplug_cli.render.json_records import compute_rho
from fitplug_cli.render.record_limits import Limit, compare_limits


def format_percent(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{share:.1%}"


def format_factor(value: float) -> str:
    """Format a factor with three digits, or as an integer from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


Progress = Callable[[float, str], object]

RELAXED = 1.1
"""The report shows what this factor on a group's std saves."""

DELTAS = tuple(10.0**-k for k in range(3, 13))
"""The deltas at which the report shows epsilon."""

_BINDING = 1 - 1e-3
"""A query is at its target if its variance is at least this share of it."""

_SLACK = 0.01
"""A cell has room for more counts if its unused budget exceeds this share of twice rho."""

_EVEN = 1 - 5e-4
"""Costs are even if the smallest cost of a cell rounds to 100.0% of the largest."""

_MOST_CELLS = 512
"""The report computes the matrix mechanism for at most this many cells, in a few seconds."""


@dataclass(frozen=True)
class _Mechanism:
    """A mechanism to compare a plan with.

    Attributes:
        name: Its name.
        compute: A function of `fitplug.baselines`.
        weights: The weights of the matrix mechanism; None for other mechanisms.
        needs_one_unit: Whether it compares variances of different answers, which must then be in
            the same units. Dividing variances by their targets removes the units.
    """

    name: str
    compute: Callable[..., Any]
    weights: str | None = None
    needs_one_unit: bool = False


_MECHANISMS = (
    _Mechanism("independent noise per cell", baselines.input_perturbation),
    _Mechanism("Gaussian mechanism, equal noise", baselines.gaussian, None, True),
    _Mechanism("hierarchical mechanism", baselines.hierarchical),
    _Mechanism("matrix mechanism", baselines.matrix_mechanism, "none", True),
    _Mechanism(
        "matrix mechanism, weights 1/target^2", baselines.matrix_mechanism, "inverse_squared", True
    ),
    _Mechanism("matrix mechanism, weights 1/target", baselines.matrix_mechanism, "inverse"),
)


@dataclass(frozen=True)
class Group(GroupRow):
    """The targets of a group, what it gets, and what it costs.

    Attributes:
        binding: The number of its queries that are at their targets.
        price: Its price, see `fitplug.plan.summary`; None if there is none.
        saves: An upper estimate of the share of rho saved if every std of the group is multiplied
            by RELAXED; None without a price.
    """

    binding: int
    price: float | None
    saves: float | None


@dataclass(frozen=True)
class FreeCounts:
    """Counts by one attribute that could be added at no cost, with independent noise.

    Attributes:
        attribute: The attribute.
        cells: The number of its cells whose counts are free.
        of: The number of all its cells.
        least_std: The smallest std of a free count.
        largest_std: The largest std of a free count.
    """

    attribute: str
    cells: int
    of: int
    least_std: float
    largest_std: float


@dataclass(frozen=True)
class UsualMechanism:
    """A common mechanism to compare the plan with.

    Attributes:
        name: Its name.
        factor: The rho with which it meets every target, over the plan's; None if unknown.
        why: Why the factor is unknown.
    """

    name: str
    factor: float | None
    why: str = ""


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts of a plan, with its cost for all rows of a person.

    Attributes:
        plan: The plan.
        delta: The delta at which epsilon is reported.
        groups: The groups of queries.
        usual_mechanisms: Common mechanisms for comparison.
        about: The publisher's description of the release.
        limited: Whether counting enforces the unit of privacy; None for a plan without a spec.
        rows: How rows are weighted and filtered (`Tables.rows`).
        display: What display tables the release gets; None for none.
    """

    plan: Plan
    delta: float
    groups: tuple[Group, ...]
    usual_mechanisms: tuple[UsualMechanism, ...]
    about: About
    limited: Limited | None = None
    rows: str | None = None
    display: DisplayRequest | None = None

    @property
    def display_note(self) -> str | None:
        """What the display tables hold, in a few words; None if there are none."""
        if self.display is None:
            return None
        return f"{choose_method(self.plan)}, biased; totals kept: {len(self.display.totals)}"

    @property
    def population(self) -> str:
        """Which rows would be counted; empty for a plan without a spec."""
        if self.limited is None:
            return ""
        return describe_planned_population(
            self.plan.unit.records, self.limited, self.plan.bound_unit.apart, self.rows
        )

    @property
    def neighbours(self) -> str:
        """A sentence on how neighbouring data sets differ."""
        unit = self.plan.unit
        if isinstance(unit, ReplaceOne):
            fixed = f", except {list_names(unit.within)}" if unit.within else ""
            return (
                f"Neighbouring data sets differ in the values of one row{fixed}. The number of "
                "rows is public."
            )
        if unit.records == 1:
            return "Neighbouring data sets differ by one row."
        most = f"at most {unit.records:,}{self.plan.bound_unit.apart}"
        return f"Neighbouring data sets differ by the rows of one person ({most})."

    @cached_property
    def rho(self) -> float:
        """The rho charged for all rows of a person."""
        return compute_rho(self.plan)

    def epsilon(self, delta: float) -> float:
        """Return epsilon for all rows of a person at a delta."""
        return self.plan.epsilon(delta)

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """What other limits on rows per person cost with the same noise."""
        return compare_limits(self.plan, self.delta)

    @cached_property
    def profile(self) -> npt.NDArray[np.float64]:
        """The squared privacy cost of each distinct cell over the largest, in falling order."""
        profile = self.plan.profile().ravel()
        return np.asarray(np.sort(profile / profile.max())[::-1])

    @property
    def even_note(self) -> str | None:
        """Why there is no chart of the profile; None if there is one."""
        structure = self.plan.strategy.structure
        if structure.asymmetric and not structure.profile_attributes:
            return "No cell costs more than rho. The cost of each single cell was not computed."
        if self.profile[-1] < _EVEN:
            return None
        if self.plan.unit.records == 1:
            return "Every cell costs the same: rho."
        return (
            "Every cell costs the same: rho. The cost of a cell is the largest cost of any person "
            "with a row in the cell."
        )

    @property
    def measure_note(self) -> str:
        """How the cells of measures are charged; empty without measures."""
        if not list_measure_rules(self.plan.workload):
            return ""
        return "No value of a measure costs more privacy than the costlier of its two bounds."

    @property
    def price_note(self) -> str:
        """A caveat on this plan's prices, or why there are none; may be empty."""
        if self.groups[0].price is None:
            return "The shares of rho are not shown for plans with total_error_weight."
        if self.plan.gap <= NEGLIGIBLE_GAP:
            return ""
        return (
            f"This plan is {describe_gap(self.plan)}. The savings are upper limits, because they "
            "include what a better plan for the same targets might save."
        )

    @property
    def nothing_free_note(self) -> str:
        """Why no further count is free although cells cost different amounts."""
        if self.plan.has_coverage:
            return "No further count is free: coverage uses the rest of rho."
        if allows_any_rows(self.plan.unit):
            return "The unused budget is too small for further counts by one attribute."
        return (
            "No further count is free in this unit of privacy, because a person may have rows in "
            "several cells."
        )

    @cached_property
    def free_counts(self) -> tuple[FreeCounts, ...]:
        """The free counts by each attribute. Each is free alone, not all together."""
        plan = self.plan
        if not allows_any_rows(plan.unit) or plan.has_coverage:
            return ()  # a person may also have rows in other cells
        slack = plan.unused_budget()
        counts: list[FreeCounts] = []
        if slack.ndim != len(plan.domain.names):  # more attributes than an array has axes
            return ()
        for name in plan.strategy.structure.profile_attributes:
            if get_codec(plan.domain[name]).quantities:
                continue  # no query counts rows at a bound of a measure
            axis = plan.domain.names.index(name)
            others = tuple(i for i in range(slack.ndim) if i != axis)
            left = slack.min(axis=others)
            # All k rows of a person may be in one cell, whose count costs k^2 over its variance.
            k = plan.strategy.structure.changes
            stds = k / np.sqrt(left[left > _SLACK * plan.privacy_cost**2])
            if len(stds):
                counts.append(
                    FreeCounts(name, len(stds), len(left), float(stds.min()), float(stds.max()))
                )
        return tuple(counts)


def collect_facts(
    plan: Plan,
    *,
    delta: float = 1e-9,
    limited: Limited | None = None,
    rows: str | None = None,
    about: About | None = None,
    display: DisplayRequest | None = None,
    compare: bool = True,
    progress: Progress | None = None,
) -> Facts:
    """Collect the facts of a plan.

    Args:
        plan: The plan.
        delta: The delta at which epsilon is reported.
        limited: Whether counting enforces the unit of privacy.
        rows: How rows are weighted and filtered.
        about: The publisher's description of the release.
        display: What display tables the release gets; None for none.
        compare: Whether to compare the plan with other mechanisms, which may take seconds.
        progress: A function of the share done and the current step.
    """
    report = progress or (lambda share, what: None)
    usual = []
    for i, mechanism in enumerate(_MECHANISMS if compare else ()):
        report(i / len(_MECHANISMS), mechanism.name)
        usual.append(_compare_usual(plan, mechanism))
    groups = _collect_groups(plan)
    return Facts(plan, delta, groups, tuple(usual), about or About(), limited, rows, display)


def _collect_groups(plan: Plan) -> tuple[Group, ...]:
    structure = plan.strategy.structure
    used = plan.strategy.upper_variances(plan.noise_std) / (plan.scale * structure.targets)
    tight = np.where(used >= _BINDING, structure.repeats, 0.0)
    binding = np.add.reduceat(tight, structure.row_starts[:-1]).astype(int)
    try:
        priced = price_groups(plan)
    except DesignError:
        priced = {}
    groups = []
    for row, count in zip(plan.group_rows(), binding, strict=True):
        price = priced.get(row.name)
        saves = None if price is None else estimate_saving(plan, price, RELAXED**2)
        groups.append(Group(**vars(row), binding=int(count), price=price, saves=saves))
    return tuple(groups)


def _compare_usual(plan: Plan, mechanism: _Mechanism) -> UsualMechanism:
    """Compute the rho of a mechanism over the plan's."""
    structure, name = plan.strategy.structure, mechanism.name
    if not allows_any_rows(plan.unit):
        return UsualMechanism(name, None, "not computed for this unit of privacy")
    if mechanism.needs_one_unit and len(set(plan.workload.groups.list_quantities())) > 1:
        return UsualMechanism(name, None, "only for answers in the same units")
    # Baselines cost the change of one row.
    privacy_cost = plan.privacy_cost / structure.changes
    keywords = {} if mechanism.weights is None else {"weights": mechanism.weights}
    if keywords and (not structure.holds_optimum or structure.cells > _MOST_CELLS):
        return UsualMechanism(name, None, f"not computed above {_MOST_CELLS} distinct cells")
    try:
        variances = mechanism.compute(plan.workload, privacy_cost, **keywords)
    except WorkloadError:
        return UsualMechanism(name, None, "not computed: too many cells and queries")
    except DesignError:
        return UsualMechanism(name, None, "could not be computed accurately enough")
    worst = max(
        float((variances[group] / (plan.scale * plan.targets[group])).max())
        for group in plan.workload.names
    )
    return UsualMechanism(name, worst if math.isfinite(worst) else None)
