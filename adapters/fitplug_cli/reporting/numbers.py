"""Numbers as the report writes them."""

from __future__ import annotations


def percent(share: float) -> str:
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def factor(value: float) -> str:
    """To three digits, or whole."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
