"""Rational approximations of x^-1/2: sums of omega / (x + tau) with positive omega and tau.

These are the quadratures of Hale, Higham and Trefethen (2008, method 3) of the integral of
1 / (x + t^2). With `POLES` poles the relative error is at most 3e-7 for x in an interval whose ends
have a ratio of 10^6, 1e-4 for a ratio of 10^10, and 1 % for a ratio of 10^16. Only the optimizer
uses them: no claim of a plan depends on their error.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ellipj, ellipk

from fitplug.numeric import FloatArray, freeze

POLES = 14
"""The number of terms."""

_BINS_PER_DECADE, _DECADES = 2, 16


class Poles(NamedTuple):
    """The terms for several intervals.

    Attributes:
        tau: Shape (b, POLES).
        omega: Shape (b, POLES).
    """

    tau: FloatArray
    omega: FloatArray


def place_poles(least: FloatArray, largest: FloatArray) -> Poles:
    """Place the poles for intervals [least, largest] of positive numbers, each of shape (b,)."""
    tau, omega = _tabulate()
    decades = np.log10(np.maximum(largest / least, 1.0))
    index = np.clip(np.ceil(decades * _BINS_PER_DECADE).astype(np.int64) - 1, 0, len(tau) - 1)
    return Poles(tau[index] * least[:, None], omega[index] * np.sqrt(least)[:, None])


@lru_cache(maxsize=1)
def _tabulate() -> Poles:
    """Tabulate the poles for the intervals [1, 10^(i/2)], i = 1, 2, ..."""
    exponents = np.arange(1, _BINS_PER_DECADE * _DECADES + 1) / _BINS_PER_DECADE
    complement = 1 - 10.0**-exponents
    period = ellipk(complement)[:, None]
    at = (np.arange(POLES) + 0.5) * period / POLES
    sn, cn, dn, _ = ellipj(at, complement[:, None])
    return freeze(Poles((sn / cn) ** 2, 2 * period / (np.pi * POLES) * dn / cn**2))
