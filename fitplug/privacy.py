"""Privacy accounting: from a privacy cost to rho of zCDP and to (epsilon, delta), and back.

Delta is the privacy cost of a plan, and rho = Delta^2 / 2. There are two conversions to
(epsilon, delta). "gaussian" is the exact curve of the continuous Gaussian mechanism (the paper's
Theorem 3; Balle and Wang 2018). "zcdp" follows from rho alone and is the conversion that is proven
for the discrete noise that is drawn (Canonne, Kamath and Steinke 2020, Proposition 12).

The statements, their proofs and the margins for rounding are in docs/theory/privacy.md; equations
(Z1), (Z2), ... are those of that page.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, log_ndtr, ndtr

from fitplug.errors import BudgetError, InputError
from fitplug.numeric import read_exact_number

Method: TypeAlias = Literal["gaussian", "zcdp"]

_SMALLEST_COST, _LARGEST_COST = 1e-9, 1e6
"""A smaller cost is converted as the first, and a larger one as no protection: both are safe."""

_SAFE = 1e-11
"""A relative step to the safe side, larger than the error of the special functions used here."""

_ROUNDING = 1e-14
"""A bound on the rounding error of a sum of the terms of (Z2) or (Z4), relative to the sum of
their absolute values. Each term is computed with a few roundings of 1.1e-16.
"""


def check_rho(rho: float) -> None:
    """Check that 1e-30 <= rho <= 1e12.

    Raises:
        BudgetError: `rho` is no such number.
    """
    _check_range("rho", rho, 1e-30, 1e12)


def read_rho(rho: float) -> Fraction:
    """Read a rho that a person writes, such as 0.1 for one tenth: see `read_exact_number`.

    Raises:
        BudgetError: `rho` is no number that `check_rho` allows.
    """
    check_rho(rho)
    exact = read_exact_number(rho)
    assert exact is not None
    return exact


def check_epsilon(epsilon: float) -> None:
    """Check that 1e-20 <= epsilon <= 1e9.

    Raises:
        BudgetError: `epsilon` is no such number.
    """
    _check_range("epsilon", epsilon, 1e-20, 1e9)


def check_delta(delta: float) -> None:
    """Check that 1e-300 <= delta < 1.

    Raises:
        BudgetError: `delta` is no such number.
    """
    if not _is_plain_number(delta) or not 0 < delta < 1:
        raise BudgetError(f"delta = {delta!r} must lie strictly between 0 and 1")
    _check_range("delta", delta, 1e-300, 1.0)


def check_budget(rho: object, epsilon: object, delta: object) -> None:
    """Check that rho is given, or epsilon with delta, or none of the three.

    Raises:
        BudgetError: Another choice of them is given.
    """
    if rho is not None and (epsilon is not None or delta is not None):
        raise BudgetError("give rho, or epsilon with delta, not both")
    if (epsilon is None) != (delta is None):
        raise BudgetError("epsilon and delta go together; give both, or rho")


MOST_CONTRIBUTIONS = 10**6
"""The largest number of records that one person may have."""


def check_contributions(contributions: Any, error: type[InputError] = BudgetError) -> None:
    """Raise an error, BudgetError by default, unless 1 <= contributions <= MOST_CONTRIBUTIONS."""
    # No subclass of int, and no bool: rho is multiplied by the square of this number.
    if type(contributions) is not int or not 1 <= contributions <= MOST_CONTRIBUTIONS:
        raise error(
            f"contributions = {contributions!r} must be an integer from 1 to "
            f"{MOST_CONTRIBUTIONS}, the most records that one person may have"
        )


def _check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise BudgetError unless `value` is a finite number from `low` to `high`."""
    if not _is_plain_number(value) or not 0 < value < math.inf:
        raise BudgetError(f"{name} = {value!r} must be a finite number greater than zero")
    if not low <= value <= high:
        raise BudgetError(f"{name} = {value!r} must lie between {low:g} and {high:g}")


def _is_plain_number(value: Any) -> bool:
    """Return whether the type of a value is exactly int, float or NumPy's float."""
    # An instance of a subclass could compare as another number than the one it converts to.
    return type(value) in (int, float, np.float64)


def epsilon_at(privacy_cost: float, delta: float, method: Method = "gaussian") -> float:
    """Compute the least epsilon at a delta, rounded up.

    Args:
        privacy_cost: Delta >= 0 of the neighbours meant, not its square.
        delta: Strictly between 0 and 1.
        method: "gaussian" for (Z5), "zcdp" for (Z4).

    Returns:
        epsilon >= 0; infinity for a privacy cost above 1e6.

    Raises:
        BudgetError: `delta` is out of range, or the method is unknown.
    """
    check_delta(delta)
    if privacy_cost > _LARGEST_COST:
        return math.inf
    privacy_cost = max(privacy_cost, _SMALLEST_COST)
    _check_method(method)
    if method == "zcdp":
        return _compute_zcdp_epsilon(privacy_cost**2 / 2, delta)
    log_bound = _lower_log(delta)

    def distance(epsilon: float) -> float:
        return _compute_gaussian_log_delta(privacy_cost, epsilon) - log_bound

    if distance(0.0) <= 0:
        return 0.0
    above = max(_compute_zcdp_epsilon(privacy_cost**2 / 2, delta), 1e-12)
    return _find_root_from_above(distance, above)


