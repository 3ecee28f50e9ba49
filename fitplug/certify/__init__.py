"""Certified numbers: outward-rounded norms, quadratures and tiers. Nothing here solves."""

from fitplug.certify.nuclear_norm import (
    certify_dense_bound,
    divide_by_mass,
    scale_weights,
    sum_nuclear_norms,
)
from fitplug.certify.proven_factors import bound_log_sums, factor_precision, factor_sum
from fitplug.certify.resolvent_quadrature import Quadrature, place_poles
from fitplug.certify.tiers import (
    BoundAt,
    Ended,
    Tier,
    TierClaims,
    Tiers,
    certify_tiers,
    make_one_tier,
)
from fitplug.certify.trace_quadrature import COARSE_STEP, STEP, bound_trace

__all__ = [
    "COARSE_STEP",
    "STEP",
    "BoundAt",
    "Ended",
    "Quadrature",
    "Tier",
    "TierClaims",
    "Tiers",
    "bound_log_sums",
    "bound_trace",
    "certify_dense_bound",
    "certify_tiers",
    "divide_by_mass",
    "factor_precision",
    "factor_sum",
    "make_one_tier",
    "place_poles",
    "scale_weights",
    "sum_nuclear_norms",
]
