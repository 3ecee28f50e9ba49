"""Cluster: running tasks on the workers of a dask.distributed client, without importing Dask's."""

from __future__ import annotations

import contextlib
import itertools
import queue
import time
import warnings
from collections.abc import Callable, Collection, Generator, Sequence
from functools import cached_property, lru_cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import toolz
from dask import config

from fitplug.errors import FitplugError
from fitplug_dask._compat import WorkerState, read_machine_memory
from fitplug_dask.workers.handshake import COUNTING_PACKAGES, inspect_workers
from fitplug_dask.workers.limits import ask, gather_ended, list_workers
from fitplug_dask.workers.runner import Act, Fault, Runner, ThreadRunner, raise_fault
from fitplug_dask.workers.tasks import ENTRY, Run, Term, read_outcome, seal_shared, seal_task

if TYPE_CHECKING:
    from distributed import Future

_RETRIES = 3
"""How often a cluster repeats a task that raises. Tasks of lost workers are repeated anyway."""

_MOST_WATCHED = 200
_CANCEL_SECONDS = 5.0
_RESULT_SECONDS = 2.0
_POLL_SECONDS = 0.05

_NO_WARNING = {"distributed.admin.large-graph-warning-threshold": "1 TB"}

_FIRST = 1
"""The priority of tasks that free memory, above that of tasks that read."""


