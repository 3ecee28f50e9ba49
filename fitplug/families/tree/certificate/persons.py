"""Certificates of trees for persons with several records (docs/theory/persons.md).

**Symmetric periods** (Theorem N4). The dual weights are p of the leaves and dense cells, and a
weight for each kind of persons (`fitplug.families.tree.shape.persons`). In block A these persons
have the moment P_A, and the bound is the sum of the blocks' norms with P_A instead of diag(w_A p).
If a block has one class of dense cells, one sweep gives a lower bound on the norm (`ScalarTree`).
Otherwise P_A is at least a multiple a of diag(p), or of diag(p) conditional on the sum of each
dense cell. Conditioning lowers the norm by at most the queries' norm on these sums, since | |F (I -
U U')|_* - |F|_* | <= |F U|_*.

**Periods as dense cells** (Theorem N5). The dual weights are p of the leaves, followed by omega_v
of differences v over the dense cells. Records with the same label are in one leaf, and each of
these leaves is drawn with weights p. In block A these persons have the moment M (x) diag(p) below
the root, where M = sum omega_v M_A(v) counts only pairs of records in one leaf, and M_0 at the
root, which counts all pairs. With M = F F' and M_0 = M, the norm of the block is the norm of a tree
whose nodes have one independent variable for each column of F, each with the weights p, and the
queries N F. At the root, M_0 is bounded from below by F R R' F', so the root's variables have the
covariance R R' times the sum of p (`RootPrior`). F is rotated so that only its first column is
measured where queries use only the total of the classes. The rounding of F, R and N F is bounded a
posteriori.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fitplug.certify import check_weights, scale_weights
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.certificate import factor_moment, sum_moments, upper_residual
from fitplug.families.tree.certificate.block_weights import BlockWeights, Totals
from fitplug.families.tree.certificate.trees import (
    RootPrior,
    TreeCertifier,
    lower_block_norm,
    lower_weighted_norm,
    scale_by_power,
    scale_rows,
)
from fitplug.families.tree.shape.blocks import GroupPart, TreeStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.neighbours import RecordSets
from fitplug.numeric import UNIT_ROUNDOFF, BoolArray, FloatArray, gamma
from fitplug.workload import CellClasses

_LEAST_SQUARE = 1e-13
"""Columns of F with a smaller squared norm, relative to the largest, are left out."""


class PersonTreeCertifier(TreeCertifier):
    """The certificate of `PersonTreeStructure`."""

    is_refined = False

    takes_objectives = False

    def lower_cost(
        self, structure: TreeStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        assert isinstance(structure, PersonTreeStructure)
        check_weights(duals.p, structure.differences)
        places = structure.profile_size if structure.sets is None else len(structure.tree.leaves)
        p = scale_weights(duals.p[:places], places)
        of_kinds = scale_weights(duals.p[places:], len(duals.p) - places)
        q = scale_weights(duals.q, structure.rows)
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
        # All weights below the root are at least those of the last depth.
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
    """Bound the queries' norm on the sums of dense cells, |F U|_*, from above.

    U has a column (p_c / mass of p_c)^1/2 for each dense cell c, and |F U| of this column is the
    square root of p_c' Q p_c over the mass.

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
            # Each of m identical leaves has 1 / m of the mass and of the weights.
            counts = tree.multiplicities[nodes].astype(np.float64)[:, None]
            square += float((weights * (reached / counts) ** 2).sum())
            operations += len(part.matrix)
        if (mass := float(masses[0, cell])) > 0:
            total += math.sqrt(square / mass)
    return total * (1 + 4 * gamma(operations))


@dataclass(frozen=True, eq=False)
class LeafMoment:
    """The moment of a block over the classes of dense cells that it distinguishes at the root.

    Attributes:
        factor: F, shape (r, n).
        root: R, shape (n, n); None for the identity.
        excess: F F' is at most M + excess I, and F R R' F' at most M_0 + excess I, in the order of
            symmetric matrices.
        total: The norm of the row that F gives for the total, where queries below some depth use
            only the total; 0 if there is no such depth.
    """

    factor: FloatArray
    root: FloatArray | None
    excess: float
    total: float


