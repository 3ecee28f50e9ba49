"""The product family where neighbours replace a record.

It is `fitplug.families.product.shape.products` for workloads whose cells are too many to consider
all pairs of them. Blocks within the attributes that the unit keeps are answered by public totals.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.blocks.shape.moves import list_sets, select_members
from fitplug.families.product.shape.products import ProductStructure
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property

_MOST_LISTED = 5
"""The most attributes of which all moves have weights of their own."""


@dataclass(frozen=True, eq=False)
class ProductPairStructure(ProductStructure):
    """Blocks over the subsets of all attributes, where neighbours replace a record."""

    graded: bool = False

    @frozen_property
    def free(self) -> IntArray:
        """The attributes along which a record may move, as indices of `block_attributes`."""
        public = self.public_attributes or ()
        kept = [a for a, name in enumerate(self.block_attributes) if name not in public]
        return np.array(kept, dtype=np.int64)

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
        sets = [own for k in counts for own in itertools.combinations(places, k)]
        moves = np.zeros((len(sets), len(self.sizes)), dtype=np.bool_)
        for move, own in zip(moves, sets, strict=True):
            move[list(own)] = True
        return moves

    @frozen_property
    def sets(self) -> tuple[IntArray, IntArray]:
        """The different sets of attributes of `free` that noisy blocks have, and that of each.

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
