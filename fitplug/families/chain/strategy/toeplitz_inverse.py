"""The inverse of a lower triangular Toeplitz matrix, with proven errors.

T has the entries t_(i - j). Its inverse has v_(i - j), where t * v = 1, 0, 0, ..., and the prefix
sums of T^-1 have u_(i - j), where t * u = 1, 1, 1, ... Both are found by Newton's iteration, and
their errors follow from what is left over (docs/theory/chains.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.errors import DesignError
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    FloatArray,
    IntArray,
    convolve,
    convolve_with_bound,
    gamma,
    upper_norm,
)


@dataclass(frozen=True, eq=False)
class ToeplitzInverse:
    """The sequences of T^-1 and of its prefix sums.

    Attributes:
        v: Those of T^-1, shape (n,).
        u: Those of its prefix sums, shape (n,).
        v_error: A bound on the error of each entry of v.
        u_error: A bound on the error of each entry of u.
    """

    v: FloatArray
    u: FloatArray
    v_error: float
    u_error: float


def invert_toeplitz(sequence: IntArray) -> ToeplitzInverse:
    """Invert T, of which a sequence t (n,) with t_0 > 0 is the first column.

    Raises:
        DesignError: If T is too ill-conditioned for proven errors.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _invert_by_newton(sequence.astype(np.float64))


def _invert_by_newton(t: FloatArray) -> ToeplitzInverse:
    """Invert T of a first column t (n,)."""
    n = len(t)
    v = np.array([1 / t[0]])
    while len(v) < n:
        length = min(2 * len(v), n)
        v = np.concatenate([v, np.zeros(length - len(v))])
        v = v + convolve(v, _find_rest(t[:length], v, np.eye(1, length)[0])[0])
    v_rest, v_worst = _find_rest(t, v, np.eye(1, n)[0])
    # With R = 1 - t * v, the exact sequence is v * (1 - R)^-1, in the algebra of absolute sums.
    R = (float(np.abs(v_rest).sum()) + n * v_worst) * (1 + gamma(n))
    if not R < 0.5:
        raise DesignError(
            "the strategy is too ill-conditioned to bound its variances; "
            "targets may differ by too many orders of magnitude"
        )
    total = float(np.abs(v).sum()) * (1 + gamma(n)) / (1 - R)
    u = np.cumsum(v)
    u = u + convolve(v, _find_rest(t, u, np.ones(n))[0])
    u_rest, u_worst = _find_rest(t, u, np.ones(n))
    up = 1 + gamma(8)
    return ToeplitzInverse(
        v=v,
        u=u,
        v_error=total * (float(np.abs(v_rest).max()) + v_worst) * up,
        u_error=total * (float(np.abs(u_rest).max()) + u_worst) * up,
    )


def _find_rest(t: FloatArray, v: FloatArray, wanted: FloatArray) -> tuple[FloatArray, float]:
    """Find what t * v lacks of the wanted entries (n,), and a bound on the error of each entry."""
    product, error = convolve_with_bound(t, v)
    rest = wanted - product
    return rest, error + UNIT_ROUNDOFF * float(upper_norm(rest))
