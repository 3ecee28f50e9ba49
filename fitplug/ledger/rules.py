"""What a ledger allows: charges that fit, releases that are free, and releases that are retried.

Functions of what the ledger's file holds; `ledger` calls them within one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from fitplug.display import format_up
from fitplug.domain import Domain
from fitplug.errors import AlreadyReleased, KeyTaken, OverBudget
from fitplug.ledger import cell_costs as cellcosts
from fitplug.ledger import rows as rows
from fitplug.ledger.cell_costs import CellCosts, domain_digest
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.rows import Entry
from fitplug.ledger.stages import Stage
from fitplug.numeric import ceil_float, floor_float
from fitplug.plan import Plan
from fitplug.structure import cell_name

Which: TypeAlias = int | str
"""An earlier charge: its number, or its key."""


@dataclass(frozen=True)
class Request:
    """The release of a plan, as it is asked of a ledger for the first time or once more.

    rho: what it costs, exact, for all records of a person. within: an earlier charge within which
    it is to be free instead. key: names the release: asked for again, it is the same one. Without a
    key, a release into a folder is the same as an unfinished one of that plan that had none, and
    again asks for another draw of a plan that was released before; a release in memory is another
    one each time. output: where it goes, and in_folder: whether it is published there exactly once,
    or in memory first. what: is paid for.
    """

    plan: Plan
    rho: Fraction
    what: str
    contributions: int = 1
    key: str | None = None
    within: Which | None = None
    again: bool = False
    output: str | None = None
    in_folder: bool = False

    @cached_property
    def costs(self) -> CellCosts:
        """The costs per cell, kept with the charge. Raises BudgetError."""
        return CellCosts.of(self.plan, self.contributions)


@dataclass(frozen=True)
class Begun:
    """A release that was charged, just now or before: its entry, and how far it has come. At stage
    "begun" its noise is to be drawn; at any other it must not be drawn again.
    """

    entry: Entry
    stage: Stage


def find_release(
    file: LedgerFile,
    entries: Sequence[Entry],
    stages: Mapping[int, Stage],
    request: Request,
    within: Entry | None,
) -> Entry | None:
    """The charge of which this is a retry; None if it is to be charged. within: the charge that
    the request names.

    Raises KeyTaken if the key is that of something else, and AlreadyReleased for a second draw of
    a plan without a new key that was not asked for.
    """
    if request.key is not None:
        of_key = next((entry for entry in entries if entry.key == request.key), None)
        if of_key is not None:
            _check_retry(file, of_key, stages.get(of_key.id), request, within)
        return of_key
    if not request.in_folder:
        return None
    of_plan = [entry for entry in entries if entry.plan_digest == request.plan.digest]
    for entry in reversed(of_plan):
        same = entry.key is None and entry.output == request.output
        if same and _unfinished(stages.get(entry.id)) and _costs_same(entry, request, within):
            return entry
    if of_plan and not request.again:
        raise _already_released(file, of_plan[-1], stages.get(of_plan[-1].id), request, within)
    return None


def _costs_same(entry: Entry, request: Request, within: Entry | None) -> bool:
    """Whether a charge is for what a request costs, of every cell, and for as many records."""
    cost = (request.rho, None) if within is None else (Fraction(0), within.id)
    return (entry.rho, entry.within, entry.profile) == (*cost, request.costs.digest)


def _unfinished(stage: Stage | None) -> bool:
    """Whether it is a release into a folder that is not there yet."""
    return stage is not None and stage.state != "published" and stage.output is not None


def _check_retry(
    file: LedgerFile, entry: Entry, stage: Stage | None, request: Request, within: Entry | None
) -> None:
    """Raise KeyTaken unless the request is for the release that has its key."""
    of_plan = f" for the plan {entry.plan_digest[:12]}" if entry.plan_digest else ""
    why = None
    if entry.plan_digest != request.plan.digest:
        why = "this is another plan; if the spec is the same, give the plan file of that run"
    elif stage is None:
        why = "the ledger does not know whether its noise was drawn"
    elif not _costs_same(entry, request, within):
        why = f"it was {_price(entry)}, and this release is to be {_asked_price(request, within)}"
    elif (stage.output is not None) != request.in_folder:
        places = "in memory", "into a folder"
        begun, asked = places[stage.output is not None], places[request.in_folder]
        why = f"it was begun {begun}, and this is a release {asked}"
    if why is not None:
        raise KeyTaken(
            file.sentence(
                f"has a charge under the key {entry.key!r} already, of {entry.time}{of_plan}, and "
                f"{why}: nothing was charged; give another release another key"
            ),
            number=entry.id,
        )


def _price(entry: Entry) -> str:
    if entry.within is not None:
        return f"free within the charge {entry.within}"
    return f"charged rho = {format_up(ceil_float(entry.rho))}"


def _asked_price(request: Request, within: Entry | None) -> str:
    records = f" for {request.contributions} record(s) a person"
    if within is not None:
        return f"free within the charge {within.id}{records}"
    return f"charged rho = {format_up(ceil_float(request.rho))}{records}"


def _already_released(
    file: LedgerFile,
    entry: Entry,
    stage: Stage | None,
    request: Request,
    within: Entry | None,
) -> AlreadyReleased:
    place = stage.output if stage is not None and stage.output else entry.output
    if _unfinished(stage):
        named = f"under the key {entry.key!r}" if entry.key else f"for {place}"
        said = (
            f"has an unfinished release of this plan {named}: finish it as it was begun, or ask "
            "for another draw with --again (again=True) or a new key"
        )
    else:
        where = f", in {place}" if place else ""
        cost = (
            "nothing" if within is not None else f"rho = {format_up(ceil_float(request.rho))} more"
        )
        said = (
            f"has a release of this plan already, number {entry.id} of {entry.time[:19]}{where}: a "
            f"second draw of the same plan costs {cost}; ask for it with --again (again=True) or a "
            "new key"
        )
    return AlreadyReleased(file.sentence(said), number=entry.id)


def check_fits(file: LedgerFile, amount: Fraction, left: Fraction) -> None:
    """Raise OverBudget if this much rho is more than is left."""
    if amount > left:
        asked, rest = ceil_float(amount), floor_float(left)
        message = f"rho = {asked!r} is over budget: the ledger {file.path} has {rest!r} left"
        raise OverBudget(message, requested=asked, remaining=rest)


def check_free(
    file: LedgerFile,
    database: sqlite3.Connection,
    entries: tuple[Entry, ...],
    within: Which,
    domain: Domain,
    costs: CellCosts,
) -> Entry:
    """The charge within which a release of these costs per cell is free. Raises OverBudget, naming
    the cell, if it is not free, and LedgerError.
    """
    charge, made = charge_with_costs(file, database, entries, within, domain)
    if costs.contributions != made[0].contributions:
        raise file.error(
            f"has the charge {within!r} for {made[0].contributions} record(s) a person, not "
            f"{costs.contributions}: give the same contributions"
        )
    over = cellcosts.excess(domain, charge.rho, made, costs)
    if over is not None:
        names, at = tuple(name for name, _ in over.at), tuple(cell for _, cell in over.at)
        place = f" at {cell_name(domain, names, at)}" if names else ""
        raise OverBudget(
            f"rho = {over.requested!r} is over budget{place}: within the charge {within!r} the "
            f"ledger {file.path} has {over.remaining!r} left there: this release is not free",
            requested=over.requested,
            remaining=over.remaining,
        )
    return charge


def find_charge(file: LedgerFile, entries: Iterable[Entry], within: Which) -> Entry:
    """The charge of this number or key. Raises LedgerError if there is none, or it is free."""
    by_number = isinstance(within, int)
    found = [e for e in entries if within == (e.id if by_number else e.key)]
    if not found:
        known = "number" if by_number else "key"
        raise file.error(f"has no charge of the {known} {within!r}: see its entries")
    (charge,) = found
    if charge.within is not None:
        raise file.error(
            f"has {within!r} as a free release: name the charge it is within, {charge.within}"
        )
    return charge


def charge_with_costs(
    file: LedgerFile,
    database: sqlite3.Connection,
    entries: tuple[Entry, ...],
    within: Which,
    domain: Domain,
) -> tuple[Entry, list[CellCosts]]:
    """A charge, and the costs per cell of it and of all that is free within it. Raises
    LedgerError.
    """
    charge = find_charge(file, entries, within)
    parts = [charge, *(e for e in entries if e.within == charge.id)]
    made = [rows.read_costs(database, e.profile) for e in parts if e.profile is not None]
    if len(made) != len(parts):
        raise file.error(
            f"keeps no costs per cell with the charge {within!r}: name the release of a plan"
        )
    if made[0].domain != domain_digest(domain):
        raise file.error(
            f"has the charge {within!r} for a plan of another domain: name one of this domain"
        )
    return charge, made


def check_counts(
    file: LedgerFile, stages: Mapping[int, Stage], charge: Entry, seal: str | None
) -> None:
    """Raise LedgerError unless exact counts are of the same records as those that the charge was
    made from: both with one seal, or both without.

    seal: of counts that may be of other records than another count; None for counts of all rows,
    which hold the same records whenever they are made.
    """
    stage = stages.get(charge.id)
    named = f"the charge {charge.key or charge.id!r}"
    if stage is not None and stage.state == "begun":
        raise file.error(f"has {named} for a release that is not drawn yet: finish that one first")
    if (None if stage is None else stage.counts) != seal:
        raise file.error(
            f"does not know these counts as those of {named}: counting by person keeps other "
            "records each time, and filtered rows may be others, so use the counts file that the "
            "charge was released from, or charge this release"
        )
