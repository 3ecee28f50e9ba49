"""A lower bound on the privacy cost of a product of attributes too large to write down.

For product weights, p = (x) p_a on the cells and q_(S, j) = w_S c_(S, j) prod_a y_a(j_a) on the
queries, the dual's bound is ||X||_* / sqrt(sum q), where X stacks over the groups S

    sqrt(w_S) (x)_{a in S} X_a (x)_{a not in S} e_a'     X_a = diag(y_a)^1/2 W_a diag(p_a)^1/2

with the unit vectors e_a = sqrt(p_a). Its norm has two bounds from below that multiply out:

  * Pinching: setting to zero what leads from some rows and columns to the others never raises a
    nuclear norm. Here every attribute's columns are split into a frame of t columns, e_a among
    them, and the rest; its rows into as many that go with the frame, and the rest.
  * <Z, X> <= ||X||_* for every |Z| <= 1: on the rest of attribute a, Z is the polar factor of X_a.
    So the rest of X_a counts as one number, its nuclear norm rho_a.

What is left is one small Gram matrix for every set B of attributes in their rest,

    ||X||_* >= sum_B tr Gamma_B^1/2      Gamma_B = sum_{S >= B} w_S (x)_{a in B} rho_a^2
                                                   (x)_{a in S - B} G_a (x)_{a not in S} E

on the frames' columns, with G_a (t, t) the Gram matrix of X_a's part there and E = 1 at (e, e).
With t = 1 only numbers are left; t = n_a is exact, and t = 3 nearly so. A symmetric attribute
couples nothing: t = 1 is exact. The weights w and y ascend as those of the dual solver do: each
becomes its part of <Z, X>, at the Z that attains the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.layout import Layout
from fitplug.rounding import UNIT
from fitplug.solvers.residual import Weights

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]

MAX_WORK = 4e9
"""Largest sum of the cubes of the Gram matrices' sizes (a second or so of eigenvalues)."""

_MAX_ENTRIES = 2e7
_TILTS = (0.06, 0.12, 0.3, 1.0)
"""Weights of e against the rest, in the polar factor that pairs rows with columns."""

_SEEN = 0.5  # of a frame's column, in the space that a factor's rows span
_ITERATIONS = 15
_LEAST_GAIN = 1e-4
_FLOOR = 1e-9  # of a mean weight, and of a largest singular value


@dataclass(frozen=True, eq=False)
class Product:
    """Product weights: p_a (n_a,) and, per factor, y (r,), each summing to 1; w per group, in the
    order of the layout's batches.
    """

    p: tuple[Array, ...]
    y: tuple[Array, ...]
    w: Array


