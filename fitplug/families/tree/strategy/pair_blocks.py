"""What pairs of cells of a tree need to know of its blocks and of the classes of dense cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.strategy.blocks import TreeBlock
from fitplug.numeric import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PairBlock:
    """A block that is measured.

    Attributes:
        own: Its matrices.
        square: h_A.
        between: h_A(D) of each set D of the attributes along which records may move: set number k
            has the attributes of the binary digits of k.
    """

    own: TreeBlock
    square: int
    between: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class JointClasses:
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


def list_pair_blocks(
    structure: TreePairStructure,
    tree_blocks: Sequence[TreeBlock],
    attribute_matrices: Sequence[AttributeMatrix],
) -> list[PairBlock]:
    """List what blocks multiply their trees by."""
    squares = [matrix.column_square for matrix in attribute_matrices]
    # H'H = precision (I - J / n), and the precision of contrasts is a multiple of n.
    others = [-(build_contrasts(n).precision // n) for n in structure.sizes]
    free = structure.free.tolist()
    found = []
    for own in tree_blocks:
        (attributes,) = structure.subsets.list_attributes([own.block])
        between = tuple(
            math.prod(
                others[a] if a in free and number >> free.index(a) & 1 else squares[a]
                for a in attributes
            )
            for number in range(2 ** len(free))
        )
        found.append(PairBlock(own, between[0], between))
    return found


def list_allowed(structure: TreePairStructure, joint: JointClasses) -> BoolArray:
    """Tell between which classes (m, m) of the root a record may move within a region."""
    holds = np.zeros((len(joint.first), int(structure.regions.max()) + 1))
    holds[joint.of_cell, structure.regions] = 1
    return np.asarray(holds @ holds.T > 0)


def merge_pairs(values: FloatArray, above: JointClasses, below: JointClasses) -> FloatArray:
    """Take the largest of values (n, moves, m, m) of pairs whose classes are merged below."""
    merged = below.of_cell[above.first]
    if np.array_equal(merged, np.arange(len(merged))):
        return values
    order = np.argsort(merged, kind="stable")
    starts = np.searchsorted(merged[order], np.arange(len(below.first)))
    values = np.maximum.reduceat(values[..., order, :], starts, axis=2)
    return np.asarray(np.maximum.reduceat(values[..., order], starts, axis=3))
