"""A certified lower bound on the privacy cost, for products of attributes too large to form.

Nothing here trusts a solver. For ANY product weights, p = (x) p_a on the cells and
q_(S, j) = w_S c_(S, j) prod_a y_a(j_a) on the queries, the bound of
`fitplug.families.base.family` is ||X||_* / sqrt(sum p sum q), where X stacks, over the groups S,

    sqrt(w_S) (x)_{a in S} X_a (x)_{a not in S} e_a'     X_a = diag(y_a)^1/2 W_a diag(p_a)^1/2

with e_a = sqrt(p_a), unit vectors once p is scaled. Every attribute's columns are divided into a
frame C_0, whose first column is e_a, and some rests C_k; its rows into R_0, which the polar factor
pairs with the frame, and some R_k for the rests. Zeroing the blocks between different parts never
raises a nuclear norm (pinching), and a rest then reduces to one number nu_k, the nuclear norm of
R_k' X_a C_k. One small matrix remains for every choice b of rests for the attributes of a set B,
with A_a = R_0' X_a C_0:

    ||X||_* >= sum_b ||Y_b||_*     Y_b stacks over S >= B
                          sqrt(w_S) prod_{a in B} nu_(a, b_a) (x)_{a in S - B} A_a (x) (1, 0, ..)

and ||Y_b||_* = tr Gamma_b^1/2 with its Gram matrix
(`fitplug.families.product.certificate.gram_matrices`). A frame of all columns is exact. An
attribute with the same factor in all groups needs no frame, and a symmetric attribute needs only
e_a. The rests are spaces of the queries' rows, and the contrasts at the nodes of a tree
(`fitplug.families.product.shape.batches`). The proofs and the error analysis are in
docs/theory/product-bound.md: rounding lowers the bound by about 1e-9, relatively, and by more if
Gram matrices are nearly singular.

Where neighbours replace a record, pairs of cells have the weights. A record moves along the
attributes of a move t, which has the weight r_t. For each of these attributes, its two cells have
the values i and j with weight p_i p_j - tau v_i v_j p_i^1/2 p_j^1/2, where the unit vector v is
orthogonal to e = p^1/2; for a symmetric attribute, all i != j have equal weights. For each other
attribute, both cells have the value i with weight p_i. So the pairs' Laplacian is

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
from functools import cached_property

import numpy as np

from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.certificate.factor_pinching import (
    UNDERFLOW,
    Pinch,
    choose_frame,
    pinch_factor,
    pinch_symmetric,
    scale_factor,
    scale_tree,
    split_rest,
    upper_departure,
)
from fitplug.families.product.certificate.gram_matrices import StateColumns, place_terms
from fitplug.families.product.certificate.product_duals import (
    PairWeights,
    ProductDuals,
    Split,
    check_duals,
    plan_splits,
)
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import UNIT_ROUNDOFF, BoolArray, FloatArray, IntArray, gamma


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
    and -tau on their contrasts, with one tau for all parents of a class. The weights (1 + tau) p_i
    p_j / P, less tau p_i for i = j, are not negative if tau is at most p_i / (P - p_i) for each leaf
    i of a parent of weight P; the same holds for the top nodes with P = 1. NaN stands for a class
    with other nodes as well.
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


@dataclass(frozen=True, eq=False)
class ScaledDuals:
    """Product weights in the form in which they are evaluated.

    Attributes:
        pinches: The pinch of each distinct factor with positive weight.
        w: The weights of the groups, in [0, 1], for X as scaled in the pinches, shape (groups,).
        mass: An upper bound on sum q / 4^power.
        power: The power of 4.
        spectrum: The factors by which the pairs' Laplacian multiplies columns, if pairs have
            weights.
    """

    pinches: dict[int, Pinch]
    w: FloatArray
    mass: float
    power: int
    spectrum: PairSpectrum | None = None

    @cached_property
    def tables(self) -> dict[int, FloatArray]:
        """By distinct factor, the table of its pinch."""
        return {f: pinch.table for f, pinch in self.pinches.items()}

    def divide_by_mass(self, total: float) -> float:
        """Divide a total by sqrt(sum q), rounded down."""
        value = total / math.sqrt(self.mass) * (1 - 8 * UNIT_ROUNDOFF)
        if self.spectrum is not None:
            value *= self.spectrum.factor
        with np.errstate(over="ignore", under="ignore"):
            scaled = float(np.ldexp(value, -self.power))
        # A subnormal number may have been rounded up.
        return min(scaled, np.finfo(float).max) if scaled > 1e-300 else 0.0


def lower_product_cost(batched: BatchedGroups, duals: ProductDuals, mean: float = 1.0) -> float:
    """Certify a lower bound on the privacy cost of every mechanism.

    Args:
        batched: The groups.
        duals: The weights.
        mean: The differences have the moment diag(p) + (mean - 1) p p' instead of diag(p).

    Returns:
        The bound, rounding included.

    Raises:
        ValueError: If the weights do not fit these groups, or take too much work.
    """
    check_duals(batched, duals)
    splits = plan_splits(batched, duals, has_mean=mean != 1)
    places = place_terms(batched, splits, duals.w > 0)
    if places is None:
        raise ValueError(
            f"dual weights: frames of {duals.t} columns and {duals.rests} rests are too many"
        )
    try:
        here = scale_duals(batched, duals, splits)
        buffer, longest = places.fill(here.w, here.tables), 1.0
        if here.spectrum is not None:
            assert places.columns is not None
            lengths = here.spectrum.lower_lengths(places.columns)
            buffer, longest = places.multiply_columns(buffer, lengths), float(lengths.max())
        elif mean != 1:
            assert places.columns is not None
            length = math.sqrt(mean)
            lengths = np.where(places.columns.states == 0, length, 1.0)
            buffer, longest = places.multiply_columns(buffer, lengths), max(1.0, length)
        total = places.lower_square_roots(buffer)
    except np.linalg.LinAlgError as error:
        raise ValueError(f"dual weights could not be evaluated: {error}") from None
    return here.divide_by_mass(max(0.0, total - _upper_loss(batched, here) * longest))


def share_product_weight(batched: BatchedGroups, duals: ProductDuals) -> FloatArray:
    """Compute each group's share of sum q, without outward rounding.

    Args:
        batched: The groups.
        duals: The weights.

    Returns:
        The shares, shape (groups,). They add up to 1.

    Raises:
        ValueError: If the weights do not fit these groups."""
    check_duals(batched, duals)
    logs = np.full(len(duals.w), -np.inf)
    tops = np.log([y.max() for y in duals.y])
    for batch in batched.batches:
        cost = batch.targets / batch.targets.max()
        for factors, varies in zip(batch.factors.T, batch.varying, strict=True):
            ys = [duals.y[f] / duals.y[f].max() for f in factors]
            along = np.array(ys if varies else [[math.fsum(y)] for y in ys])
            cost = np.einsum("gi...,gi->g...", cost, along.reshape(cost.shape[:2]))
        with np.errstate(divide="ignore"):
            logs[batch.groups] = np.log(duals.w[batch.groups]) + np.log(cost)
        logs[batch.groups] += math.log(batch.targets.max()) + tops[batch.factors].sum(axis=1)
    shares = np.exp(logs - logs.max())
    return np.asarray(shares / math.fsum(shares))


def scale_duals(
    batched: BatchedGroups, duals: ProductDuals, splits: Sequence[Split] | None = None
) -> ScaledDuals:
    """Scale the weights, and pinch every factor with positive weight in its attribute's frame.

    Args:
        batched: The groups.
        duals: The weights.
        splits: The split of each attribute's columns; None for `plan_splits`.
    """
    splits = plan_splits(batched, duals) if splits is None else splits
    used = {
        int(f)
        for batch in batched.batches
        for f in np.unique(batch.factors[duals.w[batch.groups] > 0])
    }
    roots = {f: np.sqrt(duals.y[f] / duals.y[f].max()) for f in used}
    e = [
        np.sqrt(p / p.max()) if tree is None else np.sqrt(tree.sum_leaves(p / p.max(), 0))
        for p, tree in zip(duals.p, batched.trees, strict=True)
    ]
    e = [root / math.sqrt(math.fsum(root * root)) for root in e]
    parts: dict[int, tuple[FloatArray, float, int, FloatArray | None]] = {}
    shifts = np.zeros(len(batched.factors), dtype=np.int64)
    for f in used:
        factor = batched.factors[f]
        a, tree = factor.attribute, batched.trees[factor.attribute]
        if batched.symmetric[a]:
            continue
        if tree is None:
            parts[f] = (*scale_factor(factor.rows, roots[f], e[a]), None)
        else:
            parts[f] = scale_tree(
                tree, roots[f] ** 2, duals.p[a], factor.factor.kind, splits[a].classes
            )
        shifts[f] = parts[f][2]
    w = _scale_groups(batched, duals, shifts)
    mass = np.zeros(len(shifts))
    for batch in batched.batches:
        np.add.at(mass, batch.factors, w[batch.groups, None])
    pinches: dict[int, Pinch] = {}
    for a, split in enumerate(splits):
        factors = [f for f in sorted(used) if batched.factors[f].attribute == a]
        if batched.symmetric[a]:
            pinches |= dict.fromkeys(factors, pinch_symmetric(batched.sizes[a], split.columns))
        elif factors:
            weighted = np.concatenate([math.sqrt(mass[f]) * parts[f][0] for f in factors])
            sides = None if duals.pairs is None else duals.pairs.sides[a]
            frame = choose_frame(
                weighted,
                e[a],
                duals.tilt,
                split.columns,
                sides if sides is not None and sides.any() else None,
            )
            rests = split_rest(frame, e[a], split.spaces)
            for f in factors:
                X, error, shift, loose = parts[f]
                pinches[f] = pinch_factor(
                    X, frame, duals.tilt, rests, error=error, shift=shift, loose=loose
                )
    spectrum = None
    if duals.pairs is not None:
        by_attribute = {batched.factors[f].attribute: pinch for f, pinch in pinches.items()}
        spectrum = find_spectrum(duals.pairs, batched, duals.p, splits, by_attribute)
    return ScaledDuals(pinches, w, *_upper_mass(batched, w, roots, shifts), spectrum)


def _scale_groups(batched: BatchedGroups, duals: ProductDuals, shifts: IntArray) -> FloatArray:
    """Scale w to [0, 1], for y divided by its maximum and the scaled X."""
    tops = [np.frexp(y.max()) for y in duals.y]
    fraction, power = np.frexp(duals.w)
    power = power.astype(np.int64)
    for batch in batched.batches:
        for factors in batch.factors.T:
            raised = fraction[batch.groups] * [tops[f][0] for f in factors]
            fraction[batch.groups], more = np.frexp(raised)
            power[batch.groups] += [int(tops[f][1]) + 2 * int(shifts[f]) for f in factors] + more
    power -= power[fraction > 0].max()
    return np.ldexp(fraction, np.maximum(power, -2000).astype(np.int32))


def _upper_mass(
    batched: BatchedGroups, w: FloatArray, roots: Mapping[int, FloatArray], shifts: IntArray
) -> tuple[float, int]:
    """Bound sum q / 4^power from above; return the bound and the power."""
    squares = {f: v * v for f, v in roots.items()}
    sums = {f: np.array([math.fsum(square)]) for f, square in squares.items()}
    costs, powers, terms = np.zeros_like(w), np.zeros(len(w), dtype=np.int64), 0
    for batch in batched.batches:
        here = np.flatnonzero(w[batch.groups] > 0)
        if not here.size:
            continue
        groups, factors = batch.groups[here], batch.factors[here]
        cost = batch.targets[here]
        _, top = np.frexp(cost.reshape(len(cost), -1).max(axis=1))
        cost = np.ldexp(cost, -top.reshape(-1, *[1] * (cost.ndim - 1)))
        for axis_factors, varies in zip(factors.T, batch.varying, strict=True):
            along = [(squares if varies else sums)[f] for f in axis_factors]
            cost = np.einsum("gi...,gi->g...", cost, np.array(along).reshape(cost.shape[:2]))
        costs[groups], powers[groups] = cost, top - 2 * shifts[factors].sum(axis=1)
        terms = max(terms, sum(batch.targets.shape[1:]) + 6 * batch.targets.ndim)
    power = int(powers[w > 0].max() + 1) // 2
    shares = np.ldexp(w * costs, np.maximum(powers - 2 * power, -2000).astype(np.int32))
    # Without squares, far less is lost to underflow than elsewhere.
    return math.fsum(shares) * (1 + gamma(terms + 8)) + 2.0**-900, power


def _upper_loss(batched: BatchedGroups, here: ScaledDuals) -> float:
    """Bound the excess of the computed terms of A over the exact ones."""
    reach, error = np.ones(len(batched.factors)), np.zeros(len(batched.factors))
    for f, pinch in here.pinches.items():
        reach[f], error[f] = pinch.reach, pinch.error
    share = np.divide(error, reach, out=np.zeros_like(error), where=reach > 0)
    total = 0.0
    for batch in batched.batches:
        # prod a - prod (a - b) <= prod a * sum b / a for 0 <= b <= a.
        lost = reach[batch.factors].prod(axis=1) * share[batch.factors].sum(axis=1)
        total += float(np.sqrt(here.w[batch.groups]) @ lost)
    return total * 1.01 + UNDERFLOW