@dataclass(frozen=True, eq=False)
class Pinch:
    """A factor's X (r, n), pinched to rows R (r, t') and a frame C (n, t) and their complements.

    polar: of the rest, (r, n). rest: rho. table: G, then rho^2, shape (t^2 + 1,).
    """

    X: Array
    rows: Array
    frame: Array
    polar: Array
    rest: float
    table: Array

    def parts(self, slope: Array) -> Array:
        """What every row of X adds to the bound, (r,); slope: its derivative by the table."""
        t = self.frame.shape[1]
        pull = (self.rows.T @ self.X @ self.frame) @ slope[:-1].reshape(t, t)
        Z = 2 * (self.rows @ pull @ self.frame.T + slope[-1] * self.rest * self.polar)
        return np.asarray((Z * self.X).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Grams:
    """Where the terms of all Gamma_B go in a buffer that holds these one after another, by size.

    parts: of groups with frames alike, their numbers (g,), factors (g, m) and places
    (g, t_1^2 + 1, ..., t_m^2 + 1). sizes: of the matrices, and how many there are, ascending.
    """

    parts: tuple[tuple[Indices, Indices, Indices], ...]
    sizes: tuple[tuple[int, int], ...]

    @property
    def work(self) -> float:
        return sum(float(size) ** 3 * number for size, number in self.sizes)

    def evaluate(self, w: Array, tables: list[Array]) -> tuple[float, Array, list[Array]]:
        """The bound on ||X||_*, and its derivatives by w and the tables."""
        buffer = np.zeros(sum(size**2 * number for size, number in self.sizes))
        filled = []
        for groups, factors, place in self.parts:
            own = [np.stack([tables[f] for f in axis]) for axis in factors.T]
            value = np.ones((len(groups), 1))
            for table in own:
                value = (value[:, :, None] * table[:, None, :]).reshape(len(groups), -1)
            filled.append((own, value))
            buffer += np.bincount(
                place.ravel(), (w[groups, None] * value).ravel(), minlength=len(buffer)
            )
        total, slope = self._roots(buffer, len(w))
        by_w, by_table = np.empty_like(w), [np.zeros_like(table) for table in tables]
        for (groups, factors, place), (own, value) in zip(self.parts, filled, strict=True):
            pull = slope[place]
            by_w[groups] = (pull.reshape(value.shape) * value).sum(axis=1)
            pull = pull * w[groups].reshape(-1, *[1] * (pull.ndim - 1))
            for axis in range(len(own)):
                force = np.moveaxis(pull, 1 + axis, -1)
                for i, table in enumerate(own):
                    if i != axis:
                        force = np.einsum("gi...,gi->g...", force, table)
                for f in np.unique(factors[:, axis]):
                    by_table[f] += force[factors[:, axis] == f].sum(axis=0)
        return total, by_w, by_table

    def _roots(self, buffer: Array, terms: int) -> tuple[float, Array]:
        """sum_B tr Gamma_B^1/2, rounded down, and its derivative by the buffer."""
        slope, total, start = np.empty_like(buffer), 0.0, 0
        for size, number in self.sizes:
            end = start + size**2 * number
            squares, U = np.linalg.eigh(buffer[start:end].reshape(number, size, size))
            # The rounding of the entries, sums of positive semidefinite terms, and of eigh.
            squares -= 32 * (size + terms) * UNIT * squares.sum(axis=1, keepdims=True)
            roots = np.sqrt(np.maximum(squares, 0.0))
            total += float(roots.sum()) * (1 - 1e-12)
            halves = np.divide(0.5, roots, out=np.zeros_like(roots), where=roots > 0)
            slope[start:end] = ((U * halves[:, None, :]) @ U.transpose(0, 2, 1)).ravel()
            start = end
        return total, slope


def lower_bound(layout: Layout, weights: Weights) -> float:
    """A lower bound on the privacy cost of every mechanism, from dual weights of any origin: the
    best that a few steps from there reach, with frames as large as MAX_WORK allows. 0 if not even
    frames of one column fit.
    """
    product, best, t, idle = _product(layout, weights), 0.0, 1, 0
    while idle < 2 and (grams := _grams(layout, t)) is not None:
        trials = [(_ascended(layout, grams, product, tilt, t, 2)[0], tilt) for tilt in _TILTS]
        steps = math.ceil(min(_ITERATIONS, MAX_WORK / grams.work))
        bound, found = _ascended(layout, grams, product, max(trials)[1], t, steps)
        idle = 0 if bound > best * (1 + _LEAST_GAIN) else idle + 1
        if t > 1 and bound > best:  # with t = 1 other weights are best
            product = found
        best = max(best, bound)
        t += max(1, t // 2)
    return best


def _product(layout: Layout, weights: Weights) -> Product:
    """The product weights nearest to the given ones."""
    y = [np.zeros(len(rows)) for _, rows in layout.factors]
    groups = []
    for batch, q in zip(layout.batches, weights.queries, strict=True):
        over = q / batch.targets
        groups.append(over.reshape(len(over), -1).sum(axis=1))
        for axis, (own, varies) in enumerate(zip(batch.factors.T, batch.varying, strict=True)):
            along = np.moveaxis(over, 1 + axis, 1).reshape(len(over), over.shape[1 + axis], -1)
            for f in np.unique(own):
                part = along[own == f].sum(axis=(0, 2))
                y[f] += part if varies else part * weights.shares[f]
    return Product(weights.cells, tuple(part / part.sum() for part in y), np.concatenate(groups))


def _costs(layout: Layout, product: Product) -> tuple[Array, list[Array]]:
    """sum q per unit of w_S, and the derivative of sum q by every y."""
    costs, slopes, start = [], [np.zeros_like(y) for y in product.y], 0
    for batch in layout.batches:
        w = product.w[start : start + len(batch.groups)]
        start += len(w)
        y = [
            np.stack([product.y[f] if varies else np.ones(1) for f in own])
            for own, varies in zip(batch.factors.T, batch.varying, strict=True)
        ]
        for axis, own in enumerate(batch.factors.T):
            part = np.moveaxis(batch.targets, 1 + axis, -1)
            for i, along in enumerate(y):
                if i != axis:
                    part = np.einsum("gi...,gi->g...", part, along)
            for f in np.unique(own):
                slopes[f] += w[own == f] @ part[own == f]
        cost = batch.targets
        for along in y:
            cost = np.einsum("gi...,gi->g...", cost, along)
        costs.append(cost)
    return np.concatenate(costs), slopes


def _ascended(
    layout: Layout, grams: Grams, product: Product, tilt: float, t: int, steps: int
) -> tuple[float, Product]:
    """The best bound of some steps, and the weights there."""
    best, at = 0.0, product
    for _ in range(steps):
        pinches = _pinches(layout, product, tilt, t)
        total, by_w, by_table = grams.evaluate(product.w, [pinch.table for pinch in pinches])
        costs, by_y = _costs(layout, product)
        bound = total / math.sqrt(float(product.w @ costs)) * (1 - 1e-12)
        if bound > best:
            best, at = bound, product
        w = product.w * by_w / costs
        y = [
            _weights(pinch.parts(slope) / price)
            for pinch, slope, price in zip(pinches, by_table, by_y, strict=True)
        ]
        product = Product(product.p, tuple(y), w / w.sum())
    return best, at


def _weights(parts: Array) -> Array:
    positive = np.maximum(parts, _FLOOR * np.abs(parts).mean())
    return np.asarray(positive / positive.sum())


def _pinches(layout: Layout, product: Product, tilt: float, t: int) -> list[Pinch]:
    """Every factor pinched, in the frame of its attribute."""
    pinches: dict[int, Pinch] = {}
    mass, start = np.zeros(len(layout.factors)), 0
    for batch in layout.batches:
        w = product.w[start : start + len(batch.groups), None]
        np.add.at(mass, batch.factors, w)
        start += len(w)
    for a, n in enumerate(layout.sizes):
        own = [f for f, (b, _) in enumerate(layout.factors) if a == b]
        if layout.symmetric[a]:  # X = I / n at uniform p and y
            unit, rest = np.ones((1, 1)), 1 - 1 / n
            table = np.array([n**-2.0, rest**2])
            pinches |= dict.fromkeys(own, Pinch(unit / n, unit, unit, 0 * unit, rest, table))
            continue
        e = np.sqrt(product.p[a])
        e /= np.linalg.norm(e)
        X = {f: np.sqrt(product.y[f])[:, None] * layout.factors[f][1] * e for f in own}
        weighted = np.concatenate([math.sqrt(mass[f]) * X[f] for f in own])
        frame = _frame(weighted, e, tilt, min(t, n))
        pinches |= {f: _pinch(X[f], e, tilt, frame) for f in own}
    return [pinches[f] for f in range(len(layout.factors))]


def _frame(X: Array, e: Array, tilt: float, t: int) -> Array:
    """Orthonormal columns (n, t): the Krylov space of e under |X|, where X couples e the most."""
    _, s, V = _tilted(X, e, tilt)
    frame = e[:, None]
    while frame.shape[1] < t:
        v = V.T @ (s * (V @ frame[:, -1]))
        frame, _ = np.linalg.qr(np.column_stack([frame, v]))
    return frame


def _pinch(X: Array, e: Array, tilt: float, frame: Array) -> Pinch:
    """X pinched with the rows that the polar factor takes the frame to."""
    U, s, V = _tilted(X, e, tilt)
    kept = s > _FLOOR * s[0]
    rows, sizes, _ = np.linalg.svd(U[:, kept] @ (V[kept] @ frame), full_matrices=False)
    rows = rows[:, sizes > _SEEN]
    within = rows.T @ X
    paired = within @ frame
    rest = X - rows @ within
    rest -= (rest @ frame) @ frame.T
    whole = s[0]
    U, s, V = np.linalg.svd(rest, full_matrices=False)
    kept = s > _FLOOR * whole
    rho = float(s[kept].sum())
    table = np.append(paired.T @ paired, rho**2)
    return Pinch(X, rows, frame, U[:, kept] @ V[kept], rho, table)


def _tilted(X: Array, e: Array, tilt: float) -> tuple[Array, Array, Array]:
    U, s, V = np.linalg.svd(X + (tilt - 1) * np.outer(X @ e, e), full_matrices=False)
    return U, s, V


def _grams(layout: Layout, t: int) -> Grams | None:
    """The places of the terms of Gamma_B for frames of t columns, or None if it is too large.

    A column is a state for every attribute: 0 for e, then the frame's others, then the rest. Those
    other than 0, in the attributes' order, are its digits; B is those in the rest.
    """
    sizes = np.where(layout.symmetric, 1, np.minimum(t, layout.sizes))
    before = np.cumsum(sizes) - sizes
    base, deepest = int(sizes.sum()) + 1, max(b.factors.shape[1] for b in layout.batches)
    kind: Any = np.int64 if base**deepest < 2**63 else object
    keys, parts, entries, first = [], [], 0, 0
    for batch in layout.batches:
        own = sizes[batch.attributes]
        for shape in np.unique(own, axis=0):
            here = np.flatnonzero((own == shape).all(axis=1))
            shaped = (len(here), *(int(size) ** 2 + 1 for size in shape))
            entries += math.prod(shaped)
            if entries > _MAX_ENTRIES:
                return None
            keys.append(_keys(before[batch.attributes[here]], shape, base, kind))
            parts.append((first + here, batch.factors[here], shaped))
        first += len(batch.groups)
    rows, columns, sets = np.concatenate(keys, axis=1)
    states, at, row = np.unique(rows, return_index=True, return_inverse=True)
    column = np.searchsorted(states, columns)
    _, block = np.unique(sets[at], return_inverse=True)
    size = np.bincount(block)
    position = np.empty_like(block)
    position[np.argsort(block, kind="stable")] = np.concatenate([np.arange(n) for n in size])
    order = np.argsort(size, kind="stable")
    start = np.empty_like(size)
    start[order] = np.cumsum(size[order] ** 2) - size[order] ** 2
    mine = block[row]
    place = start[mine] + position[row] * size[mine] + position[column]
    cuts = np.cumsum([math.prod(shaped) for _, _, shaped in parts])[:-1]
    different, number = np.unique(size, return_counts=True)
    grams = Grams(
        tuple(
            (groups, factors, places.reshape(shaped))
            for (groups, factors, shaped), places in zip(parts, np.split(place, cuts), strict=True)
        ),
        tuple(zip(different.tolist(), number.tolist(), strict=True)),
    )
    return grams if grams.work <= MAX_WORK else None


def _keys(before: Indices, shape: Indices, base: int, kind: Any) -> npt.NDArray[Any]:
    """The keys of row, column and B of g groups' entries, (3, g E); before: the attributes' digits
    begin after these, (g, m)."""
    key = np.zeros((3, len(before), 1), dtype=kind)
    for first, t in zip(before.T, shape, strict=True):
        i, j = np.divmod(np.arange(t * t), t)
        states = np.stack([np.append(i, t), np.append(j, t), np.append(0 * i, t)])[:, None, None]
        digit = np.where(states > 0, first[:, None, None] + states, 0).astype(kind)
        key = np.where(digit > 0, key[..., None] * base + digit, key[..., None])
        key = key.reshape(3, len(before), -1)
    return key.reshape(3, -1)
