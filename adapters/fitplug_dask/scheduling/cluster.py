"""Cluster: tasks that run on the workers of a dask.distributed client."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from dask import config

from fitplug_dask.kernel import Fault, Job, PartialCounts

RETRIES = 3
"""How often a cluster runs a task again that raises; that of a lost worker runs again anyway."""


def hold_job(job: Job) -> Job:
    """Return the job.

    This is the task from whose result all other tasks take the job. The scheduler then holds one
    copy, which each worker fetches once, and a worker that comes later fetches it, too; if all
    workers that have it are lost, the task runs again. As an argument of every task, the codes of a
    large tree would be sent with each of them.
    """
    return job


def allow_large_job() -> Any:
    """Return a context in which Dask does not warn of the size of a job, which is sent once."""
    return config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})


def await_result(
    client: Any, top: Any, checks: Mapping[Any, int], report_rows: Callable[[int], None]
) -> PartialCounts | Fault:
    """Wait for the result of a future.

    Args:
        client: The client that submitted the futures.
        top: The future of the result.
        checks: The futures of `get_fault` for each task that reads, with its rows.
        report_rows: Called with the rows of a task when it has ended.

    Returns:
        The result of the future `top`, or the first fault. All other futures are cancelled after
        a fault.
    """
    from distributed import as_completed

    pending = [top, *checks]
    ended = as_completed(list(checks))
    try:
        for _ in checks:
            check = attempt(lambda: next(ended))
            fault: Fault | None = check if isinstance(check, Fault) else attempt(check.result)
            if fault:
                return fault
            report_rows(checks[check])
        counted: PartialCounts | Fault = attempt(top.result)
        pending.clear()
        return counted
    finally:
        if pending:
            with contextlib.suppress(Exception):
                client.cancel(pending)


def get_fault(result: object) -> Fault | None:
    """Return why a task failed, or None.

    This is a task of its own. Its result is small, so that watching a task moves no counts.
    """
    return result if isinstance(result, Fault) else None


def attempt(act: Callable[[], Any]) -> Any:
    """Return what `act` returns, or a Fault if the cluster itself fails."""
    try:
        return act()
    except Exception as error:
        return Fault(
            f"the cluster could not finish counting ({type(error).__name__}); check that its "
            'workers run, have memory to spare and the same version of "fitplug[dask]"',
            of_data=False,
        )
