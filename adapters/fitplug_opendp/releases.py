"""Releases of exact counts by this process: in memory, or into a folder, exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fitplug.counts import Tables
from fitplug.display import Progress, Report, choose_report
from fitplug.errors import KeyTaken
from fitplug.ledger import Entry, Ledger, ReleaseCharges
from fitplug.plan import Plan
from fitplug.release import (
    Release,
    compute_answers_digest,
)
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence
from fitplug_opendp.count_checks import (
    CountedRows,
    check_are_tables,
    check_declared,
    check_is_enforced,
    check_limit,
    check_replaced_rows,
    find_limit,
    find_seal,
)
from fitplug_opendp.executor import ThisProcess, WholeTables
from fitplug_opendp.noise_source import NoiseSource, compute_exact_answers
from fitplug_opendp.output import Output
from fitplug_opendp.publication import Publication
from fitplug_opendp.release_progress import ReleaseRequest, find_charge, log_duration


def release_tables(
    plan: Plan,
    tables: Tables,
    folder: str | os.PathLike[str] | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    progress: Progress = None,
    **charge: Any,
) -> Release:
    """Release exact counts in this process; see `fitplug.release`, which calls this.

    Args:
        plan: The plan.
        tables: Exact counts that hold at least `plan.tables`.
        folder: The folder of the release; None for a release in memory.
        confidence: The confidence of the tables' intervals for groups whose target names none.
        progress: How it is reported how many answers are drawn.
        charge: How the release is charged, as fields of `ReleaseRequest`.
    """
    check_confidence(confidence)
    check_are_tables(tables)
    report = choose_report(progress, "drawing noise")
    request = ReleaseRequest(plan, CountedRows.from_tables(tables), **charge)
    if folder is None:
        return release_in_memory(request, lambda: tables, report)
    output, executor = Output.open(folder), ThisProcess(report)
    publication = Publication.prepare(request, output, executor, confidence=confidence)
    return publication.publish(lambda: WholeTables(plan, tables)).release


def release_in_memory(
    request: ReleaseRequest, find_tables: Callable[[], Tables], report: Report
) -> Release:
    """Release exact counts without a folder.

    The ledger and the plan refuse what they refuse before any look at the counts, and the ledger
    is charged before any noise is drawn. OpenDP's sampler is tested with known answers first. A
    refusal charges nothing.

    OpenDP's feature "contrib", which its Gaussian constructor asks for, is switched on for the
    length of this call only: the call itself is the consent.

    Args:
        request: The release.
        find_tables: Returns the exact counts. It is called if nothing refuses the release.
        report: Called with the number of answers drawn and of all answers.

    Raises:
        FitplugError: The release is refused; see `fitplug.release`.
    """
    plan, ledger = request.plan, request.ledger
    check_replaced_rows(plan, request.rows.rows)
    check_declared(plan, is_enforced=request.is_enforced)
    noise_source = NoiseSource.from_plan(plan, request.contributions)
    asked = request.make_ledger_request(noise_source.charged, None)
    charge = find_charge(ledger, asked)
    if charge is not None and ledger is not None and charge.stage.state != "charged":
        raise _make_drawn_error(ledger, charge.entry)
    with log_duration("check"):
        noise_source.check_plan()
        noise_source.check_sampler()
    with log_duration("count"):
        tables = find_tables()
        check_is_enforced(find_limit(tables), request.is_enforced)
        check_limit(plan, tables, request.contributions)
        answers = compute_exact_answers(plan, tables)
    if ledger is None:
        with log_duration("draw"):
            return noise_source.draw(tables, answers, report)
    charges = ReleaseCharges(ledger)
    begun = charges.begin(asked, find_seal(tables))
    if begun.stage.state != "charged":
        raise _make_drawn_error(ledger, begun.entry)
    with log_duration("draw"):
        drawn = noise_source.draw(tables, answers, report, begun.entry)
    digest = compute_answers_digest(drawn)
    # Nobody has seen this draw. If another process was first, the charge pays for its draw, and
    # this one is discarded.
    if charges.record_draw(begun.entry, digest, counts=drawn.seal).answers != digest:
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
