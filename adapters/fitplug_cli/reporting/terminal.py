"""The report of a plan in a terminal: the same facts as on the page."""

from __future__ import annotations

from rich.table import Table

from fitplug.display import format_up
from fitplug.plan import LARGEST_FACTOR, Relaxation
from fitplug_cli import show
from fitplug_cli.reporting.facts import DELTAS, RELAXED, Facts
from fitplug_cli.reporting.limits import explain_limits
from fitplug_cli.reporting.numbers import factor

_SHOWN_DELTAS = DELTAS[::3]


def report(facts: Facts) -> None:
    """Print everything the page shows but the plots."""
    show.plan(facts.plan, facts.contributions, facts.delta)
    _prices(facts)
    _limits(facts)
    _curve(facts)
    _left(facts)
    _usual(facts)
    show.out.print(f"plan {facts.plan.digest}")


def relaxation(found: Relaxation, most: float) -> None:
    """How to relax the targets until they cost at most that rho, for all records of one person."""
    show.out.print(f"to cost no more than rho = {most:g}")
    show.out.print(f"  multiply every std and moe by {found.proportional:.4g}")
    if found.groups and max(found.groups.values()) <= LARGEST_FACTOR:
        show.out.print("  or leave all as they are but those of")
        for name, by in found.groups.items():
            show.out.print(f"    {name}: multiply by {by:.4g}")


def _prices(facts: Facts) -> None:
    if facts.groups[0].price is None:
        show.out.print(facts.worth)
        return
    table = _table(
        "group", "price of its targets", f"rho saved at most if std {RELAXED - 1:.0%} larger",
        "held by their target",
    )  # fmt: skip
    for group in facts.groups:
        assert group.price is not None
        assert group.saves is not None
        held = f"{group.binding:,} of {group.queries:,}"
        table.add_row(group.name, f"{group.price:.1%}", f"{group.saves:.1%}", held)
    show.whole(table)
    if facts.worth:
        show.out.print(facts.worth)


def _limits(facts: Facts) -> None:
    table = _table(
        "records a person",
        "rho",
        f"epsilon at delta {facts.delta:g}",
        "every std, to keep the rho of the declared number",
    )
    for limit in facts.limits:
        declared = " (declared)" if limit.contributions == facts.contributions else ""
        table.add_row(
            f"{limit.contributions}{declared}",
            format_up(limit.rho),
            format_up(limit.epsilon, 4),
            f"x {limit.std_factor:.3g}",
        )
    show.whole(table)
    for sentence in explain_limits(facts.contributions, facts.limited):
        show.out.print(sentence)


def _curve(facts: Facts) -> None:
    table = _table("delta", *(f"{delta:g}" for delta in _SHOWN_DELTAS))
    for name, proven in (("epsilon, proven", True), ("on the Gaussian curve", False)):
        table.add_row(
            name, *(format_up(facts.epsilon(delta, proven), 4) for delta in _SHOWN_DELTAS)
        )
    show.whole(table)


def _left(facts: Facts) -> None:
    if facts.even is not None:
        show.out.print(facts.even)
        return
    cost = facts.profile
    show.out.print(
        f"of the cells told apart, {len(cost):,}, the least costs {cost[-1]:.1%} of rho and the "
        f"mean {cost.mean():.1%}"
    )
    for free in facts.free:
        show.out.print(
            f"free beside it: {free.cells:,} of the {free.of:,} counts by {free.attribute}, with a "
            f"std of {_between(free.least_std, free.largest_std)}"
        )


def _between(least: float, most: float) -> str:
    low, high = format_up(least, 4), format_up(most, 4)
    return low if low == high else f"{low} to {high}"


def _usual(facts: Facts) -> None:
    table = _table("usual mechanism", "what it is", "rho over this plan's")
    for usual in facts.usual:
        needs = usual.why or "-" if usual.factor is None else factor(usual.factor)
        table.add_row(usual.short, usual.name, needs)
    show.whole(table)


def _table(*columns: str) -> Table:
    return Table(*columns, box=None)
