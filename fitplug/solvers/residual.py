"""The descent of the residual family (see `fitplug.layout`): several ordered attributes
whose product is too large to write down.

(u_a, C_a) begin as the optimum of attribute a alone, and then descend the Lagrangian

    sum_A z_A^-1 prod_{a in A} p_a'eta_a + sum_A z_A (K'q)_A

in turn: z_A is a square root, C_a a geometric mean, u_a a linear solve, and the weights p_a and q
ascend by the dual solver's multiplicative steps. Where targets do not vary, q is a product.
`fitplug.solvers.pinched` bounds the least cost of any mechanism from the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, cholesky, eigh

from fitplug.layout import Layout, gathered, layout
from fitplug.problem import Block, reduce
from fitplug.solvers import dual
from fitplug.solvers.family import (
    Ordered,
    Rows,
    Scales,
    Split,
    Symmetric,
    extreme_rows,
    largest_spend,
    scales,
    scales_at,
)
from fitplug.structure import Structure

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]


_MIXING = 0.03  # of the tolerance: what weights keep of uniform ones, as in the dual solver
_ROUND = 25  # iterations between two looks at the true privacy cost
_SAME = 1e-10  # of the largest: what counts as rounding


@dataclass(frozen=True, eq=False)
class Weights:
    """Dual weights. cells: p_a per attribute, (n_a,), each summing to 1. queries: per batch the q
    of the rows that targets tell apart, the targets' shape, all summing to 1. shares: per factor
    how the weight of a row is spread where targets do not vary, (r,), summing to 1.
    """

    cells: tuple[Array, ...]
    queries: tuple[Array, ...]
    shares: tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class Residual:
    """A member of the family that meets every target at the privacy cost `upper`."""

    layout: Layout
    splits: tuple[Split, ...]
    scales: Scales
    weights: Weights

    @property
    def upper(self) -> float:
        return self.scales.upper


def solve(structure: Structure, *, tolerance: float = 1e-4, max_rounds: int = 24) -> Residual:
    """The best member of the family that alternating descent finds.

    tolerance: rounds of improvement end when two in turn gain no more, relatively, and the weights
    have settled; the scales are as near their best. Raises WorkloadError if too many queries
    have targets of their own.
    """
    shape = layout(structure)
    splits, weights = _apart(shape)
    best = _scaled(shape, splits, weights, tolerance)
    idle, last = 0, 0.0
    for _ in range(0 if all(shape.symmetric) else max_rounds):
        try:
            for _ in range(_ROUND):
                splits, weights, value = _step(shape, splits, weights, _MIXING * tolerance)
        except np.linalg.LinAlgError:  # no further in floating point
            break
        found = _scaled(shape, splits, weights, tolerance)
        idle = 0 if found.upper < best.upper * (1 - tolerance) else idle + 1
        best = min(best, found, key=lambda member: member.upper)
        if idle >= 2 and abs(value - last) <= tolerance / 4 * value:
            break
        last = value
    return replace(best, weights=weights)


def _scaled(
    layout: Layout, splits: tuple[Split, ...], weights: Weights, tolerance: float
) -> Residual:
    rows = extreme_rows(layout, splits, tolerance / 10)
    found = scales(rows, largest_spend(layout, splits), tolerance=tolerance / 4)
    return Residual(layout, splits, found, weights)


def _step(
    layout: Layout, splits: tuple[Split, ...], weights: Weights, eps: float
) -> tuple[tuple[Split, ...], Weights, float]:
    """One iteration: the scales at the weights; from them every split, and the weights' ascent. The
    Lagrangian's value before it comes back too: the privacy cost, if nothing can be gained."""
    tables = layout.tables(splits)
    eta = [split.eta() for split in splits]
    mean = np.array([(p * x).sum() for p, x in zip(weights.cells, eta, strict=True)])
    rows = _mixed_rows(layout, tables, weights.shares)
    q = np.concatenate([part.ravel() for part in weights.queries])
    needed, spend = rows.down(q), layout.products(mean)
    z, spent = scales_at(spend, needed), np.sqrt(spend * needed)
    total = float(spent.sum())
    raised = (q * rows.up(z) / total + eps / len(q)) / (1 + eps)
    cuts = np.cumsum([part.size for part in weights.queries])[:-1]
    queries = [
        new.reshape(old.shape)
        for new, old in zip(np.split(raised / raised.sum(), cuts), weights.queries, strict=True)
    ]
    pulls, shares = _pulls(layout, tables, rows, weights, q, z)
    shares = tuple((s + eps / len(s)) / (1 + eps) for s in shares)
    moved, cells = list(splits), list(weights.cells)
    for a, split in enumerate(splits):
        if not isinstance(split, Ordered) or not mean[a] > 0:
            continue
        part = float(spent[(layout.members == a).any(axis=1)].sum())
        p = cells[a]
        asked = [(W, pull) for (b, W), pull in zip(layout.factors, pulls, strict=True) if a == b]
        moved[a] = _descended(split, p, part / mean[a], asked)
        share = part / total
        grown = p * (1 - share + share * eta[a] / mean[a])
        cells[a] = (grown / grown.sum() + eps / len(p)) / (1 + eps)
    return tuple(moved), Weights(tuple(cells), tuple(queries), shares), total


