"""Charges of releases that happen exactly once: a request makes a charge, or a retry finds it.

Parts of one release may be drawn at different times, such as period by period. The release is
charged as a whole, before its first part is drawn. Each part then has its own entry, at no cost,
covered by that charge. The entry's stages show whether the part was drawn, so that no copy of a
folder can draw it again. These entries name no plan and have no costs per cell: the charge contains
their cost, and no other release is ever taken for a retry of them.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from fitplug.errors import KeyTaken
from fitplug.ledger import rows
from fitplug.ledger.charges import (
    ChargeRequest,
    StagedCharge,
    check_covers,
    check_fits,
    check_texts,
    convert_request,
    enter_charge,
    enter_release,
    read_time,
)
from fitplug.ledger.earlier_charges import check_counts, check_is_covered, find_charge, find_retried
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.ledger import Ledger
from fitplug.ledger.records import Budget, Entry, Stage

_LOG = logging.getLogger("fitplug.ledger")


@dataclass(frozen=True)
class DrawRequest:
    """A request to enter the draw of a part of a release, made for the first time or again.

    Attributes:
        charge: The charge of the whole release.
        key: The name of the part. A request with the same charge and key is a retry.
        what: What is drawn.
        folder: The folder of the part.
    """

    charge: Entry
    key: str
    what: str
    folder: str


class ReleaseCharges:
    """The charges of a ledger for releases that happen exactly once.

    Every method verifies the entire ledger.

    Args:
        ledger: The ledger to charge.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._file = ledger._file

    def begin(
        self,
        request: ChargeRequest | DrawRequest,
        counts: str | None = None,
        *,
        seal: str | None = None,
    ) -> StagedCharge:
        """Charge the release of a plan, or find the charge that the request is a retry of.

        Draw noise after this returns, and only if the stage is "charged".

        Args:
            request: The release to charge, or the part of a charged release to draw.
            counts: The seal of the exact counts, if the records per person were limited. A release
                that an earlier charge covers must have that charge's counts.
            seal: The seal of all exact counts of a release in parts, to store with the charge.

        Returns:
            The charge and its stage.

        Raises:
            KeyTaken: The key belongs to another release, or parts were begun from other counts.
            AlreadyReleased: The plan was released before, and no second draw is asked for.
            OverBudget: The charge does not fit, or does not cover the release.
            FitplugError: As for `Ledger.charge` and `Ledger.charge_covered`.
        """
        if isinstance(request, DrawRequest):
            return _begin_draw(self._file, request)
        file = self._file
        check_texts(request.what, request.key, request.folder)
        with file.open_transaction("IMMEDIATE") as database:
            budget, entries, stages = rows.read_all(database)
            request = convert_request(file, budget, request)
            retried, covered_by = _find_or_allow(file, database, budget, entries, stages, request)
            if covered_by is not None:
                check_counts(file, stages, covered_by, counts)
            if retried is not None:
                _check_seal(file, retried, seal)
                return retried
            entry, budget = enter_release(database, budget, request, covered_by)
            folder = request.folder if request.in_folder else None
            stage = Stage(entry.id, "charged", read_time(), counts=seal, folder=folder)
            rows.append_stage(database, budget, stage)
        _LOG.info("charged rho = %r as number %d of %s", float(entry.rho), entry.id, file.path)
        return StagedCharge(entry, stage)

    def find(self, request: ChargeRequest) -> StagedCharge | None:
        """Return what `begin` would find; None if it would make a new charge.

        Nothing is charged, and the seal of the counts is not compared.

        Raises:
            FitplugError: As for `begin`.
        """
        file = self._file
        check_texts(request.what, request.key, request.folder)
        # The same transaction as for a charge, so that a read-only file is noticed.
        with file.open_transaction(file.lock_if_created()) as database:
            budget, entries, stages = rows.read_all(database)
            request = convert_request(file, budget, request)
            return _find_or_allow(file, database, budget, entries, stages, request)[0]

    def read(self, entry: Entry) -> StagedCharge | None:
        """Read the stage of a charge's release; None if the ledger lacks the charge.

        Raises:
            LedgerError: The file cannot be read, or is damaged.
        """
        with self._file.open_transaction() as database:
            _, entries, stages = rows.read_all(database)
        return StagedCharge(entry, stages[entry.id]) if entry in entries else None

    def record_draw(
        self, entry: Entry, answers: str, *, counts: str | None = None, folder: str | None = None
    ) -> Stage:
        """Record that the noise of a charge was drawn.

        Args:
            entry: The charge.
            answers: The digest of the noisy answers.
            counts: The seal of the exact counts, if the records per person were limited.
            folder: The folder of the release; None for a release in memory.

        Returns:
            The stage of the release. It has other answers if another process was first; then
            discard this draw.

        Raises:
            LedgerError: The file cannot be written.
        """
        return self._record(Stage(entry.id, "drawn", read_time(), answers, counts, folder))

    def record_publication(self, drawn: Stage, folder: str) -> Stage:
        """Record that a release is in `folder`, and return its stage.

        Raises:
            LedgerError: The file cannot be written.
        """
        return self._record(replace(drawn, state="published", time=read_time(), folder=folder))

    def _record(self, stage: Stage) -> Stage:
        """Record a stage unless the release has reached it already; return the release's stage."""
        with self._file.open_transaction("IMMEDIATE") as database:
            budget, _, stages = rows.read_all(database)
            reached = stages.get(stage.entry)
            if reached is not None and reached.is_at_least(stage):
                return reached
            rows.append_stage(database, budget, stage)
        _LOG.info("number %d of %s is %s", stage.entry, self._file.path, stage.state)
        return stage


