"""Linear combinations of the estimates of tree blocks: their variances and covariances.

The weights of answers in a combination come from one sweep up the tree, the adjoint of the sweep
for estimates (`fitplug.families.tree.strategy.blocks`). With g_j the weights of a child,

    of the answers of v:  (E_v' (x) M_v^-T) g        added to the parent's:  sum_j u_vj g_j

All answers have independent noise of variance 1, so covariances are sums of products of weights.
Only nodes below which there are weights are visited. The bounds on standard deviations include the
rounding of the sweep: each g_j carries a bound on the norm of its error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fitplug.families.base.estimates import Boxes, arrange_as_block
from fitplug.families.base.mechanism import AnswerWeights, BlockWeights, Products
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.unfolded_tree import Siblings
from fitplug.families.tree.strategy.blocks import (
    TreeBlock,
    TreeIntegers,
    find_classes_below,
    find_part,
)
from fitplug.families.tree.strategy.child_matrices import StepMatrices
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    BoolArray,
    FloatArray,
    IntArray,
    gamma,
    to_positions,
    upper_norm,
    upper_solution_norms,
)


@dataclass(frozen=True, eq=False)
class LevelWeights:
    """One combination's weights on the counts of a block, at some rows of the tree.

    Attributes:
        depth: The depth whose classes the weights are over.
        combination: The index of the combination.
        rows: The rows of the unfolded tree, shape (n,).
        weights: The weights, shape (n, R, r), for R rows of contrasts.
        errors: Bounds on the norms of the weights' errors, shape (n, R).
    """

    depth: int
    combination: int
    rows: IntArray
    weights: FloatArray
    errors: FloatArray


def weigh_tree_arrays(
    strategy: TreeIntegers[TreeStructure], combinations: Sequence[Mapping[str, FloatArray]]
) -> Iterator[BlockWeights]:
    """Find the weights of each block's answers; see `IntegerStrategy.combine`."""
    structure = strategy.structure
    position = structure.workload.groups.positions
    for tree_block in strategy.tree_blocks:
        asked = {part.group for part in structure.parts[tree_block.block]}
        uses = [
            {position[name]: given for name, given in one.items() if position[name] in asked}
            for one in combinations
        ]
        users = [k for k, groups in enumerate(uses) if groups]
        if users:
            weights = [
                _find_level_weights(strategy, tree_block.block, k, g, given)
                for k, user in enumerate(users)
                for g, given in uses[user].items()
            ]
            yield users, _sweep_up(structure, tree_block, len(users), weights)


def weigh_tree_products(
    strategy: TreeIntegers[TreeStructure], combinations: Sequence[Products]
) -> Iterator[BlockWeights]:
    """Find the weights of each block's answers; see `IntegerStrategy.combine_products`."""
    structure, boxes = strategy.structure, Boxes(strategy, combinations)
    for tree_block in strategy.tree_blocks:
        users = boxes.find_users([part.group for part in structure.parts[tree_block.block]])
        if not users:
            continue
        (attributes,) = structure.subsets.list_attributes([tree_block.block])
        coordinates, off = boxes.find_coordinates(tree_block.block, attributes, users)
        pairs = [(boxes.combination[j], boxes.group[j]) for j in users]
        used = list(dict.fromkeys(k for k, _ in pairs))
        weights = []
        for k, g in dict.fromkeys(pairs):
            chosen = [i for i, pair in enumerate(pairs) if pair == (k, g)]
            listed = [boxes.list_rest(users[i], attributes) for i in chosen]
            of_boxes = listed, coordinates[chosen], off[chosen]
            weights.append(_weigh_boxes(structure, tree_block.block, used.index(k), g, *of_boxes))
        yield used, _sweep_up(structure, tree_block, len(used), weights)


