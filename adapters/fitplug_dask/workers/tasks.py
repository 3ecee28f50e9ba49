"""Tasks: what workers run once they are inspected, and the form in which it travels.

What travels must be readable by a worker that lacks fitplug, as such a worker may be given a task
before it is refused. Everything is therefore bytes in a `BytesIO`, a type of the standard library
whose repr shows nothing: Dask logs the arguments of tasks that fail, and these hold counts.
"""

from __future__ import annotations

import io
import pickle
import threading
from dataclasses import dataclass
from typing import Any, TypeAlias

from fitplug_dask.workers.faults import OUT_OF_MEMORY, Fault

Sealed: TypeAlias = io.BytesIO
"""A pickle. Its repr shows nothing."""

Outcome: TypeAlias = tuple[tuple[str, bool] | None, Sealed | None]
"""Why a task failed (the fields of a Fault) or None, and its result."""

_HELD_LOCK = threading.Lock()


@dataclass(frozen=True)
class Term:
    """Stands for the result of another task among the arguments of a task.

    Attributes:
        number: The number of that result among those the task is given.
        held: The key of that task, if its result is the same for many tasks.
    """

    number: int
    held: str | None


def seal(value: object) -> Sealed:
    """Return a value in the form in which it travels."""
    import cloudpickle

    return io.BytesIO(cloudpickle.dumps(value))


def open_sealed(sealed: Sealed) -> Any:
    """Return the value that was sealed."""
    return pickle.loads(sealed.getbuffer())


def run_task(held: dict[str, Any], task: Sealed, terms: tuple[Any, ...]) -> Outcome:
    """Run a task.

    Args:
        held: The values that this worker keeps for all tasks.
        task: The function and its arguments, in which a Term stands for a result.
        terms: The results: an Outcome, or what `seal` returned if it is held.
    """
    for term in terms:
        if isinstance(term, tuple) and term[0] is not None:
            return term[0], None
    try:
        function, arguments = open_sealed(task)
        taken = [
            _take(held, argument, terms) if isinstance(argument, Term) else argument
            for argument in arguments
        ]
        result = function(*taken)
        del taken
        return make_outcome(result)
    except MemoryError:
        return make_outcome(OUT_OF_MEMORY)


def make_outcome(result: object) -> Outcome:
    """Return a result in the form in which it travels."""
    if isinstance(result, Fault):
        return (result.message, result.of_data), None
    return None, io.BytesIO(pickle.dumps(result, pickle.HIGHEST_PROTOCOL))


def read_outcome(outcome: Outcome) -> Any:
    """Return the result of a task, or its Fault."""
    fault, result = outcome
    if fault is not None:
        return Fault(*fault)
    assert result is not None
    return open_sealed(result)


def _take(held: dict[str, Any], term: Term, terms: tuple[Any, ...]) -> Any:
    """Return the value that a Term stands for."""
    if term.held is None:
        return read_outcome(terms[term.number])
    with _HELD_LOCK:  # read once by each worker
        if term.held not in held:
            held[term.held] = open_sealed(terms[term.number])
        return held[term.held]
