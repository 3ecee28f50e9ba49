"""Drawing: the answers of each part, drawn once.

Whoever writes a part first decides what it holds for ever. A task that runs again, on this worker
or another, finds the part and takes it, or loses the race for it and discards what it drew; so no
answer is ever published with two draws of noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fitplug.counts import Tables
from fitplug.families import PartedStrategy, may_be_clamped
from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug.release import find_answers_part, write_answers_part
from fitplug.sensitivity import AnswerPath
from fitplug_dask.kernel import Fault
from fitplug_dask.progress import Report, ignore
from fitplug_dask.releases.exact_counts import SlabCounts
from fitplug_dask.releases.failures import report_faults
from fitplug_dask.releases.jobs import ReleaseJob
from fitplug_opendp.noise_source import draw_part


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
            own = {slab: pieces[slab][part] for slab in parted.list_slabs(part)}
            yield parted.place(part), parted.answer_part(part, own)
            if len(parted.sizes) > 1:
                report(part + 1, len(parted.sizes))

    return AnswerPath(plan, plan.tables, answer)


def split_counts(job: ReleaseJob, given: SlabCounts) -> Mapping[int, Any] | Fault:
    """Split the exact counts of a slab by the parts that are missing."""
    counts = given.read(job)
    if isinstance(counts, Fault):
        return counts
    pieces = job.parted.split_counts(given.number, counts)
    return {part: pieces[part] for part in pieces if part in job.missing}


def draw_answers(job: ReleaseJob, part: int, pieces: Mapping[int, IntArray]) -> DurablePart | Fault:
    """Draw the answers of a part and make them durable, unless they are durable already.

    Args:
        job: The release.
        part: The number of the part.
        pieces: What the slabs have for it, by their index in `job.slabs`; nothing if it was durable
            when the run began.

    Returns:
        What is durable now, or why nothing is.
    """
    folder, size = job.staging.place, int(job.parted.sizes[part])

    def find() -> DurablePart | None:
        job.staging.check_mark()
        found = find_answers_part(folder, part, size)
        return None if found is None else DurablePart(found.bytes, found.digest)

    found = report_faults(find, job.staging.output)
    if found is not None:
        return found
    noise_std = job.plan.noise_std

    def draw() -> IntArray:
        # A run that is resumed exchanges only the slabs that are still needed.
        of_slabs = {job.slabs[index]: piece for index, piece in pieces.items()}
        exact = job.parted.answer_part(part, of_slabs)
        if job.parted.is_public(part):
            return exact
        return draw_part(exact, noise_std, job.run)

    noisy = report_faults(draw, job.staging.output)
    if isinstance(noisy, Fault):
        return noisy
    # One draw for all tries: a store may have taken the first although it reported a failure.
    written = report_faults(lambda: write_answers_part(folder, part, noisy), job.staging.output)
    if isinstance(written, Fault):
        return written
    clamped = may_be_clamped(noisy, noise_std) if written.is_mine else False
    return DurablePart(written.bytes, written.digest, clamped)
