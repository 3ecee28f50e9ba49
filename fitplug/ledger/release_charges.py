"""Charges of releases that happen exactly once: they are begun, or found by a retry."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from fractions import Fraction

from fitplug.errors import KeyTaken
from fitplug.ledger import rows as rows
from fitplug.ledger.budget import Budget
from fitplug.ledger.charge_units import convert_request
from fitplug.ledger.charges import (
    Charge,
    check_covers,
    check_fits,
    check_key_is_new,
    check_texts,
    read_time,
)
from fitplug.ledger.entry import Entry
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.free_releases import check_counts, check_is_free, find_charge
from fitplug.ledger.requests import ChargeRequest, StagedCharge
from fitplug.ledger.retries import find_retried
from fitplug.ledger.stages import Stage

_LOG = logging.getLogger("fitplug.ledger")


def begin_release(
    file: LedgerFile, request: ChargeRequest, counts: str | None, seal: str | None
) -> StagedCharge:
    """Charge the release of a plan: see `Ledger.begin_release`."""
    check_texts(request.what, request.key, request.output)
    with file.open_transaction("IMMEDIATE") as database:
        budget, entries, stages = rows.read_all(database)
        request = convert_request(file, budget, request)
        found, within = _find_or_allow(file, database, budget, entries, stages, request)
        if within is not None:
            check_counts(file, stages, within, counts)
        if found is not None:
            _check_seal(file, found, seal)
            return found
        charge = Charge(
            rho=request.rho if within is None else Fraction(0),
            what=request.what,
            key=request.key,
            plan_digest=request.plan.digest,
            output=request.output,
            within=None if within is None else within.id,
            costs=request.costs,
            bound_unit=request.bound_unit,
        )
        entry, budget = charge.enter(database, budget)
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
        charge = Charge(
            rho=Fraction(0),
            what=request.what,
            key=request.key,
            plan_digest=request.plan.digest,
            output=request.output,
            within=check_is_free(file, database, entries, request).id,
            costs=request.costs,
            bound_unit=request.bound_unit,
        )
        return charge.enter(database, budget)[0]


def check_free(file: LedgerFile, asked: ChargeRequest) -> None:
    """Verify that a release is free, and enter nothing: see `Ledger.check_free`."""
    with file.open_transaction() as database:
        budget, entries = rows.read_entries(database)
        check_is_free(file, database, entries, convert_request(file, budget, asked))


def _check_seal(file: LedgerFile, found: StagedCharge, seal: str | None) -> None:
    """Raise KeyTaken if a release that is begun is made from other counts than those it began with.

    Parts of it may be drawn already, and answers from two counts cost more than the charge.
    """
    begun = found.stage.counts
    if found.stage.state != "charged" or begun == seal:
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
            f"has an unfinished release, number {found.entry.id} of {found.entry.time[:19]}, and "
            f"{why}; nothing was charged; to draw all answers anew, at the whole cost, give "
            "another key"
        ),
        number=found.entry.id,
    )


def find_release(file: LedgerFile, request: ChargeRequest) -> StagedCharge | None:
    """Find the charge that a request is a retry of: see `Ledger.find_release`."""
    check_texts(request.what, request.key, request.output)
    # This opens the same transaction as a charge, so that a file that cannot be written is noticed.
    with file.open_transaction("IMMEDIATE") as database:
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
        check_fits(file, request.rho, budget.left, request.changes)
    else:
        check_is_free(file, database, entries, request)
    return None, within
