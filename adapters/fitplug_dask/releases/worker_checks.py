"""The test of every worker before the ledger is charged: its sampler, and whether it can write."""

from __future__ import annotations

import time
from typing import Any

from fitplug.errors import FitplugError
from fitplug.files import Place
from fitplug_dask.kernel import Fault
from fitplug_dask.releases.failures import report_faults
from fitplug_dask.releases.jobs import RELEASE_PACKAGES
from fitplug_dask.releases.staging import Output
from fitplug_dask.scheduling import raise_fault
from fitplug_dask.workers import SingleTasks, read_threads
from fitplug_opendp.noise_source import check_sampler_for

_SECONDS, _RESULT_SECONDS, _PAUSE = 120, 2, 0.05


def check_workers(client: Any, output: Output, noise_std: float, run: str) -> None:
    """Test all processes that may draw noise. Nothing is charged.

    A worker that joins later tests its sampler before its first draw.

    Args:
        client: A client of dask.distributed, or None for this process.
        output: Where the release goes.
        noise_std: The standard deviation of the noise.
        run: What distinguishes this run from others.

    Raises:
        FitplugError: The sampler of a worker fails its test, or a worker cannot reach the output.
    """
    if client is None:
        check_sampler_for(run, noise_std)
        return
    probes = output.probes
    probes.create(run, b"")
    try:
        _check_each(client, probes, run, noise_std)
    finally:
        probes.remove(run)


def check_process(place: Place, run: str, noise_std: float) -> Fault | None:
    """Test the sampler of this process, and that it sees a file; return what is wrong."""

    def check() -> None:
        check_sampler_for(run, noise_std)
        try:
            place.read(run)
        except FileNotFoundError:
            raise FitplugError(
                f"a worker does not see {place}; nothing was charged; give an output that all "
                "workers share, under the same path"
            ) from None

    return report_faults(check, place)


def _check_each(client: Any, place: Place, run: str, noise_std: float) -> None:
    """Run the test on each worker. Raises FitplugError if one fails it, or does not answer."""
    tasks = SingleTasks(client, run, RELEASE_PACKAGES)
    pending = {
        address: raise_fault(
            tasks.submit("test-sampler", check_process, place, run, noise_std, worker=address)
        )
        for address in read_threads(client)
    }
    end = time.monotonic() + _SECONDS
    while pending:
        if time.monotonic() > end:
            raise FitplugError(
                f"{next(iter(pending))} did not test its sampler in {_SECONDS} seconds; nothing "
                "was charged; see why this worker is slow, or end it"
            )
        for address in [a for a, future in pending.items() if future.done()]:
            try:
                result = tasks.fetch(pending[address], _RESULT_SECONDS)
            except FitplugError:  # the worker is lost with its result, or is asked once more
                continue
            raise_fault(result)
            del pending[address]
        # A worker that is gone meanwhile need not answer.
        there = read_threads(client)
        pending = {a: future for a, future in pending.items() if a in there}
        time.sleep(_PAUSE)
