"""The factors by which weights of pairs of cells multiply the columns of the product bound.

Where neighbours replace a record, it moves along the attributes of a move t, which has the weight
r_t. For each of these attributes, its two cells have the values i and j with weight p_i p_j - tau
v_i v_j p_i^1/2 p_j^1/2, where the unit vector v is orthogonal to e = p^1/2; for a symmetric
attribute, all i != j have equal weights; for a tree see `_list_states`. For each other attribute,
both cells have the value i with weight p_i. So the pairs' Laplacian is

    P = diag(p)^1/2 (I - sum_t r_t (x)_{a in t} K_a) diag(p)^1/2

where K_a is 1 on e_a, -tau on v_a and 0 on all other columns of the frame and the rests, or -1 / (n
- 1) on the contrasts of a symmetric attribute. So the bound is the same, with each column of Y_b
with states s_a multiplied by (1 - sum_t r_t prod K_a(s_a))^1/2. Pairs of a cell with itself do not
count (docs/theory/units.md, (U14)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.certificate.factor_pinching import Pinch, upper_departure
from fitplug.families.product.certificate.gram_matrices import StateColumns
from fitplug.families.product.certificate.product_duals import PairWeights, Split
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import UNIT_ROUNDOFF, BoolArray, FloatArray, gamma


@dataclass(frozen=True, eq=False)
class PairSpectrum:
    """The factors by which the pairs' Laplacian multiplies columns.

    Attributes:
        moves: Whether each move is along each attribute, shape (t, attributes).
        near: Whether it stays below the parent of a leaf, likewise.
        shares: The weights of the moves, which sum to 1 up to rounding.
        values: K_a at state 1 of each attribute, shape (attributes,).
        trees: K_a at the states of a tree from 1 on, for moves between leaves anywhere and for
            those below a parent, shape (2, states); NaN where a state is of several depths. Empty
            for other attributes.
        same: A lower bound on the weight of pairs of a cell with itself.
    """

    moves: BoolArray
    near: BoolArray
    shares: FloatArray
    values: FloatArray
    trees: tuple[FloatArray, ...]
    same: float

    @property
    def factor(self) -> float:
        """A lower bound on the factor of the bound: unordered pairs have half the weight."""
        return math.sqrt(2 / (1 - self.same)) * (1 - 4 * UNIT_ROUNDOFF)

    def list_products(self, columns: StateColumns) -> FloatArray:
        """List prod_{a in t} K_a of each move t and column, shape (t, columns)."""
        numbers = np.zeros((len(self.moves), columns.base))
        numbers[:, 0] = 1.0
        ends = [*columns.before[1:].tolist(), columns.base - 1]
        for move, near, of_states in zip(self.moves, self.near, numbers, strict=True):
            for a, (first, end) in enumerate(zip(columns.before.tolist(), ends, strict=True)):
                of_states[first + 1 : end + 1] = 0.0 if move[a] else 1.0
                of_states[first + 1 : min(first + 2, end + 1)] = self.values[a] if move[a] else 1.0
                if move[a] and len(self.trees[a]):
                    of_states[first + 1 : end + 1] = self.trees[a][1 if near[a] else 0]
        products = np.array([columns.multiply(of_states) for of_states in numbers])
        return np.where(np.isnan(products), 1.0, products)

    def lower_lengths(self, columns: StateColumns) -> FloatArray:
        """Bound each column's factor from below, shape (columns,)."""
        products = self.list_products(columns)
        rounding = gamma(len(self.moves) + 2 * self.moves.shape[1] + 8)
        squares = 1 - self.shares @ products - rounding
        # If all attributes have the state 0, the Laplacian maps the column to zero.
        separated = (products < 1).any(axis=0)
        return np.asarray(np.sqrt(np.where(separated, np.maximum(squares, 0.0), 0.0)) * (1 - 1e-15))


