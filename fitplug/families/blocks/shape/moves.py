"""Blocks that are numbers, where neighbours replace a record: differences are moves.

Every attribute is symmetric. The cost of moving a record from one cell to another depends only on
the *move*, the set D of attributes along which the two cells differ. Block A adds its precision
times

    c_A(D) = 2 w_A (1 - prod_{a in A and D} -1 / (n_a - 1))

which is 0 if A and D are disjoint (docs/theory/units.md, (U8)). Blocks within the attributes that
the unit keeps have no cost at all: public totals answer them.

There are 2^m - 1 moves along m attributes. If they are few, all have dual weights. Otherwise the
structure names those with dual weights for the certificate (docs/theory/units.md, (U9)). A move is
named by the added record: its labels are 1 in the attributes of D, and the removed record's labels
are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.errors import BAD_PROOF, PlanError, WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.neighbours import MOST_LISTED, PersonRecords, RecordSets
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property

MOST_FREE = 14
"""The most attributes along which a record may move for all moves to have dual weights."""

MOST_ENTRIES = 20_000_000
"""The most pairs of a block and a move for all moves to have dual weights."""

MOST_MOVED_BLOCKS = 1_000_000
"""The most blocks whose costs are summed for each named move."""

_CHUNK = 1_000_000
"""The most pairs of a block and a move whose multiples are computed at once."""


@dataclass(frozen=True, eq=False)
class MoveStructure(PairStructure):
    """Blocks of one number each, for neighbours that differ by a move of one record.

    Named moves are records with one label for each attribute in `free`.
    """

    def __str__(self) -> str:
        blocks = super(PairStructure, self).__str__()
        return f"{blocks}, a row changes in up to {len(self.free)} attributes"

    @property
    def fits(self) -> bool:
        """Whether moves are few enough for all of them to have dual weights."""
        few = len(self.free) <= MOST_FREE
        return few and len(self.noisy_blocks) * (2 ** len(self.free) - 1) <= MOST_ENTRIES

    @frozen_property
    def moves(self) -> IntArray:
        """The moves with dual weights, as ones and zeros, shape (v, m)."""
        if self.named is not None:
            return self.named.labels[:, 0]
        m = len(self.free)
        return list_moves(m) if self.fits else list_first_moves(m)

    @property
    def differences(self) -> int:
        return len(self.moves if self.named is None else self.named)

    @property
    def remedy(self) -> str:
        if len(self.free) <= MOST_LISTED:
            return ""
        return (
            "a row can change in too many ways to try all of them, so the cost is an upper limit; "
            "ask for tables of fewer attributes, or with equal targets"
        )

    @frozen_property
    def noisy_blocks(self) -> IntArray:
        return np.asarray(np.flatnonzero(~self.is_public), dtype=np.int64)

    def check_size(self) -> None:
        if not len(self.noisy_blocks):
            raise self.make_public_error()
        if len(self.noisy_blocks) > MOST_MOVED_BLOCKS and not self.fits:
            raise WorkloadError(
                f"replacing a row may change {len(self.noisy_blocks):,} tables; the limit of "
                f"ReplaceOne is {MOST_MOVED_BLOCKS:,}. {TWO_CHANGES}"
            )

    def check_named(self) -> None:
        if self.named is None:
            return
        cell = np.zeros(1, dtype=np.int64)
        try:
            self.named.check_form(PersonRecords(1, cell, (2,) * len(self.free)))
        except ValueError:
            raise PlanError(BAD_PROOF) from None

    @frozen_property
    def members(self) -> IntArray:
        """The attributes of each noisy block, as indices of `free`, shape (b, most).

        Attributes that the unit keeps, and padding, are m, one more than the last index.
        """
        return select_members(self.blocks[self.noisy_blocks], self.free, len(self.sizes))

    @frozen_property
    def sets(self) -> tuple[IntArray, IntArray]:
        """The distinct rows of `members`, shape (t, most), and each noisy block's index among
        them."""
        return list_sets(self.members)

    @frozen_property
    def ratios(self) -> FloatArray:
        """-1 / (n_a - 1) of each attribute in `free`, followed by 1, shape (m + 1,)."""
        n = np.array([self.sizes[a] for a in self.free], dtype=np.float64)
        return np.append(-1 / (n - 1), 1.0)

    @frozen_property
    def multiples(self) -> FloatArray:
        """c_A(D) of each noisy block and each move with a dual weight, shape (noisy blocks, v).

        The relative error is at most `gamma(4 k + 8)` for blocks of up to k attributes: the
        difference 1 - prod is exactly 0, or at least 1/2.
        """
        weights = 2 * self.subsets.profile_multiples[self.noisy_blocks]
        multiples = np.empty((len(weights), self.differences))
        step = max(1, _CHUNK // len(weights))
        for start in range(0, self.differences, step):
            moves = self.moves[start : start + step]
            factors = np.ones((len(moves), len(self.ratios)))
            factors[:, :-1] = np.where(moves, self.ratios[:-1], 1.0)
            product = np.ones((len(moves), len(weights)))
            for place in self.members.T:
                product *= factors[:, place]
            multiples[:, start : start + step] = (weights * (1 - product)).T
        return multiples


def select_members(blocks: IntArray, free: IntArray, attributes: int) -> IntArray:
    """Select the attributes of blocks (b, most) along which a record may move.

    Args:
        blocks: The attributes of each block, padded with -1.
        free: The attributes along which a record may move, shape (m,).
        attributes: The number of all attributes.

    Returns:
        Indices of `free`, ascending and padded with m, shape (b, most).
    """
    place = np.full(attributes + 1, len(free), dtype=np.int64)
    place[free] = np.arange(len(free))
    return np.sort(place[blocks], axis=1)


def list_sets(members: IntArray) -> tuple[IntArray, IntArray]:
    """List the distinct rows of members (b, most), (t, most), and the index of each row, (b,)."""
    rows, index = np.unique(members, axis=0, return_inverse=True)
    return rows, index.ravel()


def name_moves(moves: IntArray | BoolArray) -> RecordSets:
    """Name moves (v, m), given as ones and zeros, by the added record."""
    cells = np.zeros((len(moves), 1), dtype=np.int64)
    return RecordSets(cells, np.asarray(moves[:, None], dtype=np.int64))


def list_moves(m: int) -> IntArray:
    """List all moves along m attributes, shape (2^m - 1, m), as the binary digits of 1, 2, ..."""
    numbers = np.arange(1, 2**m, dtype=np.int64)
    return np.asarray(numbers[:, None] >> np.arange(m) & 1)


def list_first_moves(m: int) -> IntArray:
    """List the moves with which a design along m attributes starts, shape (v, m).

    They are the move along all attributes and, for each binary digit, the move along the attributes
    whose number has this digit. So each pair of attributes is separated by one of them.
    """
    numbers = np.arange(m, dtype=np.int64)
    digits = [(numbers >> bit) & 1 for bit in range(max(m - 1, 1).bit_length())]
    return np.array([np.ones(m, dtype=np.int64), *(digit for digit in digits if digit.any())])
