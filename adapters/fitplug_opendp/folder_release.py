"""Releases into a folder: `publish`, the call that makes one exactly once."""

from __future__ import annotations

import os

from fitplug.counts import Tables
from fitplug.errors import BudgetError
from fitplug.ledger import ChargeReference, Ledger
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence
from fitplug_opendp.gaussian import Progress
from fitplug_opendp.input_checks import check_are_tables
from fitplug_opendp.publication import Publication
from fitplug_opendp.release_request import ReleaseRequest


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

    The folder is what `Release.write` writes. With a ledger, a retry of the same call after a crash
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
        directory,
        contributions=contributions,
        ledger=ledger,
        within=within,
        what=what,
        key=key,
        again=again,
        replace=replace,
        is_enforced=tables.contributions is not None,
    )
    publication = Publication.prepare(request)
    return publication.publish(tables, confidence=confidence, progress=progress).release
