"""Strategies for neighbours that differ by more than one record: the cost of their integers.

The cost is the largest of any pair of cells, move or person.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from fitplug.errors import BAD_INTEGERS, PlanError
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import build_contrasts, make_contrasts
from fitplug.families.base.mechanism import SATURATION, StrategyCost
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.shape.matrices import PersonStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.strategy.matrices import MatrixStrategy, multiply_basis
from fitplug.neighbours import (
    MOST_LISTED,
    MoveCosts,
    RecordProducts,
    build_record_products,
    find_costly_differences,
    measure_all_moves,
    undo_scale,
    upper_costliest_move,
    upper_largest_cost,
)
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    BoolArray,
    IntArray,
    ceil_float,
    find_largest_entry,
    make_room,
    multiply_exactly,
)
from fitplug.workload import classify_cells


class PairStrategy(MatrixStrategy[PairStructure]):
    """The strategies of `PairStructure`."""

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        structure = self.structure
        same, other = multiply_contrasts(structure)
        entries = [build_contrasts(n).largest_entry for n in structure.sizes]
        block_sets = sorted(self.block_sets, key=lambda block_set: int(block_set.blocks[0]))
        columns, squares, bound, entry = [], [], 0, 1
        for block_set in block_sets:
            A = multiply_basis(structure, block_set)[:, structure.pairs.cells]
            columns.append(A)
            wide = make_room(A, len(A) * find_largest_entry(A))
            squares.append((wide * wide).sum(axis=0))
            (square,) = structure.subsets.multiply(same, block_set.blocks)
            bound += int(square) * int(squares[-1].max())
            (largest,) = structure.subsets.multiply(entries, block_set.blocks)
            entry = max(entry, int(largest) * find_largest_entry(A))
        # No sum of products is larger than this bound, and no cost than four times of it.
        kind = np.int64 if bound < 2**60 else object
        largest_costs = np.zeros(structure.pairs.nodes, dtype=kind)
        of_nodes = structure.sum_products([each.astype(kind) for each in squares], same, other)[0]
        read = [np.flatnonzero(A.any(axis=0)) for A in columns]
        parts = list(zip(columns, read, structure.multiply_others(same), strict=True))
        for i, j in structure.pairs.list_tiles():
            table = np.zeros((structure.pairs.sets, i.stop - i.start, j.stop - j.start), dtype=kind)
            for A, at, (place, multiple) in parts:
                rows, others = (
                    at[np.searchsorted(at, nodes.start) : np.searchsorted(at, nodes.stop)]
                    for nodes in (i, j)
                )
                if len(rows) and len(others):
                    gram = multiply_exactly(A[:, rows].T, A[:, others]).astype(kind)
                    table[place][np.ix_(rows - i.start, others - j.start)] += multiple * gram
            # A node paired with itself without a move has the largest product, and costs nothing.
            least = structure.mix_products(table, same, other, j).min(axis=0)
            costs = of_nodes[i, None] + of_nodes[j] - 2 * least
            largest_costs[i] = np.maximum(largest_costs[i], costs.max(axis=1))
            largest_costs[j] = np.maximum(largest_costs[j], costs.max(axis=0))
        # Converting an integer to a float rounds by at most one unit roundoff.
        above = largest_costs.astype(np.float64) * (1 + 4 * UNIT_ROUNDOFF)
        most = int(largest_costs.max())
        return StrategyCost(most, above[structure.pairs.node_of_cell], SATURATION // entry)

    def check_blocks(self) -> None:
        self.structure.check_named()
        super().check_blocks()

    def check_block_set(self, block_set: BlockSet) -> None:
        super().check_block_set(block_set)
        structure, block, basis = self.structure, int(block_set.blocks[0]), block_set.basis
        if basis.kind != "cells":
            return
        if not np.array_equal(basis.index, classify_cells(structure.build_block_matrix(block))):
            # The cost is computed for the cells that queries distinguish.
            raise PlanError(BAD_INTEGERS)


class MoveStrategy(MatrixStrategy[MoveStructure]):
    """The strategies of `MoveStructure`."""

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        """Compute the cost of the costliest move, or an upper bound on it.

        It is exact for few attributes; for more see `fitplug.neighbours.move_bound`.
        """
        _, _, max_records = super().compute_record_cost()
        if len(self.structure.free) <= MOST_LISTED:
            largest = _find_largest_cost(self)
        else:
            costs, shift = _weigh_sets(self)
            bound = upper_costliest_move(costs, costs.search(costs.list_starts()))
            # The cost of a move is an integer.
            largest = undo_scale(bound, shift)
        above = np.array([float(largest) * (1 + 4 * UNIT_ROUNDOFF)])
        return StrategyCost(largest, above, max_records)

    def check_blocks(self) -> None:
        self.structure.check_named()
        super().check_blocks()

    def compute_attained_square(self) -> int | None:
        if len(self.structure.free) <= MOST_LISTED:
            return None
        costs, _ = _weigh_sets(self)
        return _sum_cost(self, costs.search(costs.list_starts())[0])


_SEARCH_WORK = 25_000_000
"""About the most sums of a search for a costly person; a bound on all persons may take more."""


class PersonStrategy(MatrixStrategy[PersonStructure]):
    """The strategies of `PersonStructure`."""

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        """Compute the cost of a person's records, exactly or as an upper bound.

        A cell's square is the largest among persons with a record in the cell.
        """
        _, _, max_records = super().compute_record_cost()
        largest = upper_largest_cost(_multiply_records(self), claimed)
        squares = [int(square) for square in largest.of_cells]
        floats = np.array([ceil_float(Fraction(square)) for square in squares])
        return StrategyCost(max(squares), floats, max_records)

    def compute_attained_square(self) -> int | None:
        products = _multiply_records(self)
        # The costliest persons are found long before it is proven that none costs more.
        largest = upper_largest_cost(products, most_work=_SEARCH_WORK)
        if largest.is_exact and int(largest.of_cells.max()) == self.record_square:
            return None
        costly = self.structure.sets.append(find_costly_differences(products.to_floats(), 1))
        if largest.costly is not None:
            costly = costly.append(largest.costly)
        return int(products.compute_costs(costly).max())


def multiply_contrasts(structure: Structure) -> tuple[list[int], list[int]]:
    """Compute the products of the columns of each attribute's contrasts H.

    Returns:
        |H e_i|^2, and (H e_i)' H e_j for two cells, for each of `block_attributes`.
    """
    contrasts = make_contrasts(structure)
    same = [matrix.column_square for matrix in contrasts]
    # H'H = precision (I - J/n), and the precision of contrasts is a multiple of n.
    other = [-(matrix.precision // matrix.n) for matrix in contrasts]
    assert all(b * m.n == -m.precision for b, m in zip(other, contrasts, strict=True))
    return same, other


def _find_largest_cost(strategy: MoveStrategy) -> int:
    """Compute the cost of the costliest of all moves, exactly."""
    structure = strategy.structure
    same, other = multiply_contrasts(structure)
    is_free = np.isin(np.arange(len(same)), structure.free)
    bits = np.where(is_free, np.cumsum(is_free) - 1, 0)
    place = np.append(np.where(is_free, np.int64(1) << bits, 0), 0)
    places, squares, bound = [], [], 0
    unmoved = [1 if free else square for free, square in zip(is_free, same, strict=True)]
    for blocks, products in _square_numbers(strategy, unmoved):
        places.append(place[structure.blocks[blocks]].sum(axis=1))
        squares.append(products)
    for _, products in _square_numbers(strategy, same):
        bound += int(products.sum())
    # No sum of products is larger than this bound, and no cost than four times of it.
    kind = np.int64 if bound < 2**60 else object
    costs = measure_all_moves(
        np.concatenate(places),
        np.concatenate(squares).astype(kind),
        [same[a] for a in structure.free],
        [other[a] for a in structure.free],
    )
    return int(costs.max())


def _weigh_sets(strategy: MoveStrategy) -> tuple[MoveCosts, int]:
    """Sum the blocks' squared integers by the set of their movable attributes.

    Returns:
        The costs of moves, rounded up, and the binary logarithm of their scale.
    """
    structure = strategy.structure
    same, _ = multiply_contrasts(structure)
    of_blocks = np.zeros(len(structure.blocks), dtype=object)
    for blocks, squares in _square_numbers(strategy, same):
        of_blocks[blocks] += squares
    return MoveCosts.weigh(structure.ratios, structure.sets, of_blocks[structure.noisy_blocks])


def _sum_cost(strategy: MoveStrategy, move: BoolArray) -> int:
    """Compute the cost of a move (m,), exactly."""
    same, other = multiply_contrasts(strategy.structure)
    moved = list(same)
    for a in strategy.structure.free[move].tolist():
        moved[a] = other[a]
    before, between = (
        sum(int(squares.sum()) for _, squares in _square_numbers(strategy, numbers))
        for numbers in (same, moved)
    )
    return 2 * (before - between)


def _square_numbers(
    strategy: MoveStrategy, numbers: Sequence[int]
) -> list[tuple[IntArray, AnyArray]]:
    """List the blocks of each set, and m^2 prod_{a in A} numbers[a] of each block."""
    squares = []
    for block_set in strategy.block_sets:
        m = block_set.M[:, 0, 0].astype(object)
        products = strategy.structure.subsets.multiply(numbers, block_set.blocks)
        squares.append((block_set.blocks, products * m * m))
    return squares


def _multiply_records(strategy: PersonStrategy) -> RecordProducts:
    """Compute the products of all pairs of records of an integer strategy, exactly.

    Returns:
        The products: int64 if no sum of a person's products can overflow it, else Python integers.
    """
    structure = strategy.structure
    same, other = multiply_contrasts(structure)
    parts: list[tuple[Sequence[int], AnyArray]] = []
    largest = 0
    for block_set in strategy.block_sets:
        A = multiply_basis(structure, block_set)
        gram = multiply_exactly(A.T, A)
        (attributes,) = structure.subsets.list_attributes(block_set.blocks)
        (square,) = structure.subsets.multiply(same, block_set.blocks)
        largest += int(square) * find_largest_entry(gram)
        parts.append((attributes, gram))
    # A product is at most L. Of T slots, given records cost T^2 L at most, and each of T later ones
    # has a star of at most (1 + 2 T) L, Lemma N2.
    slots = structure.person.place_count * structure.person.room
    factor = 16 * (slots + 1) ** 2
    dtype = np.int64 if factor * largest < 2**63 else object
    converted = [(attributes, gram.astype(dtype)) for attributes, gram in parts]
    return build_record_products(structure.person, converted, same, other)
