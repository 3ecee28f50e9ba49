"""Numbers for people: a few digits, rounded to the safe side."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context

_LAST_DIGITS = 1e-13
"""A relative error that counts as one of floating point: 0.1 + 0.2 is shown as 0.3."""

_LARGEST_IN_FULL = 1e12
"""Smaller numbers are shown with all digits before the decimal point."""


def format_up(value: float, digits: int = 6) -> str:
    """Format a number with a few significant digits, rounded up.

    This is for costs, of which none may be shown as less than it is. The rounding errors of floats
    are passed over, as no float is exactly a third or a tenth.
    """
    least = value * (1 - _LAST_DIGITS)
    return _format(float(Context(digits, ROUND_CEILING).create_decimal(least)), digits)


def format_down(value: float, digits: int = 6) -> str:
    """Format a number with a few significant digits, rounded down: for bounds and what remains."""
    most = value * (1 + _LAST_DIGITS)
    return _format(float(Context(digits, ROUND_FLOOR).create_decimal(most)), digits)


def _format(value: float, digits: int) -> str:
    """Format a number that has a few significant digits: 12,350 rather than 1.235e+04."""
    value += 0.0  # a zero has no sign
    in_full = 10.0**digits <= abs(value) < _LARGEST_IN_FULL
    return f"{value:,.0f}" if in_full else f"{value:,.{digits}g}"
