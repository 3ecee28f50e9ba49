"""The exact cost of tree blocks, and the variances that they are proven to have.

Both add up along the paths from the root: with A_v e_j the column of child j of node v,

    a leaf's |A e_i|^2 for dense cell i:  |M_0 e_i|^2 + sum over the path of |A_v e_j|^2 |M_v e_i|^2
    variance of w x_j:                    u_vj^2 (variance of w x_v) + |(E_v)_j|^2 |w M_v^-1|^2

(docs/theory/trees.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.families.base.contrasts import compute_precisions
from fitplug.families.base.integers import SATURATION
from fitplug.families.base.mechanism import StrategyCost
from fitplug.families.tree.shape.blocks import GroupPart, TreeStructure
from fitplug.families.tree.strategy.blocks import TreeBlock, TreeIntegers
from fitplug.families.tree.strategy.child_matrices import square_columns
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    gamma,
    upper_norm,
    upper_solution_norms,
)
from fitplug.workload import CellClasses


def compute_tree_cost(strategy: TreeIntegers[TreeStructure]) -> StrategyCost:
    """Compute the exact cost of one record; see `IntegerStrategy.compute_record_cost`.

    Floats pick the leaves and cells that may attain the largest sum, and integers decide.
    """
    structure, blocks = strategy.structure, strategy.tree_blocks
    multiples = _multiply(strategy, [one.column_square for one in strategy.attribute_matrices])
    near = estimate_column_squares(structure, blocks, multiples)
    error = gamma(count_operations(structure, blocks))
    leaves, cells = np.nonzero(near >= near.max() * (1 - 4 * error))
    nodes = structure.tree.leaves[leaves]
    exact = _sum_column_squares(structure, blocks, multiples, nodes, cells)
    records = count_most_records(strategy)
    return StrategyCost(int(exact.max()), near.ravel() * (1 + error), records)


def count_most_records(strategy: TreeIntegers[TreeStructure]) -> int:
    """Count the most records of which no answer leaves the range that is released as it is."""
    structure = strategy.structure
    entries = _multiply(strategy, [one.largest_entry for one in strategy.attribute_matrices])
    largest = max(
        entry * max([_find_entry(tree_block.root), *_list_entries(structure, tree_block)])
        for entry, tree_block in zip(entries, strategy.tree_blocks, strict=True)
    )
    return SATURATION // max(int(largest), 1)


def _multiply(strategy: TreeIntegers[TreeStructure], numbers: Sequence[int]) -> list[int]:
    """Multiply numbers of the symmetric attributes by block."""
    blocks = np.array([tree_block.block for tree_block in strategy.tree_blocks], dtype=np.int64)
    products: list[int] = strategy.structure.subsets.multiply(numbers, blocks).tolist()
    return products


def estimate_column_squares(
    structure: TreeStructure, tree_blocks: Sequence[TreeBlock], multiples: Sequence[int]
) -> FloatArray:
    """Compute |A e_i|^2 of each leaf and dense cell in floats, shape (leaves, D)."""
    tree = structure.tree
    sums = np.zeros((tree.size, structure.cells))
    for tree_block, multiple in zip(tree_blocks, multiples, strict=True):
        classes = structure.classes[tree_block.block]
        sums[0] += (
            float(multiple)
            * spread_classes(_square_floats(tree_block.spread_root(structure)[None]), classes[0])[0]
        )
        for step, matrices in tree_block.list_steps(structure):
            squares = spread_classes(_square_floats(matrices.dense), classes[step.depth])
            children = matrices.estimate_child_squares(step)
            sums[step.children] += float(multiple) * children[:, :, None] * squares[:, None]
    for step in tree.steps:
        sums[step.children] += sums[step.parents, None]
    return sums[tree.leaves]


def count_operations(structure: TreeStructure, tree_blocks: Sequence[TreeBlock]) -> int:
    """Count the roundings that a sum of squares along a path of the tree has at most."""
    sizes = [
        sum(matrices.dense.shape[1:]) for tree_block in tree_blocks for matrices in tree_block.steps
    ]
    children = [
        max(matrices.children.shape[1:], default=1)
        for tree_block in tree_blocks
        for matrices in tree_block.steps
    ]
    widest = max((len(tree_block.root) for tree_block in tree_blocks), default=1)
    most = max(sizes, default=1) + max(children, default=1) + widest
    return most + len(tree_blocks) + len(structure.tree.steps) + 16


def _sum_column_squares(
    structure: TreeStructure,
    tree_blocks: Sequence[TreeBlock],
    multiples: Sequence[int],
    nodes: IntArray,
    cells: IntArray,
) -> AnyArray:
    """Compute |A e_i|^2 of some leaf nodes (n,) and dense cells (n,), exactly, shape (n,)."""
    tree = structure.tree
    total = np.zeros(len(nodes), dtype=object)
    for tree_block, multiple in zip(tree_blocks, multiples, strict=True):
        counted, classes = _find_counted(structure, tree_block, 0, cells)
        here = np.zeros_like(classes)
        total[counted] += multiple * square_columns(tree_block.root[None], here, classes)
    current = nodes.copy()
    for i in reversed(range(len(tree.steps))):
        step = tree.steps[i]
        chosen = np.flatnonzero(tree.places.steps[current] == i)
        if not len(chosen):
            continue
        at, child = (place[current[chosen]] for place in tree.places[1:3])
        for tree_block, multiple in zip(tree_blocks, multiples, strict=True):
            if i >= len(tree_block.steps):
                continue
            counted, classes = _find_counted(structure, tree_block, step.depth, cells[chosen])
            squares = square_columns(tree_block.steps[i].dense, at[counted], classes)
            squares = squares * tree_block.steps[i].square_children(
                step, at[counted], child[counted]
            )
            total[chosen[counted]] += multiple * squares
        current[chosen] = step.parents[at]
    return total


def _find_counted(
    structure: TreeStructure, tree_block: TreeBlock, depth: int, cells: IntArray
) -> tuple[IntArray, IntArray]:
    """Find which of some cells (n,) a block measures at a depth, and their classes."""
    classes = structure.classes[tree_block.block][depth].of_cell[cells]
    counted = np.flatnonzero(classes >= 0)
    return counted, classes[counted]


def _square_floats(matrices: IntArray) -> FloatArray:
    """Compute the squares of the norms of all columns of matrices (b, r, r), shape (b, r)."""
    numbers = matrices.astype(np.float64)
    return np.asarray(np.einsum("bij,bij->bj", numbers, numbers))


def spread_classes(values: FloatArray, classes: CellClasses) -> FloatArray:
    """Spread values (b, r) of classes to the dense cells, (b, D); 0 where a cell has no class."""
    padded = np.concatenate([values, np.zeros((len(values), 1))], axis=1)
    return np.asarray(padded[:, classes.of_cell])


def _list_entries(structure: TreeStructure, tree_block: TreeBlock) -> list[int]:
    """List the largest entry of each step's matrices."""
    return [
        matrices.find_largest_entry(step) for step, matrices in tree_block.list_steps(structure)
    ]


