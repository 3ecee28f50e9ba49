"""Costs: what a plan costs for all records of one person, as every command tells it."""

from __future__ import annotations

from fractions import Fraction

from fitplug.numeric import ceil_float
from fitplug.plan import Plan


def rho(plan: Plan, contributions: int) -> float:
    """As it is charged, rounded up."""
    from fitplug_opendp.noise_source import compute_charged_rho

    return compute_charged_rho(plan, contributions)


def privacy_cost(plan: Plan, contributions: int) -> float:
    """Delta, rounded up."""
    return ceil_float(Fraction(plan.privacy_cost) * contributions)
