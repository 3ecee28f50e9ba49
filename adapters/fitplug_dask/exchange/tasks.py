"""Tasks: splitting one input and gathering some outputs, on threads and on workers."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fitplug.errors import DataError, FitplugError
from fitplug_dask.encryption import EncryptionMissingError
from fitplug_dask.exchange.depot import Depot, unpack_piece
from fitplug_dask.kernel import OUT_OF_MEMORY, Fault

Split: TypeAlias = Callable[[Any, Any], "Mapping[int, Any] | Fault"]
Fold: TypeAlias = Callable[[Any, Iterator[tuple[int, Mapping[int, Any]]]], Any]
Add: TypeAlias = Callable[..., Any]
Fetch: TypeAlias = Callable[[int], "Mapping[int, memoryview] | Missing"]
"""Returns the packed pieces of an output by the number of their input."""

_NO_ENCRYPTION = Fault(
    "rows exceed the memory allowed for them, and the package cryptography is not installed. "
    'Install it with: pip install "fitplug[dask]"',
    of_data=False,
)
_NO_DISK = Fault(
    "rows exceed the memory allowed for them, and the disk for temporary files is too small. "
    "Free some space, or give the workers more memory.",
    of_data=False,
)


@dataclass(frozen=True)
class Missing:
    """The result of a task that could not gather an output because pieces were lost.

    Attributes:
        depots: The names of the depots whose pieces were lost.
    """

    depots: frozenset[str]


class _MissingError(Exception):
    """Ends a task that cannot get all pieces."""

    def __init__(self, missing: Missing) -> None:
        super().__init__()
        self.missing = missing


@dataclass(frozen=True, repr=False)
class Exchange:
    """The functions and settings of an exchange. It is confidential, and its repr hides its data.

    Attributes:
        split: `split(shared, input)` returns the pieces of an input by the number of their output,
            or a Fault. An output may have no piece of an input. Pieces of bytes (also bytearray and
            memoryview) are passed on as they are; others are pickled.
        outputs: The number of outputs, at least 1.
        shared: An argument of all tasks, which each worker receives once.
        confidential: Whether files are encrypted, under a key that exists only in the memory of the
            process that writes.
        memory: The most bytes of pieces that one process keeps in memory, but at most a share of
            the workers' memory.
        fold: Makes one result from the pieces of some outputs. `run_exchange` and `add_exchange`
            set this and all that follow.
        add: Adds results; None if each result is returned.
        name: A unique name of this run.
        timeout: How many seconds a worker waits for pieces from another one.
    """

    split: Split
    outputs: int
    shared: Any = None
    confidential: bool = True
    memory: int = sys.maxsize
    fold: Fold | None = None
    add: Add | None = None
    name: str = ""
    timeout: float = 0.0

    def __repr__(self) -> str:
        return f"Exchange({self.outputs} outputs)"

    @property
    def lease(self) -> str:
        """The key of the shared plan's task: pieces are kept as long as the scheduler knows it."""
        return f"fitplug-exchange-job-{self.name}"

    def open_depot(self, folder: str | None) -> Depot:
        """Open a depot for the pieces of one process."""
        return Depot(self.outputs, self.memory, folder, self.confidential)


def split_into_depot(plan: Exchange, given: Any, depot: Depot) -> int | Fault:
    """Split an input and store its pieces.

    Returns:
        The number of the deposit, or a Fault.
    """
    try:
        pieces = plan.split(plan.shared, given)
        return pieces if isinstance(pieces, Fault) else depot.deposit(pieces)
    except MemoryError:
        return OUT_OF_MEMORY
    except EncryptionMissingError:
        return _NO_ENCRYPTION
    except OSError:
        return _NO_DISK
    except Exception as error:  # its message may quote rows, and a worker would log it
        return describe_failure(error)


def gather_outputs(plan: Exchange, outputs: Sequence[int], fetch: Fetch) -> Any:
    """Return the result of some outputs, Missing or a Fault."""

    def unpack_outputs() -> Iterator[tuple[int, Mapping[int, Any]]]:
        for output in outputs:
            packed = fetch(output)
            if isinstance(packed, Missing):
                raise _MissingError(packed)
            yield output, {number: unpack_piece(packed[number]) for number in sorted(packed)}

    assert plan.fold is not None
    try:
        return plan.fold(plan.shared, unpack_outputs())
    except _MissingError as error:
        return error.missing
    except MemoryError:
        return OUT_OF_MEMORY
    except OSError:
        return Fault("cannot read temporary files of rows. Check the disk.", of_data=False)
    except Exception as error:
        return describe_failure(error)


def describe_failure(error: Exception) -> Fault:
    """Return a Fault that quotes fitplug's own errors, and names only the type of any other."""
    if isinstance(error, FitplugError):
        return Fault(str(error), of_data=isinstance(error, DataError))
    return Fault(
        f"the exchange of rows failed ({type(error).__name__}). Count again.", of_data=False
    )


def group_outputs(outputs: int, groups: int) -> list[range]:
    """Cut the outputs into at most `groups` ranges of about the same length."""
    count = min(outputs, groups)
    cuts = [outputs * i // count for i in range(count + 1)]
    return [range(start, end) for start, end in itertools.pairwise(cuts)]
