"""The certificate: a lower bound on every mechanism's privacy cost, from dual weights alone.

Nothing here trusts a solver. For ANY non-negative p on the differences V between neighbours and q
(m,) on the queries, by weak duality,

    Delta* >= || diag(q / c)^1/2 W V diag(p)^1/2 ||_*  / sqrt(sum p * sum q)

with the nuclear norm; no mechanism that answers W with Gaussian noise of variance at most c, and
no post-processing of one, costs less. The rounding of the evaluation is subtracted
(docs/theory/dual.md). Each structure evaluates the norm in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator

from fitplug.certify import LowerBoundAt, Tier, TierClaims
from fitplug.errors import PlanError
from fitplug.families.base.certifier import NO_FRAME, Duals, Frame
from fitplug.families.base.family import find_certifier
from fitplug.families.base.objective import Objective
from fitplug.families.base.structure import Structure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray


def count_duals(structure: Structure) -> tuple[int, int]:
    """Count the numbers in p and in q.

    p has a number for each difference between neighbours, and q one for each of the structure's
    rows. In the product family both are products; see
    `fitplug.families.product.certificate.products`.
    """
    return find_certifier(structure).count_duals(structure)


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
    bound = find_certifier(structure).lower_cost(structure, objective, scale, duals)
    # Differences that are k times as large have k times the nuclear norm.
    return bound if structure.changes == 1 else bound * structure.changes * (1 - UNIT_ROUNDOFF)


def share_weight(structure: Structure, duals: Duals) -> FloatArray:
    """Compute the share of each group in the sum of q, (groups,); see `fitplug.plan.prices`."""
    return find_certifier(structure).share_weight(structure, duals)


def check_duals_form(structure: Structure, objective: Objective, frame: Frame) -> None:
    """Check that plans of a structure may have an objective and a frame.

    Raises:
        PlanError: If plans of this structure cannot have this objective or this frame.
    """
    certifier = find_certifier(structure)
    if not (objective.plain or certifier.takes_objectives):
        raise PlanError(f"plans of this structure ({structure}) have the plain objective only")
    if (frame != NO_FRAME) != certifier.has_frame:
        raise PlanError("the frame of the dual weights is not one of the structure's")


def certify_plan_tiers(
    structure: Structure, claims: TierClaims, lower_bound_at: LowerBoundAt
) -> Iterator[Tier]:
    """Certify the level of each tier of a plan, the costliest first."""
    return find_certifier(structure).certify_tiers(claims, lower_bound_at)
