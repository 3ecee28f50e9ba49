"""Strategies in parts whose answers count shares of records, as measures divide them.

Slabs of exact counts are in shares of their own measures, answers are in shares of all measures
that queries use, and estimates are of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fitplug.errors import TablesError
from fitplug.families.base.parted_strategy import PartedStrategy, Slab
from fitplug.numeric import AnyArray, FloatArray, IntArray, make_room


class PartedShares(PartedStrategy):
    """A strategy in parts, and the shares of a record that it does not know of.

    Args:
        parted: Makes the answers of counts that are all in shares of all measures.
    """

    def __init__(self, parted: PartedStrategy) -> None:
        self._parted = parted
        self.strategy, self.sizes = parted.strategy, parted.sizes
        self.slabs, self.outputs = parted.slabs, parted.outputs

    def list_slabs(self, part: int) -> Sequence[int]:
        return self._parted.list_slabs(part)

    def list_parts(self, output: int) -> Sequence[int]:
        return self._parted.list_parts(output)

    def split_counts(self, slab: int, counts: IntArray) -> Mapping[int, IntArray]:
        """Split a slab's exact counts, in shares of its own measures; see `PartedStrategy`."""
        others = self._count_other_shares(self.slabs[slab])
        if not np.can_cast(counts.dtype, np.int64):
            raise TablesError(f"the counts of slab {slab} are {counts.dtype} and not int64")
        counts = counts.astype(np.int64, copy=False)
        return self._parted.split_counts(slab, make_room(counts, others) * others)

    def answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        return self._parted.answer_part(part, pieces)

    def place(self, part: int) -> slice | IntArray:
        return self._parted.place(part)

    def split_answers(self, part: int, noisy: IntArray) -> Mapping[int, AnyArray]:
        return self._parted.split_answers(part, noisy)

    def estimate(self, output: int, pieces: Mapping[int, AnyArray]) -> FloatArray:
        found = self._parted.estimate(output, pieces)
        return np.asarray(found / self.strategy.structure.shares)

    def _count_other_shares(self, slab: Slab) -> int:
        """Count the shares that measures which are not among a slab's attributes divide it into."""
        structure = self.strategy.structure
        return structure.shares // structure.workload.domain.count_shares(slab.names)
