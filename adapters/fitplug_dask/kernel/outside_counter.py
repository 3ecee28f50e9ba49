"""Outside counter: how many records of a partition are outside the domain, by attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import WEIGHT, is_measure
from fitplug.domain import OUTSIDE, get_codec
from fitplug.numeric import BoolArray
from fitplug_dask import compiled_loops as loops
from fitplug_dask.encoding import CodeReader, ColumnEncoder
from fitplug_dask.kernel.counters import BLOCK_ROWS, FolderCodes, JointCounters, cut_blocks
from fitplug_dask.kernel.partitions import Job

_LIMB = 40


class OutsideCounter:
    """Counts the records outside each attribute, and those outside any of them, without a limit.

    The numbers are exact for all weights: if they were clamped one by one, one record more could
    change them by more than its share. As for tables, a value outside the domain has a negative
    term.
    """

    def __init__(self, job: Job) -> None:
        """Prepare to read the columns of a job.

        Args:
            job: What to count; `job.outside` names the attributes.
        """
        self._names, self._weight = job.outside, job.weight
        every = {name: job.attributes[name] for name in job.outside}
        self._measures = {
            name: CodeReader(get_codec(one), BLOCK_ROWS)
            for name, one in every.items()
            if is_measure(one)
        }
        self._encoders = {
            name: ColumnEncoder(get_codec(one), 0, OUTSIDE)
            for name, one in every.items()
            if name not in self._measures
        }
        self._filters = {
            name: ColumnEncoder(get_codec(wanted), 0, OUTSIDE)
            for name, wanted in job.filters.items()
        }
        self._weight_reader = CodeReader(WEIGHT, BLOCK_ROWS)
        self._terms = np.empty(BLOCK_ROWS, dtype=np.int64)
        self._totals = [0] * (len(job.outside) + 1)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The records outside each of d attributes, then those outside any: two limbs (2 d + 2,).

        The `_LIMB` lower bits of all numbers come first, then their upper bits. So the counts of
        partitions can be added up without overflow.
        """
        limbs = [total % 2**_LIMB for total in self._totals]
        limbs += [total >> _LIMB for total in self._totals]
        return np.array(limbs, dtype=np.int64)

    @staticmethod
    def join_limbs(limbs: npt.NDArray[np.int64]) -> list[int]:
        """Convert sums of `counts` to numbers of records."""
        lower, upper = limbs.reshape(2, -1).tolist()
        return [low + (high << _LIMB) for low, high in zip(lower, upper, strict=True)]

    def take_block(self, rows: int, columns: Mapping[str, Any], shared: FolderCodes) -> None:
        """Count the rows of a block.

        Args:
            rows: The number n of rows.
            columns: Arrow arrays (n,) by name.
            shared: The codes of the other attributes; OUTSIDE only if all rows share it.
        """
        outside: dict[int, BoolArray] = {}
        for number, name in enumerate(self._names):
            if name not in columns:
                if np.any(shared[name] == OUTSIDE):
                    outside[number] = np.ones(rows, dtype=np.bool_)
            elif name in self._measures:
                outside[number] = self._measures[name].read(columns[name]) < 0
            else:
                negative = self._find_negative(rows, [self._encoders[name]], [columns[name]])
                if negative is not None:
                    outside[number] = negative
        if not outside:
            return
        outside[len(self._names)] = np.logical_or.reduce(list(outside.values()))
        filtered = [name for name in self._filters if name in columns]
        failing = self._find_negative(
            rows, [self._filters[name] for name in filtered], [columns[name] for name in filtered]
        )
        weights = None if self._weight is None else self._weight_reader.read(columns[self._weight])
        for number, mask in outside.items():
            chosen = mask if failing is None else mask & ~failing
            # At most 2^16 weights of at most 2^40 each.
            total = np.count_nonzero(chosen) if weights is None else weights[chosen].sum()
            self._totals[number] += int(total)

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Count `rows` rows that share the codes of all attributes."""
        outside = [shared[name] == OUTSIDE for name in self._names]
        for number, is_outside in enumerate([*outside, any(outside)]):
            self._totals[number] += rows * is_outside

    def _find_negative(
        self, rows: int, encoders: Sequence[ColumnEncoder], columns: Sequence[Any]
    ) -> BoolArray | None:
        """Find the rows (n,) that a column puts outside; None if no column can."""
        pairs = zip(encoders, columns, strict=True)
        lookups = [encoder.make_lookup(column) for encoder, column in pairs]
        if not any(lookup.doubtful for lookup in lookups):
            return None
        terms = self._terms[:rows]
        loops.locate(lookups, 0, terms)
        return np.asarray(terms < 0)


class TableAndOutsideCounters:
    """Counts records in joint tables, and records outside the domain by attribute."""

    def __init__(self, tables: JointCounters, outside: OutsideCounter) -> None:
        self._tables, self._outside = tables, outside

    def take_batch(self, batch: Any, columns: Sequence[str], shared: FolderCodes) -> None:
        """Count the rows of an Arrow batch; `shared` are the codes from their folders."""
        if not any(np.any(codes == OUTSIDE) for codes in shared.values()):
            self._tables.take_batch(batch, columns, shared)
        for block in cut_blocks(batch, columns, shared):
            self._outside.take_block(*block)

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Count `rows` rows that no column distinguishes."""
        if OUTSIDE not in shared.values():
            self._tables.take_identical_rows(rows, shared)
        self._outside.take_identical_rows(rows, shared)
