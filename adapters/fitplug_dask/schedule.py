"""Schedule: shares counted on threads or on a cluster, and the results added up in a tree.

Each result has one key, new in every run: a task that runs again after a lost worker replaces its
result, and no run meets the results of another.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import numpy as np
from dask import config, threaded
from dask.callbacks import Callback
from dask.system import CPU_COUNT

from fitplug.errors import DataError, FitplugError
from fitplug_dask.kernel import Fault, Job, Partial, add, count_share
from fitplug_dask.progress import Report
from fitplug_dask.shares import Share, fan_in

T = TypeVar("T")
CountOne: TypeAlias = Callable[[Job, Share], "Partial | Fault"]

RETRIES = 3
"""How often a cluster runs a task again that raises; that of a lost worker runs again anyway."""


def workers(client: Any) -> tuple[int, int]:
    """Threads that count at once in all, and at most in one process."""
    if client is None:
        threads = config.get("num_workers", None) or CPU_COUNT
        return threads, threads
    counts = client.nthreads().values()
    return max(1, sum(counts)), max(counts, default=1)


def run(
    job: Job,
    shares: Sequence[Share],
    client: Any,
    report: Report,
    count_one: CountOne = count_share,
) -> Partial:
    """The joint tables over all shares.

    client: of dask.distributed, or None for threads here. count_one: counts one share. report:
    called in this thread, with the rows of the tasks finished and of all. Raises DataError for the
    first share found at fault, and FitplugError if the workers themselves fail.
    """
    total = sum(share.rows for share in shares)
    done = 0
    report(done, total)

    def finished(rows: int) -> None:
        nonlocal done
        done += rows
        report(done, total)

    if not shares:
        return Partial(tuple(np.zeros(job.cells(joint), np.int64) for joint in job.joints))
    name = f"fitplug-count-{uuid4().hex}"
    if client is None:
        result = _on_threads(job, shares, name, finished, count_one)
    else:
        result = _on_cluster(job, shares, name, finished, count_one, client)
    return raised(result)


def raised(result: Partial | Fault) -> Partial:
    """The result, if it is none of a fault. Raises DataError and FitplugError."""
    if isinstance(result, Fault):
        raise DataError(result.message) if result.of_data else FitplugError(result.message)
    return result


class _StopError(Exception):
    """Ends a run of the threaded scheduler early."""


def _on_threads(
    job: Job,
    shares: Sequence[Share],
    name: str,
    finished: Callable[[int], None],
    count_one: CountOne,
) -> Partial | Fault:
    graph: dict[Any, Any] = {}
    rows: dict[Any, int] = {}
    for i, share in enumerate(shares):
        graph[f"{name}-{i}"] = (count_one, job, share)
        rows[f"{name}-{i}"] = share.rows

    def join(parts: Sequence[str]) -> str:
        key = f"{name}-sum-{len(graph)}"
        graph[key] = (add, *parts)
        return key

    top = tree(list(graph), fan_in(job.total_cells), join)
    return on_threads(graph, top, rows, finished)


def on_threads(
    graph: Mapping[str, Any],
    top: str,
    rows: Mapping[str, int],
    finished: Callable[[int], None],
) -> Partial | Fault:
    """The result `top` of a graph of tasks, or the first fault. rows: of the tasks that read.

    When it returns or raises, no task runs any more, unless on a pool that Dask is configured to
    use: none would read or write behind the caller.
    """
    faults: list[Fault] = []

    def task_done(key: Any, result: Any, *_: Any) -> None:
        if isinstance(result, Fault):
            faults.append(result)
            raise _StopError
        if key in rows:
            finished(rows[key])

    with contextlib.suppress(_StopError), _pool() as pool:
        # Given here, not entered as a context: that one is shared by all threads of the process.
        callbacks = [(None, None, None, task_done, None), *Callback.active]
        counted: Partial = threaded.get(graph, top, pool=pool, callbacks=callbacks)
        return counted
    return faults[0]


def _pool() -> contextlib.AbstractContextManager[Any]:
    """The pool that Dask is configured to use, or threads whose end waits for their tasks."""
    configured = config.get("pool", None)
    if configured is not None:
        return contextlib.nullcontext(configured)
    threads, _ = workers(None)
    return ThreadPoolExecutor(threads, thread_name_prefix="fitplug-count")


def _on_cluster(
    job: Job,
    shares: Sequence[Share],
    name: str,
    finished: Callable[[int], None],
    count_one: CountOne,
    client: Any,
) -> Partial | Fault:
    submitted = attempt(lambda: _submit(job, shares, name, count_one, client))
    if isinstance(submitted, Fault):
        return submitted
    top, checks = submitted
    return awaited(client, top, checks, finished)


def awaited(
    client: Any, top: Any, checks: Mapping[Any, int], finished: Callable[[int], None]
) -> Partial | Fault:
    """The result of the future `top`, or the first fault. checks: futures of `fault_in` of each
    task that reads, with its rows.
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
            finished(checks[check])
        counted: Partial | Fault = attempt(top.result)
        pending.clear()
        return counted
    finally:
        if pending:
            with contextlib.suppress(Exception):
                client.cancel(pending)


def _submit(
    job: Job, shares: Sequence[Share], name: str, count_one: CountOne, client: Any
) -> tuple[Any, dict[Any, int]]:
    """The future of the sum, and one for each share's fault (or None) with the share's rows."""
    leaves = [
        client.submit(count_one, job, share, key=f"{name}-{i}", retries=RETRIES)
        for i, share in enumerate(shares)
    ]
    sums = itertools.count()
    top = tree(
        leaves,
        fan_in(job.total_cells),
        lambda parts: client.submit(add, *parts, key=f"{name}-sum-{next(sums)}", retries=RETRIES),
    )
    # Small results of their own, so that watching moves no counts here; and once the leaves are
    # forgotten here, workers drop the counts that are already added up.
    checks = {
        client.submit(fault_in, leaf, key=f"{name}-check-{i}", retries=RETRIES): share.rows
        for i, (leaf, share) in enumerate(zip(leaves, shares, strict=True))
    }
    return top, checks


def fault_in(part: object) -> Fault | None:
    """Why a task failed, or None: a small result of its own."""
    return part if isinstance(part, Fault) else None


def attempt(act: Callable[[], Any]) -> Any:
    """What `act` returns, or a Fault when the cluster itself fails."""
    try:
        return act()
    except Exception as error:
        return Fault(
            f"the cluster could not finish counting ({type(error).__name__}); check that its "
            'workers run, have memory to spare and the same version of "fitplug[dask]"',
            of_data=False,
        )


def tree(leaves: Sequence[T], width: int, join: Callable[[Sequence[T]], T]) -> T:
    """What remains when `width` neighbours at a time are joined, again and again."""
    level = leaves
    while True:
        level = [join(level[i : i + width]) for i in range(0, len(level), width)]
        if len(level) == 1:
            return level[0]
