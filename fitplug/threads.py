"""BLAS on one thread, whatever the machine offers."""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def one_blas_thread() -> threadpool_limits:
    """A context in which BLAS uses one thread.

    On a busy machine the threads of BLAS wait for each other for very long: on two cores shared
    with other work a design of rank 2048 took 179 s with two threads and 47 s with one, and on two
    idle ones 31 s and 42 s.
    """
    return threadpool_limits(1, user_api="blas")
