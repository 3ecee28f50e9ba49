"""Run: running an exchange on threads or on a cluster, from its inputs to its results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from dask import config

from fitplug.display import Report, accumulate
from fitplug_dask.exchange.tasks import (
    Add,
    Exchange,
    Fold,
    gather_outputs,
    group_outputs,
    split_into_depot,
)
from fitplug_dask.workers import Runner, open_runner, read_timeout

Gather: TypeAlias = Callable[[Any, int, Mapping[int, Any]], Any]

MEMORY_SHARE = 0.2
"""The fraction of a process's memory that pieces may take, and that all its tasks may take.

Both together stay well below the 80% at which a worker pauses.
"""

_GROUPS_PER_THREAD = 3
_GROUP_SIZE = 2**23
"""The most that one task gathers, in units of `sizes`, so that workers that join later get a share.
"""

_FAN_IN = 4


def measure_memory(runner: Runner) -> int:
    """Return the bytes that pieces may take in one process."""
    return int(MEMORY_SHARE * runner.memory)


def run_exchange(
    exchange: Exchange,
    gather: Gather,
    inputs: Sequence[Any],
    *,
    client: Any,
    sizes: Sequence[int] | None = None,
    report: Report | None = None,
) -> list[Any]:
    """Split all inputs into pieces, and gather the pieces of each output.

    Each input is split once and each output is gathered once, unless workers are lost. No piece is
    used twice or left out: it is named by its input and its output, and an output is gathered from
    the pieces of all inputs or not at all. Pieces stay in the process that made them: in memory up
    to a limit, and beyond it in a file that is gone when the process ends. There is one task for
    each input and one for each output.

    Args:
        exchange: The exchange.
        gather: `gather(shared, output, pieces)` returns the result of an output, or a Fault.
            `pieces` maps the number of each input, in ascending order, to its piece; pieces of
            bytes are memoryviews.
        inputs: The inputs; on a cluster they are pickled.
        client: A runner, a client of dask.distributed, or None for threads of this process.
        sizes: How much each input adds to the progress; 1 if None.
        report: Called in this thread with the sizes of the finished tasks and of all tasks;
            gathering counts as much as splitting.

    Returns:
        The result of each output.

    Raises:
        DataError: The first Fault found, if it is one of the data.
        FitplugError: The workers or their disks fail.
    """
    runner = open_runner(client)
    exchange = replace(exchange, fold=partial(_gather_one, gather))
    groups = group_outputs(exchange.outputs, exchange.outputs)
    return _run(exchange, inputs, groups, sizes, runner, report)


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
    """Run an exchange as `run_exchange` does, and return the sum of the results.

    Each task gathers several outputs one after the other, and returns one result for all of them.

    Args:
        exchange: The exchange.
        fold: `fold(shared, gathered)` returns the result of several outputs, or a Fault. `gathered`
            is an iterator over the outputs, each with its pieces as `gather` of `run_exchange`
            gets them. An output is gathered only when the iterator reaches it.
        add: `add(*results)` adds results in any order, or returns a Fault. It must not change them.
        inputs: The inputs. This and all other arguments are those of `run_exchange`.
        client: The client.
        sizes: The sizes of the inputs.
        report: The report.

    Raises:
        DataError: The first Fault found, if it is one of the data.
        FitplugError: The workers or their disks fail.
    """
    runner = open_runner(client)
    size = len(inputs) if sizes is None else sum(sizes)
    most_groups = max(_GROUPS_PER_THREAD * runner.threads, size // _GROUP_SIZE)
    groups = group_outputs(exchange.outputs, most_groups)
    exchange = replace(exchange, fold=fold, add=add)
    (total,) = _run(exchange, inputs, groups, sizes, runner, report)
    return total


def _run(
    exchange: Exchange,
    inputs: Sequence[Any],
    groups: Sequence[range],
    sizes: Sequence[int] | None,
    runner: Runner,
    report: Report | None,
) -> list[Any]:
    """Run an exchange; return one result for each group of outputs, or a list of their sum."""
    plan = replace(
        exchange,
        memory=min(measure_memory(runner), exchange.memory),
        name=uuid4().hex,
        timeout=read_timeout(),
    )
    sizes = [1] * len(inputs) if sizes is None else list(sizes)
    add_weight = accumulate(report, 2 * sum(sizes))
    ends = [sum(sizes) * i // len(groups) for i in range(len(groups) + 1)]
    weights = sizes, [end - start for start, end in itertools.pairwise(ends)]
    if runner.client is None:
        return _run_on_threads(plan, inputs, groups, weights, runner, add_weight)
    from fitplug_dask.exchange.cluster import ClusterExchange  # both need distributed
    from fitplug_dask.workers.cluster import ClusterRunner

    assert isinstance(runner, ClusterRunner)
    return ClusterExchange(plan, inputs, groups, weights, runner, add_weight).run()


def _run_on_threads(
    plan: Exchange,
    inputs: Sequence[Any],
    groups: Sequence[range],
    weights: tuple[Sequence[int], Sequence[int]],
    runner: Runner,
    add_weight: Callable[[int], None],
) -> list[Any]:
    """Run an exchange on threads of this process, which has one depot."""
    depot = plan.open_depot(config.get("temporary-directory", None))
    deposits = runner.map(
        "split-input",
        partial(split_into_depot, depot=depot),
        inputs,
        shared=plan,
        weights=weights[0],
        report=add_weight,
    )
    input_of = {number: i for i, number in enumerate(deposits)}

    def fetch(output: int) -> Mapping[int, memoryview]:
        return {input_of[number]: packed for number, packed in depot.collect(output)}

    gather = partial(gather_outputs, fetch=fetch)
    how: dict[str, Any] = {"shared": plan, "weights": weights[1], "report": add_weight}
    if plan.add is None:
        return runner.map("gather-output", gather, groups, **how)
    return [runner.map_sum("gather-output", gather, groups, plan.add, _FAN_IN, **how)]


def _gather_one(
    gather: Gather, shared: Any, gathered: Iterator[tuple[int, Mapping[int, Any]]]
) -> Any:
    """Return the result of the only output of a task."""
    (result,) = (gather(shared, output, pieces) for output, pieces in gathered)
    return result
