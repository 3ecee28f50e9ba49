"""Numbers for people: a few digits, rounded to the safe side.

Screens and messages show a cost with three digits. Accounts, proofs and documents show six, as
their amounts are added up or compared.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

_LAST_DIGITS = 1e-13
"""A relative error that counts as one of floating point: 0.1 + 0.2 is shown as 0.3."""

_LARGEST_IN_FULL = 1e12
"""Smaller numbers are shown with all digits before the decimal point."""


def format_up(value: float, digits: int = 3) -> str:
    """Format a number with a few significant digits, rounded up.

    This is for costs, which must not be shown as less than they are. The rounding errors of floats
    are ignored, because no float is exactly a third or a tenth.
    """
    least = value * (1 - _LAST_DIGITS)
    return _format(float(Context(digits, ROUND_CEILING).create_decimal(least)), digits)


def format_down(value: float, digits: int = 3) -> str:
    """Format a number with a few significant digits, rounded down: for bounds and remainders."""
    most = value * (1 + _LAST_DIGITS)
    return _format(float(Context(digits, ROUND_FLOOR).create_decimal(most)), digits)


def format_excess(requested: float, remaining: float) -> tuple[str, str]:
    """Format a cost and the amount it exceeds, with all digits if fewer do not show the excess."""
    shown = format_up(requested), format_down(remaining)
    return shown if shown[0] != shown[1] else (repr(requested), repr(remaining))


def format_percent_up(share: float, digits: int = 2) -> str:
    """Format a share as a percentage, rounded up and at least 0.001%."""
    return f"{format_up(max(100 * share, 0.001), digits)}%"


def format_delta(delta: float) -> str:
    """Format the delta of (epsilon, delta) differential privacy: 1e-9."""
    return re.sub(r"e-0*", "e-", f"{delta:g}")


def format_rho(rho: float, epsilon: float, delta: float) -> str:
    """Format a cost in rho of zCDP with its epsilon at delta, both rounded up.

    Example:
        >>> format_rho(0.04086, 1.6047, 1e-9)
        'rho = 0.0409 (epsilon 1.61 at delta 1e-9)'
    """
    at = f"epsilon {format_up(epsilon)} at delta {format_delta(delta)}"
    return f"rho = {format_up(rho)} ({at})"


def _format(value: float, digits: int) -> str:
    """Format a number that has a few significant digits: 12,350 rather than 1.235e+04."""
    value += 0.0  # a zero has no sign
    in_full = 10.0**digits <= abs(value) < _LARGEST_IN_FULL
    return f"{value:,.0f}" if in_full else f"{value:,.{digits}g}"
