"""A certified lower bound on the privacy cost of a product of attributes too large to write down.

Nothing here trusts a solver. For ANY product weights, p = (x) p_a on the cells and
q_(S, j) = w_S c_(S, j) prod_a y_a(j_a) on the queries, the dual's bound (`certificate`) is
||X||_* / sqrt(sum p sum q), where X stacks over the groups S

    sqrt(w_S) (x)_{a in S} X_a (x)_{a not in S} e_a'     X_a = diag(y_a)^1/2 W_a diag(p_a)^1/2

with e_a = sqrt(p_a), unit vectors once p is scaled. Its norm has two bounds from below that
multiply out, for any orthonormal columns C_a that begin with e_a and any orthonormal rows R_a:

  * Pinching: setting to zero what leads from some rows and columns to the others never raises a
    nuclear norm. Every attribute's columns are split into the frame C_a and the rest; its rows
    into R_a, that go with the frame, and the rest.
  * <Z, X> <= ||X||_* for every |Z| <= 1: on the rest T_a of X_a, (I - R R') X_a (I - C C'), Z is
    its polar factor. So the rest counts as one number, its nuclear norm rho_a.

What is left is one matrix for every set B of attributes in their rest, with A_a = R_a' X_a C_a:

    ||X||_* >= sum_B ||Y_B||_*     Y_B stacks over S >= B
                                   sqrt(w_S) prod_{a in B} rho_a (x)_{a in S - B} A_a (x) (1, 0, ..)

and ||Y_B||_* = tr Gamma_B^1/2 with its small Gram matrix (`gram_matrices`). A frame of one column
leaves numbers; one of all columns is exact. An attribute that all groups have the same factor of
needs no e_a: with no frame at all it multiplies out, its X_a counting as its own nuclear norm. A
symmetric attribute couples nothing: e_a alone is exact.

Rounding. The weights are those whose roots are the floats used, over the largest, and w that is 0
where floats end: the bound is theirs, and so far nothing is rounded. A and rho as computed are off
by what `factor_pinching` proves, Gamma_B by what `gram_matrices` does. The terms rise with rho, which
is rounded down. They are higher for A as computed than for A by at most

    sum_S sqrt(w_S) (prod_{a in S} reach_a - prod_{a in S} (reach_a - error_a))

with error >= ||A - computed||_* and reach >= rho + ||computed||_* + error, for Y is stacked from
Kronecker products, and their nuclear norms multiply. All of it loses some 1e-9 of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, IntArray, gamma
from fitplug.proof.factor_pinching import (
    UNDERFLOW,
    Pinch,
    frame_of,
    pinch,
    scaled,
    scaled_tree,
    symmetric,
)
from fitplug.proof.gram_matrices import grams
from fitplug.structure import MAX_FACTORS, BatchedGroups


@dataclass(frozen=True, eq=False)
class ProductDuals:
    """All that the bound depends on; any numbers >= 0 of these shapes give one.

    p: per attribute of the workload (n_a,), only relative. y: per factor of the batched, (r,). For a
    symmetric attribute both are one number, the sum over cells or rows. w: per group of the
    workload. t: columns of a frame, at most. tilt: weight in (0, 1] of e against the rest, in the
    polar factor that pairs rows with columns.
    """

    p: tuple[FloatArray, ...]
    y: tuple[FloatArray, ...]
    w: FloatArray
    t: int
    tilt: float


@dataclass(frozen=True, eq=False)
class Point:
    """ProductDuals in the form that they are evaluated in: pinches by factor, w (g,) in [0, 1] for X as
    the pinches scale it, and sum q / 4^power <= mass.
    """

    pinches: dict[int, Pinch]
    w: FloatArray
    mass: float
    power: int

    @cached_property
    def tables(self) -> dict[int, FloatArray]:
        return {f: pinch.table for f, pinch in self.pinches.items()}

    def over_mass(self, total: float) -> float:
        """total / sqrt(sum q), rounded down."""
        value = total / math.sqrt(self.mass) * (1 - 8 * UNIT_ROUNDOFF)
        with np.errstate(over="ignore", under="ignore"):
            scaled = float(np.ldexp(value, -self.power))
        # What is subnormal may have been rounded up.
        return min(scaled, np.finfo(float).max) if scaled > 1e-300 else 0.0


def bound(batched: BatchedGroups, duals: ProductDuals) -> float:
    """A certified lower bound on the privacy cost of every mechanism.

    Raises ValueError for duals that are none of this batched, or take too much work.
    """
    _check(batched, duals)
    places = grams(batched, frames(batched, duals), duals.w > 0)
    if places is None:
        raise ValueError(f"dual weights: frames of {duals.t} columns are too many")
    try:
        here = point(batched, duals)
        total = places.roots_below(places.fill(here.w, here.tables))
    except np.linalg.LinAlgError as error:
        raise ValueError(f"dual weights could not be evaluated: {error}") from None
    return here.over_mass(max(0.0, total - _loss(batched, here)))


def group_shares(batched: BatchedGroups, duals: ProductDuals) -> FloatArray:
    """The part of each group in sum q, shape (groups,); they add up to 1. For prices: it is not
    rounded outwards. Raises ValueError for duals that are none of this batched.
    """
    _check(batched, duals)
    logs = np.full(len(duals.w), -np.inf)
    tops = np.log([y.max() for y in duals.y])
    for batch in batched.batches:
        cost = batch.targets / batch.targets.max()
        for own, varies in zip(batch.factors.T, batch.varying, strict=True):
            ys = [duals.y[f] / duals.y[f].max() for f in own]
            along = np.array(ys if varies else [[math.fsum(y)] for y in ys])
            cost = np.einsum("gi...,gi->g...", cost, along.reshape(cost.shape[:2]))
        with np.errstate(divide="ignore"):
            logs[batch.groups] = np.log(duals.w[batch.groups]) + np.log(cost)
        logs[batch.groups] += math.log(batch.targets.max()) + tops[batch.factors].sum(axis=1)
    shares = np.exp(logs - logs.max())
    return np.asarray(shares / math.fsum(shares))


def _check(batched: BatchedGroups, duals: ProductDuals) -> None:
    cells = [1 if alike else n for alike, n in zip(batched.symmetric, batched.sizes, strict=True)]
    if not isinstance(duals.p, tuple) or len(duals.p) != len(cells):
        raise ValueError(f"dual weights p must be of {len(cells)} attributes")
    if not isinstance(duals.y, tuple) or len(duals.y) != len(batched.factors):
        raise ValueError(f"dual weights y must be of {len(batched.factors)} factors")
    for a, (p, n) in enumerate(zip(duals.p, cells, strict=True)):
        _check_weights(f"p of attribute {a}", p, n)
    for f, (y, asked) in enumerate(zip(duals.y, batched.factors, strict=True)):
        _check_weights(f"y of factor {f}", y, asked.count)
    _check_weights("w", duals.w, len(batched.workload.groups))
    t, tilt = duals.t, duals.tilt
    if type(t) is not int or not 1 <= t <= max(batched.widths, default=1):
        raise ValueError("dual weights: t must be an integer from 1 to the largest attribute")
    if type(tilt) is not float or not 0 < tilt <= 1:
        raise ValueError("dual weights: tilt must be a float in (0, 1]")
    shapes = [
        (max(len(asked.rows), n), n)
        for asked in batched.factors
        for n in (batched.widths[asked.attribute],)
    ]
    if sum(float(r) * n * min(r, n) for r, n in shapes) > MAX_FACTORS:
        raise ValueError("dual weights: the factors are too large to take singular values of")


def _check_weights(name: str, weights: FloatArray, size: int) -> None:
    fits = isinstance(weights, np.ndarray) and weights.dtype == np.float64
    fits = fits and weights.shape == (size,)
    if not fits or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"dual weights {name} must be {size} finite numbers >= 0")
    if not weights.any():
        raise ValueError(f"dual weights {name} are all zero")


def frames(batched: BatchedGroups, duals: ProductDuals) -> IntArray:
    """The columns of every attribute's frame: none where the groups of positive weight all have the
    same factor, or all sum it out."""
    used = [batch.factors[duals.w[batch.groups] > 0] for batch in batched.batches]
    count = np.zeros(len(batched.factors), dtype=np.int64)
    np.add.at(count, np.concatenate([own.ravel() for own in used]), 1)
    groups = sum(map(len, used))
    sizes = np.minimum(duals.t, batched.widths).astype(np.int64)
    needed = np.zeros(len(sizes), dtype=np.bool_)
    for asked, times in zip(batched.factors, count, strict=True):
        needed[asked.attribute] |= 0 < times < groups
    return sizes * needed


def point(batched: BatchedGroups, duals: ProductDuals) -> Point:
    """The duals scaled, and every factor used pinched in the frame of its attribute."""
    used = {
        int(f)
        for batch in batched.batches
        for f in np.unique(batch.factors[duals.w[batch.groups] > 0])
    }
    roots = {f: np.sqrt(duals.y[f] / duals.y[f].max()) for f in used}
    e = [
        np.sqrt(p / p.max()) if tree is None else np.sqrt(tree.sums(p / p.max(), 0))
        for p, tree in zip(duals.p, batched.trees, strict=True)
    ]
    e = [root / math.sqrt(math.fsum(root * root)) for root in e]
    parts = {}
    shifts = np.zeros(len(batched.factors), dtype=np.int64)
    for f in used:
        asked = batched.factors[f]
        a, tree = asked.attribute, batched.trees[asked.attribute]
        if batched.symmetric[a]:
            continue
        if tree is None:
            parts[f] = (*scaled(asked.rows, roots[f], e[a]), np.zeros(asked.count))
        else:
            parts[f] = scaled_tree(tree, roots[f] ** 2, duals.p[a], asked.factor.kind)
        shifts[f] = parts[f][2]
    w = _scaled_groups(batched, duals, shifts)
    mass = np.zeros(len(shifts))
    for batch in batched.batches:
        np.add.at(mass, batch.factors, w[batch.groups, None])
    pinches: dict[int, Pinch] = {}
    for a, t in enumerate(frames(batched, duals)):
        own = [f for f in sorted(used) if batched.factors[f].attribute == a]
        if batched.symmetric[a]:
            pinches |= dict.fromkeys(own, symmetric(batched.sizes[a], int(t)))
        elif own:
            weighted = np.concatenate([math.sqrt(mass[f]) * parts[f][0] for f in own])
            frame = frame_of(weighted, e[a], duals.tilt, int(t))
            for f in own:
                X, error, shift, loose = parts[f]
                pinches[f] = pinch(X, frame, duals.tilt, error=error, shift=shift, loose=loose)
    return Point(pinches, w, *_mass(batched, w, roots, shifts))


def _scaled_groups(batched: BatchedGroups, duals: ProductDuals, shifts: IntArray) -> FloatArray:
    """w in [0, 1] for y over its largest and X as it is scaled."""
    tops = [np.frexp(y.max()) for y in duals.y]
    fraction, power = np.frexp(duals.w)
    power = power.astype(np.int64)
    for batch in batched.batches:
        for own in batch.factors.T:
            raised = fraction[batch.groups] * [tops[f][0] for f in own]
            fraction[batch.groups], more = np.frexp(raised)
            power[batch.groups] += [int(tops[f][1]) + 2 * int(shifts[f]) for f in own] + more
    power -= power[fraction > 0].max()
    return np.ldexp(fraction, np.maximum(power, -2000).astype(np.int32))


def _mass(
    batched: BatchedGroups, w: FloatArray, roots: Mapping[int, FloatArray], shifts: IntArray
) -> tuple[float, int]:
    """An upper bound on sum q / 4^power, and the power."""
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
        for own, varies in zip(factors.T, batch.varying, strict=True):
            along = [(squares if varies else sums)[f] for f in own]
            cost = np.einsum("gi...,gi->g...", cost, np.array(along).reshape(cost.shape[:2]))
        costs[groups], powers[groups] = cost, top - 2 * shifts[factors].sum(axis=1)
        terms = max(terms, sum(batch.targets.shape[1:]) + 6 * batch.targets.ndim)
    power = int(powers[w > 0].max() + 1) // 2
    shares = np.ldexp(w * costs, np.maximum(powers - 2 * power, -2000).astype(np.int32))
    # Without squares, underflow loses far less than elsewhere.
    return math.fsum(shares) * (1 + gamma(terms + 8)) + 2.0**-900, power


def _loss(batched: BatchedGroups, here: Point) -> float:
    """By how much the terms of A as computed exceed those of A, at most."""
    reach, error = np.ones(len(batched.factors)), np.zeros(len(batched.factors))
    for f, found in here.pinches.items():
        reach[f], error[f] = found.reach, found.error
    share = np.divide(error, reach, out=np.zeros_like(error), where=reach > 0)
    total = 0.0
    for batch in batched.batches:
        # prod a - prod (a - b) <= prod a * sum b / a for 0 <= b <= a.
        lost = reach[batch.factors].prod(axis=1) * share[batch.factors].sum(axis=1)
        total += float(np.sqrt(here.w[batch.groups]) @ lost)
    return total * 1.01 + UNDERFLOW
