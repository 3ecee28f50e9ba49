"""The bound of chains: never above what it bounds, and close to it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fitplug as fp
from fitplug.certify import place_poles
from fitplug.families import Objective, analyse_structure, certify_bound
from fitplug.families.base.family import NO_FRAME, Duals
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.chain.certificate.chains import (
    lower_chain_trace,
    sweep_chain,
    upper_sweep_error,
)
from tests.helpers.chains import analyse_chain, ask_chain


def compute_trace(p: np.ndarray, w: np.ndarray, c: np.ndarray) -> float:
    n = len(p)
    rows = np.vstack([np.sqrt(w)[:, None] * np.tril(np.ones((n, n))), np.diag(np.sqrt(c))])
    return float(np.linalg.svd(rows * np.sqrt(p), compute_uv=False).sum())


def draw_weights(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of many orders of magnitude, some of them zero."""
    rng = np.random.default_rng(seed)
    spread = rng.integers(0, 6)
    drawn = 10.0 ** (spread * rng.normal(size=(3, n)) / 2) * (rng.random((3, n)) < 0.8)
    drawn[:, rng.integers(0, n)] = 1.0
    return drawn[0], drawn[1], drawn[2] * rng.integers(0, 2)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40, 150])
@pytest.mark.parametrize("seed", range(8))
def test_the_bound_is_below_the_trace_and_close(n: int, seed: int) -> None:
    p, w, c = draw_weights(n, seed)
    p = p / p.max()
    exact, found = compute_trace(p, w, c), lower_chain_trace(p, w, c)
    assert exact * (1 - 1e-4) <= found <= exact


def test_posterior_variances_in_rational_arithmetic() -> None:
    p, w, c = draw_weights(9, 11)
    quadrature = place_poles(1.0, 9)
    chosen = quadrature._replace(poles=quadrature.poles[20:21], weights=np.ones(1))
    sums = sweep_chain(p, w, c, chosen)
    t = Fraction(float(chosen.poles[0]))
    n = len(p)
    # The covariance (t / p + W' w W + c)^-1 of the cells, by Gauss-Jordan, where p is not zero.
    kept = np.flatnonzero(p)
    K = [
        [
            sum((Fraction(w[j]) for j in range(max(a, b), n)), Fraction(0))
            + (t / Fraction(p[a]) + Fraction(c[a]) if a == b else 0)
            for b in kept.tolist()
        ]
        for a in kept.tolist()
    ]
    size = len(kept)
    rows = [K[i] + [Fraction(i == j) for j in range(size)] for i in range(size)]
    for i in range(size):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    S = [row[size:] for row in rows]
    for j in range(n):
        those = [i for i, cell in enumerate(kept.tolist()) if cell <= j]
        exact = sum((S[a][b] for a in those for b in those), Fraction(0))
        assert abs(Fraction(sums.prefixes[j]) - exact) <= Fraction(upper_sweep_error(n)) * exact
    for i, cell in enumerate(kept.tolist()):
        assert abs(Fraction(sums.cells[cell]) / S[i][i] - 1) <= Fraction(upper_sweep_error(n))


def test_long_chains_in_extended_precision() -> None:
    n = 5000
    p, w, c = draw_weights(n, 4)
    quadrature = place_poles(1.0, n)
    t = quadrature.poles.astype(np.longdouble)
    F, forward = np.zeros_like(t), []
    for j in range(n):
        P = F + p[j] / (t + c[j] * p[j])
        F = P / (1 + w[j] * P)
        forward.append(F)
    information, exact = np.zeros_like(t), np.zeros(n, dtype=np.longdouble)
    for j in range(n - 1, -1, -1):
        exact[j] = quadrature.weights @ (forward[j] / (1 + forward[j] * information))
        J = information + w[j]
        information = J / (1 + p[j] / (t + c[j] * p[j]) * J)
    found = sweep_chain(p, w, c, quadrature).prefixes
    assert np.abs(found / exact - 1).max() <= upper_sweep_error(n) < 1e-8


def test_slopes_are_the_derivatives() -> None:
    p, w, c = draw_weights(40, 6)
    p, c = p + 0.1, c + 0.1
    sums = sweep_chain(p, w, c, place_poles(float(w @ np.cumsum(p) + c @ p), 40))
    for i in (0, 7, 39):
        step = np.zeros(40)
        step[i] = 1e-4 * p[i]
        slope = (compute_trace(p + step, w, c) - compute_trace(p - step, w, c)) / (2 * step[i])
        assert sums.slopes[i] / 2 == pytest.approx(slope, rel=1e-3)


def test_poles_never_say_more_than_the_square_root() -> None:
    for step in (1, 2):
        poles, weights = place_poles(1.0, 1000, step=step)
        x = 10.0 ** np.linspace(-20, 20, 2001)
        sums = (weights / (x[:, None] + poles)).astype(np.longdouble).sum(axis=1)
        assert (sums * np.sqrt(x.astype(np.longdouble)) <= 1 + 1e-15).all()
        middle = (x > 1e-6) & (x < 1)
        assert (sums * np.sqrt(x))[middle].min() > 1 - (1e-4, 1e-2)[step - 1]


@pytest.mark.parametrize("crossed", [False, True])
def test_the_bound_is_that_of_the_dense_problem(crossed: bool) -> None:
    n, rng = 30, np.random.default_rng(8)
    groups = [
        fp.queries({"x": "prefix"}, variance=rng.uniform(1, 3, n)),
        fp.queries({"x": "identity"}, variance=rng.uniform(0.2, 1, n)),
        fp.total(variance=0.5),
        fp.queries({"x": fp.ranges([(0, 4), (7, 7)])}, variance=0.7),
    ]
    others = {"s": ["a", "b"], "r": ["1", "2", "3"]} if crossed else {}
    if crossed:
        groups += [
            fp.queries({"s": "identity", "x": "prefix"}, variance=2.0),
            fp.queries({"x": "identity", "r": "identity", "s": "identity"}, variance=1.5),
            fp.marginal("r", variance=4.0),
        ]
    workload = ask_chain(n, *groups, **others)
    chain, dense = analyse_chain(workload), analyse_structure(workload, family=False)
    assert isinstance(dense, MatrixStructure)
    for _ in range(5):
        duals = Duals(rng.random(n), rng.random(chain.rows) ** 3, NO_FRAME)
        exact = certify_bound(dense, Objective(), 2.0, duals)
        found = certify_bound(chain, Objective(), 2.0, duals)
        assert exact * (1 - 1e-4) <= found <= exact * (1 + 1e-9)
