"""Releases of exact counts by this process: in memory, or into a folder, exactly once."""

from __future__ import annotations

import os
from pathlib import Path

from fitplug.counts import Tables
from fitplug.errors import BudgetError, KeyTaken
from fitplug.files import LocalPlace
from fitplug.ledger import ChargeReference, Entry, Ledger, ReleaseCharges
from fitplug.plan import Plan
from fitplug.release import (
    Release,
    compute_answers_digest,
)
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence
from fitplug_opendp.count_checks import (
    CountedRows,
    check_are_tables,
    check_limit,
    find_seal,
)
from fitplug_opendp.executor import ThisProcess, WholeTables
from fitplug_opendp.gaussian import Progress
from fitplug_opendp.noise_source import NoiseSource, compute_exact_answers
from fitplug_opendp.output import Output
from fitplug_opendp.publication import Publication
from fitplug_opendp.release_progress import ReleaseRequest, find_charge, log_duration
from fitplug_opendp.staging import check_charges_are_known, holds_release


def release(
    plan: Plan,
    tables: Tables,
    *,
    contributions: int = 1,
    ledger: Ledger | None = None,
    within: ChargeReference | None = None,
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
        within: The key or the number of an earlier charge. Nothing is charged then, if at no cell
            the costs add up to more than that charge; see `Ledger.charge_free`. Both releases must
            have counted the same records: tables whose records of a person were chosen by a hash,
            or whose rows were weighted or filtered, must be the tables of that charge.
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
        BudgetError: The number of contributions is out of range, or `within` was given without a
            ledger.
        OverBudget: The ledger has less left than the release costs.
        KeyTaken: The key names a charge for something else, or a release that was drawn already.
        LedgerError: The ledger cannot be read or written, or it does not know the earlier charge.
        PlanError: A claim of the plan does not hold, or its answers cost more than the charge.
        SamplerError: OpenDP's sampler does not draw the noise that privacy is proven for.
    """
    check_are_tables(tables)
    asked = ReleaseRequest(
        plan,
        CountedRows.from_tables(tables),
        contributions=contributions,
        ledger=ledger,
        within=within,
        what=what,
        key=key,
    )
    noise_source = NoiseSource.from_plan(plan, asked.contributions)
    check_limit(plan, tables, asked.contributions)
    request = asked.make_ledger_request(noise_source.charged, output, in_folder=False)
    charge = find_charge(ledger, request)
    if ledger is not None and output is not None and os.path.isdir(output):  # noqa: PTH112 - of any text
        # The ledger may be a copy from before a release was made that is there.
        place = LocalPlace(Path(output).absolute())
        if charge is not None and holds_release(place, charge.entry):
            raise _make_drawn_error(ledger, charge.entry)
        check_charges_are_known(ledger, place)
    with log_duration("check"):
        noise_source.check_plan()
        answers = compute_exact_answers(plan, tables)
        noise_source.check_sampler()
    if ledger is None:
        with log_duration("draw"):
            return noise_source.draw(tables, answers, progress)
    begun = ReleaseCharges(ledger).begin(request, find_seal(tables))
    if begun.stage.state != "charged":
        raise _make_drawn_error(ledger, begun.entry)
    with log_duration("draw"):
        drawn = noise_source.draw(tables, answers, progress, begun.entry)
    digest = compute_answers_digest(drawn)
    # Nobody has seen this draw. If another process was first, the charge pays for its draw, and
    # this one is discarded.
    if ReleaseCharges(ledger).record_draw(begun.entry, digest, counts=drawn.seal).answers != digest:
        raise _make_drawn_error(ledger, begun.entry)
    return drawn


def _make_drawn_error(ledger: Ledger, entry: Entry) -> KeyTaken:
    """Make the error for a key whose noise was drawn already."""
    return KeyTaken(
        f"the ledger {ledger.path} has the release under the key {entry.key!r} as drawn already, "
        f"at {entry.time}: nothing more was charged, and its noise is never drawn again; give "
        "another release another key",
        number=entry.id,
    )


def publish(
    plan: Plan,
    tables: Tables,
    directory: str | os.PathLike[str],
    *,
    contributions: int = 1,
    ledger: Ledger | None = None,
    within: ChargeReference | None = None,
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
        within: The key or the number of an earlier charge within which this release is free; see
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
        within=within,
        what=what,
        key=key,
        again=again,
        replace=replace,
    )
    output, executor = Output.open(directory), ThisProcess(progress)
    publication = Publication.prepare(request, output, executor, confidence=confidence)
    return publication.publish(lambda: WholeTables(plan, tables)).release
