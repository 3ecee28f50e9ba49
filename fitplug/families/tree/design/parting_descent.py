"""The optimum of a tree's family for pairs of cells, weighted by where their paths part.

Each group of pairs belongs to some nodes: the paths of a pair's two leaves part at one of them. The
pairs of the last group have only one leaf. A kind has a group, a move and two dense cells. If the
paths of leaves l and l' part at node v, the pair has its kind's weight times n_v s_l s_l', where
the shares s of leaves are the same for all dense cells. So the matrix X (x) Y of a node with
children j has the price (docs/theory/units.md, section Trees)

    sum_j X_jj tr(Y P_j) - n_v s'X s tr(Y Theta_g)
    P_j = sum_h (m_jh diag(e_h) - a_jh Theta_h) + n_v q_j Theta_g

where g is the group of pairs that part there. Below j, m_jh and a_jh are the weights of the leaves
and of the pairs of group h, and q_j is the sum of the squared shares of the children of v for which
j stands. Nothing here is proven: the cost of a strategy is that of its costliest pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from fitplug.families.tree.design.descent import Costs, TreeDescent, Weights
from fitplug.families.tree.design.family import MixedNodePrices, Sweep, TreeFamily
from fitplug.families.tree.design.pair_root import find_pair_root
from fitplug.families.tree.shape.node_tree import NodeTree
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import BoolArray, FloatArray, IntArray, to_positions

_LEAST = 1e-9
"""The least share of pairs that part at a node, below which they get no weight."""

_MOST_GROUPS, _MOST_KINDS, _MOST_NUMBERS = 40, 200_000, 2**22
"""The most groups of one depth, kinds of pairs in them, and numbers per node and group."""


class Parting(NamedTuple):
    """The weights of the pairs of G groups along the tree, at some shares of the leaves.

    Attributes:
        shares: s of each node, shape (N,).
        leaves: m of each leaf over its share, shape (leaves, G).
        ends: m of each node, shape (N, G).
        numbers: The coefficients of Theta_h in P_j, shape (N, G).
        between: n_v of the group that parts at each node, zero for other groups, shape (N, G).
        reach: The coefficient of X_jj in the average that pairs with a leaf below child j share,
            shape (N, G).
        across: The coefficient of (X s)_j in this average, shape (N, G).
        sizes: The shares of the groups among all pairs of two leaves, shape (G,).
    """

    shares: FloatArray
    leaves: FloatArray
    ends: FloatArray
    numbers: FloatArray
    between: FloatArray
    reach: FloatArray
    across: FloatArray
    sizes: FloatArray


class PartingGroups:
    """The groups of pairs of a tree.

    Args:
        tree: The tree.
        most: The most groups of pairs whose paths part above nodes of one depth.
    """

    def __init__(self, tree: NodeTree, most: int) -> None:
        self.tree, n = tree, tree.size
        self.top, inner = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
        for step in tree.steps:
            inner[step.parents] = step.depth == tree.depths[step.parents]
            is_deeper = tree.depths[step.parents] < step.depth
            above = np.where(is_deeper, step.parents, self.top[step.parents])
            self.top[step.children] = above[:, None]
        self.is_between: BoolArray = inner
        is_child = ~inner & (np.arange(n) > 0)
        tops = np.unique(self.top[is_child])
        depth_of = np.zeros(n, dtype=np.int64)
        depth_of[self.top[1:]] = tree.depths[1:]
        numbers = np.bincount(
            to_positions(self.top[is_child]), tree.multiplicities[is_child], minlength=n
        )
        groups = _gather_tops(numbers[tops], depth_of[tops], most)
        self.group_of: IntArray = groups[np.searchsorted(tops, self.top)]
        self.depths = np.zeros(int(groups.max()) + 1, dtype=np.int64)
        self.depths[groups] = depth_of[tops]
        # The children that queries use, by group, without the nodes in between.
        self.children = [
            np.flatnonzero(is_child & (self.group_of == g)) for g in range(len(self.depths))
        ]

    @property
    def count(self) -> int:
        """G, the number of groups."""
        return len(self.depths) + 1

    def weigh(self, shares: FloatArray) -> Parting:
        """Compute the weights of pairs along the tree, for shares of the leaves that sum to 1."""
        tree, G = self.tree, self.count
        s = tree.sum_leaves(shares)
        each = s / tree.multiplicities
        # n_v and n_v q by child; q of a node in between sums those below it.
        norm, square = np.zeros(tree.size), np.zeros(tree.size)
        held, factor = np.zeros((2, tree.size, G))
        sizes = np.ones(G)
        for g, children in enumerate(self.children):
            top = self.top[children]
            squares = s[children] * each[children]
            pairs = s**2 - np.bincount(to_positions(top), squares, minlength=tree.size)
            tops = np.unique(top)
            tops = tops[pairs[tops] > _LEAST * s[tops] ** 2]
            held[tops, g] = s[tops] / s[tops].sum()
            norm[tops] = held[tops, g] / pairs[tops]
            square[children] = norm[top] * squares
            factor[children, g] = norm[top] * (s[top] - each[children])
            sizes[g] = pairs[tops].sum()
            sizes[-1] -= sizes[g]
        held[tree.leaves, -1] = shares
        factor[:, -1] = 1
        for step in tree.steps:
            above = self.depths < step.depth
            factor[step.children, :-1] += np.where(above, factor[step.parents, :-1], 0)[:, None]
        leaves = factor[tree.leaves]
        ends = tree.sum_leaves(shares[:, None] * leaves)
        numbers = -tree.add_upwards(held)
        for step in reversed(tree.steps):
            inner = self.is_between[step.parents]
            square[step.parents[inner]] = square[step.children[inner]].sum(axis=1)
        at = np.arange(1, tree.size), self.group_of[1:]
        numbers[at] += square[1:]
        reach = (tree.depths[:, None] < np.append(self.depths, np.inf)).astype(np.float64)
        across, between = np.zeros((2, tree.size, G))
        safe = np.where(ends[at] > 0, ends[at], 1.0)
        reach[at] = -square[1:] / safe
        across[at] = norm[self.top[1:]] * s[1:] / safe
        for step in tree.steps:
            child = step.children[:, 0]
            between[step.parents, self.group_of[child]] = norm[self.top[child]]
        return Parting(
            s, leaves, ends, numbers, between, reach, across, sizes=np.maximum(sizes, 0.0)
        )


class PartingDescent(TreeDescent):
    """The fixed-point map for kinds of pairs, distinguished by where their paths part.

    The leaves have weights p, which are the same for all dense cells.
    """

    takes_means = True
    structure: TreePairStructure

    def __init__(self, structure: TreePairStructure, mixing: float) -> None:
        tree = structure.tree
        kinds = structure.moves, structure.cell_pairs.shape[1]
        fit = min(_MOST_KINDS // math.prod(kinds), _MOST_NUMBERS // (tree.size * len(tree.steps)))
        most = max(1, min(_MOST_GROUPS, fit))
        self.groups = PartingGroups(tree, most)
        self.shape = (self.groups.count, *kinds)
        self.valid: BoolArray = np.ones(self.shape, dtype=bool)
        first, second = structure.cell_pairs
        self.valid[-1, 0, first == second] = False
        leaves = tree.multiplicities[tree.leaves].astype(np.float64)
        super().__init__(structure, mixing, leaves, int(self.valid.sum()))
        self._ratios = structure.move_ratios[self.blocks]

    def find_start(self, x: Weights) -> FloatArray:
        """Convert weights of pairs of any two leaves to equivalent weights."""
        structure = self.structure
        cells = x.p.reshape(-1, structure.cells)
        shares = cells.sum(axis=1) / cells.sum()
        anywhere, alike = structure.split_kinds(x.kinds)
        kinds = self.groups.weigh(shares).sizes[:, None, None] * anywhere
        first, second = structure.cell_pairs
        same = np.flatnonzero(first == second)
        kinds[-1, 1:, same] += alike[:, first[same]].T
        weights = [shares, kinds[self.valid], x.q]
        return self.normalise(np.log(np.maximum(np.concatenate(weights), 1e-30)))

    def unfold_kinds(self, kinds: FloatArray) -> FloatArray:
        """Expand weights of the valid kinds (kinds,) to all kinds (G, moves, K)."""
        every = np.zeros(self.shape)
        every[self.valid] = kinds
        return every

    def _weigh_block(self, i: int, kinds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Find e_g (G, D) and Theta_g (G, D, D) of a block for kinds (G, moves, K)."""
        structure = self.structure
        ends = np.stack([structure.add_ends(of_group.sum(axis=0)) for of_group in kinds])
        spread = [structure.unfold_pairs(self._ratios[i] @ of_group) for of_group in kinds]
        return self.multiples[i] * ends, self.multiples[i] * np.stack(spread)

    def price(self, weights: Weights) -> Sequence[MixedNodePrices]:
        structure = self.structure
        parting, kinds = self.groups.weigh(weights.p), self.unfold_kinds(weights.kinds)
        numbers = np.hstack([parting.ends, parting.numbers])
        between = np.hstack([np.zeros_like(parting.between), parting.between])
        prices = []
        for i, (block, family) in enumerate(zip(self.blocks, self.families, strict=True)):
            ends, thetas = self._weigh_block(i, kinds)
            merged = [classes.merge_matrices(thetas) for classes in family.classes]
            matrices = [
                np.concatenate([classes.merge_counts(ends)[:, :, None] * np.eye(classes.size), of])
                for classes, of in zip(family.classes, merged, strict=True)
            ]
            theta = matrices[0][len(ends) :].sum(axis=0)
            prices.append(
                MixedNodePrices(
                    [family.classes[0].merge_counts(ends).sum(axis=0)[None]],
                    find_root=partial(find_pair_root, theta, structure.find_totals(block)),
                    numbers=numbers,
                    between=between,
                    shares=parting.shares,
                    matrices=matrices,
                )
            )
        return prices

    def measure_costs(self, sweeps: Sequence[Sweep], weights: Weights) -> Costs:
        # Half of the mean cost of the pairs of each kind, and of the pairs with each leaf.
        structure, G = self.structure, self.groups.count
        tree, (first, second) = structure.tree, structure.cell_pairs
        parting, kinds = self.groups.weigh(weights.p), self.unfold_kinds(weights.kinds)
        D = structure.cells
        means, spread = np.zeros((G, D)), np.zeros(self.shape)
        gained = np.zeros((len(tree.leaves), G))
        weighed = parting.leaves * weights.p[:, None]
        for i, (family, sweep) in enumerate(zip(self.families, sweeps, strict=True)):
            ends, thetas = self._weigh_block(i, kinds)
            profile = sweep.profile.reshape(-1, D)
            means += self.multiples[i] * (weighed.T @ profile)
            gained += profile @ ends.T
            shared, by_node = self._share(family, sweep, thetas, parting)
            gained -= by_node[tree.leaves]
            of_pairs = self.multiples[i] * shared[:, first, second]
            spread += self._ratios[i][:, None] * of_pairs[:, None]
        costs = (means[:, first] + means[:, second])[:, None] / 2 - spread
        of_kinds = np.maximum(costs[self.valid], 0)
        mean = float(weights.kinds @ of_kinds)
        amounts = parting.leaves @ kinds.sum(axis=(1, 2))
        gained = np.maximum((parting.leaves * gained).sum(axis=1), 0)
        of_leaves = np.divide(gained, amounts, out=np.zeros_like(gained), where=amounts > 0)
        largest = max(float(of_kinds.max()), float(of_leaves.max()))
        of_leaves *= mean / float(weights.p @ of_leaves)
        return Costs(of_leaves, of_kinds, largest)

    def _share(
        self, family: TreeFamily, sweep: Sweep, thetas: FloatArray, parting: Parting
    ) -> tuple[FloatArray, FloatArray]:
        """Compute the average that pairs of each group share in a block.

        Returns:
            The average by pair of dense cells, (G, D, D), and by node at the weights of kinds, (N,
            G).
        """
        by_depth = [np.zeros((len(thetas), c.size, c.size)) for c in family.classes]
        by_depth[0] += sweep.root[1]
        merged = [classes.merge_matrices(thetas) for classes in family.classes]
        by_node = np.zeros((self.structure.tree.size, len(thetas)))
        by_node[0] = np.tensordot(merged[0], sweep.root[1], axes=2)
        for step, found in zip(self.structure.tree.steps, sweep.steps, strict=False):
            X, Y, images = found.list_precisions()
            mean = -(X[:, None] @ parting.numbers[step.children])[:, 0]
            square = np.maximum((images * parting.shares[step.children]).sum(axis=1), 0)
            mean += square[:, None] * parting.between[step.parents]
            by_depth[step.depth] += np.tensordot(mean.T, Y, axes=1)
            y = np.tensordot(Y, merged[step.depth], axes=((1, 2), (1, 2)))
            added = X[:, :, None] * parting.reach[step.children]
            added += images[:, :, None] * parting.across[step.children]
            by_node[step.children] = by_node[step.parents][:, None] + added * y[:, None]
        for step in self.structure.tree.steps[len(sweep.steps) :]:
            by_node[step.children] = by_node[step.parents][:, None]
        shared = np.zeros_like(thetas)
        for classes, values in zip(family.classes, by_depth, strict=True):
            padded = np.pad(values, ((0, 0), (0, 1), (0, 1)))
            shared += padded[:, classes.of_cell[:, None], classes.of_cell]
        return shared, by_node


def _gather_tops(children: IntArray, depths: IntArray, most: int) -> IntArray:
    """Gather nodes with similar pairs of children in groups.

    Args:
        children: The number of children of each node, shape (n,).
        depths: The depths of the nodes' children, shape (n,).
        most: The most groups of one depth.

    Returns:
        The group of each node, shape (n,).
    """
    groups, count = np.zeros(len(depths), dtype=np.int64), 0
    for depth in np.unique(depths).tolist():
        at = np.flatnonzero(depths == depth)
        if len(at) <= most:
            numbers = np.arange(len(at))
        else:
            different, rank = np.unique(children[at], return_inverse=True)
            numbers = rank.ravel() * min(most, len(different)) // len(different)
        groups[at] = count + numbers
        count += int(numbers.max()) + 1
    return groups
