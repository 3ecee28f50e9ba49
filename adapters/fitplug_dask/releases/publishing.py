"""Publishing: from noisy answers that are drawn to a complete release in its place.

The estimates of each output are written as a part of a table. All of it is computed from what is
durable, so it may be done again, and by several clients at once, and writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fitplug.errors import InputError
from fitplug.numeric import AnyArray
from fitplug.release import (
    MoreFiles,
    PartedAnswers,
    Release,
    TablePart,
    complete_folder,
    describe_place,
    read_manifest,
    write_table_part,
)
from fitplug_dask.exchange import Exchange, run_exchange
from fitplug_dask.kernel import Fault
from fitplug_dask.progress import Report
from fitplug_dask.releases.failures import report_faults
from fitplug_dask.releases.jobs import PIECES_BYTES, ReleaseJob, TablesJob
from fitplug_dask.workers import Runner

_CUT_OTHERWISE = Fault(
    "the answers of this release were drawn, and cut into parts, by another version of fitplug; "
    "finish it with that version, which charges nothing more",
    of_data=False,
)


def split_answers(job: TablesJob, part: int) -> Mapping[int, Any] | Fault:
    """Split the noisy answers of a part by the outputs that need them."""
    answers = job.release.answers
    assert isinstance(answers, PartedAnswers)
    # Answers that are made may be those of an earlier version, which may have cut them otherwise.
    place = describe_place(job.release_job.parted.place(part))
    if part >= len(answers.parts) or answers.parts[part].place != place:
        return _CUT_OTHERWISE
    noisy = report_faults(lambda: answers.read_part(part), job.release_job.staging.output)
    if isinstance(noisy, Fault):
        return noisy
    return job.release_job.parted.split_answers(part, noisy)


def write_estimates(
    job: TablesJob, output: int, pieces: Mapping[int, AnyArray]
) -> TablePart | Fault:
    """Estimate what an output has, and write it as a part of its table."""
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

    return report_faults(write, job.release_job.staging.output)


def publish_answers(
    job: ReleaseJob,
    confidence: float,
    runner: Runner,
    report: Report,
    digest: str | None,
    files: MoreFiles[Release] | None,
) -> None:
    """Compute and write all tables, complete the folder, and put it in its place.

    Args:
        job: The release, whose answers and their manifest are in its staging area.
        confidence: The confidence of the intervals of groups whose target has none.
        runner: What runs the tasks.
        report: Is called with what is done, and with all that is to be done.
        digest: The digest that the answers have in the ledger; None without a ledger.
        files: What the caller adds to the folder.

    Raises:
        InputError: The answers are missing or damaged, or are not those of the ledger.
        FitplugError: A worker cannot write.
        OSError: The folder cannot be written.
    """
    place = job.staging.place
    fields, found = read_manifest(place, job.plan)
    if digest is not None and found != digest:
        raise InputError(
            f"the answers beside {job.staging.output} are not those that the ledger has as drawn; "
            "put those back, or ask for another draw with a new key"
        )
    release = Release(**fields)
    tables = TablesJob(job, release, found, confidence)
    exchange = Exchange(
        split_answers,
        len(job.parted.outputs),
        tables,
        confidential=False,
        memory=PIECES_BYTES,
    )
    parts: list[TablePart] = run_exchange(
        exchange, write_estimates, range(job.parts), client=runner, report=report
    )
    complete_folder(
        place,
        release,
        found,
        parts,
        confidence=confidence,
        files=files,
    )
    job.staging.publish()
