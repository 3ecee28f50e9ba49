"""Certified numbers: outward-rounded norms, quadratures and tiers. Nothing here solves."""

from fitplug.certify.nuclear_norms import (
    certify_dense_bound,
    check_weights,
    divide_by_mass,
    factor_precision,
    factor_sum,
    scale_weights,
    sum_logarithms,
    sum_nuclear_norms,
)
from fitplug.certify.quadratures import (
    COARSE_STEP,
    STEP,
    ResolventQuadrature,
    lower_trace,
    place_poles,
)
from fitplug.certify.tiers import (
    Ended,
    LowerBoundAt,
    Tier,
    TierClaims,
    Tiers,
    certify_tiers,
    make_one_tier,
)

__all__ = [
    "COARSE_STEP",
    "STEP",
    "Ended",
    "LowerBoundAt",
    "ResolventQuadrature",
    "Tier",
    "TierClaims",
    "Tiers",
    "certify_dense_bound",
    "certify_tiers",
    "check_weights",
    "divide_by_mass",
    "factor_precision",
    "factor_sum",
    "lower_trace",
    "make_one_tier",
    "place_poles",
    "scale_weights",
    "sum_logarithms",
    "sum_nuclear_norms",
]