def _weigh_boxes(
    structure: TreeStructure,
    block: int,
    combination: int,
    g: int,
    listed: Sequence[tuple[IntArray, FloatArray]],
    coordinates: FloatArray,
    off: FloatArray,
) -> LevelWeights:
    """Find the weights of a group's boxes on the counts of a block.

    Args:
        structure: The structure.
        block: The block.
        combination: The index of the combination.
        g: The group.
        listed: The coefficients of each box over the group's rows; see `Boxes.list_rest`.
        coordinates: The coordinates of each box in the block's rows, shape (boxes, directions).
        off: Bounds on the norms of the coordinates' errors, shape (boxes,).
    """
    part = find_part(structure, block, g)
    rows, width = structure.find_level_rows(g), len(part.matrix)
    chosen = np.unique(np.concatenate([positions // width for positions, _ in listed]))
    # The last column carries what errors may add in directions without a column.
    weights_of_rows = np.zeros((len(chosen), coordinates.shape[1] + 1, width))
    sizes, errors = np.zeros(weights_of_rows.shape), np.zeros((len(chosen), 1))
    L = structure.classes[block][part.level.depth].restrict(part.matrix)
    for (positions, values), coordinate, error in zip(
        listed, coordinates, off.tolist(), strict=True
    ):
        at, column = np.searchsorted(chosen, positions // width), positions % width
        asked = values[:, None] * coordinate
        weights_of_rows[at, :-1, column] += asked  # no box has an answer twice
        sizes[at, :-1, column] += np.abs(asked)
        if error:
            weights = np.zeros((len(chosen), width))
            weights[at, column] = np.abs(values)
            errors += error * upper_norm(weights @ np.abs(L), axis=1)[:, None] * (1 + gamma(16))
    rounding = gamma(len(L) + len(listed) + 8)
    errors = errors + upper_norm(sizes @ np.abs(L), axis=2) * rounding
    return LevelWeights(part.level.depth, combination, rows[chosen], weights_of_rows @ L, errors)


def _find_level_weights(
    strategy: TreeIntegers[TreeStructure],
    block: int,
    combination: int,
    g: int,
    coefficients: FloatArray,
) -> LevelWeights:
    """Find the weights of a group's coefficients on the counts of a block."""
    structure = strategy.structure
    part = find_part(structure, block, g)
    attributes = structure.subsets.group_attributes[g]
    (of_block,) = structure.subsets.list_attributes([block])
    weights = arrange_as_block(structure, g, coefficients)
    for axis, a in reversed(list(enumerate(attributes))):
        if a in of_block:
            weights = strategy.attribute_matrices[a].adjoint(weights, axis)
        else:
            weights = weights.sum(axis=axis) / structure.sizes[a]
    rows = structure.find_level_rows(g)
    weights = np.moveaxis(weights.reshape(-1, len(rows), len(part.matrix)), 0, 1)
    chosen = np.flatnonzero(weights.any(axis=(1, 2)))
    L = structure.classes[block][part.level.depth].restrict(part.matrix)
    errors = upper_norm(np.abs(weights[chosen]) @ np.abs(L), axis=2) * gamma(len(L) + 8)
    return LevelWeights(part.level.depth, combination, rows[chosen], weights[chosen] @ L, errors)


def _sweep_up(
    structure: TreeStructure,
    tree_block: TreeBlock,
    combinations: int,
    given: Sequence[LevelWeights],
) -> Iterator[AnswerWeights]:
    """Find the weights of a block's answers, from the leaves to the root."""
    deepest = max(one.depth for one in given)
    R = given[0].weights.shape[1]
    sizes = [classes.size for classes in structure.classes[tree_block.block]]
    columns = combinations * R * max(sizes)
    steps = [
        pair
        for pair in tree_block.list_siblings(structure.unfolded, columns)
        if pair[0].depth <= deepest
    ][::-1]
    is_visited = _find_visited(structure, given, [siblings for siblings, _ in steps])
    visited = np.flatnonzero(is_visited)
    # Entry 0 stands for all rows without weights.
    index = np.zeros(structure.unfolded.size, dtype=np.int64)
    index[visited] = 1 + np.arange(len(visited))
    weights = np.zeros((1 + len(visited), combinations * R, sizes[deepest]))
    errors = np.zeros(weights.shape[:2])
    for depth in range(deepest, -1, -1):
        for one in given:
            if one.depth == depth:
                columns = slice(one.combination * R, (one.combination + 1) * R)
                weights[index[one.rows], columns] += one.weights
                errors[index[one.rows], columns] += one.errors
        for siblings, matrices in steps:
            if siblings.depth == depth:
                chosen = np.flatnonzero(is_visited[siblings.children].any(axis=1))
                if len(chosen):
                    some = siblings.take(chosen)
                    some = replace(some, parents=index[some.parents], children=index[some.children])
                    yield _visit_siblings(some, matrices, weights, errors, combinations)
        if depth:
            above = 1 + int(np.searchsorted(visited, structure.unfolded.ends[depth - 1]))
            classes = find_classes_below(structure, tree_block.block, depth)
            padded = np.concatenate(
                [weights[:above], np.zeros((above, combinations * R, 1))], axis=2
            )
            weights = padded[:, :, classes.of_cell]
            most = int(np.bincount(to_positions(classes.of_cell + 1))[1:].max(initial=1))
            errors = errors[:above] * np.sqrt(float(most))
    root = tree_block.root.astype(np.float64)
    if not root.size:
        return
    asked, error = weights[1], errors[1] * (1 + gamma(64))
    totals = structure.find_totals(tree_block.block)
    if totals.count:
        # A row of G has one entry, or n entries -1 for a reference: |w G| <= (n + 1)^1/2 |w|.
        asked = asked @ totals.reduction
        error = error * np.sqrt(asked.shape[1] + 1.0) * (1 + gamma(8))
        error += upper_norm(asked, axis=1) * (2 * UNIT_ROUNDOFF)
    of_answers = asked @ tree_block.root_inverse
    norms = upper_solution_norms(asked, root, L_error=error)
    squares = (norms * norms).reshape(combinations, R).sum(axis=1)
    yield AnswerWeights(squares, partial(_flatten, of_answers, combinations))


def _find_visited(
    structure: TreeStructure, given: Sequence[LevelWeights], steps: Sequence[Siblings]
) -> BoolArray:
    """Find the rows of the tree with weights at or below them, and the root."""
    is_visited = np.zeros(structure.unfolded.size, dtype=bool)
    is_visited[0] = True
    for one in given:
        is_visited[one.rows] = True
    for siblings in steps:
        is_visited[siblings.parents] |= is_visited[siblings.children].any(axis=1)
    return is_visited


def _visit_siblings(
    siblings: Siblings,
    matrices: StepMatrices,
    weights: FloatArray,
    errors: FloatArray,
    combinations: int,
) -> AnswerWeights:
    """Find the weights of answers about children, and add to the weights of their parents.

    Args:
        siblings: The nodes, with rows as indices of the arrays.
        matrices: The matrices of the step.
        weights: The rows' weights, shape (rows, combinations * R, r); the parents' are added to.
        errors: Bounds on their errors, shape (rows, combinations * R); the parents' are added to.
        combinations: The number of combinations.

    Returns:
        The weights of the answers of these nodes.
    """
    of_children = matrices.take(siblings.positions, siblings.children.shape[1])
    norms = of_children.norms
    X, residuals = (one[siblings.positions] for one in matrices.dense_inverses)
    g, e = weights[siblings.children], errors[siblings.children]
    b, k, columns, r = g.shape
    g_norm, e_norm = upper_norm(upper_norm(g, axis=3), axis=1), upper_norm(e, axis=1)
    flat = g.reshape(b, k, columns * r)
    rounding = gamma(k + 8)
    h = of_children.adjoint(flat)
    rows = h.shape[1]
    h = h.reshape(b, rows, columns, r)
    h_norm = upper_norm(upper_norm(h, axis=3), axis=1)
    h_error = norms.contrasts[:, None] * (e_norm + rounding * g_norm)
    h_error += norms.contrasts_error[:, None] * g_norm
    of_answers = (h.reshape(b, rows * columns, r) @ X).reshape(h.shape)
    X_norm = upper_norm(X.reshape(b, r * r), axis=1)
    bound = upper_norm(upper_norm(of_answers, axis=3), axis=1)
    bound += (gamma(r) * h_norm + h_error) * X_norm[:, None]
    bound *= (1 + gamma(16)) / (1 - residuals[:, None])
    pulled = (of_children.reference[:, None] @ flat).reshape(b, columns, r)
    weights[siblings.parents] += pulled
    errors[siblings.parents] += norms.reference[:, None] * (e_norm + rounding * g_norm)
    errors[siblings.parents] += norms.reference_error[:, None] * g_norm
    errors[siblings.parents] += gamma(2) * upper_norm(weights[siblings.parents], axis=2)
    R = columns // combinations
    by_combination = np.moveaxis(of_answers.reshape(b, rows, combinations, R, r), 2, 0)
    squares = (bound * bound).sum(axis=0).reshape(combinations, R).sum(axis=1)
    return AnswerWeights(
        squares * (1 + gamma(b + 64)), partial(_flatten, by_combination, combinations)
    )


def _flatten(weights: FloatArray, combinations: int) -> FloatArray:
    """Flatten the weights of each combination, (combinations, answers)."""
    return weights.reshape(combinations, weights.size // combinations)
