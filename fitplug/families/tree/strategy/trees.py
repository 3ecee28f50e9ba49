"""Strategies of trees: their cost, their answers, and their matrices written out.

The cost is exact for one record, and an upper bound where records are replaced or a person has
several.

A slab of leaves is summed to all rows of the tree above its leaves, and a part adds up the slabs'
counts for the children of its nodes. An output gets the answers of all nodes above its own, and
sweeps down along these paths alone. So each direction is one exchange of arrays, however deep the
tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag

from fitplug.errors import BAD_INTEGERS, PlanError
from fitplug.families.base.mechanism import (
    BlockCovariance,
    BlockWeights,
    MeasuredBlock,
    Products,
    StrategyCost,
)
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import PART, Latest, Pieces
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.strategy.blocks import T, TreeIntegers, list_block_tables
from fitplug.families.tree.strategy.child_matrices import LeafMatrices
from fitplug.families.tree.strategy.combinations import (
    weigh_tree_arrays,
    weigh_tree_products,
)
from fitplug.families.tree.strategy.cost import (
    compute_tree_cost,
    count_most_records,
    upper_tree_variances,
)
from fitplug.families.tree.strategy.counts import TreeCountGathering, TreeCountSplit
from fitplug.families.tree.strategy.cuts import TreeCut, invert_lists
from fitplug.families.tree.strategy.estimates import (
    TreeAnswerSplit,
    TreeEstimation,
    TreeTotalsSplit,
)
from fitplug.families.tree.strategy.pair_cost import attain_pair_cost, upper_pair_cost
from fitplug.families.tree.strategy.person_cost import attain_person_cost, upper_person_cost
from fitplug.numeric import AnyArray, FloatArray, IntArray, ceil_float
from fitplug.workload import CellClasses


class PartedTrees(TreeCut):
    """The parts of a strategy of tree blocks."""

    def _split_counts(self, slab: int, counts: AnyArray) -> Pieces:
        return Pieces(self.parts_of_slab[slab], TreeCountSplit(self, slab, counts).make_piece)

    def _answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        return TreeCountGathering(self, part).answer(pieces)

    def _split_answers(self, part: int, noisy: IntArray) -> Pieces:
        return Pieces(self._outputs_of_part[part], TreeAnswerSplit(self, part, noisy).make_piece)

    def _split_totals(self, totals: IntArray) -> Callable[[int], FloatArray]:
        return TreeTotalsSplit(self, totals).make_piece

    def _estimate(self, output: int, pieces: Mapping[int, AnyArray], latest: Latest) -> FloatArray:
        return TreeEstimation(self, output, pieces).estimate(latest)

    @cached_property
    def _outputs_of_part(self) -> list[list[int]]:
        return invert_lists(self.parts_of_output, len(self.parts))


def _build_rows(structure: TreeStructure) -> IntArray:
    """Build the rows of the unfolded tree as sums of cells of the attribute, (rows, n)."""
    tree, unfolded = structure.tree, structure.unfolded
    n = len(tree.leaf_nodes)
    sums = np.zeros((unfolded.size, n), dtype=np.int64)
    lengths = np.diff(tree.starts, append=n)
    sums[np.repeat(unfolded.leaves, lengths), np.arange(n)] = 1
    for siblings in reversed(unfolded.siblings):
        sums[siblings.parents] = sums[siblings.children].sum(axis=1)
    return sums


def _build_indicator(classes: CellClasses) -> IntArray:
    """Build C, which sums the dense cells of each class, shape (r, D)."""
    C = np.zeros((classes.size, len(classes.of_cell)), dtype=np.int64)
    counted = np.flatnonzero(classes.of_cell >= 0)
    C[classes.of_cell[counted], counted] = 1
    return C


def _multiply(rows: IntArray, dense: IntArray, classes: CellClasses) -> FloatArray:
    """Multiply out rows (r, n) of the tree by a matrix over classes of the dense cells."""
    of_cells = dense.astype(np.float64) @ _build_indicator(classes)
    return np.asarray(np.kron(rows.astype(np.float64), of_cells), dtype=np.float64)


class TreeStrategy(TreeIntegers[T]):
    """The strategies of `TreeStructure`."""

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        return compute_tree_cost(self)

    def upper_record_variances(self) -> FloatArray:
        return upper_tree_variances(self)

    def check_blocks(self) -> None:
        measured = [tree_block.block for tree_block in self.tree_blocks]
        if measured != self.structure.noisy_blocks.tolist():
            raise PlanError(BAD_INTEGERS)
        for tree_block in self.tree_blocks:
            tree_block.check_form(self.structure)

    def list_block_tables(self) -> list[tuple[str, ...]]:
        return list_block_tables(self.structure)

    def cut(self, most: int = PART) -> PartedStrategy:
        return PartedTrees(self, self.list_tables(), most)

    def weigh_arrays(
        self, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> Iterator[BlockWeights]:
        return weigh_tree_arrays(self, combinations)

    def weigh_products(self, combinations: Sequence[Products]) -> Iterator[BlockWeights]:
        return weigh_tree_products(self, combinations)

    @property
    def cell_attributes(self) -> tuple[str, ...]:
        return (self.structure.tree_attribute, *self.structure.dense)

    def list_measured(self) -> Iterator[MeasuredBlock]:
        structure = self.structure
        rows = _build_rows(structure)
        for tree_block in self.tree_blocks:
            classes = structure.classes[tree_block.block]
            root = tree_block.spread_root(structure)
            parts: list[AnyArray] = [_multiply(rows[:1], root, classes[0])]
            for siblings, matrices in tree_block.list_siblings(structure.unfolded, rows.shape[1]):
                of_children = matrices.take(siblings.positions, siblings.children.shape[1])
                A = of_children.write_out() @ rows[siblings.children]
                dense = matrices.dense[siblings.positions]
                of_depth = classes[siblings.depth]
                parts += [_multiply(*pair, of_depth) for pair in zip(A, dense, strict=True)]
            yield tree_block.block, np.concatenate(parts)

    def list_covariances(self, noise_std: float) -> Iterator[BlockCovariance]:
        structure = self.structure
        rows = _build_rows(structure)
        for tree_block in self.tree_blocks:
            classes = structure.classes[tree_block.block]
            measured = structure.find_totals(tree_block.block).measured
            bases: list[IntArray] = [np.kron(rows[:1], _build_indicator(classes[0])[measured])]
            covariances: list[FloatArray] = [tree_block.root_inverse @ tree_block.root_inverse.T]
            for siblings, matrices in tree_block.list_siblings(structure.unfolded, rows.shape[1]):
                of_children = matrices.take(siblings.positions, siblings.children.shape[1])
                k = siblings.children.shape[1]
                B = of_children.write_out()[:, : k - 1]
                # Any rows of contrasts beyond their rank are combinations of the others.
                estimate = np.eye(k - 1)[None]
                if isinstance(of_children, LeafMatrices):
                    identity = np.tile(np.eye(of_children.rows), (len(B), 1, 1))
                    estimate = B @ of_children.invert(identity)
                of_nodes = estimate @ estimate.swapaxes(1, 2)
                C = _build_indicator(classes[siblings.depth])
                for i, position in enumerate(siblings.positions.tolist()):
                    X = matrices.dense_inverses[0][position]
                    bases.append(np.kron(B[i] @ rows[siblings.children[i]], C))
                    covariances.append(np.kron(of_nodes[min(i, len(of_nodes) - 1)], X @ X.T))
            yield tree_block.block, np.concatenate(bases), noise_std**2 * block_diag(*covariances)


class TreePairStrategy(TreeStrategy[TreePairStructure]):
    """The strategies of `TreePairStructure`."""

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        """Bound the cost of pairs of cells; return a claimed bound if it is proven and tight."""
        least, largest, _ = upper_pair_cost(self)
        if claimed is not None and least <= claimed <= 2 * largest - least:
            largest = claimed
        square = np.array([ceil_float(Fraction(largest))])
        return StrategyCost(largest, square, count_most_records(self))

    def compute_attained_square(self) -> int:
        _, _, costly = upper_pair_cost(self)
        return attain_pair_cost(self, costly)


_MARGIN = 2.0**-30
"""The relative margin of stated costs above the bound, since another machine may round the bound
differently."""


class PersonTreeStrategy(TreeStrategy[PersonTreeStructure]):
    """The strategies of `PersonTreeStructure`."""

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        """Compute an upper bound on the cost of any person.

        A cell's square bounds the cost of persons with a record in the cell.
        """
        bounds, records = upper_person_cost(self, claimed), count_most_records(self)
        if claimed is None:
            most = _round_up(bounds.max() * (1 + _MARGIN))
            return StrategyCost(most, bounds.ravel() * (1 + _MARGIN), records)
        most = _round_up(bounds.max())
        # Confirm a proven claim no higher than designs state.
        if most <= claimed <= _round_up(bounds.max() * (1 + 2 * _MARGIN)):
            most = claimed
        return StrategyCost(most, bounds.ravel(), records)

    def compute_attained_square(self) -> int:
        return attain_person_cost(self, upper_person_cost(self))


def _round_up(value: float) -> int:
    """Round a float up to an integer."""
    return -int(-Fraction(np.float64(value)) // 1)
