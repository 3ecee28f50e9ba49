"""The descent of the residual family (see `fitplug.structure.batches`): several ordered attributes
whose product is too large to write down.

(u_a, C_a) begin as the optimum of attribute a alone, and then descend the Lagrangian

    sum_A z_A^-1 prod_{a in A} p_a'eta_a + sum_A z_A (K'q)_A

in turn: z_A is a square root, C_a a geometric mean, u_a a linear solve, and the weights p_a and q
ascend by the dual solver's multiplicative steps. Where targets do not vary, q is a product.
`fitplug.solvers.pinched` bounds the least cost of any mechanism from the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fitplug.numeric import FloatArray
from fitplug.optimizer import dual
from fitplug.optimizer import tree_covariance as tree
from fitplug.optimizer.covariance_descent import descended
from fitplug.optimizer.residual_family import (
    Ordered,
    Rows,
    Scales,
    Split,
    Symmetric,
    Weights,
    extreme_rows,
    largest_spend,
    scales,
    scales_at,
)
from fitplug.optimizer.single_attribute import start
from fitplug.optimizer.tree_covariance import Tree
from fitplug.structure import BatchedGroups, DistinctFactor, Structure, batch_groups, gathered

_MIXING = 0.03  # of the tolerance: what weights keep of uniform ones, as in the dual solver
_ROUND = 25  # iterations between two looks at the true privacy cost
_WORK = 1e10  # the cubes of the widths, over all iterations: a minute or so


@dataclass(frozen=True, eq=False)
class Residual:
    """A member of the family that meets every target at the privacy cost `upper`."""

    batched: BatchedGroups
    splits: tuple[Split, ...]
    scales: Scales
    weights: Weights
    iterations: int = 0
    stopped: bool = False

    @property
    def upper(self) -> float:
        return self.scales.upper


def solve_residual(
    structure: Structure,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 600,
    progress: dual.Progress | None = None,
) -> Residual:
    """The best member of the family that alternating descent finds.

    tolerance: rounds of improvement end when two in turn gain no more, relatively, and the weights
    have settled; the scales are as near their best. progress: called with the iterations so far and
    how far the member is above what the family might come down to; True stops.
    Raises WorkloadError if too many queries have targets of their own.
    """
    shape = batch_groups(structure)
    splits, weights = start(shape)
    best = _scaled(shape, splits, weights, tolerance)
    cubes = sum(n**3.0 for n, alike in zip(shape.widths, shape.symmetric, strict=True) if not alike)
    # One attribute alone is at its optimum already.
    most = 0 if len(splits) == 1 or not cubes else min(max_iterations, 1 + int(_WORK / cubes))
    idle, last, done, stopped = 0, 0.0, 0, False
    while done < most and not stopped:
        try:
            for _ in range(min(_ROUND, most - done)):
                splits, weights, value = _step(shape, splits, weights, _MIXING * tolerance)
                done += 1
        except np.linalg.LinAlgError:  # no further in floating point
            break
        found = _scaled(shape, splits, weights, tolerance)
        idle = 0 if found.upper < best.upper * (1 - tolerance) else idle + 1
        best = min(best, found, key=lambda member: member.upper)
        if progress is not None:
            stopped = progress(done, max(best.upper / value - 1, tolerance)) is True
        if idle >= 2 and abs(value - last) <= tolerance / 4 * value:
            break
        last = value
    return replace(best, weights=weights, iterations=done, stopped=stopped)


def _scaled(
    batched: BatchedGroups, splits: tuple[Split, ...], weights: Weights, tolerance: float
) -> Residual:
    rows = extreme_rows(batched, batched.tables(splits), tolerance / 10)
    found = scales(rows, largest_spend(batched, splits), tolerance=tolerance / 4)
    return Residual(batched, splits, found, weights)


def _step(
    batched: BatchedGroups, splits: tuple[Split, ...], weights: Weights, eps: float
) -> tuple[tuple[Split, ...], Weights, float]:
    """One iteration: the scales at the weights; from them every split, and the weights' ascent. The
    Lagrangian's value before it comes back too: the privacy cost, if nothing can be gained."""
    tables = batched.tables(splits)
    eta = [split.eta() for split in splits]
    mean = np.array([(p * x).sum() for p, x in zip(weights.cells, eta, strict=True)])
    rows = _mixed_rows(batched, tables, weights.shares)
    q = np.concatenate([part.ravel() for part in weights.queries])
    needed, spend = rows.down(q), batched.products(mean)
    z, spent = scales_at(spend, needed), np.sqrt(spend * needed)
    total = float(spent.sum())
    raised = (q * rows.up(z) / total + eps / len(q)) / (1 + eps)
    cuts = np.cumsum([part.size for part in weights.queries])[:-1]
    queries = [
        new.reshape(old.shape)
        for new, old in zip(np.split(raised / raised.sum(), cuts), weights.queries, strict=True)
    ]
    pulls, shares = _pulls(batched, tables, rows, weights, q, z)
    shares = tuple((s + eps / len(s)) / (1 + eps) for s in shares)
    moved, cells = list(splits), list(weights.cells)
    for a, split in enumerate(splits):
        if isinstance(split, Symmetric) or not mean[a] > 0:
            continue
        part = float(spent[(batched.members == a).any(axis=1)].sum())
        p = cells[a]
        asked = [
            (factor, pull)
            for factor, pull in zip(batched.factors, pulls, strict=True)
            if factor.attribute == a
        ]
        moved[a] = _descended(split, p, part / mean[a], asked)
        share = part / total
        grown = p * (1 - share + share * eta[a] / mean[a])
        cells[a] = (grown / grown.sum() + eps / len(p)) / (1 + eps)
    return tuple(moved), Weights(tuple(cells), tuple(queries), shares), total


