"""What linear algebra runs in: BLAS on one thread, and errors that say what to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_limits

from fitplug.errors import DesignError

_NOT_FINITE = ("infs or NaNs", "illegal value", "inf, nan")
"""How SciPy and LAPACK word the ValueError for numbers that overflowed; others are ours to mend."""


@contextmanager
def linear_algebra(passing: Sequence[BaseException] = ()) -> Iterator[None]:
    """A context in which BLAS uses one thread, and what floating point or the memory cannot hold
    is a DesignError; the errors in `passing` leave as they are.

    On a busy machine the threads of BLAS wait for each other for very long: on two cores shared
    with other work a design of rank 2048 took 179 s with two threads and 47 s with one, and on two
    idle ones 31 s and 42 s.
    """
    # Whatever a program asked of NumPy: that numbers become too small to hold is no fault.
    quiet = np.errstate(divide="warn", over="warn", invalid="warn", under="ignore")
    with threadpool_limits(1, user_api="blas"), quiet:
        try:
            yield
        except (MemoryError, ArithmeticError, ValueError) as error:
            if error in passing or not _is_numeric(error):
                raise
            raise DesignError(_remedy(error)) from error


def _remedy(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return (
            "this needs more memory than there is; ask fewer queries, or use fewer attributes or "
            "coarser bins"
        )
    return (
        f"floating point gives out on this workload ({type(error).__name__}): bring targets and "
        "coefficients closer together, drop queries that nearly repeat others, or split the "
        "workload into designs of their own"
    )


def _is_numeric(error: Exception) -> bool:
    if isinstance(error, (MemoryError, ArithmeticError, np.linalg.LinAlgError)):
        return True
    return type(error) is ValueError and any(mark in str(error) for mark in _NOT_FINITE)
