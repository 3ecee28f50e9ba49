"""Proofs: certified lower bounds and the verification of a plan. They trust no optimizer."""

from fitplug.proof.block_determinants import BlockWeights, average_weights
from fitplug.proof.certificate import certify_bound, certify_dense_bound, count_duals, share_weight
from fitplug.proof.certifier import NO_FRAME, Duals, Frame
from fitplug.proof.chain_certifier import compute_chain_trace
from fitplug.proof.chain_sweep import sweep_chain
from fitplug.proof.dense_trees import DenseTree
from fitplug.proof.gram_matrices import MAX_WORK, GramTerms, decompose_symmetric, place_terms
from fitplug.proof.plan_record import LEAST_TOLERANCE, Ended, PlanRecord
from fitplug.proof.product_bound import (
    ProductDuals,
    bound_product,
    count_frame_columns,
    scale_duals,
)
from fitplug.proof.residual_certifier import pack_duals
from fitplug.proof.resolvent_quadrature import place_poles
from fitplug.proof.scalar_trees import ScalarTree
from fitplug.proof.tiers import Tiers, make_one_tier
from fitplug.proof.verification import verify, verify_on_reading

__all__ = [
    "LEAST_TOLERANCE",
    "MAX_WORK",
    "NO_FRAME",
    "BlockWeights",
    "DenseTree",
    "Duals",
    "Ended",
    "Frame",
    "GramTerms",
    "PlanRecord",
    "ProductDuals",
    "ScalarTree",
    "Tiers",
    "average_weights",
    "bound_product",
    "certify_bound",
    "certify_dense_bound",
    "compute_chain_trace",
    "count_duals",
    "count_frame_columns",
    "decompose_symmetric",
    "make_one_tier",
    "pack_duals",
    "place_poles",
    "place_terms",
    "scale_duals",
    "share_weight",
    "sweep_chain",
    "verify",
    "verify_on_reading",
]
