"""The test of every worker before the ledger is charged: its sampler, and whether it can write."""

from __future__ import annotations

from functools import partial

from fitplug.errors import FitplugError
from fitplug.files import Place
from fitplug_dask.kernel import Fault
from fitplug_dask.releases.failures import report_faults
from fitplug_dask.releases.staging import Output
from fitplug_dask.workers import Runner
from fitplug_opendp.noise_source import check_sampler_for

_SECONDS = 120


def check_workers(runner: Runner, output: Output, noise_std: float, run: str) -> None:
    """Test all processes that may draw noise. Nothing is charged.

    A worker that joins later tests its sampler before its first draw.

    Args:
        runner: What runs the tasks.
        output: Where the release goes.
        noise_std: The standard deviation of the noise.
        run: What distinguishes this run from others.

    Raises:
        FitplugError: The sampler of a worker fails its test, or a worker cannot reach the output.
    """
    if runner.client is None:
        check_sampler_for(run, noise_std)
        return
    probes = output.probes
    probes.create(run, b"")
    try:
        check = partial(check_process, probes, run, noise_std)
        runner.run_on_each("test-sampler", check, _SECONDS)
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
