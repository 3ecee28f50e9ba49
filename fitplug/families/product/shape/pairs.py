"""The product family where neighbours replace a record.

It is `fitplug.families.product.shape.products` for workloads whose cells are too many to consider
all pairs of them. Blocks within the attributes that the unit keeps are answered by public totals.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.blocks.shape.moves import list_sets, select_members
from fitplug.families.product.shape.batches import BatchedGroups, batch_groups
from fitplug.families.product.shape.grades import AttributeGrades, find_grades, leave_undivided
from fitplug.families.product.shape.products import ProductStructure
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property, to_positions

MOST_PAIRS, MOST_PAIR_ROWS, MOST_ATTRIBUTES = 2_000_000_000, 2_000_000, 12
"""The most pairs of cells that are tried, of those without their values of one attribute, and the
most attributes."""

_MOST_LISTED = 5
"""The most attributes of which all moves have weights of their own."""


@dataclass(frozen=True, eq=False)
class ProductPairStructure(ProductStructure):
    """Blocks over the subsets of all attributes, where neighbours replace a record."""

    @frozen_property
    def batched(self) -> BatchedGroups:
        return batch_groups(self, find_pair_grades(self), apart=True)

    @frozen_property
    def grade_labels(self) -> tuple[IntArray, ...]:
        """Per attribute the grade that each scale has of it, 0 for its total, shape (count,)."""
        scales = self.batched.scales
        return tuple(scales.label(a) for a in range(len(self.block_attributes)))

    @frozen_property
    def noisy_scales(self) -> BoolArray:
        """Whether each scale is one of a block that is measured with noise, shape (count,)."""
        counts = np.diff(self.batched.scales.starts)
        is_noisy = np.isin(np.arange(len(self.blocks)), self.noisy_blocks)
        return np.repeat(is_noisy, to_positions(counts))

    @frozen_property
    def pair_order(self) -> tuple[int, ...]:
        """The attributes by how many pairs of values what they cost may tell apart."""
        return tuple(sorted(range(len(self.sizes)), key=lambda a: (self._count_pairs(a), a)))

    @property
    def fits_all_pairs(self) -> bool:
        """Whether the costs of all pairs of cells can be computed."""
        if len(self.sizes) > MOST_ATTRIBUTES:
            return False
        *others, last = self.pair_order
        rows, n = math.prod(map(self._count_pairs, others)), self.sizes[last]
        # The last attribute's values are in one order.
        columns = min(self._count_pairs(last), n * (n + 1) // 2)
        return rows <= MOST_PAIR_ROWS and rows * columns <= MOST_PAIRS

    def _count_pairs(self, attribute: int) -> int:
        """Count the pairs of values of an attribute that what they cost may tell apart."""
        n, is_free = self.sizes[attribute], attribute in self.free
        if self.block_attributes[attribute] in self.symmetric:
            return 1 + (is_free and n > 1)
        return n**2 if is_free else n

    @frozen_property
    def free(self) -> IntArray:
        """The attributes along which a record may move, as indices of `block_attributes`."""
        public = self.public_attributes or ()
        free = [a for a, name in enumerate(self.block_attributes) if name not in public]
        return np.array(free, dtype=np.int64)

    @frozen_property
    def noisy_blocks(self) -> IntArray:
        is_noisy = np.isin(self.blocks, self.free).any(axis=1)
        return np.asarray(np.flatnonzero(is_noisy), dtype=np.int64)

    def find_public(self, block: int, group: int) -> FloatArray | None:
        return None if block in self.noisy_set else np.ones((1, 1))

    @frozen_property
    def moves(self) -> BoolArray:
        """The moves of a record that have weights of their own, shape (t, attributes).

        They are all if there are few; else along all attributes, all but one, and one.
        """
        places = [a for a in self.free.tolist() if self.sizes[a] > 1]
        m = len(places)
        counts = range(m, 0, -1) if m <= _MOST_LISTED else (m, m - 1, 1)
        sets = [moved for k in counts for moved in itertools.combinations(places, k)]
        moves = np.zeros((len(sets), len(self.sizes)), dtype=np.bool_)
        for move, moved in zip(moves, sets, strict=True):
            move[list(moved)] = True
        return moves

    @frozen_property
    def sets(self) -> tuple[IntArray, IntArray]:
        """The different sets of attributes of `free` that noisy blocks have, and each block's set.

        Shapes (t, most), as indices of `free` padded with their number, and (noisy blocks,).
        """
        blocks = self.blocks[self.noisy_blocks]
        return list_sets(select_members(blocks, self.free, len(self.sizes)))

    def check_size(self) -> None:
        super().check_size()
        if any(tree is not None for tree in self.batched.trees):
            raise WorkloadError(
                "hierarchies of this size are not designed for in the unit of privacy ReplaceOne; "
                f"ask for fewer levels, or {TWO_CHANGES}"
            )
        if not len(self.noisy_blocks):
            raise self.make_public_error()


def find_pair_grades(structure: ProductPairStructure) -> tuple[AttributeGrades, ...]:
    """Find the grades of each attribute, of which each block has a variant of its own.

    They are not divided where the pairs of cells are too many to try them all.
    """
    if not structure.fits_all_pairs:
        return (leave_undivided(structure.subsets),) * len(structure.sizes)
    return find_grades(structure, by_block=True)
