"""The executor of releases on threads or on a cluster: it draws parts, and writes parts of tables.

The sampler of every worker is tested before the ledger is charged, and whether it sees the output.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from fitplug import __version__
from fitplug.display import Progress, choose_report
from fitplug.errors import FitplugError
from fitplug.families import PartedStrategy
from fitplug.files import Place
from fitplug.ledger import hash_values
from fitplug.plan import Plan
from fitplug.releases import AnswersPart, Release, TablePart, describe_place
from fitplug_dask.exchange import Exchange, run_exchange
from fitplug_dask.kernel import Fault
from fitplug_dask.releases.counts import SplitCounts
from fitplug_dask.releases.failures import report_faults
from fitplug_dask.releases.tasks import (
    PIECES_BYTES,
    DurablePart,
    ReleaseJob,
    TablesJob,
    answer_in_parts,
    draw_answers,
    split_answers,
    split_counts,
    write_estimates,
)
from fitplug_dask.workers import Runner
from fitplug_opendp.noise_source import CLAMPED, NoiseSource, check_sampler_for
from fitplug_opendp.output import Output
from fitplug_opendp.staging import StagedAnswers, Staging


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
                f"a worker does not see {place}; nothing was charged; give an output that all "
                "workers share, under the same path"
            ) from None

    return report_faults(check, place)
