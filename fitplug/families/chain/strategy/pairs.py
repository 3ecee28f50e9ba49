"""Strategies of chains where neighbours replace a record: the exact cost of all pairs of cells.

A pair of cells (i, j) that differ besides along the attributes D costs

    sum over the blocks A of  h_A (|a_i|^2 + |a_j|^2) - 2 h_A(D) a_i'a_j

with the columns a of the block's nested triangles, h_A the square of a column of the other
attributes' contrasts, and h_A(D) the product of two of them. The halves of a node of nested
triangles see each other only through weighted sums, so the products of all columns of the one with
all of the other are a matrix of low rank. Floats with bounds on their errors leave out the pairs
that cannot be the costliest, and integers decide (docs/theory/chains.md, "One record replaced").
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from fitplug.families.base.mechanism import SATURATION, StrategyCost
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.families.chain.strategy.chains import ChainStrategy, NestedChain
from fitplug.families.chain.strategy.column_products import list_column_products
from fitplug.numeric import AnyArray, FloatArray, ceil_float, gamma

_CHUNK = 4_000_000
"""The approximate number of pairs whose costs are computed at once."""

_MOST_KEPT = 4096
"""The most pairs whose cost is computed in integers. Usually there are only a few."""

_MARGIN = 30
"""The binary logarithm of the relative margin of a bound, where more pairs than these cost nearly
the same."""


class ChainPairStrategy(ChainStrategy):
    """The strategies of `ChainPairStructure`."""

    structure: ChainPairStructure

    @property
    def peaks_at_one_cell(self) -> bool:
        return False

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        matrix, cost = self.chain_matrix, self._pair_cost
        entry = max(
            of_entries * matrix.of_block(block).largest_entry
            for block, _, of_entries in self.multiply_others()
        )
        square = cost.upper
        if cost.upper > cost.attained:
            # Another machine may round the bound differently.
            square += square >> _MARGIN
            if claimed is not None and cost.upper <= claimed:
                square = claimed
        return StrategyCost(square, np.array([ceil_float(Fraction(square))]), SATURATION // entry)

    def compute_attained_square(self) -> int | None:
        cost = self._pair_cost
        return cost.attained if cost.upper > cost.attained else None

    @cached_property
    def _pair_cost(self) -> PairCost:
        """The largest cost of a pair of cells."""
        matrix, structure = self.chain_matrix, self.structure
        assert isinstance(matrix, NestedChain)
        attributes = structure.subsets.list_attributes(structure.noisy_blocks)
        sets = [
            frozenset(moved)
            for k in range(len(structure.moved) + 1)
            for moved in itertools.combinations(structure.moved.tolist(), k)
        ]
        chains, same, others = [], [], []
        for block, of_squares, _ in self.multiply_others():
            chains.append(matrix.of_block(block))
            same.append(of_squares)
            # (H e_i)'H e_j / |H e_i|^2 = -1 / (n_a - 1) for two cells of a symmetric attribute.
            ratios = [
                _multiply_ratios([structure.sizes[a] for a in attributes[block] if a in moved])
                for moved in sets
            ]
            others.append([of_squares * ratio for ratio in ratios])
        return find_costliest_pair(chains, same, np.array(others, dtype=object).T)


class PairCost(NamedTuple):
    """The largest cost of a pair of cells.

    Attributes:
        upper: An upper bound; the exact cost unless too many pairs cost nearly the same.
        attained: The exact cost of a pair.
    """

    upper: int
    attained: int


def _multiply_ratios(sizes: Sequence[int]) -> Fraction:
    """Multiply -1 / (n_a - 1) of some attributes."""
    product = Fraction(1)
    for n in sizes:
        product /= 1 - n
    return product


def find_costliest_pair(
    chains: Sequence[NestedChain], same: Sequence[int], others: AnyArray
) -> PairCost:
    """Find the largest cost of a pair of cells.

    Args:
        chains: The nested triangles of each block.
        same: h_A of each block.
        others: h_A(D) of each set D and block, shape (sets, blocks), integers as Fractions; the
            first set is empty.
    """
    n, weights = chains[0].n, np.array(others, dtype=np.float64)
    squares, errors = np.zeros((2, len(chains), n))
    for b, chain in enumerate(chains):
        squares[b], errors[b] = chain.column_squares
    h = np.array(same, dtype=np.float64)
    mine, mine_errors = h @ squares, h @ errors
    up = 1 + gamma(4 * len(chains) + 16)
    search = _Search(float(mine.max()) * 8 * gamma(4 * len(chains) + 16))
    # Two records in one cell of the chain differ along other attributes.
    for s in range(1, len(weights)):
        own = 2 * (h - weights[s]) @ squares
        own_errors = 4 * mine_errors * up
        search.add(s, np.arange(n), np.arange(n), own, own_errors)
    factors = [list_column_products(chain.existing.astype(np.float64)) for chain in chains]
    for parts in zip(*factors, strict=True):
        rows, columns = (
            np.arange(start, min(start + len(parts[0].left), n))
            for start in (parts[0].first, parts[0].second)
        )
        if not len(columns):
            continue
        error = sum(f * part.error for f, part in zip(same, parts, strict=True)) * 2 * up
        error += 2 * float(mine_errors[rows].max() + mine_errors[columns].max())
        step = max(1, _CHUNK // len(columns))
        for start in range(0, len(rows), step):
            chunk = slice(start, min(start + step, len(rows)))
            products = [part.left[chunk] @ part.right[: len(columns)].T for part in parts]
            for s, of_blocks in enumerate(weights):
                cost = mine[rows[chunk], None] + mine[columns]
                for weight, product in zip(of_blocks, products, strict=True):
                    cost -= 2 * weight * product
                search.add_matrix(s, rows[chunk], columns, cost, error)

    @lru_cache(maxsize=64)
    def column(b: int, i: int) -> AnyArray:
        return chains[b].compute_column(i).astype(object)

    attained = 0
    for s, i, j in search.list_candidates():
        exact = Fraction(0)
        for b, multiple in enumerate(same):
            x, y = column(b, i), column(b, j)
            exact += multiple * int(x @ x + y @ y) - 2 * Fraction(others[s, b]) * int(x @ y)
        attained = max(attained, int(exact))
    return PairCost(math.ceil(search.upper) if search.is_crowded else attained, attained)


class _Search:
    """The pairs of cells that may be the costliest.

    Args:
        rounding: A bound on the errors of the sums of a pair's terms.
    """

    def __init__(self, rounding: float) -> None:
        self._rounding, self._least = rounding, 0.0
        self._kept: list[tuple[float, int, int, int]] = []
        self._crowd = 0.0

    def add(
        self, s: int, i: AnyArray, j: AnyArray, cost: FloatArray, error: FloatArray | float
    ) -> None:
        """Add pairs with their costs and bounds on the costs' errors, all of shape (k,)."""
        upper = cost + (error + self._rounding)
        self._least = max(self._least, float((2 * cost - upper).max()))
        at = np.flatnonzero(upper >= self._least)
        if len(self._kept) + len(at) > _MOST_KEPT:
            self._kept = [one for one in self._kept if one[0] >= self._least]
        if len(self._kept) + len(at) > _MOST_KEPT:
            self._crowd = max(self._crowd, float(upper.max()))
            at = at[:1]
        for bound, one, other in zip(upper[at], i[at], j[at], strict=True):
            self._kept.append((float(bound), s, int(one), int(other)))

    def add_matrix(
        self, s: int, rows: AnyArray, columns: AnyArray, cost: FloatArray, error: float
    ) -> None:
        """Add all pairs of a row and a column, with costs of shape (rows, columns)."""
        margin = 2 * (error + self._rounding)
        i, j = np.nonzero(cost >= max(self._least, float(cost.max())) - margin)
        if len(i):
            self.add(s, rows[i], columns[j], cost[i, j], error)

    @property
    def is_crowded(self) -> bool:
        """Whether more pairs may be the costliest than are listed."""
        return self._crowd >= self._least

    @property
    def upper(self) -> float:
        """A bound on the costs of all pairs."""
        return max(self._crowd, max(one[0] for one in self._kept))

    def list_candidates(self) -> list[tuple[int, int, int]]:
        """List the pairs that may be the costliest: the set D and two cells."""
        return [(s, i, j) for upper, s, i, j in self._kept if upper >= self._least]
