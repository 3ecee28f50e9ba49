"""Publishing: from noisy answers that are made to a complete release in its place.

All of it is computed from what is durable, so it may be done again, and by several clients at once.
"""

from __future__ import annotations

from typing import Any

from fitplug.errors import InputError
from fitplug.release import MoreFiles, Release, TablePart, complete_folder, read_manifest
from fitplug_dask.exchange import Exchange, run_exchange
from fitplug_dask.progress import Report
from fitplug_dask.releases.estimating import split_answers, write_estimates
from fitplug_dask.releases.jobs import PIECES_BYTES, RELEASE_PACKAGES, ReleaseJob, TablesJob


def publish_answers(
    job: ReleaseJob,
    confidence: float,
    client: Any,
    report: Report,
    digest: str | None,
    files: MoreFiles[Release] | None,
) -> None:
    """Compute and write all tables, complete the folder, and put it in its place.

    Args:
        job: The release, whose answers and their manifest are in its staging area.
        confidence: The confidence of the intervals of groups whose target has none.
        client: A client of dask.distributed, or None for threads of this process.
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
        packages=RELEASE_PACKAGES,
    )
    parts: list[TablePart] = run_exchange(
        exchange, write_estimates, range(job.parts), client=client, report=report
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
