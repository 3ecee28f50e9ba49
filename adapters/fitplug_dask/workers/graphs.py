"""Graphs: tasks by key as threads run them, and the same tasks as they travel on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, TypeAlias, TypeGuard
from uuid import uuid4

import toolz

from fitplug_dask.workers.tasks import ENTRY, Run, Term, seal_held, seal_task

Key: TypeAlias = tuple[str, int]
"""What a task does, with the run it belongs to, and a number. See `name_tasks`."""

Graph: TypeAlias = Mapping[Key, tuple[Any, ...]]
"""Functions with their arguments, by key. An argument that is a key stands for a result."""


def name_tasks(action: str, run: str) -> str:
    """Return the name that the tasks of one action in one run share: the first part of their keys.

    Dask's dashboard shows tasks of all runs under `fitplug-` and the action, such as
    `fitplug-count-partition`. Its scheduler treats the tasks of one name as a group, and assigns
    the tasks that read to workers one by one, as workers become free.

    Args:
        action: What the tasks do: words of letters, joined by hyphens.
        run: What `draw_run` returned.
    """
    return f"fitplug-{action}-{run}"


def draw_run() -> str:
    """Return a name for a run. A run thus never uses the results of another."""
    return uuid4().hex


def hold(value: object) -> object:
    """Return the value.

    This is a task from whose result many tasks take the same value. The scheduler then holds one
    copy, which each worker fetches once, and a worker that comes later fetches it, too; if all
    workers that have it are lost, the task runs again. As an argument of every task, a large value
    would be sent with each of them.
    """
    return value


def seal_graph(graph: Graph, run: Run) -> dict[Key, tuple[Any, ...]]:
    """Return tasks with the same keys in the form in which they travel; they return an Outcome."""
    tasks: dict[Key, tuple[Any, ...]] = {}
    for key, (function, *arguments) in graph.items():
        if function is hold:
            tasks[key] = (toolz.identity, seal_held(run.key, arguments[0]))
            continue
        terms: list[Key] = []
        template = []
        for argument in arguments:
            if is_key(argument) and argument in graph:
                template.append(Term(len(terms)))
                terms.append(argument)
            else:
                template.append(argument)
        tasks[key] = (ENTRY, seal_task(run, function, template), *terms)
    return tasks


def watch_tasks(keys: Mapping[Key, Any], run: str) -> dict[Key, tuple[Any, ...]]:
    """Return tasks that return why a task failed, or None.

    Their results are small, so that watching a task moves no counts. They are functions of Python
    itself, which every worker has.
    """
    name = name_tasks("watch-task", run)
    return {(name, i): (itemgetter(0), key) for i, key in enumerate(keys)}


def is_key(argument: object) -> TypeGuard[Key]:
    """Return whether an argument has the form of a key."""
    return (
        isinstance(argument, tuple)
        and len(argument) == 2
        and isinstance(argument[0], str)
        and isinstance(argument[1], int)
    )
