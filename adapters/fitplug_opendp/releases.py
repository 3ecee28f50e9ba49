"""Releases of exact counts by this process: in memory, or into a folder, exactly once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fitplug.counts import Tables
from fitplug.errors import BudgetError, KeyTaken
from fitplug.files import LocalPlace, MemoryPlace
from fitplug.ledger import (
    ChargeReference,
    ChargeRequest,
    Entry,
    Ledger,
    ReleaseCharges,
    StagedCharge,
)
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence
from fitplug_opendp.count_checks import (
    CountedRows,
    check_are_tables,
    check_limit,
)
from fitplug_opendp.executor import ThisProcess, WholeTables
from fitplug_opendp.folder_release import FolderPublication
from fitplug_opendp.gaussian import Progress
from fitplug_opendp.noise_source import NoiseSource
from fitplug_opendp.output import Output
from fitplug_opendp.publication import Publication
from fitplug_opendp.release_request import ReleaseRequest, find_charge
from fitplug_opendp.staging import (
    StagedAnswers,
    Staging,
    check_charges_are_known,
    holds_release,
)


def release(
    plan: Plan,
    tables: Tables,
    *,
    contributions: int = 1,
    ledger: Ledger | None = None,
    covered_by: ChargeReference | None = None,
    what: str | None = None,
    key: str | None = None,
    output: str | None = None,
    progress: Progress | None = None,
) -> Release:
    """Draw the plan's noise through OpenDP once, and release the noisy answers.

    The ledger and the plan refuse what they refuse before any look at the counts, and the ledger
    is charged before any noise is drawn. OpenDP's sampler is tested with known answers first. A
    refusal charges nothing. The ledger keeps with the charge what the plan costs each cell.

    OpenDP's feature "contrib", which its Gaussian constructor asks for, is switched on for the
    length of this call only: the call itself is the consent.

    Args:
        plan: The plan, from `fitplug.design`.
        tables: Exact counts that hold at least `plan.tables`.
        contributions: The largest number of records that one person may have; k of them cost
            k^2 rho. Tables that were limited to more records are refused.
        ledger: The ledger that is charged rho.
        covered_by: The key or the number of an earlier charge. Nothing is charged then, if at no
            cell the costs add up to more than that charge; see `Ledger.charge_covered`. Both
            releases must have counted the same records: tables whose records of a person were
            chosen by a hash, or whose rows were weighted or filtered, must be the tables of that
            charge.
        what: The text that the ledger keeps with the charge; see `Ledger.charge`.
        key: A name for the release. If a process was killed before it had the noise, the same call
            with the same key releases at no further cost. Once the noise was drawn, the key is
            refused.
        output: Where the release will be, as a text that the ledger keeps. A folder that holds a
            release of a charge which the ledger does not have is refused.
        progress: A function that is called with the number of answers drawn and the number of all
            answers, while many are drawn.

    Returns:
        The release, with the noisy answers and the charge.

    Raises:
        TablesError: The tables are not what the plan needs.
        BudgetError: The number of contributions is out of range, or `covered_by` was given without
            a ledger.
        OverBudget: The ledger has less left than the release costs.
        KeyTaken: The key names a charge for something else, or a release that was drawn already.
        LedgerError: The ledger cannot be read or written, or it does not know the earlier charge.
        PlanError: A claim of the plan does not hold, or its answers cost more than the charge.
        SamplerError: OpenDP's sampler does not draw the noise that privacy is proven for.
    """
    check_are_tables(tables)
    request = ReleaseRequest(
        plan,
        CountedRows.from_tables(tables),
        contributions=contributions,
        ledger=ledger,
        covered_by=covered_by,
        what=what,
        key=key,
    )
    check_limit(plan, tables, request.contributions)
    noise_source = NoiseSource.from_plan(plan, request.contributions)
    publication = MemoryPublication(
        ledger=ledger,
        noise_source=noise_source,
        executor=ThisProcess(progress),
        ledger_request=request.make_ledger_request(noise_source.charged, output, in_folder=False),
    )
    return publication.check().publish(lambda: WholeTables(plan, tables))


@dataclass(frozen=True, kw_only=True)
class MemoryPublication(Publication[WholeTables, Release]):
    """A release in memory: it is over when the ledger has entered its answers as drawn.

    Attributes:
        ledger_request: What the ledger is asked to charge.
        place: What stands for the staging area, which ends with the process.
    """

    ledger_request: ChargeRequest
    place: MemoryPlace = field(default_factory=MemoryPlace)

    def __str__(self) -> str:
        return "the release"

    def find_charge(self) -> MemoryPublication:
        return replace(self, charge=find_charge(self.ledger, self.ledger_request))

    def find_staged(self) -> MemoryPublication:
        if self.charge is not None and self.charge.stage.state != "charged":
            raise self._make_drawn_error(self.charge.entry)
        return self

    def _make_drawn_error(self, entry: Entry) -> KeyTaken:
        """Make the error for a key whose noise was drawn already."""
        assert self.ledger is not None
        return KeyTaken(
            f"the ledger {self.ledger.path} has the release under the key {entry.key!r} as drawn "
            f"already, at {entry.time}: nothing more was charged, and its noise is never drawn "
            "again; give another release another key",
            number=entry.id,
        )

    def _check_can_continue(self) -> None:
        output = self.ledger_request.output
        if self.ledger is not None and output is not None and os.path.isdir(output):  # noqa: PTH112 - of any text
            # The ledger may be a copy from before a release was made that is there.
            place = LocalPlace(Path(output).absolute())
            if self.charge is not None and holds_release(place, self.charge.entry):
                raise self._make_drawn_error(self.charge.entry)
            check_charges_are_known(self.ledger, place)
        self.noise_source.check_plan()
        self.noise_source.check_sampler()

    def _check_counts(self, counts: WholeTables) -> None:
        counts.check(self.plan, self.noise_source.contributions)

    def _begin(self, charges: ReleaseCharges, counts: WholeTables) -> StagedCharge:
        return charges.begin(self.ledger_request, counts.published_seal)

    def _stage(self) -> Staging:
        return Staging(self.place, self.run, self.run, self.place)

    def _locate(self, staged: StagedAnswers) -> str | None:
        return None

    def _write(self, staged: StagedAnswers) -> Release:
        return replace(staged.release, answers=np.asarray(staged.release.answers))

    def _read_published(self) -> Release:
        raise AssertionError("a release in memory is never published")


def publish(
    plan: Plan,
    tables: Tables,
    directory: str | os.PathLike[str],
    *,
    contributions: int = 1,
    ledger: Ledger | None = None,
    covered_by: ChargeReference | None = None,
    what: str | None = None,
    key: str | None = None,
    again: bool = False,
    replace: bool = False,
    confidence: float = DEFAULT_CONFIDENCE,
    progress: Progress | None = None,
) -> Release:
    """Make the release of a plan in a folder, exactly once.

    The folder is what `Release.save` writes. With a ledger, a retry of the same call after a crash
    finishes what was begun, or finds the folder, at no further cost. A refusal charges and draws
    nothing.

    Args:
        plan: The plan, from `fitplug.design`.
        tables: Exact counts that hold at least `plan.tables`.
        directory: The release folder.
        contributions: The largest number of records that one person may have; see `release`.
        ledger: The ledger that is charged rho.
        covered_by: The key or the number of an earlier charge that covers this release; see
            `release`.
        what: The text that the ledger keeps with the charge.
        key: The name of the release in the ledger. Without a key, the plan and its cost identify
            the release.
        again: Whether to make another draw of a plan that the ledger has a release of. It is for
            releases without a key.
        replace: Whether an earlier release in the folder is kept beside it under another name. It
            needs a ledger, as nothing else counts the draws. If not, a folder that holds a release
            is refused.
        confidence: The confidence of the tables' intervals for groups whose target names none.
        progress: A function that is called with the number of answers drawn and the number of all
            answers, while many are drawn.

    Returns:
        The release in the folder.

    Raises:
        AlreadyReleased: The ledger has a release of this plan, and neither a key nor `again` asks
            for another.
        KeyTaken: The key names something else, or the release was drawn from other rows.
        InputError: The folder is taken, or another argument is wrong; TablesError and BudgetError
            are InputErrors.
        OverBudget: The ledger has less left than the release costs.
        LedgerError: The ledger cannot be read or written, or it does not know the earlier charge.
        SamplerError: OpenDP's sampler does not draw the noise that privacy is proven for. Nothing
            was charged.
        FitplugError: The folder cannot be written after the charge. The same call then finishes
            the release.
    """
    check_confidence(confidence)
    check_are_tables(tables)
    if ledger is None and (key is not None or again or replace):
        raise BudgetError(
            "key, again and replace are for releases that a ledger counts: give the ledger"
        )
    if key is not None and again:
        raise BudgetError("again is for releases without a key: give another draw another key")
    request = ReleaseRequest(
        plan,
        CountedRows.from_tables(tables),
        contributions=contributions,
        ledger=ledger,
        covered_by=covered_by,
        what=what,
        key=key,
        again=again,
        replace=replace,
    )
    output, executor = Output.open(directory), ThisProcess(progress)
    publication = FolderPublication.prepare(request, output, executor, confidence=confidence)
    return publication.publish(lambda: WholeTables(plan, tables)).release
