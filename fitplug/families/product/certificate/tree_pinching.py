"""Pinching of the levels of a tree to its top nodes (docs/theory/product-bound.md, (B8), (B9))."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.families.base.tree_shape import TreeShape
from fitplug.numeric import FloatArray, IntArray, gamma, to_positions


def pinch_tree(
    shape: TreeShape,
    p: FloatArray,
    y: FloatArray,
    level: str,
    classes: tuple[Sequence[IntArray], int],
) -> tuple[FloatArray, FloatArray]:
    """Pinch X = diag(y)^1/2 W diag(p)^1/2, for the sums W of a level's nodes, to the top nodes.

    X has rows (y_w p_w)^1/2 s_w'. J takes s_w to row w, and so s_g to sum_w (p_w / p_g)^1/2 w: on
    these, below the top, X is diag(d) with d_g = sum_{w in g} (p_w / p_g) (y_w p_w)^1/2. The rest
    is split into the contrasts of the children c of every node v, on which <J, X> is
    sum_{w in v} (p_w / p_c - p_w / p_v) (y_w p_w)^1/2.

    Args:
        shape: The tree.
        p: Weights of the leaves, not negative, shape (n,).
        y: Weights of the level's nodes, not negative, shape (nodes,).
        level: The level.
        classes: Per step the class of every node v, and the number K of classes.

    Returns:
        X on the top nodes' columns s_g = p|_g^1/2 / p_g^1/2, shape (r, P), with a row for each top
        node below the top; and each row's part of <J, X> on the contrasts of every class, shape
        (r, K), rounded down. Both are known to a relative error of `upper_relative_error`.
    """
    mass, count = shape.sum_leaves(p, 0), classes[1]
    if level in shape.above:
        rows = shape.build_top_rows(level)
        return np.sqrt(y)[:, None] * rows * np.sqrt(mass), np.zeros((len(rows), count))
    depth, error = shape.depths[level], upper_relative_error(shape)
    own, inner = shape.find_top_nodes(level), shape.sum_leaves(p, depth)
    size = np.sqrt(y * inner)
    loose = np.zeros(shape.top * count)
    child, below = np.arange(len(inner)), inner
    for step in reversed(range(depth)):
        node, above = shape.parents[step][child], shape.sum_leaves(p, step)
        contrast = np.maximum(1 - _divide(below[child], above[node]) * (1 + error), 0.0)
        part = size * _divide(inner, below[child]) * contrast * (1 - error) ** 2
        loose += np.bincount(
            to_positions(own * count + classes[0][step][node]), part, shape.top * count
        )
        child, below = node, above
    d = np.bincount(to_positions(own), _divide(inner, mass[own]) * size, shape.top)
    return np.diag(d), loose.reshape(shape.top, count)


def _divide(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Divide weights by those of a node that holds them; 1 where these are 0."""
    return np.divide(part, whole, out=np.ones(len(whole)), where=whole > 0)


def upper_relative_error(shape: TreeShape) -> float:
    """Bound the relative error of a few sums of numbers >= 0 over all leaves."""
    return gamma(4 * shape.n + 64)
