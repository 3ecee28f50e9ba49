"""Chains with bins: prefixes of a long attribute, and ranges of it that others are crossed with.

In a block where only ranges are asked, cells that no query of the block tells apart are one class.
If the classes are few, the block is a dense matrix over them. A block of more classes is a chain,
whose design and bound leave out what is neither a prefix nor a single class; these ranges are
differences of two prefixes, and their variances are proven for the integers
(docs/theory/chains.md, "Bins").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.chain.shape.chains import ChainStructure, add_chain, is_chain
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property

MOST_CLASSES = 1024
"""The most classes of a block that is a dense matrix."""

MOST_BINNED_CELLS = 2**18
"""The most classes of all blocks together."""

MOST_RANGE_CELLS = 2**26
"""The most coefficients of ranges that blocks leave out. Their variances are proven in a minute."""


class ClassQueries(NamedTuple):
    """The queries of a block over its classes of cells that no query of the block tells apart.

    Attributes:
        starts: The first cell of each class, shape (m,).
        rows: The structure's rows, shape (r,).
        multiples: w_A prod_{a in A_t - A} n_a^-2 of each row's group, shape (r,).
        first: The first class of each row, shape (r,).
        last: Its last class, likewise.
    """

    starts: IntArray
    rows: IntArray
    multiples: FloatArray
    first: IntArray
    last: IntArray

    @property
    def classes(self) -> int:
        """m, the number of classes."""
        return len(self.starts)

    @property
    def left_out(self) -> BoolArray:
        """Whether design and bound leave out each row, shape (r,)."""
        is_simple = (self.first == 0) | (self.first == self.last)
        return ~is_simple & (self.classes > MOST_CLASSES)

    @property
    def is_dense(self) -> bool:
        """Whether the block is a dense matrix over its classes."""
        return self.classes <= MOST_CLASSES

    @property
    def is_chain(self) -> bool:
        """Whether the rows that are not left out tell all classes apart."""
        return self.is_dense or len(np.unique(self.last[~self.left_out])) == self.classes

    def build_matrix(self) -> FloatArray:
        """Build the rows over the classes, shape (r, m)."""
        one = np.arange(self.classes)
        return ((self.first[:, None] <= one) & (one <= self.last[:, None])).astype(np.float64)

    def gather(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum weights of the rows (r,) over prefixes and single classes, shape (m,) each."""
        sums = []
        for mine in (self.first == 0, (self.first > 0) & (self.first == self.last)):
            of_classes = np.bincount(self.last[mine], weights[mine], self.classes)
            sums.append(of_classes.astype(np.float64))
        return sums[0], sums[1]


@dataclass(frozen=True, eq=False)
class BinnedChainStructure(ChainStructure):
    """Blocks over the subsets of the symmetric attributes, each over classes of the cells."""

    def __str__(self) -> str:
        least, most = min(self.measured_cells), max(self.measured_cells)
        return f"{super().__str__()}; a block distinguishes {least:,} to {most:,} of them"

    @property
    def remedy(self) -> str:
        return (
            f"{super().remedy}, or ask for ranges with targets that are not much smaller than the "
            "targets of the prefixes"
        )

    @property
    def fits(self) -> bool:
        """Whether the ranges that blocks leave out are few enough."""
        return self._range_cells <= MOST_RANGE_CELLS

    @property
    def _range_cells(self) -> int:
        """The coefficients of the ranges that blocks leave out."""
        return sum(int(one.left_out.sum()) * one.classes for one in self.class_queries)

    def check_size(self) -> None:
        super().check_size()
        if not self.fits:
            raise WorkloadError(
                f"the ranges and prefixes of {self.chain} need {self._range_cells:,} coefficients; "
                f"the limit is {MOST_RANGE_CELLS:,}. Use prefixes instead of ranges."
            )
        cells = sum(self.measured_cells)
        if cells > MOST_BINNED_CELLS:
            raise WorkloadError(
                f"with ranges, {self.chain} can have at most {MOST_BINNED_CELLS:,} cells over all "
                f"combinations with other attributes, not {cells:,}. Use prefixes instead of "
                "ranges."
            )

    @property
    def measured_cells(self) -> list[int]:
        return [asked.classes for asked in self.class_queries]

    @frozen_property
    def class_queries(self) -> tuple[ClassQueries, ...]:
        """The queries of each block."""
        return tuple(map(self._find_queries, range(len(self.blocks))))

    def _find_queries(self, block: int) -> ClassQueries:
        groups, multiples = self.subsets.find_groups(block)
        asked = [self.chain_rows[g] for g in groups.tolist()]
        first = np.concatenate([one.first for one in asked])
        last = np.concatenate([one.cells for one in asked])
        starts = np.unique(np.concatenate([[0], first, last + 1]))
        starts = starts[starts < self.n]
        return ClassQueries(
            starts=starts,
            rows=self.find_block_rows(block),
            multiples=np.repeat(multiples, np.diff(self.row_starts)[groups]),
            first=np.searchsorted(starts, first, side="right") - 1,
            last=np.searchsorted(starts, last, side="right") - 1,
        )


def build_chain(matrices: MatrixStructure) -> ChainStructure | None:
    """Build the chain of a workload's one asymmetric attribute; None if its queries are none."""
    workload, names = matrices.workload, matrices.asymmetric
    if len(names) != 1 or not is_chain(workload, *names, takes_ranges=True):
        return None
    kind = ChainStructure if is_chain(workload, *names) else BinnedChainStructure
    subsets = add_chain(matrices.subsets, workload, *names)
    structure = kind(workload, matrices.unit, matrices.symmetric, subsets)
    if not isinstance(structure, BinnedChainStructure):
        return structure
    return structure if all(asked.is_chain for asked in structure.class_queries) else None
