"""Pinching of one factor of a product, with bounds on its rounding.

X = diag(v) W diag(e) is pinched to A_0 = R_0'X C_0, for a frame of columns C_0 whose first is the
unit vector e and the rows R_0 paired with it. Each rest, another set of columns C_k with its rows
R_k, becomes a number nu_k: the nuclear norm of A_k = R_k'X C_k, or a lower bound on it.

The exact R = (R_0, R_1, ...) and C = (C_0, C_1, ...) are the computed ones orthonormalised by
Gram-Schmidt. This moves them by at most |C'C - I|_F, and the first column keeps its direction.
`slack` bounds the errors of the computed A_k in the Frobenius norm: this move, and the rounding of
the products. For the floats P of a computed polar factor, ||A_k||_* >= <P, A_k> / |P|, and the
departure of its rows from orthonormal ones bounds |P| (docs/theory/product-bound.md).

The levels of a tree are first pinched to its top nodes ((B8), (B9) there).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.errors import BAD_PROOF
from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.shape.batches import orthonormalise
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, IntArray, gamma, to_positions, upper_norm

UNDERFLOW = 2.0**-500
"""A bound on the underflow in products and squares of up to 2^60 numbers in [-1, 1]."""

_LEAST_COUPLING = 0.5
"""The least singular value of a frame's projection on a factor's row space that gets a row."""

_NOISE = 1e-14
"""Singular values below this share of the largest are rounding."""

_EXHAUSTED = 1e-10
"""A Krylov vector shorter than this share of the largest singular value is rounding."""


@dataclass(frozen=True, eq=False)
class Pinch:
    """A factor's X, pinched to a frame with its rows, and to rests.

    Attributes:
        X: Shape (r, P), scaled by 2^-shift.
        loose: What every row adds to each nu in addition to X, scaled by 2^-shift too, shape (r,
            K).
        rows: R_0, shape (r, t').
        frame: C_0, shape (P, t).
        polars: For each of the first rests, the polar factor of R_k A_k C_k', shape (r, P).
        paired: A_0 as computed, shape (t', t).
        rests: Lower bounds on all nu, shape (K,).
        error: A bound on the nuclear norm of the error of `paired`.
        shift: The binary exponent of the scale.
    """

    X: FloatArray
    loose: FloatArray
    rows: FloatArray
    frame: FloatArray
    polars: tuple[FloatArray, ...]
    paired: FloatArray
    rests: FloatArray
    error: float
    shift: int = 0

    @cached_property
    def table(self) -> FloatArray:
        """The entries of G = A_0'A_0, then all nu^2, shape (t^2 + K,)."""
        return np.append(self.paired.T @ self.paired, self.rests**2)

    @property
    def reach(self) -> float:
        """A bound on the sum of all nu, the nuclear norm of `paired`, and `error`."""
        size = math.sqrt(len(self.paired)) * float(upper_norm(self.paired))
        return (math.fsum(self.rests) + size + self.error) * (1 + 8 * UNIT_ROUNDOFF)

    def compute_contraction(self, slope: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute the matrix Z of the bound, as the coefficients of X and of nu in <Z, X>.

        Args:
            slope: The derivative of the bound by the table, shape (t^2 + K,).

        Returns:
            The coefficient of each entry of X, shape (r, P), and of each nu, shape (K,).
        """
        t = self.frame.shape[1]
        pull = self.paired @ slope[: t * t].reshape(t, t)
        weights = slope[t * t :] * self.rests
        along = self.rows @ pull @ self.frame.T
        for weight, polar in zip(weights, self.polars, strict=False):
            along += weight * polar
        return 2 * along, 2 * weights

    def compute_parts(self, slope: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute the contribution of each row and each column of X to the bound.

        Args:
            slope: The derivative of the bound by the table, shape (t^2 + K,).

        Returns:
            Shapes (r,) and (P,). The loose part is included in the rows' contributions only.
        """
        along, weights = self.compute_contraction(slope)
        parts = along * self.X
        return parts.sum(axis=1) + self.loose @ weights, parts.sum(axis=0)


def scale_factor(W: FloatArray, v: FloatArray, e: FloatArray) -> tuple[FloatArray, float, int]:
    """Compute X = 2^-shift diag(v) W diag(e / |e|), of nuclear norm at most 1/2.

    Args:
        W: A factor's rows, shape (r, P).
        v: Shape (r,).
        e: Shape (P,).

    Returns:
        X, a bound on the Frobenius norm of its error, and the shift.
    """
    X = v[:, None] * W * e
    _, first = np.frexp(np.abs(X).max())
    X = np.ldexp(X, -int(first))
    _, second = np.frexp(math.sqrt(min(X.shape)) * upper_norm(X))
    shift = int(first) + int(second) + 1
    X = np.ldexp(X, -int(second) - 1)
    norm = abs(math.fsum(e * e) - 1) + 8 * UNIT_ROUNDOFF  # above ||e| - 1|
    # Each operation may also underflow, before or after the scaling.
    lost = math.ldexp(1.0, -1072 - min(shift, 0)) * math.sqrt(X.size)
    return X, (norm + 4 * UNIT_ROUNDOFF) * float(upper_norm(X)) * 1.01 + lost, shift


def scale_tree(
    shape: TreeShape,
    y: FloatArray,
    p: FloatArray,
    level: str,
    classes: tuple[Sequence[IntArray], int],
) -> tuple[FloatArray, float, int, FloatArray]:
    """Compute X on the top nodes of a tree, as `scale_factor` does, and the loose part.

    Args:
        shape: The tree.
        y: Weights of the level's nodes, shape (nodes,).
        p: Weights of the leaves, shape (n,). The exact weights are p rescaled within each top node,
            to sum to the square of the float used for that node.
        level: The level.
        classes: Per step the class of every node, and the number K of classes.

    Returns:
        X, a bound on the Frobenius norm of its error, the shift, and the loose parts of every row,
        shape (r, K).
    """
    X, loose = pinch_tree(shape, p / p.max(), y, level, classes)
    size = math.sqrt(math.fsum(shape.sum_leaves(p / p.max(), 0)))
    _, top = np.frexp(math.sqrt(min(X.shape)) * upper_norm(X) + math.fsum(loose.ravel()))
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
    error = 2 * UNIT_ROUNDOFF * t
    return Pinch(one / n, 0 * one, side, side, (), paired, np.full(1, rest), error)


def choose_frame(
    X: FloatArray, e: FloatArray, tilt: float, t: int, sides: FloatArray | None = None
) -> FloatArray:
    """Choose the frame: the Krylov space of e under |X|, to which X couples e most strongly.

    With sides s, it is the Krylov space of e and s e, and s e determines the second column.

    Args:
        X: The stacked factors of an attribute, shape (r, n).
        e: A unit vector, shape (n,).
        tilt: The weight of e relative to all other directions in |X|.
        t: The number of columns.
        sides: s, shape (n,); None if there are none.

    Returns:
        Orthonormal columns, shape (n, t), the first of which is e. If the Krylov space has fewer
        dimensions, the remaining columns are arbitrary.
    """
    frame = np.zeros((len(e), t))
    frame[:, :1] = e[:, None][:, :t]
    if t < 2:
        return frame
    _, s, V = _decompose_tilted(X / (np.abs(X).max() or 1.0), e, tilt)
    started = 1 if sides is None else 2
    for width in range(1, t):
        known = frame[:, :width]
        if sides is not None and width == 1:
            v = s[0] * (sides * e)
        else:
            v = V.T @ (s * (V @ known[:, -started]))
        for _ in range(2):
            v -= known @ (known.T @ v)
        size = float(np.linalg.norm(v))
        if size <= _EXHAUSTED * s[0]:
            frame[:, width:] = np.linalg.qr(known, mode="complete")[0][:, width:t]
            break
        frame[:, width] = v / size
    return frame


def split_rest(
    frame: FloatArray, e: FloatArray, spaces: Sequence[FloatArray]
) -> tuple[FloatArray, ...]:
    """Split the column space outside a frame into rests.

    Args:
        frame: Orthonormal columns, shape (n, t).
        e: Square roots of the weights of the columns, shape (n,).
        spaces: Rows (r, n) whose spans are added one after another; each adds a rest. If there are
            none, all columns outside the frame are one rest.

    Returns:
        For each rest, orthonormal columns, shape (n, n_k).
    """
    if not spaces:
        return (np.linalg.qr(frame, mode="complete")[0][:, frame.shape[1] :],)
    known, parts = frame.T, []
    for rows in spaces:
        parts.append(orthonormalise(rows * e, known).T)
        known = np.concatenate([known, parts[-1].T])
    return tuple(parts)


def pinch_factor(
    X: FloatArray,
    frame: FloatArray,
    tilt: float,
    parts: Sequence[FloatArray],
    *,
    error: float = 0.0,
    shift: int = 0,
    loose: FloatArray | None = None,
) -> Pinch:
    """Pinch X with the rows onto which its polar factor maps the frame and every rest.

    Args:
        X: Shape (r, P). Its nuclear norm, at most sqrt(min(r, P)) |X|_F, and the norms that `loose`
            bounds must not exceed 1 together.
        frame: Shape (P, t).
        tilt: The weight of the frame's first column relative to all others in the polar factor.
        parts: The columns of the first rests, each of shape (P, n_k), orthonormal together with
            the frame.
        error: A bound on the Frobenius norm of the error of X.
        shift: The binary exponent of the scale of X.
        loose: Lower bounds on what every row adds to the nuclear norms of further rests, whose
            rows and columns are orthogonal to those of X, shape (r, K'); None if there are none.

    Returns:
        The pinch.
    """
    further = np.zeros((len(X), 0)) if loose is None else loose
    loose = np.concatenate([np.zeros((len(X), len(parts))), further], axis=1)
    chosen = [_choose_rows(X, frame, tilt)]
    rest = X - chosen[0] @ (chosen[0].T @ X)
    rest -= (rest @ frame) @ frame.T
    size = float(upper_norm(X))
    U, s, V = np.linalg.svd(rest, full_matrices=False)
    U, V = U[:, s > _NOISE * size], V[s > _NOISE * size]
    polars = []
    for part in parts:
        image = U @ (V @ part)
        for known in chosen:
            image -= known @ (known.T @ image)
        left, coupling, right = np.linalg.svd(image, full_matrices=False)
        chosen.append(left[:, coupling > _LEAST_COUPLING])
        polars.append(right[coupling > _LEAST_COUPLING])
    rows, columns = np.concatenate(chosen, axis=1), np.concatenate([frame, *parts], axis=1)
    # A product of A (i, k) and B (k, j) is off by at most gamma(k) |A|_F |B|_F, and every matrix
    # here except R and C has a Frobenius norm of at most 1.03 |X|_F.
    terms = gamma(len(X) + 2 * X.shape[1])
    sides = 1 + float(upper_norm(rows)) + float(upper_norm(columns))
    off = upper_departure(rows) + upper_departure(columns)
    slack = 1.01 * (size * 3 * (terms * sides + off) + 2 * error) + UNDERFLOW
    rests = np.zeros(loose.shape[1])
    for k, (left, part, polar) in enumerate(zip(chosen[1:], parts, polars, strict=True)):
        value = math.fsum(np.einsum("ij,ij->i", left.T @ X @ part, polar))
        value -= float(upper_norm(polar)) * (slack + 2 * terms * size) * 1.01
        rests[k] = max(0.0, value) / (1 + upper_departure(polar.T)) * (1 - 4 * UNIT_ROUNDOFF)
    for k, column in enumerate(further.T, start=len(parts)):
        rests[k] = math.fsum(column) * (1 - 4 * UNIT_ROUNDOFF)
    paired = chosen[0].T @ X @ frame
    wide = math.sqrt(paired.shape[0]) * slack
    images = [
        left @ polar @ part.T for left, part, polar in zip(chosen[1:], parts, polars, strict=True)
    ]
    return Pinch(X, loose, chosen[0], frame, tuple(images), paired, rests, wide * 1.01, shift)


def _choose_rows(X: FloatArray, frame: FloatArray, tilt: float) -> FloatArray:
    """Choose orthonormal rows (r, t') near the polar factor's image of the frame."""
    if not frame.shape[1]:
        return np.zeros((len(X), 0))
    U, s, V = _decompose_tilted(X, frame[:, 0], tilt)
    nonzero = s > _NOISE * s[0]
    rows, coupling, _ = np.linalg.svd(U[:, nonzero] @ (V[nonzero] @ frame), full_matrices=False)
    return rows[:, coupling > _LEAST_COUPLING]


def _decompose_tilted(
    X: FloatArray, e: FloatArray, tilt: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Compute the SVD of X with its component along e multiplied by the tilt."""
    U, s, V = np.linalg.svd(X + (tilt - 1) * np.outer(X @ e, e), full_matrices=False)
    return U, s, V


def upper_departure(C: FloatArray) -> float:
    """Bound |C'C - I|_F from above.

    Gram-Schmidt, C = Q (I + N) with N upper triangular, moves C by |N|_F. As N + N' + N'N = C'C - I
    =: M, sqrt(2) |N|_F <= |M|_F + |N|_F^2. By continuity from N = 0 at M = 0, |N|_F <= |M|_F for
    |M|_F <= 0.4.
    """
    k = C.shape[1]
    if not k:
        return 0.0
    size = float(upper_norm(C))
    off = float(upper_norm(C.T @ C - np.eye(k))) * 1.01 + gamma(len(C) + 2) * 1.01 * size**2
    if not off < 1e-3:
        raise np.linalg.LinAlgError(BAD_PROOF)
    return off


def pinch_tree(
    shape: TreeShape,
    p: FloatArray,
    y: FloatArray,
    level: str,
    classes: tuple[Sequence[IntArray], int],
) -> tuple[FloatArray, FloatArray]:
    """Pinch X = diag(y)^1/2 W diag(p)^1/2, for the sums W of a level's nodes, to the top nodes.

    X has rows (y_w p_w)^1/2 s_w'. J maps s_w to row w, and so s_g to sum_w (p_w / p_g)^1/2 w.
    Between these, below the top, X is diag(d) with d_g = sum_{w in g} (p_w / p_g) (y_w p_w)^1/2.
    The rest is split into the contrasts of the children c of every node v, on which <J, X> is
    sum_{w in v} (p_w / p_c - p_w / p_v) (y_w p_w)^1/2.

    Args:
        shape: The tree.
        p: Weights of the leaves, non-negative, shape (n,).
        y: Weights of the level's nodes, non-negative, shape (nodes,).
        level: The level.
        classes: Per step the class of every node v, and the number K of classes.

    Returns:
        X on the top nodes' columns s_g = p|_g^1/2 / p_g^1/2, shape (r, P), where levels below the
        top have one row per top node; and each row's share of <J, X> on the contrasts of every
        class, shape (r, K), rounded down. Both have a relative error of at most
        `upper_relative_error`.
    """
    mass, count = shape.sum_leaves(p, 0), classes[1]
    if level in shape.above:
        rows = shape.build_top_rows(level)
        return np.sqrt(y)[:, None] * rows * np.sqrt(mass), np.zeros((len(rows), count))
    depth, error = shape.depths[level], upper_relative_error(shape)
    tops, inner = shape.find_top_nodes(level), shape.sum_leaves(p, depth)
    size = np.sqrt(y * inner)
    loose = np.zeros(shape.top * count)
    child, below = np.arange(len(inner)), inner
    for step in reversed(range(depth)):
        node, above = shape.parents[step][child], shape.sum_leaves(p, step)
        contrast = np.maximum(1 - _divide(below[child], above[node]) * (1 + error), 0.0)
        part = size * _divide(inner, below[child]) * contrast * (1 - error) ** 2
        loose += np.bincount(
            to_positions(tops * count + classes[0][step][node]), part, shape.top * count
        )
        child, below = node, above
    d = np.bincount(to_positions(tops), _divide(inner, mass[tops]) * size, shape.top)
    return np.diag(d), loose.reshape(shape.top, count)


def _divide(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Divide weights by the weights of the nodes above them; 1 where these are 0."""
    return np.divide(part, whole, out=np.ones(len(whole)), where=whole > 0)


def upper_relative_error(shape: TreeShape) -> float:
    """Bound the relative error of a few sums of non-negative numbers over all leaves."""
    return gamma(4 * shape.n + 64)
