"""Earlier charges: one may cover a further release, or a release may be a retry of one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from fitplug.display import format_excess, format_up
from fitplug.domain import Domain
from fitplug.errors import AlreadyReleased, KeyTaken, OverBudget
from fitplug.families import name_cell
from fitplug.ledger import rows
from fitplug.ledger.cell_costs import CellCosts, digest_domain, find_excess
from fitplug.ledger.charges import (
    ChargeReference,
    ChargeRequest,
    check_fits,
    check_key_is_new,
    check_texts,
    convert_request,
    enter_release,
)
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.records import Entry, Stage
from fitplug.numeric import ceil_float


def charge_covered(file: LedgerFile, asked: ChargeRequest) -> Entry:
    """Enter the release of a plan at no cost: see `Ledger.charge_covered`."""
    check_texts(asked.what, asked.key, asked.folder)
    with file.open_transaction("IMMEDIATE") as database:
        budget, entries = rows.read_entries(database)
        check_key_is_new(file, database, asked.key)
        request = convert_request(file, budget, asked)
        covered_by = check_is_covered(file, database, entries, request)
        check_fits(file, Fraction(0), budget, request.plan.noise)
        return enter_release(database, budget, request, covered_by)[0]


def check_covered(file: LedgerFile, asked: ChargeRequest) -> None:
    """Verify that a charge covers a release, and enter nothing: see `Ledger.check_covered`."""
    with file.open_transaction() as database:
        budget, entries = rows.read_entries(database)
        check_is_covered(file, database, entries, convert_request(file, budget, asked))
        check_fits(file, Fraction(0), budget, asked.plan.noise)


def check_is_covered(
    file: LedgerFile,
    database: sqlite3.Connection,
    entries: tuple[Entry, ...],
    request: ChargeRequest,
) -> Entry:
    """Check that an earlier charge covers a release.

    Args:
        file: The ledger's file.
        database: The open transaction.
        entries: All entries of the ledger.
        request: The request for the release, which names the charge and has the costs per cell.

    Returns:
        The charge.

    Raises:
        OverBudget: The charge does not cover the release; the message names the cell.
        LedgerError: There is no such charge, or its costs cannot be compared with these.
        BudgetError: There are too many cells.
    """
    covered_by, domain, costs = request.covered_by, request.plan.domain, request.costs
    if covered_by is None:
        raise file.make_error(
            "needs to know which charge covers this release. Give the charge's number or key as "
            "covered_by=."
        )
    if costs is None:
        raise file.make_error(
            f"cannot cover releases for the unit of privacy ({request.bound_unit}). Remove "
            "covered_by=."
        )
    charge, earlier = read_charge_costs(file, database, entries, covered_by, domain)
    if costs.records != earlier[0].records:
        raise file.make_error(
            f"has the charge {covered_by!r} for {earlier[0].records} row(s) per person, not "
            f"{costs.records}. Design the plan for the same unit of privacy."
        )
    excess = find_excess(domain, charge.rho, earlier, costs)
    if excess is not None:
        names = tuple(name for name, _ in excess.cell)
        indices = tuple(index for _, index in excess.cell)
        place = f" at {name_cell(domain, names, indices)}" if names else ""
        cost, left = format_excess(excess.requested, excess.remaining)
        raise OverBudget(
            f"rho = {cost} is over budget{place}: the earlier charge {covered_by!r} in "
            f"{file.path} leaves {left}. Relax the targets, or leave out covered_by.",
            requested=excess.requested,
            remaining=excess.remaining,
        )
    return charge


def find_charge(file: LedgerFile, entries: Iterable[Entry], covered_by: ChargeReference) -> Entry:
    """Find the charge with this number or key.

    Raises:
        LedgerError: There is none, or another charge covers it.
    """
    by_number = isinstance(covered_by, int)
    matching = [e for e in entries if covered_by == (e.id if by_number else e.key)]
    if not matching:
        known = "number" if by_number else "key"
        raise file.make_error(
            f"has no charge with the {known} {covered_by!r}. List the ledger's entries."
        )
    (charge,) = matching
    if charge.covered_by is not None:
        raise file.make_error(
            f"has the release {covered_by!r}, but charge {charge.covered_by} covers it. "
            f"Give charge {charge.covered_by} instead."
        )
    return charge


def read_charge_costs(
    file: LedgerFile,
    database: sqlite3.Connection,
    entries: tuple[Entry, ...],
    covered_by: ChargeReference,
    domain: Domain,
) -> tuple[Entry, list[CellCosts]]:
    """Read a charge, with its costs per cell and those of all releases that it covers.

    Args:
        file: The ledger's file.
        database: The open transaction.
        entries: All entries of the ledger.
        covered_by: The charge, by its key or number.
        domain: The domain of the charge's plan.

    Returns:
        The charge, and the costs per cell: of the charge, then of each release.

    Raises:
        LedgerError: There is no such charge, it has no costs per cell, or their domain is another.
    """
    charge = find_charge(file, entries, covered_by)
    # Draws of parts of the charged release have no costs: the charge has them.
    covered = (e for e in entries if e.covered_by == charge.id and e.plan_digest is not None)
    sharing = [charge, *covered]
    costs = [rows.read_costs(database, e.profile) for e in sharing if e.profile is not None]
    if len(costs) != len(sharing):
        raise file.make_error(
            f"has no costs per cell for the charge {covered_by!r}. Give the charge of a plan's "
            "release."
        )
    if costs[0].domain != digest_domain(domain):
        raise file.make_error(
            f"has the charge {covered_by!r} for a plan with another domain. Name a charge with the "
            "domain of this plan."
        )
    return charge, costs


def check_counts(
    file: LedgerFile, stages: Mapping[int, Stage], charge: Entry, seal: str | None
) -> None:
    """Check that exact counts are of the same records as the counts of an earlier charge.

    They are if both have the same seal, or if neither has one.

    Args:
        file: The ledger's file.
        stages: The newest stage of each release, by the number of its entry.
        charge: The earlier charge.
        seal: The seal of counts that another count might not repeat. It is None for counts of all
            rows, which are the same whenever they are made.

    Raises:
        LedgerError: The counts are of other records, or the earlier release is not drawn yet.
    """
    stage = stages.get(charge.id)
    named = f"the charge {charge.key or charge.id!r}"
    if stage is not None and stage.state == "charged":
        raise file.make_error(
            f"has {named} for a release that is not drawn yet. Finish that release first."
        )
    if (None if stage is None else stage.counts) != seal:
        raise file.make_error(
            f"has another file of counts for {named} than this one. Use the counts file of that "
            "release."
        )


def find_retried(
    file: LedgerFile,
    entries: Sequence[Entry],
    stages: Mapping[int, Stage],
    request: ChargeRequest,
    covered_by: Entry | None,
) -> Entry | None:
    """Find the charge of which a request is a retry.

    Args:
        file: The ledger's file.
        entries: All entries of the ledger.
        stages: The newest stage of each release, by the number of its entry.
        request: The request.
        covered_by: The charge that covers the release, if the request names one.

    Returns:
        The charge; None if the request is not a retry and must be charged.

    Raises:
        KeyTaken: The key belongs to another release.
        AlreadyReleased: The plan was released before, and the request neither has a new key nor
            asks for a second draw.
    """
    if request.key is not None:
        of_key = next((entry for entry in entries if entry.key == request.key), None)
        if of_key is not None:
            _check_retry(file, of_key, stages.get(of_key.id), request, covered_by)
        return of_key
    if not request.in_folder:
        return None
    of_plan = [entry for entry in entries if entry.plan_digest == request.plan.digest]
    for entry in reversed(of_plan):
        is_same = entry.key is None and entry.folder == request.folder
        is_unfinished = _is_unfinished(stages.get(entry.id))
        if is_same and is_unfinished and _has_same_costs(entry, request, covered_by):
            return entry
    if of_plan and not request.again:
        newest = of_plan[-1]
        raise _make_already_released(file, newest, stages.get(newest.id), request, covered_by)
    return None


def _has_same_costs(entry: Entry, request: ChargeRequest, covered_by: Entry | None) -> bool:
    """Return whether a charge has the rho and the costs per cell of a request."""
    cost = (request.rho, None) if covered_by is None else (Fraction(0), covered_by.id)
    profile = None if request.costs is None else request.costs.digest
    return (entry.rho, entry.covered_by, entry.profile) == (*cost, profile)


def _is_unfinished(stage: Stage | None) -> bool:
    """Return whether a stage belongs to a release into a folder that is not published yet."""
    return stage is not None and stage.state != "published" and stage.folder is not None


def _check_retry(
    file: LedgerFile,
    entry: Entry,
    stage: Stage | None,
    request: ChargeRequest,
    covered_by: Entry | None,
) -> None:
    """Raise KeyTaken unless the request repeats the release that has its key."""
    why, remedy = None, "Use another key."
    if entry.plan_digest != request.plan.digest:
        why, remedy = "it is for another plan", "Use that plan, or another key."
    elif stage is None:
        why = "it is not known whether its noise was drawn"
    elif not _has_same_costs(entry, request, covered_by):
        wanted = _describe_request_price(request, covered_by)
        why = f"it was {_describe_price(entry)}, but this release would be {wanted}"
    elif (stage.folder is not None) != request.in_folder:
        places = {True: "into a folder", False: "in memory"}
        begun, wanted = places[stage.folder is not None], places[request.in_folder]
        why = f"it was begun {begun}, but this release is {wanted}"
    if why is not None:
        raise KeyTaken(
            file.make_sentence(
                f"already has a charge with the key {entry.key!r}, from {entry.time}: {why}. "
                f"{remedy}"
            ),
            number=entry.id,
        )


def _describe_price(entry: Entry) -> str:
    """Describe the cost of a charge in words."""
    if entry.covered_by is not None:
        return f"covered by the charge {entry.covered_by}"
    return f"charged rho = {format_up(ceil_float(entry.rho))}"


def _describe_request_price(request: ChargeRequest, covered_by: Entry | None) -> str:
    """Describe the cost of a request in words."""
    unit = f" in its unit of privacy, {request.plan.unit}"
    if covered_by is not None:
        return f"covered by the charge {covered_by.id}{unit}"
    return f"charged rho = {format_up(ceil_float(request.rho))}{unit}"


def _describe_absence(place: str) -> str:
    """Say that the folder of a release is gone, if it is local and does not exist."""
    if not Path(place).is_absolute() or Path(place).exists():
        return ""
    return (
        " (the folder is gone; restore it from a copy, because the same numbers are never drawn "
        "again)"
    )


def _make_already_released(
    file: LedgerFile,
    entry: Entry,
    stage: Stage | None,
    request: ChargeRequest,
    covered_by: Entry | None,
) -> AlreadyReleased:
    """Make the error for a plan that was already released by this ledger."""
    place = stage.folder if stage is not None and stage.folder else entry.folder
    if _is_unfinished(stage):
        named = f"under the key {entry.key!r}" if entry.key else f"for {place}"
        predicate = (
            f"has an unfinished release of this plan {named}. Finish it with the same call, or "
            "request another draw with --again (again=True) or a new key."
        )
    else:
        where = f", in {place}{_describe_absence(place)}" if place else ""
        cost = (
            "nothing"
            if covered_by is not None
            else f"rho = {format_up(ceil_float(request.rho))} more"
        )
        aside = (
            ", and add --replace (replace=True), which keeps the earlier folder under another name"
            if place and place == request.folder and Path(place).exists()
            else ""
        )
        predicate = (
            f"already has a release of this plan, number {entry.id} from {entry.time[:19]}{where}. "
            f"A second draw costs {cost}; request it with --again (again=True) or a new key{aside}."
        )
    return AlreadyReleased(file.make_sentence(predicate), number=entry.id)
