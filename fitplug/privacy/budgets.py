"""Checks of the numbers that say a budget: rho, epsilon, delta, and a person's records."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from fitplug.errors import BudgetError
from fitplug.numeric import ExactNumber, read_exact_number

_LEAST_RHO, _LARGEST_RHO = Fraction(1, 10**30), Fraction(10**12)

_EXACT = (Fraction, Decimal)


def read_rho(rho: ExactNumber) -> Fraction:
    """Read a rho that a person writes, such as 0.1 for one tenth: see `read_exact_number`.

    Raises:
        BudgetError: `rho` is not a number from 1e-30 to 1e12.
    """
    exact = read_exact_number(rho) if _is_plain_number(rho) or type(rho) in _EXACT else None
    if exact is None or exact <= 0:
        raise BudgetError(f"rho = {rho!r} must be a finite number greater than zero")
    if not _LEAST_RHO <= exact <= _LARGEST_RHO:
        raise BudgetError(f"rho = {rho!r} must be between 1e-30 and 1e+12")
    return exact


def check_epsilon(epsilon: float) -> None:
    """Check that 1e-20 <= epsilon <= 1e9.

    Raises:
        BudgetError: `epsilon` is not such a number.
    """
    _check_range("epsilon", epsilon, 1e-20, 1e9)


def check_delta(delta: float) -> None:
    """Check that 1e-300 <= delta < 1.

    Raises:
        BudgetError: `delta` is not such a number.
    """
    if not _is_plain_number(delta) or not 0 < delta < 1:
        raise BudgetError(f"delta = {delta!r} must be between 0 and 1, both excluded")
    _check_range("delta", delta, 1e-300, 1.0)


def check_budget(rho: object, epsilon: object, delta: object) -> None:
    """Check that rho is given, or epsilon with delta, or none of the three.

    Raises:
        BudgetError: Another choice of them is given.
    """
    if rho is not None and (epsilon is not None or delta is not None):
        raise BudgetError("give rho, or epsilon with delta, not both")
    if (epsilon is None) != (delta is None):
        raise BudgetError("epsilon needs delta, and delta needs epsilon. Give both, or give rho.")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise BudgetError unless `value` is a finite number from `low` to `high`."""
    if not _is_plain_number(value) or not 0 < value < math.inf:
        raise BudgetError(f"{name} = {value!r} must be a finite number greater than zero")
    if not low <= value <= high:
        raise BudgetError(f"{name} = {value!r} must be between {low:g} and {high:g}")


def _is_plain_number(value: Any) -> bool:
    """Return whether the type of a value is exactly int, float or NumPy's float."""
    # An instance of a subclass could compare as another number than the one it converts to.
    return type(value) in (int, float, np.float64)
