"""The certificate: a lower bound on every mechanism's privacy cost, from dual weights alone.

Nothing here trusts a solver. For ANY non-negative p on the differences V between neighbours and q
(m,) on the queries, by weak duality,

    Delta* >= || diag(q / c)^1/2 W V diag(p)^1/2 ||_*  / sqrt(sum p * sum q)

with the nuclear norm; no mechanism that answers W with Gaussian noise of variance at most c, and
no post-processing of one, costs less. The rounding of the evaluation is subtracted
(docs/theory/dual.md). Each structure evaluates the norm in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fitplug.errors import PlanError
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray
from fitplug.proof.block_certifiers import MatrixCertifier, ScalarCertifier
from fitplug.proof.certifier import NO_FRAME, Certifier, Duals, Frame
from fitplug.proof.chain_certifier import ChainCertifier
from fitplug.proof.nuclear_norm import divide_by_mass, scale_weights, sum_nuclear_norms
from fitplug.proof.pair_certifier import PairCertifier, SymmetricPairCertifier
from fitplug.proof.person_certifier import PersonCertifier
from fitplug.proof.person_tree_certifier import PersonTreeCertifier
from fitplug.proof.residual_certifier import ResidualCertifier
from fitplug.proof.split_pair_certifier import SplitPairCertifier
from fitplug.proof.tiers import BoundAt, Tier, TierClaims
from fitplug.proof.tree_certifier import TreeCertifier
from fitplug.proof.tree_pair_certifier import TreePairCertifier
from fitplug.structure import (
    ChainStructure,
    MatrixStructure,
    MoveStructure,
    Objective,
    PairStructure,
    PersonStructure,
    PersonTreeStructure,
    ResidualStructure,
    ScalarStructure,
    SplitPairStructure,
    Structure,
    SymmetricPairStructure,
    TreePairStructure,
    TreeStructure,
)

_CERTIFIERS: Mapping[type[Structure], Certifier[Any]] = {
    MatrixStructure: MatrixCertifier(),
    PersonStructure: PersonCertifier(),
    PersonTreeStructure: PersonTreeCertifier(),
    ScalarStructure: ScalarCertifier(),
    ResidualStructure: ResidualCertifier(),
    TreeStructure: TreeCertifier(),
    ChainStructure: ChainCertifier(),
    PairStructure: PairCertifier(),
    SymmetricPairStructure: SymmetricPairCertifier(),
    MoveStructure: SymmetricPairCertifier(),
    SplitPairStructure: SplitPairCertifier(),
    TreePairStructure: TreePairCertifier(),
}
"""The certificate of each structure. A new structure is registered here."""


def count_duals(structure: Structure) -> tuple[int, int]:
    """Count the numbers in p and in q.

    p has a number for each difference between neighbours, and q one for each of the structure's
    rows. In the residual family both are products; see `fitplug.proof.residual_certifier`.
    """
    return _CERTIFIERS[type(structure)].count_duals(structure)


def certify_bound(structure: Structure, objective: Objective, scale: float, duals: Duals) -> float:
    """Certify a lower bound on the objective at scale * targets.

    Args:
        structure: The structure.
        objective: The objective, in units of scale * targets.
        scale: The factor on all targets.
        duals: Any dual weights of the sizes that `count_duals` gives.

    Returns:
        The bound, rounding included.

    Raises:
        ValueError: If p or q is of another size, negative, not finite or sums to zero.
    """
    bound = _CERTIFIERS[type(structure)].bound_cost(structure, objective, scale, duals)
    # Differences that are k times as large have k times the nuclear norm.
    return bound if structure.changes == 1 else bound * structure.changes * (1 - UNIT_ROUNDOFF)


def share_weight(structure: Structure, duals: Duals) -> FloatArray:
    """Compute the share of each group in the sum of q, (groups,); see `fitplug.plan.prices`."""
    return _CERTIFIERS[type(structure)].share_weight(structure, duals)


def check_duals_form(structure: Structure, objective: Objective, frame: Frame) -> None:
    """Check that plans of a structure may have an objective and a frame.

    Raises:
        PlanError: If plans of this structure cannot have this objective or this frame.
    """
    certifier = _CERTIFIERS[type(structure)]
    if not (objective.plain or certifier.takes_objectives):
        raise PlanError(f"plans of this structure ({structure}) have the plain objective only")
    if (frame != NO_FRAME) != certifier.has_frame:
        raise PlanError("the frame of the dual weights is not one of the structure's")


def certify_plan_tiers(
    structure: Structure, claims: TierClaims, bound_at: BoundAt
) -> Iterator[Tier]:
    """Certify the level of each tier of a plan, the costliest first."""
    return _CERTIFIERS[type(structure)].certify_tiers(claims, bound_at)


def certify_dense_bound(W: FloatArray, targets: FloatArray, p: FloatArray, q: FloatArray) -> float:
    """Certify a lower bound on the privacy cost of a dense workload, one record added or removed.

    Args:
        W: Shape (m, d).
        targets: Target variances c, shape (m,).
        p: Dual weights of the cells, shape (d,).
        q: Dual weights of the queries, shape (m,).

    Returns:
        The bound, rounding included.

    Raises:
        ValueError: If p or q is of another size, negative, not finite or sums to zero.
    """
    p, q = scale_weights("p", p, W.shape[1]), scale_weights("q", q, W.shape[0])
    return divide_by_mass(sum_nuclear_norms([(W, q / targets, p)]), p, q)
