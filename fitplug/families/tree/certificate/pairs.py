"""The certificate of trees where neighbours replace a record.

A kind of pairs of cells consists of two dense cells c and c' of one region, and a move D. It has
the weight phi_D(c, c'), for both orders together if c and c' differ. The leaves of its cells are
any two: with pi_c(l), the share of leaf l in the weights of c, they have the weights pi_c(l)
pi_c'(l'). Other kinds consist of one dense cell and a move D alone, with weight chi_D(c): leaf l
has the share pi_c(l), and the two cells differ only along the move. Within a kind, each weight is
divided evenly among the remaining cells. With the ratio of (H e)'(H e') to |H e|^2 for block A and
move D, and the symmetric matrices S_D of phi_D, block A has (U17)

    P_A = 2 (diag(kappa_A(c) pi_c) - sum_cc' theta_A(c, c') pi_c pi_c'')
    theta_A = sum_D S_D ratio_A(D)    kappa_A = sum_D S_D 1 + sum_D chi_D (1 - ratio_A(D))

and the weights of all pairs sum to 1 - sum_c phi_0(c, c) sum_l pi_c(l)^2, with phi_0 for the empty
move, if phi and chi sum to 1. If the unit keeps the tree, there is only chi.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import check_weights, divide_by_mass, scale_weights
from fitplug.errors import BAD_PROOF
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.tree.certificate.block_weights import BlockWeights, Totals
from fitplug.families.tree.certificate.parted_pairs import (
    LowestTotals,
    PartedDensities,
    PartedTree,
    build_covariances,
    divide_densities,
    factor_covariances,
    find_lowest_totals,
)
from fitplug.families.tree.certificate.scalar_trees import LEAST_MASS
from fitplug.families.tree.certificate.trees import (
    RootPrior,
    TreeCertifier,
    add_gains,
    build_root_prior,
    lower_root_trace,
    lower_weighted_norm,
    scale_by_power,
    scale_rows,
)
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import BoolArray, FloatArray, gamma
from fitplug.workload import CellClasses


class TreePairCertifier(TreeCertifier):
    """The certificate of `TreePairStructure`."""

    is_refined = False

    takes_objectives = False

    def lower_cost(
        self, structure: TreeStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        assert isinstance(structure, TreePairStructure)
        check_weights(duals.p, structure.differences)
        p, parts = np.split(duals.p, [structure.differences - structure.parts_below])
        p = scale_weights(p, len(p))
        q = scale_weights(duals.q, structure.rows)
        cells = p[: -structure.kinds].reshape(-1, structure.cells)
        kinds = p[-structure.kinds :]
        sums = cells.sum(axis=0)
        _drop_kinds(structure, kinds, sums > 0)
        if not kinds.sum() > 0:
            raise ValueError(BAD_PROOF)
        shares = np.divide(cells, sums, out=np.zeros_like(cells), where=sums > 0)
        kinds = kinds / kinds.sum()
        mass = upper_pair_mass(structure, shares, kinds)
        if not mass > 0:
            return 0.0
        power, rows = scale_by_power(q / (scale * structure.targets))
        kappas, thetas = structure.weigh_blocks(kinds)
        parted = None
        if parts.any():
            parted, mass = part_pairs(structure, cells.sum(axis=1), kinds, parts)
            if parted is None or not mass > 0:
                return 0.0
            shares = np.repeat(parted.leaves[:, None], structure.cells, axis=1)
        norms = [
            math.sqrt(2 * structure.subsets.profile_multiples[block])
            * _lower_block(structure, block, shares, (kappas[block], thetas[block]), rows, parted)
            for block in structure.noisy_blocks.tolist()
        ]
        norm = math.ldexp(math.fsum(norms), power) * (1 - gamma(len(cells) + 64))
        return divide_by_mass(norm / math.sqrt(mass), np.ones(1), q)


def upper_pair_mass(structure: TreePairStructure, shares: FloatArray, kinds: FloatArray) -> float:
    """Bound the sum of the weights of all pairs from above.

    Args:
        structure: The structure.
        shares: pi, the share of each leaf in the weights of each dense cell, shape (leaves, D).
        kinds: The weights of kinds of pairs, whose sum is 1, shape (kinds,).
    """
    tree, (anywhere, _) = structure.tree, structure.split_kinds(kinds)
    counts = tree.multiplicities[tree.leaves].astype(np.float64)
    first, second = structure.cell_pairs
    alike = np.where(first == second, anywhere[0], 0.0)
    alone = float(alike @ (shares**2 / counts[:, None]).sum(axis=0)[first])
    error = gamma(len(shares) + structure.kinds + 64)
    return max(0.0, 1 - alone * (1 - error)) + error


def part_pairs(
    structure: TreePairStructure, weights: FloatArray, kinds: FloatArray, parts: FloatArray
) -> tuple[PartedDensities | None, float]:
    """Find the densities of pairs by the node where their paths part, and bound their total weight.

    Args:
        structure: The structure.
        weights: The weights of the leaves, shape (leaves,).
        kinds: The weights of kinds of pairs, whose sum is 1, shape (kinds,).
        parts: The share f of these below the nodes of each step; more than 1 counts as 1.
    """
    leaves = weights / weights.sum()
    if not (leaves >= LEAST_MASS).all():
        return None, 0.0
    anywhere, _ = structure.split_kinds(kinds)
    shape = (len(structure.tree.steps), *anywhere.shape)
    densities = divide_densities(structure, leaves, anywhere, np.minimum(parts, 1).reshape(shape))
    error = densities.error + gamma(structure.kinds + 64)
    return densities, max(0.0, 1 - densities.alone) + error


def _drop_kinds(structure: TreePairStructure, kinds: FloatArray, is_weighted: BoolArray) -> None:
    """Set the weights of kinds to zero, in place, if a dense cell of theirs has no weight."""
    anywhere, alike = structure.split_kinds(kinds)
    anywhere[:, ~is_weighted[structure.cell_pairs].all(axis=0)] = 0
    alike[:, ~is_weighted] = 0


class _Loss(NamedTuple):
    """The loss where dense cells of one class have different shares of leaves.

    All weights of pairs are at least `least` squared times the weights with the class's shares. In
    the order of symmetric matrices, the loss is also at most the share `within` of the leaves' part
    beside the class's sums, plus the share `between` of the sums (Lemma U5).

    Attributes:
        least: The factor.
        within: The share of the leaves' part beside the sums.
        between: The share of the sums.
    """

    least: float
    within: float
    between: float


_NOTHING_LOST = _Loss(1.0, 0.0, 0.0)


def _upper_loss(classes: CellClasses, p: FloatArray, theta: FloatArray) -> _Loss:
    """Bound the loss from using the shares of the root's classes, for p (leaves, D)."""
    asked = np.flatnonzero(classes.of_cell >= 0)
    if len(asked) == classes.size:
        return _NOTHING_LOST
    counted, member = p[:, asked], classes.of_cell[asked]
    merged, theta = classes.merge_counts(p), theta[np.ix_(asked, asked)]
    sums, of_class = counted.sum(axis=0), merged.sum(axis=0)
    parts = np.divide(sums, of_class[member], out=np.zeros_like(sums), where=sums > 0)
    even = parts * merged[:, member]
    ratios = np.divide(counted, even, out=np.ones_like(counted), where=even > 0)
    # For each dense cell, the spread of its shares over the root of the class's sum.
    spread = np.sqrt((even * (ratios - 1) ** 2).sum(axis=0) / np.where(sums > 0, sums, 1.0))
    spread = spread / np.sqrt(np.where(sums > 0, of_class[member], 1.0))
    indicator = (np.arange(classes.size)[:, None] == member).astype(np.float64)
    rest = theta - np.outer(parts, parts) * (indicator @ theta @ indicator.T)[member][:, member]
    within = indicator @ (spread[:, None] * np.abs(rest) * spread) @ indicator.T
    rows = np.abs(rest @ indicator.T) / np.sqrt(np.where(of_class > 0, of_class, 1.0))
    between = indicator @ (spread[:, None] * rows)
    most = max(float(between.sum(axis=0).max()), float(between.sum(axis=1).max()))
    error = gamma(len(p) + len(asked) ** 2 + 64)
    most = most * (1 + error) + 4 * error
    return _Loss(
        least=float(ratios.min()) * (1 - error),
        within=float(within.sum(axis=1).max()) * (1 + error) + 4 * error,
        between=most,
    )


