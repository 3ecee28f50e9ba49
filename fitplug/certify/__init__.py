"""Certified numbers: outward-rounded norms, quadratures and tiers. Nothing here solves."""

from fitplug.certify.nuclear_norms import certify_dense_bound as certify_dense_bound
from fitplug.certify.nuclear_norms import check_weights as check_weights
from fitplug.certify.nuclear_norms import divide_by_mass as divide_by_mass
from fitplug.certify.nuclear_norms import factor_precision as factor_precision
from fitplug.certify.nuclear_norms import factor_sum as factor_sum
from fitplug.certify.nuclear_norms import scale_weights as scale_weights
from fitplug.certify.nuclear_norms import sum_logarithms as sum_logarithms
from fitplug.certify.nuclear_norms import sum_nuclear_norms as sum_nuclear_norms
from fitplug.certify.quadratures import COARSE_STEP as COARSE_STEP
from fitplug.certify.quadratures import STEP as STEP
from fitplug.certify.quadratures import ResolventQuadrature as ResolventQuadrature
from fitplug.certify.quadratures import lower_trace as lower_trace
from fitplug.certify.quadratures import place_poles as place_poles
from fitplug.certify.tiers import Ended as Ended
from fitplug.certify.tiers import LowerBoundAt as LowerBoundAt
from fitplug.certify.tiers import Tier as Tier
from fitplug.certify.tiers import TierClaims as TierClaims
from fitplug.certify.tiers import Tiers as Tiers
from fitplug.certify.tiers import certify_tiers as certify_tiers
from fitplug.certify.tiers import make_one_tier as make_one_tier
