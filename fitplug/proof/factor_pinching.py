"""One factor of a product pinched (see `product_bound`), and what its rounding can amount to.

X = diag(v) W diag(e) becomes A = R'X C, on a frame of columns C that begins with the unit vector e
and the rows R that go with it, and rho, the nuclear norm of the rest T = (I - R R') X (I - C C').

The exact R and C meant are those that Gram-Schmidt makes of the computed, which it moves by at most
|C'C - I|_F; the first column keeps its direction. `slack` bounds what A and T as computed are off
by in the Frobenius norm: through that and through the rounding of the products. For the floats P of
a computed polar factor, ||T||_* >= <P, T> / |P|, and |P| is bounded by how far the singular vectors
that it multiplies are from orthonormal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, bound_norm, gamma
from fitplug.proof.tree_pinching import pinched_parts, rounding
from fitplug.structure import TreeShape

UNDERFLOW = 2.0**-500
"""Above what products and squares of at most 2^60 numbers in [-1, 1] can lose by underflow."""

_SEEN = 0.5  # of a frame's column, in the space that a factor's rows span
_NOISE = 1e-14  # of a largest singular value: directions below it are rounding
_EXHAUSTED = 1e-10  # of a largest singular value: what is left of a Krylov vector


@dataclass(frozen=True, eq=False)
class Pinch:
    """A factor's X (r, P), pinched to rows R (r, t') and a frame C (P, t) and their complements.

    loose: what every row adds to the nuclear norm of the rest beside X, (r,). polar: of the rest,
    (r, P). rest: a lower bound on rho. paired: A as computed, and `error` bounds the nuclear norm
    of what it is off by. shift: X and loose are 2^-shift times those meant.
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
        """G, then rho^2, (t^2 + 1,)."""
        return np.append(self.paired.T @ self.paired, self.rest**2)

    @property
    def reach(self) -> float:
        """Above rho, the nuclear norm of `paired` and `error` together."""
        size = math.sqrt(len(self.paired)) * float(bound_norm(self.paired))
        return (self.rest + size + self.error) * (1 + 8 * UNIT_ROUNDOFF)

    def parts(self, slope: FloatArray) -> FloatArray:
        """What every row of X adds to the bound, (r,); slope: its derivative by the table."""
        t = self.frame.shape[1]
        pull = self.paired @ slope[:-1].reshape(t, t)
        weight = slope[-1] * self.rest
        along = self.rows @ pull @ self.frame.T + weight * self.polar
        return np.asarray(2 * ((along * self.X).sum(axis=1) + weight * self.loose))


def scaled(W: FloatArray, v: FloatArray, e: FloatArray) -> tuple[FloatArray, float, int]:
    """X = 2^-shift diag(v) W diag(e / |e|), of nuclear norm at most 1/2, a bound on the Frobenius
    norm of the error of its entries, and the shift."""
    X = v[:, None] * W * e
    _, first = np.frexp(np.abs(X).max())
    X = np.ldexp(X, -int(first))
    _, second = np.frexp(math.sqrt(min(X.shape)) * bound_norm(X))
    shift = int(first) + int(second) + 1
    X = np.ldexp(X, -int(second) - 1)
    norm = abs(math.fsum(e * e) - 1) + 8 * UNIT_ROUNDOFF  # above ||e| - 1|
    # Each of the operations may also underflow, before or after the scaling.
    lost = math.ldexp(1.0, -1072 - min(shift, 0)) * math.sqrt(X.size)
    return X, (norm + 4 * UNIT_ROUNDOFF) * float(bound_norm(X)) * 1.01 + lost, shift


def scaled_tree(
    shape: TreeShape, y: FloatArray, p: FloatArray, level: str
) -> tuple[FloatArray, float, int, FloatArray]:
    """`scaled` on the top nodes of a tree, with the loose part: X, the error, the shift, loose.

    The p meant have the given shares in each top node's, whose sums are the squares of the floats
    used for it.
    """
    X, loose = pinched_parts(shape, p / p.max(), y, level)
    size = math.sqrt(math.fsum(shape.sums(p / p.max(), 0)))
    _, top = np.frexp(math.sqrt(min(X.shape)) * bound_norm(X) + math.fsum(loose))
    _, more = np.frexp(1 / size)
    shift = int(top) + int(more) + 1
    X, loose = np.ldexp(X / size, -shift), np.ldexp(loose / size * (1 - 8 * UNIT_ROUNDOFF), -shift)
    return X, 4 * rounding(shape) * float(bound_norm(X)) + UNDERFLOW, shift, loose


