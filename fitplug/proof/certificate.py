"""The certificate: a lower bound on every mechanism's privacy cost, from dual weights alone.

Nothing here trusts a solver. For ANY non-negative p (d,) and q (m,), by weak duality,

    Delta* >= || diag(q / c)^1/2 W diag(p)^1/2 ||_*  / sqrt(sum p * sum q)

with the nuclear norm; no mechanism that answers W with Gaussian noise of variance at most c, and
no post-processing of one, costs less. The rounding of the evaluation is subtracted.

Where attributes are symmetric, p and q are taken the same for all that symmetry makes alike, and
the norm is a sum over the blocks of `structure`: of  diag(share q / c)^1/2 N diag(w p)^1/2.
That of a product too large to write down is bounded by `fitplug.proof.product_bound`.

With budgets s per cell and a weight on the total squared error, q / c becomes q / c + weight sum q
(times the queries that a row stands for), p becomes p / s, and the same bounds the root of

    max_i (profile_i / s_i) * (max_j (variance_j / c_j) + weight * sum_j variance_j).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma
from fitplug.proof import product_bound as pinched
from fitplug.structure import Objective, Piece, Structure, batch_groups, dense_piece


def lower_bound(W: FloatArray, targets: FloatArray, p: FloatArray, q: FloatArray) -> float:
    """A certified lower bound on the privacy cost Delta of a dense W (m, d) at targets c (m,).

    Raises ValueError if p (d,) or q (m,) is negative, not finite or sums to zero.
    """
    p, q = _scaled("p", p, W.shape[1]), _scaled("q", q, W.shape[0])
    return _over_mass(_nuclear([dense_piece(W)], p, q / targets), p, q)


class Frame(NamedTuple):
    """How the norm of a product is pinched: see `fitplug.proof.product_bound`."""

    columns: int
    tilt: float


WHOLE = Frame(0, 0.0)
"""No product: the norm is that of the blocks."""


def dual_sizes(structure: Structure) -> tuple[int, int]:
    """The sizes of p and q.

    p is over the dense cells (D,), q over the structure's rows (m,). In the residual family both
    are products, one part after another: p of every split attribute; q of the groups, then of every
    factor of the batched. Of a symmetric attribute each has one number.
    """
    if not structure.ordered:
        return structure.cells, structure.rows
    batched = batch_groups(structure)
    alike = batched.symmetric
    cells = sum(1 if one else n for one, n in zip(alike, structure.sizes, strict=True))
    return cells, len(structure.used) + sum(asked.count for asked in batched.factors)


def certified_bound(
    structure: Structure,
    objective: Objective,
    scale: float,
    p: FloatArray,
    q: FloatArray,
    frame: Frame = WHOLE,
) -> float:
    """A certified lower bound on the objective at scale * targets. p, q: see `dual_sizes`. Raises
    ValueError as above.
    """
    if structure.ordered:
        bound = pinched.bound(batch_groups(structure), _product(structure, p, q, frame))
        return bound / math.sqrt(scale) * (1 - 4 * UNIT_ROUNDOFF)
    p, q = _scaled("p", p, structure.cells), _scaled("q", q, structure.rows)
    rows = q / (scale * structure.targets)
    if objective.weight:
        rows = rows + objective.weight * structure.repeats * q.sum()
    cells = p if objective.budgets is None else p / objective.budgets
    if not structure.scalar:
        return _over_mass(_nuclear(structure.pieces(), cells, rows), p, q)
    # Blocks are numbers: the sum of (w_A p sum_t share_t q_t / c_t)^1/2.
    Q = structure.incidence.T @ rows
    total = float(np.sqrt(structure.weights * cells[0] * Q).sum())
    return _over_mass(total * (1 - gamma(structure.rows + len(Q) + 64)), p, q)


def group_shares(
    structure: Structure, p: FloatArray, q: FloatArray, frame: Frame = WHOLE
) -> FloatArray:
    """The part of each group in the sum of q, shape (groups,); see `fitplug.plan.prices`."""
    if structure.ordered:
        return pinched.group_shares(batch_groups(structure), _product(structure, p, q, frame))
    weights = np.add.reduceat(q, structure.starts[:-1])
    return np.asarray(weights / weights.sum())


def pack_duals(duals: pinched.ProductDuals) -> tuple[FloatArray, FloatArray, Frame]:
    """p, q and the frame that `certified_bound` takes."""
    return (
        np.concatenate(duals.p),
        np.concatenate([duals.w, *duals.y]),
        Frame(duals.t, duals.tilt),
    )


def _product(
    structure: Structure, p: FloatArray, q: FloatArray, frame: Frame
) -> pinched.ProductDuals:
    batched = batch_groups(structure)
    if (p.shape, q.shape) != tuple((size,) for size in dual_sizes(structure)):
        raise ValueError("dual weights p and q are not of the structure's attributes and groups")
    alike = batched.symmetric
    cells = [1 if one else n for one, n in zip(alike, structure.sizes, strict=True)]
    counts = [len(structure.used), *(asked.count for asked in batched.factors)]
    w, *y = np.split(q, np.cumsum(counts)[:-1])
    return pinched.ProductDuals(
        tuple(np.split(p, np.cumsum(cells)[:-1])), tuple(y), w, frame.columns, frame.tilt
    )


def _scaled(name: str, weights: FloatArray, size: int) -> FloatArray:
    """Over the largest: the bound is homogeneous, and no sum can under- or overflow then."""
    fits = weights.shape == (size,) and weights.dtype == np.float64
    if not fits or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"dual weights {name} must be {size} finite numbers >= 0")
    if not weights.sum() > 0:
        raise ValueError(f"dual weights {name} are all zero")
    return weights / weights.max()


def _over_mass(nuclear: float, p: FloatArray, q: FloatArray) -> float:
    mass = math.sqrt(float(p.sum()) * float(q.sum())) * (1 + 2 * gamma(len(p) + len(q)))
    return max(0.0, nuclear / mass)


def _nuclear(pieces: Iterable[Piece], cells: FloatArray, rows: FloatArray) -> float:
    """sum over pieces of || diag(share rows)^1/2 N diag(w cells)^1/2 ||_*, rounded down."""
    total, count = 0.0, 0
    for piece in pieces:
        row = np.sqrt(piece.shares * rows[piece.rows])
        column = np.sqrt(piece.weight * cells)
        # What has no weight adds nothing to the norm.
        X = piece.matrix[np.ix_(row > 0, column > 0)] * row[row > 0, None] * column[column > 0]
        if not X.size:
            continue
        if X.shape[0] > X.shape[1]:
            X = X.T
        singular = np.linalg.svd(X, compute_uv=False)
        # Backward stability: computed singular values are those of X + E, |E|_2 <= c u |X|_F with
        # c a modest multiple of the dimensions (LAPACK Users' Guide, section 4.9); each entry of X
        # itself carries a few roundings. By Weyl each of the r values is off by at most |E|_2.
        r, n = X.shape
        error = r * (10 * (r + n) + 64) * UNIT_ROUNDOFF * math.sqrt(float((X * X).sum()))
        total += max(0.0, float(singular.sum()) * (1 - gamma(r)) - error)
        count += 1
    return total * (1 - gamma(count))
