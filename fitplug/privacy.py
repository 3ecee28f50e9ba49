"""What a privacy cost means: rho of zCDP and (epsilon, delta).

Delta is the privacy cost, rho = Delta^2 / 2. Two conversions to (epsilon, delta) are offered:
"gaussian", the exact curve of the continuous Gaussian mechanism (the paper's Theorem 3; Balle and
Wang 2018), and "zcdp", which follows from rho alone and is the one proven for the discrete noise
that is really drawn (Canonne, Kamath, Steinke 2020, Proposition 12).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, log_ndtr, ndtr

from fitplug.errors import BudgetError, InputError

Method: TypeAlias = Literal["gaussian", "zcdp"]

_SMALLEST_COST, _LARGEST_COST = 1e-9, 1e6
"""Costs outside are reported as the nearer of these, or as no protection: both safe."""

_SAFE = 1e-11
"""Relative step to the safe side, above the error of the special functions used here."""


def check_rho(rho: float) -> None:
    """Raise BudgetError unless 1e-30 <= rho <= 1e12."""
    _check_range("rho", rho, 1e-30, 1e12)


def check_epsilon(epsilon: float) -> None:
    """Raise BudgetError unless 1e-20 <= epsilon <= 1e9."""
    _check_range("epsilon", epsilon, 1e-20, 1e9)


def check_delta(delta: float) -> None:
    """Raise BudgetError unless 1e-300 <= delta < 1."""
    if not _known(delta) or not 0 < delta < 1:
        raise BudgetError(f"delta = {delta!r} must lie strictly between 0 and 1")
    _check_range("delta", delta, 1e-300, 1.0)


def check_budget(rho: object, epsilon: object, delta: object) -> None:
    """Raise BudgetError unless rho, or epsilon with delta, or none of them is given."""
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
    if not _known(value) or not 0 < value < math.inf:
        raise BudgetError(f"{name} = {value!r} must be a finite number greater than zero")
    if not low <= value <= high:
        raise BudgetError(f"{name} = {value!r} must lie between {low:g} and {high:g}")


def _known(value: Any) -> bool:
    # No subclass, which may compare as another number than it is; NumPy's own float is one.
    return type(value) in (int, float, np.float64)


def epsilon_at(privacy_cost: float, delta: float, method: Method = "gaussian") -> float:
    """The least epsilon at `delta`, rounded up. Raises BudgetError."""
    check_delta(delta)
    if privacy_cost > _LARGEST_COST:
        return math.inf
    privacy_cost = max(privacy_cost, _SMALLEST_COST)
    if _checked(method) == "zcdp":
        return _zcdp_epsilon(privacy_cost**2 / 2, delta)
    goal = _safe_log(delta)

    def excess(epsilon: float) -> float:
        return _log_delta(privacy_cost, epsilon) - goal

    if excess(0.0) <= 0:
        return 0.0
    above = max(_zcdp_epsilon(privacy_cost**2 / 2, delta), 1e-12)
    return _from_above(excess, above, toward=0.0)


def delta_at(privacy_cost: float, epsilon: float, method: Method = "gaussian") -> float:
    """The least delta at `epsilon` >= 0, rounded up. Raises BudgetError."""
    if epsilon != 0:
        check_epsilon(epsilon)
    if privacy_cost > _LARGEST_COST:
        return 1.0
    privacy_cost = max(privacy_cost, _SMALLEST_COST)
    if _checked(method) == "zcdp":
        log_delta = _log_zcdp_delta(privacy_cost**2 / 2, epsilon)
    else:
        log_delta = _log_delta(privacy_cost, epsilon)
    # Up by more than the error of log_delta, and never into the range where floats lose digits.
    safe = log_delta + 1e-12 * (1 + abs(log_delta))
    return min(1.0, max(math.exp(min(0.0, safe)), sys.float_info.min))


def privacy_cost_at(epsilon: float, delta: float) -> float:
    """The largest Delta whose Gaussian curve passes through (epsilon, delta), rounded down.

    Inverts the paper's Theorem 3. Raises BudgetError.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    # Further below than `delta_at` and `epsilon_at` step up: both then give back at most these.
    goal = _safe_log(delta, 4e-12)

    def room(log_cost: float) -> float:
        return _log_delta(math.exp(log_cost), epsilon) - goal

    low, high = -40.0, 10.0
    while room(low) > 0:
        low -= 20
    while room(high) < 0:
        high += 2
    root = float(brentq(room, low, high, xtol=1e-15, rtol=1e-14, maxiter=500))
    cost = math.exp(root) * (1 - _SAFE)
    while room(math.log(cost)) > 0:
        cost *= 1 - _SAFE
    return cost


