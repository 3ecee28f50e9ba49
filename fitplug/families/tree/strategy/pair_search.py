"""The exact cost of the costliest pair of cells of a tree that a sweep found.

See `fitplug.families.tree.strategy.pair_cost`. The costliest leaves below the two nodes are sought,
and the costs of all pairs of dense cells on these leaves are computed with integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.strategy.blocks import TreeBlock
from fitplug.families.tree.strategy.cost import estimate_column_squares
from fitplug.families.tree.strategy.products import PathProducts, find_block_factors
from fitplug.numeric import BoolArray, IntArray


class CostlyPair(NamedTuple):
    """Where the costliest pair that floats found is.

    Attributes:
        move: The number of the set D of attributes; see `BlockFactors`.
        nodes: A node above or at the leaf of each of the two cells.
        classes: The class of each cell at the depth of these nodes, among those of `JointClasses`.
        are_apart: Whether the cells have different leaves.
    """

    move: int
    nodes: tuple[int, int]
    classes: tuple[int, int]
    are_apart: bool


class JointClasses(NamedTuple):
    """The classes of dense cells of a depth in all blocks, with one for cells that none counts.

    Attributes:
        of_cell: The class of each dense cell, shape (D,).
        first: The first cell of each class, shape (m,).
    """

    of_cell: IntArray
    first: IntArray


def find_joint_classes(structure: TreePairStructure) -> tuple[JointClasses, ...]:
    """Find the classes of each depth. The block of no attribute tells all apart that any does."""
    found = []
    for classes in structure.classes[0]:
        of_cell = np.where(classes.of_cell >= 0, classes.of_cell, classes.size)
        _, first = np.unique(of_cell, return_index=True)
        found.append(JointClasses(np.minimum(of_cell, len(first) - 1), first))
    return tuple(found)


def compute_attained_cost(
    structure: TreePairStructure,
    tree_blocks: Sequence[TreeBlock],
    attribute_matrices: Sequence[AttributeMatrix],
    costly: CostlyPair,
) -> int:
    """Compute the largest cost of a pair of cells on the leaves of a costly pair, exactly.

    The leaves are the costliest below its two nodes.
    """
    joint, tree = find_joint_classes(structure), structure.tree
    factors = find_block_factors(
        structure, tree_blocks, attribute_matrices, structure.free.tolist()
    )
    squares = estimate_column_squares(structure, tree_blocks, factors.single)
    leaves = []
    for node, joint_class in zip(costly.nodes, costly.classes, strict=True):
        is_below = (np.arange(tree.size) == node).astype(np.float64)
        below = np.flatnonzero(tree.repeat_downwards(is_below, int(tree.depths[node]))[tree.leaves])
        cell = joint[int(tree.depths[node])].first[joint_class]
        leaves.append(int(tree.leaves[below[np.argmax(squares[below, cell])]]))
    x, y = leaves if costly.are_apart else (leaves[0], leaves[0])
    products = PathProducts(structure, tree_blocks, joint[0].first)
    first, second = (products.multiply(leaf, leaf, False) for leaf in (x, y))
    total = sum(
        single * (np.diagonal(a)[:, None] + np.diagonal(b)) - 2 * pair * between
        for single, pair, a, b, between in zip(
            factors.single,
            factors.pairs[costly.move],
            first,
            second,
            products.multiply(x, y, costly.are_apart),
            strict=True,
        )
    )
    return int(np.asarray(total)[list_allowed(structure, joint[0])].max())


def list_allowed(structure: TreePairStructure, joint: JointClasses) -> BoolArray:
    """Tell between which classes (m, m) of the root a record may move within a region."""
    holds = np.zeros((len(joint.first), int(structure.regions.max()) + 1))
    holds[joint.of_cell, structure.regions] = 1
    return np.asarray(holds @ holds.T > 0)
