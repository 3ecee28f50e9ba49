"""The norms of blocks of a tree for persons whose records are all in one leaf, from below.

A person has a difference v over the dense cells, with the weight omega_v, in a leaf that is drawn
by the weights p. In block A these persons have the moment M (x) diag(p) with M = sum omega_v M_A(v).
With M = F F' the norm of the block is that of a tree whose nodes have as many independent variables
as F has columns, each with the weights p, of which the queries N F are asked. So the sweep of
`fitplug.families.tree.certificate.dense_trees` finds it (docs/theory/persons.md, Theorem N6).

F is turned so that its first column alone is measured where only the total of the classes is asked.
What rounding makes of F and of N F is bounded after the fact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fitplug.families.blocks.certificate.person_bound import (
    factor_moment,
    sum_moments,
    upper_residual,
)
from fitplug.families.tree.certificate.block_determinants import BlockWeights, Totals
from fitplug.families.tree.certificate.trees import lower_weighted_norm
from fitplug.families.tree.shape.blocks import GroupPart
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.neighbours import RecordSets
from fitplug.numeric import BoolArray, FloatArray, gamma
from fitplug.workload import CellClasses

_LEAST_SQUARE = 1e-13
"""Columns of F are left out if their squared norm is smaller, relative to the largest."""


@dataclass(frozen=True, eq=False)
class LeafMoment:
    """The moment of a block over the classes of dense cells that it tells apart at the root.

    Attributes:
        factor: F, shape (r, n).
        excess: F F' is at most M + excess I, in the order of symmetric matrices.
        total: The norm of what F makes of the total that is asked alone below some depth, which
            is that of its first column; 0 if there is no such depth.
    """

    factor: FloatArray
    excess: float
    total: float


class LeafWeights(BlockWeights):
    """The weights of a block for persons in one leaf.

    Args:
        structure: The structure.
        block: The block, which asks for something.
        moment: The moment of its dense cells.
        p: Weights of leaves, shape (leaves,).
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
        return np.where(self._first, self._find_coefficients(part)[:, None] * self.moment.total, 0.0)

    def upper_error(self) -> float:
        """Bound the norm of what rounding adds to the queries, from above.

        A row that is wrong by the vector d at a node of weight p adds no more than |d| times the
        root of p and its weight.
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
        return lost * (1 + 2 * self.rounding)

    def _find_members(self, depth: int) -> BoolArray:
        return self._first

    def _sum_precisions(self, classes: CellClasses) -> FloatArray:
        return super()._sum_precisions(classes) * self.moment.total**2

    def _find_coefficients(self, part: GroupPart) -> FloatArray:
        """Find the multiple of the total that each row is, where only the total is asked."""
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
        sets: Differences over the dense cells, any number of them.
        of_sets: The weight of each, shape (v,).
        p: Weights of leaves, near 1 or less, shape (leaves,).
        row_weights: q / c, near 1 or less, shape (rows,).

    Returns:
        The bound, and the sum of the weights of the differences for which it is one: single records
        have some weight more, which covers rounding.

    Raises:
        ValueError: If the differences are not those of a person.
    """
    sets.check_form(structure.person)
    norm, cover = 0.0, 0.0
    for block, attributes in enumerate(structure.block_sets):
        if not structure.classes[block][0].size:
            continue
        moment = find_leaf_moment(structure, block, attributes, sets, of_sets)
        if not moment.factor.size:
            continue
        # A record with itself has w_A.
        cover = max(cover, moment.excess / float(structure.subsets.profile_multiples[block]))
        rows = row_weights
        most = max(part.multiple * rows[part.rows].max() for part in structure.parts[block])
        power = math.frexp(float(most))[1] // 2
        weights = LeafWeights(structure, block, moment, p, np.ldexp(rows, -2 * power))
        found = lower_weighted_norm(weights) - weights.upper_error()
        norm += math.ldexp(max(found, 0.0), power) * (1 - gamma(8))
    mass = float(of_sets.sum()) + structure.cells * cover * (1 + gamma(8))
    return norm * (1 - gamma(len(structure.blocks) + 4)), mass


def find_leaf_moment(
    structure: PersonTreeStructure,
    block: int,
    attributes: tuple[int, ...],
    sets: RecordSets,
    of_sets: FloatArray,
) -> LeafMoment:
    """Find the moment of a block over the classes of dense cells that it tells apart at the root."""
    classes = structure.classes[block]
    moment, error = sum_moments(structure.person, sets, attributes, of_sets)
    size = float(np.abs(moment).sum())
    # The classes' sums of a matrix of norm e are at most e times the identity of the cells.
    own = classes[0].merge_counts(classes[0].merge_counts(moment).T)
    own = (own + own.T) / 2
    error += 2 * gamma(2 * structure.cells) * size
    F = factor_moment(own)
    squares = (F * F).sum(axis=0)
    F = F[:, squares > _LEAST_SQUARE * squares.max(initial=0.0)]
    depth, total = find_total_depth(classes), 0.0
    if F.size and depth < len(classes):
        members = classes[depth].of_cell[classes[0].first] == 0
        towards = members @ F
        total = float(np.sqrt(towards @ towards))
        if total > 0:
            # A reflection that takes this to the first axis.
            towards[0] += math.copysign(total, towards[0])
            F = F - 2 * np.outer(F @ towards, towards) / (towards @ towards)
            F[:, 0] *= math.copysign(1.0, float(members @ F[:, 0]))
    return LeafMoment(F, error + upper_residual(own, F), total)


def find_total_depth(classes: tuple[CellClasses, ...]) -> int:
    """Find the first depth at and below which only a total is asked; else the number of depths."""
    sizes = [one.size for one in classes]
    return sizes.index(1) if 1 in sizes else len(sizes)
