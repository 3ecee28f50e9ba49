"""Formats of the numbers of a report."""

from __future__ import annotations


def format_percent(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def format_factor(value: float) -> str:
    """Format a factor with three digits, or as an integer from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
