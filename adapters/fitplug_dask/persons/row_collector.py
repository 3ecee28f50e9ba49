"""Row collector: the rows of a partition that may be kept, as hashes and packed cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.domain import OUTSIDE, get_codec
from fitplug_dask import compiled_loops as loops
from fitplug_dask.encoding import CodeReader, ColumnEncoder
from fitplug_dask.kernel import FolderCodes, Job, take_codes
from fitplug_dask.persons.packing import Packing, PersonHasher, Rows, concatenate_rows
from fitplug_dask.persons.selection import Selection

_COMPACTED_ROWS = 2**21


class RowCollector:
    """Takes the batches of a partition, and holds the rows that may be kept."""

    def __init__(self, job: Job, selection: Selection) -> None:
        """Hold no rows."""
        self._job, self._selection = job, selection
        self._packing = Packing(job)
        self._hasher = PersonHasher(selection.tag_key, len(selection.person))
        self._readers: dict[str, CodeReader] = {}
        self._filters: dict[str, ColumnEncoder] = {}
        self._passing: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._room = 0
        self._groups: list[Rows] = []
        self._collected = self._compacted = 0

    def take_batch(self, batch: Any, columns: Sequence[str], shared: FolderCodes) -> None:
        """Take the rows of an Arrow batch; `shared` are the codes that their folders give."""
        self._make_room(batch.num_rows)
        codes: dict[str, Any] = {}
        for name in columns:
            if name in self._readers:
                codes[name] = self._readers[name].read(batch.column(name))
        passing = self._passing[: batch.num_rows]
        filters = [(name, encoder) for name, encoder in self._filters.items() if name in columns]
        lookups = [encoder.make_lookup(batch.column(name)) for name, encoder in filters]
        loops.locate(lookups, 0, passing)
        persons = [batch.column(name) for name in self._selection.person]
        tags, wanted = self._hasher.hash_persons(persons)
        for column in codes.values():
            wanted = wanted & (column != OUTSIDE)
        wanted = wanted & (passing >= 0)
        if wanted.all():
            rows = batch.num_rows
        else:
            positions = np.flatnonzero(wanted)
            rows, tags = len(positions), tags[positions]
            codes = {name: column[positions] for name, column in codes.items()}
            shared = take_codes(shared, positions)
        self._groups.append(Rows(tags, self._packing.pack({**codes, **shared}, rows)))
        self._collected += rows
        # This is seldom enough to cost little, and often enough that persons of very many rows,
        # such as those behind a placeholder, take no more memory than others.
        if self._collected > max(_COMPACTED_ROWS, 2 * self._compacted):
            collected = self.collect()
            self._groups = [collected.take(self._selection.select_rows(collected))]
            self._collected = self._compacted = len(self._groups[0].tags)

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Refuse rows that no column distinguishes: the rows of persons have one."""
        raise AssertionError("rows of persons need a column that identifies persons")

    def collect(self) -> Rows:
        """Return all rows that were taken and may be kept."""
        if not self._groups:
            none = np.zeros((0, len(self._packing.words)), dtype=np.uint64)
            return Rows(np.zeros((0, 2), dtype=np.uint64), none)
        return concatenate_rows(self._groups)

    def _make_room(self, rows: int) -> None:
        """Allocate the memory of batches of up to `rows` rows."""
        if rows > self._room:
            self._room = rows
            attributes = self._job.attributes.items()
            self._readers = {name: CodeReader(get_codec(a), rows) for name, a in attributes}
            wanted = self._job.filters.items()
            self._filters = {name: ColumnEncoder(get_codec(a), 0, OUTSIDE) for name, a in wanted}
            self._passing = np.empty(rows, dtype=np.int64)
