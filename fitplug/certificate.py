"""The certificate: a lower bound on every mechanism's privacy cost, from dual weights alone.

Nothing here trusts a solver. For ANY non-negative p (d,) and q (m,), by weak duality,

    Delta* >= || diag(q / c)^1/2 W diag(p)^1/2 ||_*  / sqrt(sum p * sum q)

with the nuclear norm; no mechanism that answers W with Gaussian noise of variance at most c, and
no post-processing of one, costs less. The rounding of the evaluation is subtracted.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.rounding import UNIT, gamma

Array: TypeAlias = npt.NDArray[np.float64]


def lower_bound(W: Array, targets: Array, p: Array, q: Array) -> float:
    """A certified lower bound on the privacy cost Delta of W (m, d) at targets c (m,).

    Raises ValueError if p (d,) or q (m,) is negative, not finite or sums to zero.
    """
    for name, weight, size in (("p", p, W.shape[1]), ("q", q, W.shape[0])):
        fits = weight.shape == (size,) and weight.dtype == np.float64
        if not fits or not np.isfinite(weight).all() or (weight < 0).any():
            raise ValueError(f"dual weights {name} must be {size} finite numbers >= 0")
        if not weight.sum() > 0:
            raise ValueError(f"dual weights {name} are all zero")
    # Homogeneous of degree one half in each: scaled so that no sum can under- or overflow.
    p, q = p / p.max(), q / q.max()
    X = np.sqrt(q / targets)[:, None] * W * np.sqrt(p)
    if X.shape[0] > X.shape[1]:
        X = X.T
    singular = np.linalg.svd(X, compute_uv=False)
    # Backward stability: computed singular values are those of X + E, |E|_2 <= c u |X|_F with c a
    # modest multiple of the dimensions (LAPACK Users' Guide, section 4.9); each entry of X itself
    # carries a few roundings. By Weyl each of the r values is off by at most |E|_2.
    r, n = X.shape
    error = r * (10 * (r + n) + 16) * UNIT * math.sqrt(float((X * X).sum()))
    nuclear = float(singular.sum()) * (1 - gamma(r)) - error
    mass = math.sqrt(float(p.sum()) * float(q.sum())) * (1 + 2 * gamma(W.shape[0] + W.shape[1]))
    return max(0.0, nuclear / mass)
