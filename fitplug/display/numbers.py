"""Numbers for people: to a few digits, and on the safe side."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context

_LAST_DIGITS = 1e-13


_WRITTEN_OUT = 1e12
"""Up to which numbers are, for people."""


def format_up(value: float, digits: int = 6) -> str:
    """To so many digits for people, rounded up: no cost is shown less than it is, but for the last
    digits of a float, by which a third or a tenth is never met.
    """
    least = value * (1 - _LAST_DIGITS)
    return _written(float(Context(digits, ROUND_CEILING).create_decimal(least)), digits)


def format_down(value: float, digits: int = 6) -> str:
    """To so many digits for people, rounded down: for bounds, and for what is left."""
    most = value * (1 + _LAST_DIGITS)
    return _written(float(Context(digits, ROUND_FLOOR).create_decimal(most)), digits)


def _written(value: float, digits: int) -> str:
    """A number of so many digits: 12,350 rather than 1.235e+04."""
    value += 0.0  # zero has no sign
    whole = 10.0**digits <= abs(value) < _WRITTEN_OUT
    return f"{value:,.0f}" if whole else f"{value:,.{digits}g}"
