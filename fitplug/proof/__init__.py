"""Proofs: certified lower bounds and the verification of a plan. They trust no optimizer."""

from fitplug.proof.certificate import certify_bound, certify_dense_bound, count_duals, share_weight
from fitplug.proof.certifier import NO_FRAME, Duals, Frame
from fitplug.proof.gram_matrices import MAX_WORK, Grams, eigen, grams
from fitplug.proof.plan_record import LEAST_TOLERANCE, Ended, PlanRecord
from fitplug.proof.product_bound import ProductDuals, bound_product, frames, point
from fitplug.proof.residual_certifier import pack_duals
from fitplug.proof.tiers import Tiers, make_one_tier
from fitplug.proof.verification import check_form, check_privacy, verify

__all__ = [
    "LEAST_TOLERANCE",
    "MAX_WORK",
    "NO_FRAME",
    "Duals",
    "Ended",
    "Frame",
    "Grams",
    "PlanRecord",
    "ProductDuals",
    "Tiers",
    "bound_product",
    "certify_bound",
    "certify_dense_bound",
    "check_form",
    "check_privacy",
    "count_duals",
    "eigen",
    "frames",
    "grams",
    "make_one_tier",
    "pack_duals",
    "point",
    "share_weight",
    "verify",
]
