"""The executor of releases on threads or on a cluster: its tasks draw parts, and write tables.

The first task that writes a part of the answers fixes its content forever. A task that runs again,
on this worker or another, finds the part and uses it, or loses the race and discards its own draw.
So no answer is ever published with two draws of noise. Tables are computed from durable answers;
this may be repeated, even by several clients at once, and always writes the same bytes.

Before the ledger is charged, every worker tests its sampler and whether it sees the output folder.
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
from fitplug_opendp.staging import StagedAnswers, Staging, make_unseen_error

RELEASE_PACKAGES = (*COUNTING_PACKAGES, "fitplug_opendp")
"""The packages whose code takes part in a release."""

PIECES_BYTES = 2**26
"""The most bytes of exchanged counts or answers in a process's memory. The rest goes to disk, so
that a release with more answers needs no more memory."""


@dataclass(frozen=True, repr=False)
class ReleaseJob:
    """A release in parts.

    Attributes:
        plan: The plan.
        most: About the largest number of answers in a part.
        staging: Where the parts are.
        run: A unique name of this run; each process tests its sampler once per run.
        missing: The parts that did not exist when the run began, and so need counts.
        slabs: The slabs that these parts need, ascending. Only these are exchanged.
        counts: Where tasks find exact counts that do not travel with them.
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
        """The strategy in parts, which each process computes itself."""
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
        release: The release; its answers are read only when they are needed.
        answers_digest: The digest of the answers.
        confidence: The confidence of the intervals of groups whose target does not set one.
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
        """The table and its rows that each output fills."""
        return number_outputs(self.release_job.parted.outputs)


class DurablePart(NamedTuple):
    """A part of the noisy answers that is durable.

    Attributes:
        bytes: The size of its file.
        digest: The SHA-256 of its file, in hex.
        may_be_clamped: Whether answers that this call drew may have been clamped to the integer
            range.
    """

    bytes: int
    digest: str
    may_be_clamped: bool = False


def answer_in_parts(plan: Plan, parted: PartedStrategy, report: Report = ignore) -> AnswerPath:
    """Return the answer path of a release in parts, run in one process.

    Args:
        plan: The plan.
        parted: Its strategy in parts.
        report: Called with the number of answered parts and of all parts.
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
    """Split the exact counts of a slab into the pieces of the missing parts."""
    counts = given.read(job.counts, job.parted, job.plan.domain)
    pieces = job.parted.split_counts(given.number, counts)
    return {part: pieces[part] for part in pieces if part in job.missing}


def draw_answers(job: ReleaseJob, part: int, pieces: Mapping[int, IntArray]) -> DurablePart:
    """Draw the answers of a part and store them durably, unless they already are.

    Args:
        job: The release.
        part: The number of the part.
        pieces: Its pieces of the counts, by the index of their slab in `job.slabs`; empty if the
            part was durable when the run began.

    Returns:
        The durable part.
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
        # A resumed run exchanges only the slabs that are still needed.
        of_slabs = {job.slabs[index]: piece for index, piece in pieces.items()}
        exact = job.parted.answer_part(part, of_slabs)
        if job.parted.is_public(part):
            return exact
        return draw_part(exact, noise_std, job.run)

    noisy = retry(draw, job.staging.output)
    # All tries write the same draw: a store may have accepted one although it reported a failure.
    written = retry(lambda: write_answers_part(folder, part, noisy), job.staging.output)
    clamped = may_be_clamped(noisy, noise_std) if written.is_mine else False
    return DurablePart(written.bytes, written.digest, clamped)


def split_answers(job: TablesJob, part: int) -> Mapping[int, Any]:
    """Split the noisy answers of a part into the pieces of the outputs."""
    answers = job.release.answers
    assert isinstance(answers, PartedAnswers)
    # An earlier version may have drawn the answers, and cut them in another way.
    place = describe_place(job.release_job.parted.place(part))
    if part >= len(answers.parts) or answers.parts[part].place != place:
        raise FitplugError(
            "another version of fitplug drew the noise of this release. Finish the release with "
            "that version."
        )
    noisy = retry(lambda: answers.read_part(part), job.release_job.staging.output)
    return job.release_job.parted.split_answers(part, noisy)


def write_estimates(job: TablesJob, output: int, pieces: Mapping[int, AnyArray]) -> TablePart:
    """Compute the estimates of an output, and write them as a part of its table."""
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
    """Draws each part of the answers in a task, and reuses the parts that an earlier run drew.

    Attributes:
        plan: The plan.
        most: About the largest number of answers in a part.
        runner: Runs the tasks; the workers are inspected once.
        progress: How each step reports its progress.
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
        """A digest of the way in which answers and counts are cut into parts."""
        return hash_values(__version__, self.most, *self.parted.sizes.tolist())[:16]

    def check(self, noise_source: NoiseSource, output: Output, run: str) -> None:
        """Check the plan's sensitivity, on which the charge rests, and all workers."""
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
        """Compute the parts of all tables in tasks, each of which writes its own part."""
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
    """Test all processes that may draw noise, before anything is charged.

    A worker that joins later tests its sampler before its first draw.

    Args:
        runner: Runs the tasks.
        output: Where the release goes.
        noise_std: The standard deviation of the noise.
        run: A unique name of this run.

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
    """Test the sampler of this process and that it can see a file; return a fault, or None."""

    def check() -> None:
        check_sampler_for(run, noise_std)
        try:
            place.read(run)
        except FileNotFoundError:
            raise make_unseen_error(place) from None

    try:
        retry(check, place)
    except FitplugError as error:
        return Fault(str(error), of_data=False)
    return None
