"""The facts that a report of a plan shows, computed once and from the plan alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug import baselines
from fitplug.errors import DesignError, WorkloadError
from fitplug.families import list_names
from fitplug.plan import NEGLIGIBLE_GAP, GroupRow, Plan, describe_gap, estimate_saving, price_groups
from fitplug.releases import About, Limited, describe_planned_population
from fitplug.workload import ReplaceOne
from fitplug_cli.render.json_records import compute_rho
from fitplug_cli.render.record_limits import Limit, compare_limits


def format_percent(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def format_factor(value: float) -> str:
    """Format a factor with three digits, or as an integer from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


Progress = Callable[[float, str], object]

RELAXED = 1.1
"""The factor by which the report relaxes a group's std, to show what that saves."""

DELTAS = tuple(10.0**-k for k in range(3, 13))
"""The deltas at which the report shows epsilon."""

_BINDING = 1 - 1e-3
"""A query is at its target if its variance is at least this share of the target."""

_SLACK = 0.01
"""A cell has something left for more counts if its slack is above this share of twice rho."""

_EVEN = 1 - 5e-4
"""Costs are even if the least cost of a cell, over the largest, is shown as 100.0 %."""

_MOST_CELLS = 512
"""The report computes the matrix mechanism up to this number of cells; it takes some seconds."""

_USUAL: tuple[tuple[str, str, Callable[..., Any], dict[str, str]], ...] = (
    ("IP", "noise on every cell", baselines.input_perturbation, {}),
    ("GM", "the same noise on every answer", baselines.gaussian, {}),
    ("HM", "hierarchical: trees over ordered attributes", baselines.hierarchical, {}),
    ("CA", "least total variance", baselines.matrix_mechanism, {"weights": "none"}),
    (
        "wCA-I",
        "least total of variances over targets squared",
        baselines.matrix_mechanism,
        {"weights": "inverse_squared"},
    ),
    (
        "wCA-II",
        "least total of variances over targets",
        baselines.matrix_mechanism,
        {"weights": "inverse"},
    ),
)


_OF_ONE_QUANTITY = ("GM", "CA", "wCA-I")
"""Mechanisms that compare variances of different answers, which must be in the same units. Those
that weigh variances by their targets do not depend on units."""


@dataclass(frozen=True)
class Group(GroupRow):
    """What the targets of a group are, what it gets, and what it costs.

    Attributes:
        binding: The number of its queries that are at their targets.
        price: Its price, see `fitplug.plan.summary`; None if there is none.
        saves: The largest share of rho that is saved if every std of the group is RELAXED times as
            large; None if there is no price.
    """

    binding: int
    price: float | None
    saves: float | None


