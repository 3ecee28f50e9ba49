"""The certificate of trees where neighbours replace a record.

Leaves and dense cells x have weights p_x, with the sum P_r over a region r. A pair of cells whose
symmetric attributes differ along the move D, at x and x' of one region, has the weight
2 p_x p_x' / P_r phi_D, and at one x also 2 p_x chi_D, each divided evenly among such pairs. With
the ratio of (H e)'(H e') to |H e|^2 for block A and move D, this makes in block A (U17)

    P_A = 2 (kappa_A diag(p) - theta_A sum_r p_r p_r' / P_r)
    theta_A = sum_D phi_D ratio_A(D)    kappa_A = sum_D phi_D + sum_D chi_D (1 - ratio_A(D))

and the weights of all pairs sum to 1 - phi_0 sum_r sum_x p_x^2 / P_r, with phi_0 for the empty
move, if those of p, and of phi and chi together, do. If the unit keeps the tree there is chi alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fitplug.certify import LowerBoundAt, Tier, TierClaims, divide_by_mass, scale_weights
from fitplug.families.base.certifier import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.tree.certificate.trees import TreeCertifier, sum_block_norms
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma


class TreePairCertifier(TreeCertifier):
    """The certificate of `TreePairStructure`."""

    takes_objectives = False

    def lower_cost(
        self, structure: TreeStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        assert isinstance(structure, TreePairStructure)
        p = scale_weights("p", duals.p, structure.differences)
        q = scale_weights("q", duals.q, structure.rows)
        cells, kinds = p[: -structure.kinds], p[-structure.kinds :]
        if not (cells.sum() > 0 and kinds.sum() > 0):
            raise ValueError("dual weights p of cells or of kinds of pairs are all zero")
        cells, kinds = cells / cells.max(), kinds / kinds.sum()
        unmoved = 0.0 if structure.keeps_tree else float(kinds[0])
        share = upper_pair_share(structure, cells, unmoved)
        if not share > 0:
            return 0.0
        error = 4 * gamma(structure.kinds + 4 * structure.blocks.shape[1] + 8)
        kappas, thetas = structure.weigh_blocks(kinds)
        # Of next to nothing, nothing is kept.
        factors = np.where(kappas > 1e-9, kappas - error, 0.0)
        kept = factors > 0
        parts = np.where(thetas + error > 0, factors, kappas + error)
        parts = np.divide(thetas + error, parts, out=np.ones_like(parts), where=kept)
        charges = None if structure.keeps_tree else np.minimum(parts * (1 + error), 1.0)
        rows = q / (scale * structure.targets)
        norm = sum_block_norms(structure, cells, rows, factors, charges)
        return divide_by_mass(norm * math.sqrt(2 / share) * (1 - gamma(16)), cells, q)

    def certify_tiers(self, claims: TierClaims, lower_bound_at: LowerBoundAt) -> Iterator[Tier]:
        """Certify one tier: the profile tells no cells apart."""
        yield Tier(1, float(claims.profile[0]), claims.lower_bound**2 * (1 - 4 * UNIT_ROUNDOFF))


def upper_pair_share(structure: TreePairStructure, weights: FloatArray, unmoved: float) -> float:
    """Bound the sum of the weights of all pairs over the sum of p from above.

    Args:
        structure: The structure.
        weights: p, the weights of leaves and dense cells, shape (leaves * D,).
        unmoved: phi of the empty move.
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
    total = float(p.sum())
    error = gamma(4 * p.size + 64)
    return max(0.0, 1 - unmoved * float(alone) / total * (1 - error)) + 4 * UNIT_ROUNDOFF