class ClusterRunner(Runner):
    """Runs tasks on a cluster whose workers all have the code of this process.

    The workers are inspected once, before the first task. As long as this runner exists, the
    cluster keeps at least one worker. No call waits forever: see `limits`. Dask drops results that
    no task needs any more.
    """

    def __init__(self, client: Any, packages: tuple[str, ...] = COUNTING_PACKAGES) -> None:
        """Prepare a runner; the cluster is contacted at the first use.

        Args:
            client: A client of dask.distributed.
            packages: The packages whose code workers must share.
        """
        self.client = client
        self._packages = packages
        self._name = uuid4().hex  # so that no runner uses the results of another
        self._numbers = itertools.count()
        self._demand: Any = None

    @cached_property
    def _workers(self) -> dict[str, WorkerState]:
        """The workers at the time of their inspection, which happens on first access."""
        # For this task, a cluster that scales with demand starts its first worker, and keeps the
        # worker that has the result. Workers that only answer requests would count as idle.
        key = self._name_task("demand-worker")
        self._demand = self._attempt(partial(self.client.submit, toolz.identity, None, key=key))
        workers = inspect_workers(self.client, self._packages)
        warn_without_tls(workers)
        return workers

    @cached_property
    def _run(self) -> Run:
        assert self._workers
        return Run.begin(self._packages)

    @property
    def threads(self) -> int:
        return max(1, sum(worker.threads for worker in self._workers.values()))

    @property
    def process_threads(self) -> int:
        return max((worker.threads for worker in self._workers.values()), default=1)

    @property
    def memory(self) -> int:
        limits = [worker.memory_limit for worker in self._workers.values()]
        return min((limit for limit in limits if limit is not None), default=read_machine_memory())

    def share(self, value: object, key: str | None = None) -> Future:
        """Send an argument of many tasks to the cluster, and return its future.

        The scheduler has one copy, which each worker, even one that joins later, fetches once. As
        an ordinary argument, a large value would be sent with every task.

        Args:
            value: The value.
            key: The key of the task that returns it; None for a new one.
        """

        def submit() -> Future:
            sealed = seal_shared(self._run.key, value)
            with config.set(_NO_WARNING):
                return self.client.submit(
                    toolz.identity, sealed, key=key or self._name_task("send-job"), retries=_RETRIES
                )

        return self._attempt(submit)

    def submit(
        self,
        action: str,
        function: Callable[..., Any],
        *arguments: Any,
        worker: str | None = None,
        priority: int = 0,
    ) -> Future:
        """Submit a task, and return its future.

        Args:
            action: What the task does, as lower-case words joined by hyphens.
            function: The function to call.
            arguments: The arguments; a future stands for the result of its task.
            worker: The address of the only worker that may run it; None for any worker.
            priority: Tasks of higher priority run first.
        """
        from distributed import Future

        terms: list[Future] = []
        template: list[Any] = []
        for argument in arguments:
            if isinstance(argument, Future):
                template.append(Term(len(terms)))
                terms.append(argument)
            else:
                template.append(argument)
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": False}

        def submit() -> Future:
            task = seal_task(self._run, function, template)
            key = self._name_task(action)
            return self.client.submit(
                ENTRY, task, *terms, key=key, retries=_RETRIES, priority=priority, **where
            )

        return self._attempt(submit)

    def results(self, futures: Sequence[Future]) -> Generator[tuple[int, Any], None, None]:
        """Yield the number and the result of each task as it ends.

        When this generator ends or is closed, the remaining tasks are cancelled.

        Args:
            futures: The futures that `submit` returned.

        Raises:
            DataError: A task returned a Fault of the data.
            FitplugError: A task returned a Fault of the machines, or the cluster fails.
        """
        for number, outcome in self._outcomes(futures):
            read = partial(read_outcome, self._run.key, outcome)
            yield number, raise_fault(self._attempt(read))

    def run(
        self, action: str, act: Act, inputs: Sequence[Any], shared: Any
    ) -> Generator[tuple[int, Any], None, None]:
        shared_term = self.share(shared)  # the variable keeps it on the cluster until tasks end
        yield from self.results(self._submit_each(action, act, shared_term, inputs))

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
        weights = [1] * len(inputs) if weights is None else weights
        shared_term = self.share(shared)
        tasks = self._submit_each(action, act, shared_term, inputs)
        sums = self._submit_sums(add, tasks, width)
        if len(tasks) > _MOST_WATCHED:  # watching a task takes another task
            tasks = sums
            weights = [sum(weights[i : i + width]) for i in range(0, len(weights), width)]
        top = self.sum("add-counts", add, sums, width)
        watched = self._watch_each(tasks)
        del tasks, sums  # Dask drops results that nobody needs
        total: Any = None
        with contextlib.closing(self._outcomes([*watched, top])) as ended:
            for i, outcome in ended:
                if i == len(watched):
                    total = outcome
                    continue
                if outcome is not None:
                    raise_fault(Fault(*outcome))
                if report is not None:
                    report(weights[i])
        return raise_fault(self._attempt(partial(read_outcome, self._run.key, total)))

    def sum(
        self, action: str, add: Callable[..., Any], tasks: Sequence[Future], width: int
    ) -> Future:
        """Submit a tree of tasks that add up the results of others, and return the last one.

        Args:
            action: What these tasks do.
            add: `add(*results)` returns the sum of neighbouring results, in their order.
            tasks: At least one task.
            width: The most results that are added at once.
        """
        level = list(tasks)
        while len(level) > 1:
            level = self._submit_sums(add, level, width, action)
        return level[0]

    def run_on_each(self, action: str, act: Callable[[], Any], seconds: float) -> None:
        pending = {
            address: self.submit(action, act, worker=address)
            for address in list_workers(self.client)
        }
        end = time.monotonic() + seconds
        while pending:
            if time.monotonic() > end:
                raise FitplugError(
                    f"worker {next(iter(pending))} did not finish a task within {seconds:g} s. "
                    "Check why this worker is slow, or stop it."
                )
            for address in [a for a, future in pending.items() if future.done()]:
                gather = partial(self.client.gather, [pending[address]])
                try:
                    # If the worker is lost, its result is lost as well and never made again.
                    (outcome,) = ask(self.client, gather, _RESULT_SECONDS)
                except FitplugError:  # try again, unless the worker is lost
                    continue
                raise_fault(self._attempt(partial(read_outcome, self._run.key, outcome)))
                del pending[address]
            # Workers that have left meanwhile need not answer.
            there = list_workers(self.client)
            pending = {a: future for a, future in pending.items() if a in there}
            time.sleep(_POLL_SECONDS)

    def list_addresses(self) -> set[str]:
        """List the addresses of the current workers."""
        return set(list_workers(self.client))

    def run_at_once(self, act: Callable[..., Any], *arguments: Any, seconds: float) -> None:
        """Call a function in all workers, outside of tasks; ignore workers that do not answer.

        Args:
            act: The function, which also receives the worker as `dask_worker`, and returns None.
            arguments: The arguments.
            seconds: How long to wait.
        """
        run = partial(self.client.run, act, *arguments, on_error="ignore")
        with contextlib.suppress(Exception):
            ask(self.client, run, seconds)

    def _name_task(self, action: str) -> tuple[str, int]:
        """Return the key of a new task.

        Dask's dashboard shows the tasks of all runs under `fitplug-` and the action, such as
        `fitplug-count-partition`. The scheduler treats tasks whose keys begin alike as a group, and
        assigns reading tasks to workers one by one, as workers become free.
        """
        return f"fitplug-{action}-{self._name}", next(self._numbers)

    def _submit_sums(
        self,
        add: Callable[..., Any],
        tasks: Sequence[Future],
        width: int,
        action: str = "add-counts",
    ) -> list[Future]:
        """Submit one level of a tree of sums."""
        groups = [tasks[i : i + width] for i in range(0, len(tasks), width)]
        return [self.submit(action, add, *group, priority=_FIRST) for group in groups]

    def _submit_each(
        self, action: str, act: Act, shared: Future, inputs: Sequence[Any]
    ) -> list[Future]:
        """Submit a task for each input, all at once to halve the scheduler's work."""

        def submit() -> list[Future]:
            tasks = [seal_task(self._run, act, [Term(0), one]) for one in inputs]
            return self._map(action, ENTRY, tasks, [shared] * len(tasks))

        return self._attempt(submit) if inputs else []

    def _watch_each(self, tasks: Sequence[Future]) -> list[Future]:
        """Submit a watching task for each task, which returns the task's fault, or None.

        The results are small, so no counts are transferred. The function is one of Python itself,
        so every worker has it.
        """
        watch = partial(self._map, "watch-task", itemgetter(0), tasks, priority=_FIRST)
        return self._attempt(watch)

    def _map(
        self,
        action: str,
        function: Callable[..., Any],
        *arguments: Sequence[Any],
        priority: int = 0,
    ) -> list[Future]:
        """Submit a task for each position in the sequences of arguments."""
        keys = [self._name_task(action) for _ in arguments[0]]
        with config.set(_NO_WARNING):
            return self.client.map(
                function, *arguments, key=keys, retries=_RETRIES, priority=priority
            )

    def _outcomes(self, futures: Sequence[Future]) -> Generator[tuple[int, Any], None, None]:
        """Yield the number and the sealed outcome of each task; cancel the remaining tasks."""
        pending = {future: number for number, future in enumerate(futures)}
        ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for future in futures:
            future.add_done_callback(ends.put)
        try:
            while pending:
                batch = self._attempt(partial(gather_ended, self.client, ends, len(pending)))
                for future, outcome in batch.items():
                    yield pending.pop(future), outcome
        finally:
            if pending:
                self._cancel(list(pending))

    def _cancel(self, futures: list[Future]) -> None:
        """Cancel futures if the scheduler answers."""
        with contextlib.suppress(Exception):
            ask(self.client, partial(self.client.cancel, futures), _CANCEL_SECONDS)

    def _attempt(self, act: Callable[[], Any]) -> Any:
        """Return the result of `act`; if the cluster fails, raise FitplugError with the reason."""
        try:
            return act()
        except FitplugError:
            raise
        except Exception as error:
            failed = type(error).__name__
            # Dask's frames refer to the error, and its traceback would keep this runner and its
            # futures alive until garbage collection.
            error.__traceback__ = None
        # When the scheduler is lost, Dask cancels all futures, which does not mean that workers
        # failed. A worker that joined later without fitplug fails when it reads a task.
        inspect_workers(self.client, self._packages)
        raise FitplugError(
            f"the cluster could not finish counting ({failed}). Check the memory of its workers "
            "and their versions of fitplug, and run again."
        )


def open_runner(client: Any, packages: tuple[str, ...] = COUNTING_PACKAGES) -> Runner:
    """Return a runner of tasks. A cluster is contacted only at the first use.

    Args:
        client: A client of dask.distributed, None for threads of this process, or a runner, which
            is returned.
        packages: The packages whose code workers must share.
    """
    if isinstance(client, Runner):
        return client
    return ThreadRunner() if client is None else ClusterRunner(client, packages)


@lru_cache(maxsize=1)
def _warn_once() -> None:
    warnings.warn(
        "the workers of this cluster are on several hosts without TLS, so anyone who reaches "
        "their ports can read counts and run code there. Set up TLS as Dask's documentation "
        "describes, or keep the network private.",
        UserWarning,
        stacklevel=2,
    )


def warn_without_tls(addresses: Collection[str]) -> None:
    """Warn, once per process, if workers on several hosts communicate without TLS."""
    places = [urlsplit(address) for address in addresses]
    hosts = {place.hostname for place in places if place.scheme == "tcp"}
    if len(hosts) > 1:
        _warn_once()
