"""Summaries of a plan as text, HTML and plots, and what the targets of each query group cost.

The least rho is a function of the targets c whose logarithm is convex in log c, and the dual
weights q of the optimum are its slopes: d log rho / d log c_j = -q_j. So if the variances of a
group of price pi are multiplied by f >= 1, no mechanism with Gaussian noise costs less than
rho f^-pi. For the weights of a plan that is not the optimum a weaker statement holds: no such
mechanism costs less than the plan's lower bound on rho divided by 1 + pi (f - 1). See
docs/theory/prices.md, (P3) and (P2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np

from fitplug.display import (
    BLUE,
    MOST_BARS,
    MOST_GROUPS,
    ORANGE,
    SHOWN_DELTA,
    Figure,
    format_down,
    format_percent_up,
    format_rho,
    format_std_range,
    format_up,
    label_powers,
    make_section,
    make_table,
    open_figure,
    separate_thousands,
    shorten,
)
from fitplug.domain import get_codec
from fitplug.errors import DesignError
from fitplug.families import find_family, is_causal, list_names
from fitplug.plan.plan_record import PlanRecord, evaluate_objective
from fitplug.workload import list_measure_rules

NEGLIGIBLE_GAP = 4e-4
"""Up to this gap, a plan's prices are used as the optimum's. It changes a saving by about 4e-4 of
rho, which three digits do not show.
"""


WEAK_EPSILON = 100
"""Above this epsilon, which nobody would choose, a plan comes with a warning."""


def price_groups(plan: PlanRecord) -> Mapping[str, float]:
    """Compute the price of each group's targets.

    If all variances of a group are multiplied by a factor f near 1, the least rho is divided by
    f^price. For larger f, it is divided by at most f^price. Both statements are exact at the
    optimum; for a plan, they are more exact if its gap is smaller. `estimate_saving` turns a price
    into a saving.

    Args:
        plan: A plan without a weight on the total error.

    Returns:
        A price for each group, in percent of rho per percent of variance. The prices add up to 1.

    Raises:
        DesignError: The plan has a weight on the total error, so its cost does not depend on the
            targets alone.
    """
    if plan.objective.weight:
        raise DesignError(
            "a plan with total_error_weight has no prices of targets. Design without "
            "total_error_weight."
        )
    shares = find_family(plan.strategy.structure).certifier.share_weight(
        plan.strategy.structure, plan.proof.duals
    )
    return dict(zip(plan.workload.names, shares.tolist(), strict=True))


def estimate_saving(plan: PlanRecord, price: float, factor: float) -> float:
    """Estimate the largest saving that is possible if all variances of one group are relaxed.

    For a plan whose gap is at most 4e-4 this is the largest saving at the optimum, 1 - f^-price,
    correct to about 4e-4 of rho. For any other plan, the estimate is an upper bound, which
    includes what a better plan for the unchanged targets might save.

    Args:
        plan: The plan for the targets as they are.
        price: The price of the group, from `price_groups`.
        factor: The factor f >= 1 on the variances of the group.

    Returns:
        The saving as a share of the plan's rho.
    """
    if plan.gap <= NEGLIGIBLE_GAP:
        return 1 - factor**-price
    return 1 - 1 / ((1 + plan.gap) * (1 + price * (factor - 1)))


_NEGLIGIBLE_OVERSTATEMENT = 1e-9
"""A smaller overstatement of the privacy cost comes from rounding and is not reported."""

_REMEDIES = {
    "reached": "rounding to integers adds the rest: use targets and coefficients of more similar "
    "size",
    "exhausted": "raise max_iterations",
    "stopped": "the design was interrupted: let it run longer",
}


@dataclass(frozen=True)
class GroupRow:
    """The target of a group and the accuracy of its answers.

    Attributes:
        name: The name of the group.
        queries: The number of its queries.
        quantity: What its answers count: "rows", or "sum of" a measure.
        target: The target, as people write it.
        smallest_std: The smallest standard deviation of its answers, in the answers' unit.
        largest_std: The largest standard deviation of its answers, in the answers' unit.
        std_ratio: The largest ratio of a standard deviation to its target, at most 1.
    """

    name: str
    queries: int
    quantity: str
    target: str
    smallest_std: float
    largest_std: float
    std_ratio: float


def describe_cost(plan: PlanRecord, delta: float = SHOWN_DELTA) -> str:
    """Describe what a plan costs and how near this is to the least, for every screen.

    Example:
        rho = 0.0409 (epsilon 1.61 at delta 1e-9); within 0.02% of the least possible, proven
    """
    return f"{format_rho(plan.rho, plan.epsilon(delta), delta)}; {describe_gap(plan)}, proven"


def describe_weakness(plan: PlanRecord, delta: float = SHOWN_DELTA) -> str:
    """Warn of a plan whose cost protects nobody; empty if its epsilon is at most `WEAK_EPSILON`."""
    if plan.epsilon(delta) <= WEAK_EPSILON:
        return ""
    return (
        f"epsilon is above {WEAK_EPSILON}, so a release would protect nobody. std and moe are "
        "numbers of rows or amounts, not shares. Give larger targets or a smaller budget."
    )


def describe_gap(plan: PlanRecord) -> str:
    """Say how near a plan is to the least that is possible."""
    over = "" if plan.objective.plain else f" {plan.objective}"
    return f"within {format_percent_up(plan.gap)} of the least possible{over}"


def describe_status(plan: PlanRecord) -> str:
    """Say in a sentence whether the tolerance was reached, and what to do if not."""
    if plan.gap <= plan.tolerance:
        return f"{describe_gap(plan)}, proven"
    iterations = plan.proof.iterations
    return (
        f"you asked for {format_percent_up(plan.tolerance)}, but {iterations} iterations "
        f"reached {format_percent_up(plan.gap)}; {_describe_remedy(plan)}, or accept this gap"
    )


def _describe_remedy(plan: PlanRecord) -> str:
    """Say what brings the gap below the tolerance."""
    return _REMEDIES.get(plan.proof.ended) or plan.strategy.structure.remedy


def describe_certificate(plan: PlanRecord) -> str:
    """Say in a sentence what the lower bound proves."""
    if plan.objective.plain:
        return (
            "no mechanism with Gaussian noise that meets these targets has a rho below "
            f"{format_down(plan.rho_lower_bound, 6)}"
        )
    # Without budgets, the squared objective is 2 rho times the weighted error.
    divisor = 2 if plan.objective.budgets is None else 1
    cost, bound = evaluate_objective(plan) ** 2 / divisor, plan.lower_bound**2 / divisor
    return (
        f"{plan.objective}: {format_up(cost, 6)}; no mechanism with Gaussian noise is below "
        f"{format_down(bound, 6)}"
    )


def describe_public_totals(plan: PlanRecord) -> str:
    """Say in a sentence what the unit of privacy leaves without protection; empty for nothing."""
    names = plan.strategy.structure.public_attributes
    if names is None:
        return ""
    per = f" per {' and '.join(names)}" if names else ""
    return (
        f"This unit publishes the exact number of counted rows{per}, without noise or protection."
    )


def describe_overstatement(plan: PlanRecord) -> str:
    """Say how far rho may be above the truth if it is an upper bound; empty if it is exact."""
    if plan.overstatement <= _NEGLIGIBLE_OVERSTATEMENT:
        return ""
    above = format_up(100 * ((1 + plan.overstatement) ** 2 - 1), 2)
    return f"rho is an upper bound, at most {above}% above the exact cost."


def summarise(plan: PlanRecord, delta: float) -> str:
    """Format a plan as a text table; see `Plan.summary`."""
    lines = [
        f"unit          {plan.unit}",
        *([f"              {public}"] if (public := describe_public_totals(plan)) else []),
        f"privacy cost  {describe_cost(plan, delta)}",
    ]
    if weakness := describe_weakness(plan, delta):
        lines += wrap(
            weakness, 88, initial_indent="warning       ", subsequent_indent="              "
        )
    if plan.gap > plan.tolerance:
        lines.append(f"              {describe_status(plan)}")
    if overstated := describe_overstatement(plan):
        lines.append(f"              {overstated}")
    if causal := find_causal_attributes(plan):
        lines.append(f"periods       can be drawn period by period along {' or '.join(causal)}")
    lines.append(
        f"counts        {list_names([' x '.join(names) or 'total' for names in plan.tables])}"
    )
    if plan.scale != 1.0:
        lines.append(
            f"targets       all variances scaled by {format_up(plan.scale)} to fit the budget"
        )
    rows = _tabulate(describe_groups(plan), lambda row: format_up(row.largest_std, 4))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines.append("")
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(r, widths, strict=True)).rstrip()
        for r in rows
    ]
    lines += ["", *rules] if (rules := list_measure_rules(plan.workload)) else []
    return "\n".join(lines)


def _tabulate(
    groups: Sequence[GroupRow], format_std: Callable[[GroupRow], str]
) -> list[tuple[str, ...]]:
    """Build the cells of a table of groups, headings first; quantities only if some are sums."""
    rows = [("group", "queries", "quantity", "target", "achieved std", "% of target")]
    rows += [
        (
            row.name,
            f"{row.queries:,}",
            row.quantity,
            row.target,
            format_std(row),
            f"{row.std_ratio:.1%}",
        )
        for row in groups
    ]
    return [*rows] if has_sums(groups) else [(*row[:2], *row[3:]) for row in rows]


def has_sums(groups: Sequence[GroupRow]) -> bool:
    """Return whether the answers of some group are not numbers of rows."""
    return any(row.quantity != "rows" for row in groups)


def find_causal_attributes(plan: PlanRecord) -> tuple[str, ...]:
    """Find the attributes along which answers can be drawn period by period."""
    names = (name for name in plan.strategy.structure.dense if plan.domain[name].size > 1)
    # Records are divided between the cells of a measure, so these are not periods.
    periods = (name for name in names if not get_codec(plan.domain[name]).quantities)
    return tuple(name for name in periods if is_causal(plan.strategy, name))


def describe_groups(plan: PlanRecord) -> list[GroupRow]:
    """List for each group its target and the standard deviations of its answers."""
    # The structure's rows stand for equal answers: a group may have too many answers to visit.
    starts = plan.strategy.structure.row_starts[:-1]
    proven, targets = plan.strategy.upper_variances(plan.noise_std), plan.strategy.structure.targets
    ratios = np.sqrt(np.maximum.reduceat(proven / (plan.scale * targets), starts))
    stds = [np.sqrt(extreme.reduceat(proven, starts)) for extreme in (np.minimum, np.maximum)]
    groups = plan.workload.groups
    return [
        GroupRow(*row)
        for row in zip(
            groups.names,
            groups.sizes.tolist(),
            groups.list_quantities(),
            groups.describe_targets(),
            *(column.tolist() for column in (*stds, ratios)),
            strict=True,
        )
    ]


def format_plan_html(plan: PlanRecord, digest: str) -> str:
    """Format the cost of a plan, and the target and accuracy of each group, as HTML."""
    facts = [describe_cost(plan), f"unit of privacy: {plan.unit}"]
    if weakness := describe_weakness(plan):
        facts.append(f"warning: {weakness}")
    if plan.gap > plan.tolerance:
        facts.append(describe_status(plan))
    if overstated := describe_overstatement(plan):
        facts.append(overstated)
    if public := describe_public_totals(plan):
        facts.append(public)
    if plan.scale != 1.0:
        facts.append(f"all target variances scaled by {format_up(plan.scale)}")
    headings, *rows = _tabulate(
        describe_groups(plan), lambda row: format_std_range(row.smallest_std, row.largest_std)
    )
    facts += list_measure_rules(plan.workload)
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
    rows = sorted(rows, key=lambda row: -priced.get(row.name, 0.0))[:MOST_BARS]
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
        of = "the quantity's own units" if has_sums(rows) else "rows"
        left.set(xscale="log", xlabel=f"standard deviation ({of})")
        separate_thousands(left.xaxis)
        label_powers(left)
        left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        if right is not None:
            shares = [100 * priced[row.name] for row in rows]
            right.barh(heights, shares, color=BLUE, height=0.62)
            for height, share in zip(heights, shares, strict=True):
                text = f"{share:.1f}%"
                right.annotate(
                    text, (share, height), (4, 0), textcoords="offset points", va="center"
                )
            right.set_yticks([])
            right.set(xlim=(0, 1.2 * max(shares)), xlabel="share of rho (%)")
            right.set_ylim(left.get_ylim())
    return figure
