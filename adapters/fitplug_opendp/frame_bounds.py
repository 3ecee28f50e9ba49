"""Frame bounds: how many records differ between LazyFrames at OpenDP's frame distance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any


def upper_records(bounds: Sequence[Any]) -> int:
    """Return the largest number of records that differ where all of these Bounds hold.

    If at most g groups by some columns differ, and at most p records in each group, at most g p
    records differ. The two limits may be in different Bounds, as each step of truncation adds one.

    Args:
        bounds: OpenDP's Bounds.

    Raises:
        ValueError: The number of records is not limited.
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    per_group: dict[Any, list[int]] = defaultdict(list)
    for number, bound in enumerate(bounds):
        key = _identify_columns(bound.by, number)
        if not bound.by:
            groups[key].append(1)
        elif bound.num_groups is not None:
            groups[key].append(bound.num_groups)
        if bound.per_group is not None:
            per_group[key].append(bound.per_group)
    products = [min(groups[key]) * min(per_group[key]) for key in groups.keys() & per_group.keys()]
    if not products:
        raise ValueError(
            "no Bound limits the records of one person; give one with per_group, and with "
            "num_groups if it has by"
        )
    return min(products)


def _identify_columns(by: Sequence[Any], number: int) -> Any:
    """Return what identifies the groups of a Bound: other expressions than columns, by its number.

    Two expressions may print the same and group records differently, and two columns do not.
    """
    if all(expression.meta.is_column() for expression in by):
        return frozenset(expression.meta.output_name() for expression in by)
    return number
