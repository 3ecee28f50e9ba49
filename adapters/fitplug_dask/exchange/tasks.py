"""Tasks: what an exchange does with one input and with some outputs, wherever it runs."""

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
    "confidential rows exceed the memory allowed for them, and fitplug writes them to disk "
    'only with encryption. Install it with: pip install "fitplug[dask]", or give the workers '
    "more memory.",
    of_data=False,
)
_NO_DISK = Fault(
    "rows exceed the memory allowed for them, and the disk for temporary files is too small. "
    "Free some space, or give the workers more memory or a temporary directory on another disk.",
    of_data=False,
)


@dataclass(frozen=True)
class Missing:
    """That an output was not gathered, as the pieces of some depots are lost.

    Attributes:
        depots: The names of the depots.
    """

    depots: frozenset[str]


class _MissingError(Exception):
    """Ends a task that cannot have all pieces."""

    def __init__(self, missing: Missing) -> None:
        super().__init__()
        self.missing = missing


@dataclass(frozen=True, repr=False)
class Exchange:
    """What is brought together, and how. It is confidential, and so is its repr.

    Attributes:
        split: `split(shared, input)` returns the pieces of an input by the number of their output,
            or a Fault. An output without a piece gets none of this input. Pieces of bytes (also
            bytearray and memoryview) are passed on as they are; others are pickled.
        outputs: The number of outputs, at least 1.
        shared: What all tasks take; each worker gets it once.
        confidential: Whether what is written to a disk is encrypted, under a key that exists only
            in the memory of the process that writes.
        memory: The most bytes of pieces that one process holds in memory; a share of the memory of
            the workers if that is less.
        fold: Makes a result of the pieces of some outputs. This and the rest are set when it runs.
        add: Adds results; None if each is returned.
        name: What distinguishes this run from all others.
        timeout: How many seconds a worker waits for the pieces of another one.
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
        """The key of the task that holds it: the exchange lasts as long as its result."""
        return f"fitplug-exchange-job-{self.name}"

    def open_depot(self, folder: str | None) -> Depot:
        """Open a depot for the pieces that one process makes."""
        return Depot(self.outputs, self.memory, folder, self.confidential)


def split_into_depot(plan: Exchange, given: Any, depot: Depot) -> int | Fault:
    """Make the pieces of an input and keep them.

    Returns:
        The number of the deposit.
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
    except Exception as error:  # its words may quote rows, and a worker would log them
        return describe_failure(error)


def gather_outputs(plan: Exchange, outputs: Sequence[int], fetch: Fetch) -> Any:
    """Return the result of some outputs, or Missing or a Fault."""

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
        return Fault("cannot read temporary files of the exchange. Check the disk.", of_data=False)
    except Exception as error:
        return describe_failure(error)


def describe_failure(error: Exception) -> Fault:
    """Return a Fault that names the type of an error and quotes nothing of it, unless it may."""
    if isinstance(error, FitplugError):
        return Fault(str(error), of_data=isinstance(error, DataError))
    return Fault(f"the exchange of rows failed ({type(error).__name__})", of_data=False)


def group_outputs(outputs: int, groups: int) -> list[range]:
    """Cut the outputs into at most so many groups of about equally many neighbours."""
    count = min(outputs, groups)
    cuts = [outputs * i // count for i in range(count + 1)]
    return [range(start, end) for start, end in itertools.pairwise(cuts)]
