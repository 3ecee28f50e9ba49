"""Cell collector: the cells of a partition's rows in some tables, however large these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import WEIGHT
from fitplug_dask.encoding import CodeReader
from fitplug_dask.kernel import LARGEST_SUM, Atom, Axis, Job, MeasureReader, divide_records

_BLOCK_ROWS = 2**16
_COMPACTED_ROWS = 2**21

Cells = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class SparseCounts:
    """The cells of a table that are not zero. They are confidential, and so is their repr.

    Attributes:
        cells: The cells (n,), ascending.
        counts: The counts (n,).
    """

    cells: Cells
    counts: Cells

    def __repr__(self) -> str:
        return "SparseCounts(counts confidential)"

    def take_range(self, start: int, stop: int) -> SparseCounts:
        """Return the cells from `start` to before `stop`, numbered from `start` on."""
        first, last = np.searchsorted(self.cells, [start, stop])
        return SparseCounts(self.cells[first:last] - start, self.counts[first:last])


class CellCollector:
    """Takes the batches of a partition, and adds up the counts of the cells that occur.

    Attributes:
        is_full: Whether rows stand for more records than can be counted. Then no more are counted,
            and the counts mean nothing.
    """

    def __init__(self, job: Job) -> None:
        """Hold no rows.

        Args:
            job: What to count. The cells of each joint table are numbered in the order of its
                attributes, the last one fastest.
        """
        # Each table by itself finds its cells, since few rows are in the same ones.
        self._atoms = [
            Atom({name: job.attributes[name] for name in joint}, job.filters)
            for joint in job.joints
        ]
        self._job = job
        self._weights = CodeReader(WEIGHT, _BLOCK_ROWS)
        self._measures = MeasureReader({n: job.attributes[n] for n in job.measures}, _BLOCK_ROWS)
        self._groups: list[list[SparseCounts]] = [[] for _ in self._atoms]
        self._collected = self._compacted = 0
        self._records, self._most_records = 0, LARGEST_SUM // job.shares

    @property
    def is_full(self) -> bool:
        return self._records > self._most_records

    def take_batch(self, batch: Any, columns: Sequence[str], shared: Mapping[str, int]) -> None:
        """Take the rows of an Arrow batch; `shared` are codes that all of them share."""
        arrays = {name: batch.column(name) for name in columns}
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            rows = min(_BLOCK_ROWS, batch.num_rows - start)
            block = {name: array.slice(start, rows) for name, array in arrays.items()}
            self._take_block(rows, block, shared)

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Take `rows` rows that share the codes of all attributes."""
        self._records += rows
        if self.is_full:
            return
        codes = self._measures.read(1, {}, shared)
        for i, atom in enumerate(self._atoms):
            self._add(i, np.array([atom.sum_shared_terms(shared)]), codes, np.array([rows]))

    def collect(self) -> list[SparseCounts]:
        """Return the counts of each table."""
        self._compact()
        return [groups[0] for groups in self._groups]

    def _take_block(self, rows: int, columns: Mapping[str, Any], shared: Mapping[str, int]) -> None:
        if self.is_full:
            return
        inside = np.ones(rows, dtype=bool)
        for atom in self._atoms:
            atom.find_cells(rows, columns, shared)
            inside &= atom.cells >= 0
        codes = self._measures.read(rows, columns, shared)
        for column in codes.values():
            inside &= column >= 0
        codes = {name: column[inside] for name, column in codes.items()}
        weights = np.ones(rows, dtype=np.int64)
        if self._job.weight is not None:
            weights = self._weights.read(columns[self._job.weight])
        weights = weights[inside]
        self._records += int(weights.sum())
        if self.is_full:
            return
        for i, atom in enumerate(self._atoms):
            self._add(i, atom.cells[inside], codes, weights)
        self._collected += max((len(groups[-1].cells) for groups in self._groups), default=0)
        if self._collected > max(_COMPACTED_ROWS, 2 * self._compacted):
            self._compact()

    def _add(self, table: int, cells: Cells, codes: Mapping[str, Cells], weights: Cells) -> None:
        """Add the counts of rows inside the domain to those held of a table."""
        joint = self._job.joints[table]
        strides = self._job.find_strides(joint)
        axes = [
            Axis(self._job.attributes[name], strides[name], codes[name])
            for name in joint
            if name in codes
        ]
        parts = [SparseCounts(*part) for part in divide_records(cells, axes, weights)]
        self._groups[table].append(add_up(parts))

    def _compact(self) -> None:
        """Add up what is held of each cell."""
        self._groups = [[add_up(groups)] for groups in self._groups]
        self._collected = self._compacted = max((len(g[0].cells) for g in self._groups), default=0)


def add_up(groups: Sequence[SparseCounts]) -> SparseCounts:
    """Return the sums of some counts, whose cells may be in any order."""
    none = np.zeros(0, dtype=np.int64)
    cells = np.concatenate([none, *(group.cells for group in groups)])
    counts = np.concatenate([none, *(group.counts for group in groups)])
    order = np.argsort(cells, kind="stable")
    cells, counts = cells[order], counts[order]
    if not len(cells):
        return SparseCounts(none, none)
    starts = np.append(0, np.flatnonzero(np.diff(cells)) + 1)
    return SparseCounts(cells[starts], np.add.reduceat(counts, starts))
