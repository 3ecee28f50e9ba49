"""A plan's report on the terminal and as a JSON record."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.table import Table

from fitplug.display import format_delta, format_up
from fitplug.plan import LARGEST_FACTOR, Relaxation
from fitplug_cli.render import build_plan_record, out, print_facts, print_plan, print_table
from fitplug_cli.render.facts import DELTAS, RELAXED, Facts, format_factor
from fitplug_cli.render.record_limits import explain_limits

if TYPE_CHECKING:
    from fitplug_cli.spec import Spec

_SHOWN_DELTAS = DELTAS[::3]


def print_report(facts: Facts, spec: Spec | None = None, *, full: bool) -> None:
    """Print the cost of a plan, what each group gets and what its targets cost.

    Args:
        facts: The facts of the plan.
        spec: The spec that the plan is for, if there is one.
        full: Whether to print all content of the page except plots.
    """
    print_plan(facts.plan, facts.delta, spec, full=full)
    _print_prices(facts)
    if full:
        _print_limits(facts)
        _print_curve(facts)
        _print_slack(facts)
        _print_usual_mechanisms(facts)
    else:
        for sentence in (facts.population, facts.measure_note):
            if sentence:
                out.print(sentence)
    if facts.display_note is not None:
        print_facts(("display tables", facts.display_note))
    if full:
        print_facts(("plan", facts.plan.digest))


def print_relaxation(relaxation: Relaxation, most: float) -> None:
    """Print how to relax the targets.

    Args:
        relaxation: The relaxation.
        most: The largest rho, for all rows of a person.
    """
    out.print(f"To cost at most rho = {most:g}, multiply every std and moe by")
    out.print(f"  {relaxation.proportional:.4g}")
    if relaxation.groups and max(relaxation.groups.values()) <= LARGEST_FACTOR:
        out.print("or leave the other groups as they are, and multiply in these groups")
        for name, by in relaxation.groups.items():
            out.print(f"  {name} by {by:.4g}")


def _print_prices(facts: Facts) -> None:
    if facts.groups[0].price is None:
        out.print(facts.price_note)
        return
    table = _make_table(
        "group",
        "share of rho",
        f"rho saved if std +{RELAXED - 1:.0%}*",
        "answers at target",
    )
    for group in facts.groups:
        assert group.price is not None
        assert group.saves is not None
        tight = f"{group.binding:,} of {group.queries:,}"
        table.add_row(group.name, f"{group.price:.1%}", f"{group.saves:.1%}", tight)
    print_table(table)
    out.print(" * estimated upper limit")
    if facts.price_note:
        out.print(facts.price_note)


def _print_limits(facts: Facts) -> None:
    if facts.limits:
        _print_limits_table(facts)
    for sentence in explain_limits(facts.plan, facts.population, facts.limited):
        out.print(sentence)


def _print_limits_table(facts: Facts) -> None:
    table = _make_table(
        "rows per person",
        "rho",
        f"epsilon at delta {format_delta(facts.delta)}",
        "std at this plan's rho",
    )
    for limit in facts.limits:
        note = " (this plan)" if limit.records == facts.plan.unit.records else ""
        table.add_row(
            f"{limit.records:,}{note}",
            format_up(limit.rho),
            format_up(limit.epsilon),
            f"x {limit.std_factor:.3g}",
        )
    print_table(table)


def _print_curve(facts: Facts) -> None:
    table = _make_table("delta", *map(format_delta, _SHOWN_DELTAS))
    table.add_row("epsilon", *(format_up(facts.epsilon(delta)) for delta in _SHOWN_DELTAS))
    print_table(table)


def _print_slack(facts: Facts) -> None:
    if facts.measure_note:
        out.print(facts.measure_note)
    if facts.even_note is not None:
        out.print(facts.even_note)
        return
    cost = facts.profile
    out.print(
        f"Cost by cell ({len(cost):,} distinct cells): at least {cost[-1]:.1%} of rho, on average "
        f"{cost.mean():.1%}."
    )
    for free in facts.free_counts:
        out.print(
            f"At no further cost: {free.cells:,} of the {free.of:,} counts by {free.attribute}, "
            f"with std {_format_interval(free.least_std, free.largest_std)}."
        )


def _format_interval(least: float, most: float) -> str:
    low, high = format_up(least, 4), format_up(most, 4)
    return low if low == high else f"{low} to {high}"


def _print_usual_mechanisms(facts: Facts) -> None:
    table = _make_table("mechanism", "rho / this plan's rho")
    for usual in facts.usual_mechanisms:
        needs = usual.why or "-" if usual.factor is None else format_factor(usual.factor)
        table.add_row(usual.name, needs)
    print_table(table)


def _make_table(*columns: str) -> Table:
    return Table(*columns, box=None)


def build_report_record(facts: Facts, relaxation: Relaxation | None) -> dict[str, Any]:
    """Build the record of a report.

    Args:
        facts: The facts of the plan.
        relaxation: How to relax the targets, if they cost too much.
    """
    record = build_plan_record(facts.plan, facts.delta)
    cost = facts.profile
    return record | {
        "groups": [
            {
                ("saves_at_most" if key == "saves" else key): value
                for key, value in dataclasses.asdict(group).items()
            }
            for group in facts.groups
        ],
        "curve": [{"delta": delta, "epsilon": facts.epsilon(delta)} for delta in DELTAS],
        "limits": [dataclasses.asdict(limit) for limit in facts.limits],
        "limited": facts.limited,
        "profile": {
            "cells": len(cost),
            "least_share_of_rho": float(cost[-1]),
            "mean_share_of_rho": float(cost.mean()),
        },
        "free": [dataclasses.asdict(free) for free in facts.free_counts],
        "usual_mechanisms": [dataclasses.asdict(usual) for usual in facts.usual_mechanisms],
        "display": facts.display_note,
        "relaxation": None
        if relaxation is None
        else {"proportional": relaxation.proportional, "groups": dict(relaxation.groups)},
    }
