"""The covariance of a node's children that minimises a Lagrangian (docs/theory/trees.md).

For a node with variance s and k children with weights P and K > 0, the minimum of

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
from fitplug.solve import place_poles

_LEAST = 1e-12
"""The least product of a child's weights, relative to the largest of its siblings. A child that no
query needs is measured with next to no precision, but integers must be able to hold it."""

_LEFT = 1e-6
"""The least share of a price that remains after a subtraction."""

_FIRST_STEPS, _STEPS = 12, 2
"""The Newton steps for the multipliers: at first, and from a nearby solution."""


class SharedPrice(NamedTuple):
    """The part c z z' that is subtracted from the price of siblings' precisions at each node.

    Attributes:
        sizes: c, shape (b,).
        shares: z, shape (b, k).
    """

    sizes: FloatArray
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class SiblingCovariances:
    """The covariances of the children of b nodes.

    Attributes:
        multipliers: lambda of each node, shape (b,).
        references: u = Sigma 1 / 1'Sigma 1, shape (b, k).
        variances: The diagonal of C = Sigma - u u' 1'Sigma 1, shape (b, k).
        profiles: The diagonal of X = Sigma^-1 - 11' / 1'Sigma 1, shape (b, k).
        weights: P and K for which they are optimal; None for even ones.
        shared: The subtracted part of the price; None for nothing.
        images: X z for the shares z of children, shape (b, k); None if nothing is subtracted.
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
        """Make covariances that spread nodes evenly over their children."""
        ones = np.ones((b, k))
        return cls(np.zeros(b), ones / k, ones, ones)


def solve_siblings(
    P: FloatArray,
    K: FloatArray,
    s: FloatArray,
    start: SiblingCovariances,
    shared: SharedPrice | None = None,
) -> SiblingCovariances:
    """Find the covariances of the children of several nodes at the price diag(P) - c z z'.

    With this price as P, and Q = diag(K) + lambda 11', Sigma is the sum of omega (Q + tau P^-1)^-1
    over poles, and Sigma^-1 is Q Sigma P^-1. All matrices are diagonal plus two outer products.

    Args:
        P: Weights of the children in the profile, positive, shape (b, k).
        K: Weights of the children's variances, positive, shape (b, k).
        s: The variances of the nodes, shape (b,).
        start: The covariances at nearby weights, or even ones.
        shared: The subtracted part of the price; None for nothing.

    Returns:
        The covariances.
    """
    d, multipliers = _multiply_weights(P, K), start.multipliers
    z, c, left = np.zeros_like(P[:1]), np.zeros_like(s), np.ones_like(s)
    if shared is not None:
        z = shared.shares / P
        size = (shared.shares * z).sum(axis=1)
        c = np.minimum(shared.sizes, (1 - _LEFT) / size)
        left = 1 - c * size
    kappa, steps = c / left, _STEPS if start.weights else _FIRST_STEPS
    cross: FloatArray | float = 0.0
    square: FloatArray | float = 0.0
    for step in range(steps + 1):
        poles = place_poles(
            d.min(axis=1) * np.minimum(left, 1),
            (d.max(axis=1) + multipliers * P.sum(axis=1)) * np.maximum(left, 1),
        )
        E = P[:, :, None] / (d[:, :, None] + poles.tau[:, None])
        ones = E.sum(axis=1)
        if shared is not None:
            cross, square = (z[:, None] @ E)[:, 0], ((z * z)[:, None] @ E)[:, 0]
        first, second = multipliers[:, None], kappa[:, None] * poles.tau
        determinant = (1 + first * ones) * (1 + second * square) - first * second * cross**2
        sums = (ones * (1 + second * square) - second * cross**2) / determinant
        total = (poles.omega * sums).sum(axis=1)
        if step < steps:
            # 1 / s^2 is nearly linear in lambda.
            slope = (poles.omega * sums**2).sum(axis=1)
            multipliers = multipliers + (s**-2.0 - total**-2.0) * total**3 / (2 * slope)
            multipliers = np.maximum(multipliers, 0.0)
    omega = poles.omega / determinant

    def apply(matrices: FloatArray, values: FloatArray) -> FloatArray:
        return np.asarray((matrices @ values[:, :, None])[:, :, 0])

    squares, weight = E * E, d / P
    row_sums = apply(E, omega * (1 + second * square))
    diagonal = apply(E, poles.omega) - apply(squares, omega * first * (1 + second * square))
    images: FloatArray | None = None
    moved: FloatArray | float = 0.0
    moved_sums: FloatArray | float = 0.0
    if shared is not None:
        both, along = omega * first * second * cross, omega * (1 + first * ones)
        row_sums -= z * apply(E, omega * second * cross)
        diagonal += z * (2 * apply(squares, both) - z * apply(squares, second * along))
        image = z * apply(E, along) - apply(E, omega * first * cross)
        across = image.sum(axis=1, keepdims=True)
        moved, moved_sums = kappa[:, None] * image * z, kappa[:, None] * across * z
        images = (weight * image + first * across) / left[:, None]
        images -= shared.shares.sum(axis=1, keepdims=True) / total[:, None]
    inverse = weight * (diagonal / P + moved) + first * (row_sums / P + moved_sums)
    references = row_sums / total[:, None]
    return SiblingCovariances(
        multipliers=multipliers,
        references=references,
        variances=np.maximum(diagonal - references**2 * total[:, None], 0.0),
        profiles=np.maximum(inverse - 1 / total[:, None], 0.0),
        weights=(P, K),
        shared=None if shared is None else SharedPrice(c, shared.shares),
        images=images,
    )


def build_strategies(siblings: SiblingCovariances) -> FloatArray:
    """Build upper trapezoidal A with A'A = X for several nodes, shape (b, k - 1, k)."""
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
    """Multiply the weights of children, (b, k), limited to the range that integers can hold."""
    d = P * K
    return np.asarray(np.maximum(d, _LEAST * d.max(axis=1, keepdims=True)))
