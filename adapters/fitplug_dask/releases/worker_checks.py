"""The test of every worker before the ledger is charged: its sampler, and whether it can write."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from fitplug.errors import FitplugError
from fitplug.files import LocalPlace, Place
from fitplug_dask.kernel import Fault
from fitplug_dask.releases.failures import report_faults
from fitplug_dask.releases.staging import Output
from fitplug_dask.scheduling import raise_fault
from fitplug_opendp.part_noise import check_sampler_for

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
    name = f".probe-{run}"
    if client is None:
        check_sampler_for(run, noise_std)
        return
    place = output.place
    if isinstance(place, LocalPlace):
        place = LocalPlace(place.path.parent, 0o600)
    place.create(name, b"")
    try:
        _check_each(client, place, run, noise_std)
    finally:
        place.remove(name)


def check_process(place: Place, run: str, noise_std: float) -> Fault | None:
    """Test the sampler of this process, and that it sees a file; return what is wrong."""

    def check() -> None:
        check_sampler_for(run, noise_std)
        try:
            place.read(f".probe-{run}")
        except FileNotFoundError:
            raise FitplugError(
                f"a worker does not see {place}; nothing was charged; give an output that all "
                "workers share, under the same path"
            ) from None

    return report_faults(check, place)


def _check_each(client: Any, place: Place, run: str, noise_std: float) -> None:
    """Run the test on each worker. Raises FitplugError if one fails it, or does not answer."""
    pending = {
        address: client.submit(
            check_process,
            place,
            run,
            noise_std,
            workers=[address],
            allow_other_workers=False,
            pure=False,
            key=f"fitplug-check-worker-{run}-{number}",
        )
        for number, address in enumerate(client.nthreads())
    }
    if not pending:
        raise FitplugError("the cluster has no workers; nothing was charged; start some")
    futures, end = list(pending.values()), time.monotonic() + _SECONDS
    try:
        while pending and time.monotonic() < end:
            for address in [a for a, future in pending.items() if future.done()]:
                with suppress(TimeoutError):  # the worker is lost, and its result with it
                    raise_fault(pending[address].result(timeout=_RESULT_SECONDS))
                    del pending[address]
            # A worker that is gone meanwhile need not answer.
            there = client.nthreads()
            pending = {a: future for a, future in pending.items() if a in there}
            time.sleep(_PAUSE)
    except FitplugError:
        raise
    except Exception as error:  # its words may be those of a worker
        raise _make_silence_error(type(error).__name__) from None
    finally:
        client.cancel(futures)
    if pending:
        raise _make_silence_error(f"no answer in {_SECONDS} seconds")


def _make_silence_error(why: str) -> FitplugError:
    """Make the error for a worker that cannot make the test."""
    return FitplugError(
        f"a worker did not make the test of its sampler ({why}); nothing was charged; check that "
        'all workers run the same version of "fitplug[all]"'
    )
