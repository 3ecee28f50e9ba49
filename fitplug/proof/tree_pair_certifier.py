"""The certificate of trees where neighbours replace a record.

A dual weight of a pair of cells (s, x) and (s', x') of one region r, for leaves and dense cells x
with the weights p_x and the sum P_r over the region, whose symmetric attributes differ along the
set D, is 2 p_x p_x' / P_r phi_D, divided evenly among such s and s'. In block A, with the ratio of
(H e_s)'(H e_s') to |H e_s|^2, which depends on A and D alone, this makes (U17)

    P_A = 2 (diag(p) - theta_A sum_r p_r p_r' / P_r)    theta_A = sum_D phi_D ratio_A(D)

and the weights of all pairs sum to 1 - phi_0 sum_r sum_x p_x^2 / P_r, with phi_0 for the empty set,
if those of p and of phi do. If the unit keeps the tree, each leaf has regions of its own, and P_A
is 2 (1 - theta_A) diag(p).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fitplug.errors import PlanError
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma
from fitplug.proof.certifier import NO_FRAME, Duals, Frame
from fitplug.proof.nuclear_norm import divide_by_mass, scale_weights
from fitplug.proof.tiers import BoundAt, Tier, TierClaims
from fitplug.proof.tree_certifier import TreeCertifier, bound_block_norm, sum_block_norms
from fitplug.structure import Objective, TreePairStructure, TreeStructure


class TreePairCertifier(TreeCertifier):
    """The certificate of `TreePairStructure`, for the plain objective."""

    def bound_cost(
        self, structure: TreeStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        assert isinstance(structure, TreePairStructure)
        p = scale_weights("p", duals.p, structure.differences)
        q = scale_weights("q", duals.q, structure.rows)
        cells, moves = p[: -structure.moves], p[-structure.moves :]
        if not (cells.sum() > 0 and moves.sum() > 0):
            raise ValueError("dual weights p of cells or of moves are all zero")
        cells, phi = cells / cells.max(), moves / moves.sum()
        share = bound_pair_share(structure, cells, float(phi[0]))
        if not share > 0:
            return 0.0
        error = gamma(structure.moves + 4 * structure.blocks.shape[1] + 8)
        thetas = np.minimum(structure.move_ratios @ phi + 2 * error, 1.0)
        rows = q / (scale * structure.targets)
        if structure.keeps_tree:
            norm = sum_scaled_norms(structure, cells, rows, 1 - thetas)
        else:
            norm = sum_block_norms(structure, cells, rows, thetas)
        norm = norm * math.sqrt(2 / share) * (1 - gamma(16))
        return divide_by_mass(norm, cells, q)

    def check_form(self, objective: Objective, frame: Frame) -> None:
        if frame != NO_FRAME:
            raise PlanError("the frame of the dual weights is not one of the structure's")
        if not objective.plain:
            raise PlanError("plans for records that are replaced have the plain objective only")

    def certify_tiers(self, claims: TierClaims, bound_at: BoundAt) -> Iterator[Tier]:
        """Certify one tier: the profile tells no cells apart."""
        yield Tier(1, float(claims.profile[0]), claims.lower_bound**2 * (1 - 4 * UNIT_ROUNDOFF))


def sum_scaled_norms(
    structure: TreePairStructure, cells: FloatArray, rows: FloatArray, factors: FloatArray
) -> float:
    """Sum lower bounds on the norms of blocks whose p have a factor each, rounded down, (b,)."""
    power = math.frexp(float(rows.max()))[1] // 2
    rows, p = np.ldexp(rows, -2 * power), cells.reshape(-1, structure.cells)
    multiples = structure.subsets.profile_multiples * factors
    norms = [
        math.sqrt(multiples[block]) * bound_block_norm(structure, block, p, rows)
        for block in structure.noisy_blocks.tolist()
    ]
    return math.ldexp(math.fsum(norms), power) * (1 - gamma(64))


def bound_pair_share(structure: TreePairStructure, weights: FloatArray, unmoved: float) -> float:
    """Bound the sum of the weights of all pairs over the sum of p from above.

    Args:
        structure: The structure.
        weights: p, the weights of leaves and dense cells, shape (leaves * D,).
        unmoved: phi of the empty set.
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
