"""Pairs of cells between which one record may move, when neighbours replace a record.

Neighbours in the unit `ReplaceOne` differ by e_i - e_j, where the cells i and j are in one region:
they have the same values of the attributes that the unit keeps. A cell i has a dense part d and a
value of each symmetric attribute. The cost of a move depends only on the dense parts d and d', and
on the set D of the symmetric attributes whose values differ. So all pairs with the same (d, d', D)
form one class, with one dual weight (docs/theory/units.md).

Dense cells of one region that no query distinguishes form one node. Two regions whose cells have
the same columns, in the same order, share their nodes, because they have the same differences.

The number T x of records of each region is public. Queries matter modulo these totals: with the
column of a reference cell subtracted from all columns of its region, W = W' + K T, where K has the
columns of the reference cells. W' is zero at the reference cells, and W' v = W v for every
difference v, as T v = 0. The reference cells of all regions have the same values of the attributes
that the unit does not keep. So a row of W' uses the same attributes as its query.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.errors import BAD_PROOF
from fitplug.neighbours.persons import RecordSets
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IndexArray,
    IntArray,
    frozen_property,
    to_positions,
)
from fitplug.workload import classify_cells

MOST_PAIRS = 2_000_000
"""The most classes of pairs of cells. At this limit, their weights take 0.6 GB in a design."""

TILE = 4_000_000
"""About the most classes of pairs whose costs are computed at once."""


@dataclass(frozen=True, eq=False)
class GroundedQueries:
    """Queries modulo the totals of regions.

    Attributes:
        grounded: W', the queries without the part that public totals answer, shape (m, d).
        public: K, the queries' coefficients of the public totals, shape (m, regions).
    """

    grounded: FloatArray
    public: FloatArray


def ground_queries(W: FloatArray, regions: IntArray, references: IntArray) -> GroundedQueries:
    """Subtract from queries the part that public totals answer.

    Args:
        W: The queries, shape (m, d).
        regions: The region of each cell, shape (d,).
        references: The reference cell of each region, shape (regions,).
    """
    public = W[:, references]
    return GroundedQueries(W - public[:, regions], public)


@dataclass(frozen=True, eq=False)
class PairEnds:
    """Classes of pairs: the two nodes and the number of the set D of each, shapes (v,)."""

    first: IndexArray
    second: IndexArray
    moves: IntArray


@dataclass(frozen=True, eq=False)
class CellPairs:
    """The classes of pairs of cells between which a record may move.

    The binary digits of a set's number are the movable symmetric attributes in the set. The classes
    of the empty set are the pairs of different nodes of one region. Each other set D has these
    pairs, and after them the pairs of each node with itself.

    Attributes:
        node_of_cell: The node of each dense cell, numbered by region, shape (d,).
        regions: The region of each dense cell, shape (d,). Regions that no query distinguishes have
            one number.
        free: The number m of the symmetric attributes along which a record may move.
    """

    node_of_cell: IntArray
    regions: IntArray
    free: int

    @frozen_property
    def cells(self) -> IntArray:
        """The first cell of each node, shape (N,)."""
        return np.asarray(np.unique(self.node_of_cell, return_index=True)[1])

    @property
    def nodes(self) -> int:
        """N, the number of nodes."""
        return len(self.cells)

    @property
    def sets(self) -> int:
        """2^m, the number of sets D."""
        return int(2**self.free)

    @frozen_property
    def region_of_node(self) -> IntArray:
        """The region of each node, shape (N,), ascending."""
        return self.regions[self.cells]

    @frozen_property
    def region_sizes(self) -> IntArray:
        """The number of nodes of each region of `regions`, shape (different regions,)."""
        return np.bincount(to_positions(self.region_of_node))

    @property
    def entries(self) -> int:
        """The numbers of a table with an entry for each set D and pair of nodes of a region."""
        return self.sets * int((self.region_sizes**2).sum())

    @property
    def region_slices(self) -> list[slice]:
        """The nodes of each region."""
        stops = np.cumsum(self.region_sizes)
        starts = stops - self.region_sizes
        return [slice(i, j) for i, j in zip(starts.tolist(), stops.tolist(), strict=True)]

    @frozen_property
    def region_pairs(self) -> tuple[tuple[IndexArray, IndexArray], ...]:
        """The two nodes of each pair of different nodes of each region, counted from its first."""
        sizes = self.region_sizes.tolist()
        of_size = {size: np.triu_indices(size, 1) for size in set(sizes)}
        return tuple(of_size[size] for size in sizes)

    def split_nodes(self, nodes: IndexArray) -> Iterator[tuple[int, IndexArray, slice]]:
        """Split ascending nodes by region.

        Yields:
            The region's number, its nodes counted from its first, and their place in `nodes`.
        """
        starts = [region.start for region in self.region_slices]
        bounds = np.searchsorted(nodes, [*starts, self.nodes]).tolist()
        for number, (first, last) in enumerate(itertools.pairwise(bounds)):
            if first < last:
                yield number, nodes[first:last] - starts[number], slice(first, last)

    @property
    def _bits(self) -> IntArray:
        return np.asarray(1 << np.arange(self.free, dtype=np.int64))

    @property
    def count(self) -> int:
        """The number of classes of pairs."""
        sizes = self.region_sizes.astype(object)
        different = int((sizes * (sizes - 1) // 2).sum())
        return self.sets * (different + self.nodes) - self.nodes

    def sum_weights(self, p: FloatArray) -> list[FloatArray]:
        """Arrange weights (count,) of the classes by set and nodes: p + p' for each D.

        Returns:
            For each region an array (2^m, n, n). Each entry is a weight or, on the diagonal, twice
            a weight, without rounding.
        """
        tables, start = [], 0
        k = sum(len(first) for first, _ in self.region_pairs)
        moved = p[k:].reshape(self.sets - 1, k + self.nodes)
        for region, (first, second) in zip(self.region_slices, self.region_pairs, strict=True):
            n, here = region.stop - region.start, slice(start, start + len(first))
            weights = np.zeros((self.sets, n, n))
            weights[0, first, second] = p[here]
            weights[1:, first, second] = moved[:, here]
            weights += weights.swapaxes(1, 2)
            weights[1:, np.arange(n), np.arange(n)] = 2 * moved[:, k:][:, region]
            tables.append(weights)
            start = here.stop
        return tables

    def measure_pairs(self, squares: AnyArray, products: Sequence[AnyArray]) -> AnyArray:
        """Compute the cost of each class, squares_d + squares_d' - 2 products_D(d, d'), (count,).

        Args:
            squares: The squares of the columns of the nodes, shape (N,).
            products: The products of the columns of two cells that differ along D, of each region,
                shape (2^m, n, n).
        """
        different, same = [], []
        for region, ends, table in zip(
            self.region_slices, self.region_pairs, products, strict=True
        ):
            first, second = ends
            one, at = squares[region], np.arange(region.stop - region.start)
            different.append((one[first] + one[second]) - 2 * table[:, first, second])
            same.append(2 * one - 2 * table[1:, at, at])
        apart = np.concatenate(different, axis=1)
        moved = np.concatenate([apart[1:], *same], axis=1)
        return np.concatenate([apart[0], moved.ravel()])

    def sum_independent(self, p: FloatArray) -> list[FloatArray]:
        """Sum v v' over pairs whose ends are drawn independently, by weights p (N,) of nodes.

        The sum is 2 diag(p) - 2 p p' / 1'p in each region. With attributes of D, whose cells are
        drawn independently as well, the second term is 0: contrasts have mean 0.

        Returns:
            For each region an array (2^m, n, n), for the blocks with the movable attributes D.
        """
        moments = []
        for region in self.region_slices:
            here = p[region]
            table = np.zeros((self.sets, len(here), len(here)))
            if here.any():
                table[0] = here[:, None] * (-2 * here / here.sum())
            at = np.arange(len(here))
            table[:, at, at] += 2 * here
            moments.append(table)
        return moments

    def measure_independent(self, p: FloatArray, products: Sequence[FloatArray]) -> FloatArray:
        """Compute the derivative of the mean cost of independent pairs by p, shape (N,).

        Args:
            p: The weights, shape (N,), not all zero in any region.
            products: The products of the nodes' columns in the blocks with the movable attributes
                D, of each region, shape (2^m, n, n).
        """
        profile = []
        for region, table in zip(self.region_slices, products, strict=True):
            share = p[region] / p[region].sum()
            mean = table[0] @ share
            squares = table.diagonal(axis1=1, axis2=2).sum(axis=0)
            profile.append(2 * (squares - 2 * mean + share @ mean))
        return np.concatenate(profile)

    def list_tiles(self) -> Iterator[tuple[slice, slice]]:
        """List nodes i and j >= i of one region, so that every pair is in a tile of i and j."""
        for region in self.region_slices:
            step = max(1, TILE // ((region.stop - region.start) * self.sets))
            for start in range(region.start, region.stop, step):
                yield slice(start, min(start + step, region.stop)), slice(start, region.stop)

    def name(self, first: IntArray, second: IntArray, moves: IntArray) -> RecordSets:
        """Name classes of pairs, given by two nodes and the number of a set D, shapes (v,).

        A pair is named by two records in the first cells of its nodes, the earlier cell first.
        Their labels differ in the attributes of D.
        """
        ends = self.cells[np.sort(np.stack([first, second], axis=1), axis=1)]
        labels = np.zeros((len(ends), 2, self.free), dtype=np.int64)
        labels[:, 1] = np.asarray(moves)[:, None] >> np.arange(self.free) & 1
        return RecordSets(ends, labels)

    def find_ends(self, named: RecordSets) -> PairEnds:
        """Find the nodes and the sets D of named pairs."""
        first, second = self.node_of_cell[named.cells].T
        return PairEnds(first, second, named.find_differing()[:, 0, 1] @ self._bits)

    def check_form(self, named: RecordSets) -> None:
        """Check that these are pairs of cells of one region.

        Raises:
            ValueError: If a shape, a type or a number is out of range, or the regions differ.
        """
        cells, labels = named.cells, named.labels
        fits = cells.dtype == labels.dtype == np.int64
        fits = fits and cells.ndim == 2 and cells.shape[1] == 2 and len(cells) > 0
        fits = fits and labels.shape == (len(cells), 2, self.free)
        fits = fits and 0 <= int(cells.min()) <= int(cells.max()) < len(self.regions)
        if not fits or np.diff(self.regions[cells], axis=1).any():
            raise ValueError(BAD_PROOF)


def find_pairs(matrices: Sequence[FloatArray], regions: IntArray, free: int) -> CellPairs:
    """Find the classes of pairs of cells.

    Args:
        matrices: The queries of each group over the dense cells, shape (m, d).
        regions: The region of each dense cell, shape (d,); all have as many cells.
        free: The number of the symmetric attributes along which a record may move.
    """
    # One group after another, because a copy of all coefficients may take more than a gigabyte.
    by_group = np.stack([classify_cells(W) for W in matrices]).astype(np.float64)
    classes = classify_cells(by_group + 1)
    by_region = classes[np.argsort(regions, kind="stable")].reshape(int(regions.max()) + 1, -1)
    _, alike = np.unique(by_region, axis=0, return_inverse=True)
    regions = np.asarray(alike.ravel()[regions], dtype=np.int64)
    kinds = regions * (len(regions) + 1) + classes + 1
    return CellPairs(np.asarray(np.unique(kinds, return_inverse=True)[1].ravel()), regions, free)


def mix_sets(table: AnyArray, out: tuple[Any, Any], moved: tuple[Any, Any], bit: int) -> AnyArray:
    """Mix the entries of a table (2^m, ...) whose first indices differ in one binary digit.

    Args:
        table: The table.
        out: The factors of the entries with digit 0 and 1 in the new entry with digit 0.
        moved: The factors in the new entry with digit 1.
        bit: The number of the digit.

    Returns:
        A table of the same shape.
    """
    halves = table.reshape(-1, 2, 2**bit, *table.shape[1:])
    mixed = np.stack(
        [a * halves[:, 0] + b * halves[:, 1] for a, b in (out, moved)],
        axis=1,
    )
    return mixed.reshape(table.shape)