def _descended(split: Ordered, p: Array, price: float, asked: list[tuple[Array, Array]]) -> Ordered:
    """(u, C) at the least Lagrangian, first C, then u.

    price: what p'eta costs. asked: per factor its rows W (r, n) and the weights (r, 2) of mu^2 and
    gamma. With N_i the cells' and f_j the rows' contrasts,
        price sum_i p_i (N_i - v)'G^-1(N_i - v) + sum_j weight_j1 f_j'G f_j + weight_j0 mu_j^2.
    """
    N = split.contrasts
    W = np.concatenate([rows for rows, _ in asked])
    weight = np.concatenate([pull for _, pull in asked])
    f, mean = W @ N, W.mean(axis=1)
    X = N - split.reference
    R = cholesky(price * (X.T * p) @ X, lower=True)
    squares, U = eigh(R.T @ ((f.T * weight[:, 1]) @ f) @ R)
    root = R @ U / np.maximum(squares, np.finfo(float).tiny) ** 0.25
    G = root @ root.T
    inverse = price * cho_solve((cholesky(G, lower=True), True), np.eye(len(G)))
    normal = (f.T * weight[:, 0]) @ f + inverse
    v = np.linalg.solve(normal, inverse @ (p @ N) - f.T @ (weight[:, 0] * mean))
    return Ordered(N, v, G)


def _mixed_rows(layout: Layout, tables: list[Array], shares: tuple[Array, ...]) -> Rows:
    """K with the rows along an axis of one target mixed into one, as the shares say."""
    mixtures = [(share @ table)[None] for share, table in zip(shares, tables, strict=True)]
    axes = tuple(
        tuple(
            gathered(tables if varies else mixtures, own)
            for own, varies in zip(batch.factors.T, batch.varying, strict=True)
        )
        for batch in layout.batches
    )
    return Rows(
        tuple(b.blocks for b in layout.batches),
        axes,
        tuple(b.targets for b in layout.batches),
        len(layout.members),
    )


def _pulls(
    layout: Layout, tables: list[Array], rows: Rows, weights: Weights, q: Array, z: Array
) -> tuple[list[Array], tuple[Array, ...]]:
    """The Lagrangian's derivatives by mu^2 and gamma of every factor's rows, (r, 2), and the shares
    raised.
    """
    pulls = [np.zeros_like(table) for table in tables]
    mixed = np.zeros((len(tables), 2))
    for batch, part, axes in zip(layout.batches, rows.weights(q), rows.tables, strict=True):
        for axis, own in enumerate(batch.factors.T):
            force = _force(part, z[batch.blocks], axes, axis)
            if batch.varying[axis]:
                for f in np.unique(own):
                    pulls[f] += force[own == f].sum(axis=0)
            else:
                np.add.at(mixed, own, force[:, 0])
    raised = []
    for pull, table, share, force in zip(pulls, tables, weights.shares, mixed, strict=True):
        pull += np.outer(share, force)
        grown = share * (table @ force)
        raised.append(grown / grown.sum() if grown.sum() > 0 else share)
    return pulls, tuple(raised)


def _force(part: Array, z: Array, tables: tuple[Array, ...], axis: int) -> Array:
    """The derivative (g, r, 2) of sum part * (z contracted with all tables) by table `axis`."""
    part = np.moveaxis(part, 1 + axis, -1)
    for i, table in enumerate(tables):
        if i != axis:
            part = np.einsum("gi...r,gia->g...ar", part, table)
    g, r = len(part), part.shape[-1]
    z = np.moveaxis(z, 1 + axis, -1).reshape(g, -1, 2)
    return np.asarray(np.einsum("gxr,gxa->gra", part.reshape(g, -1, r), z))


