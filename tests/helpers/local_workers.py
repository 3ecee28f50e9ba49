"""Workers of Dask on this machine, in this process or in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, LocalCluster


@contextmanager
def start_workers(workers: int, threads: int, *, processes: bool) -> Iterator[Client]:
    """Start workers with so many threads each, and give a client of them."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=processes,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
