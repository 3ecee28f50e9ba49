"""Rounding a member of the residual family to integers.

The answers of block A have the product of the entries of A's attributes for coefficients, and 64
bits in all: the more attributes a table has, the fewer bits are left for each. So of many rotations
of a matrix, alike but for rounding, the one that rounds best is taken, and the scales are found
anew for the rounded matrices. What rounding costs is part of the plan's gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cholesky, qr, solve_triangular

from fitplug.errors import DesignError
from fitplug.mechanism import (
    SATURATION,
    AttributeMatrix,
    Basis,
    BlockSet,
    DenseMatrix,
    Strategy,
    build_strategy,
    contrast,
)
from fitplug.numeric import FloatArray, IntArray
from fitplug.optimizer.block_rounding import LEAST_RECORDS, claimed
from fitplug.optimizer.residual_descent import Residual
from fitplug.optimizer.residual_family import Ordered, extreme_rows, scales
from fitplug.optimizer.tree_covariance import Tree
from fitplug.optimizer.tree_covariance import whole as whole_tree
from fitplug.structure import BatchedGroups

SPLIT_MARGIN = 1e-9
"""What a claimed lower bound is below the proven one, relatively: frames are found anew at each
evaluation, and differ with the machine."""

_BITS = (20, 16, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4)
"""log2 of the largest column norm of an attribute's matrix, tried in turn."""

_ROTATIONS, _ROTATING = 64, 1e8
"""Rotations of an attribute's matrix that are tried, at most, and the cubes of its cells in all."""

_TRIED = 2_000_000
"""Multiples of a block's integer that are tried, over all blocks."""

_PAST = 0.01  # beyond the best cost, fewer bits will not do better
_IDLE = 2.0**-10  # of the largest column norm, in contrasts that no query asks for


def split_strategy(found: Residual, *, loss: float) -> Strategy:
    """The best integer strategy next to a real one, with room for LEAST_RECORDS records; or the
    first that costs at most (1 + loss) times as much. Raises DesignError if there is none.
    """
    batched = found.batched
    best: tuple[float, tuple[AttributeMatrix, ...], IntArray] | None = None
    for bits in _BITS:
        try:
            splits = _splits(found, bits)
            cost, M = _scaled(batched, splits, loss)
        except DesignError:
            continue
        if best is None or cost < best[0]:
            best = cost, splits, M
        elif cost > (1 + _PAST) * best[0]:
            break
        if cost <= found.upper * (1 + loss):
            break
    if best is None:
        raise DesignError(
            "an integer strategy has no room for tables of so many attributes; ask tables of fewer"
        )
    _, splits, M = best
    basis = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
    family = BlockSet(np.arange(len(M)), basis, M[:, None, None])
    return claimed(build_strategy(batched.structure, (family,), splits))


def _splits(found: Residual, bits: int) -> tuple[AttributeMatrix, ...]:
    """The attributes' matrices. Raises DesignError."""
    batched = found.batched
    known: dict[tuple[bytes, ...], AttributeMatrix] = {}
    splits: list[AttributeMatrix] = []
    for a, split in enumerate(found.splits):
        if isinstance(split, Tree):
            splits.append(whole_tree(split, bits))
            continue
        if not isinstance(split, Ordered):
            splits.append(contrast(batched.sizes[a]))
            continue
        W = np.concatenate([f.rows for f in batched.factors if f.attribute == a])
        parts = (split.contrasts, split.reference, split.covariance, W)
        key = tuple(part.tobytes() for part in parts)
        if key not in known:
            known[key] = whole(split, W, bits)
        splits.append(known[key])
    return tuple(splits)


