"""Tasks: what workers run once they are inspected, and the form in which it travels.

What travels must be readable by a worker that lacks fitplug, as such a worker may be given a task
before it is refused. Everything is therefore bytes in a `BytesIO`, a type of the standard library
whose repr shows nothing: Dask logs the arguments of tasks that fail, and these hold counts.

A worker that runs out of memory writes results of tasks to its disk. Results, and what many tasks
take, are therefore encrypted, under a key that is drawn for each run. The key travels with the
tasks themselves, which workers and the scheduler keep in memory only.
"""

from __future__ import annotations

import io
import pickle
import secrets
import threading
from dataclasses import dataclass
from typing import Any, TypeAlias

from fitplug.errors import FitplugError
from fitplug_dask.encryption import (
    KEY_BYTES,
    EncryptionMissingError,
    can_encrypt,
    decrypt_long,
    encrypt_long,
)
from fitplug_dask.workers.faults import OUT_OF_MEMORY, Fault

Sealed: TypeAlias = io.BytesIO
"""A pickle, encrypted if it is the result of a task. Its repr shows nothing."""

_CONTEXT = b"fitplug result"

_NO_ENCRYPTION = Fault(
    "workers may write results to their disks, and these are exact counts, which are encrypted; "
    'install what that takes on all machines: pip install "fitplug[dask]"',
    of_data=False,
)

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


def draw_key() -> bytes:
    """Return a key for the results of a run.

    Raises:
        FitplugError: This process cannot encrypt.
    """
    if not can_encrypt():
        raise FitplugError(_NO_ENCRYPTION.message)
    return secrets.token_bytes(KEY_BYTES)


def seal_task(key: bytes, function: Any, template: list[Any]) -> Sealed:
    """Return a task in the form in which it travels.

    Args:
        key: The key of the results of its run.
        function: What it calls.
        template: The arguments, in which a Term stands for a result.
    """
    import cloudpickle

    return io.BytesIO(cloudpickle.dumps((key, function, template)))


def seal_held(key: bytes, value: object) -> Sealed:
    """Return what many tasks take in the form in which it travels."""
    import cloudpickle

    return io.BytesIO(encrypt_long(key, cloudpickle.dumps(value), _CONTEXT))


def open_result(key: bytes, sealed: Sealed) -> Any:
    """Return the result, or what many tasks take, that was sealed."""
    return pickle.loads(decrypt_long(key, sealed.getbuffer(), _CONTEXT))


def run_task(held: dict[str, Any], task: Sealed, terms: tuple[Any, ...]) -> Outcome:
    """Run a task.

    Args:
        held: The values that this worker keeps for all tasks.
        task: What `seal_task` returned.
        terms: The results: an Outcome, or what `seal_held` returned.
    """
    for term in terms:
        if isinstance(term, tuple) and term[0] is not None:
            return term[0], None
    try:
        key, function, arguments = pickle.loads(task.getbuffer())
        taken = [
            _take(key, held, argument, terms) if isinstance(argument, Term) else argument
            for argument in arguments
        ]
        result = function(*taken)
        del taken
        return make_outcome(key, result)
    except MemoryError:
        return _describe_fault(OUT_OF_MEMORY)
    except EncryptionMissingError:
        return _describe_fault(_NO_ENCRYPTION)


def make_outcome(key: bytes, result: object) -> Outcome:
    """Return a result in the form in which it travels."""
    if isinstance(result, Fault):
        return _describe_fault(result)
    pickled = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    return None, io.BytesIO(encrypt_long(key, pickled, _CONTEXT))


def read_outcome(key: bytes, outcome: Outcome) -> Any:
    """Return the result of a task, or its Fault."""
    fault, result = outcome
    if fault is not None:
        return Fault(*fault)
    assert result is not None
    return open_result(key, result)


def _describe_fault(fault: Fault) -> Outcome:
    return (fault.message, fault.of_data), None


def _take(key: bytes, held: dict[str, Any], term: Term, terms: tuple[Any, ...]) -> Any:
    """Return the value that a Term stands for."""
    if term.held is None:
        return read_outcome(key, terms[term.number])
    with _HELD_LOCK:  # read once by each worker
        if term.held not in held:
            held[term.held] = open_result(key, terms[term.number])
        return held[term.held]