def delta_at(privacy_cost: float, epsilon: float, method: Method = "gaussian") -> float:
    """Compute the least delta at an epsilon, rounded up.

    Args:
        privacy_cost: Delta >= 0 of the neighbours meant, not its square.
        epsilon: Zero or more.
        method: "gaussian" for (Z5), "zcdp" for (Z2).

    Returns:
        delta, at least the smallest normal float and at most 1.

    Raises:
        BudgetError: `epsilon` is out of range, or the method is unknown.
    """
    if epsilon != 0:
        check_epsilon(epsilon)
    if privacy_cost > _LARGEST_COST:
        return 1.0
    privacy_cost = max(privacy_cost, _SMALLEST_COST)
    _check_method(method)
    if method == "zcdp":
        log_delta = _compute_zcdp_log_delta(privacy_cost**2 / 2, epsilon)
    else:
        log_delta = _compute_gaussian_log_delta(privacy_cost, epsilon)
    # The step is larger than the error of log_delta. Below the smallest normal float, floats lose
    # digits, so no smaller delta is returned.
    safe = log_delta + 1e-12 * (1 + abs(log_delta))
    return min(1.0, max(math.exp(min(0.0, safe)), sys.float_info.min))


def privacy_cost_at(epsilon: float, delta: float) -> float:
    """Compute the largest privacy cost whose Gaussian curve allows (epsilon, delta), rounded down.

    This inverts the paper's Theorem 3, (Z5).

    Returns:
        Delta > 0, not its square.

    Raises:
        BudgetError: `epsilon` or `delta` is out of range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    # This step down is larger than the steps up of `delta_at` and `epsilon_at`, so that both
    # convert the result back to at most the delta and the epsilon given.
    log_bound = _lower_log(delta, 4e-12)

    def distance(log_cost: float) -> float:
        return _compute_gaussian_log_delta(math.exp(log_cost), epsilon) - log_bound

    low, high = -40.0, 10.0
    while distance(low) > 0:
        low -= 20
    while distance(high) < 0:
        high += 2
    log_cost = float(brentq(distance, low, high, xtol=1e-15, rtol=1e-14, maxiter=500))
    cost = math.exp(log_cost) * (1 - _SAFE)
    while distance(math.log(cost)) > 0:
        cost *= 1 - _SAFE
    return cost


def rho_at(epsilon: float, delta: float) -> float:
    """Compute the largest rho that is proven to give (epsilon, delta), rounded down.

    This is the inverse of `epsilon_at` with the method "zcdp".

    Raises:
        BudgetError: `epsilon` or `delta` is out of range, or rho would be below 5e-19.
    """
    check_epsilon(epsilon)
    check_delta(delta)

    def distance(log_cost: float) -> float:
        return epsilon_at(math.exp(log_cost), delta, "zcdp") - epsilon

    low, high = math.log(_SMALLEST_COST) + 1e-9, math.log(_LARGEST_COST) - 1e-9
    if distance(low) > 0:
        raise BudgetError(
            f"epsilon = {epsilon!r} at delta = {delta!r} leaves a rho below "
            f"{_SMALLEST_COST**2 / 2:g}: give more of one of them"
        )
    log_cost = float(brentq(distance, low, high, xtol=1e-15, rtol=1e-14, maxiter=500))
    rho, step = math.exp(2 * log_cost) / 2 * (1 - _SAFE), _SAFE
    # A charge of all of rho is converted back from its square root rounded up.
    while epsilon_at(math.sqrt(2 * rho) * (1 + 1e-15), delta, "zcdp") > epsilon:
        rho *= 1 - step
        step *= 2
    return rho


def _lower_log(delta: float, margin: float = 1e-12) -> float:
    """Return a number below log(delta) by more than the error of `_compute_gaussian_log_delta`."""
    log_bound = math.log(delta)
    return log_bound - margin * (1 + abs(log_bound))


def _check_method(method: Method) -> None:
    """Raise BudgetError unless the method is known."""
    if method not in ("gaussian", "zcdp"):
        raise BudgetError(f"method = {method!r} is unknown; use 'gaussian' or 'zcdp'")


def _find_root_from_above(function: Callable[[float], float], above: float) -> float:
    """Find a number > 0 next to a root of a decreasing function, where the function is <= 0."""
    while function(above) > 0:
        above *= 1 + 1e-6
    found = float(brentq(function, 0.0, above, xtol=1e-300, rtol=1e-14, maxiter=500))
    step = _SAFE
    while function(found) > 0:
        found *= 1 + step
        step *= 2
    return found


def _compute_gaussian_log_delta(cost: float, epsilon: float) -> float:
    """Compute log(delta) of the Gaussian curve (Z5) without cancellation, by (Z8)."""
    t = epsilon / cost - cost / 2
    log_phi = -t * t / 2 - math.log(2 * math.pi) / 2
    if t < 0:
        far = math.exp(log_phi) * _compute_mills_ratio(t + cost) if t > -38 else 0.0
        near = float(ndtr(-t))
        if far < 0.5 * near:
            return math.log(near - far)
    difference = _compute_mills_drop(t, cost)
    if difference <= 0:
        # Both terms agree to the last bit. The first one alone is an upper bound.
        return float(log_ndtr(-t))
    return log_phi + math.log(difference)


def _compute_mills_ratio(x: float) -> float:
    """Compute the Mills ratio (1 - Phi(x)) / phi(x)."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


