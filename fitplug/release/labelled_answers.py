"""The answers of a group one by one, with the labels that say what each of them counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.tables import Intervals, check_names
from fitplug.workload import QueryGroup

PROTECTED = "protected"
"""The column that says whether an answer carries noise."""


class Answer(NamedTuple):
    """The numbers of an answer, all but the last in the group's quantity.

    Attributes:
        estimate: The estimate.
        std: Its standard deviation.
        moe: The margin of error of its interval.
        lower: The lower end of the interval.
        upper: The upper end.
        protected: "false" for an exact number that the unit of privacy makes public, else "true".
    """

    estimate: float
    std: float
    moe: float
    lower: float
    upper: float
    protected: str


def check_export_names(group: QueryGroup) -> None:
    """Raise WorkloadError if an attribute of a group has the name of a column of results."""
    check_names(group)
    if any(factor.attribute == PROTECTED for factor in group.factors):
        raise WorkloadError(f"attribute {PROTECTED!r} has the name of a result column; rename it")


def find_protected(release: NoisyAnswers, group: QueryGroup) -> AnyArray:
    """Find the answers that carry noise, of the group's shape.

    The others are computed from totals that the unit of privacy makes public, and are exact.
    """
    if release.plan.structure.public_attributes is None:
        return np.ones(group.shape, dtype=bool)
    return np.asarray(release.variances[group.name] > 0)


def iterate_answers(
    release: NoisyAnswers, group: QueryGroup, intervals: Intervals, labels: Sequence[Sequence[str]]
) -> Iterator[tuple[str | float, ...]]:
    """Yield the labels of each answer of a group, and then what `Answer` holds.

    A release in parts is read part by part.

    Args:
        release: The release.
        group: The group.
        intervals: The kind of intervals.
        labels: What stands for each row, for each factor of the group.
    """
    std = np.sqrt(release.variances[group.name])
    protected = find_protected(release, group)
    for where, estimate in _iterate_blocks(release, group):
        own = [one[chosen] for one, chosen in zip(labels, where, strict=True)]
        moe = intervals.compute_moe(group, std[where])
        flags = np.where(protected[where], "true", "false")
        numbers = (estimate, std[where], moe, estimate - moe, estimate + moe)
        # Adding 0.0 turns -0.0 into 0.0.
        columns = [*(np.ravel(one + 0.0).tolist() for one in numbers), np.ravel(flags).tolist()]
        for names, answer in zip(product(*own), zip(*columns, strict=True), strict=True):
            yield *names, *answer


def _iterate_blocks(
    release: NoisyAnswers, group: QueryGroup
) -> Iterator[tuple[tuple[slice, ...], AnyArray]]:
    """Yield where the estimates of each part stand among those of a group, and the estimates."""
    everywhere = (slice(None),) * len(group.shape)
    if release.parted_tables is None or not everywhere:
        yield everywhere, np.asarray(release.estimates[group.name])
        return
    for block in release.parted_tables.list_blocks(group.name):
        where = list(everywhere)
        where[block.axis] = slice(block.start, block.stop)
        yield tuple(where), block.read()