def whole(split: Ordered, W: FloatArray, bits: int) -> DenseMatrix:
    """The integer split next to a real one, its largest column norm about 2^bits, at its best for
    the rows W (r, n).

    Contrasts that no query asks for are measured too, next to not at all. Raises DesignError if no
    rounded matrix keeps every contrast: more bits would.
    """
    N = split.contrasts
    n, k = N.shape
    L = cholesky(split.covariance, lower=True)
    real = solve_triangular(L, (N - split.reference).T, lower=True)  # real' real = Y
    idle = qr(np.column_stack([np.ones(n), N]))[0][:, k + 1 :].T
    size = math.sqrt(float((real**2).sum(axis=0).max(initial=0.0))) or 1.0
    rng = np.random.default_rng(n)  # the same at every design
    best: tuple[float, DenseMatrix] | None = None
    for trial in range(1 if k < 2 else min(_ROTATIONS, 1 + int(_ROTATING / n**3))):
        rotated = qr(rng.normal(size=(k, k)))[0] @ real if trial else real
        matrix = np.rint(np.vstack([rotated / size, _IDLE * idle]) * 2.0**bits).astype(np.int64)
        if np.linalg.matrix_rank(np.vstack([matrix, np.full(n, 2.0**bits)])) < n:
            continue
        candidate = DenseMatrix(matrix)
        lost = _lost(split, candidate, W)
        if best is None or lost < best[0]:
            best = lost, candidate
    if best is None:
        raise DesignError("the integer strategy of an attribute lost a contrast")
    return best[1]


def _lost(split: Ordered, rounded: DenseMatrix, W: FloatArray) -> float:
    """About what rounding costs: the logarithm of how much the largest eta and gamma are more."""
    eta, gamma = split.eta(), split.of_rows(W)[:, 1]
    if not eta.max() > 0:
        return 0.0
    E = np.linalg.inv(np.vstack([rounded.matrix, np.ones(rounded.n)]))[:, :-1]
    squares = ((W @ E) ** 2).sum(axis=1) / np.maximum(gamma, 1e-3 * gamma.max())
    more = (rounded.matrix.astype(np.float64) ** 2).sum(axis=0).max() / eta.max()
    return math.log(float(squares.max())) + math.log(more)


def _scaled(
    batched: BatchedGroups, splits: Sequence[AttributeMatrix], loss: float
) -> tuple[float, IntArray]:
    """The privacy cost with the best integer multiples M (b,) of the blocks, and these."""
    tables = [splits[asked.attribute].moments(asked.factor) for asked in batched.factors]
    entry = batched.products([float(max(split.entry, 1)) for split in splits])
    if float(entry.max()) * LEAST_RECORDS > SATURATION:
        raise DesignError("no room for so many records")
    rows = extreme_rows(batched, tables, loss / 10)
    spend = batched.products([float(split.column_square) for split in splits])
    z = scales(rows, spend, tolerance=loss).z
    real = np.divide(1.0, np.sqrt(z), out=np.zeros_like(z), where=z > 0)
    room = SATURATION / LEAST_RECORDS / float((real * entry).max())
    M = _multiples(real, spend * real**2, room)
    if float((M * entry).max()) * LEAST_RECORDS > 2 * SATURATION:
        raise DesignError("no room for so many records")
    worst = float(rows.up(M**-2.0).max())
    return math.sqrt(worst * float((spend * M**2).sum())), M.astype(np.int64)


def _multiples(real: FloatArray, spent: FloatArray, room: float) -> FloatArray:
    """Integers (b,) near a multiple of `real`, up to room: of the multiples that make the smallest
    one whole, that which rounds the others least, by what each spends.
    """
    needed = real > 0
    least = float(real[needed].min())
    most = math.floor(room * least)
    if most < 1:
        return np.maximum(np.rint(real * room), 1.0)
    tried = max(1, min(most // 2, _TRIED // len(real)))
    # Of blocks alike, one stands for all.
    kinds, place = np.unique(real[needed], return_inverse=True)
    share = np.bincount(place.ravel(), spent[needed])
    wanted = np.arange(most - tried + 1, most + 1)[:, None] * (kinds / least)
    off = (np.abs(np.rint(wanted) / wanted - 1) * share).sum(axis=1)
    multiple = float(most - tried + 1 + int(off.argmin())) / least
    return np.maximum(np.rint(real * multiple), 1.0)
