"""Arrays: their types, frozen arrays, positions that index arrays, and linear algebra.

The arrays of a plan cannot be changed in place. A plan's cost and variances are computed from its
arrays once. If an array were changed after that, the release would have other noise than the
reported rho says.

NumPy takes positions, numbers of repetitions and bins as integers of the size of a memory address.
These have 64 bits on most machines, and 32 bits in a browser, where NumPy refuses integers of 64
bits in their place. Numbers that are stored, multiplied or added up have 64 bits everywhere.

BLAS runs on one thread, and its errors say what the user can change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from threadpoolctl import threadpool_limits

from fitplug.errors import DesignError

FloatArray: TypeAlias = npt.NDArray[np.float64]
"""Floating-point numbers of 64 bits."""

IntArray: TypeAlias = npt.NDArray[np.int64]
"""Integers of 64 bits."""

BoolArray: TypeAlias = npt.NDArray[np.bool_]
"""Truth values."""

IndexArray: TypeAlias = npt.NDArray[np.intp]
"""Positions in another array, as NumPy and LAPACK return them."""

AnyArray: TypeAlias = npt.NDArray[Any]
"""Numbers whose type differs from call to call, such as int64 or Python integers."""


T = TypeVar("T")


def freeze(value: T) -> T:
    """Make every array in a value read-only, and return the value itself.

    Arrays are found in data classes, mappings, tuples and lists. An array of which another is a
    view is made read-only, too, because the view could be changed through it.
    """
    _freeze(value, set())
    return value


def frozen_property(compute: Callable[[Any], T]) -> cached_property[T]:
    """Make a cached property whose arrays are read-only."""

    @wraps(compute)
    def compute_frozen(self: Any) -> T:
        return freeze(compute(self))

    return cached_property(compute_frozen)


def _freeze(value: Any, seen: set[int]) -> None:
    """Freeze the arrays in a value, except in objects whose id is in `seen`."""
    if value is None or isinstance(value, (str, bytes, int, float)) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
        _freeze(value.base, seen)
        return
    inside: Any = ()
    if issparse(value):
        inside = (item for item in vars(value).values() if isinstance(item, np.ndarray))
    elif isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, (tuple, list)):
        inside = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = list(vars(value).values())  # the fields and the cached properties
    for item in inside:
        _freeze(item, seen)


def read_array(given: Any) -> AnyArray:
    """Convert lists or an array of any library to an array.

    Args:
        given: What a user gave as an array.

    Returns:
        The array. Its dtype is object if NumPy makes no array of what was given, such as a list of
        rows of different lengths, so that callers need only check the dtype.
    """
    try:
        return np.asarray(given)
    except (TypeError, ValueError):
        return np.asarray(None)


def is_positive_integer(value: Any) -> bool:
    """Return whether a value is an int >= 1, and neither a boolean nor another kind of number."""
    return type(value) is int and value >= 1


def to_positions(numbers: IntArray | IndexArray) -> IndexArray:
    """Convert integers to positions. Where an address has 64 bits, they are not copied.

    Args:
        numbers: Positions, numbers of repetitions, or bins, of any shape.

    Returns:
        The same numbers.

    Raises:
        OverflowError: If an array on this machine cannot have such a position.
    """
    if not np.can_cast(numbers.dtype, np.intp) and numbers.size:
        limits = np.iinfo(np.intp)
        if not limits.min <= int(numbers.min()) <= int(numbers.max()) <= limits.max:
            # The position is not named: it may be the cell of a person's record.
            raise OverflowError("arrays of this size need a 64-bit machine")
    return np.asarray(numbers, dtype=np.intp)


_NOT_FINITE = ("infs or NaNs", "illegal value", "inf, nan")
"""Texts in the ValueError of SciPy and LAPACK for numbers that overflowed. A ValueError without
one of them is a fault of the code and is not translated.
"""


@contextmanager
def guard_linear_algebra(passing: Sequence[BaseException] = ()) -> Iterator[None]:
    """Run a block with BLAS on one thread, and translate its numerical errors.

    On a busy machine the threads of BLAS wait for each other for a long time: on two cores shared
    with other work a design of rank 2048 took 179 s with two threads and 47 s with one; on two
    idle cores it took 31 s and 42 s.

    Args:
        passing: Errors that leave the block as they are.

    Raises:
        DesignError: The block needs more memory than there is, or numbers overflow.
    """
    # An underflow is not an error, whatever the calling program has set in NumPy.
    quiet = np.errstate(divide="warn", over="warn", invalid="warn", under="ignore")
    with threadpool_limits(1, user_api="blas"), quiet:
        try:
            yield
        except (MemoryError, ArithmeticError, ValueError) as error:
            if error in passing or not _is_numeric(error):
                raise
            raise DesignError(_describe_remedy(error)) from error


def _describe_remedy(error: Exception) -> str:
    """Say what went wrong and what the user can change."""
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory. Use fewer queries, fewer attributes per table or coarser "
            "bins."
        )
    return (
        "floating-point numbers are not precise enough for this workload "
        f"({type(error).__name__}). Use targets and coefficients of more similar size, drop "
        "queries that nearly repeat others, or split the workload into several designs."
    )


def _is_numeric(error: Exception) -> bool:
    """Return whether an error says that memory or floating point was not enough."""
    if isinstance(error, (MemoryError, ArithmeticError, np.linalg.LinAlgError)):
        return True
    return type(error) is ValueError and any(text in str(error) for text in _NOT_FINITE)
