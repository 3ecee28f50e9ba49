"""Reduction: the tree in which partial counts are added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def reduce_tree(leaves: Sequence[T], width: int, join: Callable[[Sequence[T]], T]) -> T:
    """Join `width` neighbours at a time, level by level, until one is left.

    Args:
        leaves: What is joined first; at least one.
        width: The most neighbours that are joined at once.
        join: Joins some neighbours.
    """
    level = leaves
    while True:
        level = [join(level[i : i + width]) for i in range(0, len(level), width)]
        if len(level) == 1:
            return level[0]
