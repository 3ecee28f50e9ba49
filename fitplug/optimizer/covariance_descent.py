"""The least Lagrangian over one ordered split (see `residual_descent`), in closed form."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, cholesky, eigh

from fitplug.numeric import FloatArray
from fitplug.optimizer.residual_family import Ordered


def descended(
    split: Ordered, p: FloatArray, price: float, asked: list[tuple[FloatArray, FloatArray]]
) -> Ordered:
    """(u, C) at the least Lagrangian, first C, then u.

    price: what p'eta costs. asked: per factor its rows W (r, n) and the weights (r, 2) of mu^2 and
    gamma. With N_i the cells' and f_j the rows' contrasts,
        price sum_i p_i (N_i - v)'G^-1(N_i - v) + sum_j weight_j1 f_j'G f_j + weight_j0 mu_j^2.
    """
    N = split.contrasts
    W = np.concatenate([rows for rows, _ in asked])
    weight = np.concatenate([pull for _, pull in asked])
    f, mean = W @ N, W.mean(axis=1)
    X = N - split.reference
    R = cholesky(price * (X.T * p) @ X, lower=True)
    squares, U = eigh(R.T @ ((f.T * weight[:, 1]) @ f) @ R)
    root = R @ U / np.maximum(squares, np.finfo(float).tiny) ** 0.25
    G = root @ root.T
    inverse = price * cho_solve((cholesky(G, lower=True), True), np.eye(len(G)))
    normal = (f.T * weight[:, 0]) @ f + inverse
    v = np.linalg.solve(normal, inverse @ (p @ N) - f.T @ (weight[:, 0] * mean))
    return Ordered(N, v, G)
