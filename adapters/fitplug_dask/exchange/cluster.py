"""Cluster: an exchange on the workers of a dask.distributed client.

The graph has a task for each input and one for each group of outputs, and no edges between them:
the client tells the tasks that gather where the pieces are. If a worker is lost, the tasks that
miss its pieces say so. The client then has the lost inputs split again, and runs again the tasks
that missed them. Dask's own exchange (`distributed.shuffle`) was not used: it writes pieces to
disks as they are, runs all again when a worker is lost, and takes only data frames and arrays. An
exchange of ordinary tasks in two levels would have 65,000 of them for 1,000 inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fitplug_dask.exchange.tasks import ExchangePlan, Missing
from fitplug_dask.exchange.worker_depots import (
    Deposit,
    Manifest,
    drop_depot,
    gather_on_worker,
    split_on_worker,
)
from fitplug_dask.scheduling import reduce_tree
from fitplug_dask.workers import Fault, SingleTasks, ask, attempt, read_threads

_MOST_PASSES = 50
"""How often lost pieces are made again; each time a worker was lost."""

_CLOSING_SECONDS = 5
_FAN_IN = 4

_LOST_TOO_OFTEN = Fault(
    f"workers were lost {_MOST_PASSES} times while rows were exchanged; see why they end, such as "
    "a lack of memory",
    of_data=False,
)


def exchange_on_cluster(
    plan: ExchangePlan,
    inputs: Sequence[Any],
    groups: Sequence[range],
    weights: tuple[Sequence[int], Sequence[int]],
    report_weight: Callable[[int], None],
    client: Any,
) -> list[Any] | Fault:
    """Run an exchange, as `exchange_on_threads` does. Added results come as a list of one."""
    exchange = _ClusterExchange(plan, inputs, groups, weights, report_weight, client)
    try:
        return exchange.run()
    finally:
        exchange.close()


class _ClusterExchange:
    """One exchange, as the client knows it."""

    def __init__(
        self,
        plan: ExchangePlan,
        inputs: Sequence[Any],
        groups: Sequence[range],
        weights: tuple[Sequence[int], Sequence[int]],
        report_weight: Callable[[int], None],
        client: Any,
    ) -> None:
        self._plan, self._inputs, self._groups, self._client = plan, inputs, groups, client
        self._split_weights, self._gather_weights = map(list, weights)
        self._report_weight = report_weight
        self._tasks: Any = None
        self._held: Any = None
        self._deposits: dict[int, Deposit] = {}
        self._lost: frozenset[str] = frozenset()
        """The depots that some worker could not read."""
        self._gathered: dict[int, Any] = {}
        """The result of each group; its future, where results are added up."""

    def run(self) -> list[Any] | Fault:
        """Split and gather until no pieces are missing."""
        self._tasks = attempt(
            lambda: SingleTasks(self._client, self._plan.name, self._plan.packages), self._client
        )
        if isinstance(self._tasks, Fault):
            return self._tasks
        self._held = self._tasks.hold(self._plan, self._plan.lease)
        if isinstance(self._held, Fault):
            return self._held
        gather = self._gather_groups if self._plan.add is None else self._add_groups
        for _ in range(_MOST_PASSES):
            fault = self._split_inputs()
            result = gather() if fault is None else fault
            if not isinstance(result, Missing):
                return result
            self._lost |= result.depots
            self._deposits = {
                i: one for i, one in self._deposits.items() if one.depot not in self._lost
            }
        return _LOST_TOO_OFTEN

    def close(self) -> None:
        """Have all workers forget the exchange; those that do not answer will find out."""
        drop = partial(self._client.run, drop_depot, self._plan.name, on_error="ignore")
        attempt(lambda: ask(self._client, drop, _CLOSING_SECONDS))
        self._gathered.clear()
        self._held = None

    def _split_inputs(self) -> Fault | None:
        """Split the inputs whose pieces no worker has."""
        while True:
            living = attempt(lambda: set(read_threads(self._client)))
            if isinstance(living, Fault):
                return living
            deposits = self._deposits
            lost = [
                i
                for i in range(len(self._inputs))
                if i not in deposits or deposits[i].address not in living
            ]
            if not lost:
                return None
            tasks = {
                i: self._tasks.submit(
                    "split-input", split_on_worker, self._held, self._inputs[i], self._lost
                )
                for i in lost
            }
            for i, result in self._await(tasks):
                if isinstance(result, Fault):
                    return result
                deposits[i] = result
                self._report(self._split_weights, i)

    def _gather_groups(self) -> list[Any] | Missing | Fault:
        """Return the results of all groups, or what they miss."""
        manifest = self._tasks.hold(Manifest.create(self._list_deposits()))
        missing: set[str] = set()
        tasks = {
            g: self._tasks.submit("gather-output", gather_on_worker, self._held, manifest, group)
            for g, group in enumerate(self._groups)
            if g not in self._gathered
        }
        for g, result in self._await(tasks):
            if isinstance(result, Fault):
                return result
            if isinstance(result, Missing):
                missing |= result.depots
            else:
                self._gathered[g] = result
                self._report(self._gather_weights, g)
        if len(self._gathered) < len(self._groups):
            return Missing(frozenset(missing))
        return [self._gathered[g] for g in range(len(self._groups))]

    def _add_groups(self) -> list[Any] | Missing | Fault:
        """Return the sum of the results of all groups, or what they miss.

        The results stay on the workers until they are added. Those of a worker that is lost
        meanwhile are gathered again, from pieces that may be lost, too.
        """
        manifest = self._tasks.hold(Manifest.create(self._list_deposits()))
        for g, group in enumerate(self._groups):
            if g not in self._gathered:
                self._gathered[g] = self._tasks.submit(
                    "gather-output", gather_on_worker, self._held, manifest, group
                )
        checks = {
            g: self._tasks.submit("find-missing", find_missing, result)
            for g, result in self._gathered.items()
        }
        missing: set[str] = set()
        complete = True
        for g, found in self._await(checks):
            if isinstance(found, Fault):
                return found
            if isinstance(found, Missing):
                missing |= found.depots
                del self._gathered[g]
                complete = False
            else:
                self._report(self._gather_weights, g)
        if not complete:
            return Missing(frozenset(missing))
        top = reduce_tree(
            [self._gathered[g] for g in range(len(self._groups))],
            _FAN_IN,
            lambda terms: self._tasks.submit("add-results", add_results, self._held, *terms),
        )
        for _, result in self._await({0: top}):
            return result if isinstance(result, Missing | Fault) else [result]
        raise AssertionError("a task has a result")

    def _list_deposits(self) -> list[Deposit]:
        return [self._deposits[i] for i in range(len(self._inputs))]

    def _await(self, tasks: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        """Yield the result of each task when it has ended, or a Fault if the cluster fails.

        The tasks that have not ended when the caller stops are cancelled.
        """
        numbers = list(tasks)
        for i, result in self._tasks.await_results(list(tasks.values())):
            yield numbers[i], result

    def _report(self, weights: list[int], number: int) -> None:
        """Report the weight of a task when it ends for the first time."""
        weight, weights[number] = weights[number], 0
        if weight:
            self._report_weight(weight)


def find_missing(result: Any) -> Missing | Fault | None:
    """Return why a group has no result, or None. Watching a task then moves no result."""
    return result if isinstance(result, Missing | Fault) else None


def add_results(plan: ExchangePlan, *terms: Any) -> Any:
    """Add the results of groups, or return what they miss."""
    missing: set[str] = set()
    for term in terms:
        if isinstance(term, Fault):
            return term
        if isinstance(term, Missing):
            missing |= term.depots
    if any(isinstance(term, Missing) for term in terms):
        return Missing(frozenset(missing))
    assert plan.add is not None
    return plan.add(*terms)
