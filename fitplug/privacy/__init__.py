"""Privacy accounting: from a privacy cost to rho of zCDP and to (epsilon, delta), and back.

Delta is the privacy cost of a plan, and rho = Delta^2 / 2. The statements, their proofs and the
margins for rounding are in docs/theory/privacy.md; equations (Z1), (Z2), ... are those of that
page.
"""

from fitplug.privacy.conversions import check_budget as check_budget
from fitplug.privacy.conversions import check_delta as check_delta
from fitplug.privacy.conversions import check_epsilon as check_epsilon
from fitplug.privacy.conversions import delta_at as delta_at
from fitplug.privacy.conversions import epsilon_at as epsilon_at
from fitplug.privacy.conversions import read_rho as read_rho
from fitplug.privacy.conversions import rho_at as rho_at
from fitplug.privacy.conversions import rho_of_budget as rho_of_budget
from fitplug.privacy.curves import CONTINUOUS as CONTINUOUS
from fitplug.privacy.curves import USUAL as USUAL
from fitplug.privacy.curves import CurveLoss as CurveLoss
from fitplug.privacy.curves import DiscreteNoise as DiscreteNoise
