"""Blocks where neighbours replace a record: differences are pairs of cells, or moves.

**Blocks that are matrices.** They are those of `fitplug.families.blocks.shape.matrices`. A record
moves between two cells, whose dense parts d and d' and whose set D of symmetric attributes with
different values decide the cost:

    sum over A of  w_A ( Y_A(d, d) + Y_A(d', d') - 2 kappa_A(D) Y_A(d, d') )
    kappa_A(D) = prod over a in A and D of -1 / (n_a - 1)

with Y_A = Sigma_A^-1 (docs/theory/units.md, (U19)). Where A has no attribute along which a record
may move, kappa_A = 1, and public totals answer a part of the block; see
`fitplug.neighbours.cell_pairs`. Without symmetric attributes there is one block, over all cells.

**Blocks that are numbers.** Every attribute is symmetric. What it costs to move a record from one
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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fitplug.errors import PlanError, WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.blocks.shape.matrices import MAX_ENTRIES, MatrixStructure
from fitplug.neighbours import (
    MOST_LISTED,
    MOST_PAIRS,
    CellPairs,
    GroundedQueries,
    PersonRecords,
    RecordSets,
    find_pairs,
    ground_queries,
    mix_sets,
)
from fitplug.numeric import AnyArray, BoolArray, FloatArray, IntArray, frozen_property

MOST_PAIR_CELLS = 30_000
"""The most dense cells."""

MOST_NAMED_ENTRIES, MOST_RANK_WORK, MOST_COST_WORK = 40_000_000, 4e8, 5e11
"""Where some classes of pairs have weights, the most coefficients of all blocks together, the most
operations with the cubes of their dimensions, and the most to compute what all pairs cost."""


@dataclass(frozen=True, eq=False)
class PairStructure(MatrixStructure):
    """Blocks over the dense cells, whose differences are classes of pairs of cells.

    Attributes:
        named: The differences that have dual weights; None for all, or for those that a design
            begins with.
    """

    named: RecordSets | None = None

    def __str__(self) -> str:
        if not self.symmetric:
            return f"{self.pairs.nodes:,} cells told apart, {self.pairs.count:,} pairs of them"
        return f"{super().__str__()}, {self.pairs.count:,} kinds of pairs of cells"

    @property
    def differences(self) -> int:
        return self.pairs.count if self.named is None else len(self.named)

    @property
    def arrays_in_files(self) -> Mapping[str, IntArray]:
        return {} if self.named is None else self.named.arrays_in_file

    @property
    def profile_size(self) -> int:
        return self.cells

    @frozen_property
    def noisy_blocks(self) -> IntArray:
        noisy = [b for b in range(len(self.blocks)) if self.build_block_matrix(b).any()]
        return np.array(noisy, dtype=np.int64)

    @property
    def fits(self) -> bool:
        """Whether there are few enough classes of pairs of cells to give all of them weights."""
        return (
            self.cells <= MOST_PAIR_CELLS
            and self.entries <= MAX_ENTRIES
            and self.pairs.count <= MOST_PAIRS
            and len(self.blocks) * self.pairs.nodes**2 <= 4 * MOST_PAIRS
        )

    @property
    def fits_named(self) -> bool:
        """Whether all pairs can be considered, and those that cost the most have weights."""
        if self.cells > MOST_PAIR_CELLS or self.entries > MOST_NAMED_ENTRIES:
            return False
        counts = np.bincount(
            self.subsets.pairs[1], self.row_counts[self.subsets.pairs[0]], len(self.blocks)
        )
        ranks = np.minimum(counts, self.cells)
        pairs = 2.0 ** len(self.free) * self.cells**2 / self.regions_count
        return float((ranks**3).sum()) <= MOST_RANK_WORK and pairs * ranks.sum() <= MOST_COST_WORK

    def check_size(self) -> None:
        if self.cells > MOST_PAIR_CELLS:
            raise WorkloadError(
                f"the attributes {', '.join(self.dense)} have {self.cells:,} cells together; for "
                f"the unit of privacy ReplaceOne up to {MOST_PAIR_CELLS:,} can be designed for: "
                f"use fewer attributes or cells, or {TWO_CHANGES}"
            )
        super().check_size()
        takes_some = self.fits_named
        if not takes_some and (pairs := self.pairs.count) > MOST_PAIRS:
            raise WorkloadError(
                f"the queries tell {self.pairs.nodes:,} cells apart, which makes {pairs:,} pairs "
                f"between which a record may move; up to {MOST_PAIRS:,} can be designed for: ask "
                f"for less detail, or {TWO_CHANGES}"
            )
        if not takes_some and not self.fits:
            raise WorkloadError(
                f"the workload has {len(self.blocks):,} blocks over {self.pairs.nodes:,} cells, "
                "too many for the unit of privacy ReplaceOne: ask fewer attributes together, or "
                f"{TWO_CHANGES}"
            )
        if not len(self.noisy_blocks):
            raise self.make_public_error()

    @frozen_property
    def regions(self) -> IntArray:
        """The region of each dense cell, by the dense attributes that the unit keeps, (D,)."""
        domain, public = self.workload.domain, self.public_attributes or ()
        region = np.zeros(domain.shape_of(self.dense), dtype=np.int64)
        for axis, (name, n) in enumerate(zip(self.dense, domain.shape_of(self.dense), strict=True)):
            if name in public:
                along = np.arange(n, dtype=np.int64)
                region = region * n + along.reshape(-1, *(1,) * (region.ndim - axis - 1))
        return region.ravel()

    @frozen_property
    def pairs(self) -> CellPairs:
        """The classes of pairs of cells between which a record may move."""
        return find_pairs(np.concatenate(self.group_matrices), self.regions, len(self.free))

    @frozen_property
    def grounded(self) -> Mapping[int, GroundedQueries]:
        """By block, those of which public totals answer a part, modulo these totals."""
        unmoved = np.flatnonzero(~np.isin(self.blocks, self.free).any(axis=1)).tolist()
        build, references = super().build_block_matrix, self.references
        return {b: ground_queries(build(b), self.regions, references) for b in unmoved}

    @frozen_property
    def reference(self) -> IntArray:
        """The value of each dense attribute at the reference cell of the first region, (dense,).

        It is the cell of the fewest queries. References of other regions have other values of the
        attributes that the unit keeps.
        """
        asked = np.sum([np.count_nonzero(N, axis=0) for N in self.group_matrices], axis=0)
        asked = asked.reshape(self.workload.domain.shape_of(self.dense))
        summed = asked.sum(axis=self._kept_axes, keepdims=True)
        return np.array(np.unravel_index(np.argmin(summed), summed.shape), dtype=np.int64)

    @property
    def _kept_axes(self) -> tuple[int, ...]:
        """The positions of the dense attributes that the unit keeps."""
        public = self.public_attributes or ()
        return tuple(axis for axis, name in enumerate(self.dense) if name in public)

    @property
    def regions_count(self) -> int:
        """The number of regions of dense cells."""
        shape = self.workload.domain.shape_of(self.dense)
        return math.prod(shape[axis] for axis in self._kept_axes)

    @frozen_property
    def references(self) -> IntArray:
        """The reference cell of each region, shape (regions,)."""
        shape = self.workload.domain.shape_of(self.dense)
        kept = [shape[axis] if axis in self._kept_axes else 1 for axis in range(len(shape))]
        at = np.indices(kept) + self.reference.reshape(-1, *(1,) * len(shape))
        return np.ravel_multi_index(tuple(at), shape).ravel().astype(np.int64)

    def build_measured_rows(self, block: int, group: int) -> FloatArray:
        rows = super().build_measured_rows(block, group)
        if block not in self.grounded:
            return rows
        asked = self.list_dense(group)
        grounded = rows.reshape(-1, *self.workload.domain.shape_of(asked))
        public = grounded
        for axis, name in enumerate(asked, 1):
            if name not in (self.public_attributes or ()):
                public = public.take([self.reference[self.dense.index(name)]], axis)
        return (grounded - public).reshape(rows.shape)

    def build_block_matrix(self, block: int) -> FloatArray:
        """Build N, shape (r, D), without what public totals answer of it."""
        if block in self.grounded:
            return self.grounded[block].grounded
        return super().build_block_matrix(block)

    def find_public(self, block: int, group: int) -> FloatArray | None:
        if block not in self.grounded:
            return None
        return self.grounded[block].public[self.find_rows(block, group)]

    def sum_products(
        self, matrices: Sequence[AnyArray], same: Sequence[Any], other: Sequence[Any]
    ) -> AnyArray:
        """Sum products of the columns of two cells over the noisy blocks, for each set D.

        Args:
            matrices: Of each noisy block the products over nodes, shape (N, N).
            same: |H_a e_i|^2 of each attribute, in the order of `symmetric`.
            other: (H_a e_i)' H_a e_j for two cells of each attribute.

        Returns:
            sum_A prod_{a in A} (other_a if a in D, else same_a) matrices_A, shape (2^m, N, N).
        """
        table = np.zeros((self.pairs.sets, *matrices[0].shape), dtype=matrices[0].dtype)
        for matrix, (place, others) in zip(matrices, self._places, strict=True):
            multiple: Any = 1
            for a in others:
                multiple = multiple * same[a]
            table[place] += multiple * matrix
        for bit, a in enumerate(self.free.tolist()):
            table = mix_sets(table, (1, same[a]), (1, other[a]), bit)
        return table

    def list_ratios(self) -> tuple[list[float], list[float]]:
        """List 1, and the ratio -1 / (n_a - 1) of two cells to one, of each attribute."""
        other = [-1.0 / (n - 1) if n > 1 else 0.0 for n in self.sizes]
        return [1.0] * len(other), other

    def multiply_ratios(self, moves: IntArray) -> FloatArray:
        """Multiply kappa_A(D) for each noisy block and sets D (v,), shape (blocks, v)."""
        _, other = self.list_ratios()
        factors = np.ones((len(self._places), len(moves)))
        for factor, (place, _) in zip(factors, self._places, strict=True):
            for bit, a in enumerate(self.free.tolist()):
                if place >> bit & 1:
                    factor[moves >> bit & 1 == 1] *= other[a]
        return factors

    def check_named(self) -> None:
        """Check the differences that have dual weights.

        Raises:
            PlanError: If they are not differences between neighbours.
        """
        if self.named is None:
            return
        try:
            self.pairs.check_form(self.named)
        except ValueError as error:
            raise PlanError(str(error)) from None

    def sum_moments(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum v v' of all differences, times their weights, for the noisy blocks.

        Args:
            p: The weights of the classes of pairs, shape (differences,).

        Returns:
            P_A / w_A of each noisy block over the nodes, shape (blocks, N, N), and the row sums of
            all weights, shape (N,): the diagonal that these are taken from.
        """
        table = self.pairs.sum_weights(p)
        degrees = table.sum(axis=(0, 2))
        for bit, a in enumerate(self.free.tolist()):
            table = mix_sets(table, (1, 1), (1, -1 / (self.sizes[a] - 1)), bit)
        moments = -table[[place for place, _ in self._places]]
        at = np.arange(len(degrees))
        moments[:, at, at] += degrees
        return moments, degrees

    @cached_property
    def _places(self) -> list[tuple[int, list[int]]]:
        """Of each noisy block the set of its movable attributes, and its other attributes."""
        bit = {int(a): 1 << i for i, a in enumerate(self.free)}
        return [
            (sum(bit.get(a, 0) for a in attributes), [a for a in attributes if a not in bit])
            for attributes in self.subsets.list_attributes(self.noisy_blocks)
        ]


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
        return f"{blocks}, a record moves along up to {len(self.free)}"

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
            "the moves of a record are too many to try, so that the privacy cost is a bound; ask "
            "tables of fewer attributes, or with equal targets"
        )

    @frozen_property
    def noisy_blocks(self) -> IntArray:
        is_noisy = np.isin(self.blocks, self.free).any(axis=1)
        return np.asarray(np.flatnonzero(is_noisy), dtype=np.int64)

    def find_public(self, block: int, group: int) -> FloatArray | None:
        return None if block in self.noisy_set else np.ones((1, 1))

    def check_size(self) -> None:
        if not len(self.noisy_blocks):
            raise self.make_public_error()
        if len(self.noisy_blocks) > MOST_MOVED_BLOCKS and not self.fits:
            raise WorkloadError(
                f"a record may move along {len(self.free)} attributes, and its moves change "
                f"{len(self.noisy_blocks):,} tables; for the unit of privacy ReplaceOne up to "
                f"{MOST_MOVED_BLOCKS:,} can be designed for: use fewer attributes, or {TWO_CHANGES}"
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
