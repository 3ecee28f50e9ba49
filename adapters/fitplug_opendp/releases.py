"""Releases of exact counts by this process: in memory, or into a folder, exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fitplug.counts import Tables
from fitplug.display import Progress, Report, choose_report
from fitplug.errors import KeyTaken
from fitplug.files import MemoryPlace
from fitplug.ledger import ChargeRequest, Entry, ReleaseCharges, StagedCharge
from fitplug.plan import Plan
from fitplug.releases import Release
from fitplug.workload import check_confidence
from fitplug_opendp.count_checks import (
    CountedRows,
    check_are_tables,
    check_declared,
    check_is_enforced,
    check_limit,
    check_replaced_rows,
)
from fitplug_opendp.executor import ThisProcess, WholeTables
from fitplug_opendp.folder_release import FolderPublication
from fitplug_opendp.noise_source import NoiseSource
from fitplug_opendp.output import Output
from fitplug_opendp.publication import Publication
from fitplug_opendp.release_files import ReleaseFiles
from fitplug_opendp.release_request import ReleaseRequest, find_charge
from fitplug_opendp.staging import StagedAnswers, Staging


def release_tables(
    plan: Plan,
    tables: Tables,
    folder: str | os.PathLike[str] | None = None,
    *,
    files: Mapping[str, Any] | None = None,
    progress: Progress = None,
    **charge: Any,
) -> Release:
    """Release exact counts in this process; see `fitplug.release`, which calls this.

    Args:
        plan: The plan.
        tables: Exact counts that hold at least `plan.tables`.
        folder: The folder of the release; None for a release in memory.
        files: The files of the folder besides tables, as fields of `ReleaseFiles`.
        progress: How to report the number of answers drawn.
        charge: How the release is charged, as fields of `ReleaseRequest`.
    """
    check_are_tables(tables)
    request = ReleaseRequest(plan, CountedRows.from_tables(tables), **charge)
    if folder is None:
        check_limit(plan, tables)
    return release_counts(request, lambda: tables, folder, ReleaseFiles(**(files or {})), progress)


def release_counts(
    request: ReleaseRequest,
    find_tables: Callable[[], Tables],
    folder: str | os.PathLike[str] | None,
    files: ReleaseFiles,
    progress: Progress,
) -> Release:
    """Release exact counts in this process. They are counted only after all other checks.

    Each run draws all answers from its own counts, and only one run's answers are ever published.
    So a killed run may have had other counts than the run that finishes the release.

    Args:
        request: The release.
        find_tables: A function that returns the exact counts.
        folder: The folder of the release; None for a release in memory.
        files: The files of the folder besides tables and answers.
        progress: How to report the number of answers drawn.
    """
    report = choose_report(progress, "drawing noise")
    if folder is None:
        check_confidence(files.confidence)
        return release_in_memory(request, find_tables, report)
    output = Output.open(folder)
    publication = FolderPublication.prepare(request, output, ThisProcess(report), files)
    return publication.publish(lambda: WholeTables(request.plan, find_tables())).release


def release_in_memory(
    request: ReleaseRequest, find_tables: Callable[[], Tables], report: Report
) -> Release:
    """Release exact counts without a folder.

    The checks of the ledger and of the plan come before any look at the counts, and the ledger is
    charged before any noise is drawn. OpenDP's sampler is first tested with known answers. A
    refusal charges nothing.

    OpenDP's feature "contrib", which its Gaussian constructor requires, is switched on only during
    this call: the call itself is the consent.

    Args:
        request: The release.
        find_tables: A function that returns the exact counts. It is called after all other checks.
        report: A function that is called with the number of answers drawn and of all answers.

    Raises:
        FitplugError: The release is refused; see `fitplug.release`.
    """
    plan = request.plan
    check_replaced_rows(plan, request.rows.rows)
    check_declared(plan, is_enforced=request.is_enforced)
    noise_source = NoiseSource.from_plan(plan)
    publication = MemoryPublication(
        ledger=request.ledger,
        noise_source=noise_source,
        executor=ThisProcess(report),
        ledger_request=request.make_ledger_request(noise_source.charged, None),
    )
    return publication.check().publish(lambda: WholeTables(plan, find_tables()))


@dataclass(frozen=True, kw_only=True)
class MemoryPublication(Publication[WholeTables, Release]):
    """A release in memory: it is finished when the ledger has entered its answers as drawn.

    Attributes:
        ledger_request: The request to the ledger.
        place: The staging area in memory, which ends with the process.
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
            f"the release with the key {entry.key!r} in the ledger {self.ledger.path} was drawn at "
            f"{entry.time} already. Use another key.",
            number=entry.id,
        )

    def _check_can_continue(self) -> None:
        self.noise_source.check_plan()
        self.noise_source.check_sampler()

    def _check_counts(self, counts: WholeTables) -> None:
        check_is_enforced(counts.rows.limited, self.ledger_request.is_enforced)
        counts.check(self.plan)

    def _begin(self, charges: ReleaseCharges, counts: WholeTables) -> StagedCharge:
        return charges.begin(self.ledger_request, counts.published_seal)

    def _stage(self) -> Staging:
        return Staging(self.place, self.run, self.run, self.place)

    def _locate(self, staged: StagedAnswers) -> str | None:
        return None

    def _write(self, staged: StagedAnswers) -> Release:
        return replace(staged.release, answers=np.asarray(staged.release.answers))

    def _read_published(self) -> Release:
        raise AssertionError("a release in memory cannot be published")
