"""The certificate: a lower bound on every mechanism's privacy cost, from dual weights alone.

Nothing here trusts a solver. For ANY non-negative p (d,) and q (m,), by weak duality,

    Delta* >= || diag(q / c)^1/2 W diag(p)^1/2 ||_*  / sqrt(sum p * sum q)

with the nuclear norm; no mechanism that answers W with Gaussian noise of variance at most c, and
no post-processing of one, costs less. The rounding of the evaluation is subtracted.

With budgets s per cell and a weight on the total squared error, q / c becomes q / c + weight sum q,
p becomes p / s, and the same bounds the root of

    max_i (profile_i / s_i) * (max_j (variance_j / c_j) + weight * sum_j variance_j).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.rounding import UNIT, gamma

Array: TypeAlias = npt.NDArray[np.float64]


def lower_bound(
    W: Array,
    targets: Array,
    p: Array,
    q: Array,
    *,
    budgets: Array | None = None,
    weight: float = 0.0,
) -> float:
    """A certified lower bound on the privacy cost Delta of W (m, d) at targets c (m,).

    budgets (d,), positive, and weight: see the module. Raises ValueError if p (d,) or q (m,) is
    negative, not finite or sums to zero.
    """
    for name, dual, size in (("p", p, W.shape[1]), ("q", q, W.shape[0])):
        fits = dual.shape == (size,) and dual.dtype == np.float64
        if not fits or not np.isfinite(dual).all() or (dual < 0).any():
            raise ValueError(f"dual weights {name} must be {size} finite numbers >= 0")
        if not dual.sum() > 0:
            raise ValueError(f"dual weights {name} are all zero")
    # Homogeneous of degree one half in each: scaled so that no sum can under- or overflow.
    p, q = p / p.max(), q / q.max()
    rows = np.sqrt(q / targets + weight * q.sum())
    columns = np.sqrt(p if budgets is None else p / budgets)
    # What has no weight adds nothing to the norm.
    X = W[np.ix_(rows > 0, columns > 0)] * rows[rows > 0, None] * columns[columns > 0]
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
