"""Rational approximations of x^-1/2: sums of omega / (x + tau) with positive omega and tau.

These are the quadratures of Hale, Higham and Trefethen (2008, method 3) of the integral of
1 / (x + t^2). The relative error is at most 3e-7 for x in an interval whose ends have a ratio of up
to 10^12, and 3e-5 for a ratio of 10^16. Only the optimizer uses them: no claim of a plan depends on
their error.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ellipj, ellipk

from fitplug.numeric import FloatArray, freeze

POLES, _MORE_POLES = 14, 28
"""The number of terms, for intervals of up to 10^6 and for wider ones."""

_WIDE = 1e6

_BINS_PER_DECADE, _DECADES = 2, 16


class Poles(NamedTuple):
    """The terms for several intervals.

    Attributes:
        tau: Shape (b, poles).
        omega: Shape (b, poles).
    """

    tau: FloatArray
    omega: FloatArray


def place_poles(least: FloatArray, largest: FloatArray) -> Poles:
    """Place the poles for intervals [least, largest] of positive numbers, each of shape (b,)."""
    ratios = np.maximum(largest / least, 1.0)
    tau, omega = _tabulate(POLES if (ratios <= _WIDE).all() else _MORE_POLES)
    decades = np.log10(ratios)
    index = np.clip(np.ceil(decades * _BINS_PER_DECADE).astype(np.int64) - 1, 0, len(tau) - 1)
    return Poles(tau[index] * least[:, None], omega[index] * np.sqrt(least)[:, None])


@lru_cache(maxsize=2)
def _tabulate(count: int) -> Poles:
    """Tabulate that many poles for the intervals [1, 10^(i/2)], i = 1, 2, ..."""
    exponents = np.arange(1, _BINS_PER_DECADE * _DECADES + 1) / _BINS_PER_DECADE
    complement = 1 - 10.0**-exponents
    period = ellipk(complement)[:, None]
    at = (np.arange(count) + 0.5) * period / count
    sn, cn, dn, _ = ellipj(at, complement[:, None])
    return freeze(Poles((sn / cn) ** 2, 2 * period / (np.pi * count) * dn / cn**2))
