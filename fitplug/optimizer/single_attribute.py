"""Where the descent of the residual family begins: every attribute at the optimum of its own
factors, and of the sum if some group sums it out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from fitplug.numeric import FloatArray
from fitplug.optimizer import dual
from fitplug.optimizer import tree_covariance as tree
from fitplug.optimizer.problem import Block, reduce
from fitplug.optimizer.residual_family import Ordered, Split, Symmetric, Weights
from fitplug.structure import BatchedGroups, DistinctFactor, gathered

Alone: TypeAlias = tuple[Split, FloatArray, list[FloatArray]]
"""A split, p (n,), and q over the rows of every factor, (r,), each summing to 1."""

_SAME = 1e-10  # of the largest: what counts as rounding


def start(batched: BatchedGroups) -> tuple[tuple[Split, ...], Weights]:
    """The splits, and weights to go with them."""
    splits, cells = [], []
    shares: dict[int, FloatArray] = {}
    known: dict[tuple[object, ...], Alone] = {}  # attributes alike are solved once
    for a in range(len(batched.sizes)):
        mine = {f: one for f, one in enumerate(batched.factors) if one.attribute == a}
        targets, summed = _targets(batched, a, mine)
        key = (
            *(one.factor.kind if batched.trees[a] else one.rows.tobytes() for one in mine.values()),
            *(c.tobytes() for c in targets.values()),
            batched.symmetric[a],
            batched.sizes[a],
            batched.trees[a],
            summed,
        )
        if key not in known:
            known[key] = _alone(batched, a, list(mine.values()), list(targets.values()), summed)
        split, p, own = known[key]
        splits.append(split)
        cells.append(p)
        shares |= dict(zip(mine, own, strict=True))
    queries = []
    for batch in batched.batches:
        q = np.ones(batch.targets.shape)
        for axis, (used, varies) in enumerate(zip(batch.factors.T, batch.varying, strict=True)):
            if varies:
                along = gathered(shares, used)
                q *= np.expand_dims(along, [i + 1 for i in range(q.ndim - 1) if i != axis])
        queries.append(q / len(batched.workload.groups))
    return tuple(splits), Weights(
        tuple(cells), tuple(queries), tuple(shares[f] for f in range(len(batched.factors)))
    )


def _targets(
    batched: BatchedGroups, attribute: int, mine: Mapping[int, DistinctFactor]
) -> tuple[dict[int, FloatArray], bool]:
    """Targets of the factors' rows over that of the sum, and whether some group asks for the sum:
    each the tightest of the groups'.
    """
    targets = {f: np.full(one.count, np.inf) for f, one in mine.items()}
    total = np.inf
    for batch in batched.batches:
        here = batch.attributes == attribute
        for g in np.flatnonzero(~here.any(axis=1)):
            total = min(total, math.exp(float(np.log(batch.targets[g]).mean())))
        for g, axis in np.argwhere(here):
            logs = np.moveaxis(np.log(batch.targets[g]), axis, 0)
            f = batch.factors[g, axis]
            own = np.exp(logs.reshape(len(logs), -1).mean(axis=1))
            targets[f] = np.minimum(targets[f], own)
    if total < np.inf:
        targets = {f: c / total for f, c in targets.items()}
    return targets, total < np.inf


def _alone(
    batched: BatchedGroups,
    a: int,
    mine: list[DistinctFactor],
    targets: list[FloatArray],
    summed: bool,
) -> Alone:
    n = batched.sizes[a]
    uniform = np.full(n, 1 / n), [np.full(one.count, 1 / one.count) for one in mine]
    if batched.symmetric[a]:
        return Symmetric(n), *uniform
    if (shape := batched.trees[a]) is not None:
        levels = {one.factor.kind: float(c.min()) for one, c in zip(mine, targets, strict=True)}
        found = tree.alone(shape, levels, summed)
        shares = [found.queries[one.factor.kind] + _SAME for one in mine]
        return found.tree, found.cells, [q / q.sum() for q in shares]
    rows = [one.rows for one in mine]
    W, place = np.unique(
        np.concatenate([*rows, np.ones((int(summed), n))]), axis=0, return_inverse=True
    )
    place = place.ravel()
    c = np.full(len(W), np.inf)
    np.minimum.at(c, place, np.concatenate([*targets, np.ones(int(summed))]))
    centred = W - W.mean(axis=1, keepdims=True)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    N = directions[: int((sizes > _SAME * np.abs(W).max()).sum())].T
    if not N.shape[1]:
        return Ordered(N, np.zeros(0), np.zeros((0, 0))), *uniform
    asked = W.any(axis=1)
    split, p, q_asked = _dense(W[asked], c[asked], N)
    q = np.zeros(len(W))
    q[asked] = q_asked
    q = q[place] + _SAME
    ends = np.cumsum([len(own) for own in rows])
    return split, p, [part / part.sum() for part in np.split(q, ends)[: len(rows)]]


def _dense(W: FloatArray, c: FloatArray, N: FloatArray) -> tuple[Ordered, FloatArray, FloatArray]:
    """The optimum of rows W (m, n) with targets c, split by the contrasts N; p (n,) and q (m,)."""
    problem, _ = reduce(W, c)
    block = problem.blocks[0]
    assert isinstance(block, Block)
    found = dual.solve(problem, tolerance=1e-5, max_iterations=1000)
    root = found.whiteners[0] @ block.basis  # root' root = Sigma^-1
    if len(root) > N.shape[1]:
        functionals = np.vstack([np.ones(len(N)), N.T])
        T = np.linalg.lstsq(root.T, functionals.T, rcond=None)[0].T
        v = T[1:] @ T[0] / (T[0] @ T[0])
        G = T[1:] @ T[1:].T - np.outer(v, v) * (T[0] @ T[0])
    else:  # The sum is no combination of the rows: then there is a u that no row sees.
        f = W @ N
        v = np.linalg.lstsq(f, -W.mean(axis=1), rcond=None)[0]
        T = np.linalg.lstsq(f, np.linalg.lstsq(root.T, W.T, rcond=None)[0].T, rcond=None)[0]
        G = T @ T.T
    return Ordered(N, v, G), found.p, found.q
