"""The one place where noise comes from: OpenDP's discrete Gaussian on integer vectors."""

from __future__ import annotations

import math
from fractions import Fraction
from types import ModuleType
from typing import Any

from fitplug.errors import BudgetError
from fitplug.plan import Plan
from fitplug.rounding import ceil_float
from fitplug.strategy import LARGEST_NOISE, LEAST_NOISE


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
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=len(plan.strategy.M))
    std = plan.noise_std * scale
    if not LEAST_NOISE <= std <= LARGEST_NOISE:
        raise BudgetError(
            f"scale = {scale!r} leaves next to no noise, or more than 64-bit integers hold"
        )
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=std)


def sensitivity(plan: Plan, records: int) -> float:
    """L2 sensitivity of the plan's exact answers to `records` records added or removed, rounded
    up: each of them moves one cell by one.
    """
    return ceil_float(records * Fraction(plan.strategy.sensitivity))
