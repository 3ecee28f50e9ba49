"""The exact cost of tree blocks, the products of records, and the proven variances.

Cost and variances add up along the paths from the root: with A_v e_j the column of child j of v,

    a leaf's |A e_i|^2 for dense cell i:  |M_0 e_i|^2 + sum over the path of |A_v e_j|^2 |M_v e_i|^2
    variance of w x_j:                    u_vj^2 (variance of w x_v) + |(E_v)_j|^2 |w M_v^-1|^2

(docs/theory/trees.md). The columns of two records x and y in dense cells c and c' have the inner
product below. It sums over the nodes v above both records, and K_A, the symmetric attributes'
product, depends on the attributes in which they differ:

    a_x'a_y = sum_A K_A ( (M_0'M_0)_cc' + sum_v (A_v'A_v)_jj' (M_v'M_v)_cc' )

where x is below the child j of v, and y below j'. Sweeps over the tree compute these products in
floats (`TreeProducts`); `PathProducts` computes them exactly, for some leaves. The cost of every
difference between neighbours is a sum of such products.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from fitplug.families.base.contrasts import build_contrasts, compute_precisions
from fitplug.families.base.mechanism import SATURATION, StrategyCost
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
    multiply_exactly,
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
    """Compute a number of records up to which no answer is clamped."""
    structure = strategy.structure
    entries = _multiply(strategy, [one.largest_entry for one in strategy.attribute_matrices])
    largest = 1
    for entry, tree_block in zip(entries, strategy.tree_blocks, strict=True):
        steps = tree_block.list_steps(structure)
        root = find_largest_entry(tree_block.root) if tree_block.root.size else 0
        largest = max(largest, entry * max([root, *(m.find_largest_entry(s) for s, m in steps)]))
    return SATURATION // largest


def _multiply(strategy: TreeIntegers[TreeStructure], numbers: Sequence[int]) -> list[int]:
    """Multiply, per block, numbers of its symmetric attributes."""
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
    """Bound the number of roundings in a sum of squares along a path of the tree."""
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
    """Compute the squared norms of all columns of matrices (b, r, r), shape (b, r)."""
    numbers = matrices.astype(np.float64)
    return np.asarray(np.einsum("bij,bij->bj", numbers, numbers))


def spread_classes(values: FloatArray, classes: CellClasses) -> FloatArray:
    """Spread values (b, r) of classes to the dense cells, (b, D); 0 where a cell has no class."""
    padded = np.concatenate([values, np.zeros((len(values), 1))], axis=1)
    return np.asarray(padded[:, classes.of_cell])


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
    """Bound the variances of a block's part of a group, shape (nodes, rows of each node)."""
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


