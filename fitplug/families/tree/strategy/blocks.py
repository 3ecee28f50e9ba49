"""Tree blocks: the integer matrices of one block of a tree (see `tree.shape.blocks`).

Let C_d be the 0/1 matrix of the block's classes of dense cells at depth d, and x_v the counts below
node v over the dense cells. With the contrasts of the attributes in A and sums over the other
symmetric attributes, block A measures

    root:                             M_0 C_0 x_0, of classes that public sums do not determine
    node v with children of depth d:  (A_v (x) M_v) (C_d x_j) for the children j

M_0 and M_v are upper triangular with positive diagonals, and A_v measures children apart from their
sum (`fitplug.families.tree.strategy.child_matrices`). With z_v the estimate of C_d x_v, which sums
classes of the depth above, and y the noisy answers,

    z_0 = M_0^-1 y        z_j = u_vj z_v + sum_i (E_v)_ji M_v^-1 y_i        [E_v, u_v] A_v* = I

The answers of a block are the root's, and then, step by step, those of each node: row after row of
A_v, with an answer for each row of M_v. The nodes of a step are in their order there, except that
those with identical leaves are ordered by the number of leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import BAD_INTEGERS, LARGE_INTEGERS, PlanError
from fitplug.families.base.mechanism import MAX_ENTRY
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.tree.shape.blocks import GroupPart, TreeStructure
from fitplug.families.tree.shape.node_tree import (
    TreeStep,
)
from fitplug.families.tree.shape.unfolded_tree import Siblings, UnfoldedTree
from fitplug.families.tree.strategy.child_matrices import StepMatrices
from fitplug.files import select_prefixed
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    frozen_property,
)
from fitplug.workload import CellClasses

_MOST_NUMBERS = 2**22
"""The most numbers of an array, unless one node needs more."""


T = TypeVar("T", bound=TreeStructure, covariant=True)


@dataclass(frozen=True, eq=False)
class TreeBlock:
    """The integer matrices of one block of a tree.

    Attributes:
        block: The structure's block.
        root: M_0, shape (n, n), for the n measured classes (`TreeStructure.find_totals`).
        steps: The matrices of the tree's steps down to the block's last depth.
    """

    block: int
    root: IntArray
    steps: tuple[StepMatrices, ...]

    @frozen_property
    def root_inverse(self) -> FloatArray:
        """M_0^-1, shape (n, n)."""
        M = self.root.astype(np.float64)
        return np.asarray(solve_triangular(M, np.eye(len(M)))) if len(M) else M

    def spread_root(self, structure: TreeStructure) -> IntArray:
        """Add columns of zeros for the root's unmeasured classes, shape (n, r)."""
        columns = np.zeros((len(self.root), structure.classes[self.block][0].size), dtype=np.int64)
        columns[:, structure.find_totals(self.block).measured] = self.root
        return columns

    def list_steps(self, structure: TreeStructure) -> Iterator[tuple[TreeStep, StepMatrices]]:
        """List the steps of the tree for which the block has matrices, from the root downwards."""
        return zip(structure.tree.steps, self.steps, strict=False)

    def list_siblings(
        self, tree: UnfoldedTree, columns: int
    ) -> Iterator[tuple[Siblings, StepMatrices]]:
        """List the siblings of an unfolded tree that the block measures, with their matrices.

        Args:
            tree: The structure's tree, or some rows of it.
            columns: The number of columns for each child. Nodes are listed in chunks whose children
                have a few million numbers together.
        """
        for siblings in tree.siblings:
            if siblings.step < len(self.steps):
                b, k = siblings.children.shape
                together = max(1, _MOST_NUMBERS // (k * max(columns, 1)))
                for start in range(0, b, together):
                    part = siblings.take(slice(start, start + together))
                    yield part, self.steps[siblings.step]

    def count_answers(self, structure: TreeStructure) -> int:
        """Count the block's answers for each row of the attributes' contrasts."""
        steps = self.list_steps(structure)
        return len(self.root) + sum(matrices.count_answers(step) for step, matrices in steps)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays for a plan file by name, as `from_arrays` reads them."""
        arrays = {"block": np.array(self.block, dtype=np.int64), "root": self.root}
        for j, step in enumerate(self.steps):
            arrays |= {f"step{j}.children": step.children, f"step{j}.dense": step.dense}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> TreeBlock:
        """Build a block from the arrays of a plan file. They are not checked."""
        steps = range((len(arrays) - 2) // 2)
        return cls(
            block=int(arrays["block"]),
            root=arrays["root"],
            steps=tuple(
                StepMatrices(arrays[f"step{j}.children"], arrays[f"step{j}.dense"]) for j in steps
            ),
        )

    def check_form(self, structure: TreeStructure) -> None:
        """Check the shapes, types and ranges of the matrices.

        Raises:
            PlanError: If one is wrong.
        """
        classes = structure.classes[self.block]
        n = len(structure.find_totals(self.block).measured)
        _check_triangular(self.root[None], (1, n, n))
        expected = [step for step in structure.tree.steps if step.depth < len(classes)]
        if len(expected) != len(self.steps):
            raise PlanError(BAD_INTEGERS)
        for step, matrices in zip(expected, self.steps, strict=True):
            (b, k), r = step.children.shape, classes[step.depth].size
            _check_triangular(matrices.dense, (b, r, r))
            children = matrices.children
            shape = (b, k - 1, k) if step.counts is None else (b,)
            fits = children.dtype == np.int64 and children.shape == shape
            fits = fits and find_largest_entry(children) < MAX_ENTRY
            if not fits or (step.counts is not None and int(children.min()) < 1):
                raise PlanError(BAD_INTEGERS)


@dataclass(frozen=True, eq=False)
class TreeIntegers(IntegerStrategy[T]):
    """The integers of a strategy of trees; `TreeStrategy` derives all else from them.

    Attributes:
        tree_blocks: The measured blocks, in order.
    """

    tree_blocks: tuple[TreeBlock, ...]

    def describe_blocks(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        return {}, {
            f"tree{i}.{name}": array
            for i, tree_block in enumerate(self.tree_blocks)
            for name, array in tree_block.to_arrays().items()
        }

    @classmethod
    def read_blocks(
        cls, structure: Structure, header: Mapping[str, Any], arrays: Mapping[str, AnyArray]
    ) -> dict[str, Any]:
        blocks = (
            TreeBlock.from_arrays(select_prefixed(arrays, f"tree{i}."))
            for i in range(len(structure.noisy_blocks))
        )
        return {"tree_blocks": tuple(blocks)}

    @property
    def widths(self) -> list[tuple[IntArray, int]]:
        return [
            (np.array([tree_block.block], dtype=np.int64), tree_block.count_answers(self.structure))
            for tree_block in self.tree_blocks
        ]

    @property
    def column_height(self) -> int:
        return sum(64 * len(tree_block.steps) for tree_block in self.tree_blocks)

    def list_blocks(self) -> Iterator[tuple[TreeBlock, tuple[int, ...], int]]:
        """List each block with the shape and the start of its answers."""
        start = 0
        for tree_block in self.tree_blocks:
            (attributes,) = self.structure.subsets.list_attributes([tree_block.block])
            rows = [self.attribute_matrices[a].rows for a in attributes]
            shape = (*rows, tree_block.count_answers(self.structure))
            yield tree_block, shape, start
            start += math.prod(shape)


def _check_triangular(matrices: IntArray, shape: tuple[int, int, int]) -> None:
    """Raise PlanError unless matrices (b, r, r) are upper triangular with positive diagonals."""
    fits = matrices.dtype == np.int64 and matrices.shape == shape
    at = np.arange(shape[1])
    if not fits or np.tril(matrices, -1).any() or (matrices[:, at, at] <= 0).any():
        raise PlanError(BAD_INTEGERS)
    if matrices.size and find_largest_entry(matrices) >= MAX_ENTRY:
        raise PlanError(LARGE_INTEGERS)


def list_block_tables(structure: TreeStructure) -> list[tuple[str, ...]]:
    """List the attributes whose exact counts give the answers of each block in turn."""
    domain = structure.workload.domain
    return [
        domain.ordered(structure.name_attributes(block) + list_needed(structure, block))
        for block in structure.noisy_blocks.tolist()
    ]


def find_classes_below(structure: TreeStructure, block: int, depth: int) -> CellClasses:
    """Find the classes of a depth in terms of those of the depth above, or of the cells."""
    classes = structure.classes[block]
    return classes[depth - 1].find_merged(classes[depth]) if depth else classes[0]


def list_needed(structure: TreeStructure, block: int) -> tuple[str, ...]:
    """List the asymmetric attributes whose counts a block needs, the tree first."""
    used = {
        name
        for part in structure.parts[block]
        for name in structure.workload.groups[part.group].attributes
    }
    is_asked = structure.find_block_depth(block) > 0
    tree = (structure.tree_attribute,) if is_asked else ()
    return tree + tuple(name for name in structure.dense if name in used)


def find_part(structure: TreeStructure, block: int, group: int) -> GroupPart:
    """Find a block's contribution to a group."""
    return next(part for part in structure.parts[block] if part.group == group)
