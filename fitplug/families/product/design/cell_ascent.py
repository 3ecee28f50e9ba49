"""A step of ascent for the weights of cells in the product bound.

For a contraction Z, <Z, X> is a sum over the columns of X, whose entries are proportional to the
square roots of the cells' weights. So each weight p_a(i) becomes the contribution of cell i's
columns, which never lowers <Z, X> (docs/theory/product-bound.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.certificate.gram_matrices import GramTerms
from fitplug.families.product.certificate.product_bound import ScaledDuals
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import FloatArray, IntArray, to_positions

_LEAST = 1e-9
"""The least weight of a cell or a row, as a share of the mean weight."""


def ascend_cells(
    batched: BatchedGroups,
    cells: tuple[FloatArray, ...],
    here: ScaledDuals,
    gains: Mapping[int, FloatArray],
    couplings: list[FloatArray],
) -> tuple[FloatArray, ...]:
    """Return the weights p_a of the cells of every attribute after a step.

    Args:
        batched: The groups.
        cells: The weights, each of shape (n_a,).
        here: The evaluated weights.
        gains: The contribution of each factor's columns to the bound, shape (P,); for a level at or
            below the top of a tree, the contribution of its nodes.
        couplings: Per attribute, the coupling of its frame's columns to the groups that sum it out;
            see `couple_totals`.

    Returns:
        The weights.
    """
    moved = list(cells)
    for a, tree in enumerate(batched.trees):
        factors = [f for f in gains if batched.factors[f].attribute == a]
        if not factors:
            continue
        frame = here.pinches[factors[0]].frame
        summed = frame[:, 0] * (frame @ couplings[a]) if frame.shape[1] else np.zeros(len(frame))
        if tree is None:
            moved[a] = normalise_gains(np.sum([gains[f] for f in factors], axis=0) + summed)
            continue
        # A node's gain goes to its leaves in proportion to their weights.
        ratio = np.zeros(tree.n)
        for gain, level in [(gains[f], batched.factors[f].factor.kind) for f in factors] + [
            (summed, "")
        ]:
            depth = tree.depths.get(level, 0)
            mass = tree.sum_leaves(cells[a], depth)
            part = np.divide(gain, mass, out=np.zeros_like(mass), where=mass > 0)
            ratio += np.repeat(part, to_positions(tree.leaves[depth]))
        moved[a] = normalise_gains(cells[a] * ratio)
    return tuple(moved)


def normalise_gains(gains: FloatArray) -> FloatArray:
    """Scale weights (n,) to sum to 1, after raising those near zero."""
    positive = np.maximum(gains, _LEAST * np.abs(gains).mean())
    if not positive.any():
        # All coefficients of the queries are zero.
        return np.full(len(gains), 1 / len(gains))
    return np.asarray(positive / positive.sum())


def share_among_nodes(
    tree: TreeShape,
    p: FloatArray,
    y: FloatArray,
    level: str,
    classes: Sequence[IntArray],
    met: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Compute each node's contribution to <Z, X> in a level at or below the top, up to a factor.

    Row w is (y_w p_w)^1/2 s_w'. Z equals J on the top, and on the contrasts of every node v on the
    path to w, where J s_w is p_w / p_c - p_w / p_v (docs/theory/product-bound.md, (B9)).

    Args:
        tree: The tree.
        p: The weights of the leaves, shape (n,).
        y: The weights of the level's nodes, shape (nodes,).
        level: The level.
        classes: Per step the class of every node.
        met: The coefficient in <Z, X> of d_g of each top node, shape (P,), and of each class's nu.

    Returns:
        Shape (nodes,).
    """
    depth = tree.depths[level]
    masses = tree.sum_leaves(p, depth)
    child, below, total = np.arange(len(masses)), np.maximum(masses, 1e-300), np.zeros(len(masses))
    for step in reversed(range(depth)):
        node = tree.parents[step][child]
        above = np.maximum(tree.sum_leaves(p, step), 1e-300)
        total += met[1][classes[step][node]] * (masses / below[child] - masses / above[node])
        child, below = node, above
    total += met[0][child] * masses / below[child]
    return np.asarray(np.sqrt(y * masses) * total)


def couple_totals(
    batched: BatchedGroups,
    here: ScaledDuals,
    terms: GramTerms,
    roots: FloatArray,
    slopes: Mapping[int, FloatArray],
) -> list[FloatArray]:
    """Compute the coupling in Z of each attribute's frame to the groups that sum it out.

    Y'Z is the square root of the Gram matrix Y'Y. Its row of the attribute's total covers all
    groups; the share of groups that use the attribute follows from the slopes and is subtracted.

    Args:
        batched: The groups.
        here: The evaluated weights.
        terms: The positions of the Gram matrices.
        roots: The square roots of the Gram matrices, at the same positions.
        slopes: The derivatives of the bound with respect to the tables.

    Returns:
        Per attribute, a number for each column of its frame, shape (t,).
    """
    assert terms.columns is not None
    total = sum(float(stack.trace(axis1=1, axis2=2).sum()) for stack in terms.split_by_size(roots))
    couplings = []
    for a, symmetric in enumerate(batched.symmetric):
        factors = [f for f in slopes if batched.factors[f].attribute == a]
        t = here.pinches[factors[0]].frame.shape[1] if factors else 0
        if symmetric or not t:
            couplings.append(np.zeros(t))
            continue
        state, place = terms.columns.find_totals(a, t)
        coupled = np.bincount(to_positions(state), roots[place], t).astype(np.float64)
        coupled[0] = total
        for f in factors:
            slope, table = 2 * slopes[f], here.tables[f]
            coupled[1:] -= (table[:t] @ slope[: t * t].reshape(t, t))[1:]
            coupled[0] -= slope @ table
        couplings.append(coupled)
    return couplings
