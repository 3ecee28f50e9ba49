"""Pairs of cells between which one record may move, when neighbours replace a record.

Neighbours in the unit `ReplaceOne` differ by e_i - e_j, where the cells i and j are in one region:
they have the same values of the attributes that the unit keeps. The number T x of records of each
region is public. Queries matter modulo these totals: with the column of a reference cell subtracted
from all columns of its region, W = W' + K T, where K has the columns of the reference cells. W' is
zero at the reference cells, and W' v = W v for every difference v, as T v = 0.

Cells of one region with equal columns of W' are one node, as a record that moves between them
changes no answer. So the differences are pairs of nodes of one region. In each region the nodes
with a zero column, that of the reference cell, are one: the ground.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.numeric import AnyArray, FloatArray, IntArray, frozen_property, to_positions
from fitplug.structure.cell_classes import classify_cells

MOST_PAIRS = 2_000_000
"""The most pairs of cells told apart. The weights of pairs take 0.6 GB in a design then."""


@dataclass(frozen=True, eq=False)
class CellPairs:
    """Queries modulo the totals of regions, and the pairs of cells that they tell apart.

    Attributes:
        grounded: W', the queries without what public totals answer, shape (m, d).
        public: K, what the queries ask of the public totals, shape (m, regions).
        regions: The region of each cell, shape (d,).
        classes: The class of each cell that W' does not tell apart, -1 for zero columns, (d,).
    """

    grounded: FloatArray
    public: FloatArray
    regions: IntArray
    classes: IntArray

    @frozen_property
    def node_of_cell(self) -> IntArray:
        """The node of each cell, numbered by region and then by class, shape (d,)."""
        kinds = self.regions * (len(self.classes) + 1) + self.classes + 1
        return np.asarray(np.unique(kinds, return_inverse=True)[1].ravel())

    @frozen_property
    def cells(self) -> IntArray:
        """The first cell of each node, shape (N,)."""
        return np.asarray(np.unique(self.node_of_cell, return_index=True)[1])

    @property
    def nodes(self) -> int:
        """N, the number of nodes."""
        return len(self.cells)

    @frozen_property
    def ends(self) -> tuple[IntArray, IntArray]:
        """The two nodes of each pair, the first before the second, each of shape (pairs,)."""
        regions = self.regions[self.cells]
        sizes = np.bincount(to_positions(regions))
        found = [np.triu_indices(size, 1) for size in sizes.tolist()]
        starts = np.cumsum(sizes) - sizes
        first, second = (
            np.concatenate([own[i] + start for own, start in zip(found, starts, strict=True)])
            for i in (0, 1)
        )
        return first, second

    @property
    def count(self) -> int:
        """The number of pairs."""
        return count_pairs(self.regions[self.cells])

    def sum_weights(self, p: FloatArray) -> FloatArray:
        """Sum p_v v v' over the pairs, for p (pairs,): the Laplacian of the weights, (N, N)."""
        first, second = self.ends
        weights = np.zeros((self.nodes, self.nodes))
        weights[first, second] = p
        weights += weights.T
        return np.asarray(np.diag(weights.sum(axis=1)) - weights)

    def measure_pairs(self, gram: AnyArray) -> AnyArray:
        """Compute v' G v = G_ii + G_jj - 2 G_ij of each pair, for G (N, N); shape (pairs,)."""
        first, second = self.ends
        own = gram.diagonal()
        return np.asarray(own[first] + own[second] - 2 * gram[first, second])

    def find_largest(self, costs: AnyArray) -> AnyArray:
        """Find the largest cost, of all pairs (pairs,), of each cell's pairs; shape (d,).

        A cell that is alone in its region is in no pair, and has the cost 0.
        """
        first, second = self.ends
        largest = np.zeros(self.nodes, dtype=costs.dtype)
        np.maximum.at(largest, first, costs)
        np.maximum.at(largest, second, costs)
        return np.asarray(largest[self.node_of_cell])


def find_pairs(W: FloatArray, regions: IntArray) -> CellPairs:
    """Find the pairs of cells that queries W (m, d) tell apart, for the region (d,) of each cell.

    The reference cell of a region is the one of which the fewest queries ask.
    """
    asked = np.count_nonzero(W, axis=0)
    order = np.lexsort((asked, regions))
    _, starts = np.unique(regions[order], return_index=True)
    public = W[:, order[starts]]
    grounded = W - public[:, regions]
    return CellPairs(grounded, public, regions, classify_cells(grounded))


def count_pairs(regions: IntArray) -> int:
    """Count the pairs of nodes of one region, for the region of each node, shape (N,)."""
    sizes = np.bincount(to_positions(regions)).astype(object)
    return int((sizes * (sizes - 1) // 2).sum())
