"""Charges: what is verified before one is entered, and the entry that it makes."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction

from fitplug.display import format_down, format_up
from fitplug.errors import BudgetError, InputError, OverBudget
from fitplug.ledger import rows as rows
from fitplug.ledger.budget import Budget
from fitplug.ledger.cell_costs import CellCosts
from fitplug.ledger.entry import Entry
from fitplug.ledger.file import LedgerFile
from fitplug.numeric import ceil_float, ceil_written, floor_written
from fitplug.workload import BoundUnit


@dataclass(frozen=True)
class Charge:
    """A charge that is allowed, and not entered yet. Its fields are those of `Entry`."""

    rho: Fraction
    what: str
    key: str | None
    plan_digest: str | None
    output: str | None
    within: int | None
    costs: CellCosts | None
    bound_unit: BoundUnit

    def enter(self, database: sqlite3.Connection, budget: Budget) -> tuple[Entry, Budget]:
        """Append the entry to the ledger, and return it with the budget after it."""
        entry = Entry(
            id=budget.entries + 1,
            time=read_time(),
            rho=self.rho,
            what=self.what,
            key=self.key,
            plan_digest=self.plan_digest,
            output=self.output,
            within=self.within,
            profile=None if self.costs is None else self.costs.digest,
            bound_unit=self.bound_unit,
        )
        return entry, rows.append_entry(database, budget, entry, self.costs)


def check_fits(file: LedgerFile, amount: Fraction, left: Fraction, changes: int = 1) -> None:
    """Raise OverBudget if this much rho, which is that of so many changes, is more than is left."""
    if amount > left:
        requested, remaining = ceil_written(amount), floor_written(left)
        of_changes = (
            f"; the charge is {changes**2} times the cost in the release's own unit of privacy, as "
            f"a change in the ledger's unit is made of {changes} changes in it"
        )
        shown = format_up(requested), format_down(remaining)
        if shown[0] == shown[1]:  # they differ in later digits
            shown = repr(requested), repr(remaining)
        raise OverBudget(
            f"rho = {shown[0]} is over budget: the ledger {file.path} has {shown[1]} left; nothing "
            "was charged, relax the targets until they cost no more than that"
            + (of_changes if changes > 1 else ""),
            requested=requested,
            remaining=remaining,
        )


def check_covers(amount: Fraction, costs: CellCosts) -> None:
    """Raise BudgetError if an amount is less than what the costs per cell come to."""
    if costs.rho > amount:
        raise BudgetError(
            f"rho = {ceil_float(amount)!r} is less than the {ceil_float(costs.rho)!r} that the "
            "costs per cell come to: charge what the release costs"
        )


def check_texts(what: str, *others: str | None) -> None:
    """Raise InputError unless what a charge says is text that SQLite can hold."""
    for text in (what, *(other for other in others if other is not None)):
        # SQLite cannot hold half a surrogate pair, as Python makes of undecodable file names.
        if not isinstance(text, str) or not text or text.encode(errors="ignore").decode() != text:
            raise InputError(
                "what, key and output of a charge must be text, neither empty nor broken Unicode"
            )


def check_key_is_new(file: LedgerFile, database: sqlite3.Connection, key: str | None) -> None:
    """Raise LedgerError if another charge has this key."""
    found = None if key is None else rows.find_key(database, key)
    if found is None:
        return
    time, digest = found
    of_plan = f" for the plan {str(digest)[:12]}" if digest else ""
    raise file.make_error(
        f"has a charge under the key {key!r} already, of {time}{of_plan}: nothing was charged; "
        "give another release another key"
    )


def read_time() -> str:
    """Read the clock: the time in UTC (ISO 8601)."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