_QUADRATURE = (
    (0.04691007703066800, 0.11846344252809454),
    (0.23076534494715845, 0.23931433524968324),
    (0.5, 0.28444444444444444),
    (0.76923465505284155, 0.23931433524968324),
    (0.95308992296933200, 0.11846344252809454),
)
"""The nodes and weights of Gauss-Legendre quadrature with 5 points on (0, 1)."""


def _compute_mills_drop(t: float, step: float) -> float:
    """Compute mills(t) - mills(t + step), for small steps as the integral of 1 - x mills(x)."""
    if step > 0.02:
        return _compute_mills_ratio(t) - _compute_mills_ratio(t + step)
    nodes = [(t + step * node, weight) for node, weight in _QUADRATURE]
    return step * sum(weight * (1 - x * _compute_mills_ratio(x)) for x, weight in nodes)


def _compute_zcdp_epsilon(rho: float, delta: float) -> float:
    """Compute the least epsilon of (Z4) over the orders alpha > 1, rounded up."""
    log_inverse_delta = -math.log(delta)

    def compute_terms(log_excess: float) -> list[float]:
        """Compute the terms of (Z4) at alpha = 1 + exp(log_excess)."""
        excess = math.exp(log_excess)
        divided = [term / excess for term in _compute_order_terms(log_excess)]
        return [(1 + excess) * rho, log_inverse_delta / excess, *divided]

    start = 0.5 * math.log(max(log_inverse_delta, 1e-3) / rho)
    found = compute_terms(_search_order(lambda log_excess: sum(compute_terms(log_excess)), start))
    # The terms may nearly cancel, so that rounding is bounded by their absolute values.
    return max(0.0, sum(found) + _ROUNDING * sum(map(abs, found))) * (1 + _SAFE)


def _compute_zcdp_log_delta(rho: float, epsilon: float) -> float:
    """Compute the log of the least delta of (Z2) over the orders alpha > 1, rounded up."""

    def compute_terms(log_excess: float) -> list[float]:
        """Compute the terms of the logarithm of (Z2) at alpha = 1 + exp(log_excess)."""
        excess = math.exp(log_excess)
        return [excess * (1 + excess) * rho, -excess * epsilon, *_compute_order_terms(log_excess)]

    start = math.log(max(epsilon / (2 * rho) - 0.5, 0.0) + 1 / math.sqrt(2 * rho) + 1e-12)
    found = compute_terms(_search_order(lambda log_excess: sum(compute_terms(log_excess)), start))
    return sum(found) + _ROUNDING * sum(map(abs, found))


def _compute_order_terms(log_excess: float) -> tuple[float, float]:
    """Compute two terms whose sum is alpha log(1 - 1 / alpha) - log(alpha - 1).

    Args:
        log_excess: A float close to log(alpha - 1), where alpha - 1 is the float exp(log_excess).
    """
    excess = math.exp(log_excess)
    alpha = 1 + excess
    # The terms of the first form nearly cancel for alpha close to 1, and those of the second for
    # large alpha.
    if log_excess >= 0:
        return -alpha * math.log1p(1 / excess), -log_excess
    return -alpha * math.log1p(excess), excess * log_excess


def _search_order(bound: Callable[[float], float], start: float) -> float:
    """Find the log(alpha - 1) near `start` at which a bound is about least.

    Every order alpha > 1 gives a valid bound, so an inexact minimum only makes it looser.
    """
    found = minimize_scalar(
        bound, bounds=(start - 12, start + 12), method="bounded", options={"xatol": 1e-10}
    )
    return float(found.x)
