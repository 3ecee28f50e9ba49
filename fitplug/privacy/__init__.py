"""Privacy accounting: from a privacy cost to rho of zCDP and to (epsilon, delta), and back.

Delta is the privacy cost of a plan, and rho = Delta^2 / 2. The statements, their proofs and the
margins for rounding are in docs/theory/privacy.md; equations (Z1), (Z2), ... are those of that
page.
"""

from fitplug.privacy.conversions import (
    check_budget,
    check_delta,
    check_epsilon,
    delta_at,
    epsilon_at,
    read_rho,
    rho_at,
    rho_of_budget,
)
from fitplug.privacy.curves import CONTINUOUS, USUAL, CurveLoss, DiscreteNoise

__all__ = [
    "CONTINUOUS",
    "USUAL",
    "CurveLoss",
    "DiscreteNoise",
    "check_budget",
    "check_delta",
    "check_epsilon",
    "delta_at",
    "epsilon_at",
    "read_rho",
    "rho_at",
    "rho_of_budget",
]
