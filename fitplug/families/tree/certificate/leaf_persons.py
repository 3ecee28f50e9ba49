"""The norms of blocks of a tree for persons whose records are in random leaves, from below.

A person has a difference v over the dense cells, with the weight omega_v. Records of one label are
in one leaf, and each of these leaves is drawn by the weights p. In block A these persons have the
moment M (x) diag(p) below the root, where M = sum omega_v M_A(v) counts pairs of records in one
leaf alone, and M_0 at the root, which counts all pairs (docs/theory/persons.md, Theorem N6).

With M = F F' and M_0 = M, the norm of the block is that of a tree whose nodes have as many
independent variables as F has columns, each with the weights p, of which the queries N F are asked.
So the sweep of `fitplug.families.tree.certificate.dense_trees` finds it. At the root M_0 is bounded
from below by F (I - H'H + K K') F'. If the root's variables have the covariance V after all
answers, this adds log det(I - H (I - t V) H') and no less than log det(I + K' (I - t V) K).

F is turned so that its first column alone is measured where only the total of the classes is asked.
What rounding makes of F, H and N F is bounded after the fact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.blocks.certificate.person_bound import (
    factor_moment,
    sum_moments,
    upper_residual,
)
from fitplug.families.tree.certificate.block_determinants import BlockWeights, Totals
from fitplug.families.tree.certificate.dense_trees import RootCovariance
from fitplug.families.tree.certificate.public_root import lower_log_gram
from fitplug.families.tree.certificate.scalar_trees import LOGARITHM
from fitplug.families.tree.certificate.trees import lower_weighted_norm
from fitplug.families.tree.shape.blocks import GroupPart
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.neighbours import RecordSets
from fitplug.numeric import BoolArray, FloatArray, gamma
from fitplug.workload import CellClasses

_LEAST_SQUARE = 1e-13
"""Columns of F are left out if their squared norm is smaller, relative to the largest."""

_LEAST_CHANGE = 1e-9
"""A smaller relative change of the moment at the root is rounding."""

_ROOM = 1e-12
"""H'H is below the identity by this, so that rounding does not take it beyond."""


