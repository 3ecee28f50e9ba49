"""Trees where neighbours replace a record.

The structure is that of `fitplug.families.tree.shape.blocks`, for trees with too many cells to
consider all pairs. If a block is within the attributes that the unit keeps, the root's totals are
public, and the root measures only what they do not determine
(`fitplug.families.tree.shape.root_totals`). If the unit keeps the tree itself, public totals answer
such a block completely. The cost of a pair of cells depends on their leaves and dense cells, and on
the symmetric attributes along which they differ (docs/theory/units.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.root_totals import RootTotals, find_no_totals, find_root_totals
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property, to_positions

MOST_PARTED, MOST_PARTED_WORK = 2**22, 2e8
"""The most kinds of pairs times nodes for which weights may depend on where paths part, and the
most operations for the matrices of these nodes."""

MOST_MOVED = 7
"""The most symmetric attributes along which a record may move; each set of them has a cost."""


class JointClasses(NamedTuple):
    """The classes of dense cells of a depth for all blocks, with one for cells that no query
    counts.

    Attributes:
        of_cell: The class of each dense cell, shape (D,).
        first: The first cell of each class, shape (m,).
    """

    of_cell: IntArray
    first: IntArray


@dataclass(frozen=True, eq=False)
class TreePairStructure(TreeStructure):
    """Blocks over the symmetric attributes' subsets, each over a tree, where records are replaced.

    A set of symmetric attributes along which two cells differ is called a move: number k has the
    attributes of the binary digits of k, in the order of `free`. A kind of pairs either has a move
    and two dense cells of one region, with any two leaves; or it has a move and one dense cell, and
    its two cells are alike in everything else. Kinds have dual weights. The weight of a pair is its
    kind's weight times the weights of its leaves, which depend on the dense cells.
    """

    @property
    def differences(self) -> int:
        """The number of weights: cells, in C order of leaves and dense cells; kinds;
        `parts_below`."""
        return super().differences + self.kinds + self.parts_below

    @property
    def parts_below(self) -> int:
        """The number of parts by which weights of pairs depend on where their paths part.

        There is one for each step of the tree, move and pair of dense cells, in C order; none if
        these are too many.
        """
        kinds = self.moves * self.cell_pairs.shape[1]
        inner = sum(len(step.parents) for step in self.tree.steps)
        fits = inner * kinds <= MOST_PARTED and inner * self.cells**3 <= MOST_PARTED_WORK
        return len(self.tree.steps) * kinds if fits else 0

    @property
    def moves(self) -> int:
        """The number of moves."""
        return int(2 ** len(self.free))

    @frozen_property
    def cell_pairs(self) -> IntArray:
        """The pairs c <= c' of dense cells of one region, shape (2, K).

        There are none if the unit keeps the tree.
        """
        pairs = np.stack(np.triu_indices(0 if self.keeps_tree else self.cells))
        first, second = self.regions[pairs]
        return np.asarray(pairs[:, first == second], dtype=np.int64)

    @property
    def kinds(self) -> int:
        """The number of kinds: (moves, pairs of dense cells), then (non-empty moves, dense
        cells)."""
        return self.moves * self.cell_pairs.shape[1] + (self.moves - 1) * self.cells

    def split_kinds(self, kinds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Split values of kinds of pairs (kinds,) into (moves, K) and (moves - 1, D)."""
        at = self.moves * self.cell_pairs.shape[1]
        return kinds[:at].reshape(self.moves, -1), kinds[at:].reshape(-1, self.cells)

    def weigh_blocks(self, kinds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum the charges of each block from weights of kinds of pairs (kinds,).

        Returns:
            kappa, the charge for the profile of each dense cell, shape (b, D), and theta, the
            reduction for the root's measurements that two cells share, by pair of dense cells,
            shape (b, K).
        """
        anywhere, alike = self.split_kinds(kinds)
        ends = self.add_ends(anywhere.sum(axis=0))
        return ends + (1 - self.move_ratios[:, 1:]) @ alike, self.move_ratios @ anywhere

    def add_ends(self, pairs: FloatArray) -> FloatArray:
        """Add half of the weight of each pair of dense cells (K,) to both of its cells, (D,)."""
        ends = self.cell_pairs.ravel()
        ends_of_cell = np.bincount(to_positions(ends), np.tile(pairs / 2, 2), minlength=self.cells)
        return np.asarray(ends_of_cell, dtype=np.float64)

    def unfold_pairs(self, pairs: FloatArray) -> FloatArray:
        """Expand weights of pairs of dense cells (K,) to a symmetric matrix of equal sum (D, D)."""
        first, second = self.cell_pairs
        matrix = np.zeros((self.cells, self.cells))
        matrix[first, second] = pairs / 2
        matrix[second, first] += pairs / 2
        return matrix

    @frozen_property
    def move_ratios(self) -> FloatArray:
        """(H e)'(H e') over |H e|^2 for each block and move, shape (b, moves).

        It is the product of -1 / (n_a - 1) over the attributes in both the block and the move.
        """
        ratios = np.ones((len(self.blocks), self.moves))
        numbers = np.arange(self.moves)
        for bit, a in enumerate(self.free.tolist()):
            has = (self.blocks == a).any(axis=1)
            moved = np.asarray(numbers >> bit & 1, dtype=bool)
            ratios[np.ix_(has, moved)] /= -(self.sizes[a] - 1)
        return ratios

    @property
    def profile_size(self) -> int:
        return 1

    @property
    def profile_attributes(self) -> tuple[str, ...]:
        return ()

    def arrange_by_cell(self, values: FloatArray) -> FloatArray:
        return values

    def take_least(self, values: FloatArray) -> FloatArray:
        return values.ravel()

    @property
    def keeps_tree(self) -> bool:
        """Whether a replaced record keeps its leaf, whose totals are public."""
        return self.tree_attribute in (self.public_attributes or ())

    @frozen_property
    def joint_classes(self) -> tuple[JointClasses, ...]:
        """The classes of each depth: the first block distinguishes all that any block does."""
        joint = []
        for classes in self.classes[0]:
            of_cell = np.where(classes.of_cell >= 0, classes.of_cell, classes.size)
            _, first = np.unique(of_cell, return_index=True)
            joint.append(JointClasses(np.minimum(of_cell, len(first) - 1), first))
        return tuple(joint)

    @frozen_property
    def can_move(self) -> BoolArray:
        """Whether a record may move between joint classes of the root within a region, (m, m)."""
        joint = self.joint_classes[0]
        holds = np.zeros((len(joint.first), int(self.regions.max()) + 1))
        holds[joint.of_cell, self.regions] = 1
        return np.asarray(holds @ holds.T > 0)

    @frozen_property
    def noisy_blocks(self) -> IntArray:
        return np.array(
            [block for block in range(len(self.blocks)) if not self._is_answered(block)],
            dtype=np.int64,
        )

    def find_totals(self, block: int) -> RootTotals:
        if self.keeps_tree or not self.is_public[block]:
            return find_no_totals(self.classes[block][0].size)
        return self.find_public_sums(block, 0)

    def needs_totals(self, block: int) -> bool:
        return block not in self.noisy_set or self.find_totals(block).count > 0

    def find_public_sums(self, block: int, depth: int) -> RootTotals:
        """Find the sums of the classes of a depth that the totals of regions determine at a
        node."""
        return find_root_totals(self.classes[block][depth], self.regions)

    def check_size(self) -> None:
        super().check_size()
        if len(self.free) > MOST_MOVED:
            raise WorkloadError(
                f"replacing a row may change {len(self.free)} attributes besides "
                f"{self.tree_attribute!r}; the limit of ReplaceOne is {MOST_MOVED}. {TWO_CHANGES}"
            )
        if self.keeps_tree and any(
            len(self.find_public_sums(block, depth).measured)
            for block in np.flatnonzero(self.is_public).tolist()
            for depth in range(len(self.classes[block]))
        ):
            raise WorkloadError(
                f"the setting 'within' cannot name the large hierarchy {self.tree_attribute!r} for "
                f"these queries. {TWO_CHANGES}"
            )
        if not len(self.noisy_blocks):
            raise self.make_public_error()

    def _is_answered(self, block: int) -> bool:
        """Tell whether public totals answer a block completely."""
        if not self.is_public[block]:
            return False
        if self.keeps_tree:
            return True
        return not self.find_block_depth(block) and not len(self.find_totals(block).measured)
