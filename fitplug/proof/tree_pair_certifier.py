"""The certificate of trees where neighbours replace a record.

For weights p of cells that sum to 1, let each pair (i, j) of one region have the weight
2 p_i p_j / P_r, with the sum P_r of p in the region. So

    P = 2 diag(p)^1/2 (I - sum_r u_r u_r') diag(p)^1/2

where u_r has the square roots of p_i / P_r, and the weights of all pairs sum to
1 - sum_r sum_i p_i^2 / P_r. The weights do not vary along symmetric attributes, so the u_r
are in the blocks within the attributes that the unit keeps; all other blocks have the square root
of 2 times the norm that they have for one record added or removed (docs/theory/units.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fitplug.errors import PlanError
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma
from fitplug.proof.certifier import NO_FRAME, Frame
from fitplug.proof.tiers import BoundAt, Tier, TierClaims
from fitplug.proof.tree_certifier import TreeCertifier, sum_block_norms
from fitplug.structure import Objective, TreePairStructure, TreeStructure


class TreePairCertifier(TreeCertifier):
    """The certificate of `TreePairStructure`, for the plain objective."""

    def bound_norm(
        self, structure: TreeStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        assert isinstance(structure, TreePairStructure)
        share = bound_pair_share(structure, weights)
        if not share > 0:
            return 0.0
        norm = sum_block_norms(structure, weights, row_weights)
        return norm * math.sqrt(2 / share) * (1 - gamma(8))

    def check_form(self, objective: Objective, frame: Frame) -> None:
        if frame != NO_FRAME:
            raise PlanError("the frame of the dual weights is not one of the structure's")
        if not objective.plain:
            raise PlanError("plans for records that are replaced have the plain objective only")

    def certify_tiers(self, claims: TierClaims, bound_at: BoundAt) -> Iterator[Tier]:
        """Certify one tier: the profile tells no cells apart."""
        yield Tier(1, float(claims.profile[0]), claims.lower_bound**2 * (1 - 4 * UNIT_ROUNDOFF))


def bound_pair_share(structure: TreePairStructure, weights: FloatArray) -> float:
    """Bound the sum of the weights of all pairs over the sum of p from above.

    Args:
        structure: The structure.
        weights: p, the weights of leaves and dense cells together, shape (|V|,).
    """
    tree, D = structure.tree, structure.cells
    p = weights.reshape(-1, D)
    counts = tree.multiplicities[tree.leaves].astype(np.float64)
    squares = p * p / counts[:, None]
    regions = structure.regions
    each = (np.zeros((len(p), int(regions.max()) + 1)), np.zeros((len(p), int(regions.max()) + 1)))
    for found, values in zip(each, (p, squares), strict=True):
        np.add.at(found.T, regions, values.T)
    mass, square = each
    if not structure.keeps_tree:
        mass, square = mass.sum(axis=0), square.sum(axis=0)
        counts = np.ones(1)
    # A leaf that stands for several has as many regions, each with an equal part.
    mass, square = mass.reshape(len(counts), -1), square.reshape(len(counts), -1)
    kept = mass > 0
    alone = np.divide(square * counts[:, None], mass, out=np.zeros_like(mass), where=kept).sum()
    moved = math.prod(structure.sizes[a] for a in structure.free.tolist())
    total = float(p.sum())
    error = gamma(4 * p.size + 64)
    return max(0.0, 1 - float(alone) / (moved * total) * (1 - error)) + 4 * UNIT_ROUNDOFF
