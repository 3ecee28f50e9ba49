"""The answers of a release as columns, which the formats of other tools share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray
from fitplug.release import MEASURES, Intervals, Release, check_names
from fitplug.workload import QueryGroup

PROTECTED = "protected"
"""The column that says whether an answer carries noise."""

COLUMNS = (*MEASURES, PROTECTED)
"""The columns after the labels of an answer."""


def check_export_names(group: QueryGroup, taken: Sequence[str] = (PROTECTED,)) -> None:
    """Raise WorkloadError if an attribute of a group has the name of a column of results."""
    check_names(group)
    for factor in group.factors:
        if factor.attribute in taken:
            raise WorkloadError(
                f"attribute {factor.attribute!r} has the name of a result column; rename it"
            )


def find_protected(release: Release, group: QueryGroup) -> AnyArray:
    """Find the answers that carry noise, of the group's shape.

    The others are computed from totals that the unit of privacy makes public, and are exact.
    """
    if release.plan.structure.public_attributes is None:
        return np.ones(group.shape, dtype=bool)
    return np.asarray(release.variances[group.name] > 0)


def iterate_columns(
    release: Release, group: QueryGroup, intervals: Intervals, labels: Sequence[Sequence[str]]
) -> Iterator[list[AnyArray]]:
    """Yield the columns of a group's answers: the labels of each axis, then `COLUMNS`.

    A release in parts is read part by part, any other is one part.

    Args:
        release: The release.
        group: The group.
        intervals: The kind of intervals.
        labels: What stands for each index of each axis.
    """
    std = np.sqrt(release.variances[group.name])
    protected = find_protected(release, group)
    axes = [np.array(texts, dtype=object) for texts in labels]
    for where, estimate in _iterate_parts(release, group):
        chosen = [texts[index] for texts, index in zip(axes, where, strict=True)]
        repeated = np.meshgrid(*chosen, indexing="ij") if chosen else []
        moe = intervals.compute_moe(group, std[where])
        # Adding 0.0 turns -0.0 into 0.0.
        numbers = [
            number + 0.0 for number in (estimate, std[where], moe, estimate - moe, estimate + moe)
        ]
        yield [np.ravel(column) for column in (*repeated, *numbers, protected[where])]


def _iterate_parts(
    release: Release, group: QueryGroup
) -> Iterator[tuple[tuple[slice, ...], AnyArray]]:
    """Yield where the estimates of each part stand among a group's, and the estimates."""
    everywhere = (slice(None),) * len(group.shape)
    if release.parted_tables is None or not everywhere:
        yield everywhere, np.asarray(release.estimates[group.name])
        return
    for block in release.parted_tables.list_blocks(group.name):
        where = list(everywhere)
        where[block.axis] = slice(block.start, block.stop)
        yield tuple(where), block.read()
