"""From exact counts to the answers of tree blocks, and from noisy answers to estimates.

Counts are summed from the leaves to the root, and estimates are made from the root to the leaves,
with a few array operations for each step of the tree; see `fitplug.mechanism.tree_block`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fitplug.mechanism.basis import ReadCounts
from fitplug.mechanism.estimates import Latest, LazyEstimates, arrange_as_group
from fitplug.mechanism.integer_limits import SATURATION
from fitplug.mechanism.strategy import Strategy
from fitplug.mechanism.tree_block import TreeBlock
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    make_room,
    multiply_exactly,
)
from fitplug.structure import CellClasses, GroupPart, TreeStructure


def list_block_tables(structure: TreeStructure) -> list[tuple[str, ...]]:
    """List the attributes whose exact counts give the answers of each block in turn."""
    domain = structure.workload.domain
    return [
        domain.ordered(structure.name_attributes(block) + _list_needed(structure, block))
        for block in range(len(structure.blocks))
    ]


def answer_trees(strategy: Strategy, structure: TreeStructure, read_counts: ReadCounts) -> IntArray:
    """Compute A x, block by block; see `fitplug.mechanism.dispatch.answer_exactly`."""
    answers = np.zeros(strategy.size, dtype=np.int64)
    for own, shape, start in list_tree_blocks(strategy, structure):
        counts = _sum_counts(strategy, structure, own, read_counts)
        size = math.prod(shape)
        block_answers = answers[start : start + size].reshape(-1, shape[-1])
        _answer_block(structure, own, counts, block_answers)
    return answers


def list_tree_blocks(
    strategy: Strategy, structure: TreeStructure
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


def _list_needed(structure: TreeStructure, block: int) -> tuple[str, ...]:
    """List the attributes that are not symmetric whose counts a block needs, the tree first."""
    used = {
        name
        for part in structure.parts[block]
        for name in structure.workload.groups[part.group].attributes
    }
    is_asked = structure.find_block_depth(block) > 0
    tree = (structure.tree_attribute,) if is_asked else ()
    return tree + tuple(name for name in structure.dense if name in used)


def _sum_counts(
    strategy: Strategy, structure: TreeStructure, own: TreeBlock, read_counts: ReadCounts
) -> AnyArray:
    """Sum counts to the rows of the unfolded tree, with the contrasts of the block's attributes.

    Returns:
        int64 or, where that might not hold them, Python integers, shape (rows, R, r): for each row
        of the tree, the rows of the contrasts and the classes of cells at the root.
    """
    domain, tree, unfolded = structure.workload.domain, structure.tree, structure.unfolded
    attributes, needed = structure.name_attributes(own.block), _list_needed(structure, own.block)
    counts = read_counts(attributes + needed)
    counts = make_room(counts, math.prod(domain.shape_of(needed)) * 2)
    # The dense attributes that are not counted are summed out.
    shape = domain.shape_of(attributes)
    at_leaves = structure.tree_attribute in needed
    counts = counts.reshape(*shape, len(tree.leaf_nodes) if at_leaves else 1, -1)
    if at_leaves and len(tree.starts) < len(tree.leaf_nodes):
        counts = np.add.reduceat(counts, tree.starts, axis=-2, dtype=counts.dtype)
    counts = merge_classes(counts, _find_counted_classes(structure, own.block))
    (indices,) = structure.subsets.list_attributes([own.block])
    for axis, a in enumerate(indices):
        matrix = strategy.attribute_matrices[a]
        counts = matrix.apply(make_room(counts, matrix.growth), axis)
    counts = counts.reshape(-1, *counts.shape[-2:])
    # No sum of contrasts, over leaves or classes, is larger than the sum of the sizes of all.
    counts = make_room(counts, 2 * math.prod(counts.shape[1:]))
    if not at_leaves:
        return counts.swapaxes(0, 1)
    found = np.zeros((unfolded.size, len(counts), counts.shape[-1]), dtype=counts.dtype)
    found[unfolded.leaves] = counts.swapaxes(0, 1)
    for siblings in reversed(unfolded.siblings):
        found[siblings.parents] = found[siblings.children].sum(axis=1, dtype=found.dtype)
    return found


def _find_counted_classes(structure: TreeStructure, block: int) -> CellClasses:
    """Find a block's classes among the cells of the dense attributes that it needs."""
    classes, dense = structure.classes[block][0], structure.dense
    needed = _list_needed(structure, block)
    # Classes do not vary along an attribute that none of the block's groups uses.
    first = tuple(slice(None) if name in needed else 0 for name in dense)
    of_cell = classes.of_cell.reshape(structure.workload.domain.shape_of(dense))[first].ravel()
    return _renumber(of_cell, classes.size)


