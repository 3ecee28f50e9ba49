"""The one place where noise comes from: OpenDP's discrete Gaussian on integer vectors."""

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
from fitplug.mechanism import LARGEST_NOISE, LEAST_NOISE
from fitplug.numeric import ceil_float
from fitplug.plan import Plan

Integers: TypeAlias = npt.NDArray[np.int64]
Progress: TypeAlias = Callable[[int, int], object]

_PART = 2**14
"""Answers drawn at a time, about a third of a second's."""


def opendp() -> ModuleType:
    """OpenDP's prelude. Raises ImportError saying which extra to install."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise ImportError(
            'fitplug_opendp needs OpenDP; install it with: pip install "fitplug[opendp]"'
        ) from None
    return dp


def noise(plan: Plan, scale: float = 1.0) -> Any:
    """OpenDP measurement that adds the plan's noise to its exact answers, an i64 vector (n,)
    under the L2 distance. Its standard deviation is scale * plan.noise_std.

    Needs OpenDP's feature "contrib". Raises BudgetError unless scale is positive and finite.
    """
    if not isinstance(scale, (int, float)) or not 0 < scale < math.inf:
        # OpenDP accepts a scale of 0, and then releases the exact answers.
        raise BudgetError(f"scale = {scale!r} must be a finite number greater than zero")
    dp = opendp()
    std = plan.noise_std * scale
    if not LEAST_NOISE <= std <= LARGEST_NOISE:
        raise BudgetError(
            f"scale = {scale!r} leaves next to no noise, or more than 64-bit integers hold"
        )
    return _gaussian(dp, plan.strategy.size, std)


def sampler(plan: Plan) -> Callable[[Integers, Progress | None], Integers]:
    """A function of the exact answers (n,) that adds the plan's noise.

    Long vectors are drawn in parts, on as many threads as there are processors (OpenDP's sampler
    releases Python's lock): the noise of each answer is independent of the others', so all parts
    together are what the whole would be. Needs "contrib" while it is made, not when it runs.
    """
    dp, whole = opendp(), plan.strategy.size
    starts = range(0, whole, _PART)
    sizes = {min(_PART, whole - start) for start in starts}
    workers = min(len(starts), os.cpu_count() or 1)
    # Measurements of its own for each thread: nothing is said of sharing them.
    free: SimpleQueue[dict[int, Any]] = SimpleQueue()
    for _ in range(workers):
        free.put({size: _gaussian(dp, size, plan.noise_std) for size in sizes})

    def draw(answers: Integers, progress: Progress | None = None) -> Integers:
        drawn = np.empty(whole, dtype=np.int64)

        def fill(start: int) -> int:
            part = answers[start : start + _PART]
            own = free.get()
            try:
                drawn[start : start + len(part)] = own[len(part)](part)
            finally:
                free.put(own)
            return len(part)

        done = 0
        with ThreadPoolExecutor(workers) as pool:
            for count in pool.map(fill, starts):
                done += count
                if progress is not None:
                    progress(done, whole)
        return drawn

    return draw


def _gaussian(dp: ModuleType, size: int, std: float) -> Any:
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=size)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=std)


def sensitivity(plan: Plan, records: int) -> float:
    """L2 sensitivity of the plan's exact answers to `records` records added or removed, rounded
    up: each of them moves one cell by one.
    """
    return ceil_float(records * Fraction(plan.strategy.sensitivity))