def _apart(layout: Layout) -> tuple[tuple[Split, ...], Weights]:
    """Every attribute at the optimum of its own factors and the sum, and weights to go with it."""
    splits, cells = [], []
    shares: dict[int, Array] = {}
    for a in range(len(layout.sizes)):
        split, p, own = _alone(layout, a)
        splits.append(split)
        cells.append(p)
        shares |= own
    queries = []
    for batch in layout.batches:
        q = np.ones(batch.targets.shape)
        for axis, (own, varies) in enumerate(zip(batch.factors.T, batch.varying, strict=True)):
            if varies:
                along = gathered(shares, own)
                q *= np.expand_dims(along, [i + 1 for i in range(q.ndim - 1) if i != axis])
        queries.append(q / len(layout.workload.groups))
    return tuple(splits), Weights(
        tuple(cells), tuple(queries), tuple(shares[f] for f in range(len(layout.factors)))
    )


def _alone(layout: Layout, attribute: int) -> tuple[Split, Array, dict[int, Array]]:
    """The optimum of one attribute's factors, with the sum if a group sums it out: the split, p
    (n,), and q over the rows of each factor, (r,), summing to 1.

    Targets count relative to their group's, which the other attributes share in.
    """
    n = layout.sizes[attribute]
    own = {f: W for f, (a, W) in enumerate(layout.factors) if a == attribute}
    uniform = np.full(n, 1 / n), {f: np.full(len(W), 1 / len(W)) for f, W in own.items()}
    if layout.symmetric[attribute]:
        return Symmetric(n), *uniform
    targets = {f: np.full(len(W), np.inf) for f, W in own.items()}
    summed = False
    for batch in layout.batches:
        here = batch.attributes == attribute
        summed |= not here.any(axis=1).all()
        for g, axis in np.argwhere(here):
            logs = np.moveaxis(np.log(batch.targets[g]), axis, 0)
            mean = logs.reshape(len(logs), -1).mean(axis=1)
            f = batch.factors[g, axis]
            targets[f] = np.minimum(targets[f], np.exp(mean - mean.min()))
    stacked = np.concatenate([*own.values(), np.ones((int(summed), n))])
    W, place = np.unique(stacked, axis=0, return_inverse=True)
    place = place.ravel()
    c = np.full(len(W), np.inf)
    np.minimum.at(c, place, np.concatenate([*targets.values(), np.ones(int(summed))]))
    centred = W - W.mean(axis=1, keepdims=True)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    N = directions[: int((sizes > _SAME * np.abs(W).max()).sum())].T
    if not N.shape[1]:
        return Ordered(N, np.zeros(0), np.zeros((0, 0))), *uniform
    asked = W.any(axis=1)
    problem, _ = reduce(W[asked], c[asked])
    block = problem.blocks[0]
    assert isinstance(block, Block)
    found = dual.solve(problem, tolerance=1e-5, max_iterations=1000)
    root = found.whiteners[0] @ block.basis  # root' root = Sigma^-1
    if len(root) > N.shape[1]:
        functionals = np.vstack([np.ones(n), N.T])
        T = np.linalg.lstsq(root.T, functionals.T, rcond=None)[0].T
        v = T[1:] @ T[0] / (T[0] @ T[0])
        G = T[1:] @ T[1:].T - np.outer(v, v) * (T[0] @ T[0])
    else:  # The sum is no combination of the rows: then there is a u that no row sees.
        f = W @ N
        v = np.linalg.lstsq(f, -W.mean(axis=1), rcond=None)[0]
        T = np.linalg.lstsq(f, np.linalg.lstsq(root.T, W.T, rcond=None)[0].T, rcond=None)[0]
        G = T @ T.T
    q = np.zeros(len(W))
    q[asked] = found.q
    q = q[place] + _SAME
    ends = np.cumsum([len(rows) for rows in own.values()])
    on_rows = [part / part.sum() for part in np.split(q, ends)[: len(own)]]
    return Ordered(N, v, G), found.p, dict(zip(own, on_rows, strict=True))
