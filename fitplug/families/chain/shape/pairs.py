"""Chains where neighbours replace a record: it moves between two cells of the chain.

The total of the chain is public in each block whose other attributes the unit keeps. Such a block
measures all cells but the last, which is the public total minus the others. The total itself is a
block without the chain, which needs no noise (docs/theory/chains.md, "One record replaced").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.base.subsets import Subsets
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.chain.shape.chains import ChainStructure, add_chain, is_chain
from fitplug.numeric import BoolArray, IntArray, frozen_property

MOST_PAIR_WORK = 4e9
"""The most pairs of cells, summed over the blocks and the sets of attributes in which a record may
change besides: verification compares them within about a minute."""

MOST_PAIR_BLOCK_CELLS = 2**18
"""The most cells of all blocks together: each block has nested triangles of its own."""


@dataclass(frozen=True, eq=False)
class ChainPairStructure(ChainStructure):
    """Blocks over the subsets of the symmetric attributes, each a chain of n cells.

    The blocks of the chain come first, then those that public totals answer.
    """

    def __str__(self) -> str:
        if self.symmetric:
            return super().__str__()
        return f"{self.n:,} cells of {self.chain} in a chain, a public total"

    @property
    def differences(self) -> int:
        return 2 * self.n + 2

    @property
    def profile_size(self) -> int:
        return 1

    @frozen_property
    def noisy_blocks(self) -> IntArray:
        return np.asarray(np.flatnonzero(~self.is_public), dtype=np.int64)

    @frozen_property
    def moved(self) -> IntArray:
        """The attributes besides the chain along which a record may move."""
        return self.free[self.free != self.chain_position]

    @frozen_property
    def grounded(self) -> BoolArray:
        """Whether the totals of the chain are public in each noisy block, shape (blocks,)."""
        return np.asarray(~np.isin(self.blocks[self.noisy_blocks], self.moved).any(axis=1))

    @property
    def chains(self) -> list[tuple[int, float]]:
        """Each noisy block, and the ratio of its columns' products in the pairs with weights.

        In these pairs, the moved attribute of the fewest values changes, and the others have any of
        their values with equal weight. So the ratio is 1 where the total is public, -1 / (n_a - 1)
        where a block has that attribute alone, and else 0.
        """
        sizes = {a: self.sizes[a] for a in self.moved.tolist() if self.sizes[a] > 1}
        changed = min(sizes, key=lambda a: sizes[a], default=-1)
        attributes = self.subsets.list_attributes(self.noisy_blocks)
        ratios = []
        for each in attributes:
            moved = [a for a in each if a in sizes]
            alone = -1 / (sizes[changed] - 1) if moved == [changed] else 0.0
            ratios.append(alone if moved else 1.0)
        return list(zip(self.noisy_blocks.tolist(), ratios, strict=True))

    def check_size(self) -> None:
        super().check_size()
        if not len(self.noisy_blocks):
            raise self.make_public_error()
        if not self.fits:
            raise WorkloadError(
                f"{self.chain} has {self.n:,} cells; for these queries, the limit of ReplaceOne is "
                f"{self._most:,}. {TWO_CHANGES}"
            )

    @property
    def fits(self) -> bool:
        """Whether pairs of cells are few enough for the costs of all of them to be computed."""
        return self.n <= self._most

    @property
    def _most(self) -> int:
        """The most cells of the chain for these blocks."""
        blocks = max(len(self.noisy_blocks), 1)
        compared = (MOST_PAIR_WORK / (blocks * 2.0 ** len(self.moved))) ** 0.5
        return int(min(compared, MOST_PAIR_BLOCK_CELLS / blocks))


def build_chain_pairs(pairs: PairStructure) -> ChainPairStructure | None:
    """Build the chain of the one attribute that is asked by prefixes alone, if records move in it.

    Args:
        pairs: The workload with all its pairs of cells.
    """
    workload, unit, names = pairs.workload, pairs.unit, pairs.asymmetric
    public = pairs.public_attributes or ()
    if len(names) != 1 or names[0] in public or not is_chain(workload, *names, takes_cells=False):
        return None
    position = workload.attributes.index
    subsets = add_public_totals(
        add_chain(pairs.subsets, workload, *names),
        position(names[0]),
        [position(name) for name in public],
    )
    return ChainPairStructure(workload, unit, pairs.symmetric, subsets)


def add_public_totals(subsets: Subsets, chain: int, kept: list[int]) -> Subsets:
    """Add the blocks that public totals answer: sets of kept attributes, without the chain.

    Args:
        subsets: The subsets of a chain; see `add_chain`.
        chain: The attribute of the chain.
        kept: The attributes that the unit keeps.
    """
    public = [
        b
        for b, attributes in enumerate(subsets.list_attributes(range(len(subsets.blocks))))
        if set(attributes) <= {chain, *kept}
    ]
    rows = subsets.blocks[public]
    without = np.full_like(rows, -1)
    for new, row in zip(without, rows.tolist(), strict=True):
        left = [a for a in row if a not in (chain, -1)]
        new[: len(left)] = left
    pairs, multiples = [subsets.pairs], [subsets.variance_multiples]
    for i, b in enumerate(public):
        groups, of_groups = subsets.find_groups(b)
        pairs.append(np.stack([groups, np.full(len(groups), len(subsets.blocks) + i)]))
        multiples.append(of_groups)
    return replace(
        subsets,
        blocks=np.concatenate([subsets.blocks, without]),
        pairs=np.concatenate(pairs, axis=1),
        variance_multiples=np.concatenate(multiples),
    )
