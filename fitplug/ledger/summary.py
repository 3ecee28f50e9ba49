"""Summaries of a ledger for people: its budget, and a table of its charges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fitplug.display import format_delta, format_down, format_up, make_section, make_table
from fitplug.ledger.records import Budget, Entry, Stage
from fitplug.numeric import ceil_float, ceil_written, floor_written

_DIGEST_LENGTH = 12


class LedgerSummary(NamedTuple):
    """The content of a ledger, in texts of one line each.

    Attributes:
        facts: Labels and texts of the budget.
        headings: The headings of the charges' columns.
        charges: The cells of each charge, the oldest first.
    """

    facts: list[tuple[str, str]]
    headings: list[str]
    charges: list[list[str]]


def summarise_ledger(
    budget: Budget, entries: Sequence[Entry], stages: Mapping[int, Stage]
) -> LedgerSummary:
    """Summarise a ledger: amounts are rounded to the safe side.

    Args:
        budget: The budget of the ledger.
        entries: Its charges, the oldest first.
        stages: The newest stage of each release, by the number of its charge.
    """
    delta = budget.delta
    spent = None if delta is None or not entries else budget.epsilon_at(delta)
    total = floor_written(budget.total)
    facts = [
        ("budget", _format_amount(format_down(total, 6), budget.epsilon, delta)),
        ("spent", _format_amount(format_up(ceil_written(budget.spent), 6), spent, delta)),
        ("left", _format_amount(format_down(floor_written(budget.left), 6))),
    ]
    if budget.epsilon is not None:
        facts.append(("noise", "any" if budget.any_noise else "discrete Gaussian only"))
    if budget.bound_unit is not None:
        facts.append(("unit", _make_printable(str(budget.bound_unit))))
    headings = ["no.", "time (UTC)", "rho", "state", "what", "key", "plan", "folder"]
    charges = [_list_cells(entry, stages.get(entry.id)) for entry in entries]
    if not {entry.bound_unit for entry in entries} <= {budget.bound_unit}:
        headings.append("unit")
        for cells, entry in zip(charges, entries, strict=True):
            cells.append(_make_printable(str(entry.bound_unit)))
    return LedgerSummary(facts, headings, charges)


def format_ledger_html(name: str, summary: LedgerSummary, most: int) -> str:
    """Format a summary as HTML.

    Args:
        name: The name of the ledger.
        summary: The summary.
        most: The largest number of charges to show.
    """
    facts = [f"{label}: {text}" for label, text in summary.facts]
    table = make_table("charges", summary.headings, summary.charges, most, what="charges")
    return make_section(f"Ledger {name}", facts, table)


def _list_cells(entry: Entry, stage: Stage | None) -> list[str]:
    """List the cells of a charge, in the order of the headings."""
    cost = format_up(ceil_float(entry.rho), 6)
    if entry.covered_by is not None:
        cost = f"covered by {entry.covered_by}"
    texts = (entry.what, entry.key, (entry.plan_digest or "")[:_DIGEST_LENGTH], entry.folder)
    state = "charged" if stage is None else stage.state
    time = entry.time[:19].replace("T", " ")
    return [str(entry.id), time, cost, state, *map(_make_printable, texts)]


def _format_amount(rho: str, epsilon: float | None = None, delta: float | None = None) -> str:
    """Format an amount in rho, and in epsilon at delta if there is one."""
    if epsilon is None or delta is None:
        return f"rho = {rho}"
    return f"rho = {rho} (epsilon {format_up(epsilon, 6)} at delta {format_delta(delta)})"


def _make_printable(text: str | None) -> str:
    """Replace the characters of a text that are not printable on one line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text or "")
