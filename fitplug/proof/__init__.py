"""Proofs: certified lower bounds and the verification of a plan. They trust no optimizer."""

from fitplug.proof.certificate import (
    WHOLE,
    Frame,
    certified_bound,
    dual_sizes,
    group_shares,
    lower_bound,
    pack_duals,
)
from fitplug.proof.gram_matrices import MAX_WORK, Grams, eigen, grams
from fitplug.proof.plan_record import LEAST_TOLERANCE, Ended, PlanRecord
from fitplug.proof.product_bound import ProductDuals, bound, frames, point
from fitplug.proof.tiers import Tiers, one_tier
from fitplug.proof.verification import check_form, check_privacy, verify

__all__ = [
    "LEAST_TOLERANCE",
    "MAX_WORK",
    "WHOLE",
    "Ended",
    "Frame",
    "Grams",
    "PlanRecord",
    "ProductDuals",
    "Tiers",
    "bound",
    "certified_bound",
    "check_form",
    "check_privacy",
    "dual_sizes",
    "eigen",
    "frames",
    "grams",
    "group_shares",
    "lower_bound",
    "one_tier",
    "pack_duals",
    "point",
    "verify",
]
