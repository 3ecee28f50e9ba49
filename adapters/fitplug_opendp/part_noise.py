"""The noise of a part of a plan's answers, drawn wherever the part is made."""

from __future__ import annotations

import threading
from functools import lru_cache

from fitplug_opendp._compat import enable_contrib
from fitplug_opendp.gaussian import IntVector, make_sampler
from fitplug_opendp.sampler_check import check_sampler

_LOCK = threading.Lock()


def draw_part(answers: IntVector, noise_std: float, run: str) -> IntVector:
    """Add noise to some exact answers, on this thread, after a test of this process's sampler.

    The caller must have charged the ledger, if there is one, and must see to it that no other draw
    of these answers is ever published.

    Args:
        answers: The exact answers of the part, shape (n,).
        noise_std: The plan's standard deviation of the noise.
        run: What distinguishes this run from others; a process tests its sampler once for each.

    Returns:
        The noisy answers, shape (n,).

    Raises:
        SamplerError: OpenDP's sampler does not draw the noise that privacy is proven for.
        ImportError: OpenDP is not installed.
    """
    check_sampler_for(run, noise_std)
    with enable_contrib():
        sample = make_sampler(answers.size, noise_std, threads=1)
    return sample(answers, None)


def check_sampler_for(run: str, noise_std: float) -> None:
    """Test this process's sampler, unless it was tested for this run before.

    Raises:
        SamplerError: OpenDP's sampler does not draw the noise that privacy is proven for.
        ImportError: OpenDP is not installed.
    """
    with _LOCK:  # the other threads wait for the test that one of them makes
        _check_once(run, noise_std)


@lru_cache(maxsize=256)
def _check_once(run: str, noise_std: float) -> None:
    with enable_contrib():
        check_sampler(noise_std)
