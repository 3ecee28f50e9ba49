"""Rational approximations of x^-1/2: sums of omega / (x + tau) with positive omega and tau.

These are the quadratures of Hale, Higham and Trefethen (2008, method 3) of the integral of
1 / (x + t^2), with as many poles as a wanted relative error takes. Only the optimizer uses them: no
claim of a plan depends on their error.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ellipj, ellipk

from fitplug.numeric import FloatArray, freeze

_ERROR = 1e-9
"""The relative error that is wanted where none is given."""

_BINS_PER_DECADE, _DECADES = 2, 16


class Poles(NamedTuple):
    """The terms for several intervals.

    Attributes:
        tau: Shape (b, poles).
        omega: Shape (b, poles).
    """

    tau: FloatArray
    omega: FloatArray


def place_poles(least: FloatArray, largest: FloatArray, error: float = _ERROR) -> Poles:
    """Place the poles for intervals of positive numbers.

    Args:
        least: The lower ends of the intervals, shape (b,).
        largest: The upper ends, shape (b,).
        error: The relative error that is wanted. It is nearly reached for ratios of at most 10^15.
    """
    decades = np.log10(np.maximum(largest / least, 1.0))
    index = np.ceil(decades * _BINS_PER_DECADE).astype(np.int64) - 1
    index = np.clip(index, 0, _BINS_PER_DECADE * _DECADES - 1)
    tau, omega = _tabulate(_count_poles(int(index.max()), error))
    return Poles(tau[index] * least[:, None], omega[index] * np.sqrt(least)[:, None])


def _count_poles(index: int, error: float) -> int:
    """Count the poles that the interval [1, 10^((index + 1) / 2)] takes.

    The error of n poles is about 4 exp(-pi^2 n / K), K the period of the elliptic functions.
    """
    period = ellipk(1 - 10.0 ** (-(index + 1) / _BINS_PER_DECADE))
    return max(math.ceil(period * math.log(4 / error) / math.pi**2), 1)


@lru_cache(maxsize=64)
def _tabulate(count: int) -> Poles:
    """Tabulate that many poles for the intervals [1, 10^(i/2)], i = 1, 2, ..."""
    exponents = np.arange(1, _BINS_PER_DECADE * _DECADES + 1) / _BINS_PER_DECADE
    complement = 1 - 10.0**-exponents
    period = ellipk(complement)[:, None]
    at = (np.arange(count) + 0.5) * period / count
    sn, cn, dn, _ = ellipj(at, complement[:, None])
    return freeze(Poles((sn / cn) ** 2, 2 * period / (np.pi * count) * dn / cn**2))
