"""Pinching of one factor of a product, and bounds on what its rounding can amount to.

X = diag(v) W diag(e) becomes A = R'X C, on a frame of columns C that begins with the unit vector e
and the rows R that go with it, and nu, the nuclear norm of the rest T = (I - R R') X (I - C C').

The exact R and C are those that Gram-Schmidt makes of the computed ones. It moves these by at most
|C'C - I|_F, and the first column keeps its direction. `slack` bounds the errors of the computed A
and T in the Frobenius norm, by that and by the rounding of the products. For the floats P of a
computed polar factor, ||T||_* >= <P, T> / |P|, and |P| is bounded by how far the singular vectors
that it multiplies are from orthonormal (docs/theory/product-bound.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.certificate.tree_pinching import pinch_tree, upper_relative_error
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma, upper_norm

UNDERFLOW = 2.0**-500
"""More than products and squares of at most 2^60 numbers in [-1, 1] can lose by underflow."""

_LEAST_COUPLING = 0.5
"""Least norm of a frame's column in the space of a factor's rows for that space to get a row."""

_NOISE = 1e-14
"""Singular directions whose value is below this part of the largest are rounding."""

_EXHAUSTED = 1e-10
"""A Krylov vector shorter than this part of the largest singular value is rounding."""


@dataclass(frozen=True, eq=False)
class Pinch:
    """A factor's X, pinched to some rows and a frame, and to their complements.

    Attributes:
        X: Shape (r, P), scaled by 2^-shift.
        loose: What every row adds to the nuclear norm of the rest beside X, scaled likewise, (r,).
        rows: R, shape (r, t').
        frame: C, shape (P, t).
        polar: The polar factor of the rest, shape (r, P).
        paired: A as computed, shape (t', t).
        rest: A lower bound on nu.
        error: A bound on the nuclear norm of the error of `paired`.
        shift: The binary exponent of the scale.
    """

    X: FloatArray
    loose: FloatArray
    rows: FloatArray
    frame: FloatArray
    polar: FloatArray
    paired: FloatArray
    rest: float
    error: float
    shift: int = 0

    @cached_property
    def table(self) -> FloatArray:
        """The entries of G = A'A, then nu^2, shape (t^2 + 1,)."""
        return np.append(self.paired.T @ self.paired, self.rest**2)

    @property
    def reach(self) -> float:
        """A bound on the sum of nu, the nuclear norm of `paired`, and `error`."""
        size = math.sqrt(len(self.paired)) * float(upper_norm(self.paired))
        return (self.rest + size + self.error) * (1 + 8 * UNIT_ROUNDOFF)

    def compute_row_parts(self, slope: FloatArray) -> FloatArray:
        """Compute what every row of X adds to the bound, (r,).

        Args:
            slope: The derivative of the bound by the table, shape (t^2 + 1,).

        Returns:
            Shape (r,).
        """
        t = self.frame.shape[1]
        pull = self.paired @ slope[:-1].reshape(t, t)
        weight = slope[-1] * self.rest
        along = self.rows @ pull @ self.frame.T + weight * self.polar
        return np.asarray(2 * ((along * self.X).sum(axis=1) + weight * self.loose))


def scale_factor(W: FloatArray, v: FloatArray, e: FloatArray) -> tuple[FloatArray, float, int]:
    """Compute X = 2^-shift diag(v) W diag(e / |e|), of nuclear norm at most 1/2.

    Args:
        W: A factor's rows, shape (r, P).
        v: Shape (r,).
        e: Shape (P,).

    Returns:
        X, a bound on the Frobenius norm of the error of its entries, and the shift.
    """
    X = v[:, None] * W * e
    _, first = np.frexp(np.abs(X).max())
    X = np.ldexp(X, -int(first))
    _, second = np.frexp(math.sqrt(min(X.shape)) * upper_norm(X))
    shift = int(first) + int(second) + 1
    X = np.ldexp(X, -int(second) - 1)
    norm = abs(math.fsum(e * e) - 1) + 8 * UNIT_ROUNDOFF  # above ||e| - 1|
    # Each of the operations may also underflow, before or after the scaling.
    lost = math.ldexp(1.0, -1072 - min(shift, 0)) * math.sqrt(X.size)
    return X, (norm + 4 * UNIT_ROUNDOFF) * float(upper_norm(X)) * 1.01 + lost, shift


def scale_tree(
    shape: TreeShape, y: FloatArray, p: FloatArray, level: str
) -> tuple[FloatArray, float, int, FloatArray]:
    """Compute X on the top nodes of a tree, as `scale_factor` does, and the loose part.

    Args:
        shape: The tree.
        y: Weights of the level's nodes, shape (nodes,).
        p: Weights of the leaves, shape (n,). The exact p have the given shares within each top
            node, whose sums are the squares of the floats used for it.
        level: The level.

    Returns:
        X, a bound on the Frobenius norm of its error, the shift, and the loose part of every row.
    """
    X, loose = pinch_tree(shape, p / p.max(), y, level)
    size = math.sqrt(math.fsum(shape.sum_leaves(p / p.max(), 0)))
    _, top = np.frexp(math.sqrt(min(X.shape)) * upper_norm(X) + math.fsum(loose))
    _, more = np.frexp(1 / size)
    shift = int(top) + int(more) + 1
    X, loose = np.ldexp(X / size, -shift), np.ldexp(loose / size * (1 - 8 * UNIT_ROUNDOFF), -shift)
    return X, 4 * upper_relative_error(shape) * float(upper_norm(X)) + UNDERFLOW, shift, loose


def pinch_symmetric(n: int, t: int) -> Pinch:
    """Pinch X = I / n, which has uniform p and y, to a frame of t <= 1 columns."""
    one, none = np.ones((1, 1)), np.zeros((1, 0))
    rest = (1 - 1 / n) * (1 - 4 * UNIT_ROUNDOFF) if t else 1.0
    side = one if t else none
    paired = one / n if t else np.zeros((0, 0))
    return Pinch(one / n, np.zeros(1), side, side, 0 * one, paired, rest, 2 * UNIT_ROUNDOFF * t)


def choose_frame(X: FloatArray, e: FloatArray, tilt: float, t: int) -> FloatArray:
    """Choose the frame: the Krylov space of e under |X|, where X couples e the most.

    Args:
        X: The stacked factors of an attribute, shape (r, n).
        e: A unit vector, shape (n,).
        tilt: The weight of e against the rest in |X|.
        t: The number of columns.

    Returns:
        Orthonormal columns, shape (n, t), of which e is the first. Where the Krylov space has fewer
        dimensions, the other columns are arbitrary.
    """
    frame = np.zeros((len(e), t))
    frame[:, :1] = e[:, None][:, :t]
    if t < 2:
        return frame
    _, s, V = _decompose_tilted(X / (np.abs(X).max() or 1.0), e, tilt)
    for width in range(1, t):
        known = frame[:, :width]
        v = V.T @ (s * (V @ known[:, -1]))
        for _ in range(2):
            v -= known @ (known.T @ v)
        size = float(np.linalg.norm(v))
        if size <= _EXHAUSTED * s[0]:
            frame[:, width:] = np.linalg.qr(known, mode="complete")[0][:, width:t]
            break
        frame[:, width] = v / size
    return frame


def pinch_factor(
    X: FloatArray,
    frame: FloatArray,
    tilt: float,
    *,
    error: float = 0.0,
    shift: int = 0,
    loose: FloatArray | None = None,
) -> Pinch:
    """Pinch X with the rows that the polar factor takes the frame to.

    Args:
        X: Shape (r, P). Its nuclear norm, at most sqrt(min(r, P)) |X|_F, and that of the part that
            `loose` bounds must not exceed 1 together.
        frame: Shape (P, t).
        tilt: The weight of the frame's first column against the rest in the polar factor.
        error: A bound on the Frobenius norm of the error of X.
        shift: The binary exponent of the scale of X.
        loose: Lower bounds on what every row adds to the nuclear norm of a part of the rest that is
            left out of X, whose rows and columns are orthogonal to those of X, shape (r,).

    Returns:
        The pinch.
    """
    loose = np.zeros(len(X)) if loose is None else loose
    rows = _choose_rows(X, frame, tilt)
    projected = rows.T @ X
    paired = projected @ frame
    rest = X - rows @ projected
    rest -= (rest @ frame) @ frame.T
    size = float(upper_norm(X))
    # A product of A (i, k) and B (k, j) is off by at most gamma(k) |A|_F |B|_F, and every matrix
    # here but R and C has a Frobenius norm of at most 1.03 |X|_F. R R' is off by at most 2.01 times
    # what R is off by.
    terms = gamma(len(X) + 2 * X.shape[1])
    sides = 1 + float(upper_norm(rows)) + float(upper_norm(frame))
    off = _upper_departure(rows) + _upper_departure(frame)
    slack = 1.01 * (size * 3 * (terms * sides + off) + 2 * error) + UNDERFLOW
    U, s, V = np.linalg.svd(rest, full_matrices=False)
    kept = s > _NOISE * size
    U, V = U[:, kept], V[kept]
    polar = U @ V
    width = (
        1 + _upper_departure(U) + _upper_departure(V.T) + 2 * gamma(len(V)) * len(V)
    )  # above |polar|
    held = math.fsum(np.einsum("ij,ij->i", polar, rest))
    held -= float(upper_norm(polar)) * (slack + 2 * terms * size) * 1.01
    nu = max(0.0, held) / width * (1 - 4 * UNIT_ROUNDOFF)
    nu = (nu + math.fsum(loose)) * (1 - 4 * UNIT_ROUNDOFF)
    wide = math.sqrt(rows.shape[1]) * slack
    return Pinch(X, loose, rows, frame, polar, paired, nu, wide * 1.01, shift)


def _choose_rows(X: FloatArray, frame: FloatArray, tilt: float) -> FloatArray:
    """Choose orthonormal rows (r, t') next to those that the polar factor takes the frame to."""
    if not frame.shape[1]:
        return np.zeros((len(X), 0))
    U, s, V = _decompose_tilted(X, frame[:, 0], tilt)
    kept = s > _NOISE * s[0]
    rows, coupling, _ = np.linalg.svd(U[:, kept] @ (V[kept] @ frame), full_matrices=False)
    return rows[:, coupling > _LEAST_COUPLING]


def _decompose_tilted(
    X: FloatArray, e: FloatArray, tilt: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Decompose X with its part along e multiplied by the tilt."""
    U, s, V = np.linalg.svd(X + (tilt - 1) * np.outer(X @ e, e), full_matrices=False)
    return U, s, V


def _upper_departure(C: FloatArray) -> float:
    """Bound |C'C - I|_F from above.

    Gram-Schmidt, C = Q (I + N) with N upper triangular, moves C by |N|_F: as
    N + N' + N'N = C'C - I =: M, sqrt(2) |N|_F <= |M|_F + |N|_F^2, and so, from N = 0 at M = 0 on,
    |N|_F <= |M|_F for |M|_F <= 0.4.
    """
    k = C.shape[1]
    if not k:
        return 0.0
    size = float(upper_norm(C))
    off = float(upper_norm(C.T @ C - np.eye(k))) * 1.01 + gamma(len(C) + 2) * 1.01 * size**2
    if not off < 1e-3:
        raise np.linalg.LinAlgError("singular vectors are not orthogonal")
    return off
