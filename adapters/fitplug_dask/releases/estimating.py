"""Estimating: the estimates of each output, written as a part of a table.

Everything here is computed from noisy answers and the plan, so it may be done again and again, and
writes the same bytes each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fitplug.numeric import AnyArray
from fitplug.release import PartedAnswers, TablePart, describe_place, write_table_part
from fitplug_dask.kernel import Fault
from fitplug_dask.releases.failures import report_faults
from fitplug_dask.releases.jobs import TablesJob

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
