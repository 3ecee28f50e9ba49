"""From exact counts to the answers of tree blocks, and from noisy answers to estimates.

Counts are summed from the leaves to the root, and estimates are made from the root to the leaves,
with a few array operations for each step of the tree; see `fitplug.families.tree.integers.blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fitplug.families.base.integers import SATURATION
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.integers.blocks import TreeBlock
from fitplug.families.tree.integers.child_matrices import ChildMatrices
from fitplug.families.tree.shape.blocks import GroupPart, TreeStructure
from fitplug.numeric import AnyArray, FloatArray, IntArray, make_room, multiply_exactly
from fitplug.workload import CellClasses


def list_block_tables(structure: TreeStructure) -> list[tuple[str, ...]]:
    """List the attributes whose exact counts give the answers of each block in turn."""
    domain = structure.workload.domain
    return [
        domain.ordered(structure.name_attributes(block) + list_needed(structure, block))
        for block in structure.noisy_blocks.tolist()
    ]


def list_tree_blocks(
    strategy: IntegerStrategy, structure: TreeStructure
) -> Iterator[tuple[TreeBlock, tuple[int, ...], int]]:
    """List each block with the shape and the start of its answers."""
    start = 0
    for own in strategy.tree_blocks:
        (attributes,) = structure.subsets.list_attributes([own.block])
        rows = [strategy.attribute_matrices[a].rows for a in attributes]
        shape = (*rows, own.count_answers(structure))
        yield own, shape, start
        start += math.prod(shape)


def find_classes_below(structure: TreeStructure, block: int, depth: int) -> CellClasses:
    """Find the classes of a depth among those of the depth above; of depth 0, among the cells."""
    classes = structure.classes[block]
    if not depth:
        return classes[0]
    return find_merged(classes[depth - 1], classes[depth])


def find_merged(above: CellClasses, below: CellClasses) -> CellClasses:
    """Find which classes of a depth above make up those of a depth below."""
    return _renumber(below.of_cell[above.first], below.size)


def _renumber(of_cell: IntArray, size: int) -> CellClasses:
    """Make the classes whose numbers are 0 to size - 1, or -1 for none."""
    _, first = np.unique(of_cell, return_index=True)
    return CellClasses(of_cell, first[len(first) - size :])


def merge_classes(values: AnyArray, classes: CellClasses) -> AnyArray:
    """Sum values (..., D) by class, (..., r), exactly if they are integers that leave room."""
    of_cell = classes.of_cell
    if classes.size == len(of_cell) and np.array_equal(of_cell, np.arange(len(of_cell))):
        return values
    order = np.argsort(of_cell, kind="stable")[int((of_cell < 0).sum()) :]
    if not len(order):
        return np.zeros((*values.shape[:-1], 0), dtype=values.dtype)
    starts = np.searchsorted(of_cell[order], np.arange(classes.size))
    return np.asarray(np.add.reduceat(values[..., order], starts, axis=-1, dtype=values.dtype))


def list_needed(structure: TreeStructure, block: int) -> tuple[str, ...]:
    """List the attributes that are not symmetric whose counts a block needs, the tree first."""
    used = {
        name
        for part in structure.parts[block]
        for name in structure.workload.groups[part.group].attributes
    }
    is_asked = structure.find_block_depth(block) > 0
    tree = (structure.tree_attribute,) if is_asked else ()
    return tree + tuple(name for name in structure.dense if name in used)


def contrast_counts(
    strategy: IntegerStrategy,
    structure: TreeStructure,
    block: int,
    counts: AnyArray,
    starts: IntArray,
) -> AnyArray:
    """Sum counts to leaves of the tree and classes, with the contrasts of a block's attributes.

    Args:
        strategy: The strategy.
        structure: Its structure.
        block: The block.
        counts: Counts over the block's attributes and then those of `list_needed`, of which the
            tree may have a range of cells.
        starts: The first cell of each leaf in that range.

    Returns:
        Numbers whose sums over leaves and classes stay in their type, int64 or Python integers,
        shape (leaves, R, r). Without the tree there is one leaf, the root.
    """
    domain, needed = structure.workload.domain, list_needed(structure, block)
    counts = make_room(counts, math.prod(domain.shape_of(needed)) * 2)
    # The dense attributes that are not counted are summed out.
    shape = domain.shape_of(structure.name_attributes(block))
    at_leaves = structure.tree_attribute in needed
    cells = counts.shape[len(shape)] if at_leaves else 1
    counts = counts.reshape(*shape, cells, -1)
    if at_leaves and len(starts) < cells:
        counts = np.add.reduceat(counts, starts, axis=-2, dtype=counts.dtype)
    counts = merge_classes(counts, _find_counted_classes(structure, block))
    (indices,) = structure.subsets.list_attributes([block])
    for axis, a in enumerate(indices):
        matrix = strategy.attribute_matrices[a]
        counts = matrix.apply(make_room(counts, matrix.growth), axis)
    counts = counts.reshape(-1, *counts.shape[-2:])
    # No sum of contrasts, over leaves or classes, is larger than the sum of the sizes of all.
    return make_room(counts, 2 * math.prod(counts.shape[1:])).swapaxes(0, 1)


def _find_counted_classes(structure: TreeStructure, block: int) -> CellClasses:
    """Find a block's classes among the cells of the dense attributes that it needs."""
    classes, dense = structure.classes[block][0], structure.dense
    needed = list_needed(structure, block)
    # Classes do not vary along an attribute that none of the block's groups uses.
    first = tuple(slice(None) if name in needed else 0 for name in dense)
    of_cell = classes.of_cell.reshape(structure.workload.domain.shape_of(dense))[first].ravel()
    return _renumber(of_cell, classes.size)


