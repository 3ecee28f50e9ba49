"""BLAS threads: one for small matrices, the library's own choice for large ones."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

_MANY_FROM = 512


def blas_threads(size: int) -> threadpool_limits:
    """A context in which BLAS uses threads only if matrices of this size gain from them.

    On smaller ones threads only wait for each other, and on a busy machine for very long: with
    two threads, rank 256 was seen to take 20 times as long as with one.
    """
    return threadpool_limits(1 if size < _MANY_FROM else None, user_api="blas")
