"""The HTML that notebooks show for a plan."""

from __future__ import annotations

from fitplug.display import (
    MOST_GROUPS,
    SHOWN_DELTA,
    format_std_range,
    format_up,
    make_section,
    make_table,
)
from fitplug.plan.plan_record import PlanRecord
from fitplug.plan.summary import (
    describe_groups,
    describe_overstatement,
    describe_public_totals,
    describe_status,
    has_sums,
)
from fitplug.workload import ONE_RECORD


def format_plan_html(plan: PlanRecord, digest: str) -> str:
    """Format the cost of a plan, and the target and accuracy of each group, as HTML."""
    unit = "one record" if plan.unit == ONE_RECORD else plan.unit
    facts = [
        f"rho = {format_up(plan.rho)} (zCDP, {unit})",
        f"epsilon {format_up(plan.epsilon(SHOWN_DELTA, 'zcdp'), 4)} at delta = {SHOWN_DELTA:g}",
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
