"""Strategies of blocks that are numbers, where a record moves along one of too many sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.strategy import Integers, IntegerStrategy
from fitplug.families.base.strategy_form import StrategyCost, upper_excess
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.symmetric_pairs import SymmetricPairStructure
from fitplug.families.blocks.strategy.symmetric_pairs import SymmetricPairForm
from fitplug.neighbours import MoveCosts, undo_scale, upper_costliest_move
from fitplug.numeric import UNIT_ROUNDOFF, AnyArray, BoolArray


class MoveForm(SymmetricPairForm):
    """The strategies of `MoveStructure`."""

    def compute_cost(self, structure: SymmetricPairStructure, integers: Integers) -> StrategyCost:
        """Compute what no move of a record costs more than; see `fitplug.neighbours.move_bound`."""
        assert isinstance(structure, MoveStructure)
        costs, shift = _weigh_sets(structure, integers)
        bound = upper_costliest_move(costs, costs.search(costs.list_starts()))
        # The cost of a move is an integer.
        largest = undo_scale(bound, shift)
        above = np.array([float(largest) * (1 + 4 * UNIT_ROUNDOFF)])
        return StrategyCost(largest, above, self.find_room(structure, integers))

    def check_blocks(self, strategy: IntegerStrategy, structure: SymmetricPairStructure) -> None:
        assert isinstance(structure, MoveStructure)
        structure.check_moves()
        super().check_blocks(strategy, structure)

    def upper_overstatement(self, strategy: IntegerStrategy) -> float:
        structure, integers = strategy.structure, strategy.integers
        assert isinstance(structure, MoveStructure)
        costs, _ = _weigh_sets(structure, integers)
        move = costs.search(costs.list_starts())[0]
        attained = _sum_cost(structure, integers, move)
        return upper_excess(strategy.sensitivity_squared, attained)


def _weigh_sets(structure: MoveStructure, integers: Integers) -> tuple[MoveCosts, int]:
    """Sum what blocks measure of each set of attributes.

    Returns:
        The costs of moves, rounded up, and the binary logarithm of what they are multiplied by.
    """
    own = [matrix.column_square for matrix in make_contrasts(structure)]
    of_blocks = np.zeros(len(structure.blocks), dtype=object)
    for blocks, squares in _square_numbers(structure, integers, own):
        of_blocks[blocks] += squares
    return MoveCosts.weigh(structure.ratios, structure.sets, of_blocks[structure.noisy_blocks])


def _sum_cost(structure: MoveStructure, integers: Integers, move: BoolArray) -> int:
    """Sum what a move (m,) costs, exactly."""
    matrices = make_contrasts(structure)
    own = [matrix.column_square for matrix in matrices]
    # H'H = precision (I - J/n), and the precision of contrasts is a multiple of n.
    moved = list(own)
    for a in structure.free[move].tolist():
        moved[a] = -(matrices[a].precision // matrices[a].n)
    same, other = (
        sum(int(squares.sum()) for _, squares in _square_numbers(structure, integers, numbers))
        for numbers in (own, moved)
    )
    return 2 * (same - other)


def _square_numbers(
    structure: MoveStructure, integers: Integers, numbers: Sequence[int]
) -> list[tuple[AnyArray, AnyArray]]:
    """List the blocks of each set, and m^2 prod numbers[a] of each of these blocks."""
    found = []
    for block_set in integers.block_sets:
        m = block_set.M[:, 0, 0].astype(object)
        products = structure.subsets.multiply(numbers, block_set.blocks)
        found.append((block_set.blocks, products * m * m))
    return found
