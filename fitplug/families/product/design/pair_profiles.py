"""The costs of pairs of cells in the product family, as a function of its scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.dense_covariance import DenseCovariance
from fitplug.families.product.design.scales import Profiles
from fitplug.families.product.shape.grades import add_total
from fitplug.families.product.shape.products import ProductPairStructure
from fitplug.families.product.strategy.variants import VariantMatrix
from fitplug.numeric import BoolArray, FloatArray, IntArray

_SWEEPS = 20
"""The most sweeps of a search over all attributes."""

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
        cells: The two cells of each pair, shape (pairs, 2, attributes).
        costs: The cost of each pair at each scale of 1, shape (pairs, count).
    """

    structure: ProductPairStructure
    products: tuple[FloatArray, ...]
    cells: IntArray
    costs: FloatArray

    @classmethod
    def of_pairs(
        cls,
        structure: ProductPairStructure,
        products: Sequence[FloatArray],
        pairs: IntArray,
    ) -> PairProfiles:
        """Compute the costs of pairs (k, 2, attributes), each once."""
        cells = np.unique(pairs, axis=0)
        scales = ScaleProducts(structure)
        first, second, both = (scales.multiply(entries) for entries in _measure(products, cells))
        costs = np.maximum(first + second - 2 * both, 0.0) * scales.is_noisy
        return cls(structure, tuple(products), cells, costs)

    @property
    def size(self) -> int:
        """The number of pairs."""
        return len(self.cells)

    def multiply(self, precisions: FloatArray) -> FloatArray:
        """Return the profile (size,) of precisions 1 / z (count,)."""
        return self.costs @ precisions

    def multiply_transposed(self, p: FloatArray) -> FloatArray:
        """Return the mean cost (count,) of each scale at 1, for weights p (size,) of the pairs."""
        return self.costs.T @ p

    def sum_moments(self, a: int, p: FloatArray, precisions: FloatArray) -> FloatArray:
        """Sum P_k of an attribute's grades over the pairs, weighted by p (size,).

        Returns:
            Shape (K, n, n): <P_k, Y_k> are the terms of the mean cost that depend on the attribute.
        """
        scales = ScaleProducts(self.structure)
        n = self.products[a].shape[1]
        moments = np.zeros((len(self.products[a]), n, n))
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
        products = []
        for matrix in matrices:
            if isinstance(matrix, (DenseMatrix, VariantMatrix)):
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
        reached = self.multiply(precisions)
        pairs = self.cells[reached >= _COSTLY * reached.max()].copy()
        before = np.zeros(len(pairs))
        for _ in range(_SWEEPS):
            for a, Y in enumerate(self.products):
                ends = _measure(self.products, pairs)
                u, v, w = (scales.sum_others(entries, a, precisions) for entries in ends)
                eta = np.diagonal(Y, axis1=1, axis2=2)
                if a not in free:
                    pairs[:, :, a] = ((u + v - 2 * w) @ eta).argmax(axis=1)[:, None]
                    continue
                first, second = u @ eta, v @ eta
                for pair, one, other, both in zip(pairs, first, second, w, strict=True):
                    gains = np.add.outer(one, other) - 2 * np.tensordot(both, Y, 1)
                    pair[:, a] = divmod(int(gains.argmax()), len(one))
            wider = PairProfiles.of_pairs(self.structure, self.products, pairs)
            pairs, costs = wider.cells, wider.multiply(precisions)
            if len(costs) == len(before) and not (costs > before * (1 + 1e-9)).any():
                break
            before = costs
        wider = PairProfiles.of_pairs(
            self.structure, self.products, np.concatenate([self.cells, pairs])
        )
        return wider, float(wider.multiply(precisions).max())


def list_pair_products(
    covariances: Sequence[AttributeCovariance], sizes: Sequence[int]
) -> tuple[FloatArray, ...]:
    """List Y_k of each attribute's covariance; for a symmetric one, at two of its cells."""
    products = []
    for covariance, n in zip(covariances, sizes, strict=True):
        if isinstance(covariance, DenseCovariance):
            products.append(np.stack([K.T @ K for K in covariance.precisions]))
        else:
            products.append(_pair_symmetric(1 - 1 / n, -1 / n, n))
    return tuple(products)


def _pair_symmetric(same: float, between: float, n: int) -> FloatArray:
    """Return Y_k of a symmetric attribute at two cells, shape (1, 2, 2), or at its only one."""
    return np.array([[[same, between], [between, same]]])[:, : min(n, 2), : min(n, 2)]


def _measure(products: Sequence[FloatArray], cells: IntArray) -> list[list[FloatArray]]:
    """List 1 and Y_k at (i, i), (j, j) and (i, j) of pairs (k, 2, attributes), (k, 1 + K)."""
    i, j = cells[:, 0], cells[:, 1]
    return [
        [add_total(Y[:, left[:, a], right[:, a]].T) for a, Y in enumerate(products)]
        for left, right in ((i, i), (j, j), (i, j))
    ]