def symmetric(n: int, t: int) -> Pinch:
    """X = I / n, of uniform p and y."""
    one, none = np.ones((1, 1)), np.zeros((1, 0))
    rest = (1 - 1 / n) * (1 - 4 * UNIT_ROUNDOFF) if t else 1.0
    side = one if t else none
    paired = one / n if t else np.zeros((0, 0))
    return Pinch(one / n, np.zeros(1), side, side, 0 * one, paired, rest, 2 * UNIT_ROUNDOFF * t)


def frame_of(X: FloatArray, e: FloatArray, tilt: float, t: int) -> FloatArray:
    """Orthonormal columns (n, t), e the first of them: the Krylov space of e under |X|, where X
    couples e the most; any others once that is exhausted."""
    frame = np.zeros((len(e), t))
    frame[:, :1] = e[:, None][:, :t]
    if t < 2:
        return frame
    _, s, V = _tilted(X / (np.abs(X).max() or 1.0), e, tilt)
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


def pinch(
    X: FloatArray,
    frame: FloatArray,
    tilt: float,
    *,
    error: float = 0.0,
    shift: int = 0,
    loose: FloatArray | None = None,
) -> Pinch:
    """X (r, P) pinched with the rows that the polar factor takes the frame to.

    error: of X, a bound in the Frobenius norm. loose: lower bounds (r,) on what every row adds to
    the nuclear norm of a part of the rest that is left out of X, its rows and columns orthogonal to
    those of X. The nuclear norms of X, at most sqrt(min(r, P)) |X|_F, and of that part must not
    exceed 1 together.
    """
    loose = np.zeros(len(X)) if loose is None else loose
    rows = _rows(X, frame, tilt)
    within = rows.T @ X
    paired = within @ frame
    rest = X - rows @ within
    rest -= (rest @ frame) @ frame.T
    size = float(bound_norm(X))
    # A product of A (i, k) and B (k, j) is off by at most gamma(k) |A|_F |B|_F, and every matrix
    # here but R and C has a Frobenius norm of at most 1.03 |X|_F. R R' is off by at most 2.01 times
    # what R is off by.
    terms = gamma(len(X) + 2 * X.shape[1])
    sides = 1 + float(bound_norm(rows)) + float(bound_norm(frame))
    off = _departure(rows) + _departure(frame)
    slack = 1.01 * (size * 3 * (terms * sides + off) + 2 * error) + UNDERFLOW
    U, s, V = np.linalg.svd(rest, full_matrices=False)
    kept = s > _NOISE * size
    U, V = U[:, kept], V[kept]
    polar = U @ V
    width = 1 + _departure(U) + _departure(V.T) + 2 * gamma(len(V)) * len(V)  # above |polar|
    held = math.fsum(np.einsum("ij,ij->i", polar, rest))
    held -= float(bound_norm(polar)) * (slack + 2 * terms * size) * 1.01
    rho = max(0.0, held) / width * (1 - 4 * UNIT_ROUNDOFF)
    rho = (rho + math.fsum(loose)) * (1 - 4 * UNIT_ROUNDOFF)
    wide = math.sqrt(rows.shape[1]) * slack
    return Pinch(X, loose, rows, frame, polar, paired, rho, wide * 1.01, shift)


def _rows(X: FloatArray, frame: FloatArray, tilt: float) -> FloatArray:
    if not frame.shape[1]:
        return np.zeros((len(X), 0))
    U, s, V = _tilted(X, frame[:, 0], tilt)
    kept = s > _NOISE * s[0]
    rows, seen, _ = np.linalg.svd(U[:, kept] @ (V[kept] @ frame), full_matrices=False)
    return rows[:, seen > _SEEN]


def _tilted(X: FloatArray, e: FloatArray, tilt: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    U, s, V = np.linalg.svd(X + (tilt - 1) * np.outer(X @ e, e), full_matrices=False)
    return U, s, V


def _departure(C: FloatArray) -> float:
    """An upper bound on |C'C - I|_F.

    Gram-Schmidt, C = Q (I + N) with N upper triangular, moves C by |N|_F: as
    N + N' + N'N = C'C - I =: M, sqrt(2) |N|_F <= |M|_F + |N|_F^2, and so, from N = 0 at M = 0 on,
    |N|_F <= |M|_F for |M|_F <= 0.4.
    """
    k = C.shape[1]
    if not k:
        return 0.0
    size = float(bound_norm(C))
    off = float(bound_norm(C.T @ C - np.eye(k))) * 1.01 + gamma(len(C) + 2) * 1.01 * size**2
    if not off < 1e-3:
        raise np.linalg.LinAlgError("singular vectors are not orthogonal")
    return off
