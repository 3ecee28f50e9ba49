"""Symmetry: the same optimum as the dense problem, and the same mechanism, without enumerating."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.certify import certify_dense_bound
from fitplug.domain import get_shape
from fitplug.families import Duals, certify_bound
from fitplug.families.analysis import analyse_structure as structure
from fitplug.families.base.contrasts import build_contrasts
from tests.helpers.exact import assert_exact, full_strategy, rationals, solve_left
from tests.helpers.many_releases import release_often
from tests.helpers.plans import MIXED, all_marginals, dense


@pytest.fixture(params=MIXED)
def mixed(request):
    return MIXED[request.param]()


class TestTheSameOptimum:
    def test_cost_bound_variances_and_profile_are_those_of_the_dense_problem(self, mixed):
        ours, theirs = (fp.design(w, tolerance=1e-7) for w in (mixed, dense(mixed)))
        assert ours.privacy_cost == pytest.approx(theirs.privacy_cost, rel=1e-6)
        assert ours.lower_bound <= theirs.privacy_cost * (1 + 1e-12)
        assert theirs.lower_bound <= ours.privacy_cost * (1 + 1e-12)
        flat = np.concatenate([v.ravel() for v in ours.variances.values()])
        np.testing.assert_allclose(flat, theirs.variances["queries"], rtol=2e-3)
        everywhere = np.broadcast_to(ours.profile(), mixed.domain.shape)
        used = [n in mixed.attributes for n in mixed.domain.names]
        kept = everywhere[tuple(slice(None) if u else 0 for u in used)]
        np.testing.assert_allclose(kept.ravel(), theirs.profile(), rtol=2e-3)
        ours.verify()

    def test_any_weights_give_the_bound_that_they_give_spread_over_all_cells(self, mixed):
        s = structure(mixed)
        rng = np.random.default_rng(0)
        p, q = rng.dirichlet(np.ones(s.cells)), rng.dirichlet(np.ones(s.rows))
        plan = fp.design(mixed)
        spread_q = np.concatenate([v.ravel() for v in s.group_values(q / s.repeats).values()])
        names = mixed.attributes
        over = p.reshape([mixed.domain[n].size if n in s.dense else 1 for n in names])
        spread_p = np.broadcast_to(over, mixed.shape).ravel() * s.cells / mixed.cell_count
        whole = certify_dense_bound(mixed.matrix(), mixed.targets(), spread_p, spread_q)
        assert certify_bound(s, plan.objective, plan.scale, Duals(p, q)) == pytest.approx(
            whole, rel=1e-9
        )

    @given(st.integers(0, 2**32 - 1))
    @pytest.mark.slow
    def test_random_mixed_workloads(self, seed):
        rng = np.random.default_rng(seed)
        names = ["a", "b", "c", "d"][: int(rng.integers(1, 5))]
        domain = fp.Domain({n: fp.Integers(0, int(rng.integers(0, 4))) for n in names})
        groups = []
        for i in range(int(rng.integers(1, 5))):
            chosen = [n for n in names if rng.random() < 0.6]
            kinds = ["identity", "identity", "identity", "prefix", "total", "all_ranges"]
            factors = {n: kinds[int(rng.integers(0, 4 if n == "a" else 3))] for n in chosen}
            if rng.random() < 0.2 and chosen:
                factors[chosen[0]] = kinds[int(rng.integers(3, 6))]
            shape = fp.Workload(domain, [fp.queries(factors, variance=1.0)]).groups[0].shape
            target = rng.uniform(1, 4, shape) if rng.random() < 0.2 else float(rng.uniform(1, 4))
            groups.append(fp.queries(factors, variance=target, name=f"g{i}"))
        workload = fp.Workload(domain, groups)
        plan, other = (fp.design(w, tolerance=1e-5) for w in (workload, dense(workload)))
        assert plan.gap <= 1e-5
        assert plan.privacy_cost == pytest.approx(other.privacy_cost, rel=2e-5)
        plan.verify()
        assert_exact(plan)


class TestTheIntegerMechanism:
    def test_it_is_exact(self, mixed):
        assert_exact(fp.design(mixed))

    def test_variances_hold_in_rationals(self):
        """w' (A'A)^+ w from the least-norm left inverse, for a strategy of independent rows."""
        workload = all_marginals([2, 4], 2)
        plan = fp.design(workload, tolerance=1e-3)
        A = rationals(np.array(full_strategy(plan), dtype=object))
        claimed = np.concatenate([v.ravel() for v in plan.variances.values()])
        for w, bound in zip(rationals(workload.matrix()), claimed, strict=True):
            weights = solve_left(A, w)
            variance = sum(r * r for r in weights) * Fraction(plan.noise_std) ** 2
            assert variance <= Fraction(float(bound)) <= variance * (1 + Fraction(1, 10**9))

    @pytest.mark.parametrize("name", ["pyramid", "targets that vary", "order of its own"])
    def test_sigma_gives_the_variances(self, name):
        workload = MIXED[name]()
        plan = fp.design(workload)
        covariance, B = plan.sigma()
        L = np.linalg.lstsq(B.T.astype(float), workload.matrix().T, rcond=None)[0].T
        np.testing.assert_allclose(L @ B, workload.matrix(), atol=1e-8)
        got = np.einsum("ij,jk,ik->i", L, covariance, L)
        flat = np.concatenate([v.ravel() for v in plan.variances.values()])
        np.testing.assert_allclose(got, flat, rtol=1e-7)

    @pytest.mark.parametrize("name", ["pyramid", "marginals", "order of its own"])
    def test_combinations_have_the_std_that_the_covariance_gives(self, name):
        workload = MIXED[name]()
        plan = fp.design(workload)
        covariance, B = plan.sigma()
        rng = np.random.default_rng(3)
        release = fp.Release(plan=plan, answers=np.zeros(plan.strategy.size, np.int64), rho=1.0)
        given = {g.name: rng.normal(size=g.shape) for g in workload.groups}
        row = np.concatenate([c.ravel() for c in given.values()]) @ workload.matrix()
        L = np.linalg.lstsq(B.T.astype(float), row, rcond=None)[0]
        assert release.estimate(given).std == pytest.approx(math.sqrt(L @ covariance @ L), rel=1e-6)
        alone = workload.groups[0]
        variance = plan.variances[alone.name].flat[0]
        first = np.zeros(alone.shape)
        first.flat[0] = 1
        assert release.estimate({alone.name: first}).std ** 2 == pytest.approx(variance, rel=1e-6)

    @pytest.mark.slow
    def test_the_noise_has_the_variances_claimed(self):
        """500 releases of a small plan; at 0.8 times the noise the mean is off by 0.36."""
        workload = MIXED["pyramid"]()
        plan = fp.design(workload)
        tables = fp.Tables(
            plan.domain, {t: np.zeros(get_shape(plan.domain, t), np.int64) for t in plan.tables}
        )
        squares = {name: [] for name in workload.names}
        for released in release_often(plan, tables, 500):
            estimates = released.estimates
            for name in squares:
                squares[name].append((estimates[name] ** 2 / plan.variances[name]).mean())
        for means in squares.values():
            spread = np.std(means) / math.sqrt(len(means))
            assert abs(np.mean(means) - 1) < 5 * spread < 0.2 * 0.36 * 5


class TestWhatUsersMeet:
    def test_estimates_have_the_shapes_of_their_groups(self, mixed):
        plan = fp.design(mixed)
        answers = np.zeros(plan.strategy.size, np.int64)
        release = fp.Release(plan=plan, answers=answers, rho=1.0, noise_scale=2.0)
        for group in mixed.groups:
            low, high = release.interval(group.name)
            for values in (release.estimates[group.name], release.variances[group.name], low, high):
                assert values.shape == group.shape
        assert "no such group" not in release.estimates
        with pytest.raises(KeyError, match="no query group"):
            release.estimates["no such group"]

    def test_answers_of_another_plan_are_refused(self):
        plan = fp.design(all_marginals([2, 3], 1))
        release = fp.Release(plan=plan, answers=np.zeros(2, np.int64), rho=1.0)
        with pytest.raises(fp.TablesError, match="noisy answers, but"):
            release.estimates["total"]

    def test_queries_of_nothing_in_a_table_are_answered(self):
        domain = fp.Domain({"a": ["x", "y"], "p": fp.Integers(0, 3)})
        workload = fp.Workload(
            domain,
            [
                fp.queries({"a": "identity", "p": np.zeros((2, 4))}, std=10, name="nothing"),
                fp.queries({"p": "prefix"}, std=10.0),
            ],
        )
        plan = fp.design(workload)
        plan.verify()
        assert not plan.variances["nothing"].any()
        assert plan.variances["nothing"].shape == (2, 2)
        assert_exact(plan)
        release = fp.Release(plan=plan, answers=np.ones(plan.strategy.size, np.int64), rho=1.0)
        assert release.estimate({"nothing": np.ones((2, 2))}).std == 0

    def test_tables_of_too_many_attributes_are_refused_by_name(self):
        names = [f"q{i}" for i in range(15)]
        domain = fp.Domain({name: ["y", "n"] for name in names})
        workload = fp.Workload(domain, [fp.marginal(*names, variance=1.0)])
        with pytest.raises(fp.WorkloadError, match=r"query q0, q1, .* has 15 attributes"):
            fp.design(workload)


class TestFarTooLargeToEnumerate:
    @pytest.mark.parametrize(
        ("n", "d", "ways", "alpha"),
        [
            (10, 10, 3, 105.0308),
            (10, 20, 3, 768.9414),
            (10, 30, 3, 2540.44),
            (1024, 5, 3, 25.893),
            (10, 50, 3, 11597.04),
            (10, 100, 3, 91960.92),
            pytest.param(10, 200, 3, 731834.71, marks=pytest.mark.long),
        ],
    )
    def test_known_values(self, n, d, ways, alpha):
        domain = fp.Domain({f"a{i}": fp.Integers(0, n - 1) for i in range(d)})
        every = fp.marginals(domain, ways=range(ways + 1), variance=1.0)
        plan = fp.design(fp.Workload(domain, [every]), tolerance=1e-5)
        assert plan.privacy_cost**2 == pytest.approx(alpha, rel=3e-5)
        assert plan.gap <= 1e-5
        assert plan.domain.size == n**d
        assert plan.proof.iterations <= 20

    def test_a_plan_for_a_thousand_tables_is_saved_and_verified(self, tmp_path):
        plan = fp.design(all_marginals([5] * 18, 3))
        plan.save(tmp_path / "plan")
        read = fp.Plan.load(tmp_path / "plan")
        read.verify()
        assert read.digest == plan.digest
        assert len(read.tables) == math.comb(18, 3)

    def test_states_with_prefixes_of_age(self):
        domain = fp.Domain(
            {
                "state": fp.Integers(0, 50),
                "sex": ["1", "2"],
                "ethnicity": ["1", "2"],
                "race": fp.Integers(0, 62),
                "age": fp.Integers(0, 115),
            }
        )
        workload = fp.Workload(
            domain,
            [
                fp.queries({"state": "identity", "sex": "identity", "age": "prefix"}, std=20.0),
                fp.queries({"sex": "identity", "age": "prefix"}, std=10.0),
                fp.marginal("state", "race", "ethnicity", std=15.0),
                fp.marginal("race", "sex", std=10.0),
                fp.queries({"age": fp.ranges([(18, 115), (65, 115)])}, std=4.0),
                fp.total(std=2.0),
            ],
        )
        plan = fp.design(workload)
        assert plan.gap <= 2e-4
        assert plan.profile().shape == (1, 1, 1, 1, 116)
        assert "116 cells of age" in str(plan.strategy.structure)
        plan.verify()


class TestCellBudgets:
    def test_budgets_that_vary_make_an_attribute_dense(self):
        workload = all_marginals([3, 4], 2)
        budgets = np.array([[1.0], [2], [3]])
        plan = fp.design(workload, cell_budgets=budgets, tolerance=1e-6)
        assert plan.strategy.structure.dense == ("a0",)
        assert (plan.profile() <= budgets).all()
        other = fp.design(dense(workload), cell_budgets=np.repeat([1.0, 2, 3], 4), tolerance=1e-6)
        assert plan.scale == pytest.approx(other.scale, rel=1e-5)

    def test_equal_ones_leave_it_symmetric(self):
        plan = fp.design(all_marginals([3, 4], 2), cell_budgets=np.full((3, 1), 2.0))
        assert plan.strategy.structure.dense == ()
        assert plan.privacy_cost**2 <= 2.0
        assert plan.unused_budget().shape == (1, 1)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 10, 12, 20, 24, 28, 32, 44, 63, 128, 132])
def test_contrasts(n):
    c = build_contrasts(n)
    H = c.apply(np.eye(n, dtype=np.int64), 0)
    assert len(H) == c.rows
    np.testing.assert_array_equal(n * (H.T @ H), c.precision * (n * np.eye(n, dtype=int) - 1))
    assert not H.sum(axis=1).any()
    assert np.abs(H).max() <= c.largest_entry
    assert (H * H).sum(axis=0).max() == c.column_square
    x = np.random.default_rng(0).normal(size=(n, 3))
    np.testing.assert_allclose(c.invert(H @ x, 0), x - x.mean(axis=0), atol=1e-12)
    huge = np.full((2, n), 10**30, dtype=object)
    assert not c.apply(huge, 1).any()
