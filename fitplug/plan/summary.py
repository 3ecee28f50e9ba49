"""What a plan says to people: its status, certificate and groups, as text, HTML and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.display import (
    BLUE,
    MOST_BARS,
    MOST_GROUPS,
    ORANGE,
    SHOWN_DELTA,
    Figure,
    format_down,
    format_std_range,
    format_up,
    label_powers,
    make_section,
    make_table,
    open_figure,
    separate_thousands,
    shorten,
)
from fitplug.errors import DesignError
from fitplug.families import is_causal, list_names
from fitplug.plan.plan_record import PlanRecord
from fitplug.plan.prices import price_groups
from fitplug.workload import ONE_RECORD

_NEXT_TO_NOTHING = 1e-9
"""A smaller overstatement of the privacy cost is that of roundings, which nobody needs to know."""

_REMEDIES = {
    "reached": "the rest is lost to rounding: bring targets and coefficients closer together",
    "exhausted": "raise max_iterations",
    "stopped": "it was stopped; let it run on",
}


@dataclass(frozen=True)
class GroupRow:
    """The target of a group and the accuracy of its answers.

    Attributes:
        name: The name of the group.
        queries: The number of its queries.
        quantity: What its answers are numbers of: "records", or "sum of" a measure.
        target: The target, as people write it.
        smallest_std: The smallest standard deviation of its answers, in the same units as they.
        largest_std: The largest standard deviation of its answers, in the same units as they.
        used: The largest ratio of a variance to its target times the plan's scale, at most 1.
    """

    name: str
    queries: int
    quantity: str
    target: str
    smallest_std: float
    largest_std: float
    used: float


def describe_status(plan: PlanRecord) -> str:
    """Say in a sentence whether the tolerance was reached, and what to do if not."""
    if plan.gap <= plan.tolerance:
        return f"certified: within {format_up(plan.gap, 2)} of the least possible"
    return (
        f"certified only to {format_up(plan.gap, 2)} after {plan.iterations} iterations, "
        f"{plan.tolerance:.1e} was asked: {_describe_remedy(plan)}, or accept this gap"
    )


def _describe_remedy(plan: PlanRecord) -> str:
    """Say what brings the gap below the tolerance."""
    return _REMEDIES.get(plan.ended) or plan.structure.remedy


def describe_certificate(plan: PlanRecord) -> str:
    """Say in a sentence what the lower bound proves."""
    bound = format_down(plan.lower_bound)
    if plan.objective.plain:
        return f"no mechanism with Gaussian noise that meets these targets costs less than {bound}"
    return (
        f"{plan.objective}: {format_up(plan.cost)}, and no mechanism with Gaussian noise has less "
        f"than {bound}"
    )


def describe_public_totals(plan: PlanRecord) -> str:
    """Say in a sentence what the unit of privacy leaves without protection; empty for nothing."""
    names = plan.structure.public_attributes
    if names is None:
        return ""
    per = f" per {' and '.join(names)}" if names else ""
    return (
        f"This unit publishes the exact number of counted rows{per}, without noise or protection."
    )


def describe_overstatement(plan: PlanRecord) -> str:
    """Say how far rho may be above the truth if it is an upper bound; empty if it is exact."""
    if plan.overstatement <= _NEXT_TO_NOTHING:
        return ""
    above = format_up(100 * ((1 + plan.overstatement) ** 2 - 1), 2)
    return f"rho is an upper bound, at most {above}% above the exact cost."


def summarise(plan: PlanRecord, delta: float) -> str:
    """Format a plan as a text table; see `Plan.summary`."""
    lines = [
        f"unit          {plan.unit}",
        *([f"              {public}"] if (public := describe_public_totals(plan)) else []),
        f"privacy cost  Delta = {format_up(plan.privacy_cost)}   "
        f"rho = {format_up(plan.rho)} (zCDP)",
        f"epsilon       {format_up(plan.epsilon(delta), 4)} at delta = {delta:g}",
        f"optimality    {describe_status(plan)}",
        f"              {describe_certificate(plan)}",
    ]
    if overstated := describe_overstatement(plan):
        lines.append(f"              {overstated}")
    if causal := find_causal_attributes(plan):
        lines.append(f"periods       can be drawn period by period along {' or '.join(causal)}")
    lines += [
        f"structure     {plan.structure}",
        f"strategy      {plan.strategy.size:,} integer queries; counts needed: "
        + list_names([" x ".join(t) or "total" for t in plan.tables]),
    ]
    if plan.scale != 1.0:
        lines.append(
            f"targets       all variances scaled by {format_up(plan.scale)} to fit the budget"
        )
    groups = describe_groups(plan)
    rows: list[tuple[str, ...]] = [
        ("group", "queries", "quantity", "target", "largest std", "of target")
    ]
    rows += [
        (row.name, f"{row.queries:,}", row.quantity, row.target, format_up(row.largest_std, 4),
         f"{row.used:.1%}")
        for row in groups
    ]  # fmt: skip
    if not has_sums(groups):
        rows = [(*row[:2], *row[3:]) for row in rows]
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines.append("")
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(r, widths, strict=True)).rstrip()
        for r in rows
    ]
    lines += ["", *rules] if (rules := plan.workload.measure_rules) else []
    return "\n".join(lines)


def has_sums(groups: Sequence[GroupRow]) -> bool:
    """Return whether the answers of some group are no numbers of records."""
    return any(row.quantity != "records" for row in groups)


def find_causal_attributes(plan: PlanRecord) -> tuple[str, ...]:
    """Find the attributes along which answers can be drawn period by period."""
    names = (name for name in plan.structure.dense if plan.domain[name].size > 1)
    # Records are divided between the cells of a measure, so these are no periods.
    periods = (name for name in names if not plan.domain[name].quantities)
    return tuple(name for name in periods if is_causal(plan.strategy, name))


def describe_groups(plan: PlanRecord) -> list[GroupRow]:
    """List for each group its target and the standard deviations of its answers."""
    # The rows of the structure are used, because a group may have too many answers to visit each.
    starts = plan.structure.row_starts[:-1]
    proven, targets = plan.strategy.upper_variances(plan.noise_std), plan.structure.targets
    used = np.maximum.reduceat(proven / (plan.scale * targets), starts)
    stds = [np.sqrt(extreme.reduceat(proven, starts)) for extreme in (np.minimum, np.maximum)]
    groups = plan.workload.groups
    return [
        GroupRow(*row)
        for row in zip(
            groups.names,
            groups.sizes.tolist(),
            groups.list_quantities(),
            groups.describe_targets(),
            *(column.tolist() for column in (*stds, used)),
            strict=True,
        )
    ]


def format_plan_html(plan: PlanRecord, digest: str) -> str:
    """Format the cost of a plan, and the target and accuracy of each group, as HTML."""
    unit = "one record" if plan.unit == ONE_RECORD else plan.unit
    facts = [
        f"rho = {format_up(plan.rho)} (zCDP, {unit})",
        f"epsilon {format_up(plan.epsilon(SHOWN_DELTA), 4)} at delta = {SHOWN_DELTA:g}",
        describe_status(plan),
    ]
    if overstated := describe_overstatement(plan):
        facts.append(overstated)
    if public := describe_public_totals(plan):
        facts.append(public)
    if plan.scale != 1.0:
        facts.append(f"all target variances scaled by {format_up(plan.scale)}")
    groups = describe_groups(plan)
    rows: list[tuple[str, ...]] = [
        (row.name, f"{row.queries:,}", row.quantity, row.target,
         format_std_range(row.smallest_std, row.largest_std),
         f"{row.used:.1%}")
        for row in groups
    ]  # fmt: skip
    headings: tuple[str, ...] = (
        "group",
        "queries",
        "quantity",
        "target",
        "std it gets",
        "of the target",
    )
    if not has_sums(groups):
        rows = [(*row[:2], *row[3:]) for row in rows]
        headings = (*headings[:2], *headings[3:])
    facts += plan.workload.measure_rules
    return make_section(
        f"Plan {digest[:12]}", facts, make_table("groups of queries", headings, rows, MOST_GROUPS)
    )


def plot_plan(plan: PlanRecord) -> Figure:
    """Draw for each group its targets, the accuracy of its answers and, if defined, its price.

    See `Plan.plot`.
    """
    rows = describe_groups(plan)
    try:
        priced = price_groups(plan)
    except DesignError:
        priced = {}
    if len(rows) > MOST_BARS:  # only those with the highest prices are drawn
        costliest = sorted(rows, key=lambda row: -priced.get(row.name, 0.0))[:MOST_BARS]
        rows = [row for row in rows if row in costliest]
    targets = [np.sqrt(plan.scale * plan.targets[row.name]) for row in rows]
    heights = np.arange(len(rows))[::-1]
    size = 9.0 if priced else 6.0, 1.2 + 0.32 * len(rows)
    with open_figure(*size, panels=2 if priced else 1) as (figure, axes):
        left, right = axes if priced else (axes, None)
        for height, row, target in zip(heights, rows, targets, strict=True):
            first = {"label": "asked, at most"} if height == heights[0] else {}
            ends = float(target.min()), float(target.max())
            left.plot(ends, [height + 0.14] * 2, "|-", color=ORANGE, ms=11, mew=2.5, **first)
            first = {"label": "of the answers"} if first else {}
            ends = row.smallest_std, row.largest_std
            left.plot(ends, [height - 0.14] * 2, "o-", color=BLUE, ms=5, **first)
        left.set_yticks(heights, [shorten(row.name) for row in rows])
        of = "the quantity's own units" if has_sums(rows) else "records"
        left.set(xscale="log", xlabel=f"standard deviation ({of})")
        separate_thousands(left.xaxis)
        label_powers(left)
        left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        if right is not None:
            shares = [100 * priced[row.name] for row in rows]
            right.barh(heights, shares, color=BLUE, height=0.62)
            for height, share in zip(heights, shares, strict=True):
                text = f"{share:.1f} %"
                right.annotate(
                    text, (share, height), (4, 0), textcoords="offset points", va="center"
                )
            right.set_yticks([])
            right.set(xlim=(0, 1.2 * max(shares)), xlabel="part of the privacy cost (%)")
            right.set_ylim(left.get_ylim())
    return figure
