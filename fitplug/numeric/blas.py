"""Linear algebra: BLAS on one thread, and errors that say what the user can change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_limits

from fitplug.errors import DesignError

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