def measure_children(of_children: ChildMatrices, dense: IntArray, below: AnyArray) -> IntArray:
    """Compute the answers of nodes with equally many children, clamped.

    Args:
        of_children: A_v of b nodes.
        dense: M_v, shape (b, r, r).
        below: The counts of their children, shape (b, k, R, r).

    Returns:
        Shape (R, answers of all nodes): a node after another.
    """
    b, k, R, r = below.shape
    measured = multiply_exactly(below.reshape(b, k * R, r), dense.swapaxes(1, 2))
    found = of_children.apply(measured.reshape(b, k, R * r)).reshape(b, of_children.rows, R, r)
    return clamp_answers(np.moveaxis(found, 2, 0).reshape(R, -1))


def clamp_answers(answers: AnyArray) -> IntArray:
    """Clamp answers at +-2^62."""
    return np.asarray(np.clip(answers, -SATURATION, SATURATION), dtype=np.int64)


def estimate_children(
    of_children: ChildMatrices, X: FloatArray, answers: FloatArray, above: FloatArray
) -> FloatArray:
    """Estimate the counts of the children of nodes that have equally many.

    Args:
        of_children: A_v of b nodes.
        X: M_v^-1, shape (b, r, r).
        answers: Their answers, shape (R, answers of all nodes): a node after another.
        above: The estimates of the nodes over the children's classes, shape (b, R, r).

    Returns:
        Shape (b, k, R, r).
    """
    b, R, r = above.shape
    rows, spread = of_children.rows, of_children.reference[:, :, None, None]
    y = np.moveaxis(answers.reshape(R, b, rows, r), 0, 2)
    z = (y.reshape(b, rows * R, r) @ X.swapaxes(1, 2)).reshape(b, rows, R * r)
    own_part = of_children.invert(z).reshape(b, spread.shape[1], R, r)
    return np.asarray(spread * above[:, None] + own_part)


def arrange_level(
    strategy: IntegerStrategy, structure: TreeStructure, block: int, g: int, estimates: FloatArray
) -> FloatArray:
    """Arrange what a block says of some nodes of a group's level, spread over other attributes.

    Args:
        strategy: The strategy.
        structure: Its structure.
        block: The block.
        g: The group's index in the workload.
        estimates: Of the nodes, shape (nodes, cells of the block's attributes, r).

    Returns:
        Axes of the group's symmetric attributes, with one cell where they are not the block's,
        and then of nodes and of rows of each node.
    """
    attributes = structure.subsets.group_attributes[g]
    (own,) = structure.subsets.list_attributes([block])
    part = find_part(structure, block, g)
    L = structure.classes[block][part.level.depth].restrict(part.matrix)
    found = np.moveaxis(estimates @ L.T, 1, 0)
    sizes = [structure.sizes[a] if a in own else 1 for a in attributes]
    spread = math.prod(structure.sizes[a] for a in attributes if a not in own)
    return np.asarray(found.reshape(*sizes, *found.shape[1:]) / spread)


def invert_contrasts(strategy: IntegerStrategy, block: int, answers: FloatArray) -> FloatArray:
    """Invert the contrasts of a block's attributes.

    Args:
        strategy: The strategy.
        block: The block.
        answers: Its answers, shape (R, answers), with R the rows of all contrasts.

    Returns:
        Shape (cells of the block's attributes, answers).
    """
    (attributes,) = strategy.structure.subsets.list_attributes([block])
    matrices = [strategy.attribute_matrices[a] for a in attributes]
    found = answers.reshape(*(matrix.rows for matrix in matrices), answers.shape[-1])
    for axis, matrix in enumerate(matrices):
        found = matrix.invert(found, axis)
    return found.reshape(math.prod(found.shape[:-1]), found.shape[-1])


def find_part(structure: TreeStructure, block: int, group: int) -> GroupPart:
    """Find what a block answers of a group."""
    return next(part for part in structure.parts[block] if part.group == group)