@dataclass(frozen=True)
class FreeCounts:
    """Counts by one attribute that could be added at no cost, each with noise of its own.

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
    """A usual mechanism, to compare the plan with.

    Attributes:
        short: Its short name, by the paper.
        name: What it is.
        factor: The rho with which it meets every target, over the plan's; None if not known.
        why: Why the factor is not known.
    """

    short: str
    name: str
    factor: float | None
    why: str = ""


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts of a plan, with its cost for all records of one person.

    Attributes:
        plan: The plan.
        delta: The delta at which epsilon is given.
        groups: The groups of queries.
        usual_mechanisms: The usual mechanisms.
        about: What the publisher says of the release.
        limited: Whether counting enforces the unit of privacy or nothing does; None for a plan
            without a spec.
        rows: How rows are weighted and filtered (`Tables.rows`).
    """

    plan: Plan
    delta: float
    groups: tuple[Group, ...]
    usual_mechanisms: tuple[UsualMechanism, ...]
    about: About
    limited: Limited | None = None
    rows: str | None = None

    @property
    def population(self) -> str:
        """Which rows the answers would be about; empty for a plan without a spec."""
        if self.limited is None:
            return ""
        return describe_planned_population(
            self.plan.unit.records, self.limited, self.plan.bound_unit.apart, self.rows
        )

    @property
    def neighbours(self) -> str:
        """A sentence that says in what neighbouring data sets differ."""
        unit = self.plan.unit
        apart = self.plan.bound_unit.apart
        changed = f"all records of one person, at most {self.plan.unit.records:,}{apart}"
        if not isinstance(unit, ReplaceOne):
            return f"Neighbouring datasets differ by {changed}."
        fixed = f", which keep their {list_names(unit.within)}" if unit.within else ""
        return (
            f"Neighbouring datasets differ by the values of {changed}{fixed}; the number of "
            "records is the same and public."
        )

    @cached_property
    def rho(self) -> float:
        """The rho that is charged for all records of one person."""
        return compute_rho(self.plan)

    def epsilon(self, delta: float) -> float:
        """Return epsilon for all records of one person at a delta."""
        return self.plan.epsilon(delta)

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """What other limits on the records of a person cost, with the same noise."""
        return compare_limits(self.plan, self.delta)

    @cached_property
    def profile(self) -> npt.NDArray[np.float64]:
        """The squared privacy cost of each cell told apart, over the largest, in falling order."""
        profile = self.plan.profile().ravel()
        return np.asarray(np.sort(profile / profile.max())[::-1])

    @property
    def even_note(self) -> str | None:
        """Why a chart of the profile would show nothing; None if it shows something."""
        structure = self.plan.structure
        if structure.asymmetric and not structure.profile_attributes:
            return (
                "A plan of the product family tells no cells apart: a record costs rho "
                "wherever it lies, as far as this plan can say."
            )
        if self.profile[-1] < _EVEN:
            return None
        if self.plan.unit.records == 1:
            return "Every cell costs the same: a record costs rho wherever it lies."
        return "Every cell costs the same: the costliest person with a record in it costs rho."

    @property
    def measure_note(self) -> str:
        """Where a record lies that measures divide between cells; empty without measures."""
        if not self.plan.workload.measure_rules:
            return ""
        return (
            "The cells of a measure are its bounds, between which a record is divided by its "
            "value: no value costs more than the costlier bound."
        )

    @property
    def price_note(self) -> str:
        """A caveat on the prices of this plan, or why there are none; may be empty."""
        if self.groups[0].price is None:
            return (
                "A plan with a weight on the total squared error has no prices: its cost is no "
                "function of the targets alone."
            )
        if self.plan.gap <= NEGLIGIBLE_GAP:
            return ""
        return (
            f"This plan is {describe_gap(self.plan)}, and the least itself is not known: what a "
            "relaxation saves at most includes what a better plan for the same targets might save."
        )

    @property
    def nothing_free_note(self) -> str:
        """Why no further count is free, where cells cost different amounts."""
        if self.plan.unit.is_of_records:
            return "Hardly anything is left: no further count by one attribute is free."
        return (
            "No further count is free in this unit of privacy: what a cell has left says nothing "
            "of what a person changes in other cells."
        )

    @cached_property
    def free_counts(self) -> tuple[FreeCounts, ...]:
        """The free counts by each attribute; each is free for itself, and not all together."""
        plan = self.plan
        if not plan.unit.is_of_records:
            return ()  # what a cell has left says nothing of a person with records in other cells
        slack = plan.unused_budget()
        counts: list[FreeCounts] = []
        if slack.ndim != len(plan.domain.names):  # more attributes than an array has axes
            return ()
        for name in plan.structure.profile_attributes:
            if plan.domain[name].quantities:
                continue  # no query counts the records at a bound of a measure
            axis = plan.domain.names.index(name)
            others = tuple(i for i in range(slack.ndim) if i != axis)
            left = slack.min(axis=others)
            # All k records of a person may be in one cell: its count costs k^2 over its variance.
            k = plan.structure.changes
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
    compare: bool = True,
    progress: Progress | None = None,
) -> Facts:
    """Collect the facts of a plan.

    Args:
        plan: The plan.
        delta: The delta at which epsilon is given.
        limited: Whether counting enforces the unit of privacy or nothing does.
        rows: How rows are weighted and filtered.
        about: What the publisher says of the release.
        compare: Whether the plan is compared with the usual mechanisms, which may take seconds.
        progress: A function that is called with the share that is done, and what is being done.
    """
    report = progress or (lambda share, what: None)
    usual = []
    for i, (short, name, mechanism, keywords) in enumerate(_USUAL if compare else ()):
        report(i / len(_USUAL), name)
        usual.append(_compare_usual(plan, short, name, mechanism, keywords))
    groups = _collect_groups(plan)
    return Facts(plan, delta, groups, tuple(usual), about or About(), limited, rows)


def _collect_groups(plan: Plan) -> tuple[Group, ...]:
    structure = plan.structure
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


def _compare_usual(
    plan: Plan, short: str, name: str, mechanism: Callable[..., Any], keywords: dict[str, str]
) -> UsualMechanism:
    """Compute the rho of a usual mechanism over the plan's."""
    structure = plan.structure
    if not plan.unit.is_of_records:
        return UsualMechanism(short, name, None, "not computed for this unit of privacy")
    if short in _OF_ONE_QUANTITY and len(set(plan.workload.groups.list_quantities())) > 1:
        return UsualMechanism(short, name, None, "its answers must be in the same units")
    # Their costs are of one record.
    privacy_cost = plan.privacy_cost / structure.changes
    if keywords and (not structure.holds_optimum or structure.cells > _MOST_CELLS):
        return UsualMechanism(
            short, name, None, f"not computed above {_MOST_CELLS} cells told apart"
        )
    try:
        variances = mechanism(plan.workload, privacy_cost, **keywords)
    except WorkloadError:
        return UsualMechanism(short, name, None, "too many cells and queries to write down")
    except DesignError:
        return UsualMechanism(short, name, None, "not found to six digits")
    worst = max(
        float((variances[group] / (plan.scale * plan.targets[group])).max())
        for group in plan.workload.names
    )
    return UsualMechanism(short, name, worst if math.isfinite(worst) else None)
