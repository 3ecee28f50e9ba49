"""Releasing: from files of rows to a release in parts, which happens exactly once.

The exact counts are made in this process or, if they are too many, in slabs on the workers.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from fitplug.counts import Tables, Where, describe_rows, make_filters
from fitplug.errors import BudgetError, FitplugError, InputError
from fitplug.families import PART
from fitplug.ledger import ChargeReference, Ledger
from fitplug.plan import Plan
from fitplug.release import MoreFiles, Release
from fitplug.workload import DEFAULT_CONFIDENCE, ONE_RECORD, check_confidence
from fitplug_dask.counting import count, count_slabs
from fitplug_dask.encryption import check_encryption
from fitplug_dask.persons import RowStore, choose_limit
from fitplug_dask.progress import Progress, choose_report
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
from fitplug_dask.releases.executor import PartedExecutor
from fitplug_dask.releases.tasks import PIECES_BYTES, RELEASE_PACKAGES
from fitplug_dask.request import check_client, check_libraries
from fitplug_dask.sources import Options, Source
from fitplug_dask.workers import open_runner, read_timeout
from fitplug_opendp.count_checks import CountedRows
from fitplug_opendp.folder_release import FolderPublication, PublishedRelease
from fitplug_opendp.key_file import RunSecret
from fitplug_opendp.output import Output
from fitplug_opendp.release_request import ReleaseRequest, ReleaseState
from fitplug_opendp.staging import RETRY

_LOG = logging.getLogger(__name__)

_MOST_CELLS = 2**24
"""The most cells of exact counts that come to this process, 128 MB of each array."""


@dataclass(frozen=True, repr=False)
class RowCounting:
    """How the rows of a release are counted.

    Attributes:
        source: Files of records, or exact tables.
        release: The release.
        executor: Its executor.
        keywords: Keywords of `count` that say how rows are read and which are kept.
        secret: The secrets of the release.
    """

    source: Source | Tables
    release: FolderPublication[SplitCounts]
    executor: PartedExecutor
    keywords: Mapping[str, Any]
    secret: RunSecret

    @property
    def store(self) -> CountStore:
        """Where the counts are stored, if they are counted in slabs."""
        label = label_counts(self.secret.nonce, self.executor.cut)
        place = self.release.output.place_counts(label)
        return CountStore(place, self.secret.nonce, self.release.run)

    def find(self) -> SplitCounts:
        """Count what the release needs, or find the counts that an earlier run was charged for.

        Tables of at most 2^24 cells are counted as a whole. All others are counted in slabs, each
        by a task that stores its slab encrypted beside the output; see `counts`.

        Raises:
            FitplugError: As for `count`.
        """
        if isinstance(self.source, Tables):
            return TableCounts(self.source, self.secret.nonce)
        request, keywords = self.release.request, dict(self.keywords)
        if keywords["person"] is not None:
            # The unit of a plan says more than a number of records does.
            is_of_record = request.plan.unit == ONE_RECORD
            keywords["contributions"] = request.contributions if is_of_record else None
            keywords["key"] = keywords["key"] or self.secret.person_key
        keywords |= {"client": self.executor.runner, "progress": self.executor.progress}
        if not self._is_in_slabs():
            return TableCounts(count(self.source, request.plan, **keywords), self.secret.nonce)
        check_encryption("counts of so many cells")
        charged = self._find_charged()
        return self._count_slabs(self.source, keywords) if charged is None else charged

    def _is_in_slabs(self) -> bool:
        """Return whether counts are too many for this process.

        The plan alone decides, so that a run that is resumed counts as the run before it.
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
        _LOG.info("the release goes on with the counts that it was charged for")
        of_run, seals = stored
        return StoredCounts(of_run, self.release.request.rows, seal, seals)

    def _count_slabs(self, source: Source, keywords: Mapping[str, Any]) -> StoredCounts:
        """Count all slabs on the workers, each of which stores what it counted."""
        store = self.store
        try:
            store.open()
            seals = count_slabs(
                source,
                self.executor.plan,
                self.executor.parted.slabs,
                keep_slab,
                shared=store,
                memory=PIECES_BYTES,
                rows=RowStore(partial(keep_rows, store), partial(find_rows, store)),
                **keywords,
            )
            if keywords["person"] is not None:
                store.remove_rows()
            seal = store.write_seals(self._describe(), seals)
        except OSError as error:
            why = (error.strerror or "it cannot be written").lower()
            raise FitplugError(f"{self.release.output}: {why}; {RETRY}") from None
        return StoredCounts(store, self.release.request.rows, seal, seals)

    def _describe(self) -> dict[str, Any]:
        """Say what the counts are of, for their seal."""
        rows, limited = self.release.request.rows.rows, self.release.request.rows.limited
        said = {"cut": self.executor.cut, "plan": self.executor.plan.digest, "rows": rows}
        return said | ({"limited": limited} if limited == "enforced" else {})


