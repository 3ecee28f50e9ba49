"""Executors, which draw the noise of a release and write its tables, and their exact counts.

The executor here draws all answers at once in this process. `fitplug_dask.releases` has one that
draws them in parts, on threads or on a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from fitplug.counts import OutsideCounts, Tables
from fitplug.plan import Plan
from fitplug.releases import AnswersPart, Release, TablePart, write_parts, write_tables
from fitplug_opendp.count_checks import (
    CountedRows,
    check_limit,
    find_seal,
    list_outside_attributes,
)
from fitplug_opendp.gaussian import IntVector, Progress
from fitplug_opendp.noise_source import NoiseSource, compute_exact_answers
from fitplug_opendp.output import Output
from fitplug_opendp.staging import StagedAnswers, Staging


class ExactCounts(ABC):
    """The exact counts that a release is made from. They are confidential.

    Attributes:
        rows: The rows that they were counted from.
        seal: Their seal under a nonce that is stored until the release is published, so that the
            same counts have the same seal in each run; None if no run resumes another.
        outside: The numbers of records outside the domain; None if they were not counted.
    """

    rows: CountedRows
    seal: str | None = None
    outside: OutsideCounts | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    @abstractmethod
    def published_seal(self) -> str | None:
        """The seal to publish with the release; None if any other count would be the same."""

    @abstractmethod
    def check(self, plan: Plan) -> None:
        """Raise TablesError unless a plan can be released from these counts."""

    @abstractmethod
    def list_outside_attributes(self, plan: Plan) -> tuple[str, ...]:
        """List the attributes that the plan does not use but by which records were left out."""


Counts = TypeVar("Counts", bound=ExactCounts, contravariant=True)


class Executor(Protocol[Counts]):
    """Draws the noise: in this process, or on workers."""

    @property
    def is_resumed(self) -> bool:
        """Whether a run draws only the parts that earlier runs for the same charge did not."""

    @property
    def cut(self) -> str:
        """A text that identifies how answers and counts are cut into parts."""

    def draw(
        self, noise_source: NoiseSource, staging: Staging, counts: Counts, run: str
    ) -> Sequence[AnswersPart]:
        """Draw the noise of all parts that are not durable, and return all parts.

        Args:
            noise_source: The noise.
            staging: The staging area of the parts.
            counts: The exact counts.
            run: The identifier of this run.

        Raises:
            FitplugError: A worker fails.
            OSError: A part cannot be written.
        """


class TablesExecutor(Executor[Counts], Protocol[Counts]):
    """Draws the noise of a release into a folder, and writes its tables."""

    def check(self, noise_source: NoiseSource, output: Output, run: str) -> None:
        """Check, before the charge, the plan's claims and all samplers that may draw.

        Args:
            noise_source: The noise, and its cost.
            output: The output of the release.
            run: The identifier of this run.

        Raises:
            FitplugError: A claim of the plan does not hold, or a sampler fails its test.
        """

    def load(self, release: Release) -> Release:
        """Return the release for callers: with its answers in memory, or left in parts."""

    def write_tables(
        self, staged: StagedAnswers, release: Release, confidence: float, run: str
    ) -> Sequence[TablePart]:
        """Compute all tables from the noisy answers, and write them into the staging area.

        Args:
            staged: The answers.
            release: Their release, from `load`.
            confidence: The confidence of the intervals, for groups whose target has no confidence.
            run: The identifier of this run.

        Raises:
            FitplugError: A worker fails, or an answer is damaged.
            OSError: A table cannot be written.
        """


class WholeTables(ExactCounts):
    """Exact counts whose answers this process computes at once."""

    def __init__(self, plan: Plan, tables: Tables) -> None:
        self.tables, self.rows, self._plan = tables, CountedRows.from_tables(tables), plan
        self.outside = tables.outside

    @cached_property
    def answers(self) -> IntVector:
        """The exact answers, which are confidential."""
        return compute_exact_answers(self._plan, self.tables)

    @property
    def published_seal(self) -> str | None:
        return find_seal(self.tables)

    def check(self, plan: Plan) -> None:
        check_limit(plan, self.tables)
        assert self.answers is not None  # they are computed before the charge

    def list_outside_attributes(self, plan: Plan) -> tuple[str, ...]:
        return list_outside_attributes(plan, self.tables)


@dataclass(frozen=True)
class ThisProcess:
    """The executor that draws all answers at once in the memory of this process.

    Attributes:
        progress: A function that is called with the number of answers drawn.
    """

    progress: Progress | None = None
    is_resumed = False
    cut = "in one process"

    def check(self, noise_source: NoiseSource, output: Output, run: str) -> None:
        """Check the plan's claims and the sampler."""
        noise_source.check_plan()
        noise_source.check_sampler()

    def draw(
        self, noise_source: NoiseSource, staging: Staging, counts: WholeTables, run: str
    ) -> Sequence[AnswersPart]:
        """Draw the noise of all answers, and write them."""
        drawn = noise_source.draw(counts.tables, counts.answers, self.progress)
        return write_parts(staging.place, drawn)

    def load(self, release: Release) -> Release:
        """Load the answers into memory; the tables of a folder are compared with them."""
        if release.tables is not None:
            release.verify()
        return replace(release, answers=np.asarray(release.answers), tables=None)

    def write_tables(
        self, staged: StagedAnswers, release: Release, confidence: float, run: str
    ) -> Sequence[TablePart]:
        """Compute all tables, and write them."""
        return write_tables(staged.staging.place, release, staged.digest, confidence)
