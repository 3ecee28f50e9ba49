"""Conversions between a privacy cost and (epsilon, delta), each to the safe side.

For discrete Gaussian noise of a known `CurveLoss` the curve of the Gaussian mechanism is proven:
(Z5) with Theorem 4. It is compared with the conversion from rho alone, (Z2) and (Z4), which holds
for every mechanism of that rho, and the better one is taken.

All numbers that say a budget are checked here: rho, epsilon, delta, and a person's records.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import brentq

from fitplug.errors import BudgetError
from fitplug.numeric import ExactNumber, floor_float, read_exact_number
from fitplug.privacy.curves import (
    CONTINUOUS,
    SAFE,
    USUAL,
    CurveLoss,
    compute_gaussian_log_delta,
    compute_zcdp_epsilon,
    compute_zcdp_log_delta,
)

_LEAST_RHO, _LARGEST_RHO = Fraction(1, 10**30), Fraction(10**12)

_EXACT = (Fraction, Decimal)


def read_rho(rho: ExactNumber) -> Fraction:
    """Read a rho that a person writes, such as 0.1 for one tenth: see `read_exact_number`.

    Raises:
        BudgetError: `rho` is not a number from 1e-30 to 1e12.
    """
    exact = read_exact_number(rho) if _is_plain_number(rho) or type(rho) in _EXACT else None
    if exact is None or not _LEAST_RHO <= exact <= _LARGEST_RHO:
        raise BudgetError(f"rho must be a number from 1e-30 to 1e+12, not {rho!r}")
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
        raise BudgetError(f"delta must be above 0 and below 1, not {delta!r}")
    _check_range("delta", delta, 1e-300, 1.0)


def check_budget(rho: object, epsilon: object, delta: object) -> None:
    """Check that rho is given, or epsilon with delta, or none of the three.

    Raises:
        BudgetError: Another combination is given.
    """
    if rho is not None and (epsilon is not None or delta is not None):
        raise BudgetError("give rho, or epsilon with delta, not both")
    if (epsilon is None) != (delta is None):
        raise BudgetError("epsilon and delta must be given together")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise BudgetError unless `value` is a finite number from `low` to `high`."""
    if not _is_plain_number(value) or not low <= value <= high:
        raise BudgetError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")


def _is_plain_number(value: Any) -> bool:
    """Return whether the type of a value is exactly int, float or NumPy's float."""
    # An instance of a subclass could compare as another number than the one it converts to.
    return type(value) in (int, float, np.float64)


_SMALLEST_COST, _LARGEST_COST = 1e-9, 1e6
"""A smaller cost is converted as the first, and a larger one as no protection: both are safe."""


def epsilon_at(privacy_cost: float, delta: float, loss: CurveLoss | None = None) -> float:
    """Compute the least proven epsilon at a delta, rounded up.

    Args:
        privacy_cost: Delta >= 0 of the neighbours meant, not its square; rho is Delta^2 / 2.
        delta: Strictly between 0 and 1.
        loss: The loss on the Gaussian curve of the noise of all releases with this total cost. If
            None, only rho is used.

    Returns:
        epsilon >= 0; infinity for a privacy cost above 1e6.

    Raises:
        BudgetError: `delta` is out of range.

    Example:
        >>> from fitplug.privacy import CONTINUOUS
        >>> round(epsilon_at(1.0, 1e-6), 2), round(epsilon_at(1.0, 1e-6, CONTINUOUS), 2)
        (5.22, 4.89)
    """
    check_delta(delta)
    if privacy_cost > _LARGEST_COST:
        return math.inf
    privacy_cost = max(privacy_cost, _SMALLEST_COST)
    epsilon = compute_zcdp_epsilon(privacy_cost**2 / 2, delta)
    if loss is None:
        return epsilon
    cost = _stretch(privacy_cost, loss)
    if cost > _LARGEST_COST:
        return epsilon
    return _lower_to_curve(epsilon, cost, delta, loss.log_ratio)


