"""Blocks that are numbers, where neighbours replace a record: differences are moves.

Every attribute is symmetric. What it costs to move a record from one
cell to another depends only on the set D of the attributes along which the two cells differ, the
*move*: block A adds the multiple

    c_A(D) = 2 w_A (1 - prod_{a in A and D} -1 / (n_a - 1))

of its precision, which is 0 where A and D have no attribute in common (docs/theory/units.md, (U8)).
Blocks within the attributes that the unit keeps have no cost at all: public totals answer them.

There are 2^m - 1 moves along m attributes. All of them have dual weights if they are few. Else the
structure names those that have, which the certificate needs (docs/theory/units.md, (U9)). A move is
named by the record that is added: its labels are 1 in the attributes of D, and those of the removed
record are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.errors import PlanError, WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.neighbours import MOST_LISTED, PersonRecords, RecordSets
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property

MOST_FREE = 14
"""The most attributes along which a record may move, if all moves are to have dual weights."""

MOST_ENTRIES = 20_000_000
"""The most pairs of a block and a move, if all moves are to have dual weights."""

MOST_MOVED_BLOCKS = 1_000_000
"""The most blocks whose costs are summed for each move that is named."""

_CHUNK = 1_000_000
"""The most pairs of a block and a move whose multiples are computed at once."""


@dataclass(frozen=True, eq=False)
class MoveStructure(PairStructure):
    """Blocks of one number each, and the moves of a record that have dual weights.

    Moves that are named are records with a label for each of the attributes `free`.
    """

    def __str__(self) -> str:
        blocks = super(PairStructure, self).__str__()
        return f"{blocks}, a row changes in up to {len(self.free)} attributes"

    @property
    def fits(self) -> bool:
        """Whether there are few enough moves to give all of them dual weights."""
        few = len(self.free) <= MOST_FREE
        return few and len(self.noisy_blocks) * (2 ** len(self.free) - 1) <= MOST_ENTRIES

    @frozen_property
    def moves(self) -> IntArray:
        """The moves that have dual weights, as ones and zeros, shape (v, m)."""
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
        is_noisy = np.isin(self.blocks, self.free).any(axis=1)
        return np.asarray(np.flatnonzero(is_noisy), dtype=np.int64)

    def check_size(self) -> None:
        if not len(self.noisy_blocks):
            raise self.make_public_error()
        if len(self.noisy_blocks) > MOST_MOVED_BLOCKS and not self.fits:
            raise WorkloadError(
                f"a replaced row may change in {len(self.free)} attributes, and so change "
                f"{len(self.noisy_blocks):,} tables; the limit of ReplaceOne is "
                f"{MOST_MOVED_BLOCKS:,}. Use fewer attributes, or {TWO_CHANGES}"
            )

    def check_named(self) -> None:
        if self.named is None:
            return
        cell = np.zeros(1, dtype=np.int64)
        try:
            self.named.check_form(PersonRecords(1, cell, (2,) * len(self.free)))
        except ValueError:
            raise PlanError("the moves that have dual weights are not sets of attributes") from None

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
        """c_A(D) of each noisy block and each move with a dual weight, shape (noisy blocks, v).

        Each is right to within `gamma(4 k + 8)`, for blocks of up to k attributes: the difference
        1 - prod is 0 exactly, or at least 1/2.
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


def name_moves(moves: IntArray | BoolArray) -> RecordSets:
    """Name moves (v, m), ones and zeros, by the record that is added."""
    cells = np.zeros((len(moves), 1), dtype=np.int64)
    return RecordSets(cells, np.asarray(moves[:, None], dtype=np.int64))


def list_moves(m: int) -> IntArray:
    """List all moves along m attributes, shape (2^m - 1, m): number k, from 0, has those of the
    binary digits of k + 1."""
    numbers = np.arange(1, 2**m, dtype=np.int64)
    return np.asarray(numbers[:, None] >> np.arange(m) & 1)


def list_first_moves(m: int) -> IntArray:
    """List the moves that a design begins with, for m attributes, shape (v, m).

    They are the move along all attributes, and for each binary digit those along the attributes
    whose number has this digit, so that every pair of attributes is divided by one of them.
    """
    numbers = np.arange(m, dtype=np.int64)
    digits = [(numbers >> bit) & 1 for bit in range(max(m - 1, 1).bit_length())]
    return np.array([np.ones(m, dtype=np.int64), *(digit for digit in digits if digit.any())])
