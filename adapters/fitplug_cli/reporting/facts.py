"""Facts: everything that a report of a plan shows, computed once, from the plan alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug import baselines
from fitplug.display import format_up
from fitplug.errors import DesignError, WorkloadError
from fitplug.plan import NEAR, GroupRow, Plan, most_saved, price_groups
from fitplug.privacy import epsilon_at
from fitplug.release import About, Limited
from fitplug_cli import costs
from fitplug_cli.reporting.limits import Limit, compare_limits

Progress = Callable[[float, str], object]

RELAXED = 1.1
"""By which factor the report relaxes a group's std, to tell what that saves."""

DELTAS = tuple(10.0**-k for k in range(3, 13))

_BINDING = 1 - 1e-3
"""Of its target: a variance as near as this is held by it."""

_SLACK = 0.01
"""Of the plan's cost squared: a cell with less left has nothing left that is worth asking for."""

_EVEN = 1 - 5e-4
"""Of the largest cost of a cell: above, the least is shown as 100 %."""

_MOST_CELLS = 512
"""Told apart by a plan, up to which the matrix mechanism is found beside it: some seconds."""

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


@dataclass(frozen=True)
class Group(GroupRow):
    """What a group asks, gets and costs. binding: how many of its queries are held by their
    targets. price: see `fitplug.plan.prices`; None if there is none. saves: the share of rho that
    relaxing every std of the group by RELAXED saves, at most.
    """

    binding: int
    price: float | None
    saves: float | None


@dataclass(frozen=True)
class Free:
    """Counts that could be added at no cost: of `cells` of an attribute's cells, each with noise of
    its own, of a std from `least_std` to `largest_std`.
    """

    attribute: str
    cells: int
    of: int
    least_std: float
    largest_std: float


@dataclass(frozen=True)
class Usual:
    """A usual mechanism: the rho with which it meets every target, over the plan's; or why not."""

    short: str
    name: str
    factor: float | None
    why: str = ""


@dataclass(frozen=True, eq=False)
class Facts:
    """A plan's facts for all records of one person, `contributions` at most; epsilon at delta.
    limited: whether the spec keeps only so many, or declares it; None for a plan alone.
    about: what the publisher says of it.
    """

    plan: Plan
    contributions: int
    delta: float
    groups: tuple[Group, ...]
    usual: tuple[Usual, ...]
    about: About
    limited: Limited | None = None

    @cached_property
    def privacy_cost(self) -> float:
        """Delta for all records of one person, rounded up."""
        return costs.privacy_cost(self.plan, self.contributions)

    @cached_property
    def rho(self) -> float:
        """As it is charged, for all records of one person."""
        return costs.rho(self.plan, self.contributions)

    def epsilon(self, delta: float, proven: bool = True) -> float:
        """Proven from rho for the discrete noise, or on the curve of continuous Gaussian noise."""
        return epsilon_at(self.privacy_cost, delta, "zcdp" if proven else "gaussian")

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """What other numbers of records a person cost, with the same noise."""
        return compare_limits(self.plan, self.contributions, self.delta)

    @cached_property
    def profile(self) -> npt.NDArray[np.float64]:
        """The privacy cost squared of the cells told apart, over the largest; falling."""
        profile = self.plan.profile().ravel()
        return np.asarray(np.sort(profile / profile.max())[::-1])

    @property
    def even(self) -> str | None:
        """Why a chart of the profile would say nothing; None if it says something."""
        if self.plan.structure.ordered:
            return (
                "A plan of attributes split apart tells no cells apart: a record costs rho "
                "wherever it lies, as far as this plan can say."
            )
        if self.profile[-1] < _EVEN:
            return None
        return "Every cell costs the same: a record costs rho wherever it lies."

    @property
    def worth(self) -> str:
        """What prices mean in this plan, or why there are none."""
        if self.groups[0].price is None:
            return (
                "A plan with a weight on the total squared error has no prices: its cost is no "
                "function of the targets alone."
            )
        if self.plan.gap <= NEAR:
            return ""
        return (
            f"This plan is within {format_up(self.plan.gap, 2)} of the least Delta, and the least "
            "itself is not known: what a relaxation saves at most includes what a better plan "
            "for the same targets might save."
        )

    @cached_property
    def free(self) -> tuple[Free, ...]:
        """Per attribute that the plan tells apart; each is free alone, not all of them together."""
        slack, plan = self.plan.slack(), self.plan
        found: list[Free] = []
        if slack.ndim != len(plan.domain.names):  # more attributes than an array has axes
            return ()
        for name in plan.structure.dense:
            axis = plan.domain.names.index(name)
            others = tuple(i for i in range(slack.ndim) if i != axis)
            left = slack.min(axis=others)
            stds = 1 / np.sqrt(left[left > _SLACK * plan.privacy_cost**2])
            if len(stds):
                found.append(Free(name, len(stds), len(left), float(stds.min()), float(stds.max())))
        return tuple(found)


def facts(
    plan: Plan,
    *,
    contributions: int = 1,
    delta: float = 1e-9,
    limited: Limited | None = None,
    about: About | None = None,
    progress: Progress | None = None,
) -> Facts:
    """All facts of a plan. progress: called with the share that is done, and what is being done."""
    tell = progress or (lambda share, what: None)
    usual = []
    for i, (short, name, mechanism, keywords) in enumerate(_USUAL):
        tell(i / len(_USUAL), name)
        usual.append(_usual(plan, short, name, mechanism, keywords))
    return Facts(plan, contributions, delta, _groups(plan), tuple(usual), about or About(), limited)


def _groups(plan: Plan) -> tuple[Group, ...]:
    structure = plan.structure
    of_target = plan.strategy.variances(plan.noise_std) / (plan.scale * structure.targets)
    held = np.where(of_target >= _BINDING, structure.repeats, 0.0)
    binding = np.add.reduceat(held, structure.starts[:-1]).astype(int)
    try:
        priced = price_groups(plan)
    except DesignError:
        priced = {}
    found = []
    for row, count in zip(plan.group_rows(), binding, strict=True):
        price = priced.get(row.name)
        saves = None if price is None else most_saved(plan, price, RELAXED**2)
        found.append(Group(**vars(row), binding=int(count), price=price, saves=saves))
    return tuple(found)


def _usual(
    plan: Plan, short: str, name: str, mechanism: Callable[..., Any], keywords: dict[str, str]
) -> Usual:
    structure = plan.structure
    if keywords and (structure.ordered or structure.cells > _MOST_CELLS):
        return Usual(short, name, None, f"not computed above {_MOST_CELLS} cells told apart")
    try:
        variances = mechanism(plan.workload, plan.privacy_cost, **keywords)
    except WorkloadError:
        return Usual(short, name, None, "too many cells and queries to write down")
    except DesignError:
        return Usual(short, name, None, "not found to six digits")
    worst = max(
        float((variances[group] / (plan.scale * plan.targets[group])).max())
        for group in plan.workload.names
    )
    return Usual(short, name, worst if math.isfinite(worst) else None)
