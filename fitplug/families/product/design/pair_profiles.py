"""The costs of pairs of cells in the product family, as a function of its scales.

A pair of leaves of a hierarchy has the same costs at other nodes of equal depths, times the eta of
its leaves. So a pair of cells has one way to move in each hierarchy, and stands for all leaves: its
costs at each scale are multiplied by the products of the hierarchies' eta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.dense_covariance import DenseCovariance
from fitplug.families.product.design.node_tree_covariance import NodeTreeCovariance
from fitplug.families.product.design.scales import Profiles, find_distinct, multiply_axes
from fitplug.families.product.design.tree_covariance import TreeCovariance
from fitplug.families.product.shape.grades import add_total
from fitplug.families.product.shape.products import ProductPairStructure
from fitplug.families.product.strategy.variants import DenseVariants
from fitplug.numeric import BoolArray, FloatArray, IntArray

_SWEEPS = 20
"""The most sweeps of a search over all attributes."""

_HEAVY = 1e-4
"""The least weight of a pair, as a share of the largest, with which the next search includes it."""

_COSTLY = 0.95
"""Searches start at pairs that cost at least this share of the largest cost."""


@dataclass(frozen=True, eq=False)
class TreeProducts:
    """Y_k of a hierarchy's grades, at pairs of leaves that are alike.

    Attributes:
        eta: (Y_k)_ii of leaves, shape (n, K).
        ratios: (Y_k)_ij over (Y_k)_ii for each way to move, shape (ways, K): the leaf stays, or i
            and j are below different children of a node of depth 0, 1 and so on.
    """

    eta: FloatArray
    ratios: FloatArray

    @cached_property
    def leaves(self) -> FloatArray:
        """eta of the distinct leaves, shape (c, K); the largest if there is one grade."""
        if self.eta.shape[1] == 1:
            return self.eta.max(axis=0, keepdims=True)
        return find_distinct(self.eta)[0]

    def measure(self, cells: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """List Y_k at (i, i), (j, j) and (i, j) of leaves and ways to move (k, 2), (k, K)."""
        eta = self.leaves[cells[:, 0]]
        return eta, eta, eta * self.ratios[cells[:, 1]]

    def choose(self, u: FloatArray, v: FloatArray, w: FloatArray, is_free: bool) -> IntArray:
        """Choose the costliest leaves and ways to move, given factors of their Y_k, (k, 2)."""
        ratios = self.ratios if is_free else self.ratios[:1]
        costs = (u + v)[:, None] - 2 * w[:, None] * ratios
        flat = (costs @ self.leaves.T).reshape(len(u), -1).argmax(axis=1)
        return np.stack(np.divmod(flat, len(self.leaves))[::-1], axis=1)


Products: TypeAlias = "FloatArray | TreeProducts"
"""Y_k of an attribute, shape (K, n, n) or of a hierarchy."""


@dataclass(frozen=True, eq=False)
class ScaleProducts:
    """Products over the attributes of a scale, for several pairs at once.

    Attributes:
        structure: The structure.
    """

    structure: ProductPairStructure

    @property
    def is_noisy(self) -> BoolArray:
        """Whether each scale belongs to a block measured with noise, shape (count,)."""
        return self.structure.noisy_scales

    def multiply(self, tables: Sequence[FloatArray]) -> FloatArray:
        """Multiply one number for each grade of a scale.

        Args:
            tables: Per attribute, 1 and the numbers of its grades, shape (k, 1 + K).

        Returns:
            Shape (k, count).
        """
        product = np.ones((len(tables[0]), len(self.is_noisy)))
        for labels, table in zip(self.structure.grade_labels, tables, strict=True):
            product *= table[:, labels]
        return product

    def sum_others(
        self, tables: Sequence[FloatArray], a: int, precisions: FloatArray
    ) -> FloatArray:
        """For each grade of a, sum precisions (count,) times products over the other attributes.

        Returns:
            Shape (k, K).
        """
        labels = self.structure.grade_labels[a]
        among = np.flatnonzero((labels > 0) & self.is_noisy & (precisions > 0))
        product = np.ones((len(tables[0]), len(among)))
        for other, table in enumerate(tables):
            if other != a:
                product *= table[:, self.structure.grade_labels[other][among]]
        grades = np.zeros((len(among), tables[a].shape[1] - 1))
        grades[range(len(among)), labels[among] - 1] = precisions[among]
        return product @ grades


@dataclass(frozen=True, eq=False)
class PairProfiles(Profiles):
    """The costs of pairs of cells: their profile as a function of the scales' precisions.

    Attributes:
        structure: The structure.
        products: Y_k of each attribute's grades, shape (K, n, n); for a symmetric attribute, at two
            of its cells.
        cells: The two cells of each pair, shape (pairs, 2, attributes); of a hierarchy 0 and the
            way to move.
        costs: The cost of each pair at each scale of 1, and at an eta of 1 in hierarchies, shape
            (pairs, count).
    """

    structure: ProductPairStructure
    products: tuple[Products, ...]
    cells: IntArray
    costs: FloatArray

    @classmethod
    def of_pairs(
        cls,
        structure: ProductPairStructure,
        products: Sequence[Products],
        pairs: IntArray,
    ) -> PairProfiles:
        """Compute the costs of pairs (k, 2, attributes), each once."""
        any_leaf = pairs.copy()
        any_leaf[:, 0, _find_trees(products)] = 0
        cells = np.unique(any_leaf, axis=0)
        ways = [
            TreeProducts(np.ones_like(Y.ratios[:1]), Y.ratios) if isinstance(Y, TreeProducts) else Y
            for Y in products
        ]
        scales = ScaleProducts(structure)
        first, second, both = (scales.multiply(entries) for entries in _measure(ways, cells))
        costs = np.maximum(first + second - 2 * both, 0.0) * scales.is_noisy
        return cls(structure, tuple(products), cells, costs)

    @property
    def size(self) -> int:
        """The number of rows: pairs, each with all distinct leaves of hierarchies."""
        return len(self.cells) * math.prod(map(len, self._tables))

    @cached_property
    def _tables(self) -> tuple[FloatArray, ...]:
        """1 and eta of the distinct leaves of each hierarchy, shape (c, 1 + K)."""
        return tuple(add_total(Y.leaves) for Y in self.products if isinstance(Y, TreeProducts))

    @cached_property
    def _places(self) -> csr_array:
        """The grades of hierarchies in each scale, shape (their tuples, count)."""
        labels, grid = self.structure.grade_labels, [table.shape[1] for table in self._tables]
        among = [labels[a] for a in _find_trees(self.products)]
        places, count = np.ravel_multi_index(among, grid), self.costs.shape[1]
        return csr_array(
            (np.ones(count), (places, np.arange(count))), shape=(int(np.prod(grid)), count)
        )

    def multiply(self, precisions: FloatArray) -> FloatArray:
        """Return the profile (size,) of precisions 1 / z (count,)."""
        if not len(self.cells) or not self._tables:
            return self.costs @ precisions
        grid = self._places @ (self.costs * precisions).T
        shaped = grid.reshape(*(table.shape[1] for table in self._tables), len(self.cells))
        return multiply_axes(shaped, self._tables).ravel()

    def multiply_transposed(self, p: FloatArray) -> FloatArray:
        """Return the mean cost (count,) of each scale at 1, for weights p (size,) of the rows."""
        if not len(self.cells) or not self._tables:
            return self.costs.T @ p
        shaped = np.moveaxis(p.reshape(len(self.cells), *map(len, self._tables)), 0, -1)
        grid = multiply_axes(shaped, [table.T for table in self._tables])
        of_scales = self._places.T @ grid.reshape(len(self.cells), self._places.shape[0]).T
        return np.asarray(np.einsum("rs,sr->s", self.costs, of_scales))

    def list_costliest(self, precisions: FloatArray) -> tuple[IntArray, FloatArray]:
        """List the pairs at their costliest leaves, like `cells`, and their costs (pairs,)."""
        costs = self.multiply(precisions).reshape(len(self.cells), -1)
        cells = self.cells.copy()
        if self._tables:
            leaves = np.unravel_index(costs.argmax(axis=1), tuple(map(len, self._tables)))
            cells[:, 0, _find_trees(self.products)] = np.stack(leaves, axis=1)
        return cells, costs.max(axis=1)

    def find_heavy(self, p: FloatArray) -> BoolArray:
        """Tell which pairs have much of the weight of the rows, p (size,)."""
        weights = p.reshape(len(self.cells), -1).sum(axis=1)
        return np.asarray(weights > _HEAVY * weights.max())

    def spread(self, p: FloatArray, wider: PairProfiles) -> FloatArray:
        """Arrange weights p (size,) of the rows as those of other pairs, which may be more."""
        known = {pair.tobytes(): i for i, pair in enumerate(wider.cells)}
        found = [known.get(pair.tobytes(), -1) for pair in self.cells]
        weights = np.zeros((1 + len(wider.cells), wider.size // len(wider.cells)))
        weights[found] = p.reshape(len(self.cells), -1)
        return weights[:-1].ravel()

    def sum_moments(self, a: int, p: FloatArray, precisions: FloatArray) -> FloatArray:
        """Sum P_k of an attribute's grades over the pairs, weighted by p (size,).

        Returns:
            Shape (K, n, n): <P_k, Y_k> are the terms of the mean cost that depend on the attribute.
        """
        scales = ScaleProducts(self.structure)
        Y = self.products[a]
        assert not isinstance(Y, TreeProducts)
        moments = np.zeros_like(Y)
        i, j = self.cells[:, 0, a], self.cells[:, 1, a]
        ends = (
            scales.sum_others(entries, a, precisions)
            for entries in _measure(self.products, self.cells)
        )
        for numbers, places in zip(ends, (((i, i),), ((j, j),), ((i, j), (j, i))), strict=True):
            sign = 1 if len(places) == 1 else -1
            for left, right in places:
                for moment, of_grade in zip(moments, numbers.T, strict=True):
                    np.add.at(moment, (left, right), sign * p * of_grade)
        return moments

    def of_matrices(self, matrices: Sequence[AttributeMatrix]) -> PairProfiles:
        """Compute the costs of the same pairs for integer matrices of the attributes."""
        products: list[Products] = []
        for matrix, Y in zip(matrices, self.products, strict=True):
            if isinstance(Y, TreeProducts):
                grades = matrix.grades
                squares = [[matrix.column_square]] if grades is None else grades.column_squares
                products.append(TreeProducts(np.array(squares, dtype=np.float64), Y.ratios))
            elif isinstance(matrix, (DenseMatrix, DenseVariants)):
                parts = [rows.astype(np.float64) for rows in matrix.split_rows()]
                products.append(np.stack([part.T @ part for part in parts]))
            else:
                contrasts = build_contrasts(matrix.n)
                between = -contrasts.precision / contrasts.n
                products.append(_pair_symmetric(float(contrasts.column_square), between, matrix.n))
        return PairProfiles.of_pairs(self.structure, products, self.cells)

    def search(self, precisions: FloatArray) -> tuple[PairProfiles, float]:
        """Search for costly pairs by choosing the costliest values of one attribute after another.

        Args:
            precisions: 1 / z, shape (count,).

        Returns:
            The costs with the found pairs included, and the largest cost.
        """
        scales = ScaleProducts(self.structure)
        free = set(self.structure.free.tolist())
        pairs, reached = self.list_costliest(precisions)
        pairs = pairs[reached >= _COSTLY * reached.max()]
        before = np.zeros(len(pairs))
        for _ in range(_SWEEPS):
            for a, Y in enumerate(self.products):
                ends = _measure(self.products, pairs)
                u, v, w = (scales.sum_others(entries, a, precisions) for entries in ends)
                if isinstance(Y, TreeProducts):
                    pairs[:, :, a] = Y.choose(u, v, w, a in free)
                    continue
                eta = np.diagonal(Y, axis1=1, axis2=2)
                if a not in free:
                    pairs[:, :, a] = ((u + v - 2 * w) @ eta).argmax(axis=1)[:, None]
                    continue
                first, second = u @ eta, v @ eta
                for pair, one, other, both in zip(pairs, first, second, w, strict=True):
                    gains = np.add.outer(one, other) - 2 * np.tensordot(both, Y, 1)
                    pair[:, a] = divmod(int(gains.argmax()), len(one))
            wider = PairProfiles.of_pairs(self.structure, self.products, pairs)
            pairs, costs = wider.list_costliest(precisions)
            if len(costs) == len(before) and not (costs > before * (1 + 1e-9)).any():
                break
            before = costs
        wider = PairProfiles.of_pairs(
            self.structure, self.products, np.concatenate([self.cells, pairs])
        )
        return wider, float(wider.multiply(precisions).max())

    def cover(self) -> PairProfiles:
        """Include pairs that cost something at scales at which no pair does.

        Such a scale would be measured without noise.
        """
        wider = self
        for _ in range(_SWEEPS):
            missing = ScaleProducts(self.structure).is_noisy & ~(wider.costs > 0).any(axis=0)
            before = len(wider.cells)
            if missing.any():
                wider, _ = wider.search(missing.astype(np.float64))
            if len(wider.cells) == before:
                break
        return wider


def list_pair_products(
    covariances: Sequence[AttributeCovariance], sizes: Sequence[int]
) -> tuple[Products, ...]:
    """List Y_k of each attribute's covariance; for a symmetric one, at two of its cells."""
    products: list[Products] = []
    for covariance, n in zip(covariances, sizes, strict=True):
        if isinstance(covariance, DenseCovariance):
            products.append(np.stack([K.T @ K for K in covariance.precisions]))
        elif isinstance(covariance, (NodeTreeCovariance, TreeCovariance)):
            products.append(TreeProducts(covariance.compute_eta(), _list_ratios(covariance)))
        else:
            products.append(_pair_symmetric(1 - 1 / n, -1 / n, n))
    return tuple(products)