def _answer_block(
    structure: TreeStructure, own: TreeBlock, counts: AnyArray, answers: IntArray
) -> None:
    """Compute the answers of a block from counts (rows, R, r) into (R, answers), clamped."""
    at = len(own.root)
    if at:
        answers[:, :at] = _clamp(multiply_exactly(counts[0], own.root.T))
    classes = structure.classes[own.block]
    for siblings, matrices in own.list_siblings(structure, counts[0].size):
        dense = matrices.dense[siblings.positions]
        b, r = dense.shape[:2]
        if not r:
            continue
        below = merge_classes(
            counts[siblings.children], find_merged(classes[0], classes[siblings.depth])
        )
        k, R = below.shape[1:3]
        measured = multiply_exactly(below.reshape(b, k * R, r), dense.swapaxes(1, 2))
        of_children = matrices.take(siblings)
        rows = of_children.rows
        found = of_children.apply(measured.reshape(b, k, R * r)).reshape(b, rows, R, r)
        size = b * rows * r
        answers[:, at : at + size] = _clamp(np.moveaxis(found, 2, 0).reshape(R, size))
        at += size


def _clamp(answers: AnyArray) -> AnyArray:
    """Clamp answers at +-2^62."""
    return np.clip(answers, -SATURATION, SATURATION)


class TreeEstimates(LazyEstimates):
    """Estimates from the answers of tree blocks; the latest that blocks have made are kept."""

    def __init__(self, strategy: Strategy, structure: TreeStructure, answers: IntArray) -> None:
        super().__init__(strategy, answers)
        self._structure = structure
        self._places = {
            own.block: (own, shape, start)
            for own, shape, start in list_tree_blocks(strategy, structure)
        }
        self._levels = Latest(self._estimate_level)

    def _estimate_group(self, g: int) -> FloatArray:
        structure = self._structure
        attributes = structure.subsets.group_attributes[g]
        total: FloatArray | float = 0.0
        for block in structure.subsets.find_blocks(g):
            (own,) = structure.subsets.list_attributes([block])
            part = find_part(structure, block, g)
            classes = structure.classes[block][part.level.depth]
            L = classes.restrict(part.matrix)
            estimates = np.moveaxis(self._levels[block, part.level.depth] @ L.T, 1, 0)
            sizes = [structure.sizes[a] if a in own else 1 for a in attributes]
            spread = math.prod(structure.sizes[a] for a in attributes if a not in own)
            total = total + estimates.reshape(*sizes, *estimates.shape[1:]) / spread
        return arrange_as_group(structure, g, np.asarray(total))

    def _estimate_level(self, place: tuple[int, int]) -> FloatArray:
        """Estimate a block's counts, less what their margins say, at the nodes of one level.

        Args:
            place: The block, and the depth of the level.

        Returns:
            Shape (nodes, cells of the block's attributes, r).
        """
        block, depth = place
        structure, (own, shape, start) = self._structure, self._places[block]
        needed = own.count_answers(structure, depth)
        integers = self._answers[start : start + math.prod(shape)].reshape(shape)[..., :needed]
        answers = integers.astype(np.float64)
        (attributes,) = structure.subsets.list_attributes([block])
        for axis, a in enumerate(attributes):
            answers = self._strategy.attribute_matrices[a].invert(answers, axis)
        answers = answers.reshape(-1, answers.shape[-1])
        group = next(one.group for one in structure.parts[block] if one.level.depth == depth)
        estimates = self._sweep_down(own, answers, depth)
        return np.asarray(estimates[structure.find_level_rows(group)])

    def _sweep_down(self, own: TreeBlock, answers: FloatArray, deepest: int) -> FloatArray:
        """Estimate the rows of the tree down to a depth, over its classes, (rows, R, r)."""
        structure = self._structure
        inverse = own.root_inverse
        at = len(inverse)
        estimates = (answers[:, :at] @ inverse.T)[None]
        steps = list(own.list_siblings(structure, estimates[0].size))
        for depth in range(1, deepest + 1):
            classes = find_classes_below(structure, own.block, depth)
            above = merge_classes(estimates, classes)
            estimates = np.zeros((structure.unfolded.ends[depth], *above.shape[1:]))
            estimates[: len(above)] = above
            for siblings, matrices in steps:
                if siblings.depth != depth:
                    continue
                X = matrices.dense_inverses[0][siblings.positions]
                (b, r), R = X.shape[:2], len(answers)
                of_children, k = matrices.take(siblings), siblings.children.shape[1]
                rows = of_children.rows
                size = b * rows * r
                y = np.moveaxis(answers[:, at : at + size].reshape(R, b, rows, r), 0, 2)
                at += size
                z = (y.reshape(b, rows * R, r) @ X.swapaxes(1, 2)).reshape(b, rows, R * r)
                own_part = of_children.invert(z).reshape(b, k, R, r)
                spread = of_children.reference[:, :, None, None]
                estimates[siblings.children] = spread * estimates[siblings.parents, None] + own_part
        return estimates


def find_part(structure: TreeStructure, block: int, group: int) -> GroupPart:
    """Find what a block answers of a group."""
    return next(part for part in structure.parts[block] if part.group == group)
