"""Privacy accounting: from a privacy cost to rho of zCDP and to (epsilon, delta), and back.

Delta is the privacy cost of a plan, and rho = Delta^2 / 2. The statements, their proofs and the
margins for rounding are in docs/theory/privacy.md; equations (Z1), (Z2), ... are those of that
page.
"""

from fitplug.privacy.conversions import (
    check_budget as check_budget,
    check_delta as check_delta,
    check_epsilon as check_epsilon,
    delta_at as delta_at,
    epsilon_at as epsilon_at,
    read_rho as read_rho,
    rho_at as rho_at,
    rho_of_budget as rho_of_budget,
)
from fitplug.privacy.curves import (
    CONTINUOUS as CONTINUOUS,
    USUAL as USUAL,
    CurveLoss as CurveLoss,
    DiscreteNoise as DiscreteNoise,
)
