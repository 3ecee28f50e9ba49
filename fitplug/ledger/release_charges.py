"""Charges of releases that happen exactly once: they are made, or found by a retry.

Parts of one release may be drawn at different times, such as period by period. The release is
charged as a whole, before its first part is drawn. Each part then has an entry of its own, at no
cost, within that charge. Its stages say whether the part was drawn, so that no copy of a folder can
draw it again. These entries name no plan and have no costs per cell: what they cost is in the
charge, and no other release is ever taken for a retry of them.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from fitplug.errors import KeyTaken
from fitplug.ledger import rows
from fitplug.ledger.charges import (
    ChargeRequest,
    StagedCharge,
    check_covers,
    check_fits,
    check_key_is_new,
    check_texts,
    convert_request,
    enter_charge,
    enter_release,
    read_time,
)
from fitplug.ledger.earlier_charges import check_counts, check_is_free, find_charge, find_retried
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.records import Budget, Entry, Stage

_LOG = logging.getLogger("fitplug.ledger")


def begin_release(
    file: LedgerFile, request: ChargeRequest, counts: str | None, seal: str | None
) -> StagedCharge:
    """Charge the release of a plan: see `Ledger.begin_release`."""
    check_texts(request.what, request.key, request.output)
    with file.open_transaction("IMMEDIATE") as database:
        budget, entries, stages = rows.read_all(database)
        request = convert_request(file, budget, request)
        retried, within = _find_or_allow(file, database, budget, entries, stages, request)
        if within is not None:
            check_counts(file, stages, within, counts)
        if retried is not None:
            _check_seal(file, retried, seal)
            return retried
        entry, budget = enter_release(database, budget, request, within)
        folder = request.output if request.in_folder else None
        stage = Stage(entry.id, "charged", read_time(), counts=seal, output=folder)
        rows.append_stage(database, budget, stage)
    _LOG.info("charged rho = %r as number %d of %s", float(entry.rho), entry.id, file.path)
    return StagedCharge(entry, stage)


def charge_free(file: LedgerFile, asked: ChargeRequest) -> Entry:
    """Enter the release of a plan at no cost: see `Ledger.charge_free`."""
    check_texts(asked.what, asked.key, asked.output)
    with file.open_transaction("IMMEDIATE") as database:
        budget, entries = rows.read_entries(database)
        check_key_is_new(file, database, asked.key)
        request = convert_request(file, budget, asked)
        within = check_is_free(file, database, entries, request)
        check_fits(file, Fraction(0), budget, request.plan.noise)
        return enter_release(database, budget, request, within)[0]


def check_free(file: LedgerFile, asked: ChargeRequest) -> None:
    """Verify that a release is free, and enter nothing: see `Ledger.check_free`."""
    with file.open_transaction() as database:
        budget, entries = rows.read_entries(database)
        check_is_free(file, database, entries, convert_request(file, budget, asked))
        check_fits(file, Fraction(0), budget, asked.plan.noise)


def _check_seal(file: LedgerFile, retried: StagedCharge, seal: str | None) -> None:
    """Raise KeyTaken if a release that is begun is made from other counts than those it began with.

    Parts of it may be drawn already, and answers from two counts cost more than the charge.
    """
    begun = retried.stage.counts
    if retried.stage.state != "charged" or begun == seal:
        return
    why = "it was begun in parts: finish it by the same call"
    if begun is None:
        why = "it was not begun in parts: finish it as it was begun"
    elif seal is not None:
        why = (
            "the counts are not those that it was begun with: the data, or the key file, has "
            "changed since"
        )
    raise KeyTaken(
        file.make_sentence(
            f"has an unfinished release, number {retried.entry.id} of {retried.entry.time[:19]}, "
            f"and {why}; nothing was charged; to draw all answers anew, at the whole cost, give "
            "another key"
        ),
        number=retried.entry.id,
    )


def find_release(file: LedgerFile, request: ChargeRequest) -> StagedCharge | None:
    """Find the charge that a request is a retry of: see `Ledger.find_release`."""
    check_texts(request.what, request.key, request.output)
    # This opens the same transaction as a charge, so that a file that cannot be written is noticed.
    with file.open_transaction(file.lock_if_created()) as database:
        budget, entries, stages = rows.read_all(database)
        request = convert_request(file, budget, request)
        return _find_or_allow(file, database, budget, entries, stages, request)[0]


def record_stage(file: LedgerFile, stage: Stage) -> Stage:
    """Record a stage unless the release is as far already; return the stage that it is at."""
    with file.open_transaction("IMMEDIATE") as database:
        budget, _, stages = rows.read_all(database)
        reached = stages.get(stage.entry)
        if reached is not None and reached.is_at_least(stage):
            return reached
        rows.append_stage(database, budget, stage)
    _LOG.info("number %d of %s is %s", stage.entry, file.path, stage.state)
    return stage


def _find_or_allow(
    file: LedgerFile,
    database: sqlite3.Connection,
    budget: Budget,
    entries: tuple[Entry, ...],
    stages: Mapping[int, Stage],
    request: ChargeRequest,
) -> tuple[StagedCharge | None, Entry | None]:
    """Find the charge that a request is a retry of, or check that a new charge is allowed.

    Returns:
        The charge that is retried, None for a new charge that is allowed; and the charge within
        which the release is free.
    """
    within = None
    if request.within is not None:
        within = find_charge(file, entries, request.within)
    entry = find_retried(file, entries, stages, request, within)
    if entry is not None:
        return StagedCharge(entry, stages[entry.id]), within
    if request.within is None:
        if request.costs is not None:
            check_covers(request.rho, request.costs)
        check_fits(file, request.rho, budget, request.plan.noise, request.changes)
    else:
        check_is_free(file, database, entries, request)
        check_fits(file, Fraction(0), budget, request.plan.noise)
    return None, within


@dataclass(frozen=True)
class DrawRequest:
    """A request to enter the draw of a part of a release, made for the first time or again.

    Attributes:
        charge: The charge of the whole release.
        key: The name of the part. A request with the same charge and key is a retry.
        what: What is drawn.
        output: Where the part goes.
    """

    charge: Entry
    key: str
    what: str
    output: str


def begin_draw(file: LedgerFile, request: DrawRequest) -> StagedCharge:
    """Enter the draw of a part, or find the entry that the request is a retry of.

    Raises:
        LedgerError: The ledger does not have the charge of the whole release, or the file cannot be
            written.
        KeyTaken: The key is that of something else.
        InputError: A text is empty or broken Unicode.
    """
    check_texts(request.what, request.key, request.output)
    with file.open_transaction("IMMEDIATE") as database:
        budget, entries, stages = rows.read_all(database)
        charge = request.charge
        if charge not in entries or charge.within is not None:
            raise file.make_error(
                f"does not have the charge number {charge.id} as it was made; open the ledger that "
                "the release was begun with"
            )
        entry = next((entry for entry in entries if entry.key == request.key), None)
        if entry is not None:
            if (entry.within, entry.plan_digest) != (charge.id, None) or entry.id not in stages:
                raise KeyTaken(
                    file.make_sentence(f"has the key {request.key!r} for something else already"),
                    number=entry.id,
                )
            return StagedCharge(entry, stages[entry.id])
        entry, budget = enter_charge(
            database,
            budget,
            rho=Fraction(0),
            what=request.what,
            key=request.key,
            output=request.output,
            bound_unit=charge.bound_unit,
            within=charge.id,
        )
        stage = Stage(entry.id, "charged", read_time(), output=request.output)
        rows.append_stage(database, budget, stage)
    _LOG.info("entered a draw as number %d of %s", entry.id, file.path)
    return StagedCharge(entry, stage)
