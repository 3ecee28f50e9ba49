"""A step of ascent for the weights of cells in the product bound.

For a contraction Z, <Z, X> is a sum over the columns of X, whose entries are proportional to the
square roots of the cells' weights. So each weight p_a(i) becomes what the columns of cell i add,
which never lowers <Z, X> (docs/theory/product-bound.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitplug.families.product.certificate.gram_matrices import GramTerms
from fitplug.families.product.certificate.product_bound import ScaledDuals
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import FloatArray

_LEAST_CELL = 1e-9
"""The least weight of a cell, as a part of the mean weight."""


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
        here: The weights as they are evaluated.
        gains: What the columns of every factor add, shape (P,).
        couplings: What the groups that sum an attribute out couple to the columns of its frame, as
            `couple_totals` gives it.

    Returns:
        The weights. Those of the leaves of a tree keep their shares of its top nodes' weights.
    """
    moved = list(cells)
    for a, tree in enumerate(batched.trees):
        own = [f for f in gains if batched.factors[f].attribute == a]
        if not own:
            continue
        frame = here.pinches[own[0]].frame
        gain = np.sum([gains[f] for f in own], axis=0)
        if frame.shape[1]:
            gain = gain + frame[:, 0] * (frame @ couplings[a])
        gain = np.maximum(gain, _LEAST_CELL * np.abs(gain).mean())
        if tree is None:
            moved[a] = gain / gain.sum()
        else:
            mass = tree.sum_leaves(cells[a], 0)
            ratio = np.divide(gain / gain.sum(), mass, out=np.zeros_like(mass), where=mass > 0)
            moved[a] = cells[a] * np.repeat(ratio, tree.leaves[0])
    return tuple(moved)


def couple_totals(
    batched: BatchedGroups,
    here: ScaledDuals,
    terms: GramTerms,
    roots: FloatArray,
    slopes: Mapping[int, FloatArray],
) -> list[FloatArray]:
    """Compute what Z couples of the groups that sum an attribute out to its frame.

    Y'Z is the square root of the Gram matrix Y'Y. Its row of the total is that of all groups; what
    those have that do not sum the attribute out follows from the slopes.

    Args:
        batched: The groups.
        here: The weights as they are evaluated.
        terms: Where the Gram matrices are.
        roots: The square roots of the Gram matrices, in the same places.
        slopes: The derivatives of the bound by the tables.

    Returns:
        Per attribute numbers for the columns of its frame, shape (t,).
    """
    assert terms.columns is not None
    total = sum(float(stack.trace(axis1=1, axis2=2).sum()) for stack in terms.split_by_size(roots))
    found = []
    for a, symmetric in enumerate(batched.symmetric):
        own = [f for f in slopes if batched.factors[f].attribute == a]
        t = here.pinches[own[0]].frame.shape[1] if own else 0
        if symmetric or not t:
            found.append(np.zeros(t))
            continue
        state, place = terms.columns.find_totals(a, t)
        coupled = np.bincount(state, roots[place], t).astype(np.float64)
        coupled[0] = total
        for f in own:
            slope, table = 2 * slopes[f], here.tables[f]
            coupled[1:] -= (table[:t] @ slope[: t * t].reshape(t, t))[1:]
            coupled[0] -= slope @ table
        found.append(coupled)
    return found
