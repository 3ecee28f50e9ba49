"""The matrix geometric mean, which minimises tr(P S^-1) + tr(Q S) over S."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.blas import dtrmm

from fitplug.problem import Block

Array: TypeAlias = npt.NDArray[np.float64]


def geometric_mean(block: Block, p: Array, q: Array) -> tuple[float, Array, Array]:
    """T of one block, F^-1 and F, with F F' = P # Q^-1.

    R R' = P;  R' Q R = U diag(s^2) U';  T = sum s;  F = R U diag(s^-1/2).
    """
    B, L = block.basis, block.representation
    # NumPy forms X X' as a symmetric product, at half the work of a general one.
    rooted_B = B * np.sqrt(block.weight * p)
    rooted_L = L * np.sqrt(q[block.rows])[:, None]
    R = cholesky(rooted_B @ rooted_B.T, lower=True)
    Q = rooted_L.T @ rooted_L
    squares, U = np.linalg.eigh(
        dtrmm(1.0, R, dtrmm(1.0, R, Q, lower=1, side=1), lower=1, trans_a=1)
    )
    if squares[0] > 1e-11 * squares[-1]:
        s = np.sqrt(squares)
    else:
        # The eigenvalues are squares, so small ones drown in rounding; the singular values of a
        # factor do not.
        _, s, Vt = np.linalg.svd(rooted_L @ R, full_matrices=False)
        s, U = np.maximum(s, np.finfo(float).tiny), Vt.T
    root = np.sqrt(s)
    whitener = solve_triangular(R, U * root, lower=True, trans="T").T
    return float(s.sum()), whitener, dtrmm(1.0, R, U, lower=1) / root
