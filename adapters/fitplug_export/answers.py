"""The answers of a release as columns, which the formats of other tools share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray
from fitplug.releases import MEASURES, Intervals, Release, check_names, list_parts
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
                f"attribute {factor.attribute!r} has the same name as a column of the results. "
                "Rename the attribute."
            )


def find_protected(release: Release, group: QueryGroup) -> AnyArray:
    """Find the answers that carry noise, of the group's shape.

    The others are computed from totals that the unit of privacy makes public, and are exact.
    """
    if release.plan.strategy.structure.public_attributes is None:
        return np.ones(group.shape, dtype=bool)
    return np.asarray(release.variances[group.name] > 0)


def iterate_columns(
    release: Release, group: QueryGroup, intervals: Intervals, labels: Sequence[Sequence[str]]
) -> Iterator[list[AnyArray]]:
    """Yield the columns of a group's answers: the labels of each axis, then `COLUMNS`.

    A release in parts is read part by part; any other release is one part.

    Args:
        release: The release.
        group: The group.
        intervals: The kind of intervals.
        labels: What stands for each index of each axis.
    """
    std = np.sqrt(release.variances[group.name])
    protected = find_protected(release, group)
    axes = [np.array(texts, dtype=object) for texts in labels]
    for part in list_parts(release, group.name):
        at, estimate = part.index(len(group.shape)), part.read()
        chosen = [texts[index] for texts, index in zip(axes, at, strict=True)]
        repeated = np.meshgrid(*chosen, indexing="ij") if chosen else []
        moe = intervals.compute_moe(group, std[at])
        # Adding 0.0 turns -0.0 into 0.0.
        numbers = [number + 0.0 for number in (estimate, std[at], moe)]
        numbers += [estimate - moe + 0.0, estimate + moe + 0.0]
        yield [np.ravel(column) for column in (*repeated, *numbers, protected[at])]