def _lower_block(
    structure: TreePairStructure,
    block: int,
    shares: FloatArray,
    charges: tuple[FloatArray, FloatArray],
    row_weights: FloatArray,
    parted: PartedDensities | None,
) -> float:
    """Bound the norm of a block from below, without the factors of its profile and of 2.

    Args:
        structure: The structure.
        block: The block.
        shares: pi, the share of each leaf in the weights of each dense cell, shape (leaves, D).
        charges: kappa, shape (D,), and theta by pairs of dense cells, shape (K,).
        row_weights: q / c, near 1 or less, shape (rows,).
        parted: The densities of pairs by the node where their paths part, if they depend on it.
    """
    kappa, theta = charges
    power, rows = scale_rows(structure, block, row_weights)
    roundings = structure.kinds + 4 * structure.blocks.shape[1] + 8
    kappa = kappa * (1 - 4 * gamma(roundings))
    p = shares * kappa
    if structure.keeps_tree:
        norm = lower_weighted_norm(BlockWeights(structure, block, p, rows), None)
        return math.ldexp(norm, power)
    classes, totals = structure.classes[block][0], structure.find_totals(block)
    spread = structure.unfold_pairs(theta)
    lost, factor = _NOTHING_LOST, 1.0
    if parted is None:
        lost = _upper_loss(classes, p, spread)
    if totals.count and not len(totals.measured):
        # Each class is a public total, so nothing is lost of the sums.
        lost = lost._replace(between=0.0)
    is_public = totals.count > 0 and lost.between > 0
    within = lost.within + lost.between
    if is_public or lost.least**2 >= 1 - within:
        factor, lost, within = lost.least, _NOTHING_LOST, 0.0
    weights = BlockWeights(structure, block, p * (1 - within), rows)
    merged = classes.merge_matrices(spread)
    degrees = classes.merge_counts(kappa)
    if weights.last < 0 or not (weights.masses[0] > 0).all():
        return 0.0
    prior = build_root_prior(
        (weights.masses[0], weights.rounding),
        (degrees, merged),
        totals,
        lost.between,
        roundings + structure.cells**2,
    )
    if prior is None:
        return 0.0
    if parted is not None and weights.last > 0:
        norm = _lower_parted_norm(weights, prior, parted, (block, kappa))
        return math.ldexp(norm, power)
    return math.ldexp(factor * lower_weighted_norm(weights, prior), power)


