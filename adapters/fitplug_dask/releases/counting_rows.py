"""Counting rows: the exact counts of a release, in this process or in slabs on the workers."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from fitplug.counts import Tables
from fitplug.errors import FitplugError
from fitplug.workload import ONE_RECORD
from fitplug_dask.counting import count, count_slabs
from fitplug_dask.persons import RowStore
from fitplug_dask.releases.exact_counts import ExactCounts, StoredCounts, TableCounts
from fitplug_dask.releases.failures import UNFINISHED
from fitplug_dask.releases.jobs import PIECES_BYTES
from fitplug_dask.releases.kept_secret import KeptSecret
from fitplug_dask.releases.parted_release import PartedRelease
from fitplug_dask.releases.stored_counts import (
    CountStore,
    find_rows,
    keep_rows,
    keep_slab,
    label_counts,
)
from fitplug_dask.sources import Source

_LOG = logging.getLogger(__name__)

_MOST_CELLS = 2**24
"""The most cells of exact counts that come to this process, 128 MB of each array."""


def find_counts(
    source: Source | Tables,
    release: PartedRelease,
    counting: Mapping[str, Any],
    secret: KeptSecret,
) -> ExactCounts:
    """Count what a release needs, or find the counts that an earlier run was charged for.

    Tables of at most 2^24 cells are counted as a whole. All others are counted in slabs, each by a
    task that stores its slab encrypted beside the output; see `stored_counts`.

    Args:
        source: Files of records, or exact tables.
        release: The release.
        counting: Keywords of `count` that say how rows are read and which are kept.
        secret: The secrets of the release.

    Raises:
        FitplugError: As for `count`.
    """
    if isinstance(source, Tables):
        return TableCounts(source, secret.nonce)
    runner, progress = release.runner, release.progress
    keywords = dict(counting)
    if keywords["person"] is not None:
        # The unit of a plan says more than a number of records does.
        is_of_record = release.request.plan.unit == ONE_RECORD
        keywords["contributions"] = release.request.contributions if is_of_record else None
        keywords["key"] = keywords["key"] or secret.person_key
    if not _is_in_slabs(release):
        tables = count(source, release.request.plan, client=runner, progress=progress, **keywords)
        return TableCounts(tables, secret.nonce)
    store = open_store(release, secret)
    store.check_encryption()
    found = _find_charged(release, store)
    return _count_slabs(source, release, keywords, store) if found is None else found


def open_store(release: PartedRelease, secret: KeptSecret) -> CountStore:
    """Return where the counts of a release are stored, if they are counted in slabs."""
    place = release.output.place_counts(label_counts(secret.nonce, release.cut))
    return CountStore(place, secret.nonce, release.run)


def _is_in_slabs(release: PartedRelease) -> bool:
    """Return whether counts are too many for this process.

    The plan alone decides, so that a run that is resumed counts as the run before it.
    """
    domain = release.request.plan.domain
    cells = sum(math.prod(slab.shape_in(domain)) for slab in release.parted.slabs)
    return cells > _MOST_CELLS


def _find_charged(release: PartedRelease, store: CountStore) -> StoredCounts | None:
    """Return the counts that the ledger has charged for, if they are stored."""
    if release.charged_seal is None:
        return None
    found = store.find_seals(_describe(release), release.charged_seal)
    if found is None:
        return None
    _LOG.info("the release goes on with the counts that it was charged for")
    of_run, seals = found
    return StoredCounts(of_run, release.rows, release.charged_seal, seals)


def _count_slabs(
    source: Source, release: PartedRelease, counting: Mapping[str, Any], store: CountStore
) -> StoredCounts:
    """Count all slabs on the workers, each of which stores what it counted."""
    rows = RowStore(partial(keep_rows, store), partial(find_rows, store))
    try:
        store.open()
        seals = count_slabs(
            source,
            release.request.plan,
            release.parted.slabs,
            keep_slab,
            shared=store,
            memory=PIECES_BYTES,
            client=release.runner,
            progress=release.progress,
            rows=rows,
            **counting,
        )
        if counting["person"] is not None:
            store.remove_rows()
        seal = store.write_seals(_describe(release), seals)
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise FitplugError(f"{release.output}: {why}; {UNFINISHED}") from None
    return StoredCounts(store, release.rows, seal, seals)


def _describe(release: PartedRelease) -> dict[str, Any]:
    """Say what the counts are of, for their seal."""
    rows, limited = release.rows.rows, release.rows.limited
    said = {"cut": release.cut, "plan": release.request.plan.digest, "rows": rows}
    return said | ({"limited": limited} if limited == "enforced" else {})
