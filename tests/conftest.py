"""Shared by all tests: one Hypothesis profile, and BLAS on one thread."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

# Asserts of helpers then show their values as those of test modules do.
pytest.register_assert_rewrite("tests.helpers")

# Matrices here are small: on a busy machine, threads would only wait for each other. By the
# environment for what is loaded later and for the processes that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
threadpool_limits(1, user_api="blas")

# Workers in processes of their own start from one that has imported all that they need.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")

# Tests start some hundred processes, and each would compile all that it imports again. Both of
# pytest's workers and later runs would also rewrite the asserts of all test modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile(
    "fitplug",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("few", settings.get_profile("fitplug"), max_examples=20)


def pytest_configure(config: pytest.Config) -> None:
    """The default run takes fewer examples than the slow one and the long one."""
    settings.load_profile("few" if "not slow" in config.option.markexpr else "fitplug")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests live to the end: no search for garbage visits them."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Key files are kept apart from those of the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _sampler_is_tested_once() -> Iterator[None]:
    """OpenDP's sampler is tested once for each standard deviation in this process.

    Thousands of releases would each draw 6,144 numbers more before they charge. A sampler that a
    test puts in its place is tested as well, and one that fails its test is tested every time.
    """
    from fitplug_opendp import gaussian, noise_source

    real = noise_source.check_sampler

    @cache
    def check(noise_std: float, _sampler: object) -> None:
        real(noise_std)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_source, "check_sampler", lambda std: check(std, gaussian.make_gaussian))
        yield
