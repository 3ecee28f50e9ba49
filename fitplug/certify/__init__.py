"""Certified numbers: outward-rounded norms, quadratures and tiers. Nothing here solves."""

from fitplug.certify.nuclear_norms import (
    certify_dense_bound as certify_dense_bound,
    check_weights as check_weights,
    divide_by_mass as divide_by_mass,
    factor_change as factor_change,
    factor_precision as factor_precision,
    factor_sum as factor_sum,
    scale_weights as scale_weights,
    sum_logarithms as sum_logarithms,
    sum_nuclear_norms as sum_nuclear_norms,
)
from fitplug.certify.quadratures import (
    COARSE_STEP as COARSE_STEP,
    STEP as STEP,
    LogDeterminants as LogDeterminants,
    ResolventQuadrature as ResolventQuadrature,
    lower_trace as lower_trace,
    place_poles as place_poles,
)
from fitplug.certify.tiers import (
    Ended as Ended,
    LowerBoundAt as LowerBoundAt,
    Tier as Tier,
    TierClaims as TierClaims,
    Tiers as Tiers,
    certify_tiers as certify_tiers,
    make_one_tier as make_one_tier,
)
