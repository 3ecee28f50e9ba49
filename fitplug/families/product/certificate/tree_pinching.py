"""Pinching of the levels of a tree to its top nodes (docs/theory/product-bound.md, (B8), (B9))."""

from __future__ import annotations

import numpy as np

from fitplug.families.base.tree_shape import TreeShape
from fitplug.numeric import FloatArray, gamma


def pinch_tree(
    shape: TreeShape, p: FloatArray, y: FloatArray, level: str
) -> tuple[FloatArray, FloatArray]:
    """Pinch X = diag(y)^1/2 W diag(p)^1/2, for the sums W of a level's nodes, to the top nodes.

    X has rows (y_w p_w)^1/2 s_w'. J takes s_w to row w, and so s_g to sum_w (p_w / p_g)^1/2 w: on
    these, below the top, X is diag(d) with d_g = sum_{w in g} (p_w / p_g) (y_w p_w)^1/2. On the
    rest J is a partial isometry, and so are levels stacked as a_f J_f with sum_f a_f^2 = 1: there
    they count (sum_f loose_f^2)^1/2, with loose_f = sum_w (1 - p_w / p_g) (y_w p_w)^1/2.

    Args:
        shape: The tree.
        p: Weights of the leaves, not negative, shape (n,).
        y: Weights of the level's nodes, not negative, shape (nodes,).
        level: The level.

    Returns:
        X on the top nodes' columns s_g = p|_g^1/2 / p_g^1/2, shape (r, P), with a row for each top
        node below the top; and each row's part of <J, X> on the rest, shape (r,), rounded down.
        Both are known to a relative error of `upper_relative_error`.
    """
    mass = shape.sum_leaves(p, 0)
    if level in shape.above:
        rows = shape.build_top_rows(level)
        return np.sqrt(y)[:, None] * rows * np.sqrt(mass), np.zeros(len(rows))
    own, inner = shape.find_top_nodes(level), shape.sum_leaves(p, shape.depths[level])
    share = np.divide(inner, mass[own], out=np.ones(len(own)), where=mass[own] > 0)
    size, error = np.sqrt(y * inner), upper_relative_error(shape)
    loose = size * np.maximum(1 - share * (1 + error), 0.0) * (1 - error)
    d, rest = (np.bincount(own, part, shape.top) for part in (share * size, loose))
    return np.diag(d), rest.astype(np.float64)


def upper_relative_error(shape: TreeShape) -> float:
    """Bound the relative error of a few sums of numbers >= 0 over all leaves."""
    return gamma(4 * shape.n + 64)
