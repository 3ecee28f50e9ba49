"""Blocks that are numbers, where a record may move along too many attributes to try all sets.

It is `fitplug.families.blocks.shape.symmetric_pairs` for more attributes. A move is the set D of
the attributes along which a record is replaced, and there are 2^m - 1 of them for m attributes. So
the structure names the moves that have dual weights, which the certificate needs
(docs/theory/units.md, (U9)). What the costliest of all moves costs is bounded in
`fitplug.neighbours.move_bound`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fitplug.errors import PlanError, WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.blocks.shape.symmetric_pairs import SymmetricPairStructure
from fitplug.numeric import FloatArray, IntArray, frozen_property

MOST_MOVED_BLOCKS = 1_000_000
"""The most blocks whose costs are summed for each move that is named."""


@dataclass(frozen=True, eq=False)
class MoveStructure(SymmetricPairStructure):
    """Blocks of one number each, and the moves of a record that have dual weights.

    Attributes:
        named: Which of the attributes `free` each move that has a dual weight is along, as ones and
            zeros, shape (v, m); None for the moves that every design begins with.
    """

    named: IntArray | None = None

    def __str__(self) -> str:
        free = len(self.free)
        return f"{super(SymmetricPairStructure, self).__str__()}, a record moves along up to {free}"

    @frozen_property
    def moves(self) -> IntArray:
        """The moves that have dual weights, as ones and zeros, shape (v, m)."""
        return list_first_moves(len(self.free)) if self.named is None else self.named

    @property
    def differences(self) -> int:
        return len(self.moves)

    @property
    def arrays_in_files(self) -> Mapping[str, IntArray]:
        return {"moves": self.moves}

    @property
    def remedy(self) -> str:
        return (
            "the moves of a record are too many to try, so that the privacy cost is a bound; ask "
            "tables of fewer attributes, or with equal targets"
        )

    def check_size(self) -> None:
        super().check_size()
        if len(self.noisy_blocks) > MOST_MOVED_BLOCKS:
            raise WorkloadError(
                f"a record may move along {len(self.free)} attributes, and its moves change "
                f"{len(self.noisy_blocks):,} tables; for the unit of privacy ReplaceOne up to "
                f"{MOST_MOVED_BLOCKS:,} can be designed for: use fewer attributes, or {TWO_CHANGES}"
            )

    def check_moves(self) -> None:
        """Check that the moves are sets of attributes along which a record may move.

        Raises:
            PlanError: If they are not.
        """
        moves = self.moves
        fits = moves.dtype == np.int64 and moves.ndim == 2 and len(moves) > 0
        if not (fits and moves.shape[1] == len(self.free) and np.isin(moves, (0, 1)).all()):
            raise PlanError("the moves that have dual weights are not sets of attributes")

    @frozen_property
    def members(self) -> IntArray:
        """The attributes of each noisy block, as indices of `free`, shape (b, most).

        Attributes that the unit keeps, and padding, are m, one more than the last index.
        """
        return select_members(self.blocks[self.noisy_blocks], self.free, len(self.sizes))

    @frozen_property
    def sets(self) -> tuple[IntArray, IntArray]:
        """The different rows of `members`, shape (t, most), and the one of each noisy block."""
        return list_sets(self.members)

    @frozen_property
    def ratios(self) -> FloatArray:
        """-1 / (n_a - 1) of each attribute of `free`, and 1 after them, shape (m + 1,)."""
        n = np.array([self.sizes[a] for a in self.free], dtype=np.float64)
        return np.append(-1 / (n - 1), 1.0)

    @frozen_property
    def multiples(self) -> FloatArray:
        """c_A(D) of each noisy block and each move that is named, shape (noisy blocks, v).

        As in `SymmetricPairStructure`, 1 - prod is 0 exactly, or at least 1/2.
        """
        weights = 2 * self.subsets.profile_multiples[self.noisy_blocks]
        found = np.empty((self.differences, len(weights)))
        for row, move in zip(found, self.moves, strict=True):
            factors = np.append(np.where(move, self.ratios[:-1], 1.0), 1.0)
            product = np.ones(len(weights))
            for place in self.members.T:
                product *= factors[place]
            row[:] = weights * (1 - product)
        return found.T


def select_members(blocks: IntArray, free: IntArray, attributes: int) -> IntArray:
    """Select the attributes of blocks (b, most) along which a record may move.

    Args:
        blocks: Attributes, padded with -1.
        free: The attributes along which a record may move, shape (m,).
        attributes: The number of all attributes.

    Returns:
        Indices of `free`, ascending and padded with m, shape (b, most).
    """
    place = np.full(attributes + 1, len(free), dtype=np.int64)
    place[free] = np.arange(len(free))
    return np.sort(place[blocks], axis=1)


def list_sets(members: IntArray) -> tuple[IntArray, IntArray]:
    """List the different rows of members (b, most), shape (t, most), and the one of each, (b,)."""
    rows, index = np.unique(members, axis=0, return_inverse=True)
    return rows, index.ravel()


def list_first_moves(m: int) -> IntArray:
    """List the moves that every design begins with, for m attributes, shape (v, m).

    They are the move along all attributes, and for each binary digit those along the attributes
    whose number has this digit, so that every pair of attributes is divided by one of them.
    """
    numbers = np.arange(m, dtype=np.int64)
    digits = [(numbers >> bit) & 1 for bit in range(max(m - 1, 1).bit_length())]
    return np.array([np.ones(m, dtype=np.int64), *(own for own in digits if own.any())])
