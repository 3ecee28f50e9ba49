"""Blocks that are numbers, where neighbours replace a record: differences are sets of attributes.

Every attribute is symmetric. What it costs to move a record from one cell to another depends only
on the set D of the attributes along which the two cells differ: block A adds the multiple

    c_A(D) = 2 w_A (1 - prod_{a in A and D} -1 / (n_a - 1))

of its precision, which is 0 where A and D have no attribute in common (docs/theory/units.md, (U8)).
Blocks within the attributes that the unit keeps have no cost at all: public totals answer them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.families.blocks.shape.scalars import ScalarStructure
from fitplug.numeric import AnyArray, FloatArray, IntArray, frozen_property

MOST_FREE = 14
"""The most attributes along which a record may move: there are 2^14 - 1 sets of them."""

MOST_ENTRIES = 20_000_000
"""The most pairs of a block and a set of attributes."""


@dataclass(frozen=True, eq=False)
class SymmetricPairStructure(ScalarStructure):
    """Blocks of one number each, whose differences are sets of attributes along which cells differ.

    Set number k, from 0, has the attributes of the binary digits of k + 1.
    """

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.differences:,} kinds of moves of a record"

    @frozen_property
    def free(self) -> IntArray:
        """The attributes along which a record may move, as indices of `symmetric`."""
        public = self.public_attributes or ()
        kept = [
            a
            for a, (name, n) in enumerate(zip(self.symmetric, self.sizes, strict=True))
            if name not in public and n > 1
        ]
        return np.array(kept, dtype=np.int64)

    @property
    def differences(self) -> int:
        return int(2 ** len(self.free)) - 1

    @property
    def profile_size(self) -> int:
        return 1

    @frozen_property
    def noisy_blocks(self) -> IntArray:
        is_noisy = np.isin(self.blocks, self.free).any(axis=1)
        return np.asarray(np.flatnonzero(is_noisy), dtype=np.int64)

    def find_public(self, block: int, group: int) -> FloatArray | None:
        return None if block in self.noisy_set else np.ones((1, 1))

    def check_size(self) -> None:
        if not len(self.noisy_blocks):
            raise self.make_public_error()

    @property
    def fits(self) -> bool:
        """Whether there are few enough sets of attributes to consider all of them."""
        few = len(self.free) <= MOST_FREE
        return few and len(self.noisy_blocks) * self.differences <= MOST_ENTRIES

    def sum_moves(self, block: int, own: Sequence[Any], between: Sequence[Any]) -> AnyArray:
        """Compute |H (e_i - e_j)|^2 of a block for each set of attributes, (differences,).

        Args:
            block: The block A, which measures the product H of matrices H_a of its attributes.
            own: |H_a e_i|^2 of each attribute, in the order of `symmetric`.
            between: (H_a e_i)' H_a e_j for two cells of each attribute.

        Returns:
            Numbers of the kind of those given; zero exactly where the block has no attribute along
            which the cells differ.
        """
        (attributes,) = self.subsets.list_attributes([block])
        index = np.zeros(self.differences, dtype=np.int64)
        numbers = np.arange(1, self.differences + 1, dtype=np.int64)
        square: Any = 1
        table: list[Any] = [1]
        position = {int(a): bit for bit, a in enumerate(self.free)}
        common = 0
        for a in attributes:
            square = square * own[a]
            if a in position:
                index |= ((numbers >> position[a]) & 1) << common
                common += 1
                table = [t * own[a] for t in table] + [t * between[a] for t in table]
            else:
                table = [t * own[a] for t in table]
        costs = [2 * (square - product) for product in table]
        costs[0] = costs[0] * 0
        kind: Any = np.int64 if max(map(abs, costs)) < 2**62 else object
        return np.array(costs, dtype=np.float64 if isinstance(square, float) else kind)[index]

    @frozen_property
    def multiples(self) -> FloatArray:
        """c_A(D) of each noisy block and each set D, shape (noisy blocks, differences).

        Each is right to within `gamma(4 k + 8)`, for blocks of up to k attributes: the difference
        1 - prod is 0 exactly, or at least 1/2.
        """
        own = [1.0] * len(self.sizes)
        between = [-1.0 / (n - 1) if n > 1 else 0.0 for n in self.sizes]
        weights = self.subsets.profile_multiples
        found = [
            weights[block] * self.sum_moves(block, own, between)
            for block in self.noisy_blocks.tolist()
        ]
        return np.array(found)
