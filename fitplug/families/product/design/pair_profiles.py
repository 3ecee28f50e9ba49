"""The costs of pairs of cells in the product family, as a function of its scales.

A pair of cells has one way to move in each hierarchy, and stands for all leaves. So its costs are
those of the other attributes, times tables of the hierarchies' Y_ii, less twice those of Y_ij.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.product.design.pair_products import (
    Products,
    TreeProducts,
    list_matrix_products,
    measure_pairs,
)
from fitplug.families.product.design.scales import Profiles, multiply_axes
from fitplug.families.product.shape.grades import add_total
from fitplug.families.product.shape.products import ProductPairStructure
from fitplug.numeric import BoolArray, FloatArray, IntArray

_SWEEPS = 20
"""The most sweeps of a search over all attributes."""

_HEAVY = 1e-4
"""The least weight of a pair, as a share of the largest, with which the next search includes it."""

_COSTLY = 0.95
"""Searches start at pairs that cost at least this share of the largest cost."""


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
        ends: The sum of the two cells' costs at each scale of 1, without hierarchies, shape (pairs,
            count).
        both: The product of the two cells' columns, likewise.
    """

    structure: ProductPairStructure
    products: tuple[Products, ...]
    cells: IntArray
    ends: FloatArray
    both: FloatArray

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
        entries = measure_pairs(products, cells, with_trees=False)
        scales = ScaleProducts(structure)
        first, second, both = (scales.multiply(one) * scales.is_noisy for one in entries)
        return cls(structure, tuple(products), cells, first + second, both)

    @property
    def size(self) -> int:
        """The number of rows: pairs, each with all distinct leaves of hierarchies."""
        return len(self.cells) * math.prod(map(len, self._tables))

    @cached_property
    def _tables(self) -> tuple[FloatArray, ...]:
        """1 and eta of the distinct leaves of each hierarchy, shape (c, 1 + K)."""
        return tuple(add_total(Y.leaves) for Y in self.products if isinstance(Y, TreeProducts))

    @cached_property
    def _ways(self) -> list[tuple[IntArray, tuple[FloatArray, ...]]]:
        """The pairs of each combination of ways to move, and 1 and Y_ij by leaf, (c, 1 + K)."""
        trees = [Y for Y in self.products if isinstance(Y, TreeProducts)]
        ways, index = np.unique(
            self.cells[:, 1, _find_trees(self.products)], axis=0, return_inverse=True
        )
        return [
            (
                np.flatnonzero(index.ravel() == i),
                tuple(
                    add_total(Y.join(Y.leaves, np.full(len(Y.leaves), way)))
                    for Y, way in zip(trees, combination, strict=True)
                ),
            )
            for i, combination in enumerate(ways)
        ]

    @cached_property
    def _places(self) -> csr_array:
        """The grades of hierarchies in each scale, shape (their tuples, count)."""
        labels, grid = self.structure.grade_labels, [table.shape[1] for table in self._tables]
        among = [labels[a] for a in _find_trees(self.products)]
        places, count = np.ravel_multi_index(among, grid), self.ends.shape[1]
        return csr_array(
            (np.ones(count), (places, np.arange(count))), shape=(int(np.prod(grid)), count)
        )

    def _spread(self, costs: FloatArray, tables: Sequence[FloatArray]) -> FloatArray:
        """Sum costs (pairs, count) times the numbers of leaves, shape (pairs, leaves)."""
        grid = self._places @ costs.T
        shaped = grid.reshape(*(table.shape[1] for table in tables), len(costs))
        return multiply_axes(shaped, tables).reshape(len(costs), -1)

    def _collect(self, p: FloatArray, tables: Sequence[FloatArray]) -> FloatArray:
        """Sum weights p (pairs, leaves) times the leaves' numbers, shape (pairs, count)."""
        shaped = np.moveaxis(p.reshape(len(p), *map(len, tables)), 0, -1)
        grid = multiply_axes(shaped, [table.T for table in tables])
        return np.asarray((self._places.T @ grid.reshape(len(p), -1).T).T)

    def multiply(self, precisions: FloatArray) -> FloatArray:
        """Return the profile (size,) of precisions 1 / z (count,)."""
        if not len(self.cells) or not self._tables:
            return np.maximum(self.ends - 2 * self.both, 0.0) @ precisions
        profile = self._spread(self.ends * precisions, self._tables)
        for pairs, tables in self._ways:
            profile[pairs] -= 2 * self._spread(self.both[pairs] * precisions, tables)
        return np.maximum(profile, 0.0).ravel()

    def multiply_transposed(self, p: FloatArray) -> FloatArray:
        """Return the mean cost (count,) of each scale at 1, for weights p (size,) of the rows."""
        if not len(self.cells) or not self._tables:
            return np.maximum(self.ends - 2 * self.both, 0.0).T @ p
        p = p.reshape(len(self.cells), -1)
        costs = (self.ends * self._collect(p, self._tables)).sum(axis=0)
        for pairs, tables in self._ways:
            costs -= 2 * (self.both[pairs] * self._collect(p[pairs], tables)).sum(axis=0)
        return np.maximum(costs, 0.0)

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
            for entries in measure_pairs(self.products, self.cells)
        )
        for numbers, places in zip(ends, (((i, i),), ((j, j),), ((i, j), (j, i))), strict=True):
            sign = 1 if len(places) == 1 else -1
            for left, right in places:
                for moment, of_grade in zip(moments, numbers.T, strict=True):
                    np.add.at(moment, (left, right), sign * p * of_grade)
        return moments

    def of_matrices(self, matrices: Sequence[AttributeMatrix]) -> PairProfiles:
        """Compute the costs of the same pairs for integer matrices of the attributes."""
        products = list_matrix_products(matrices, self.products)
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
                ends = measure_pairs(self.products, pairs)
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
            missing = ScaleProducts(self.structure).is_noisy & ~wider._has_cost()
            before = len(wider.cells)
            if missing.any():
                wider, _ = wider.search(missing.astype(np.float64))
            if len(wider.cells) == before:
                break
        return wider

    def _has_cost(self) -> BoolArray:
        """Tell at which scales some pair costs something, shape (count,)."""
        counts, both = self.structure.batched.scales.counts, self.both.copy()
        for a, Y in enumerate(self.products):
            if isinstance(Y, TreeProducts):
                same = [np.ones((len(self.cells), 1 + k)) for k in counts]
                same[a] = add_total(Y.same[self.cells[:, 1, a]])
                both *= ScaleProducts(self.structure).multiply(same)
        return np.asarray((self.ends > 2 * both).any(axis=0))


def _find_trees(products: Sequence[Products]) -> list[int]:
    """Find the attributes that are hierarchies."""
    return [a for a, Y in enumerate(products) if isinstance(Y, TreeProducts)]
