"""Counting rows: the exact counts of a release, in this process or in slabs on the workers."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fitplug.counts import Tables
from fitplug.errors import FitplugError
from fitplug.workload import ONE_RECORD
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
from fitplug_dask.releases.executor import PartedExecutor
from fitplug_dask.releases.tasks import PIECES_BYTES
from fitplug_dask.sources import Source
from fitplug_opendp.earlier_runs import RETRY
from fitplug_opendp.key_file import RunSecret
from fitplug_opendp.publication import Publication

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
    release: Publication[SplitCounts]
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
        found = self._find_charged()
        return self._count_slabs(self.source, keywords) if found is None else found

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
        found = None if seal is None else self.store.find_seals(self._describe(), seal)
        if found is None or seal is None:
            return None
        _LOG.info("the release goes on with the counts that it was charged for")
        of_run, seals = found
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