class LeafWeights(BlockWeights):
    """The weights of a block for persons whose records share a leaf.

    Args:
        structure: The structure.
        block: The block, which has some queries.
        moment: The moment of its dense cells.
        p: Weights of the leaves, shape (leaves,).
        row_weights: q / c, shape (rows,).
    """

    def __init__(
        self,
        structure: PersonTreeStructure,
        block: int,
        moment: LeafMoment,
        p: FloatArray,
        row_weights: FloatArray,
    ) -> None:
        of_cells = np.zeros((len(p), structure.cells))
        of_cells[:, structure.classes[block][0].first[0]] = p
        super().__init__(structure, block, of_cells, row_weights)
        self.moment = moment
        size = moment.factor.shape[1]
        self.masses = np.repeat(self.masses.sum(axis=1, keepdims=True), size, axis=1)
        self._first: BoolArray = np.arange(size) == 0

    def find_totals(self) -> Totals:
        if not self.moment.total:
            return Totals(self.last + 1, 1.0)
        return Totals(find_total_depth(self.classes), 1.0)

    def measure_classes(self, part: GroupPart) -> FloatArray:
        rows = super().measure_classes(part)
        if part.level.depth < find_total_depth(self.classes):
            return rows @ self.moment.factor
        return np.where(
            self._first, self._find_coefficients(part)[:, None] * self.moment.total, 0.0
        )

    def upper_error(self) -> float:
        """Bound the norm of the rounding errors of the queries from above.

        A row with the error d at a node of weight p adds at most |d| times the root of p and its
        weight.
        """
        lost = 0.0
        F = self.moment.factor
        for part in self.parts:
            rows = super().measure_classes(part)
            error = np.abs(rows @ F - self.measure_classes(part))
            error += gamma(len(F) + 4) * (np.abs(rows) @ np.abs(F))
            sizes = np.sqrt((error * error).sum(axis=1)) * (1 + gamma(error.shape[1] + 4))
            weights = part.multiple * self._find_weights(part.rows, part.level.nodes)
            masses = self.masses[part.level.nodes, 0]
            lost += float((np.sqrt(weights * masses[:, None]) @ sizes).sum())
        return lost * math.sqrt(self.most) * (1 + 2 * self.rounding)

    def find_root_prior(self) -> RootPrior | None:
        """Find the covariance of the root's variables; None if it is that of the weights."""
        R = self.moment.root
        if R is None:
            return None
        mass, rounding = float(self.masses[0, 0]), self.rounding
        factor = R * math.sqrt(mass * (1 - 2 * rounding))
        return RootPrior(np.full(len(R), mass), rounding, np.eye(len(R)), factor)

    @property
    def most(self) -> float:
        """An upper bound on the factor by which the root's moment raises the largest eigenvalue."""
        R = self.moment.root
        if R is None:
            return 1.0
        return max(1.0, float((R * R).sum()) * (1 + gamma(R.size + 4)))

    def _find_members(self, depth: int) -> BoolArray:
        return self._first

    def _sum_precisions(self, classes: CellClasses) -> FloatArray:
        return super()._sum_precisions(classes) * self.moment.total**2

    def _find_coefficients(self, part: GroupPart) -> FloatArray:
        """Find each row's multiple of the total, where queries use only the total."""
        classes = self.classes[find_total_depth(self.classes)]
        return np.asarray(part.matrix[:, classes.first[0]])


