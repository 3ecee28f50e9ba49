"""Runner: running the tasks of a count or a release on threads of this process or on a cluster.

    runner = open_runner(client)
    results = runner.map("check-footers", check, inputs, shared=columns)
    total = runner.map_sum("count-partition", count, inputs, add, 8, shared=job)

A task gets a shared argument and its own input. It returns a result or a Fault; the first Fault
ends the run and is raised. Threads and clusters give the same results because each result counts
once: if a cluster runs a task again, the new result replaces the lost one.

A task never raises but returns a Fault: an exception of a reader may quote values, and a scheduler
would log it together with the arguments of the task.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from dask import config

from fitplug.errors import DataError, FitplugError
from fitplug_dask._compat import count_processors, read_machine_memory

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """Why a task failed.

    Attributes:
        message: A sentence that reveals nothing about rows.
        of_data: Whether the files are at fault rather than the machines.
    """

    message: str
    of_data: bool = True


class CheckError(FitplugError):
    """A self-check of counting failed. Its message reveals nothing about rows.

    A task returns it as a Fault of the machines.
    """


OUT_OF_MEMORY = Fault(
    "counting ran out of memory. Use fewer workers, or fewer or coarser attributes.", of_data=False
)


def raise_fault(result: T | Fault) -> T:
    """Return the result unless it is a Fault.

    Raises:
        DataError: A file is at fault.
        FitplugError: The machines are at fault.
    """
    if isinstance(result, Fault):
        raise DataError(result.message) if result.of_data else FitplugError(result.message)
    return result


Act: TypeAlias = Callable[[Any, Any], Any]
"""`act(shared, input)` returns a result or a Fault."""


class Runner(ABC):
    """Runs tasks.

    Attributes:
        client: The client of the cluster; None for threads of this process.
    """

    client: Any = None

    @property
    @abstractmethod
    def threads(self) -> int:
        """The total number of threads."""

    @property
    @abstractmethod
    def process_threads(self) -> int:
        """The largest number of threads in one process."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """The bytes that a process may use; the least over all processes."""

    @abstractmethod
    def run(
        self, action: str, act: Act, inputs: Sequence[Any], shared: Any
    ) -> Generator[tuple[int, Any], None, None]:
        """Run a task for each input, and yield its number and result as it ends.

        When this generator ends or is closed, no task runs on threads any more, and tasks on a
        cluster are cancelled. The arguments and the errors are those of `map`.
        """

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
        """Run a task for each input.

        When this returns or raises, no task runs on threads any more, and tasks on a cluster are
        cancelled.

        Args:
            action: What the tasks do, as lower-case words joined by hyphens; Dask's dashboard shows
                it.
            act: `act(shared, input)` returns a result or a Fault.
            inputs: The inputs.
            shared: The shared argument of all tasks; a cluster sends it to each worker once.
            weights: How much each task adds to the progress; 1 if None.
            report: Called in this thread with the weight of each finished task.

        Returns:
            The result of each input.

        Raises:
            DataError: A task returned a Fault of the data.
            FitplugError: A task returned a Fault of the machines, or the cluster fails.
        """
        results: list[Any] = [None] * len(inputs)
        with contextlib.closing(self.run(action, act, inputs, shared)) as ended:
            for i, result in ended:
                results[i] = result
                if report is not None:
                    report(1 if weights is None else weights[i])
        return results

    @abstractmethod
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
        """Run a task for each of at least one inputs, and add up the results as they arrive.

        Args:
            action: What the tasks do, as for `map`.
            act: `act(shared, input)` returns a result or a Fault.
            inputs: The inputs.
            add: `add(*results)` returns the sum of results in any order, or a Fault. It must not
                change them.
            width: The most results that are added at once.
            shared: The shared argument of all tasks.
            weights: How much each task adds to the progress; 1 if None.
            report: Called in this thread with the weight of each finished task.

        Returns:
            The sum.
        """

    @abstractmethod
    def run_on_each(self, action: str, act: Callable[[], Any], seconds: float) -> None:
        """Run a task once in each process that takes part now.

        Args:
            action: What the task does.
            act: The function to call, which may return a Fault.
            seconds: How long to wait.

        Raises:
            FitplugError: A task returned a Fault, or did not end in time.
        """


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

    def run(
        self, action: str, act: Act, inputs: Sequence[Any], shared: Any
    ) -> Generator[tuple[int, Any], None, None]:
        with self._open_pool() as pool:
            numbers = {pool.submit(act, shared, one): i for i, one in enumerate(inputs)}
            try:
                for future in as_completed(list(numbers)):
                    yield numbers.pop(future), raise_fault(future.result())
            finally:
                for future in numbers:
                    future.cancel()

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
        is_sum = len(terms) == 1 < len(inputs)
        return terms[0] if is_sum else raise_fault(add(*terms))

    def run_on_each(self, action: str, act: Callable[[], Any], seconds: float) -> None:
        raise_fault(act())

    @contextlib.contextmanager
    def _open_pool(self) -> Iterator[Executor]:
        """Open the pool configured in Dask, or new threads whose tasks are awaited at the end."""
        configured = config.get("pool", None)
        if isinstance(configured, Executor):
            yield configured
            return
        with ThreadPoolExecutor(self.threads, thread_name_prefix="fitplug") as pool:
            yield pool
