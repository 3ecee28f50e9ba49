"""Footers: the files of a snapshot, checked by the workers of a cluster.

A client that is far from a store, or that has few processors, would read the footers of many files
slowly. The workers read them where they read the rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from fitplug.errors import DataError
from fitplug_dask.files import CheckAll, CheckedFile, CheckOne, check_on_threads
from fitplug_dask.kernel import Fault
from fitplug_dask.scheduling.cluster import RETRIES, allow_large_job, attempt
from fitplug_dask.scheduling.counts import raise_fault
from fitplug_dask.sources import FoundFile

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
    tasks = raise_fault(attempt(partial(_submit, client, check, found)))
    files: list[CheckedFile] = []
    try:
        for task in tasks:
            files += raise_fault(attempt(task.result))
    finally:
        with contextlib.suppress(Exception):
            client.cancel(tasks)
    return files


def _submit(client: Any, check: CheckOne, found: Sequence[FoundFile]) -> list[Any]:
    """Submit the tasks, each for some neighbouring files."""
    name = f"fitplug-footers-{uuid4().hex}"
    with allow_large_job():
        # The domain that files are checked against may be large, so it travels once.
        held = client.submit(_hold_check, check, key=f"{name}-check-0", retries=RETRIES)
    starts = range(0, len(found), _FILES_PER_TASK)
    return [
        client.submit(
            _check_some,
            held,
            list(found[start : start + _FILES_PER_TASK]),
            key=f"{name}-{i}",
            retries=RETRIES,
        )
        for i, start in enumerate(starts)
    ]


def _hold_check(check: CheckOne) -> CheckOne:
    return check


def _check_some(check: CheckOne, found: Sequence[FoundFile]) -> Sequence[CheckedFile] | Fault:
    """Check some files in a task, which never raises."""
    try:
        return check_on_threads(check, found)
    except DataError as error:
        return Fault(str(error))
