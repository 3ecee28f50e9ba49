"""OpenDP's discrete Gaussian sampler on integer vectors: the only source of noise."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from queue import SimpleQueue
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import BudgetError
from fitplug.families import LARGEST_NOISE, LEAST_NOISE
from fitplug.numeric import ceil_float
from fitplug.plan import Plan
from fitplug_opendp._compat import import_opendp

IntVector: TypeAlias = npt.NDArray[np.int64]
Progress: TypeAlias = Callable[[int, int], object]
"""A function that is called with the number of answers drawn, and the number of all answers."""

Sampler: TypeAlias = Callable[[IntVector, Progress | None], IntVector]
"""A function of exact answers (n,) that returns noisy answers (n,)."""

_CHUNK = 2**14
"""The number of answers that one call of OpenDP draws, in about a third of a second."""


def make_noise(plan: Plan, scale: float = 1.0) -> Any:
    """Make the OpenDP measurement that adds the plan's noise to its exact answers.

    OpenDP's feature "contrib" must be switched on.

    Args:
        plan: The plan with n strategy answers.
        scale: The factor on the standard deviation of the noise, which is scale * plan.noise_std.

    Returns:
        A Measurement on i64 vectors (n,) under the L2 distance, with zCDP as its output measure.

    Raises:
        BudgetError: The scale is not positive and finite, or the noise has a size that the sampler
            cannot draw exactly.
    """
    if not isinstance(scale, (int, float)) or not 0 < scale < math.inf:
        # OpenDP accepts a scale of 0, and then releases the exact answers.
        raise BudgetError(f"scale = {scale!r} must be a finite number greater than 0")
    dp = import_opendp()
    std = plan.noise_std * scale
    if not LEAST_NOISE <= std <= LARGEST_NOISE:
        raise BudgetError(
            f"scale = {scale!r} makes the noise too small or too large. Choose a scale nearer to 1."
        )
    return make_gaussian(dp, plan.strategy.size, std)


def make_sampler(
    size: int, noise_std: float, chunk_size: int | None = None, threads: int | None = None
) -> Sampler:
    """Make a function that adds noise to exact answers (n,).

    A long vector is drawn in chunks, on as many threads as there are processors, because OpenDP's
    sampler releases Python's lock. The noise of each answer is independent of the others, so the
    chunks together have the distribution of one draw of the long vector.

    OpenDP's feature "contrib" must be switched on when the function is made, but not when it runs.

    Args:
        size: The number n of answers.
        noise_std: The standard deviation of the noise.
        chunk_size: The most answers that one call of OpenDP draws; None for the default.
        threads: The most threads that draw at once; None for as many as there are processors.
    """
    dp = import_opendp()
    chunk_size = chunk_size or _CHUNK
    starts = range(0, size, chunk_size)
    lengths = {min(chunk_size, size - start) for start in starts}
    workers = max(1, min(len(starts), threads or os.cpu_count() or 1))
    # Each thread has its own measurements, because OpenDP does not promise that threads may share
    # them.
    free: SimpleQueue[dict[int, Any]] = SimpleQueue()
    for _ in range(workers):
        free.put({length: make_gaussian(dp, length, noise_std) for length in lengths})

    def draw(answers: IntVector, progress: Progress | None = None) -> IntVector:
        drawn = np.empty(size, dtype=np.int64)

        def draw_chunk(start: int) -> int:
            chunk = answers[start : start + chunk_size]
            measurements = free.get()
            try:
                drawn[start : start + len(chunk)] = measurements[len(chunk)](chunk)
            finally:
                free.put(measurements)
            return len(chunk)

        done = 0
        with ThreadPoolExecutor(workers) as pool:
            for count in pool.map(draw_chunk, starts):
                done += count
                if progress is not None:
                    progress(done, size)
        return drawn

    return draw


def upper_sensitivity(plan: Plan, records: int) -> float:
    """Compute the L2 sensitivity of the plan's exact answers, rounded up.

    Args:
        plan: The plan.
        records: The number of records added or removed, or replaced, each of which changes the
            counts by one difference of the plan's unit of privacy. A person has
            `plan.strategy.structure.changes` of them.

    Returns:
        The sensitivity of the plan's strategy to `records` records.
    """
    return ceil_float(
        plan.strategy.structure.compare_records(records) * Fraction(plan.strategy.sensitivity)
    )


def make_gaussian(dp: ModuleType, size: int, std: float) -> Any:
    """Make OpenDP's Gaussian measurement with this standard deviation on i64 vectors (size,)."""
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=size)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=std)
