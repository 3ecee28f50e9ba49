"""The integer mechanism against exact rationals: its cost, its variances, its unbiasedness."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.families.base.mechanism import SATURATION
from fitplug.families.blocks.strategy.matrices import sum_column_squares
from fitplug.numeric.rounding import (
    ceil_float,
    ceil_sqrt,
    floor_float,
    multiply_exactly,
    upper_solution_norms,
)
from tests.helpers.exact import full_strategy, least_variance, rationals, solve_left
from tests.helpers.workloads import small


def dense(W, c):
    return fp.Workload.from_matrix(W, variance=c)


def several(sizes, *groups):
    domain = fp.Domain({name: fp.Integers(0, n - 1) for name, n in zip("abc", sizes, strict=False)})
    return fp.Workload(domain, list(groups))


SYMMETRIC = {
    "all blocks numbers": lambda: several(
        [3, 4, 2],
        fp.marginal("b", "a", variance=2.0),
        fp.marginal("c", "b", variance=3.0),
        fp.total(variance=1.0),
    ),
    "contrasts with a row to spare": lambda: several(
        [3, 5], fp.marginal("a", "b", variance=2.0), fp.marginal("a", variance=1.0)
    ),
    "blocks over cells": lambda: several(
        [4, 2, 3],
        fp.queries({"a": "prefix", "b": "identity"}, variance=2.0),
        fp.marginal("c", "b", variance=5.0),
        fp.marginal("c", variance=1.0),
    ),
    "blocks over queries": lambda: several(
        [4, 2, 3],
        fp.queries({"b": "identity", "a": [[1.0, 0.5, 0, -1], [0, 0.25, 1, 1]]}, variance=2.0),
        fp.queries({"a": [[3.0, 0, 1, 1]], "c": "identity"}, variance=3.0),
        fp.queries({"c": "identity"}, variance=1.0),
    ),
    "Paley's contrasts": lambda: several(
        [12, 2], fp.marginal("b", "a", variance=2.0), fp.marginal("a", variance=1.5)
    ),
    "an attribute of one value": lambda: several(
        [1, 3, 2], fp.marginal("a", "b", variance=2.0), fp.marginal("c", "a", variance=1.0)
    ),
}


def all_of(by_group, plan):
    """Values of all groups, one after another, in the order of W."""
    assert tuple(by_group) == plan.workload.names
    return np.concatenate([np.asarray(values).ravel() for values in by_group.values()])


WORKLOADS = {case[0]: lambda case=case: dense(*case[1:]) for case in small()} | SYMMETRIC


@pytest.fixture(scope="module", params=WORKLOADS.values(), ids=WORKLOADS.keys())
def designed(request):
    workload = request.param()
    return workload.matrix(), workload.targets(), fp.design(workload)


def whole_profile(plan):
    """The profile of each cell of the attributes used."""
    used = tuple(slice(None) if n in plan.workload.attributes else 0 for n in plan.domain.names)
    return np.broadcast_to(plan.profile(), plan.domain.shape)[used].ravel()


def spans(plan, W):
    """L with W = L B of the one block of a dense plan, and B."""
    (family,) = plan.strategy.block_sets
    assert not plan.strategy.structure.symmetric
    return family.basis.represent(W)[0], family.basis.build_matrix(W)


class TestAgainstExactRationals:
    def test_answers_are_those_of_the_strategy_and_clamped(self, designed):
        _, _, plan = designed
        A, rng = full_strategy(plan), np.random.default_rng(5)
        cells = plan.workload.cell_count
        assert len(A) == plan.strategy.size
        for size in (0, 1, 100, 2**31, 2**53, 2**61, 2**62, 2**63 - 1):
            wild = rng.integers(-size, size, cells, endpoint=True)
            for x in (wild, np.abs(wild), np.full(cells, size), np.full(cells, -size - 1)):
                expected = [sum(a * int(v) for a, v in zip(row, x, strict=True)) for row in A]
                clamped = [min(max(v, -SATURATION), SATURATION) for v in expected]
                got = answers_to(plan, x)
                assert got.dtype == np.int64
                assert got.tolist() == clamped

    def test_no_answer_is_clamped_with_as_many_records_as_it_holds(self, designed):
        _, _, plan = designed
        entries = [abs(v) for row in full_strategy(plan) for v in row]
        assert plan.strategy.max_records * max(entries) <= SATURATION

    def test_rho(self, designed):
        _, _, plan = designed
        A = full_strategy(plan)
        cost = max(sum(v * v for v in column) for column in zip(*A, strict=True))
        rho = cost / (2 * Fraction(plan.noise_std) ** 2)
        assert plan.rho_exact == rho
        assert Fraction(plan.rho) >= rho
        assert plan.rho <= float(rho) * (1 + 1e-14)
        assert Fraction(plan.privacy_cost) ** 2 / 2 >= rho

    @pytest.mark.slow
    def test_variances_and_targets(self, designed):
        W, c, plan = designed
        A = full_strategy(plan)
        noise = Fraction(plan.noise_std) ** 2
        claimed = all_of(plan.variances, plan)
        for j, row in enumerate(rationals(W)):
            unit = least_variance(A, row)
            assert unit is not None, "not in the row space: estimates would be biased"
            variance = noise * unit
            assert variance <= Fraction(float(claimed[j]))
            assert variance <= Fraction(float(c[j]))
            assert float(variance) == pytest.approx(claimed[j], rel=1e-6)

    def test_estimates_are_unbiased(self, designed):
        W, _, plan = designed
        A = np.array(full_strategy(plan), dtype=object)
        scale = np.abs(W).max(axis=1)
        for cell in range(W.shape[1]):
            # The answers to one record alone, without noise: its estimates are a column of W.
            release = fp.Release(plan=plan, answers=A[:, cell].astype(np.int64), rho=plan.rho)
            back = all_of(release.estimates, plan)
            assert (np.abs(back - W[:, cell]) <= 1e-9 * scale).all()

    def test_the_profile_is_that_of_the_strategy(self, designed):
        _, _, plan = designed
        A = np.array(full_strategy(plan), dtype=np.float64)
        expected = (A**2).sum(axis=0) / plan.noise_std**2
        np.testing.assert_allclose(whole_profile(plan), expected, rtol=1e-12)
        assert plan.profile().max() == pytest.approx(plan.privacy_cost**2, rel=1e-12)
        assert (plan.unused_budget() >= 0).all()

    def test_sigma_is_the_covariance_of_the_counts(self, designed):
        W, _, plan = designed
        covariance, B = plan.sigma()
        assert B.dtype == np.int64
        if plan.strategy.structure.symmetric:
            L = np.linalg.lstsq(B.T.astype(float), W.T, rcond=None)[0].T
            assert np.linalg.matrix_rank(B.astype(float)) == len(B) == len(covariance)
        else:
            L, own = spans(plan, W)
            np.testing.assert_array_equal(B, own)
        np.testing.assert_allclose(L @ B, W, atol=1e-12 * np.abs(W).max())
        got = np.einsum("ij,jk,ik->i", L, covariance, L)
        # Rows of very different size cancel when multiplied out like this.
        np.testing.assert_allclose(got, all_of(plan.variances, plan), rtol=1e-3, atol=1e-300)


@given(seed=st.integers(0, 2**32), m=st.integers(1, 6), d=st.integers(1, 6))
def test_random_workloads_hold_their_targets_exactly(seed, m, d):
    rng = np.random.default_rng(seed)
    W = rng.integers(-1, 3, (m, d)).astype(float)
    if not W.any():
        W[0, 0] = 1.0
    c = 10.0 ** rng.uniform(-4, 4, m)
    plan = fp.design(fp.Workload.from_matrix(W, variance=c), tolerance=1e-3)
    assert plan.gap <= 0.002
    A = full_strategy(plan)
    noise = Fraction(plan.noise_std) ** 2
    for j, row in enumerate(rationals(W)):
        weights = solve_left(rationals(A), row)
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
    L, B = spans(plan, W)
    np.testing.assert_allclose(L @ B, W, rtol=1e-9)
    plan.verify()


def answers_to(plan, x):
    """What the mechanism adds noise to, for counts x of the cells, in Python integers."""
    x = np.array([int(v) for v in x], dtype=object).reshape(plan.workload.shape)
    used = plan.workload.attributes

    def counted(names):
        summed = x.sum(axis=tuple(i for i, n in enumerate(used) if n not in names))
        left = [n for n in used if n in names]
        return np.array(summed, dtype=object).transpose([left.index(n) for n in names])

    return plan.strategy.answer_exactly(counted)


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
            assert multiply_exactly(left, right).tolist() == expected

    @pytest.mark.parametrize(("bits", "kind"), [(21, np.int64), (28, np.int64), (40, object)])
    def test_large_products_are_exact_too(self, bits, kind):
        rng = np.random.default_rng(bits)
        a, b = rng.integers(-(2**bits), 2**bits, (2, 40, 40))
        got = multiply_exactly(a, b)
        assert got.dtype == kind
        assert (got == a.astype(object) @ b.astype(object)).all()

    def test_the_smallest_integer_does_not_fool_the_bound(self):
        a = np.full((1, 3), -(2**63), dtype=np.int64)
        assert int(multiply_exactly(a, np.ones((3, 1), dtype=np.int64))[0, 0]) == -3 * 2**63

    def test_answers_are_clamped_beyond_the_records_they_hold(self):
        plan = fp.design(fp.Workload.from_matrix(np.tri(3), variance=1.0))
        huge = answers_to(plan, [2**62] * 3)
        assert np.abs(huge).max() == 2**62
        most = plan.strategy.max_records
        assert most >= 2**33, "the people of the world must fit"
        (family,) = plan.strategy.block_sets
        assert answers_to(plan, [most, 0, 0])[0] == int(family.M[0, 0, 0]) * most

    @given(st.lists(st.lists(st.integers(-(2**28), 2**28), min_size=3, max_size=3), min_size=1))
    def test_largest_column_norm(self, rows):
        A = np.array(rows, dtype=np.int64)
        expected = max(sum(int(v) ** 2 for v in column) for column in A.T)
        # A bound for each cell, and the largest of all, exact, also of a sum of two with factors.
        exact, above = sum_column_squares([(1, A)])
        assert exact == expected
        for column, bound in zip(A.T, above, strict=True):
            assert sum(int(v) ** 2 for v in column) <= Fraction(float(bound))
        exact, above = sum_column_squares([(3, A), (5, A[::-1, ::-1])])
        sums = [
            sum(3 * int(v) ** 2 + 5 * int(w) ** 2 for v, w in zip(one, two, strict=True))
            for one, two in zip(A.T, A.T[::-1], strict=True)
        ]
        assert exact == max(sums)
        assert all(s <= Fraction(float(bound)) for s, bound in zip(sums, above, strict=True))


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
            bounds = upper_solution_norms(L, M)
        except fp.DesignError:
            assert np.linalg.cond(M) > 1e9, "only hopeless matrices are refused"
            return
        # Beyond what floating point resolves, the bounds may be looser in proportion.
        slack = 1e-3 * max(1.0, np.linalg.cond(M) / 1e15)
        for j in range(2):
            weights = solve_left(rationals(M), rationals(L)[j])
            exact = sum(w * w for w in weights)
            assert Fraction(float(bounds[j])) ** 2 >= exact
            assert float(bounds[j]) ** 2 <= float(exact) * (1 + slack)
