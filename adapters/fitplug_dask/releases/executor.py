"""The executor of releases on threads or on a cluster: its tasks draw parts, and write tables.

Whoever writes a part of the answers first decides what it holds for ever. A task that runs again,
on this worker or another, finds the part and takes it, or loses the race for it and discards what
it drew; so no answer is ever published with two draws of noise. Tables are computed from what is
durable, so it may be done again, and by several clients at once, and writes the same bytes.

The sampler of every worker is tested before the ledger is charged, and whether it sees the output.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from fitplug import __version__
from fitplug.counts import Tables
from fitplug.display import Progress, Report, choose_report, ignore
from fitplug.errors import FitplugError
from fitplug.families import PartedStrategy, may_be_clamped
from fitplug.files import Place
from fitplug.ledger import hash_values
from fitplug.numeric import AnyArray, IntArray
from fitplug.plan import Plan
from fitplug.releases import (
    AnswersPart,
    PartedAnswers,
    Release,
    TablePart,
    TableSlice,
    describe_place,
    find_answers_part,
    number_outputs,
    write_answers_part,
    write_table_part,
)
from fitplug.sensitivity import AnswerPath
from fitplug_dask.exchange import Exchange, run_exchange
from fitplug_dask.kernel import Fault
from fitplug_dask.releases.counts import CountStore, SlabCounts, SplitCounts, retry
from fitplug_dask.workers import COUNTING_PACKAGES, Runner
from fitplug_opendp.noise_source import CLAMPED, NoiseSource, check_sampler_for, draw_part
from fitplug_opendp.output import Output
from fitplug_opendp.staging import StagedAnswers, Staging

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


class DurablePart(NamedTuple):
    """A part of the noisy answers that is durable.

    Attributes:
        bytes: The size of its file.
        digest: The SHA-256 of its file, in hex.
        may_be_clamped: Whether noisy answers that this call drew are as large as integers hold.
    """

    bytes: int
    digest: str
    may_be_clamped: bool = False


def answer_in_parts(plan: Plan, parted: PartedStrategy, report: Report = ignore) -> AnswerPath:
    """Return the path by which a release in parts computes its answers, in one process.

    Args:
        plan: The plan.
        parted: Its strategy in parts.
        report: Called with the number of parts answered, and of all.
    """

    def answer(tables: Tables) -> Iterator[tuple[slice | IntArray, IntArray]]:
        pieces = [
            parted.split_counts(number, tables.marginal(slab.names)[slab.index])
            for number, slab in enumerate(parted.slabs)
        ]
        for part in range(len(parted.sizes)):
            pieces_of_part = {slab: pieces[slab][part] for slab in parted.list_slabs(part)}
            yield parted.place(part), parted.answer_part(part, pieces_of_part)
            if len(parted.sizes) > 1:
                report(part + 1, len(parted.sizes))

    return AnswerPath(plan, plan.tables, answer)


def split_counts(job: ReleaseJob, given: SlabCounts) -> Mapping[int, Any]:
    """Split the exact counts of a slab by the parts that are missing."""
    counts = given.read(job.counts, job.parted, job.plan.domain)
    pieces = job.parted.split_counts(given.number, counts)
    return {part: pieces[part] for part in pieces if part in job.missing}


def draw_answers(job: ReleaseJob, part: int, pieces: Mapping[int, IntArray]) -> DurablePart:
    """Draw the answers of a part and make them durable, unless they are durable already.

    Args:
        job: The release.
        part: The number of the part.
        pieces: What the slabs have for it, by their index in `job.slabs`; nothing if it was durable
            when the run began.

    Returns:
        What is durable now.
    """
    folder, size = job.staging.place, int(job.parted.sizes[part])

    def find() -> DurablePart | None:
        job.staging.check_mark()
        part_file = find_answers_part(folder, part, size)
        return None if part_file is None else DurablePart(part_file.bytes, part_file.digest)

    durable = retry(find, job.staging.output)
    if durable is not None:
        return durable
    noise_std = job.plan.noise_std

    def draw() -> IntArray:
        # A run that is resumed exchanges only the slabs that are still needed.
        of_slabs = {job.slabs[index]: piece for index, piece in pieces.items()}
        exact = job.parted.answer_part(part, of_slabs)
        if job.parted.is_public(part):
            return exact
        return draw_part(exact, noise_std, job.run)

    noisy = retry(draw, job.staging.output)
    # One draw for all tries: a store may have taken the first although it reported a failure.
    written = retry(lambda: write_answers_part(folder, part, noisy), job.staging.output)
    clamped = may_be_clamped(noisy, noise_std) if written.is_mine else False
    return DurablePart(written.bytes, written.digest, clamped)


def split_answers(job: TablesJob, part: int) -> Mapping[int, Any]:
    """Split the noisy answers of a part by the outputs that need them."""
    answers = job.release.answers
    assert isinstance(answers, PartedAnswers)
    # Answers that are made may be those of an earlier version, which may have cut them otherwise.
    place = describe_place(job.release_job.parted.place(part))
    if part >= len(answers.parts) or answers.parts[part].place != place:
        raise FitplugError(
            "another version of fitplug drew the answers of this release. Finish it with that "
            "version; nothing more will be charged."
        )
    noisy = retry(lambda: answers.read_part(part), job.release_job.staging.output)
    return job.release_job.parted.split_answers(part, noisy)


def write_estimates(job: TablesJob, output: int, pieces: Mapping[int, AnyArray]) -> TablePart:
    """Estimate the answers of an output, and write them as a part of its table."""
    estimates = job.release_job.parted.estimate(output, pieces)
    folder = job.release_job.staging.place

    def write() -> TablePart:
        return write_table_part(
            folder,
            job.release,
            job.slices[output],
            estimates,
            answers_digest=job.answers_digest,
            confidence=job.confidence,
        )

    return retry(write, job.release_job.staging.output)


@dataclass(frozen=True)
class PartedExecutor:
    """Draws answers in parts, each by a task, and takes those that an earlier run has drawn.

    Attributes:
        plan: The plan.
        most: About the largest number of answers of a part.
        runner: What runs the tasks; the workers are inspected once.
        progress: How each step reports what is done.
    """

    plan: Plan
    most: int
    runner: Runner
    progress: Progress
    is_resumed = True

    @cached_property
    def parted(self) -> PartedStrategy:
        """The strategy in parts."""
        return self.plan.strategy.cut(self.most)

    @property
    def cut(self) -> str:
        """What tells this way to cut answers and counts into parts from others."""
        return hash_values(__version__, self.most, *self.parted.sizes.tolist())[:16]

    def check(self, noise_source: NoiseSource, output: Output, run: str) -> None:
        """Check what the charge rests on, and all workers."""
        report = choose_report(self.progress, "checking the plan")
        noise_source.check_plan(answer_in_parts(self.plan, self.parted, report))
        check_workers(self.runner, output, self.plan.noise_std, run)

    def draw(
        self, noise_source: NoiseSource, staging: Staging, counts: SplitCounts, run: str
    ) -> Sequence[AnswersPart]:
        """Draw the missing parts on the workers, and list all parts."""
        parted = self.parted
        missing = staging.list_missing(len(parted.sizes))
        numbers = tuple(sorted({slab for part in missing for slab in parted.list_slabs(part)}))
        job = ReleaseJob(self.plan, self.most, staging, run, missing, numbers, counts.store)
        exchange = Exchange(split_counts, job.parts, job, memory=PIECES_BYTES)
        durable: list[DurablePart] = run_exchange(
            exchange,
            draw_answers,
            counts.list_slabs(parted, numbers),
            client=self.runner,
            report=choose_report(self.progress, "drawing noise"),
        )
        if any(part.may_be_clamped for part in durable):
            warnings.warn(CLAMPED, RuntimeWarning, stacklevel=6)
        return [
            AnswersPart(number, describe_place(parted.place(number)), part.bytes, part.digest)
            for number, part in enumerate(durable)
        ]

    def load(self, release: Release) -> Release:
        """Leave the answers in their parts."""
        return release

    def write_tables(
        self, staged: StagedAnswers, release: Release, confidence: float, run: str
    ) -> Sequence[TablePart]:
        """Compute the parts of all tables on the workers, each of which writes its own."""
        job = ReleaseJob(self.plan, self.most, staged.staging, run)
        tables = TablesJob(job, release, staged.digest, confidence)
        exchange = Exchange(
            split_answers,
            len(job.parted.outputs),
            tables,
            confidential=False,
            memory=PIECES_BYTES,
        )
        parts: list[TablePart] = run_exchange(
            exchange,
            write_estimates,
            range(job.parts),
            client=self.runner,
            report=choose_report(self.progress, "writing tables"),
        )
        return parts


_SECONDS = 120


def check_workers(runner: Runner, output: Output, noise_std: float, run: str) -> None:
    """Test all processes that may draw noise. Nothing is charged.

    A worker that joins later tests its sampler before its first draw.

    Args:
        runner: What runs the tasks.
        output: Where the release goes.
        noise_std: The standard deviation of the noise.
        run: What distinguishes this run from others.

    Raises:
        FitplugError: The sampler of a worker fails its test, or a worker cannot reach the output.
    """
    if runner.client is None:
        check_sampler_for(run, noise_std)
        return
    probes = output.locate_probes(run)
    probes.create(run, b"")
    try:
        check = partial(check_process, probes, run, noise_std)
        runner.run_on_each("test-sampler", check, _SECONDS)
    finally:
        probes.remove(run)


def check_process(place: Place, run: str, noise_std: float) -> Fault | None:
    """Test the sampler of this process, and that it sees a file; return what is wrong."""

    def check() -> None:
        check_sampler_for(run, noise_std)
        try:
            place.read(run)
        except FileNotFoundError:
            raise FitplugError(
                f"a worker cannot see {place}. Nothing was charged. Name an output folder that "
                "all workers see under the same path."
            ) from None

    try:
        retry(check, place)
    except FitplugError as error:
        return Fault(str(error), of_data=False)
    return None
