"""Footers: the files of a snapshot, checked by the workers of a cluster.

A client that is far from a store, or that has few processors, would read the footers of many files
slowly. The workers read them where they read the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

from fitplug.errors import DataError
from fitplug_dask.files import CheckAll, CheckedFile, CheckOne, check_on_threads
from fitplug_dask.scheduling.counts import raise_fault
from fitplug_dask.sources import FoundFile
from fitplug_dask.workers import Fault, Key, draw_run, hold, name_tasks, run_on_cluster

_FILES_PER_TASK = 2**7
_LEAST_FILES = 2**6
"""Fewer files are checked by the client itself, at once."""


def check_where(client: Any) -> CheckAll:
    """Return how the files of a snapshot are checked: by the workers of `client` if it has any."""
    return check_on_threads if client is None else partial(_check_on_workers, client)


def _check_on_workers(
    client: Any, check: CheckOne, found: Sequence[FoundFile]
) -> Sequence[CheckedFile]:
    """Check files on workers.

    Raises:
        DataError: As by `check`, for the first file that fails.
        FitplugError: The workers fail.
    """
    if len(found) < _LEAST_FILES:
        return check_on_threads(check, found)
    run = draw_run()
    held: Key = (name_tasks("send-checks", run), 0)
    # The domain that files are checked against may be large, so it travels once.
    graph: dict[Key, tuple[Any, ...]] = {held: (hold, check)}
    checked: list[Key] = []
    for number, start in enumerate(range(0, len(found), _FILES_PER_TASK)):
        checked.append((name_tasks("check-footers", run), number))
        graph[checked[-1]] = (_check_some, held, found[start : start + _FILES_PER_TASK])
    top: Key = (name_tasks("join-footers", run), 0)
    graph[top] = (_join, *checked)
    files: Sequence[CheckedFile] = raise_fault(
        run_on_cluster(client, graph, top, {}, lambda rows: None)
    )
    return files


def _check_some(check: CheckOne, found: Sequence[FoundFile]) -> Sequence[CheckedFile] | Fault:
    """Check some files in a task, which never raises."""
    try:
        return check_on_threads(check, found)
    except DataError as error:
        return Fault(str(error))


def _join(*checked: Sequence[CheckedFile]) -> list[CheckedFile]:
    """Return the files of all tasks, in their order."""
    return list(itertools.chain.from_iterable(checked))
