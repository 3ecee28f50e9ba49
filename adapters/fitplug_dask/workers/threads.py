"""Threads: tasks that run on threads of this process; and the choice between them and a cluster."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from typing import Any

from dask import config

from fitplug_dask._compat import count_processors, read_machine_memory
from fitplug_dask.workers.code import COUNTING_PACKAGES
from fitplug_dask.workers.faults import Fault, raise_fault
from fitplug_dask.workers.runner import Act, Runner


def open_runner(client: Any, packages: tuple[str, ...] = COUNTING_PACKAGES) -> Runner:
    """Return a runner of tasks. Nothing is asked of a cluster before the first use.

    Args:
        client: A client of dask.distributed, None for threads of this process, or a runner, which
            is returned.
        packages: The packages whose code takes part, so that workers must have the same.
    """
    if isinstance(client, Runner):
        return client
    if client is None:
        return ThreadRunner()
    from fitplug_dask.workers.cluster import ClusterRunner  # it needs distributed

    return ClusterRunner(client, packages)


class ThreadRunner(Runner):
    """Runs tasks on threads of this process: as many as Dask is configured to use."""

    @property
    def threads(self) -> int:
        threads: int = config.get("num_workers", None) or count_processors()
        return threads

    @property
    def process_threads(self) -> int:
        return self.threads

    @property
    def memory(self) -> int:
        return read_machine_memory()

    def map(
        self,
        action: str,
        act: Act,
        inputs: Sequence[Any],
        *,
        shared: Any = None,
        weights: Sequence[int] | None = None,
        report: Callable[[int], None] | None = None,
    ) -> list[Any]:
        results: list[Any] = [None] * len(inputs)
        with self._open_pool() as pool:
            numbers = {pool.submit(act, shared, one): i for i, one in enumerate(inputs)}
            try:
                for future in as_completed(list(numbers)):
                    i = numbers.pop(future)
                    results[i] = raise_fault(future.result())
                    if report is not None:
                        report(1 if weights is None else weights[i])
            finally:
                for future in numbers:
                    future.cancel()
        return results

    def map_sum(
        self,
        action: str,
        act: Act,
        inputs: Sequence[Any],
        add: Callable[..., Any],
        width: int,
        *,
        shared: Any = None,
        weights: Sequence[int] | None = None,
        report: Callable[[int], None] | None = None,
    ) -> Any:
        lock = threading.Lock()
        terms: list[Any] = []

        def act_and_add(shared: Any, one: Any) -> Fault | None:
            result = act(shared, one)
            while not isinstance(result, Fault):
                with lock:
                    terms.append(result)
                    if len(terms) < width:
                        return None
                    taken = terms[:]
                    terms.clear()
                result = add(*taken)
            return result

        self.map(action, act_and_add, inputs, shared=shared, weights=weights, report=report)
        return raise_fault(add(*terms))

    def run_on_each(self, action: str, act: Callable[[], Any], seconds: float) -> None:
        raise_fault(act())

    @contextlib.contextmanager
    def _open_pool(self) -> Iterator[Executor]:
        """Open the pool that Dask is configured to use, or threads whose end waits for tasks."""
        configured = config.get("pool", None)
        if configured is not None:
            yield configured
            return
        with ThreadPoolExecutor(self.threads, thread_name_prefix="fitplug") as pool:
            yield pool
