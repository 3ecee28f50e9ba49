"""Releasing: from files of rows to a release in parts, which is made exactly once.

The rows are counted into tables in this process or, if there are too many cells, in slabs on the
workers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from fitplug.counts import Source, Tables, choose_limit, describe_source_rows, read_source
from fitplug.display import Progress, choose_report
from fitplug.errors import FitplugError, InputError
from fitplug.families import PART
from fitplug.plan import Plan
from fitplug.releases import Release
from fitplug.workload import check_confidence
from fitplug_dask.counting import count, count_slabs
from fitplug_dask.encryption import check_encryption
from fitplug_dask.persons import RowStore
from fitplug_dask.releases.counts import (
    CountStore,
    SplitCounts,
    StoredCounts,
    TableCounts,
    find_rows,
    keep_rows,
    keep_slab,
    label_counts,
)
from fitplug_dask.releases.executor import PIECES_BYTES, RELEASE_PACKAGES, PartedExecutor
from fitplug_dask.request import check_client, check_libraries
from fitplug_dask.sharding import Shards
from fitplug_dask.sources import Options
from fitplug_dask.workers import open_runner, read_timeout
from fitplug_opendp.count_checks import CountedRows
from fitplug_opendp.folder_release import FolderPublication, PublishedRelease
from fitplug_opendp.key_file import RunSecret
from fitplug_opendp.output import Output
from fitplug_opendp.release_files import ReleaseFiles
from fitplug_opendp.release_request import ReleaseRequest, ReleaseState
from fitplug_opendp.releases import release_in_memory
from fitplug_opendp.staging import RETRY

_LOG = logging.getLogger(__name__)

_MOST_CELLS = 2**24
"""The most cells that are counted into tables of this process; each array takes 128 MB."""


@dataclass(frozen=True, repr=False)
class RowCounting:
    """Counts the rows of a release.

    Attributes:
        source: The data, or exact tables.
        release: The release.
        executor: Its executor.
        secret: The secrets of the release; one of them chooses the rows of each person.
    """

    source: Source | Tables
    release: FolderPublication[SplitCounts]
    executor: PartedExecutor
    secret: RunSecret

    @property
    def store(self) -> CountStore:
        """Where the counts are stored, if they are counted in slabs."""
        label = label_counts(self.secret.nonce, self.executor.cut)
        place = self.release.output.place_counts(label)
        return CountStore(place, self.secret.nonce, self.release.run)

    def find(self) -> SplitCounts:
        """Count the tables of the release, or find the counts that an earlier run was charged for.

        Tables of at most 2^24 cells together are counted as a whole. All others are counted in
        slabs, each by a task that stores its slab encrypted next to the output; see `counts`.

        Raises:
            FitplugError: As for `count`.
        """
        if isinstance(self.source, Tables):
            return TableCounts(self.source, self.secret.nonce)
        request = self.release.request
        keywords: dict[str, Any] = {
            "client": self.executor.runner,
            "progress": self.executor.progress,
        }
        if self.source.person is not None:
            keywords["person_key"] = self.secret.person_key
        if not self._is_in_slabs():
            return TableCounts(count(self.source, request.plan, **keywords), self.secret.nonce)
        if request.plan.has_coverage:
            raise InputError(
                f"{self.release}: with the setting 'coverage', the tables must have at most 2^24 "
                "cells. Design the plan without it."
            )
        check_encryption("counts of so many cells")
        charged = self._find_charged()
        return self._count_slabs(self.source, keywords) if charged is None else charged

    def _is_in_slabs(self) -> bool:
        """Return whether there are too many counts for this process.

        Only the plan decides this, so that a resumed run counts in the same way as before.
        """
        domain = self.executor.plan.domain
        cells = sum(math.prod(slab.shape_in(domain)) for slab in self.executor.parted.slabs)
        return cells > _MOST_CELLS

    def _find_charged(self) -> StoredCounts | None:
        """Return the counts that the ledger has charged for, if they are stored."""
        seal = self.release.charged_seal
        stored = None if seal is None else self.store.find_seals(self._describe(), seal)
        if stored is None or seal is None:
            return None
        _LOG.info("the release continues with the stored counts of its charge")
        of_run, seals = stored
        return StoredCounts(of_run, self.release.request.rows, seal, seals)

    def _count_slabs(self, source: Source, keywords: dict[str, Any]) -> StoredCounts:
        """Count all slabs in tasks, each of which stores its counts."""
        store = self.store
        try:
            store.open()
            seals = count_slabs(
                source,
                self.executor.plan,
                Shards(self.executor.parted.slabs, keep_slab, store, PIECES_BYTES),
                rows=RowStore(partial(keep_rows, store), partial(find_rows, store)),
                **keywords,
            )
            if source.person is not None:
                store.remove_rows()
            seal = store.write_seals(self._describe(), seals)
        except OSError as error:
            why = (error.strerror or "cannot be written").lower()
            raise FitplugError(f"{self.release.output}: {why}. {RETRY}") from None
        return StoredCounts(store, self.release.request.rows, seal, seals)

    def _describe(self) -> dict[str, Any]:
        """Describe the counts for their seal."""
        rows, limited = self.release.request.rows.rows, self.release.request.rows.limited
        said = {"cut": self.executor.cut, "plan": self.executor.plan.digest, "rows": rows}
        return said | ({"limited": limited} if limited == "enforced" else {})


if TYPE_CHECKING:
    from distributed import Client


def release_source(
    plan: Plan,
    data: Source | Tables | Any,
    folder: str | PathLike[str] | None = None,
    *,
    client: Client | None = None,
    key_file: str | PathLike[str] | None = None,
    folder_options: Options | None = None,
    files: Mapping[str, Any] | None = None,
    progress: Progress = None,
    **charge: Any,
) -> Release:
    """Count rows and release them, or release tables in parts; see `fitplug.release`.

    Args:
        plan: The plan.
        data: The data, or exact tables.
        folder: The folder of the release, or its URL; None for a release in memory.
        client: A client of dask.distributed; None for threads of this process.
        key_file: The file of the secret of a run that is resumed.
        folder_options: How the store of the folder is reached.
        files: What the folder has in addition to tables, as fields of `ReleaseFiles`.
        progress: How each step reports its progress.
        charge: How the release is charged, as fields of `ReleaseRequest`.
    """
    check_client(client)
    check_libraries()
    report = choose_report(progress, "drawing noise")
    source = data if isinstance(data, Tables) else read_source(data)
    request = ReleaseRequest(plan, describe_data(source), **charge)
    extras = ReleaseFiles(**(files or {}))
    if folder is not None:
        output = Output.open(folder, folder_options)
        made = make_release(source, request, output, client, progress, extras, key_file=key_file)
        return made[0].release
    check_confidence(extras.confidence)

    def find_tables() -> Tables:
        if isinstance(source, Tables):
            return source
        return count(source, plan, client=client, progress=progress)

    return release_in_memory(request, find_tables, report)


def make_release(
    data: Source | Tables,
    request: ReleaseRequest,
    output: Output,
    client: Client | None,
    progress: Progress,
    files: ReleaseFiles,
    *,
    key_file: str | PathLike[str] | None = None,
) -> tuple[PublishedRelease, ReleaseState]:
    """Make a release in parts, as `release` does.

    Args:
        data: The data, or exact tables.
        request: What is released, and how it is charged.
        output: Where it goes.
        client: A client of dask.distributed, or None.
        progress: How each step reports its progress.
        files: What the folder has in addition to tables and answers.
        key_file: The file of the secret, as in `release`.

    Returns:
        The release, and how far an earlier run had come with it.

    Raises:
        FitplugError: As for `release`.
    """
    if key_file is not None and request.ledger is None:
        raise InputError("key_file= needs a ledger. Add ledger=.")
    if request.is_enforced:
        choose_limit(request.plan.unit)  # refuses a unit that no count by person keeps
    output = output.limit_requests(read_timeout())
    executor = PartedExecutor(request.plan, PART, open_runner(client, RELEASE_PACKAGES), progress)
    prepared: FolderPublication[SplitCounts] = FolderPublication.prepare(
        request, output, executor, files
    )
    try:
        secret = RunSecret.keep(prepared, key_file)
    except FitplugError:
        prepared = prepared.find_charge()
        if prepared.needs_counts:
            raise
        secret = RunSecret.keep(prepared, key_file)  # another process has published meanwhile
    rows = RowCounting(data, prepared, executor, secret)
    try:
        made = prepared.publish(rows.find)
    except BaseException:
        if not prepared.is_charged():  # nobody will draw from these counts
            rows.store.remove_run()
        raise
    rows.store.remove()
    secret.remove()
    return made, prepared.state


def describe_data(data: Source | Tables) -> CountedRows:
    """Describe the rows that are released, before they are counted."""
    if isinstance(data, Tables):
        return CountedRows.from_tables(data)
    return CountedRows(
        describe_source_rows(data), "declared" if data.person is None else "enforced"
    )
