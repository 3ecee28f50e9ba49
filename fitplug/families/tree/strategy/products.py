"""Products of what a strategy of tree blocks measures of two records.

Two records x and y in dense cells c and c' have the product, with the nodes v above both,
and K_A the symmetric attributes' product, which depends on those in which the records differ,

    a_x'a_y = sum_A K_A ( (M_0'M_0)_cc' + sum_v (A_v'A_v)_jj' (M_v'M_v)_cc' )

where x is below the child j of v, and y below j'. Sweeps over the tree compute them in floats
(`TreeProducts`), and `PathProducts` exactly, for some leaves. The cost of every difference between
neighbours is a sum of such products.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.strategy.blocks import TreeBlock, TreeIntegers
from fitplug.numeric import AnyArray, FloatArray, IntArray, multiply_exactly


class TreeProducts:
    """Products of pairs of records, in floats along the tree.

    Args:
        strategy: The strategy.
        differing: The symmetric attributes in which two records may differ, as indices.
        always: Those in which any two records differ.

    Attributes:
        blocks: The blocks that are measured.
        single: K_A of a record with itself, by block.
        pairs: K_A of two records, by the set of attributes in which they differ, and by block: set
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

        Of identical leaves, they are those of one with itself and with another one, (n, 1, 2).
        """
        children = tree_block.steps[i].children[chosen].astype(np.float64)
        counts = self.tree.steps[i].counts
        if counts is None:
            return np.asarray(children.transpose(0, 2, 1) @ children)
        contrasts = [build_contrasts(k) for k in counts[chosen].tolist()]
        products = np.array([[H.column_square, -(H.precision // H.n)] for H in contrasts])
        return np.asarray((children[:, None] ** 2 * products)[:, None])


def _multiply_columns(matrices: IntArray, of_cell: IntArray) -> FloatArray:
    """Multiply the columns that cells have in matrices (n, r, r) over classes, (n, m, m).

    Args:
        matrices: The matrices.
        of_cell: The class of each cell, -1 where it has none, shape (m,).
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
        """Multiply what each block measures of the cells on two leaves.

        Args:
            x: The node of a leaf.
            y: That of another one, or the same.
            are_apart: Whether these are two leaves, where one node stands for identical ones.

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
        """Multiply the columns that the cells have in a matrix over classes, zero without one."""
        m = len(self._cells)
        columns = np.pad(M, ((0, 0), (0, 1)))[:, of_cell[self._cells]]
        if not columns.size:
            return np.zeros((m, m), dtype=object)
        return multiply_exactly(columns.T, columns).astype(object)

    def _list_path(self, leaf: int) -> list[int]:
        """List the nodes from below the root down to a leaf."""
        parents, path = self._structure.tree.places.parents, [leaf]
        while parents[path[-1]] >= 0:
            path.append(int(parents[path[-1]]))
        return path[-2::-1]