def rho_at(epsilon: float, delta: float) -> float:
    """The largest rho whose proven conversion at `delta` is at most `epsilon`, rounded down: the
    inverse of `epsilon_at` with "zcdp". Raises BudgetError, also for a rho below the least there.
    """
    check_epsilon(epsilon)
    check_delta(delta)

    def excess(log_cost: float) -> float:
        return epsilon_at(math.exp(log_cost), delta, "zcdp") - epsilon

    low, high = math.log(_SMALLEST_COST) + 1e-9, math.log(_LARGEST_COST) - 1e-9
    if excess(low) > 0:
        raise BudgetError(
            f"epsilon = {epsilon!r} at delta = {delta!r} leaves a rho below "
            f"{_SMALLEST_COST**2 / 2:g}: give more of one of them"
        )
    root = float(brentq(excess, low, high, xtol=1e-15, rtol=1e-14, maxiter=500))
    rho, step = math.exp(2 * root) / 2 * (1 - _SAFE), _SAFE
    # What a charge of the whole of it is converted back by takes the root rounded up.
    while epsilon_at(math.sqrt(2 * rho) * (1 + 1e-15), delta, "zcdp") > epsilon:
        rho *= 1 - step
        step *= 2
    return rho


def _safe_log(delta: float, margin: float = 1e-12) -> float:
    # Below log(delta) by more than the error of _log_delta: a root is then on the safe side.
    goal = math.log(delta)
    return goal - margin * (1 + abs(goal))


def _checked(method: Method) -> Method:
    if method not in ("gaussian", "zcdp"):
        raise BudgetError(f"method = {method!r} is unknown; use 'gaussian' or 'zcdp'")
    return method


def _from_above(excess: Callable[[float], float], above: float, toward: float) -> float:
    """A root of a decreasing function, on the side where it is <= 0."""
    while excess(above) > 0:
        above *= 1 + 1e-6
    root = float(brentq(excess, toward, above, xtol=1e-300, rtol=1e-14, maxiter=500))
    step = _SAFE
    while excess(root) > 0:
        root *= 1 + step
        step *= 2
    return root


def _log_delta(cost: float, epsilon: float) -> float:
    """log of Phi(D/2 - e/D) - exp(e) Phi(-D/2 - e/D), Theorem 3, without cancellation.

    With t = e/D - D/2 it equals phi(t) (mills(t) - mills(t + D)), mills(x) = (1 - Phi(x)) / phi(x),
    because exp(e) = phi(t) / phi(t + D).
    """
    t = epsilon / cost - cost / 2
    log_phi = -t * t / 2 - math.log(2 * math.pi) / 2
    if t < 0:
        far = math.exp(log_phi) * _mills(t + cost) if t > -38 else 0.0
        near = float(ndtr(-t))
        if far < 0.5 * near:
            return math.log(near - far)
    difference = _mills_drop(t, cost)
    if difference <= 0:
        # Both terms agree to the last bit: fall back on the larger one, an upper bound.
        return float(log_ndtr(-t))
    return log_phi + math.log(difference)


def _mills(x: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


# Nodes and weights of Gauss-Legendre quadrature with 5 points on (0, 1).
_NODES = (
    (0.04691007703066800, 0.11846344252809454),
    (0.23076534494715845, 0.23931433524968324),
    (0.5, 0.28444444444444444),
    (0.76923465505284155, 0.23931433524968324),
    (0.95308992296933200, 0.11846344252809454),
)


def _mills_drop(t: float, step: float) -> float:
    """mills(t) - mills(t + step); for small steps as an integral of -mills'(x) = 1 - x mills(x)."""
    if step > 0.02:
        return _mills(t) - _mills(t + step)
    points = [(t + step * node, weight) for node, weight in _NODES]
    return step * sum(weight * (1 - x * _mills(x)) for x, weight in points)


def _zcdp_epsilon(rho: float, delta: float) -> float:
    # Every order alpha > 1 gives a valid epsilon, so an inexact minimum is only a looser bound.
    def epsilon(log_order: float) -> float:
        excess = math.exp(log_order)
        alpha = 1 + excess
        gain = -alpha * math.log1p(1 / excess) - math.log(delta) - log_order
        return alpha * rho + gain / excess

    start = 0.5 * math.log(max(-math.log(delta), 1e-3) / rho)
    found = minimize_scalar(
        epsilon, bounds=(start - 12, start + 12), method="bounded", options={"xatol": 1e-10}
    )
    return max(0.0, float(found.fun)) * (1 + _SAFE)


def _log_zcdp_delta(rho: float, epsilon: float) -> float:
    def log_delta(log_order: float) -> float:
        excess = math.exp(log_order)
        alpha = 1 + excess
        order_term = -alpha * math.log1p(1 / excess) - log_order
        return excess * (alpha * rho - epsilon) + order_term

    start = math.log(max(epsilon / (2 * rho) - 0.5, 0.0) + 1 / math.sqrt(2 * rho) + 1e-12)
    found = minimize_scalar(
        log_delta, bounds=(start - 12, start + 12), method="bounded", options={"xatol": 1e-10}
    )
    return float(found.fun)