def _descended(
    split: Split, p: FloatArray, price: float, asked: list[tuple[DistinctFactor, FloatArray]]
) -> Split:
    if isinstance(split, Tree):
        levels = [(factor.factor.kind, pull) for factor, pull in asked]
        return tree.descended(split, p, price, levels)
    assert isinstance(split, Ordered)
    return descended(split, p, price, [(factor.rows, pull) for factor, pull in asked])


def _mixed_rows(
    batched: BatchedGroups, tables: list[FloatArray], shares: tuple[FloatArray, ...]
) -> Rows:
    """K with the rows along an axis of one target mixed into one, as the shares say."""
    mixtures = [(share @ table)[None] for share, table in zip(shares, tables, strict=True)]
    axes = tuple(
        tuple(
            gathered(tables if varies else mixtures, own)
            for own, varies in zip(batch.factors.T, batch.varying, strict=True)
        )
        for batch in batched.batches
    )
    return Rows(
        tuple(b.blocks for b in batched.batches),
        axes,
        tuple(b.targets for b in batched.batches),
        len(batched.members),
    )


def _pulls(
    batched: BatchedGroups,
    tables: list[FloatArray],
    rows: Rows,
    weights: Weights,
    q: FloatArray,
    z: FloatArray,
) -> tuple[list[FloatArray], tuple[FloatArray, ...]]:
    """The Lagrangian's derivatives by mu^2 and gamma of every factor's rows, (r, 2), and the shares
    raised.
    """
    pulls = [np.zeros_like(table) for table in tables]
    mixed = np.zeros((len(tables), 2))
    for batch, part, axes in zip(batched.batches, rows.weights(q), rows.tables, strict=True):
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


def _force(
    part: FloatArray, z: FloatArray, tables: tuple[FloatArray, ...], axis: int
) -> FloatArray:
    """The derivative (g, r, 2) of sum part * (z contracted with all tables) by table `axis`."""
    part = np.moveaxis(part, 1 + axis, -1)
    for i, table in enumerate(tables):
        if i != axis:
            part = np.einsum("gi...r,gia->g...ar", part, table)
    g, r = len(part), part.shape[-1]
    z = np.moveaxis(z, 1 + axis, -1).reshape(g, -1, 2)
    return np.asarray(np.einsum("gxr,gxa->gra", part.reshape(g, -1, r), z))
