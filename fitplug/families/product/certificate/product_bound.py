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

Where neighbours replace a record, pairs of cells have the weights
(`fitplug.families.product.certificate.pair_spectrum`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.errors import BAD_PROOF
from fitplug.families.product.certificate.factor_pinching import (
    UNDERFLOW,
    Pinch,
    choose_frame,
    pinch_factor,
    pinch_symmetric,
    scale_factor,
    scale_tree,
    split_rest,
)
from fitplug.families.product.certificate.gram_matrices import place_terms
from fitplug.families.product.certificate.pair_spectrum import PairSpectrum, find_spectrum
from fitplug.families.product.certificate.product_duals import (
    ProductDuals,
    Split,
    check_duals,
    plan_splits,
)
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, IntArray, gamma


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
            "the proof of the lower bound would take too much work to check (columns: "
            f"{duals.t}, parts: {duals.rests})"
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
    except np.linalg.LinAlgError:
        raise ValueError(BAD_PROOF) from None
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
