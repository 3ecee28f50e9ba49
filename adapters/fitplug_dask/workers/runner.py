"""Runner: what runs the tasks of a count or a release, on threads of this process or on a cluster.

    runner = open_runner(client)
    results = runner.map("check-footers", check, inputs, shared=columns)
    total = runner.map_sum("count-partition", count, inputs, add, 8, shared=job)

A task takes what all tasks share and its own input. It returns a result or a Fault; the first Fault
ends the run and is raised. Threads and clusters give the same results, as each result counts once:
that of a task that ran again on a cluster replaces the lost one.

A task returns a Fault and never raises: an exception of a reader may quote values, and a scheduler
would log it together with the arguments of the task.
"""

from __future__ import annotations

import contextlib
import os
import sys
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

_POOL_VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"


@dataclass(frozen=True)
class Fault:
    """Why a task failed.

    Attributes:
        message: A sentence that reveals nothing that rows hold.
        of_data: Whether the files are at fault, and not the machines.
    """

    message: str
    of_data: bool = True


class CheckError(FitplugError):
    """A check fails that counting makes of itself. Its message contains nothing from the rows.

    A task returns it as a Fault of the machines.
    """


OUT_OF_MEMORY = Fault(
    "counting ran out of memory. Use fewer workers, or fewer or coarser attributes.", of_data=False
)


def raise_fault(result: T | Fault) -> T:
    """Return the result if it is no fault.

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
        """The number of threads that work at once in all."""

    @property
    @abstractmethod
    def process_threads(self) -> int:
        """The most threads that work at once in one process."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """The bytes that a process may use: the smallest one."""

    @abstractmethod
    def run(
        self, action: str, act: Act, inputs: Sequence[Any], shared: Any
    ) -> Generator[tuple[int, Any], None, None]:
        """Run a task for each input, and yield its number and its result when it has ended.

        When this ends or is closed, no task runs any more on threads, and those of a cluster are
        cancelled. The arguments and the errors are those of `map`.
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

        When this returns or raises, no task runs any more on threads, and those of a cluster are
        cancelled.

        Args:
            action: What tasks do, in words of letters joined by hyphens, as Dask's dashboard shows
                it.
            act: `act(shared, input)` returns a result, or a Fault.
            inputs: The inputs.
            shared: What all tasks take; a cluster sends it to each worker once.
            weights: What each task adds to the progress; 1 if None.
            report: Called in this thread with the weight of each task that has ended.

        Returns:
            The result of each input.

        Raises:
            DataError: A Fault of the data.
            FitplugError: A Fault of the machines; or the cluster fails.
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
        """Run a task for each input, at least one, and add up the results as they come.

        Args:
            action: As for `map`, and so are all arguments that are not listed here.
            act: What a task calls.
            inputs: The inputs.
            add: `add(*results)` returns the sum of some results in any order, or a Fault. It may
                not change them.
            width: The most results that are added at once.
            shared: What all tasks take.
            weights: What each task adds to the progress.
            report: Called with the weight of each task that has ended.

        Returns:
            The sum.
        """

    @abstractmethod
    def run_on_each(self, action: str, act: Callable[[], Any], seconds: float) -> None:
        """Run a task once in each process that takes part now.

        Args:
            action: What it does.
            act: What it calls; it may return a Fault.
            seconds: How long to wait.

        Raises:
            FitplugError: The first Fault, or a process does not end the task in time.
        """


@contextlib.contextmanager
def avoid_huge_pages() -> Iterator[None]:
    """Let Arrow allocate memory by the system meanwhile, unless the environment says by what.

    For the allocator of Arrow's own, Linux clears huge pages, which took up to a third of the
    processor time of the first count of a process (5 million rows, PyArrow 26).
    """
    import pyarrow as pa

    pool = pa.default_memory_pool()
    if pool.backend_name != "mimalloc" or _POOL_VARIABLE in os.environ or sys.platform != "linux":
        yield
        return
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(pool)


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
        with avoid_huge_pages(), self._open_pool() as pool:
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
        """Open the pool that Dask is configured to use, or threads whose end waits for tasks."""
        configured = config.get("pool", None)
        if isinstance(configured, Executor):
            yield configured
            return
        with ThreadPoolExecutor(self.threads, thread_name_prefix="fitplug") as pool:
            yield pool