if TYPE_CHECKING:
    from distributed import Client


def release(
    source: Source | Tables,
    plan: Plan,
    output: str | PathLike[str],
    *,
    client: Client | None = None,
    ledger: Ledger | None = None,
    key: str | None = None,
    person: str | None = None,
    contributions: int = 1,
    person_key: bytes | None = None,
    key_file: str | os.PathLike[str] | None = None,
    progress: Progress = None,
    storage_options: Options | None = None,
    output_options: Options | None = None,
    weight: str | None = None,
    where: Where | None = None,
    zone: str | None = None,
    missing: Mapping[str, Any] | None = None,
    within: ChargeReference | None = None,
    what: str | None = None,
    again: bool = False,
    replace: bool = False,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Release:
    """Make the release of a plan in parts, exactly once, on threads or on a cluster.

    The noise of about a million answers at a time is drawn by OpenDP where its part is made. Each
    part is durable before the next step, and whoever writes it first decides what it holds, so a
    worker that is lost, or a task that runs twice, never publishes a second draw of an answer. The
    sampler of every worker is tested before the ledger is charged.

    With a ledger, the same call finishes a run that was killed, at no further cost, and draws only
    the parts that are missing. It counts again, and is refused if the data have changed since, as
    answers from two datasets would cost more than was charged. For this, a secret is kept in
    `key_file` until the release is published. Without a ledger, a run that was killed leaves
    nothing that is taken again.

    Exact counts of more than 2^24 cells never come to one process. They stay beside the output
    until the release is published, in files that only the secret of `key_file` opens, and a run
    that is resumed after the charge goes on with them.

    Args:
        source: Files of records, as `count` takes them; or exact tables.
        plan: The plan, from `fitplug.design`.
        output: The release folder: a path, which the client and all workers share, or a URL of a
            store.
        client: A dask.distributed Client; None works on threads of this process.
        ledger: The ledger that is charged rho, once, before any noise is drawn.
        key: The name of the release in the ledger. Without a key, the plan, its cost and the output
            identify the release.
        person: A column that identifies persons, as in `count`.
        contributions: The largest number of records that one person may have. With `person`, no
            more are counted.
        person_key: The secret key that chooses the rows of each person; drawn if left out.
        key_file: The file of the secret, which is drawn if there is none, and removed when the
            release is published. It must not lie beside the output. If left out, it is a file in
            the account of this user, so that only this user finishes the release, and on this
            machine.
        progress: True shows a percentage on stderr; a callable is told (done, all) of each step.
            These numbers may be exact counts of rows, so show their ratio only.
        storage_options: How the stores of the source are reached.
        output_options: Keywords of the file system of the output, such as credentials.
        weight: A column of integers, as in `count`.
        where: Which rows are counted, as in `count`.
        zone: The time zone whose days times fall on, as in `count`.
        missing: The values of columns that some files lack, as in `count`.
        within: The key or the number of an earlier charge within which this release is free.
        what: The text that the ledger keeps with the charge.
        again: Whether to make another draw of a plan that the ledger has a release of. It is for
            releases without a key.
        replace: Whether an earlier release in the folder is kept beside it under another name. It
            needs a ledger, and a folder that is not in a store.
        confidence: The confidence of the tables' intervals for groups whose target names none.

    Returns:
        The release, which reads its parts from the output when they are needed.

    Raises:
        AlreadyReleased: The ledger has a release of this plan, and neither a key nor `again` asks
            for another.
        KeyTaken: The key names something else, or the release was begun from other counts or is of
            other rows.
        OverBudget: The ledger has less left than the release costs.
        SamplerError: OpenDP's sampler does not draw the noise that privacy is proven for. Nothing
            was charged. Of a worker of a cluster this is a FitplugError with the same message.
        InputError: The output is taken, or another argument is wrong; so are the errors of `count`.
        LedgerError: The ledger cannot be read or written.
        FitplugError: Workers fail, or the output cannot be written. The same call then finishes
            the release.
    """
    check_confidence(confidence)
    check_client(client)
    check_libraries()
    choose_report(progress)
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be a fitplug.Plan, not {type(plan).__name__}")
    if ledger is None and (key is not None or again or replace):
        raise BudgetError(
            "key, again and replace are for releases that a ledger records: give the ledger"
        )
    if key is not None and again:
        raise BudgetError("again is for releases without a key: give another draw another key")
    counting: dict[str, Any] = {
        "person": person,
        "key": person_key,
        "storage_options": storage_options,
        "weight": weight,
        "where": where,
        "zone": zone,
        "missing": missing,
    }
    if isinstance(source, Tables) and any(counting.values()):
        raise InputError("the source is counted already; give files, or leave out how to count")
    request = ReleaseRequest(
        plan,
        describe_source(source, counting),
        contributions=contributions,
        ledger=ledger,
        within=within,
        what=what,
        key=key,
        again=again,
        replace=replace,
    )
    place = Output.open(output, output_options)
    return make_release(
        source, request, place, counting, client, progress, confidence, key_file=key_file
    )[0].release


def make_release(
    source: Source | Tables,
    request: ReleaseRequest,
    output: Output,
    counting: Mapping[str, Any],
    client: Client | None,
    progress: Progress,
    confidence: float,
    files: MoreFiles[Release] | None = None,
    key_file: str | os.PathLike[str] | None = None,
) -> tuple[PublishedRelease, ReleaseState]:
    """Make a release in parts, as `release` does.

    Args:
        source: Files of records, or exact tables.
        request: What is released, and how it is charged.
        output: Where it goes.
        counting: Keywords of `count` that say how rows are read and which are kept.
        client: A client of dask.distributed, or None.
        progress: How each step reports what is done.
        confidence: The confidence of the intervals of groups whose target has none.
        files: What the caller adds to the folder.
        key_file: The file of the secret, as in `release`.

    Returns:
        The release, and how far an earlier run had come with it.

    Raises:
        FitplugError: As for `release`.
    """
    if key_file is not None and request.ledger is None:
        raise InputError("key_file is for runs that are resumed: give a ledger")
    if request.is_enforced:
        choose_limit(request.plan.unit, None)  # refuses a unit that no count by person keeps
    output = output.limit_requests(read_timeout())
    executor = PartedExecutor(request.plan, PART, open_runner(client, RELEASE_PACKAGES), progress)
    prepared: FolderPublication[SplitCounts] = FolderPublication.prepare(
        request, output, executor, confidence=confidence, files=files
    )
    secret = RunSecret.keep(prepared, key_file)
    rows = RowCounting(source, prepared, executor, counting, secret)
    try:
        made = prepared.publish(rows.find)
    except BaseException:
        if not prepared.is_charged():  # nobody will draw from these counts
            rows.store.remove_run()
        raise
    rows.store.remove()
    secret.remove()
    return made, prepared.state


def describe_source(source: Source | Tables, counting: Mapping[str, Any]) -> CountedRows:
    """Say which rows are released, before they are counted."""
    if isinstance(source, Tables):
        return CountedRows.from_tables(source)
    rows = describe_rows(counting["weight"], make_filters(counting["where"]))
    return CountedRows(rows, "declared" if counting["person"] is None else "enforced")