def find_spectrum(
    pairs: PairWeights,
    batched: BatchedGroups,
    cells: Sequence[FloatArray],
    splits: Sequence[Split],
    pinches: Mapping[int, Pinch],
) -> PairSpectrum:
    """Find the factors by which the pairs' Laplacian multiplies columns.

    Args:
        pairs: The weights.
        batched: The groups.
        cells: p of each attribute.
        splits: The split of each attribute's columns.
        pinches: A pinch for each attribute that some group of positive weight uses.
    """
    values, traces = np.zeros(len(cells)), np.zeros(len(cells))
    of_trees = []
    for a, n in enumerate(batched.sizes):
        tree = batched.trees[a]
        of_trees.append(np.zeros(0) if tree is None else _list_states(tree, cells[a], splits[a]))
        if batched.symmetric[a]:
            values[a] = -1 / (n - 1) if n > 1 else 0.0
        elif len(pairs.sides[a]) and a in pinches and pinches[a].frame.shape[1] > 1:
            values[a], traces[a] = _find_reflection(pinches[a].frame[:, :2])
    shares = pairs.shares / pairs.shares.max()  # whose sum does not overflow
    shares = shares / math.fsum(shares)
    # Of a tree the trace is 0, which is a lower bound.
    same = [float(np.prod(traces[move])) for move in pairs.moves]
    total = math.fsum(w * s for w, s in zip(shares.tolist(), same, strict=True))
    same_weight = max(0.0, total * (1 - 1e-12))
    return PairSpectrum(pairs.moves, pairs.near, shares, values, tuple(of_trees), same_weight)


def _list_states(tree: TreeShape, p: FloatArray, split: Split) -> FloatArray:
    """List K at the states of a tree from 1 on, for each kind of moves, shape (2, states).

    For moves anywhere, K is -tau on the contrasts of the top nodes, and 0 below.

    For moves below the parent of a leaf, K is 1 on what does not distinguish leaves of one parent,
    and -tau on their contrasts, with one tau for all parents of a class. The weights
    (1 + tau) p_i p_j / P, less tau p_i for i = j, are not negative if tau is at most p_i / (P -
    p_i) for each leaf i of a parent of weight P; the same holds for the top nodes, with the sum of
    p for P. NaN stands for a class with other nodes as well.
    """
    number, frame = split.classes[1], max(split.columns - 1, 0) + max(len(split.spaces), 1)
    top = tree.sum_leaves(p, 0)
    others = float(top.sum()) - float(top.min())
    tau = float(top.min()) / others * (1 - 1e-9) if others > 0 else 0.0
    anywhere = np.append(np.full(frame, -min(tau, 1.0)), np.zeros(number))
    if not tree.steps:
        return np.stack([anywhere, np.full(frame + number, np.nan)])
    *above, parents = split.classes[0]
    k, first = tree.children[-1], tree.first[-2]
    least, most = np.minimum.reduceat(p, first), np.maximum.reduceat(p, first)
    counted = (k > 1) & (most > 0)
    taus = np.full(number, np.inf)
    of_parents = least[counted] / ((k[counted] - 1) * most[counted]) * (1 - 8 * UNIT_ROUNDOFF)
    np.minimum.at(taus, parents[counted], of_parents)
    is_parent, is_above = np.zeros((2, number), dtype=np.bool_)
    is_parent[parents[k > 1]] = True
    for classes, children in zip(above, tree.children, strict=False):
        is_above[classes[children > 1]] = True
    inner = np.where(is_parent, -np.where(np.isfinite(taus), taus, 0.0), 1.0)
    inner = np.append(np.ones(frame), np.where(is_parent & is_above, np.nan, inner))
    return np.stack([anywhere, inner])


def _find_reflection(frame: FloatArray) -> tuple[float, float]:
    """Find -tau, and a lower bound on the trace of the pairs' weights, for e and v (n, 2).

    The exact v differs from the computed one by at most the columns' departure from orthonormal
    ones, and e by the error of its length. All weights are >= 0 if tau v_i^2 <= e_i^2 for all
    cells.
    """
    off = upper_departure(frame) + 4 * UNIT_ROUNDOFF
    e, v = np.abs(frame).T
    tau = float(((e * (1 - off)) / (v + off)).min()) ** 2 * (1 - 8 * UNIT_ROUNDOFF)
    trace = math.fsum(e**4) * (1 - 8 * off) - tau * math.fsum(e**2 * v**2) * (1 + 8 * off)
    return -tau, max(0.0, trace - 4 * off)