def lower_leaf_norm(
    structure: PersonTreeStructure,
    sets: RecordSets,
    of_sets: FloatArray,
    p: FloatArray,
    row_weights: FloatArray,
) -> tuple[float, float]:
    """Bound the sum of the norms of all blocks from below.

    Args:
        structure: The structure, whose periods are dense cells.
        sets: Any differences over the dense cells.
        of_sets: The weight of each difference, shape (v,).
        p: Weights of leaves, near 1 or less, shape (leaves,).
        row_weights: q / c, near 1 or less, shape (rows,).

    Returns:
        The bound, and the total weight of the differences for which it holds: it includes extra
        weight on single records, which covers rounding.

    Raises:
        ValueError: If a person cannot have these differences.
    """
    sets.check_form(structure.person)
    norm, cover = 0.0, 0.0
    for block, attributes in enumerate(structure.block_sets):
        if not structure.classes[block][0].size:
            continue
        moment = find_leaf_moment(structure, block, attributes, sets, of_sets)
        if not moment.factor.size:
            continue
        # The moment of a record with itself is w_A.
        cover = max(cover, moment.excess / float(structure.subsets.profile_multiples[block]))
        power, rows = scale_rows(structure, block, row_weights)
        weights = LeafWeights(structure, block, moment, p, rows)
        lower = lower_weighted_norm(weights, weights.find_root_prior(), weights.most)
        lower -= weights.upper_error()
        norm += math.ldexp(max(lower, 0.0), power) * (1 - gamma(8))
    mass = float(of_sets.sum()) + structure.cells * cover * (1 + gamma(8))
    return norm * (1 - gamma(len(structure.blocks) + 4)), mass


def find_leaf_moment(
    structure: PersonTreeStructure,
    block: int,
    attributes: tuple[int, ...],
    sets: RecordSets,
    of_sets: FloatArray,
) -> LeafMoment:
    """Compute the moment of a block over the classes of dense cells at the root."""
    classes = structure.classes[block]
    sizes = (*structure.person.sizes[:-1], math.inf)
    (root, error), (moment, other) = (
        _merge_classes(classes[0], *sum_moments(sets, shared, sizes, of_sets, structure.cells))
        for shared in (attributes, (*attributes, len(sizes) - 1))
    )
    F = factor_moment(moment)
    squares = (F * F).sum(axis=0)
    F = F[:, squares > _LEAST_SQUARE * squares.max(initial=0.0)]
    depth, total = find_total_depth(classes), 0.0
    if not F.size:
        return LeafMoment(F, None, 0.0, 0.0)
    if depth < len(classes):
        members = classes[depth].of_cell[classes[0].first] == 0
        towards = members @ F
        total = float(np.sqrt(towards @ towards))
        if total > 0:
            # A reflection that maps this to the first axis.
            towards[0] += math.copysign(total, towards[0])
            F = F - 2 * np.outer(F @ towards, towards) / (towards @ towards)
            F[:, 0] *= math.copysign(1.0, float(members @ F[:, 0]))
    excess = other + upper_residual(moment, F)
    R, at_root = _factor_root(root, moment, F)
    return LeafMoment(F, R, max(excess, error + at_root), total)


def _merge_classes(
    classes: CellClasses, moment: FloatArray, error: float
) -> tuple[FloatArray, float]:
    """Sum a moment (D, D) by classes, (r, r), and bound the rounding error in the 2-norm.

    Class sums of a matrix of norm e are at most e times the class sums of the identity.
    """
    merged = classes.merge_matrices(moment)
    rounding = 2 * gamma(2 * len(moment)) * float(np.abs(moment).sum())
    return (merged + merged.T) / 2, error + rounding


def _factor_root(
    root: FloatArray, moment: FloatArray, F: FloatArray
) -> tuple[FloatArray | None, float]:
    """Find R such that F R R' F' is nearly M_0.

    Args:
        root: M_0, shape (r, r).
        moment: M.
        F: Shape (r, n).

    Returns:
        R, shape (n, n), or None if M_0 is M; and the multiple of the identity by which the product
        may exceed M_0.
    """
    if np.array_equal(root, moment):
        return None, upper_residual(root, F)
    inverse = np.linalg.pinv(F)
    change = inverse @ root @ inverse.T
    values, vectors = np.linalg.eigh((change + change.T) / 2)
    R = vectors * np.sqrt(np.maximum(values, 0.0))
    product = F @ R
    sizes = (np.abs(F) @ np.abs(R)) @ np.abs(product).T
    error = 4 * gamma(F.shape[1] + 8) * sizes
    excess = upper_residual(root, product) + math.sqrt(float((error * error).sum()))
    return np.asarray(R), excess * (1 + gamma(8))


def find_total_depth(classes: tuple[CellClasses, ...]) -> int:
    """Find the first depth from which queries use only a total; else the number of depths."""
    sizes = [one.size for one in classes]
    return sizes.index(1) if 1 in sizes else len(sizes)