def _list_ratios(covariance: NodeTreeCovariance | TreeCovariance) -> FloatArray:
    """List the ratios of `TreeProducts`.

    With one grade, leaves that part at the top stand for all.
    """
    shape = covariance.shape
    k = shape.branching_children
    if isinstance(covariance, TreeCovariance):
        top = shape.top if shape.top > 1 else int(k[0])
        return np.array([[1.0], [-1 / (top - 1)]])
    below = shape.branching_depths - np.arange(shape.steps)[:, None]
    apart = np.where(below > 0, 0.0, np.where(below == 0, -1 / (k - 1), 1.0))
    ratios = np.concatenate([np.ones((1, len(k))), apart])
    # Weights change the ratio of two children by little if they are many.
    return np.tile(ratios, len(covariance.roots))


def _find_trees(products: Sequence[Products]) -> list[int]:
    """Find the attributes that are hierarchies."""
    return [a for a, Y in enumerate(products) if isinstance(Y, TreeProducts)]


def _pair_symmetric(same: float, between: float, n: int) -> FloatArray:
    """Return Y_k of a symmetric attribute at two cells, shape (1, 2, 2), or at its only one."""
    return np.array([[[same, between], [between, same]]])[:, : min(n, 2), : min(n, 2)]


def _measure(products: Sequence[Products], cells: IntArray) -> list[list[FloatArray]]:
    """List 1 and Y_k at (i, i), (j, j) and (i, j) of pairs (k, 2, attributes), (k, 1 + K)."""
    measured: list[list[FloatArray]] = [[], [], []]
    for a, Y in enumerate(products):
        i, j = cells[:, :, a].T
        triples = (
            Y.measure(cells[:, :, a])
            if isinstance(Y, TreeProducts)
            else (Y[:, i, i].T, Y[:, j, j].T, Y[:, i, j].T)
        )
        for entries, numbers in zip(measured, triples, strict=True):
            entries.append(add_total(numbers))
    return measured
