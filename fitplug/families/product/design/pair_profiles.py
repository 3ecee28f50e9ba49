"""What pairs of cells cost in the product family, as a function of its scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.dense_covariance import DenseCovariance
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.numeric import FloatArray, IntArray

_SWEEPS = 20
"""The most times that a search chooses the values of each attribute."""

_COSTLY = 0.95
"""Searches begin at pairs that cost at least this part of the largest cost."""


@dataclass(frozen=True, eq=False)
class PairProfiles:
    """The costs of pairs of cells, which are the profile at the precisions of scales.

    Attributes:
        structure: The structure.
        products: Y of each attribute; of a symmetric one, of two of its cells.
        cells: The two cells of each pair, shape (pairs, 2, attributes).
        costs: What each scale costs a pair at 1, shape (pairs, count).
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
        pairs: Sequence[tuple[IntArray, IntArray]] | IntArray,
    ) -> PairProfiles:
        """Compute the costs of pairs, each once."""
        cells = np.unique(np.array(pairs, dtype=np.int64), axis=0)
        ends = _measure(products, cells)
        blocks = structure.blocks[structure.noisy_blocks]
        costs = np.zeros((len(cells), len(structure.blocks)))
        first, second, both = (multiply_over_blocks(own, blocks) for own in ends)
        costs[:, structure.noisy_blocks] = np.maximum(first + second - 2 * both, 0.0)
        return cls(structure, tuple(products), cells, costs)

    @property
    def size(self) -> int:
        """The number of pairs."""
        return len(self.cells)

    def multiply(self, precisions: FloatArray) -> FloatArray:
        """Return the profile (size,) of precisions 1 / z (count,)."""
        return self.costs @ precisions

    def multiply_transposed(self, p: FloatArray) -> FloatArray:
        """Return the mean cost (count,) of each scale at 1, of weights p (size,) of the pairs."""
        return self.costs.T @ p

    def of_matrices(self, matrices: Sequence[AttributeMatrix]) -> PairProfiles:
        """Compute the costs of the same pairs where integer matrices measure the attributes."""
        products = []
        for matrix in matrices:
            if isinstance(matrix, DenseMatrix):
                real = matrix.matrix.astype(np.float64)
                products.append(real.T @ real)
            else:
                contrasts = build_contrasts(matrix.n)
                between = -contrasts.precision / contrasts.n
                products.append(_pair_symmetric(float(contrasts.column_square), between, matrix.n))
        return PairProfiles.of_pairs(self.structure, products, self.cells)

    def search(self, precisions: FloatArray) -> tuple[PairProfiles, float]:
        """Search for costly pairs: of each attribute in turn the costliest values are chosen.

        Args:
            precisions: 1 / z, shape (count,).

        Returns:
            Costs of the pairs that were found too, and the largest cost.
        """
        structure = self.structure
        blocks = structure.blocks[structure.noisy_blocks]
        own = precisions[structure.noisy_blocks]
        free = set(structure.free.tolist())
        found = []
        reached = self.multiply(precisions)
        for start in self.cells[reached >= _COSTLY * reached.max()]:
            pair = start.copy()
            ends = [numbers[0] for numbers in _measure(self.products, pair[None])]
            cost = -1.0
            for _ in range(_SWEEPS):
                before = cost
                for a, Y in enumerate(self.products):
                    with_a = (blocks == a).any(axis=1)
                    if not with_a.any():
                        continue
                    rest = [numbers.copy() for numbers in ends]
                    for numbers in rest:
                        numbers[a] = 1.0
                    u, v, w = (
                        float(multiply_over_blocks(numbers[None], blocks[with_a])[0] @ own[with_a])
                        for numbers in rest
                    )
                    eta = Y.diagonal()
                    if a in free:
                        gains = np.add.outer(u * eta, v * eta) - 2 * w * Y
                        i, j = divmod(int(gains.argmax()), len(Y))
                    else:
                        i = j = int(((u + v - 2 * w) * eta).argmax())
                    pair[:, a] = i, j
                    for numbers, value in zip(ends, (eta[i], eta[j], Y[i, j]), strict=True):
                        numbers[a] = value
                first, second, both = (
                    multiply_over_blocks(numbers[None], blocks)[0] for numbers in ends
                )
                cost = float((first + second - 2 * both) @ own)
                if cost <= before * (1 + 1e-9):
                    break
            found.append(pair)
        wider = PairProfiles.of_pairs(
            structure, self.products, np.concatenate([self.cells, np.array(found)])
        )
        return wider, float(wider.multiply(precisions).max())


def list_pair_products(
    covariances: Sequence[AttributeCovariance], sizes: Sequence[int]
) -> list[FloatArray]:
    """List Y of each attribute's covariance; of a symmetric one, of two of its cells."""
    found = []
    for covariance, n in zip(covariances, sizes, strict=True):
        if isinstance(covariance, DenseCovariance):
            (K,) = covariance.precisions
            found.append(K.T @ K)
        else:
            found.append(_pair_symmetric(1 - 1 / n, -1 / n, n))
    return found


def _pair_symmetric(same: float, between: float, n: int) -> FloatArray:
    """Pair two cells of a symmetric attribute, shape (2, 2), or the only one."""
    return np.array([[same, between], [between, same]])[: min(n, 2), : min(n, 2)]


def _measure(products: Sequence[FloatArray], cells: IntArray) -> list[FloatArray]:
    """Find Y_ii, Y_jj and Y_ij of each pair (k, 2, attributes), each of shape (k, attributes)."""
    i, j = cells[:, 0], cells[:, 1]
    return [
        np.stack([Y[left[:, a], right[:, a]] for a, Y in enumerate(products)], axis=1)
        for left, right in ((i, i), (j, j), (i, j))
    ]


def multiply_over_blocks(numbers: FloatArray, blocks: IntArray) -> FloatArray:
    """Multiply numbers (k, attributes) over the attributes of blocks, shape (k, blocks)."""
    padded = np.concatenate([numbers, np.ones((len(numbers), 1))], axis=1)
    found = np.ones((len(numbers), len(blocks)))
    for place in blocks.T:
        found *= padded[:, place]
    return found
