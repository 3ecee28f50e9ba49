"""The integer mechanism against exact rationals: its cost, its variances, its unbiasedness."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fitplug as fp
from fitplug.rounding import (
    ceil_float,
    ceil_sqrt,
    exact_product,
    floor_float,
    inverse_norms_above,
)
from fitplug.strategy import max_norm_squared

from .exact import product, rationals, solve_left
from .workloads import small


def exact_strategy(plan):
    """A = M B in exact rationals."""
    B = plan.strategy.basis.matrix(plan.workload.matrix())
    return product(rationals(plan.strategy.M), rationals(B))


@pytest.fixture(scope="module", params=small(), ids=[case[0] for case in small()])
def designed(request):
    _, W, c = request.param
    return W, c, fp.design(fp.Workload.from_matrix(W, variance=c))


class TestAgainstExactRationals:
    def test_rho(self, designed):
        _, _, plan = designed
        A = exact_strategy(plan)
        cost = max(sum(v * v for v in column) for column in zip(*A, strict=True))
        rho = cost / (2 * Fraction(plan.noise_std) ** 2)
        assert plan.rho_exact == rho
        assert Fraction(plan.rho) >= rho
        assert plan.rho <= float(rho) * (1 + 1e-14)
        assert Fraction(plan.privacy_cost) ** 2 / 2 >= rho

    def test_variances_and_targets(self, designed):
        W, c, plan = designed
        A = exact_strategy(plan)
        noise = Fraction(plan.noise_std) ** 2
        for j, row in enumerate(rationals(W)):
            weights = solve_left(A, row)
            assert weights is not None, "not in the row space: estimates would be biased"
            variance = noise * sum(w * w for w in weights)
            assert variance <= Fraction(float(plan.variances["queries"][j]))
            assert variance <= Fraction(float(c[j]))
            assert float(variance) == pytest.approx(plan.variances["queries"][j], rel=1e-6)

    def test_estimates_are_unbiased(self, designed):
        W, _, plan = designed
        L, _ = plan.strategy.basis.representation(W)
        A = np.array(exact_strategy(plan), dtype=np.float64)
        back = L @ plan.strategy.solve(A)
        scale = np.abs(W).max(axis=1, keepdims=True)
        assert (np.abs(back - W) <= 1e-9 * scale).all()

    def test_the_profile_is_that_of_the_strategy(self, designed):
        _, _, plan = designed
        A = np.array(exact_strategy(plan), dtype=np.float64)
        expected = (A**2).sum(axis=0) / plan.noise_std**2
        np.testing.assert_allclose(plan.profile(), expected, rtol=1e-12)
        assert plan.profile().max() == pytest.approx(plan.privacy_cost**2, rel=1e-12)
        assert (plan.slack() >= 0).all()

    def test_sigma_is_the_covariance_of_the_counts(self, designed):
        W, _, plan = designed
        covariance, B = plan.sigma()
        L, _ = plan.strategy.basis.representation(W)
        np.testing.assert_allclose(L @ B, W, atol=1e-12 * np.abs(W).max())
        got = np.einsum("ij,jk,ik->i", L, covariance, L)
        # Rows of very different size cancel when multiplied out like this.
        np.testing.assert_allclose(got, plan.variances["queries"], rtol=1e-3, atol=1e-300)


@given(seed=st.integers(0, 2**32), m=st.integers(1, 6), d=st.integers(1, 6))
def test_random_workloads_hold_their_targets_exactly(seed, m, d):
    rng = np.random.default_rng(seed)
    W = rng.integers(-1, 3, (m, d)).astype(float)
    if not W.any():
        W[0, 0] = 1.0
    c = 10.0 ** rng.uniform(-4, 4, m)
    plan = fp.design(fp.Workload.from_matrix(W, variance=c), tolerance=1e-3)
    assert plan.gap <= 1e-3
    A = exact_strategy(plan)
    noise = Fraction(plan.noise_std) ** 2
    for j, row in enumerate(rationals(W)):
        weights = solve_left(A, row)
        assert weights is not None
        assert noise * sum(w * w for w in weights) <= Fraction(float(c[j]))
    cost = max(sum(v * v for v in column) for column in zip(*A, strict=True))
    assert plan.rho_exact == cost / (2 * noise)


@pytest.mark.parametrize("rho", [1e-6, 0.3, 3.513395501404357])
def test_scaled_targets_hold_exactly_too(rho):
    rng = np.random.default_rng(2)
    W, c = rng.integers(-1, 3, (6, 4)).astype(float), 10.0 ** rng.uniform(-6, 12, 6)
    plan = fp.design(fp.Workload.from_matrix(W, variance=c), rho=rho)
    for reported, asked in zip(plan.variances["queries"], c, strict=True):
        assert Fraction(float(reported)) <= Fraction(plan.scale) * Fraction(float(asked))
    assert (plan.variances["queries"] <= plan.scale * c).all()


def test_small_coefficients_beside_large_ones_are_not_rounded_away():
    W = np.array([[1e6, 1e6, 0], [0, 1e6, 1e6], [1e-6, 2e-6, 1e-6]])
    plan = fp.design(fp.Workload.from_matrix(W, variance=1.0))
    L, _ = plan.strategy.basis.representation(W)
    B = plan.strategy.basis.matrix(W)
    np.testing.assert_allclose(L @ B, W, rtol=1e-9)
    plan.verify()


def integer_matrices(rows, columns):
    """int64 matrices, each of entries of one order of magnitude, the extremes among them."""
    extremes = st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 1, 2**53 + 1, -1, 0, 1])
    within = st.integers(1, 63).flatmap(
        lambda bits: st.lists(
            st.integers(-(2**bits), 2**bits - 1) | st.sampled_from([-(2**bits), 2**bits - 1]),
            min_size=rows * columns,
            max_size=rows * columns,
        )
    )
    wild = st.lists(extremes, min_size=rows * columns, max_size=rows * columns)
    return (within | wild).map(lambda v: np.array(v, dtype=np.int64).reshape(rows, columns))


class TestExactArithmetic:
    @given(data=st.data(), shape=st.tuples(*[st.integers(1, 4)] * 3))
    def test_products_never_wrap_or_round(self, data, shape):
        m, n, d = shape
        a, b = (data.draw(integer_matrices(*size)) for size in ((m, n), (n, d)))
        expected = [
            [sum(int(a[i, r]) * int(b[r, j]) for r in range(n)) for j in range(d)] for i in range(m)
        ]
        for left, right in [(a, b), (a, b.astype(object)), (a.astype(object), b)]:
            assert exact_product(left, right).tolist() == expected

    @pytest.mark.parametrize(("bits", "kind"), [(21, np.int64), (28, np.int64), (40, object)])
    def test_large_products_are_exact_too(self, bits, kind):
        rng = np.random.default_rng(bits)
        a, b = rng.integers(-(2**bits), 2**bits, (2, 40, 40))
        got = exact_product(a, b)
        assert got.dtype == kind
        assert (got == a.astype(object) @ b.astype(object)).all()

    def test_the_smallest_integer_does_not_fool_the_bound(self):
        a = np.full((1, 3), -(2**63), dtype=np.int64)
        assert int(exact_product(a, np.ones((3, 1), dtype=np.int64))[0, 0]) == -3 * 2**63

    def test_answers_are_clamped_beyond_the_records_they_hold(self):
        plan = fp.design(fp.Workload.from_matrix(np.tri(3), variance=1.0))
        huge = plan.strategy.answer(np.full(3, 2**62, dtype=np.int64))
        assert np.abs(huge).max() == 2**62
        most = plan.strategy.max_records
        assert most >= 2**33, "the people of the world must fit"
        counts = np.array([most, 0, 0], dtype=np.int64)
        assert plan.strategy.answer(counts)[0] == int(plan.strategy.M[0, 0]) * most

    @given(st.lists(st.lists(st.integers(-(2**28), 2**28), min_size=3, max_size=3), min_size=1))
    def test_largest_column_norm(self, rows):
        A = np.array(rows, dtype=np.int64)
        expected = max(sum(int(v) ** 2 for v in column) for column in A.T)
        assert max_norm_squared(A) == expected


class TestOutwardRounding:
    @given(st.fractions(min_value=0, max_value=10**9))
    def test_ceil_floor_and_root(self, exact):
        up, down, root = ceil_float(exact), floor_float(exact), ceil_sqrt(exact)
        assert Fraction(down) <= exact <= Fraction(up)
        assert math.nextafter(up, 0) < exact or up == exact
        assert Fraction(root) ** 2 >= exact
        assert root == 0 or Fraction(math.nextafter(root, 0)) ** 2 < exact

    @given(seed=st.integers(0, 2**32), n=st.integers(1, 6), spread=st.integers(0, 8))
    def test_inverse_norms(self, seed, n, spread):
        rng = np.random.default_rng(seed)
        M = np.triu(rng.integers(-(2**20), 2**20, (n, n))).astype(float)
        M[np.diag_indices(n)] = rng.integers(1, 2**20, n) // 10 ** rng.integers(0, spread + 1) + 1
        L = rng.normal(size=(2, n))
        try:
            bounds = inverse_norms_above(L, M)
        except fp.DesignError:
            assert np.linalg.cond(M) > 1e9, "only hopeless matrices are refused"
            return
        for j in range(2):
            weights = solve_left(rationals(M), rationals(L)[j])
            exact = sum(w * w for w in weights)
            assert Fraction(float(bounds[j])) ** 2 >= exact
            assert float(bounds[j]) ** 2 <= float(exact) * (1 + 1e-3)