def delta_at(privacy_cost: float, epsilon: float, loss: CurveLoss | None = None) -> float:
    """Compute the least proven delta at an epsilon, rounded up.

    Args:
        privacy_cost: Delta >= 0 of the neighbours meant, not its square; rho is Delta^2 / 2.
        epsilon: Zero or more.
        loss: As for `epsilon_at`.

    Returns:
        delta, at least the smallest normal float and at most 1.

    Raises:
        BudgetError: `epsilon` is out of range.

    Example:
        >>> from fitplug.privacy import CONTINUOUS
        >>> delta_at(1.0, 4.89, CONTINUOUS) < 1e-6 < delta_at(1.0, 4.89)
        True
    """
    if epsilon != 0:
        check_epsilon(epsilon)
    if privacy_cost > _LARGEST_COST:
        return 1.0
    privacy_cost = max(privacy_cost, _SMALLEST_COST)
    delta = _round_delta(compute_zcdp_log_delta(privacy_cost**2 / 2, epsilon))
    if loss is None:
        return delta
    cost = _stretch(privacy_cost, loss)
    if cost > _LARGEST_COST:
        return delta
    ratio = loss.log_ratio
    curve = _round_delta(compute_gaussian_log_delta(cost, max(0.0, epsilon - 2 * ratio)) + ratio)
    if epsilon < 2 * ratio:
        # (2 log R, d) implies (epsilon, d + R^2 - 1).
        curve = min(1.0, (curve + math.expm1(2 * min(ratio, 1.0))) * (1 + SAFE))
    return min(delta, curve)


def rho_at(epsilon: float, delta: float, loss: CurveLoss | None = None) -> float:
    """Compute the largest rho that is proven to give (epsilon, delta), rounded down.

    Args:
        epsilon: The epsilon of the budget.
        delta: The delta of the budget.
        loss: As for `epsilon_at`, which this inverts.

    Returns:
        rho > 0.

    Raises:
        BudgetError: `epsilon` or `delta` is out of range, or rho would be below 5e-19.

    Example:
        >>> from fitplug.privacy import CONTINUOUS
        >>> round(rho_at(1.0, 1e-9), 5), round(rho_at(1.0, 1e-9, CONTINUOUS), 5)
        (0.01252, 0.01385)
    """
    check_epsilon(epsilon)
    check_delta(delta)
    rho = _invert_zcdp(epsilon, delta)
    if loss is not None and epsilon > 4 * loss.log_ratio and loss.stretch < math.inf:
        # Twice the ratios, so that rounding on the way back finds room.
        cost = _invert_curve(epsilon - 4 * loss.log_ratio, math.log(delta) - 2 * loss.log_ratio)
        rho = max(rho, cost**2 / 2 / loss.stretch * (1 - SAFE))
        rho = _lower_until(rho, lambda cost: epsilon_at(cost, delta, loss) <= epsilon)
    if rho < _SMALLEST_COST**2 / 2:
        raise BudgetError(
            f"epsilon = {epsilon!r} at delta = {delta!r} is below the least rho, "
            f"{_SMALLEST_COST**2 / 2:g}. Raise epsilon or delta."
        )
    return rho


def rho_of_budget(epsilon: float, delta: float, loss: CurveLoss = CONTINUOUS) -> float:
    """Compute the rho that a budget of (epsilon, delta) allows for Gaussian noise, rounded down.

    Room is left for the usual loss, a billionth of rho, so that this is one number for almost all
    plans and ledgers. For a larger loss, the result is the larger of two numbers: the rho that a
    ledger allows for it, and the rho of the conversion from rho alone.

    Args:
        epsilon: The epsilon of the budget.
        delta: The delta of the budget.
        loss: The loss of the noise, if it is known.

    Returns:
        rho > 0.

    Raises:
        BudgetError: As for `rho_at`.
    """
    usual = rho_at(epsilon, delta, USUAL)
    if not loss.exceeds(USUAL):
        return usual
    return max(rho_at(epsilon, delta), floor_float(loss.limit_rho(Fraction(usual))))


