"""Single tasks: tasks that are submitted one by one to the workers of a cluster."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import toolz
from dask import config

from fitplug_dask.workers.code import COUNTING_PACKAGES
from fitplug_dask.workers.execution import RETRIES, attempt, cancel, gather_ended
from fitplug_dask.workers.faults import Fault
from fitplug_dask.workers.graphs import name_tasks
from fitplug_dask.workers.patience import ask, read_threads
from fitplug_dask.workers.tasks import ENTRY, Run, Term, read_outcome, seal_held, seal_task


class SingleTasks:
    """Tasks of one run, whose results decide which tasks come next."""

    def __init__(
        self, client: Any, name: str, packages: tuple[str, ...] = COUNTING_PACKAGES
    ) -> None:
        """Prepare the tasks of a run.

        Args:
            client: A client of dask.distributed.
            name: What distinguishes this run from all others.
            packages: The packages whose code takes part.

        Raises:
            FitplugError: This process cannot encrypt results, or the cluster does not answer.
        """
        read_threads(client)  # or a client that is closed would raise an error of Dask
        self._client, self._name = client, name
        self._numbers = itertools.count()
        self._run = Run.begin(packages)

    def hold(self, value: object, key: str | None = None) -> Any:
        """Have the cluster hold what many tasks take, and return its future, or a Fault.

        Args:
            value: The value.
            key: The key of the task that holds it; a new one if it is None.
        """
        key = key or f"{name_tasks('send-job', self._name)}-{next(self._numbers)}"

        def submit() -> Any:
            # What is held may be large, and is sent once.
            with config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                sealed = seal_held(self._run.key, value)
                return self._client.submit(toolz.identity, sealed, key=key, retries=RETRIES)

        return attempt(submit, self._client)

    def submit(
        self,
        action: str,
        function: Callable[..., Any],
        *arguments: Any,
        worker: str | None = None,
    ) -> Any:
        """Submit a task, and return its future, or the Fault among its arguments or of the cluster.

        Args:
            action: What it does, in words of letters joined by hyphens, as the dashboard shows it.
            function: What it calls.
            arguments: The arguments; a future stands for the result of its task.
            worker: The address of the only worker that may run it; any worker may if it is None.
        """
        from distributed import Future

        terms: list[Any] = []
        template: list[Any] = []
        for argument in arguments:
            if isinstance(argument, Fault):
                return argument
            if isinstance(argument, Future):
                template.append(Term(len(terms)))
                terms.append(argument)
            else:
                template.append(argument)
        task = seal_task(self._run, function, template)
        key = f"{name_tasks(action, self._name)}-{next(self._numbers)}"
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": False}
        submit = partial(self._client.submit, ENTRY, task, *terms, **where)
        return attempt(lambda: submit(key=key, retries=RETRIES), self._client)

    def fetch(self, future: Any, seconds: float) -> Any:
        """Fetch the result of a task that has ended.

        A task that only one worker may run is never run again if that worker is lost with the
        result, so this does not wait without end.

        Args:
            future: What `submit` returned.
            seconds: How long to wait.

        Returns:
            The result, or a Fault.

        Raises:
            FitplugError: The result does not come.
        """
        (outcome,) = ask(self._client, partial(self._client.gather, [future]), seconds)
        return attempt(partial(read_outcome, self._run.key, outcome))

    def await_results(self, futures: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of each task when it has ended; a Fault ends it.

        The tasks that have not ended when the caller stops are cancelled.

        Args:
            futures: What `submit` returned.
        """
        for number, future in enumerate(futures):
            if isinstance(future, Fault):
                yield number, future
                return
        numbers = {future: number for number, future in enumerate(futures)}
        ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for future in numbers:
            future.add_done_callback(ends.put)
        pending = dict(numbers)
        try:
            while pending:
                waiting = partial(gather_ended, self._client, ends, len(pending))
                batch = attempt(waiting, self._client)
                if isinstance(batch, Fault):
                    yield next(iter(pending.values())), batch
                    return
                for future, outcome in batch.items():
                    del pending[future]
                    yield numbers[future], attempt(partial(read_outcome, self._run.key, outcome))
        finally:
            if pending:
                cancel(self._client, list(pending))
