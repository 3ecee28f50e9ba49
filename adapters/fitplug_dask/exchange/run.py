"""Run: an exchange from its inputs to its results, on threads or on a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from fitplug_dask.exchange.cluster import exchange_on_cluster
from fitplug_dask.exchange.memory import measure_memory
from fitplug_dask.exchange.tasks import Add, ExchangePlan, Fold, Split, group_outputs
from fitplug_dask.exchange.threads import exchange_on_threads
from fitplug_dask.progress import Report
from fitplug_dask.scheduling import count_threads, raise_fault
from fitplug_dask.workers import COUNTING_PACKAGES, read_timeout

Gather: TypeAlias = Callable[[Any, int, Mapping[int, Any]], Any]

_GROUPS_PER_THREAD = 3


@dataclass(frozen=True, repr=False)
class Exchange:
    """What is brought together, and how.

    Attributes:
        split: `split(shared, input)` returns the pieces of an input by the number of their output,
            or a Fault. An output without a piece gets none of this input. Pieces of bytes (also
            bytearray and memoryview) are passed on as they are; others are pickled.
        outputs: The number of outputs, at least 1.
        shared: What all tasks take; each worker gets it once.
        confidential: Whether what is written to a disk is encrypted, under a key that exists only
            in the memory of the process that writes.
        memory: The most bytes of pieces that one process holds in memory, if a share of the memory
            of the workers is not less; that share if None.
        packages: The packages whose code workers must have as this process has it.
    """

    split: Split
    outputs: int
    shared: Any = None
    confidential: bool = True
    memory: int | None = None
    packages: tuple[str, ...] = COUNTING_PACKAGES

    def __repr__(self) -> str:
        return f"Exchange({self.outputs} outputs)"


def run_exchange(
    exchange: Exchange,
    gather: Gather,
    inputs: Sequence[Any],
    *,
    client: Any,
    sizes: Sequence[int] | None = None,
    report: Report | None = None,
) -> list[Any]:
    """Bring together what all inputs have for each output.

    An input is split once, and an output is gathered once, unless workers are lost; a piece is
    never taken twice and never left out. Pieces are not changed: each is named by its input and
    its output, and an output is gathered from the pieces of all inputs or not at all. Pieces stay
    in the memory of the process that made them, up to a bound, and then in a file that ends with
    the process. There is one task for each input and one for each output.

    Args:
        exchange: What is brought together.
        gather: `gather(shared, output, pieces)` returns the result of an output, or a Fault.
            `pieces` are those of all inputs by the number of their input, in this order; those of
            bytes are memoryviews.
        inputs: The inputs; on a cluster they are pickled.
        client: A client of dask.distributed, or None for threads of this process.
        sizes: What each input adds to the progress; 1 if None.
        report: Called in this thread with the sizes of the tasks that have ended and of all;
            gathering counts as much as splitting.

    Returns:
        The result of each output.

    Raises:
        DataError: The first Fault found, if it is one of the data.
        FitplugError: The workers or their disks fail.
    """
    fold = partial(_gather_one, gather)
    return _run(exchange, fold, None, inputs, exchange.outputs, client, sizes, report)


def add_exchange(
    exchange: Exchange,
    fold: Fold,
    add: Add,
    inputs: Sequence[Any],
    *,
    client: Any,
    sizes: Sequence[int] | None = None,
    report: Report | None = None,
) -> Any:
    """Bring together what all inputs have for each output, and return the sum of the results.

    A task gathers several outputs one after the other, and makes one result of them.

    Args:
        exchange: What is brought together.
        fold: `fold(shared, pieces of each output)` returns the result of some outputs, or a Fault.
            The pieces of an output are those that `gather` of `run_exchange` takes; an iterator
            gives them output by output, each when it is asked for.
        add: `add(*results)` adds results in the order of the outputs, or returns a Fault. It may
            not change them.
        inputs: The inputs, as `run_exchange` takes them; so are the other arguments.
        client: The client.
        sizes: The sizes of the inputs.
        report: The report.

    Raises:
        DataError: The first Fault found, if it is one of the data.
        FitplugError: The workers or their disks fail.
    """
    threads, _ = count_threads(client)
    results = _run(exchange, fold, add, inputs, _GROUPS_PER_THREAD * threads, client, sizes, report)
    total = results[0] if len(results) == 1 else add(*results)
    return raise_fault(total)


def _run(
    exchange: Exchange,
    fold: Fold,
    add: Add | None,
    inputs: Sequence[Any],
    most_groups: int,
    client: Any,
    sizes: Sequence[int] | None,
    report: Report | None,
) -> list[Any]:
    """Run an exchange whose outputs are gathered in at most so many groups."""
    share: int = raise_fault(measure_memory(client))
    memory = share if exchange.memory is None else min(share, exchange.memory)
    plan = ExchangePlan(
        uuid4().hex,
        exchange.split,
        fold,
        add,
        exchange.shared,
        exchange.outputs,
        memory,
        exchange.confidential,
        exchange.packages,
        read_timeout(),
    )
    groups = group_outputs(exchange.outputs, most_groups)
    sizes = [1] * len(inputs) if sizes is None else list(sizes)
    report_weight = _make_report(2 * sum(sizes), report)
    ends = [sum(sizes) * i // len(groups) for i in range(len(groups) + 1)]
    weights = sizes, [end - start for start, end in itertools.pairwise(ends)]
    if client is None:
        results = exchange_on_threads(plan, inputs, groups, weights, report_weight)
    else:
        results = exchange_on_cluster(plan, inputs, groups, weights, report_weight, client)
    return raise_fault(results)


def _gather_one(
    gather: Gather, shared: Any, gathered: Iterator[tuple[int, Mapping[int, Any]]]
) -> Any:
    """Return the result of the only output of a task."""
    (result,) = (gather(shared, output, pieces) for output, pieces in gathered)
    return result


def _make_report(total: int, report: Report | None) -> Callable[[int], None]:
    """Return a function that adds the weight of a task to what is reported."""
    done = 0

    def report_weight(weight: int) -> None:
        nonlocal done
        done += weight
        if report is not None:
            report(done, total)

    report_weight(0)
    return report_weight