def _lower_parted_norm(
    weights: BlockWeights,
    prior: RootPrior,
    parted: PartedDensities,
    charges: tuple[int, FloatArray],
) -> float:
    """Bound the norm of a block whose densities of pairs depend on where their paths part."""
    structure, (block, kappa) = weights.structure, charges
    assert isinstance(structure, TreePairStructure)
    shift = 2 * parted.error + gamma(structure.cells**2 + 8 * structure.kinds + 64)
    depth, factors, variances, least = find_lowest_totals(structure, block), [], [], 1.0
    tree = weights.build_dense(Totals(depth, 1.0))
    steps = structure.tree.steps
    for step, C in zip(
        steps, build_covariances(structure, block, kappa, parted, shift), strict=False
    ):
        if step.depth >= depth:
            counted = C[:, tree.members][:, :, tree.members]
            error = gamma(counted.shape[1] ** 2 + 8) * np.abs(counted).sum(axis=(1, 2))
            variances.append(counted.sum(axis=(1, 2)) - 2 * error)
            continue
        proven = factor_covariances(C)
        if proven is None:
            return 0.0
        factors.append(proven[0])
        least = min(least, proven[1])
    shares = parted.shares[structure.tree.depths < depth]
    shares[0] = 1.0
    rounding, lowest = 4 * weights.rounding + gamma(len(parted.leaves) + 64), None
    if tree.totals is not None:
        of_totals = np.concatenate(variances)
        if not (of_totals > 0).all():
            return 0.0
        of_lowest = parted.shares[tree.totals.order.nodes]
        lowest = LowestTotals(tree.totals, of_lowest, of_totals, rounding)
    of_nodes = PartedTree(tree, shares, tuple(factors), prior.sums, rounding, lowest)

    def evaluate(poles: FloatArray) -> FloatArray:
        bounds, roots = of_nodes.lower_determinants(poles)
        return add_gains(bounds, roots, prior, poles)

    bound = lower_root_trace(tree, evaluate, most=4.0)
    return bound * math.sqrt(least) * (1 - gamma(8)) * (1 - 8 * weights.rounding)
