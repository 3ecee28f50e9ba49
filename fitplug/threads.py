"""BLAS threads: one for small matrices, the library's own choice for large ones."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

_MANY_FROM = 2048


def blas_threads(size: int) -> threadpool_limits:
    """A context in which BLAS uses threads only if matrices of this size gain from them.

    On smaller ones threads only wait for each other, and on a busy machine for very long: on two
    cores shared with other work, a design of rank 1024 took 57 s with two threads and 12 s with
    one.
    """
    return threadpool_limits(1 if size < _MANY_FROM else None, user_api="blas")
