"""Blocks that are matrices, where neighbours replace a record: differences are pairs of cells.

The blocks are those of `fitplug.families.blocks.shape.matrices`. A record moves between two cells.
Their dense parts d and d' and the set D of symmetric attributes in which they differ decide the
cost:

    sum over A of  w_A ( Y_A(d, d) + Y_A(d', d') - 2 kappa_A(D) Y_A(d, d') )
    kappa_A(D) = prod over a in A and D of -1 / (n_a - 1)

with Y_A = Sigma_A^-1 (docs/theory/units.md, (U21)). If a record cannot move along any attribute of
A, kappa_A = 1 and public totals answer a part of the block; see `fitplug.neighbours.cell_pairs`.
Without symmetric attributes there is one block, over all cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fitplug.domain import get_shape
from fitplug.errors import PlanError, WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.blocks.shape.matrices import MAX_ENTRIES, MatrixStructure
from fitplug.neighbours import (
    MOST_PAIRS,
    CellPairs,
    GroundedQueries,
    RecordSets,
    find_pairs,
    ground_queries,
    mix_sets,
)
from fitplug.numeric import AnyArray, FloatArray, IntArray, frozen_property, to_positions
from fitplug.workload import Factor

MOST_PAIR_CELLS, MANY_PAIR_CELLS = 100_000, 30_000
"""The most dense cells, and the number of cells above which coefficients must be few."""

MOST_NAMED_ENTRIES, MOST_RANK_WORK, MOST_COST_WORK = 40_000_000, 4e8, 5e11
"""The most coefficients of all blocks together if only some classes of pairs have weights or cells
are many; and, if only some classes have weights, the most operations cubic in the blocks'
dimensions, and the most operations to compute the costs of all pairs."""

MOST_INDEPENDENT = 5e7
"""The most numbers of a table of sets D and pairs of nodes, 0.4 GB, for independent weights."""


@dataclass(frozen=True, eq=False)
class PairStructure(MatrixStructure):
    """Blocks over the dense cells, for neighbours that differ by a move between two cells.

    Attributes:
        named: The classes of pairs with dual weights; None if all have one, and before a design.
    """

    named: RecordSets | None = None

    def __str__(self) -> str:
        if not self.symmetric:
            return f"{self.pairs.nodes:,} distinguished cells, {self.pairs.count:,} pairs of them"
        return f"{super().__str__()}, {self.pairs.count:,} kinds of pairs of cells"

    @property
    def is_independent(self) -> bool:
        """Whether nodes have weights, and the two ends of a pair are drawn by them independently.

        This is for too many classes of pairs to give each a weight: docs/theory/units.md.
        """
        return False

    @property
    def differences(self) -> int:
        if self.is_independent:
            return self.pairs.nodes
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
    def most_classes(self) -> int:
        """The limit up to which all classes of pairs of cells have weights."""
        return MOST_PAIRS

    @property
    def fits(self) -> bool:
        """Whether classes of pairs of cells are few enough for all of them to have weights."""
        return (
            self._has_room
            and self.least_nodes * (self.least_nodes - 1) <= 2 * self.most_classes
            and self.pairs.count <= self.most_classes
            and len(self.blocks) * self.pairs.nodes**2 <= 4 * MOST_PAIRS
        )

    @cached_property
    def least_nodes(self) -> int:
        """A lower bound on the distinguished cells of a region, found without the queries'
        matrices.

        If no column of a group is zero, its factors distinguish their attributes' cells whatever
        the values of the other attributes.
        """
        groups = self.workload.groups
        counts = np.array([_count_distinguished(factor) for factor in groups.factors])
        is_plain = np.repeat(~groups.find_any(counts == 0), to_positions(groups.factor_counts))
        plain = set(groups.factor_indices[is_plain].tolist())
        alone = together = 1
        for name in self.dense:
            if name not in (self.public_attributes or ()):
                at = [i for i, factor in enumerate(groups.factors) if factor.attribute == name]
                alone = max(alone, *counts[at].tolist())
                together *= max((int(counts[i]) for i in at if i in plain), default=1)
        return max(alone, together)

    @property
    def _has_room(self) -> bool:
        """Whether cells and coefficients are few enough; many cells allow fewer coefficients."""
        most = MAX_ENTRIES if self.cells <= MANY_PAIR_CELLS else MOST_NAMED_ENTRIES
        return self.cells <= MOST_PAIR_CELLS and self.entries <= most

    @property
    def fits_named(self) -> bool:
        """Whether all pairs can be searched, so that the costliest ones get weights."""
        if self.cells > MOST_PAIR_CELLS or self.entries > MOST_NAMED_ENTRIES:
            return False
        counts = np.bincount(
            self.subsets.pairs[1], self.row_counts[self.subsets.pairs[0]], len(self.blocks)
        )
        ranks = np.minimum(counts, self.cells)
        if float((ranks**3).sum()) > MOST_RANK_WORK:
            return False
        of_pair = 2 ** len(self.free) * float(ranks.sum())
        if of_pair * self.least_nodes**2 > MOST_COST_WORK:
            return False
        return of_pair * float((self.pairs.region_sizes**2).sum()) <= MOST_COST_WORK

    def check_size(self) -> None:
        most = min(MOST_PAIR_CELLS, MANY_PAIR_CELLS)
        if self.cells > most and not self._has_room:
            raise WorkloadError(
                f"{', '.join(self.dense)} have {self.cells:,} cells together; for these queries, "
                f"the limit of ReplaceOne is {most:,}. {TWO_CHANGES}"
            )
        super().check_size()
        if not (self.fits_named or self.fits):
            if (pairs := self.pairs.count) > self.most_classes:
                raise WorkloadError(
                    f"replacing a row may move it between {pairs:,} pairs of cells; the limit of "
                    f"ReplaceOne is {self.most_classes:,}. {TWO_CHANGES}"
                )
            raise WorkloadError(
                f"{self.pairs.nodes:,} cells in {len(self.blocks):,} combinations of attributes "
                f"are too many for ReplaceOne. {TWO_CHANGES}"
            )
        if not len(self.noisy_blocks):
            raise self.make_public_error()

    @frozen_property
    def pairs(self) -> CellPairs:
        """The classes of pairs of cells between which a record may move."""
        return find_pairs(self.group_matrices, self.regions, len(self.movable))

    @cached_property
    def movable(self) -> tuple[tuple[int, ...], ...]:
        """The attributes of blocks for which each digit of a set D stands."""
        return tuple((a,) for a in self.free.tolist())

    def take_numbers(self, numbers: Sequence[Any], digit: int, nodes: Any) -> Any:
        """Take the number of a digit's attribute: one for all nodes, or one per node, shape (n,).

        Args:
            numbers: A number for each of `block_attributes`.
            digit: The digit of a set D.
            nodes: The nodes, as a NumPy index.
        """
        return numbers[self.movable[digit][0]]

    @frozen_property
    def grounded(self) -> Mapping[int, GroundedQueries]:
        """The queries modulo public totals, for each block of which public totals answer a part."""
        unmoved = np.flatnonzero(self.is_public).tolist()
        build, references = super().build_block_matrix, self.references
        return {b: ground_queries(build(b), self.regions, references) for b in unmoved}

    @frozen_property
    def reference(self) -> IntArray:
        """The value of each dense attribute at the reference cell of the first region, (dense,).

        It is the cell in the fewest queries. The references of other regions differ from it only in
        the attributes that the unit keeps.
        """
        asked = np.sum([np.count_nonzero(N, axis=0) for N in self.group_matrices], axis=0)
        asked = asked.reshape(get_shape(self.workload.domain, self.dense))
        summed = asked.sum(axis=self._kept_axes, keepdims=True)
        return np.array(np.unravel_index(np.argmin(summed), summed.shape), dtype=np.int64)

    @property
    def _kept_axes(self) -> tuple[int, ...]:
        """The positions of the dense attributes that the unit keeps."""
        public = self.public_attributes or ()
        return tuple(axis for axis, name in enumerate(self.dense) if name in public)

    @frozen_property
    def references(self) -> IntArray:
        """The reference cell of each region, shape (regions,)."""
        shape = get_shape(self.workload.domain, self.dense)
        kept = [shape[axis] if axis in self._kept_axes else 1 for axis in range(len(shape))]
        at = np.indices(kept) + self.reference.reshape(-1, *(1,) * len(shape))
        return np.ravel_multi_index(tuple(at), shape).ravel().astype(np.int64)

    def build_measured_rows(self, block: int, group: int) -> FloatArray:
        rows = super().build_measured_rows(block, group)
        if block not in self.grounded:
            return rows
        asked = self.list_dense(group)
        grounded = rows.reshape(-1, *get_shape(self.workload.domain, asked))
        public = grounded
        for axis, name in enumerate(asked, 1):
            if name not in (self.public_attributes or ()):
                public = public.take([self.reference[self.dense.index(name)]], axis)
        return (grounded - public).reshape(rows.shape)

    def build_block_matrix(self, block: int) -> FloatArray:
        """Build N, shape (r, D), without the part that public totals answer."""
        if block in self.grounded:
            return self.grounded[block].grounded
        return super().build_block_matrix(block)

    def find_public(self, block: int, group: int) -> FloatArray | None:
        if block not in self.grounded:
            return None
        return self.grounded[block].public[self.find_rows(block, group)]

    def sum_products(
        self,
        matrices: Iterable[AnyArray],
        same: Sequence[Any],
        other: Sequence[Any],
        nodes: Any = slice(None),
    ) -> AnyArray:
        """Sum inner products of two cells' columns over the noisy blocks, for each set D.

        Args:
            matrices: The products over nodes in each noisy block, shape (N, n).
            same: |H_a e_i|^2 of each attribute, in the order of `symmetric`.
            other: (H_a e_i)' H_a e_j for two cells of each attribute.
            nodes: The nodes of the last axis, as a NumPy index.

        Returns:
            sum_A prod_{a in A} (other_a if a in D, else same_a) matrices_A, shape (2^m, N, n).
        """
        table: AnyArray = np.zeros(0)
        for matrix, (place, multiple) in zip(matrices, self.multiply_others(same), strict=True):
            if not table.size:
                table = np.zeros((self.pairs.sets, *matrix.shape), dtype=matrix.dtype)
            table[place] += multiple * matrix
        return self.mix_products(table, same, other, nodes)

    def multiply_others(self, same: Sequence[Any]) -> list[tuple[int, Any]]:
        """For each noisy block, its number in `places`, and the product of `same` of its others."""
        return [(place, math.prod(same[a] for a in others)) for place, others in self._places]

    def mix_products(
        self, table: AnyArray, same: Sequence[Any], other: Sequence[Any], nodes: Any = slice(None)
    ) -> AnyArray:
        """Combine products summed by `places` into those of each set D; see `sum_products`."""
        for digit in range(len(self.movable)):
            a, b = (self.take_numbers(each, digit, nodes) for each in (same, other))
            table = mix_sets(table, (1, a), (1, b), digit)
        return table

    def list_ratios(self) -> tuple[list[float], list[float]]:
        """List, per attribute, 1 and the ratio -1 / (n_a - 1) of two cells' product to one
        cell's."""
        other = [-1.0 / (n - 1) if n > 1 else 0.0 for n in self.sizes]
        return [1.0] * len(other), other

    def multiply_ratios(self, moves: IntArray) -> FloatArray:
        """Compute kappa_A(D) for each noisy block A and sets D (v,), shape (blocks, v)."""
        _, other = self.list_ratios()
        factors = np.ones((len(self._places), len(moves)))
        blocks = self.subsets.list_attributes(self.noisy_blocks)
        for factor, attributes in zip(factors, blocks, strict=True):
            for a in attributes:
                if a in self._digits:
                    factor[moves >> self._digits[a] & 1 == 1] *= other[a]
        return factors

    def check_named(self) -> None:
        """Check the differences with dual weights.

        Raises:
            PlanError: If they are not differences between neighbours.
        """
        if self.named is None:
            return
        try:
            self.pairs.check_form(self.named)
        except ValueError as error:
            raise PlanError(str(error)) from None

    def sum_moments(self, p: FloatArray) -> tuple[list[FloatArray], FloatArray]:
        """Sum v v' over all differences v, weighted, for the noisy blocks.

        Args:
            p: The weights of the classes of pairs, shape (differences,).

        Returns:
            P_A / w_A over the nodes of each region, for each number that occurs in `places`, shape
            (2^m, n, n), and the row sums of all weights, shape (N,), from whose diagonal matrix
            they are subtracted.
        """
        if self.is_independent:
            return self.pairs.sum_independent(p), 2 * p
        moments, degrees = [], []
        _, other = self.list_ratios()
        for region, table in zip(self.pairs.region_slices, self.pairs.sum_weights(p), strict=True):
            sums = table.sum(axis=(0, 2))
            for digit in range(len(self.movable)):
                table = mix_sets(table, (1, 1), (1, self.take_numbers(other, digit, region)), digit)
            np.negative(table, out=table)
            at = np.arange(len(sums))
            table[:, at, at] += sums
            moments.append(table)
            degrees.append(sums)
        return moments, np.concatenate(degrees)

    def measure_weighted(self, p: FloatArray, products: Sequence[FloatArray]) -> FloatArray:
        """Compute the derivative of p'c by the weights p, where c are the costs of differences.

        Args:
            p: The weights, shape (differences,).
            products: The products of the nodes' columns by `places`, of each region, shape
                (2^m, n, n).
        """
        if self.is_independent:
            return self.pairs.measure_independent(p, products)
        mixed = self._mix_regions(products)
        squares = np.concatenate([table[0].diagonal() for table in mixed])
        return self.pairs.measure_pairs(squares, mixed)

    def find_largest_cost(self, products: Sequence[FloatArray]) -> float:
        """Find the largest cost of all pairs, up to rounding; see `measure_weighted`."""
        largest = 0.0
        for table in self._mix_regions(products):
            squares = table[0].diagonal()
            costs = squares[:, None] + squares - 2 * table.min(axis=0)
            largest = max(largest, float(costs.max()))
        return largest

    def _mix_regions(self, products: Sequence[FloatArray]) -> list[FloatArray]:
        """Combine products by `places` into those of each set D, in each region."""
        same, other = self.list_ratios()
        return [
            self.mix_products(table, same, other, region)
            for table, region in zip(products, self.pairs.region_slices, strict=True)
        ]

    @property
    def places(self) -> list[int]:
        """For each noisy block, its movable attributes as the binary digits of a number."""
        return [place for place, _ in self._places]

    @cached_property
    def _digits(self) -> dict[int, int]:
        """The digit of each movable attribute."""
        return {a: digit for digit, some in enumerate(self.movable) for a in some}

    @cached_property
    def _places(self) -> list[tuple[int, list[int]]]:
        """For each noisy block, its number in `places`, and its other attributes."""
        digits = self._digits
        return [
            (
                sum(1 << digits[a] for a in attributes if a in digits),
                [a for a in attributes if a not in digits],
            )
            for attributes in self.subsets.list_attributes(self.noisy_blocks)
        ]


def _count_distinguished(factor: Factor) -> int:
    """Count the distinct columns of ones and zeros, if none of them is zero.

    The count is 0 if other columns are possible.
    """
    if factor.kind == "total":
        return 1
    if factor.kind in ("identity", "prefix"):
        return factor.ordered
    # The last node of a level may stand for all values that no code prefix covers.
    return factor.rows - 1 if factor.cells is not None and factor.kind != "ranges" else 0
