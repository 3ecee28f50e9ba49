"""Into what the columns of an attribute are split: a frame, and rests that count as one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.product.certificate.product_duals import ProductDuals
from fitplug.families.product.shape.batches import BatchedGroups, build_row_spaces, classify_nodes
from fitplug.numeric import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Split:
    """Into what the columns of one attribute are split.

    Attributes:
        columns: The columns of the frame; 0 where the attribute is one of every group that counts,
            and none of its columns is needed.
        spaces: Rows (r, P) whose spans, added one after another, give the first rests. If there
            are none, all columns outside the frame are one rest.
        classes: Per step of a tree the class of every node, whose contrasts are one rest, and the
            number of classes.
    """

    columns: int
    spaces: tuple[FloatArray, ...] = ()
    classes: tuple[Sequence[IntArray], int] = ((), 0)

    @property
    def rests(self) -> int:
        """The number of rests; the first may be empty."""
        return max(len(self.spaces), 1) + self.classes[1]


def plan_splits(batched: BatchedGroups, duals: ProductDuals) -> list[Split]:
    """Plan into what the columns of every attribute are split.

    Args:
        batched: The groups.
        duals: The dual weights.

    Returns:
        One for each attribute.
    """
    splits, rests = [], duals.rests
    columns = _count_frame_columns(batched, duals)
    if duals.pairs is not None:
        # Of an attribute along which a record moves, the frame has e and v.
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


def _count_frame_columns(batched: BatchedGroups, duals: ProductDuals) -> IntArray:
    """Count the columns of every attribute's frame, shape (attributes,).

    There are none where the groups of positive weight all have the same factor, or all sum it out.
    """
    used = [batch.factors[duals.w[batch.groups] > 0] for batch in batched.batches]
    count = np.zeros(len(batched.factors), dtype=np.int64)
    np.add.at(count, np.concatenate([factors.ravel() for factors in used]), 1)
    groups = sum(map(len, used))
    sizes = np.minimum(duals.t, batched.widths).astype(np.int64)
    needed = np.zeros(len(sizes), dtype=np.bool_)
    for factor, times in zip(batched.factors, count, strict=True):
        needed[factor.attribute] |= 0 < times < groups
    return sizes * needed