class TreeProducts:
    """Products of pairs of records, in floats along the tree.

    Args:
        strategy: The strategy.
        differing: The symmetric attributes in which two records may differ, as indices.
        always: The symmetric attributes in which any two records differ.

    Attributes:
        blocks: The measured blocks.
        single: K_A of a record with itself, by block.
        pairs: K_A of two records, by the set of attributes in which they differ, then by block. Set
            number k has the attributes of the binary digits of k.
    """

    def __init__(
        self,
        strategy: TreeIntegers[TreeStructure],
        differing: Sequence[int],
        always: Collection[int] = (),
    ) -> None:
        structure = strategy.structure
        self.tree, self.blocks = structure.tree, strategy.tree_blocks
        self._structure = structure
        squares = [matrix.column_square for matrix in strategy.attribute_matrices]
        # H'H = precision (I - J / n), and the precision of contrasts is a multiple of n.
        others = [-(build_contrasts(n).precision // n) for n in structure.sizes]
        attributes = structure.subsets.list_attributes(
            [tree_block.block for tree_block in self.blocks]
        )

        def multiply(apart: Collection[int]) -> list[int]:
            return [
                math.prod(others[a] if a in apart else squares[a] for a in block)
                for block in attributes
            ]

        sets = [
            {a for i, a in enumerate(differing) if number >> i & 1} | set(always)
            for number in range(2 ** len(differing))
        ]
        self.single: list[int] = multiply(())
        self.pairs: list[list[int]] = [multiply(apart) for apart in sets]

    @property
    def factors(self) -> FloatArray:
        """`pairs` as floats, shape (sets, blocks)."""
        return np.array(self.pairs, dtype=np.float64)

    def multiply_root(self, tree_block: TreeBlock, cells: IntArray) -> FloatArray:
        """Compute (M_0 e_c)'(M_0 e_c') of some dense cells (m,), shape (m, m)."""
        of_cell = self._structure.classes[tree_block.block][0].of_cell[cells]
        return _multiply_columns(tree_block.spread_root(self._structure)[None], of_cell)[0]

    def multiply_dense(
        self, tree_block: TreeBlock, i: int, chosen: slice | IntArray, cells: IntArray
    ) -> FloatArray:
        """Compute (M_v e_c)'(M_v e_c') of some dense cells (m,) at nodes of step i, (n, m, m)."""
        classes = self._structure.classes[tree_block.block][self.tree.steps[i].depth]
        return _multiply_columns(tree_block.steps[i].dense[chosen], classes.of_cell[cells])

    def multiply_children(
        self, tree_block: TreeBlock, i: int, chosen: slice | IntArray
    ) -> FloatArray:
        """Compute (A_v e_j)'(A_v e_j') of all children of some nodes of step i, (n, k, k).

        For identical leaves, the products are those of one with itself and with another, (n, 1, 2).
        """
        children = tree_block.steps[i].children[chosen].astype(np.float64)
        counts = self.tree.steps[i].counts
        if counts is None:
            return np.asarray(children.transpose(0, 2, 1) @ children)
        contrasts = [build_contrasts(k) for k in counts[chosen].tolist()]
        products = np.array([[H.column_square, -(H.precision // H.n)] for H in contrasts])
        return np.asarray((children[:, None] ** 2 * products)[:, None])


def _multiply_columns(matrices: IntArray, of_cell: IntArray) -> FloatArray:
    """Compute the products of cells' columns in matrices (n, r, r) over classes, (n, m, m).

    Args:
        matrices: The matrices.
        of_cell: The class of each cell, -1 for none, shape (m,).
    """
    numbers = matrices.astype(np.float64)
    products = np.pad(numbers.transpose(0, 2, 1) @ numbers, ((0, 0), (0, 1), (0, 1)))
    return np.asarray(products[:, of_cell[:, None], of_cell])


class PathProducts:
    """Products of records on some leaves, in integers, without the factors K_A.

    Args:
        strategy: The strategy.
        cells: The dense cells of the records, shape (m,).
    """

    def __init__(self, strategy: TreeIntegers[TreeStructure], cells: IntArray) -> None:
        self._structure, self._blocks = strategy.structure, strategy.tree_blocks
        self._cells = cells
        self._dense: dict[tuple[int, int, int], AnyArray] = {}
        self._pairs: dict[tuple[int, int, bool], list[AnyArray]] = {}

    def multiply(self, x: int, y: int, are_apart: bool) -> list[AnyArray]:
        """Multiply each block's columns of the cells on two leaves.

        Args:
            x: The node of a leaf.
            y: The node of another leaf, or the same.
            are_apart: Whether the leaves differ, if one node stands for identical ones.

        Returns:
            By block, Python integers, shape (m, m).
        """
        key = (x, y, are_apart)
        if key not in self._pairs:
            self._pairs[key] = [
                self._multiply_block(tree_block, x, y, are_apart) for tree_block in self._blocks
            ]
        return self._pairs[key]

    def _multiply_block(self, tree_block: TreeBlock, x: int, y: int, are_apart: bool) -> AnyArray:
        structure, places = self._structure, self._structure.tree.places
        root = tree_block.spread_root(structure)
        total = self._multiply_columns(root, structure.classes[tree_block.block][0].of_cell)
        for here, there in zip(self._list_path(x), self._list_path(y), strict=False):
            i, at = int(places.steps[here]), int(places.positions[here])
            if i >= len(tree_block.steps):
                break
            pair = int(places.children[here]), int(places.children[there])
            A, counts = tree_block.steps[i].children[at], structure.tree.steps[i].counts
            if counts is not None:
                H = build_contrasts(int(counts[at]))
                product = -(H.precision // H.n) if are_apart else H.column_square
                product *= int(A) ** 2
            else:
                left, right = (A[:, child].astype(object) for child in pair)
                product = int(left @ right)
            total = total + product * self._multiply_node(tree_block, i, at)
            if here != there:
                break
        return total

    def _multiply_node(self, tree_block: TreeBlock, i: int, at: int) -> AnyArray:
        """Multiply the columns of M_v of a node of step i, (m, m)."""
        key = (tree_block.block, i, at)
        if key not in self._dense:
            classes = self._structure.classes[tree_block.block][self._structure.tree.steps[i].depth]
            self._dense[key] = self._multiply_columns(
                tree_block.steps[i].dense[at], classes.of_cell
            )
        return self._dense[key]

    def _multiply_columns(self, M: IntArray, of_cell: IntArray) -> AnyArray:
        """Multiply the cells' columns in a matrix over classes; without a class, zeros."""
        m = len(self._cells)
        columns = np.pad(M, ((0, 0), (0, 1)))[:, of_cell[self._cells]]
        if not columns.size:
            return np.zeros((m, m), dtype=object)
        return multiply_exactly(columns.T, columns).astype(object)

    def _list_path(self, leaf: int) -> list[int]:
        """List the nodes on the path to a leaf, without the root."""
        parents, path = self._structure.tree.places.parents, [leaf]
        while parents[path[-1]] >= 0:
            path.append(int(parents[path[-1]]))
        return path[-2::-1]
