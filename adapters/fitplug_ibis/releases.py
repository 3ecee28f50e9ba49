"""Releases of rows in a database, which counts them only after all checks of the release."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from fitplug.counts import Source, choose_limit, describe_source_rows
from fitplug.display import Progress
from fitplug.plan import Plan
from fitplug.releases import Release
from fitplug_ibis.counting import count
from fitplug_opendp.count_checks import CountedRows
from fitplug_opendp.release_files import ReleaseFiles
from fitplug_opendp.release_request import ReleaseRequest
from fitplug_opendp.releases import release_counts


def release_from_database(
    plan: Plan,
    source: Source,
    folder: str | PathLike[str] | None = None,
    *,
    files: Mapping[str, Any] | None = None,
    progress: Progress = None,
    **charge: Any,
) -> Release:
    """Count rows in a database and release them; see `fitplug.release`, which calls this.

    If a run is killed, the next one counts again, and the database may choose other rows of each
    person. The first complete answers of a run are the release; nobody sees answers of other runs.

    Args:
        plan: The plan.
        source: A table of Ibis or a `DatabaseTable`, and how its rows are read.
        folder: The folder of the release; None for a release in memory.
        files: What the folder has in addition to tables, as fields of `ReleaseFiles`.
        progress: How to report the number of drawn answers.
        charge: How the release is charged, as fields of `ReleaseRequest`.
    """
    if source.person is not None:
        choose_limit(plan.unit)  # refuses units that counting by person cannot enforce
    rows = CountedRows(
        describe_source_rows(source), "declared" if source.person is None else "enforced"
    )
    request = ReleaseRequest(plan, rows, **charge)
    extras = ReleaseFiles(**(files or {}))
    return release_counts(request, lambda: count(source, plan), folder, extras, progress)
