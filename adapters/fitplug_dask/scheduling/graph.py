"""Graph: the tasks of one count, which threads and clusters run alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fitplug_dask.kernel import Fault, Job, PartialCounts, add_partial_counts, choose_fan_in
from fitplug_dask.scheduling.reduction import reduce_tree
from fitplug_dask.scheduling.threads import run_on_threads
from fitplug_dask.workers import Key, draw_run, hold, is_key, name_tasks, run_on_cluster

_MOST_WATCHED = 200


class CountGraph:
    """The tasks of one count.

    Each result has one key, which is new in every run: a task that runs again after a lost worker
    replaces its result, and no run uses the results of another.

    Attributes:
        tasks: The tasks by key.
        rows: The rows of the tasks that read, by key.
        job: The key of the task that holds the job.
        top: The key of the sum, once there is one.
    """

    def __init__(self, job: Job) -> None:
        self._cells = job.total_cells
        self._run = draw_run()
        self.tasks: dict[Key, tuple[Any, ...]] = {}
        self.rows: dict[Key, int] = {}
        self.job = self.top = self.add("send-job", 0, hold, job)

    def add(self, action: str, number: int, function: Callable[..., Any], *arguments: Any) -> Key:
        """Add a task and return its key.

        Args:
            action: What it does, in words of letters joined by hyphens, as the dashboard shows it.
            number: Its number among the tasks of this action.
            function: What it calls.
            arguments: The arguments; a key stands for the result of that task.
        """
        key = (name_tasks(action, self._run), number)
        self.tasks[key] = (function, *arguments)
        return key

    def add_up(self, keys: Sequence[Key]) -> None:
        """Add the tasks that add up the counts of other tasks."""
        before = len(self.tasks)

        def join(terms: Sequence[Key]) -> Key:
            return self.add("add-counts", len(self.tasks) - before, add_partial_counts, *terms)

        self.top = reduce_tree(keys, choose_fan_in(self._cells), join)

    def choose_watched(self) -> dict[Key, int]:
        """Return the tasks whose ends are reported on a cluster, with their rows.

        To watch a task is a task. Where many tasks read, what first adds up several of them is
        watched instead.
        """
        if len(self.rows) <= _MOST_WATCHED:
            return self.rows
        sums = {
            key: sum(self.rows[term] for term in terms)
            for key, (_, *terms) in self.tasks.items()
            if terms and all(is_key(term) and term in self.rows for term in terms)
        }
        return sums if sum(sums.values()) == sum(self.rows.values()) else self.rows


def run_graph(
    graph: CountGraph, client: Any, report_rows: Callable[[int], None]
) -> PartialCounts | Fault:
    """Run the tasks of a count.

    Args:
        graph: The tasks.
        client: A client of dask.distributed, or None for threads of this process.
        report_rows: Called with the rows of tasks that have ended.

    Returns:
        The sum, or the first fault.
    """
    if client is None:
        return run_on_threads(graph.tasks, graph.top, graph.rows, report_rows)
    counted: PartialCounts | Fault = run_on_cluster(
        client, graph.tasks, graph.top, graph.choose_watched(), report_rows
    )
    return counted