def _find_entry(matrix: IntArray) -> int:
    """Find the largest absolute entry of a matrix, which may be empty."""
    return find_largest_entry(matrix) if matrix.size else 0


def upper_tree_variances(strategy: TreeIntegers[TreeStructure]) -> FloatArray:
    """Bound the variances of the structure's rows at noise variance 1 from above, (rows,).

    Raises:
        DesignError: If they cannot be bounded.
    """
    structure, tree_blocks = strategy.structure, strategy.tree_blocks
    variances = np.zeros(structure.rows)
    for tree_block in tree_blocks:
        (precision,) = compute_precisions(structure, np.array([tree_block.block], dtype=np.int64))
        children = [
            matrices.upper_child_variances(step)
            for step, matrices in tree_block.list_steps(structure)
        ]
        for part in structure.parts[tree_block.block]:
            unit = _upper_part(structure, tree_block, part, children)
            variances[part.rows] += unit.ravel() * (part.multiple / precision)
    # Sums of positive numbers, with at most four operations for each step and block.
    steps = len(structure.tree.steps) + len(tree_blocks)
    return variances * (1 + gamma(8 * steps + 64))


def _upper_part(
    structure: TreeStructure,
    tree_block: TreeBlock,
    part: GroupPart,
    children: Sequence[tuple[FloatArray, FloatArray]],
) -> FloatArray:
    """Bound the variances of what a block answers of a group, shape (nodes, rows of each node)."""
    classes = structure.classes[tree_block.block]
    depth = part.level.depth
    ends = int(np.searchsorted(structure.tree.depths, depth, side="right"))
    variances = np.empty((ends, len(part.matrix)))
    totals = structure.find_totals(tree_block.block)
    asked = classes[0].restrict(part.matrix)
    error = None
    if totals.count:
        asked = asked @ totals.reduction
        # An entry that is a difference is rounded once.
        error = upper_norm(asked, axis=1) * (2 * UNIT_ROUNDOFF)
    variances[0] = upper_solution_norms(asked, tree_block.root.astype(np.float64), L_error=error)
    variances[0] *= variances[0]
    for (step, matrices), (spread, added) in zip(
        tree_block.list_steps(structure), children, strict=True
    ):
        if step.depth > depth:
            break
        norms = matrices.upper_row_norms(classes[step.depth].restrict(part.matrix))
        variances[step.children] = (
            spread[:, :, None] * variances[step.parents, None]
            + added[:, :, None] * (norms * norms)[:, None]
        )
    return np.asarray(variances[part.level.nodes])
