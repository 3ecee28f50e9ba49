"""Certified numbers: outward-rounded norms, quadratures and tiers. Nothing here solves."""

from fitplug.certify.nuclear_norm import (
    certify_dense_bound,
    divide_by_mass,
    scale_weights,
    sum_nuclear_norms,
)
from fitplug.certify.proven_factors import factor_precision, factor_sum, sum_logarithms
from fitplug.certify.resolvent_quadrature import Quadrature, place_poles
from fitplug.certify.tiers import (
    Ended,
    LowerBoundAt,
    Tier,
    TierClaims,
    Tiers,
    certify_tiers,
    make_one_tier,
)
from fitplug.certify.trace_quadrature import COARSE_STEP, STEP, lower_trace

__all__ = [
    "COARSE_STEP",
    "STEP",
    "Ended",
    "LowerBoundAt",
    "Quadrature",
    "Tier",
    "TierClaims",
    "Tiers",
    "certify_dense_bound",
    "certify_tiers",
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
