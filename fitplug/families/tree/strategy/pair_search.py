"""The exact cost of the costliest pair of cells of a tree that a sweep found.

See `fitplug.families.tree.strategy.pair_cost`. The costliest leaves below the two nodes are sought,
and the costs of all pairs of dense cells on these leaves are computed with integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.tree.shape.node_tree import IdenticalLeaves
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.strategy.pair_blocks import PairBlock, find_joint_classes, list_allowed
from fitplug.families.tree.strategy.pair_cost import CostlyPair
from fitplug.numeric import AnyArray, IntArray, multiply_exactly
from fitplug.workload import CellClasses


class _Turn(NamedTuple):
    """Where a path goes at a node: the step of the tree, the node's index in it, and its child."""

    step: int
    position: int
    child: int


def compute_attained_cost(
    structure: TreePairStructure, blocks: Sequence[PairBlock], costly: CostlyPair
) -> int:
    """Compute the largest cost of a pair of cells on the leaves of a costly pair, exactly."""
    joint = find_joint_classes(structure)
    depths = structure.tree.depths
    paths = [
        _find_path(structure, blocks, node, int(joint[int(depths[node])].first[own]))
        for node, own in zip(costly.nodes, costly.classes, strict=True)
    ]
    if not costly.are_apart:
        paths[1] = paths[0]
    cells = joint[0].first
    total: Any = np.zeros((len(cells), len(cells)), dtype=object)
    for one in blocks:
        both = _multiply_root(structure, one, cells)
        squares = []
        for path in paths:
            own = np.diagonal(_multiply_root(structure, one, cells))
            for turn in path:
                products = _multiply_dense(structure, one, turn, cells)
                own = own + _multiply_children(structure, one, turn, turn, False) * np.diagonal(
                    products
                )
            squares.append(own)
        for here, there in zip(*paths, strict=False):
            is_identical = isinstance(structure.tree.steps[here.step], IdenticalLeaves)
            parts = here.child != there.child or (is_identical and costly.are_apart)
            product = _multiply_children(structure, one, here, there, parts)
            both = both + product * _multiply_dense(structure, one, here, cells)
            if parts:
                break
        total = total + one.square * (squares[0][:, None] + squares[1][None, :])
        total = total - 2 * one.between[costly.move] * both
    return int(total[list_allowed(structure, joint[0])].max())


def _find_path(
    structure: TreePairStructure, blocks: Sequence[PairBlock], node: int, cell: int
) -> list[_Turn]:
    """Find the path from the root to a node and to the costliest leaf below it for a dense cell."""
    tree = structure.tree
    turns: dict[int, tuple[int, _Turn]] = {}  # by child, its parent and the turn
    below: dict[int, _Turn] = {}
    most: AnyArray = np.zeros(tree.size, dtype=object)
    for i in reversed(range(len(tree.steps))):
        step = tree.steps[i]
        children = step.children.reshape(len(step.parents), -1)
        added = most[children]
        for one in blocks:
            if i < len(one.own.steps):
                added = added + one.square * _square_children(structure, one, i, cell)
        best = np.argmax(added, axis=1)
        most[step.parents] = added[np.arange(len(added)), best]
        below.update(
            (parent, _Turn(i, at, child))
            for at, (parent, child) in enumerate(
                zip(step.parents.tolist(), best.tolist(), strict=True)
            )
        )
        for at, parent in enumerate(step.parents.tolist()):
            for child, own in enumerate(children[at].tolist()):
                turns[own] = parent, _Turn(i, at, child)
    found: list[_Turn] = []
    current = node
    while current:
        current, turn = turns[current]
        found.insert(0, turn)
    current = node
    while current in below:
        turn = below[current]
        found.append(turn)
        children = tree.steps[turn.step].children
        current = int(children[turn.position].ravel()[turn.child])
    return found


def _square_children(structure: TreePairStructure, one: PairBlock, i: int, cell: int) -> AnyArray:
    """Compute |A_v e_j|^2 |M_v e_c|^2 for the nodes v of a step and their children, (b, k)."""
    step, matrices = structure.tree.steps[i], one.own.steps[i]
    own = structure.classes[one.own.block][step.depth].of_cell[cell]
    if own < 0:
        return np.zeros((len(step.parents), 1), dtype=object)
    column = matrices.dense[:, :, own].astype(object)
    dense = (column * column).sum(axis=1)[:, None]
    if isinstance(step, IdenticalLeaves):
        squares = [build_contrasts(k).column_square for k in step.counts.tolist()]
        children = matrices.children.astype(object)
        return np.asarray((children * children * squares)[:, None] * dense)
    children = matrices.children.astype(object)
    return np.asarray((children * children).sum(axis=1) * dense)


def _multiply_root(structure: TreePairStructure, one: PairBlock, cells: IntArray) -> AnyArray:
    """Multiply the columns of the root's matrix for some dense cells, (m, m)."""
    totals = structure.find_totals(one.own.block)
    classes = structure.classes[one.own.block][0]
    root = np.zeros((len(one.own.root), classes.size), dtype=np.int64)
    root[:, totals.measured] = one.own.root
    return _multiply_columns(root, classes, cells)


def _multiply_dense(
    structure: TreePairStructure, one: PairBlock, turn: _Turn, cells: IntArray
) -> AnyArray:
    """Multiply the columns of a node's M_v for some dense cells, (m, m)."""
    if turn.step >= len(one.own.steps):
        return np.zeros((len(cells), len(cells)), dtype=object)
    classes = structure.classes[one.own.block][structure.tree.steps[turn.step].depth]
    return _multiply_columns(one.own.steps[turn.step].dense[turn.position], classes, cells)


def _multiply_columns(M: IntArray, classes: CellClasses, cells: IntArray) -> AnyArray:
    """Multiply the columns that cells have in a matrix over classes, zero where they have none."""
    padded = np.pad(M, ((0, 0), (0, 1)))[:, classes.of_cell[cells]]
    if not padded.size:
        return np.zeros((len(cells), len(cells)), dtype=object)
    return multiply_exactly(padded.T, padded).astype(object)


def _multiply_children(
    structure: TreePairStructure, one: PairBlock, here: _Turn, there: _Turn, are_apart: bool
) -> int:
    """Multiply the columns of a node's A_v for two children, which may be one."""
    if here.step >= len(one.own.steps):
        return 0
    A = one.own.steps[here.step].children[here.position]
    step = structure.tree.steps[here.step]
    if isinstance(step, IdenticalLeaves):
        contrasts = build_contrasts(int(step.counts[here.position]))
        off = -(contrasts.precision // contrasts.n)
        return int(A) ** 2 * (off if are_apart else contrasts.column_square)
    return sum(
        x * y for x, y in zip(A[:, here.child].tolist(), A[:, there.child].tolist(), strict=True)
    )
