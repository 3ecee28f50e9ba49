"""Cluster: an exchange on the workers of a dask.distributed client.

The graph has a task for each input and one for each group of outputs, without edges between them:
the client tells the gathering tasks where the pieces are. If a worker is lost, the tasks that need
its pieces return `Missing`. The client then splits the lost inputs again, and runs these tasks
again. Dask's own exchange (`distributed.shuffle`) is not used because it writes pieces to disk
unencrypted, starts over when a worker is lost, and accepts only data frames and arrays. An exchange
by ordinary tasks on two levels would need 65,000 of them for 1,000 inputs and outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fitplug.errors import FitplugError
from fitplug_dask.exchange.tasks import Add, Exchange, Missing
from fitplug_dask.exchange.worker_depots import (
    Deposit,
    Manifest,
    drop_depot,
    gather_on_worker,
    split_on_worker,
    stay_on_worker,
)
from fitplug_dask.workers.cluster import ClusterRunner

_MOST_PASSES = 50
"""The most passes of splitting and gathering; each one after the first follows a lost worker."""

_CLOSING_SECONDS = 5
_STAYS_SECONDS = 1
_FAN_IN = 4


class ClusterExchange:
    """One exchange, as the client runs it."""

    def __init__(
        self,
        plan: Exchange,
        inputs: Sequence[Any],
        groups: Sequence[range],
        weights: tuple[Sequence[int], Sequence[int]],
        runner: ClusterRunner,
        add_weight: Callable[[int], None],
    ) -> None:
        """Prepare the exchange; `run` submits its tasks.

        Args:
            plan: The exchange.
            inputs: The inputs.
            groups: The outputs that each task gathers.
            weights: How much the task of each input, and of each group, adds to the progress.
            runner: Runs the tasks.
            add_weight: Called with the weight of a task when it ends for the first time.
        """
        self._plan, self._inputs, self._groups, self._runner = plan, inputs, groups, runner
        self._split_weights, self._gather_weights = map(list, weights)
        self._add_weight = add_weight
        self._shared_plan: Any = None
        self._deposits: dict[int, Deposit] = {}
        self._lost: frozenset[str] = frozenset()
        """The depots that some worker could not read."""
        self._stays: dict[str, Any] = {}
        """The tasks that keep workers with pieces alive, by the address of the worker."""
        self._gathered: dict[int, Any] = {}
        """The result of each group, or its future if results are added up."""

    def run(self) -> list[Any]:
        """Split and gather until no pieces are missing.

        Returns:
            The result of each group; added results are a list of one.

        Raises:
            FitplugError: A task returned a Fault, or the workers fail.
        """
        try:
            self._shared_plan = self._runner.share(self._plan, self._plan.lease)
            for _ in range(_MOST_PASSES):
                self._split_inputs()
                result = self._gather_groups()
                if not isinstance(result, Missing):
                    return result
                self._lost |= result.depots
                self._deposits = {
                    i: one for i, one in self._deposits.items() if one.depot not in self._lost
                }
        finally:
            # Workers that do not answer will notice that the lease has ended.
            self._runner.run_at_once(drop_depot, self._plan.name, seconds=_CLOSING_SECONDS)
            end = time.monotonic() + _STAYS_SECONDS
            while not all(stay.done() for stay in self._stays.values()) and time.monotonic() < end:
                time.sleep(0.01)  # otherwise Dask would log that the tasks were cancelled
            self._gathered.clear()
            self._stays.clear()
            self._shared_plan = None
        raise FitplugError(
            f"workers were lost {_MOST_PASSES} times during the exchange of rows. Check the memory "
            "of the workers."
        )

    def _split_inputs(self) -> None:
        """Split all inputs whose pieces are not on any worker."""
        deposits = self._deposits
        while True:
            there = self._runner.list_addresses()
            lost = [
                i
                for i in range(len(self._inputs))
                if i not in deposits or deposits[i].address not in there
            ]
            if not lost:
                return
            tasks = [
                self._runner.submit(
                    "split-input", split_on_worker, self._shared_plan, self._inputs[i], self._lost
                )
                for i in lost
            ]
            for number, deposit in self._runner.results(tasks):
                deposits[lost[number]] = deposit
                self._keep_worker(deposit.address)
                self._report(self._split_weights, lost[number])

    def _keep_worker(self, address: str) -> None:
        """Keep a worker with pieces busy: a cluster that scales down ends workers without tasks."""
        if address not in self._stays:
            self._stays[address] = self._runner.submit(
                "keep-pieces", stay_on_worker, self._shared_plan, worker=address, priority=1
            )

    def _gather_groups(self) -> list[Any] | Missing:
        """Return the results of all groups, or their sum, or what is missing.

        Results to be added up stay on the workers until then. If a worker is lost in the meantime,
        its results are gathered again, from pieces that may have been lost as well.
        """
        submit, groups = self._runner.submit, range(len(self._groups))
        manifest = self._runner.share(Manifest.create(self._list_deposits()))
        tasks = {
            g: submit("gather-output", gather_on_worker, self._shared_plan, manifest, group)
            for g, group in enumerate(self._groups)
            if g not in self._gathered
        }
        adds = self._plan.add is not None
        if adds:
            self._gathered |= tasks
            tasks = {
                g: submit("find-missing", find_missing, self._gathered[g], priority=1)
                for g in groups
            }
        numbers, missing = list(tasks), frozenset[str]()
        for number, result in self._runner.results(list(tasks.values())):
            g = numbers[number]
            if isinstance(result, Missing):
                missing |= result.depots
                self._gathered.pop(g, None)
                continue
            if not adds:
                self._gathered[g] = result
            self._report(self._gather_weights, g)
        if missing:
            return Missing(missing)
        results = [self._gathered[g] for g in groups]
        if not adds:
            return results
        add = partial(add_results, self._plan.add)
        top = self._runner.sum("add-results", add, results, _FAN_IN)
        ((_, total),) = self._runner.results([top])
        return total if isinstance(total, Missing) else [total]

    def _list_deposits(self) -> list[Deposit]:
        return [self._deposits[i] for i in range(len(self._inputs))]

    def _report(self, weights: list[int], number: int) -> None:
        """Report a task's weight when it ends for the first time."""
        weight, weights[number] = weights[number], 0
        if weight:
            self._add_weight(weight)


def find_missing(result: Any) -> Missing | None:
    """Return what a group is missing, or None, so that its result itself stays on the worker."""
    return result if isinstance(result, Missing) else None


def add_results(add: Add | None, *terms: Any) -> Any:
    """Add the results of groups, or return what they are missing."""
    missing = [term for term in terms if isinstance(term, Missing)]
    if missing:
        return Missing(frozenset[str]().union(*(one.depots for one in missing)))
    assert add is not None
    return add(*terms)
