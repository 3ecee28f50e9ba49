"""Tasks: running tasks on workers that have the client's code, and sealing what is sent.

Tasks and results are sent as a `BytesIO`, a type of the standard library whose repr shows nothing:
Dask logs the arguments of tasks that fail, and these contain counts.

A worker that runs out of memory writes results of tasks to its disk. Therefore results, and
arguments shared by many tasks, are encrypted under a key that is drawn for each run. The key is
sent with the tasks themselves, which workers and the scheduler keep only in memory.
"""

from __future__ import annotations

import io
import pickle
import secrets
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from fitplug.errors import FitplugError
from fitplug_dask.encryption import (
    KEY_BYTES,
    EncryptionMissingError,
    can_encrypt,
    decrypt_long,
    encrypt_long,
)
from fitplug_dask.workers.handshake import (
    COUNTING_PACKAGES,
    Code,
    describe_code,
    describe_refusal,
    list_differences,
)
from fitplug_dask.workers.runner import OUT_OF_MEMORY, Fault

Sealed: TypeAlias = io.BytesIO
"""A pickle, encrypted if it is a result or a shared argument. Its repr shows nothing."""

_CONTEXT = b"fitplug result"

_NO_ENCRYPTION = Fault(
    "the package cryptography is not installed. Install it on all machines: "
    'pip install "fitplug[dask]"',
    of_data=False,
)

Outcome: TypeAlias = tuple[tuple[str, bool] | None, Sealed | None]
"""The fields of a task's Fault or None, and its result or None."""

_OPENED_LOCK = threading.Lock()

_OPENED: WeakKeyDictionary[Sealed, Any] = WeakKeyDictionary()
"""Shared arguments after decryption, for as long as this worker has their sealed form."""


_TEXT = """type("Entry", (), {
    "__call__": lambda self, *given: __import__(
        "fitplug_dask.workers.tasks", fromlist=["run_task"]
    ).run_task(*given),
    "__reduce__": lambda self: (eval, (text, {"text": text})),
})()"""

ENTRY: Any = eval(_TEXT, {"text": _TEXT})
"""The function of all tasks: it imports and calls `run_task`. It is sent as text because a
scheduler need not have fitplug, and a worker without fitplug must fail only when it runs a task."""


class Term(NamedTuple):
    """A placeholder for the result of another task, by its position among a task's terms."""

    number: int


@dataclass(frozen=True, repr=False)
class Run:
    """The settings of a run, which are part of all its tasks.

    Attributes:
        key: The encryption key of results and shared arguments.
        packages: The packages that take part.
        code: The code that a worker must have.
    """

    key: bytes
    packages: tuple[str, ...]
    code: Code

    @classmethod
    def begin(cls, packages: tuple[str, ...] = COUNTING_PACKAGES) -> Run:
        """Draw a key, and describe the code of this process.

        Raises:
            FitplugError: This process cannot encrypt.
        """
        if not can_encrypt():
            raise FitplugError(_NO_ENCRYPTION.message)
        return cls(secrets.token_bytes(KEY_BYTES), packages, describe_code(packages))


def seal_task(run: Run, function: Any, template: list[Any]) -> Sealed:
    """Seal a task.

    Args:
        run: The run.
        function: The function to call.
        template: The arguments; a Term stands for the result of another task.
    """
    import cloudpickle

    return io.BytesIO(cloudpickle.dumps((run, function, template)))


def seal_shared(key: bytes, value: object) -> Sealed:
    """Seal an argument that many tasks share."""
    import cloudpickle

    return io.BytesIO(encrypt_long(key, cloudpickle.dumps(value), _CONTEXT))


def open_result(key: bytes, sealed: Sealed) -> Any:
    """Open a sealed result or shared argument."""
    return pickle.loads(decrypt_long(key, sealed.getbuffer(), _CONTEXT))


def run_task(task: Sealed, *terms: Any) -> Outcome:
    """Run a task, or return a fault if the code of this worker differs from the client's.

    Args:
        task: The task from `seal_task`.
        terms: The results of other tasks: Outcomes, or shared arguments from `seal_shared`.
    """
    for term in terms:
        if isinstance(term, tuple) and term[0] is not None:
            return term[0], None
    try:
        run, function, arguments = pickle.loads(task.getbuffer())
        said = list_differences(run.code, describe_code(run.packages))
        if said:
            return _describe_fault(_refuse(said))
        key = run.key
        taken = [
            _take(key, terms[argument.number]) if isinstance(argument, Term) else argument
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
    """Return a task's outcome, with its result sealed."""
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


def _refuse(said: list[str]) -> Fault:
    """Return the fault that this worker must not count."""
    from distributed import get_worker

    return Fault(describe_refusal({get_worker().address: said}), of_data=False)


def _take(key: bytes, term: Any) -> Any:
    """Return the result of another task, or a shared argument, which each worker opens once."""
    if isinstance(term, tuple):
        return read_outcome(key, term)
    with _OPENED_LOCK:
        if term not in _OPENED:
            _OPENED[term] = open_result(key, term)
        return _OPENED[term]