def _check_seal(file: LedgerFile, retried: StagedCharge, seal: str | None) -> None:
    """Raise KeyTaken if an unfinished release began with other counts.

    Parts of it may be drawn already, and answers from two counts cost more than the charge.
    """
    begun = retried.stage.counts
    if retried.stage.state != "charged" or begun == seal:
        return
    why = "begun in parts" if seal is None else "not begun in parts"
    if begun is not None and seal is not None:
        why = "of other data, other rows or another key file"
    raise KeyTaken(
        file.make_sentence(
            f"has an unfinished release {why}, number {retried.entry.id} from "
            f"{retried.entry.time[:19]}. Repeat the call that began that release, or use another "
            "key."
        ),
        number=retried.entry.id,
    )


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
        The retried charge, None for a new charge, which is then allowed; and the charge that covers
        the release, if the request names one.
    """
    covered_by = None
    if request.covered_by is not None:
        covered_by = find_charge(file, entries, request.covered_by)
    entry = find_retried(file, entries, stages, request, covered_by)
    if entry is not None:
        return StagedCharge(entry, stages[entry.id]), covered_by
    if request.covered_by is None:
        if request.costs is not None:
            check_covers(request.rho, request.costs)
        check_fits(file, request.rho, budget, request.plan.noise, request.changes)
    else:
        check_is_covered(file, database, entries, request)
        check_fits(file, Fraction(0), budget, request.plan.noise)
    return None, covered_by


def _begin_draw(file: LedgerFile, request: DrawRequest) -> StagedCharge:
    """Enter the draw of a part, or find the entry that the request is a retry of.

    Raises:
        LedgerError: The ledger does not have the charge of the whole release, or the file cannot be
            written.
        KeyTaken: The key belongs to something else.
        InputError: A text is empty or broken Unicode.
    """
    check_texts(request.what, request.key, request.folder)
    with file.open_transaction("IMMEDIATE") as database:
        budget, entries, stages = rows.read_all(database)
        charge = request.charge
        if charge not in entries or charge.covered_by is not None:
            raise file.make_error(
                f"has no charge with the number {charge.id}. Open the ledger that was charged for "
                "this release."
            )
        entry = next((entry for entry in entries if entry.key == request.key), None)
        if entry is not None:
            if (entry.covered_by, entry.plan_digest) != (charge.id, None) or entry.id not in stages:
                raise KeyTaken(
                    file.make_sentence(
                        f"already has a charge with the key {request.key!r} for another release. "
                        "Use another key."
                    ),
                    number=entry.id,
                )
            return StagedCharge(entry, stages[entry.id])
        entry, budget = enter_charge(
            database,
            budget,
            rho=Fraction(0),
            what=request.what,
            key=request.key,
            folder=request.folder,
            bound_unit=charge.bound_unit,
            covered_by=charge.id,
        )
        stage = Stage(entry.id, "charged", read_time(), folder=request.folder)
        rows.append_stage(database, budget, stage)
    _LOG.info("entered a draw as number %d of %s", entry.id, file.path)
    return StagedCharge(entry, stage)
