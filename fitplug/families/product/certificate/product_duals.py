"""Dual weights of product form: their checks, and how they split each attribute's columns.

The columns are split into a frame, and rests that reduce to one number each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.certify import check_weights
from fitplug.errors import BAD_PROOF
from fitplug.families.product.shape.batches import BatchedGroups, build_row_spaces, classify_nodes
from fitplug.families.product.shape.products import MAX_FACTORS
from fitplug.numeric import BoolArray, FloatArray, IntArray

MAX_RESTS = 4096
"""The most rests of an attribute, of each kind."""


@dataclass(frozen=True, eq=False)
class PairWeights:
    """Weights of pairs of cells. Any numbers of these shapes give a bound.

    Attributes:
        moves: Whether each move is along each attribute, shape (t, attributes).
        near: Whether it stays below the parent of a leaf, of those that are trees, likewise.
        shares: The weights of the moves, >= 0; only their ratios count, shape (t,).
        sides: Per attribute, any numbers s, shape (n_a,): v is the component of s e orthogonal to
            e. Empty for a symmetric attribute, a tree, and one along which no record moves.
    """

    moves: BoolArray
    near: BoolArray
    shares: FloatArray
    sides: tuple[FloatArray, ...]

    @property
    def moved(self) -> BoolArray:
        """Whether a record may move along each attribute, shape (attributes,)."""
        return np.asarray(self.moves.any(axis=0))


@dataclass(frozen=True, eq=False)
class ProductDuals:
    """All weights on which the bound depends. Any numbers >= 0 of these shapes give a bound.

    For a symmetric attribute, p and y are one number each, the sum over all cells or rows.

    Attributes:
        p: Per attribute of the workload, shape (n_a,); only their ratios count.
        y: Per distinct factor, shape (r,).
        w: Per group of the workload, shape (groups,).
        t: The maximum number of columns of a frame.
        rests: The maximum number of rests of an attribute of each kind (spaces of rows, and
            contrasts of nodes). If it is 1, an attribute has one rest altogether.
        tilt: The weight of e relative to all other directions, in (0, 1], in the polar factor that
            pairs rows with columns.
        pairs: The weights of pairs of cells, where neighbours replace a record.
    """

    p: tuple[FloatArray, ...]
    y: tuple[FloatArray, ...]
    w: FloatArray
    t: int
    rests: int
    tilt: float
    pairs: PairWeights | None = None


def check_duals(batched: BatchedGroups, duals: ProductDuals) -> None:
    """Raise ValueError unless the weights fit these groups, and factors are small enough."""
    cells = [1 if one else n for one, n in zip(batched.symmetric, batched.sizes, strict=True)]
    fits = isinstance(duals.p, tuple) and len(duals.p) == len(cells)
    if not fits or not isinstance(duals.y, tuple) or len(duals.y) != len(batched.factors):
        raise ValueError(BAD_PROOF)
    for p, n in zip(duals.p, cells, strict=True):
        check_weights(p, n)
    for y, factor in zip(duals.y, batched.factors, strict=True):
        check_weights(y, factor.count)
    check_weights(duals.w, len(batched.workload.groups))
    t, rests, tilt = duals.t, duals.rests, duals.tilt
    fits = type(t) is int and 1 <= t <= max(batched.widths, default=1)
    fits = fits and type(rests) is int and 1 <= rests <= MAX_RESTS
    if not fits or type(tilt) is not float or not 0 < tilt <= 1:
        raise ValueError(BAD_PROOF)
    if duals.pairs is not None:
        _check_pairs(duals.pairs, cells)
    shapes = [
        (max(len(factor.rows), n), n)
        for factor in batched.factors
        for n in (batched.widths[factor.attribute],)
    ]
    if sum(float(r) * n * min(r, n) for r, n in shapes) > MAX_FACTORS:
        raise ValueError("the proof of the lower bound would take too much work to check")


def _check_pairs(pairs: PairWeights, cells: list[int]) -> None:
    """Raise ValueError unless weights of pairs fit these numbers of cells."""
    check_weights(pairs.shares, len(pairs.moves))
    if pairs.moves.shape[1] != len(cells) or not pairs.moves.any(axis=1).all():
        raise ValueError(BAD_PROOF)
    for sides, n in zip(pairs.sides, cells, strict=True):
        if len(sides) and (sides.shape != (n,) or not np.isfinite(sides).all()):
            raise ValueError(BAD_PROOF)


@dataclass(frozen=True, eq=False)
class Split:
    """The split of one attribute's columns into a frame and rests.

    Attributes:
        columns: The number of columns of the frame; 0 if no group of positive weight needs one.
        spaces: Rows (r, P) whose spans, added one after another, give the first rests. If there are
            none, all columns outside the frame are one rest.
        classes: Per step of a tree, the class of every node; and the number of classes. The
            contrasts at the nodes of one class are one rest.
    """

    columns: int
    spaces: tuple[FloatArray, ...] = ()
    classes: tuple[Sequence[IntArray], int] = ((), 0)

    @property
    def rests(self) -> int:
        """The number of rests; the first may be empty."""
        return max(len(self.spaces), 1) + self.classes[1]


def plan_splits(
    batched: BatchedGroups, duals: ProductDuals, *, has_mean: bool = False
) -> list[Split]:
    """Plan the split of every attribute's columns.

    Args:
        batched: The groups.
        duals: The dual weights.
        has_mean: Whether p^1/2 is apart in every attribute that a group uses.

    Returns:
        A split for each attribute.
    """
    splits, rests = [], duals.rests
    columns = _count_frame_columns(batched, duals, has_mean=has_mean)
    if duals.pairs is not None:
        # If a record moves along an attribute, the frame needs e and v.
        least = np.where(duals.pairs.moved, np.minimum(batched.widths, 2), 0)
        columns = np.maximum(columns, least)
    for a, size in enumerate(columns.tolist()):
        tree = batched.trees[a]
        spaces: tuple[FloatArray, ...] = ()
        if 0 < size < batched.widths[a] and rests > 1:
            spaces = build_row_spaces(batched, a)
            if len(spaces) > rests:
                spaces = (*spaces[: rests - 1], np.concatenate(spaces[rests - 1 :]))
        classes = ((), 0) if tree is None else classify_nodes(tree, rests)
        splits.append(Split(size, spaces, classes))
    return splits


def _count_frame_columns(
    batched: BatchedGroups, duals: ProductDuals, *, has_mean: bool
) -> IntArray:
    """Count the columns of every attribute's frame, shape (attributes,).

    There are none if all groups of positive weight sum it out, or have the same factor and p^1/2
    need not be apart.
    """
    used = [batch.factors[duals.w[batch.groups] > 0] for batch in batched.batches]
    count = np.zeros(len(batched.factors), dtype=np.int64)
    np.add.at(count, np.concatenate([factors.ravel() for factors in used]), 1)
    groups = sum(map(len, used))
    sizes = np.minimum(duals.t, batched.widths).astype(np.int64)
    needed = np.zeros(len(sizes), dtype=np.bool_)
    for factor, times in zip(batched.factors, count, strict=True):
        needed[factor.attribute] |= 0 < times < groups + has_mean
    return sizes * needed
