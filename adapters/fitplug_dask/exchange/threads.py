"""Threads: an exchange on threads of this process, which has one depot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dask import config

from fitplug_dask.exchange.tasks import (
    ExchangePlan,
    gather_outputs,
    split_into_depot,
)
from fitplug_dask.scheduling import run_on_threads
from fitplug_dask.workers import Fault, Key


def exchange_on_threads(
    plan: ExchangePlan,
    inputs: Sequence[Any],
    groups: Sequence[range],
    weights: tuple[Sequence[int], Sequence[int]],
    report_weight: Callable[[int], None],
) -> list[Any] | Fault:
    """Run an exchange.

    Args:
        plan: The exchange.
        inputs: The inputs.
        groups: The outputs that are gathered by one task.
        weights: How much the task of each input, and that of each group, adds to the progress.
        report_weight: Called with the weight of a task when it has ended.

    Returns:
        The result of each group, or the first fault.
    """
    depot = plan.open_depot(config.get("temporary-directory", None))
    splits = [partial(split_into_depot, plan, given, depot) for given in inputs]
    deposits = _run(splits, weights[0], report_weight)
    if isinstance(deposits, Fault):
        return deposits
    input_of = {number: i for i, number in enumerate(deposits)}

    def fetch(output: int) -> Mapping[int, memoryview]:
        return {input_of[number]: packed for number, packed in depot.collect(output)}

    gathers = [partial(gather_outputs, plan, group, fetch) for group in groups]
    return _run(gathers, weights[1], report_weight)


def _run(
    acts: Sequence[Callable[[], Any]],
    weights: Sequence[int],
    report_weight: Callable[[int], None],
) -> list[Any] | Fault:
    """Run tasks that depend on nothing, and return what each returns, or the first fault."""
    graph: dict[Key, tuple[Any, ...]] = {("act", i): (act,) for i, act in enumerate(acts)}
    ended = dict(zip(graph, weights, strict=True))
    top: Key = ("list-results", 0)
    graph[top] = (_list_results, *ended)
    result: list[Any] | Fault = run_on_threads(graph, top, ended, report_weight)
    return result


def _list_results(*results: Any) -> list[Any]:
    return list(results)
