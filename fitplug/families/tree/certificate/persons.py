"""Certificates of trees for persons with several records (docs/theory/persons.md, Theorem N4).

The dual weights are p of the leaves and dense cells, and a weight for each kind of persons
(`fitplug.families.tree.shape.persons`). In block A these persons have the moment P_A, and the bound
is the sum of the norms of the blocks with P_A in the place of diag(w_A p).

Where a block has one class of dense cells, one sweep finds the norm, from below (`ScalarTree`).
Elsewhere P_A is at least a multiple a of diag(p), or of what is left of diag(p) when the sum of
each dense cell is known. This costs the norm no more than what the queries measure of these sums,
since | |F (I - U U')|_* - |F|_* | <= |F U|_*.

Where periods are dense cells, p has weights of the leaves, and then of differences over the dense
cells, which are all in one leaf (`fitplug.families.tree.certificate.leaf_persons`).
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.certify import scale_weights
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.tree.certificate.block_weights import BlockWeights
from fitplug.families.tree.certificate.leaf_persons import lower_leaf_norm
from fitplug.families.tree.certificate.trees import (
    TreeCertifier,
    lower_block_norm,
    lower_weighted_norm,
    scale_by_power,
    scale_rows,
)
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma


class PersonTreeCertifier(TreeCertifier):
    """The certificate of `PersonTreeStructure`."""

    is_refined = False

    takes_objectives = False

    def lower_cost(
        self, structure: TreeStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        assert isinstance(structure, PersonTreeStructure)
        if duals.p.shape != (structure.differences,):
            count = structure.differences
            raise ValueError(f"dual weights p must be {count} finite numbers >= 0")
        places = structure.profile_size if structure.sets is None else len(structure.tree.leaves)
        p = scale_weights("p", duals.p[:places], places)
        of_kinds = scale_weights("p", duals.p[places:], len(duals.p) - places)
        q = scale_weights("q", duals.q, structure.rows)
        # Masses are divided by their sum.
        mass = float(p.sum()) * float(q.sum()) * (1 + 2 * gamma(len(p) + len(q)))
        power, p = scale_by_power(p)
        more, rows = scale_by_power(q / (scale * structure.targets))
        if structure.sets is not None:
            norm, kind_mass = lower_leaf_norm(structure, structure.sets, of_kinds, p, rows)
        else:
            kind_mass = float(of_kinds.sum())
            p = p.reshape(-1, structure.cells)
            norm = math.fsum(
                _lower_kinds_norm(structure, block, of_kinds, p, rows)
                for block in range(len(structure.blocks))
            )
        mass *= kind_mass * (1 + gamma(len(of_kinds) + 4))
        norm = math.ldexp(norm, power + more) * (1 - gamma(64))
        return max(0.0, norm / math.sqrt(mass) * (1 - 8 * UNIT_ROUNDOFF))


def _lower_kinds_norm(
    structure: PersonTreeStructure,
    block: int,
    of_kinds: FloatArray,
    p: FloatArray,
    row_weights: FloatArray,
) -> float:
    """Bound the norm of a block from below, for weights of kinds of persons.

    Args:
        structure: The structure.
        block: The block.
        of_kinds: The weight of each kind, shape (kinds,).
        p: Weights of leaves and dense cells, near 1 or less, shape (leaves, D).
        row_weights: q / c, near 1 or less, shape (rows,).
    """
    scales = of_kinds @ structure.weigh_kinds(block)
    scales *= 1 - gamma(len(of_kinds) + 8)
    root = math.sqrt(float(structure.subsets.profile_multiples[block]))
    if structure.cells > 1:
        # All weights below the root are at least those of the last depth, or equal to them.
        full = lower_block_norm(structure, block, p, row_weights)
        least, deepest = float(scales.min()), float(scales[-1])
        known = 0.0
        if least < deepest:
            known = _upper_known_norm(structure, block, p, row_weights)
        lower = max(math.sqrt(least) * full, math.sqrt(deepest) * (full - known))
        return root * max(lower, 0.0) * (1 - 16 * UNIT_ROUNDOFF)
    power, rows = scale_rows(structure, block, row_weights)
    norm = lower_weighted_norm(BlockWeights(structure, block, p, rows), None, scales=scales)
    return root * math.ldexp(norm, power) * (1 - 64 * UNIT_ROUNDOFF)


def _upper_known_norm(
    structure: PersonTreeStructure,
    block: int,
    p: FloatArray,
    row_weights: FloatArray,
) -> float:
    """Bound what is measured of the sums of dense cells, |F U|_*, from above.

    U has a column (p_c / mass of p_c)^1/2 for each dense cell c: its norm is the square root of
    p_c' Q p_c over the mass.

    Args:
        structure: The structure.
        block: The block.
        p: Weights of leaves and dense cells, shape (leaves, D).
        row_weights: q / c, shape (rows,).
    """
    tree = structure.tree
    masses = tree.sum_leaves(p)
    total, operations = 0.0, tree.size + structure.cells + len(tree.steps) + 64
    for cell in range(structure.cells):
        square = 0.0
        for part in structure.parts[block]:
            nodes = part.level.nodes
            weights = part.multiple * row_weights[part.rows].reshape(len(nodes), -1)
            reached = masses[nodes, cell, None] * np.abs(part.matrix[:, cell])
            # Each of m identical leaves has one m-th of the mass, and of the weights.
            counts = tree.multiplicities[nodes].astype(np.float64)[:, None]
            square += float((weights * (reached / counts) ** 2).sum())
            operations += len(part.matrix)
        if (mass := float(masses[0, cell])) > 0:
            total += math.sqrt(square / mass)
    return total * (1 + 4 * gamma(operations))
