"""Grades of an attribute: the spaces of rows that groups ask for, each within the next.

What is asked of an attribute by itself, such as ages and groups of ages, or the levels of a
hierarchy, tells into which parts its cells' space may be split.
"""

from __future__ import annotations

import numpy as np

from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import FloatArray, IntArray

_NOISE = 1e-9
"""Singular values below this part of the largest add no dimension to a space."""


def build_row_spaces(batched: BatchedGroups, attribute: int) -> tuple[FloatArray, ...]:
    """Build rows whose spans, added one after another, are ever larger.

    The factors with the fewest rows come first; one that adds nothing is left out.

    Args:
        batched: The groups.
        attribute: The attribute, which is not symmetric.

    Returns:
        Rows (r, P) on the columns that tell its cells apart; at least one array.
    """
    width, tree = batched.widths[attribute], batched.trees[attribute]
    asked: list[FloatArray] = []
    for factor in batched.factors:
        if factor.attribute == attribute:
            if tree is None:
                asked.append(factor.rows)
            elif factor.factor.kind in tree.above:
                asked.append(tree.build_top_rows(factor.factor.kind))
            else:
                asked.append(np.eye(width))
    spaces: list[FloatArray] = []
    known = np.zeros((0, width))
    for rows in sorted(asked, key=len):
        added = orthonormalise(rows, known)
        if len(added):
            spaces.append(rows)
            known = np.concatenate([known, added])
    return tuple(spaces) or (np.zeros((1, width)),)


def orthonormalise(rows: FloatArray, known: FloatArray) -> FloatArray:
    """Find orthonormal rows for what a span adds to that of orthonormal rows `known`.

    Args:
        rows: Shape (r, n).
        known: Shape (k, n).

    Returns:
        Shape (r', n).
    """
    size = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    rows = np.divide(rows, size, out=np.zeros_like(rows), where=size > 0)
    for _ in range(2):
        rows = rows - (rows @ known.T) @ known
    _, s, V = np.linalg.svd(rows, full_matrices=False)
    V = V[s > _NOISE]
    return np.asarray(V - (V @ known.T) @ known)


def classify_nodes(tree: TreeShape, most: int) -> tuple[tuple[IntArray, ...], int]:
    """Divide the nodes that branch into classes: each by itself, unless they are too many.

    Args:
        tree: The tree.
        most: The most classes.

    Returns:
        Per step the class of every parent, 0 for those of one child, and the number of classes.
        Where there is more than one node in a class, they have similar numbers of children.
    """
    depth = np.repeat(np.arange(tree.steps), [int((k > 1).sum()) for k in tree.children])
    number = np.concatenate([k[k > 1] for k in tree.children]) if tree.steps else depth
    order, count = np.lexsort((number, depth)), min(len(depth), most)
    classes = np.empty(len(depth), dtype=np.int64)
    classes[order] = np.arange(len(depth)) * count // max(len(depth), 1)
    return tuple(tree.arrange_by_step(classes, 0)), count
