"""The covariance of a node's children that minimises a Lagrangian (docs/theory/trees.md).

Of a node with variance s and k children with weights P and K > 0, the minimum of

    tr(diag(P) Sigma^-1) + tr(diag(K) Sigma)    subject to 1'Sigma 1 = s

is at the geometric mean Sigma = diag(P) # (diag(K) + lambda 11')^-1 for some lambda. With d = P K,
v = P^1/2 and N = diag(d) + lambda v v', it is P^1/2 N^-1/2 P^1/2. Rational approximations of N^-1/2
and the formula of Sherman and Morrison give its diagonal, its row sums and the diagonal of its
inverse in time linear in k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fitplug.numeric import FloatArray
from fitplug.solve import Poles, place_poles

_LEAST = 1e-12
"""The least product of a child's weights, relative to the largest of its siblings. A child that
nobody asks for is measured with next to no precision, but integers must hold it."""

_LEFT = 1e-6
"""The least part of a price that remains where something is taken off."""

_FIRST_STEPS, _STEPS = 12, 2
"""Newton steps for the multipliers."""


class SharedPrice(NamedTuple):
    """What is taken off the price of the precisions of siblings: c z z' for each node.

    Attributes:
        sizes: c, shape (b,).
        shares: z, shape (b, k).
    """

    sizes: FloatArray
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class SiblingCovariances:
    """What the children of b nodes have.

    Attributes:
        multipliers: lambda of each node, shape (b,).
        references: u = Sigma 1 / 1'Sigma 1, shape (b, k).
        variances: The diagonal of C = Sigma - u u' 1'Sigma 1, shape (b, k).
        profiles: The diagonal of X = Sigma^-1 - 11' / 1'Sigma 1, shape (b, k).
        weights: P and K, at which they were found; None for even ones.
        shared: What pairs of children share; None for nothing.
        images: X z for the shares z of children, shape (b, k), where pairs share something.
    """

    multipliers: FloatArray
    references: FloatArray
    variances: FloatArray
    profiles: FloatArray
    weights: tuple[FloatArray, FloatArray] | None = None
    shared: SharedPrice | None = None
    images: FloatArray | None = None

    @classmethod
    def make_even(cls, b: int, k: int) -> SiblingCovariances:
        """Spread nodes evenly over their children."""
        ones = np.ones((b, k))
        return cls(np.zeros(b), ones / k, ones, ones)


def solve_siblings(
    P: FloatArray, K: FloatArray, s: FloatArray, start: SiblingCovariances
) -> SiblingCovariances:
    """Find the covariances of the children of several nodes.

    Args:
        P: Weights of the children in the profile, positive, shape (b, k).
        K: Weights of the children's variances, positive, shape (b, k).
        s: The variances of the nodes, shape (b,).
        start: What is found at weights near to these, or even covariances.

    Returns:
        The covariances.
    """
    d, multipliers = _multiply_weights(P, K), start.multipliers
    for _ in range(_STEPS if start.weights else _FIRST_STEPS):
        poles = _place(d, P, multipliers)
        sums = _sum_over_children(d, P, poles)
        shrink = 1 + multipliers[:, None] * sums
        total = (poles.omega * sums / shrink).sum(axis=1)
        slope = (poles.omega * (sums / shrink) ** 2).sum(axis=1)
        # 1 / s^2 is nearly linear in lambda.
        step = (s**-2.0 - total**-2.0) * total**3 / (2 * slope)
        multipliers = np.maximum(multipliers + step, 0.0)
    poles = _place(d, P, multipliers)
    sums = _sum_over_children(d, P, poles)
    shrink = 1 + multipliers[:, None] * sums
    total = (poles.omega * sums / shrink).sum(axis=1)
    inverse = 1 / (d[:, :, None] + poles.tau[:, None, :])
    row_sums = P * (inverse @ (poles.omega / shrink)[:, :, None])[:, :, 0]
    inverse *= inverse
    share = poles.omega * multipliers[:, None] / shrink
    less = (inverse @ share[:, :, None])[:, :, 0]
    more = (inverse @ (share * poles.tau)[:, :, None])[:, :, 0]
    references = row_sums / total[:, None]
    diagonal = P * (d**-0.5 - P * less)
    return SiblingCovariances(
        multipliers=multipliers,
        references=references,
        variances=np.maximum(diagonal - references**2 * total[:, None], 0.0),
        profiles=np.maximum((d**0.5 + P * more) / P - 1 / total[:, None], 0.0),
        weights=(P, K),
    )


def solve_sharing_siblings(
    P: FloatArray, K: FloatArray, s: FloatArray, shared: SharedPrice, start: SiblingCovariances
) -> SiblingCovariances:
    """Find the covariances of the children of several nodes at the price diag(P) - c z z'.

    With it in the place of diag(P), and Q = diag(K) + lambda 11', Sigma is the sum of the poles'
    omega (Q + tau P^-1)^-1, and Sigma^-1 is Q Sigma P^-1. The matrices are diagonal ones and two
    outer products.

    Args:
        P: Weights of the children in the profile, positive, shape (b, k).
        K: Weights of the children's variances, positive, shape (b, k).
        s: The variances of the nodes, shape (b,).
        shared: What is taken off.
        start: What is found at weights near to these, or even covariances.

    Returns:
        The covariances.
    """
    d, multipliers = _multiply_weights(P, K), start.multipliers
    z = shared.shares / P
    size = (shared.shares * z).sum(axis=1)
    c = np.minimum(shared.sizes, (1 - _LEFT) / size)
    left = 1 - c * size
    kappa = c / left
    for step in range((_STEPS if start.weights else _FIRST_STEPS) + 1):
        poles = place_poles(
            d.min(axis=1) * np.minimum(left, 1),
            (d.max(axis=1) + multipliers * P.sum(axis=1)) * np.maximum(left, 1),
        )
        E = P[:, :, None] / (d[:, :, None] + poles.tau[:, None])
        ones, cross = E.sum(axis=1), (z[:, None] @ E)[:, 0]
        square = ((z * z)[:, None] @ E)[:, 0]
        first, second = multipliers[:, None], kappa[:, None] * poles.tau
        determinant = (1 + first * ones) * (1 + second * square) - first * second * cross**2
        sums = (ones * (1 + second * square) - second * cross**2) / determinant
        total = (poles.omega * sums).sum(axis=1)
        if step < (_STEPS if start.weights else _FIRST_STEPS):
            slope = (poles.omega * sums**2).sum(axis=1)
            multipliers = multipliers + (s**-2.0 - total**-2.0) * total**3 / (2 * slope)
            multipliers = np.maximum(multipliers, 0.0)
    omega = poles.omega / determinant

    def apply(one: FloatArray, along: FloatArray) -> FloatArray:
        return np.asarray((E @ one[:, :, None])[:, :, 0] + z * (E @ along[:, :, None])[:, :, 0])

    row_sums = apply(omega * (1 + second * square), -omega * second * cross)
    image = apply(-omega * first * cross, omega * (1 + first * ones))
    squares = E * E
    diagonal = (E @ poles.omega[:, :, None])[:, :, 0]
    for factor, power in (
        (first * (1 + second * square), 0),
        (-2 * first * second * cross, 1),
        (second * (1 + first * ones), 2),
    ):
        diagonal -= z**power * (squares @ (omega * factor)[:, :, None])[:, :, 0]
    references = row_sums / total[:, None]
    across = image.sum(axis=1, keepdims=True)
    kept = d / P
    inverse = kept * (diagonal / P + kappa[:, None] * image * z)
    inverse += first * (row_sums / P + kappa[:, None] * across * z)
    images = (kept * image + first * across) / left[:, None]
    return SiblingCovariances(
        multipliers=multipliers,
        references=references,
        variances=np.maximum(diagonal - references**2 * total[:, None], 0.0),
        profiles=np.maximum(inverse - 1 / total[:, None], 0.0),
        weights=(P, K),
        shared=SharedPrice(c, shared.shares),
        images=images - shared.shares.sum(axis=1, keepdims=True) / total[:, None],
    )


def build_strategies(siblings: SiblingCovariances) -> FloatArray:
    """Build A with A'A = X, upper trapezoidal, of several nodes, shape (b, k - 1, k)."""
    assert siblings.weights is not None
    P, K = siblings.weights
    v = np.sqrt(P)
    N = siblings.multipliers[:, None, None] * v[:, :, None] * v[:, None, :]
    at = np.arange(P.shape[1])
    d = _multiply_weights(P, K)
    N[:, at, at] += d
    least = d.min(axis=1, keepdims=True)
    root: FloatArray | None = None
    if siblings.shared is not None:
        # The price is V R R'V with V = diag(v).
        c, z = siblings.shared
        along = z / v
        size = (along * along).sum(axis=1)
        least = least * np.minimum(1 - c * size, 1)[:, None]
        change = (np.sqrt(1 - c * size) - 1) / size
        root = change[:, None, None] * along[:, :, None] * along[:, None, :]
        root[:, at, at] += 1
        N = root @ N @ root
    values, vectors = np.linalg.eigh(N)
    quarter = np.maximum(values, least) ** 0.25
    ones = v[:, :, None] if root is None else root @ v[:, :, None]
    image = (vectors.transpose(0, 2, 1) @ ones)[:, :, 0] / quarter
    size = np.sqrt((image * image).sum(axis=1))
    # Sigma^-1 = H'H, and w = H'^-1 1 / s^1/2 is a unit vector: X = H'(I - ww')H.
    H = quarter[:, :, None] * vectors.transpose(0, 2, 1)
    H = (H if root is None else H @ np.linalg.inv(root)) / v[:, None, :]
    rest = H - (image / size[:, None] ** 2)[:, :, None]
    R = np.asarray(np.linalg.qr(rest, mode="r"))[:, :-1]
    signs = np.where(np.diagonal(R, axis1=1, axis2=2) < 0, -1.0, 1.0)
    return np.asarray(R * signs[:, :, None])


def _multiply_weights(P: FloatArray, K: FloatArray) -> FloatArray:
    """Multiply the weights of children, (b, k), within the range that integers can hold."""
    d = P * K
    return np.asarray(np.maximum(d, _LEAST * d.max(axis=1, keepdims=True)))


def _place(d: FloatArray, P: FloatArray, multipliers: FloatArray) -> Poles:
    """Place poles for the eigenvalues of diag(d) + lambda v v'."""
    return place_poles(d.min(axis=1), d.max(axis=1) + multipliers * P.sum(axis=1))


def _sum_over_children(d: FloatArray, P: FloatArray, poles: Poles) -> FloatArray:
    """Compute v'(diag(d) + tau)^-1 v, shape (b, poles)."""
    return np.asarray((P[:, None, :] @ (1 / (d[:, :, None] + poles.tau[:, None, :])))[:, 0])
