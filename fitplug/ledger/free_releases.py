"""Free releases: those whose costs per cell fit within an earlier charge."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from fitplug.domain import Domain
from fitplug.errors import OverBudget
from fitplug.families import name_cell
from fitplug.ledger import rows as rows
from fitplug.ledger.cell_costs import CellCosts, digest_domain, find_excess
from fitplug.ledger.entry import Entry
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.requests import ChargeReference, ChargeRequest
from fitplug.ledger.stages import Stage


def check_is_free(
    file: LedgerFile,
    database: sqlite3.Connection,
    entries: tuple[Entry, ...],
    request: ChargeRequest,
) -> Entry:
    """Check that a release of these costs per cell is free within a charge.

    Args:
        file: The ledger's file.
        database: The open transaction.
        entries: All entries of the ledger.
        request: The request for the release, which names the charge.

    Returns:
        The charge.

    Raises:
        OverBudget: The release is not free; the message names the cell.
        LedgerError: There is no such charge, or its costs cannot be compared with these.
        BudgetError: There are too many cells.
    """
    within, domain, costs = request.within, request.plan.domain, request.costs
    if within is None:
        raise file.make_error("is asked for a free release within no charge: name the charge")
    if costs is None:
        raise file.make_error(
            f"has no free releases of plans for the unit of privacy ({request.bound_unit}), in "
            "which the costs of cells do not say what a person costs: charge this release"
        )
    charge, earlier = read_charge_costs(file, database, entries, within, domain)
    if costs.contributions != earlier[0].contributions:
        raise file.make_error(
            f"has the charge {within!r} for {earlier[0].contributions} record(s) a person, not "
            f"{costs.contributions}: give the same contributions"
        )
    excess = find_excess(domain, charge.rho, earlier, costs)
    if excess is not None:
        names = tuple(name for name, _ in excess.cell)
        indices = tuple(index for _, index in excess.cell)
        place = f" at {name_cell(domain, names, indices)}" if names else ""
        raise OverBudget(
            f"rho = {excess.requested!r} is over budget{place}: within the charge {within!r} the "
            f"ledger {file.path} has {excess.remaining!r} left there: this release is not free",
            requested=excess.requested,
            remaining=excess.remaining,
        )
    return charge


def find_charge(file: LedgerFile, entries: Iterable[Entry], within: ChargeReference) -> Entry:
    """Find the charge of this number or key.

    Raises:
        LedgerError: There is none, or it is itself free within another charge.
    """
    by_number = isinstance(within, int)
    found = [e for e in entries if within == (e.id if by_number else e.key)]
    if not found:
        known = "number" if by_number else "key"
        raise file.make_error(f"has no charge of the {known} {within!r}: see its entries")
    (charge,) = found
    if charge.within is not None:
        raise file.make_error(
            f"has {within!r} as a free release: name the charge it is within, {charge.within}"
        )
    return charge


def read_charge_costs(
    file: LedgerFile,
    database: sqlite3.Connection,
    entries: tuple[Entry, ...],
    within: ChargeReference,
    domain: Domain,
) -> tuple[Entry, list[CellCosts]]:
    """Read a charge, with the costs per cell of it and of all releases that are free within it.

    Args:
        file: The ledger's file.
        database: The open transaction.
        entries: All entries of the ledger.
        within: The charge, by its key or number.
        domain: The domain of the charge's plan.

    Returns:
        The charge, and the costs per cell: those of the charge, then those of each release.

    Raises:
        LedgerError: There is no such charge, it has no costs per cell, or they are of another
            domain.
    """
    charge = find_charge(file, entries, within)
    # Draws of parts of the charged release have no costs: theirs are those of the charge.
    free = (e for e in entries if e.within == charge.id and e.plan_digest is not None)
    sharing = [charge, *free]
    costs = [rows.read_costs(database, e.profile) for e in sharing if e.profile is not None]
    if len(costs) != len(sharing):
        raise file.make_error(
            f"keeps no costs per cell with the charge {within!r}: name the release of a plan"
        )
    if costs[0].domain != digest_domain(domain):
        raise file.make_error(
            f"has the charge {within!r} for a plan of another domain: name one of this domain"
        )
    return charge, costs


def check_counts(
    file: LedgerFile, stages: Mapping[int, Stage], charge: Entry, seal: str | None
) -> None:
    """Check that exact counts are of the same records as those of an earlier charge.

    This is so if both have one seal, or if both have none.

    Args:
        file: The ledger's file.
        stages: The newest stage of each release, by the number of its entry.
        charge: The earlier charge.
        seal: The seal of counts that may be of other records than another count. It is None for
            counts of all rows, which hold the same records whenever they are made.

    Raises:
        LedgerError: The counts are of other records, or the earlier release is not drawn yet.
    """
    stage = stages.get(charge.id)
    named = f"the charge {charge.key or charge.id!r}"
    if stage is not None and stage.state == "charged":
        raise file.make_error(
            f"has {named} for a release that is not drawn yet: finish that one first"
        )
    if (None if stage is None else stage.counts) != seal:
        raise file.make_error(
            f"does not know these counts as those of {named}: counting by person keeps other "
            "records each time, and filtered rows may be others, so use the counts file that the "
            "charge was released from, or charge this release"
        )
