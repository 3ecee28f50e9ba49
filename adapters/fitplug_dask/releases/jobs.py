"""Jobs: what every task of a release in parts knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fitplug.families import PartedStrategy
from fitplug.plan import Plan
from fitplug.release import Release, TableSlice, number_outputs
from fitplug_dask.releases.staging import Staging
from fitplug_dask.releases.stored_counts import CountStore
from fitplug_dask.workers import COUNTING_PACKAGES

RELEASE_PACKAGES = (*COUNTING_PACKAGES, "fitplug_opendp")
"""The packages whose code takes part in a release."""

PIECES_BYTES = 2**26
"""What a process holds of counts or answers that are brought together. The rest is on its disk, as
a release should take no more memory if it has more answers."""


@dataclass(frozen=True, repr=False)
class ReleaseJob:
    """A release in parts.

    Attributes:
        plan: The plan.
        most: About the largest number of answers of a part.
        staging: Where the parts are.
        run: What distinguishes this run; a process tests its sampler once for each.
        missing: The parts that were not there when the run began, for which counts are needed.
        slabs: The slabs that these parts need, ascending. Only these are exchanged.
        counts: Where the tasks find the exact counts of slabs that they are not sent.
    """

    plan: Plan
    most: int
    staging: Staging
    run: str
    missing: frozenset[int] = frozenset()
    slabs: tuple[int, ...] = ()
    counts: CountStore | None = None

    def __repr__(self) -> str:
        return f"ReleaseJob({self.plan.digest[:12]})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "parted"}

    @cached_property
    def parted(self) -> PartedStrategy:
        """The strategy in parts, which each process makes itself."""
        return self.plan.strategy.cut(self.most)

    @property
    def parts(self) -> int:
        """The number of parts."""
        return len(self.parted.sizes)


@dataclass(frozen=True, repr=False)
class TablesJob:
    """The tables of a release in parts, whose answers are durable.

    Attributes:
        release_job: The release.
        release: The release with its answers, which are read when they are needed.
        answers_digest: The digest of the answers.
        confidence: The confidence of the intervals of groups whose target has none.
    """

    release_job: ReleaseJob
    release: Release
    answers_digest: str
    confidence: float

    def __repr__(self) -> str:
        return f"TablesJob({self.answers_digest[:12]})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "slices"}

    @cached_property
    def slices(self) -> tuple[TableSlice, ...]:
        """Which rows of which table each output has."""
        return number_outputs(self.release_job.parted.outputs)