def _stretch(privacy_cost: float, loss: CurveLoss) -> float:
    """Return the cost of the continuous noise of Theorem 4, rounded up."""
    return privacy_cost * (math.sqrt(loss.stretch) * (1 + 1e-15) if loss.stretch > 1 else 1.0)


def _round_delta(log_delta: float) -> float:
    """Return delta from its computed log, rounded up by more than the error of the log."""
    safe = log_delta + 1e-12 * (1 + abs(log_delta))
    # Below the smallest normal float, floats lose digits, so no smaller delta is returned.
    return min(1.0, max(math.exp(min(0.0, safe)), sys.float_info.min))


def _lower_log(log_delta: float, margin: float = 1e-12) -> float:
    """Return a number below log(delta) by more than the error of `compute_gaussian_log_delta`."""
    return log_delta - margin * (1 + abs(log_delta))


def _lower_to_curve(epsilon: float, cost: float, delta: float, log_ratio: float) -> float:
    """Return the least epsilon of the curve at this cost and ratio, or `epsilon` if it is less."""
    log_bound = _lower_log(math.log(delta) - log_ratio)

    def distance(epsilon: float) -> float:
        return compute_gaussian_log_delta(cost, epsilon) - log_bound

    above = max(epsilon, 1e-12)
    if distance(above) > 0:
        return epsilon
    root = 0.0 if distance(0.0) <= 0 else _find_root_below(distance, above)
    return min(epsilon, root if log_ratio == 0 else (root + 2 * log_ratio) * (1 + 1e-15))


def _invert_curve(epsilon: float, log_delta: float) -> float:
    """Compute the largest cost whose curve allows epsilon and log(delta), rounded down."""
    # This step down is larger than the steps up of `delta_at` and `epsilon_at`, so that both
    # convert the result back to at most the delta and the epsilon given.
    log_bound = _lower_log(log_delta, 4e-12)

    def distance(log_cost: float) -> float:
        return compute_gaussian_log_delta(math.exp(log_cost), epsilon) - log_bound

    low, high = -40.0, 10.0
    while distance(low) > 0:
        low -= 20
    while distance(high) < 0:
        high += 2
    log_cost = float(brentq(distance, low, high, xtol=1e-15, rtol=1e-14, maxiter=500))
    cost = math.exp(log_cost) * (1 - SAFE)
    while distance(math.log(cost)) > 0:
        cost *= 1 - SAFE
    return cost


def _invert_zcdp(epsilon: float, delta: float) -> float:
    """Compute the largest rho whose conversion gives epsilon; 0 if it is below the smallest."""

    def distance(log_cost: float) -> float:
        return epsilon_at(math.exp(log_cost), delta) - epsilon

    low, high = math.log(_SMALLEST_COST) + 1e-9, math.log(_LARGEST_COST) - 1e-9
    if distance(low) > 0:
        return 0.0
    log_cost = float(brentq(distance, low, high, xtol=1e-15, rtol=1e-14, maxiter=500))
    rho = math.exp(2 * log_cost) / 2 * (1 - SAFE)
    return _lower_until(rho, lambda cost: epsilon_at(cost, delta) <= epsilon)


def _lower_until(rho: float, is_allowed: Callable[[float], bool]) -> float:
    """Lower rho until its cost is allowed, where a charge of rho has its square root rounded up.

    It ends below the smallest rho that is converted, all of which are converted as that one.
    """
    step = SAFE
    while rho >= _SMALLEST_COST**2 / 2 and not is_allowed(math.sqrt(2 * rho) * (1 + 1e-15)):
        rho *= 1 - step
        step *= 2
    return rho


def _find_root_below(function: Callable[[float], float], above: float) -> float:
    """Find a number > 0 next to a root of a decreasing function, where the function is <= 0."""
    root = float(brentq(function, 0.0, above, xtol=1e-300, rtol=1e-14, maxiter=500))
    step = SAFE
    while function(root) > 0:
        root *= 1 + step
        step *= 2
    return root