@dataclass(frozen=True, eq=False)
class LeafMoment:
    """The moment of a block over the classes of dense cells that it tells apart at the root.

    Attributes:
        factor: F, shape (r, n).
        less: H, shape (h, n).
        more: K, shape (n, k).
        excess: F F' is at most M + excess I, and F (I - H'H + K K') F' at most M_0 + excess I, in
            the order of symmetric matrices.
        total: The norm of what F makes of the total that is asked alone below some depth, which
            is that of its first column; 0 if there is no such depth.
    """

    factor: FloatArray
    less: FloatArray
    more: FloatArray
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
        return np.where(
            self._first, self._find_coefficients(part)[:, None] * self.moment.total, 0.0
        )

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
        return lost * math.sqrt(self.more_eigenvalue) * (1 + 2 * self.rounding)

    def change_root(
        self, found: FloatArray, poles: FloatArray, roots: Sequence[RootCovariance]
    ) -> FloatArray:
        """Bound log determinants from below where the root has the moment of `LeafMoment`.

        Args:
            found: Lower bounds where it has F F', shape (P,).
            poles: t, shape (P,).
            roots: What is known of V of the root at each pole.
        """
        logs = np.array(
            [
                self._lower_loss(t * own.lower, own.factor)
                + self._lower_gain(t * own.upper, own.factor)
                for t, own in zip(poles.tolist(), roots, strict=True)
            ]
        )
        total = np.where(np.isfinite(logs), found + logs - gamma(8) * (found + np.abs(logs)), 0.0)
        return np.maximum(total, 0.0)

    @property
    def more_eigenvalue(self) -> float:
        """No less than the factor by which the root's moment raises the largest eigenvalue."""
        return 1 + float((self.moment.more**2).sum()) * (1 + gamma(self.moment.more.size + 4))

    def _lower_loss(self, scale: float, G: FloatArray) -> float:
        """Bound log det(I - H (I - t V) H') from below, for t V at least scale G G'."""
        H = self.moment.less
        if not len(H):
            return 0.0
        # H H' is at most a diagonal matrix of the sums of its rows. Without answers, the root's
        # variables have the variance of their mass over t.
        sizes = np.abs(H) @ np.abs(H).T
        sums = np.abs(H @ H.T).sum(axis=1) + gamma(H.shape[1] + 2) * sizes.sum(axis=1)
        left = 1 - sums * (1 + gamma(len(H) + 4))
        if not (left >= 0).all():
            return -math.inf
        roots = np.diag(np.sqrt(left))
        mass = float(self.masses[0, 0]) * (1 + self.rounding)
        scale = math.sqrt(max(scale, 0.0) / mass)
        S = np.hstack([scale * (H @ G), roots])
        size = np.hstack([scale * (np.abs(H) @ np.abs(G)), roots])
        return lower_log_gram(S, gamma(len(G) + 16) * math.sqrt(float((size * size).sum())))

    def _lower_gain(self, scale: float, G: FloatArray) -> float:
        """Bound log det(I + K' (I - t V) K) from below, for t V at most scale G G'."""
        K = self.moment.more
        mass = float(self.masses[0, 0]) * (1 - self.rounding)
        # Masses and precisions that are wrong by a part change V by no larger part.
        scale *= (1 + 8 * self.rounding) / mass
        if not (K.size and math.isfinite(scale)):
            return 0.0
        towards = math.sqrt(scale) * (G.T @ K)
        found = K.T @ K - towards.T @ towards
        sizes = math.sqrt(scale) * (np.abs(G).T @ np.abs(K))
        sizes = np.abs(K).T @ np.abs(K) + sizes.T @ sizes
        error = gamma(4 * len(K) + 64 * len(found) + 64) * math.sqrt(float((sizes * sizes).sum()))
        values = np.linalg.eigvalsh((found + found.T) / 2) - error
        return float(np.log1p(np.maximum(values, 0.0)).sum()) * (1 - gamma(LOGARITHM + len(values)))

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
        found = lower_weighted_norm(
            weights,
            more_eigenvalue=weights.more_eigenvalue,
            change_root=weights.change_root if moment.less.size or moment.more.size else None,
        )
        found -= weights.upper_error()
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
    """Find the moment of a block over the classes of dense cells at the root."""
    classes = structure.classes[block]
    sizes = (*structure.person.sizes[:-1], math.inf)
    (root, error), (moment, other) = (
        _merge_classes(classes[0], *sum_moments(sets, own, sizes, of_sets, structure.cells))
        for own in (attributes, (*attributes, len(sizes) - 1))
    )
    F = factor_moment(moment)
    squares = (F * F).sum(axis=0)
    F = F[:, squares > _LEAST_SQUARE * squares.max(initial=0.0)]
    depth, total = find_total_depth(classes), 0.0
    if not F.size:
        return LeafMoment(F, F, F, 0.0, 0.0)
    if depth < len(classes):
        members = classes[depth].of_cell[classes[0].first] == 0
        towards = members @ F
        total = float(np.sqrt(towards @ towards))
        if total > 0:
            # A reflection that takes this to the first axis.
            towards[0] += math.copysign(total, towards[0])
            F = F - 2 * np.outer(F @ towards, towards) / (towards @ towards)
            F[:, 0] *= math.copysign(1.0, float(members @ F[:, 0]))
    excess = other + upper_residual(moment, F)
    H, K, at_root = _compare_root(root, F)
    return LeafMoment(F, H, K, max(excess, error + at_root), total)


def _merge_classes(
    classes: CellClasses, moment: FloatArray, error: float
) -> tuple[FloatArray, float]:
    """Sum a moment (D, D) by classes, (r, r), and bound the rounding error in the 2-norm.

    Sums by class of a matrix of norm e are at most e times the sums of the identity.
    """
    merged = classes.merge_counts(classes.merge_counts(moment).T)
    rounding = 2 * gamma(2 * len(moment)) * float(np.abs(moment).sum())
    return (merged + merged.T) / 2, error + rounding


def _compare_root(root: FloatArray, F: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Find H and K so that F (I - H'H + K K') F' is M_0, nearly.

    Args:
        root: M_0, shape (r, r).
        F: Shape (r, n).

    Returns:
        H, shape (h, n), K, shape (n, k), and by how much the product may be above M_0, relative to
        the identity.
    """
    inverse = np.linalg.pinv(F)
    change = inverse @ (root - F @ F.T) @ inverse.T
    values, vectors = np.linalg.eigh((change + change.T) / 2)
    less, more = values < -_LEAST_CHANGE, values > _LEAST_CHANGE
    H = (vectors[:, less] * np.sqrt(np.minimum(-values[less], 1 - _ROOM))).T
    K = vectors[:, more] * np.sqrt(values[more])
    lost, added = H @ F.T, F @ K
    sizes = np.abs(F) @ (np.abs(H).T @ np.abs(lost) + np.abs(K) @ np.abs(added).T)
    error = 4 * gamma(len(F) + 2 * F.shape[1] + 8) * sizes
    excess = upper_residual(root + lost.T @ lost, np.hstack([F, added]))
    return H, K, (excess + math.sqrt(float((error * error).sum()))) * (1 + gamma(8))


def find_total_depth(classes: tuple[CellClasses, ...]) -> int:
    """Find the first depth at and below which only a total is asked; else the number of depths."""
    sizes = [one.size for one in classes]
    return sizes.index(1) if 1 in sizes else len(sizes)
