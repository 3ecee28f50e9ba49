"""The plan as an OpenDP measurement: maps, noise, totality, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, strategies as st
from opendp.mod import GLOBAL_FEATURES
from scipy.stats import chi2

import fitplug as fp
import fitplug_opendp as fpo
from fitplug_opendp import gaussian
from fitplug_opendp.noise_source import compute_exact_answers
from tests.helpers.exact import full_strategy
from tests.helpers.many_releases import release_often
from tests.helpers.workloads import marginals, prefix

FEATURES = ("contrib", "honest-but-curious")


@pytest.fixture(autouse=True)
def features():
    before = set(GLOBAL_FEATURES)
    dp.enable_features(*FEATURES)
    yield
    GLOBAL_FEATURES.clear()
    GLOBAL_FEATURES.update(before)


def counts_space(size):
    return dp.vector_domain(dp.atom_domain(T="i64"), size=size), dp.l1_distance(T="i64")


PLANS = {
    "cells": fp.design(fp.Workload.from_matrix(prefix(4), variance=3.0)),
    "rows": fp.design(fp.Workload.from_matrix(marginals([2, 3], 1), std=np.linspace(1, 2, 6))),
    "more cells than rank": fp.design(
        fp.Workload.from_matrix(np.random.default_rng(5).normal(size=(2, 4)), std=2.0)
    ),
}
PLANS |= {
    "symmetric": fp.design(
        fp.Workload(
            fp.Domain({"a": fp.Integers(0, 2), "b": ["x", "y"]}),
            [fp.marginal("b", "a", std=2.0, name="both"), fp.marginal("a", std=1.0)],
        )
    ),
    "symmetric beside dense": fp.design(
        fp.Workload(
            fp.Domain({"a": fp.Integers(0, 2), "b": fp.Integers(0, 3)}),
            [
                fp.queries({"a": "identity", "b": "prefix"}, std=2.0, name="pyramid"),
                fp.queries({"b": [[0.5, 0.25, 0, -1]]}, std=1.0, name="weighted"),
            ],
        )
    ),
}
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


class TestMap:
    @each_plan
    def test_one_record_costs_what_the_plan_says(self, plan):
        m = fpo.make_fitness_for_use(*counts_space(plan.workload.cell_count), plan)
        assert m.map(1) <= plan.rho <= math.nextafter(m.map(1), math.inf)
        assert Fraction(m.map(1)) >= plan.rho_exact

    @each_plan
    @pytest.mark.parametrize(("records", "scale"), [(0, 1.0), (2, 1.0), (7, 0.3), (1000, 2.5)])
    def test_k_records_cost_the_square(self, plan, records, scale):
        m = fpo.make_fitness_for_use(*counts_space(plan.workload.cell_count), plan, scale=scale)
        exact = plan.rho_exact * records**2 / Fraction(plan.noise_std * scale) ** 2
        exact *= Fraction(plan.noise_std) ** 2
        assert Fraction(m.map(records)) >= exact
        assert m.map(records) == pytest.approx(float(exact), rel=1e-14)

    @each_plan
    def test_brute_force_over_all_cells_in_exact_rationals(self, plan):
        """The map against rho of each neighbour: the answers to one more record in each cell."""
        size = plan.workload.cell_count
        A = full_strategy(plan)
        noise = Fraction(plan.noise_std) ** 2
        costs = [sum(row[i] ** 2 for row in A) / (2 * noise) for i in range(size)]
        m = fpo.make_fitness_for_use(*counts_space(size), plan)
        assert max(costs) <= Fraction(m.map(1)) <= max(costs) * (1 + Fraction(1, 10**14))

    @pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
    def test_a_budget_is_never_exceeded_by_the_map(self, rho):
        plan = fp.design(fp.Workload.from_matrix(prefix(5), variance=1.0), rho=rho)
        m = fpo.make_fitness_for_use(*counts_space(5), plan)
        assert m.map(1) <= plan.rho <= min(rho, math.nextafter(m.map(1), math.inf))

    def test_composition_adds_up(self):
        plan = PLANS["cells"]
        space = counts_space(4)
        m = fpo.make_fitness_for_use(*space, plan)
        both = dp.c.make_composition([m, m])
        assert both.map(1) == pytest.approx(2 * plan.rho, rel=1e-14)
        one, two = both([5, 6, 7, 8])
        assert isinstance(one, fp.Release)
        assert one.estimates["queries"].shape == two.estimates["queries"].shape == (4,)
        assert not np.array_equal(one.answers, two.answers)


def noiseless(plan, scale):
    """In the place of the noise: what it is given, at no price. For tests alone."""
    answers = dp.vector_domain(dp.atom_domain(T="i64"), size=plan.strategy.size)
    metric, measure = dp.l2_distance(T="f64"), dp.zero_concentrated_divergence()
    return dp.m.make_user_measurement(answers, metric, measure, lambda x: x, lambda _: 0.0)


class TestMeasurement:
    def test_then_is_make(self):
        plan = PLANS["cells"]
        m = counts_space(4) >> fpo.then_fitness_for_use(plan, scale=2.0)
        released = m(np.array([10, 20, 30, 40], dtype=np.int64))
        assert m.map(1) == pytest.approx(plan.rho / 4, rel=1e-14)
        assert released.rho == m.map(1)
        np.testing.assert_allclose(
            released.variances["queries"], 4 * plan.variances["queries"], rtol=1e-12
        )

    def test_a_histogram_of_the_whole_domain_is_summed_to_the_used_attributes(self):
        domain = fp.Domain({"a": ["1", "2"], "b": fp.Integers(0, 2), "c": ["x", "y"]})
        group = fp.queries({"a": "identity", "c": "identity"}, std=1e-4, name="g")
        plan = fp.design(fp.Workload(domain, [group]))
        x = np.arange(12, dtype=np.int64).reshape(domain.shape)
        for size, vector in [(12, x.ravel()), (4, x.sum(axis=1).ravel())]:
            m = fpo.make_fitness_for_use(*counts_space(size), plan)
            assert m.map(1) <= plan.rho <= math.nextafter(m.map(1), math.inf)
            np.testing.assert_allclose(m(vector).estimates["g"], x.sum(axis=1), atol=0.01)

    @each_plan
    @pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 0])
    def test_total_on_every_integer_vector(self, plan, value):
        size = plan.workload.cell_count
        m = fpo.make_fitness_for_use(*counts_space(size), plan)
        assert m(np.full(size, value, dtype=np.int64)).answers.dtype == np.int64

    @each_plan
    def test_it_starts_from_the_answers_of_the_strategy_clamped(self, plan, monkeypatch):
        """With noise that adds nothing, the answers are A x exactly, for any integers whatever."""
        import fitplug_opendp.measurement as room

        monkeypatch.setattr(room, "make_noise", noiseless)
        size, A, rng = plan.workload.cell_count, full_strategy(plan), np.random.default_rng(8)
        m = fpo.make_fitness_for_use(*counts_space(size), plan)
        for top in (1, 1000, 2**40, 2**61, 2**63 - 1):
            for x in (rng.integers(-top - 1, top, size, endpoint=True), np.full(size, top)):
                exact = [sum(a * int(v) for a, v in zip(row, x, strict=True)) for row in A]
                got = m(np.asarray(x, dtype=np.int64)).answers
                assert got.tolist() == [min(max(v, -(2**62)), 2**62) for v in exact]

    @pytest.mark.parametrize(
        ("space", "says"),
        [
            (lambda: (counts_space(4)[0], dp.symmetric_distance()), "l1_distance"),
            (lambda: (counts_space(4)[0], dp.l2_distance(T="i64")), "l1_distance"),
            (lambda: (counts_space(4)[0], dp.l1_distance(T="f64")), "l1_distance"),
            (lambda: counts_space(5), "must be .*size=4.*, not .*size=5"),
            (
                lambda: (dp.vector_domain(dp.atom_domain(T="u64"), size=4), counts_space(4)[1]),
                "i64",
            ),
            (lambda: (dp.atom_domain(T="i64"), counts_space(4)[1]), "size=4"),
        ],
    )
    def test_other_spaces_are_refused(self, space, says):
        with pytest.raises(ValueError, match=says):
            fpo.make_fitness_for_use(*space(), PLANS["cells"])

    @pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 1e-320])
    def test_scales_that_release_exact_counts_are_refused(self, scale):
        with pytest.raises(ValueError, match="scale"):
            fpo.make_fitness_for_use(*counts_space(4), PLANS["cells"], scale=scale)

    def test_consent_to_opendp_features_is_left_to_the_user(self):
        dp.disable_features(*FEATURES)
        with pytest.raises(dp.OpenDPException, match="contrib"):
            fpo.make_fitness_for_use(*counts_space(4), PLANS["cells"])


def tables_for(plan, x):
    x = np.asarray(x)
    names = plan.workload.attributes
    marginal = {
        t: x.sum(axis=tuple(i for i, n in enumerate(names) if n not in t)) for t in plan.tables
    }
    return fp.Tables(plan.domain, marginal)


class TestRelease:
    DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 3), "race": ["a", "b", "c"]})
    PLAN = fp.design(
        fp.Workload(
            DOMAIN,
            [
                fp.queries({"age": "prefix", "sex": "identity"}, std=1e-3, name="pyramid"),
                fp.marginal("race", std=2e-3),
                fp.queries({"age": [[0.5, 0.25, 0, -1]]}, std=1e-3, name="weighted"),
                fp.total(std=5e-4),
            ],
        )
    )
    X = np.random.default_rng(3).integers(0, 1000, DOMAIN.shape)

    def test_answers_are_those_of_the_counts(self):
        """At noise far below one, the estimates are the exact answers in words."""
        released = fp.release(self.PLAN, tables_for(self.PLAN, self.X))
        expected = {
            "pyramid": self.X.sum(axis=2).cumsum(axis=1).T,
            "race": self.X.sum(axis=(0, 1)),
            "weighted": [self.X.sum(axis=(0, 2)) @ [0.5, 0.25, 0, -1]],
            "total": self.X.sum(),
        }
        for name, exact in expected.items():
            np.testing.assert_allclose(released.estimates[name], exact, atol=0.02)

    def test_a_combination_knows_its_covariance(self):
        released = fp.release(self.PLAN, tables_for(self.PLAN, self.X))
        women = released.estimate({"pyramid": [[0, 0], [0, 0], [0, 0], [0, 1]]})
        assert women.value == released.estimates["pyramid"][3, 1]
        assert women.std == pytest.approx(math.sqrt(released.variances["pyramid"][3, 1]), rel=1e-6)
        nothing = released.estimate({"race": 1, "total": -1})
        assert abs(nothing.value) < 1e-6
        assert nothing.std < 1e-6

    @pytest.mark.parametrize(
        ("coefficients", "says"),
        [
            ({"rase": 1}, "Did you mean 'race'"),
            ({"race": [1, 2]}, "shape"),
            ({"race": math.nan}, "finite"),
        ],
    )
    def test_bad_combinations(self, coefficients, says):
        released = fp.release(self.PLAN, tables_for(self.PLAN, self.X))
        with pytest.raises(fp.WorkloadError, match=says):
            released.estimate(coefficients)

    def test_features_are_as_they_were(self):
        dp.disable_features(*FEATURES)
        fp.release(self.PLAN, tables_for(self.PLAN, self.X))
        assert not GLOBAL_FEATURES & set(FEATURES)

    def test_the_charge_comes_first_and_is_what_opendp_certifies(self, tmp_path):
        ledger = fp.Ledger(tmp_path / "budget.db", rho=self.PLAN.rho * 9.5)
        three = fp.design(self.PLAN.workload, unit=fp.AddRemove(3))
        released = fp.release(three, tables_for(three, self.X), ledger=ledger)
        assert released.rho == pytest.approx(9 * self.PLAN.rho, rel=1e-14)
        assert ledger.spent == pytest.approx(released.rho, rel=1e-14)
        assert ledger.spent >= released.rho >= 9 * float(self.PLAN.rho_exact)
        with pytest.raises(fp.OverBudget) as caught:
            fp.release(three, tables_for(three, self.X), ledger=ledger)
        assert caught.value.requested == pytest.approx(released.rho, rel=1e-14)
        # Of persons with three records, one record is a third, and three of them cost nine times.
        with pytest.raises(fp.OverBudget, match=r"\(9 times the release's rho\)") as caught:
            fp.release(self.PLAN, tables_for(self.PLAN, self.X), ledger=ledger)
        assert caught.value.requested == pytest.approx(9 * self.PLAN.rho, rel=1e-14)
        assert len(ledger.entries()) == 1

    def test_nothing_is_drawn_when_the_charge_is_refused(self, tmp_path, monkeypatch):
        import fitplug_opendp.noise_source as room

        class Untouchable:
            map = staticmethod(lambda _: 1e9)

            def __call__(self, *_):
                raise AssertionError("noise was drawn")

        monkeypatch.setattr(room, "make_noise", lambda plan: Untouchable())
        monkeypatch.setattr(room, "make_sampler", lambda *given: Untouchable())
        ledger = fp.Ledger(tmp_path / "budget.db", rho=0.5)
        with pytest.raises(fp.OverBudget):
            fp.release(self.PLAN, tables_for(self.PLAN, self.X), ledger=ledger)

    @pytest.mark.parametrize("records", [1, 2**20])
    def test_no_number_of_records_is_refused(self, tmp_path, records):
        """A refusal would tell, for nothing, whether there are so many."""
        counts = np.zeros(self.DOMAIN.shape, dtype=int)
        counts[0, 0, 0] = min(self.PLAN.strategy.max_records * records + 1, 2**53)
        ledger = fp.Ledger(tmp_path / "budget.db", rho=1e9)
        with pytest.warns(RuntimeWarning, match="reached the limit of 64-bit integers"):
            release = fp.release(self.PLAN, tables_for(self.PLAN, counts), ledger=ledger)
        assert len(ledger.entries()) == 1
        assert np.abs(release.answers).max() <= 2**62 + 64 * self.PLAN.noise_std

    def test_half_as_many_records_as_it_holds_are_not_told_of(self):
        counts = np.zeros(self.DOMAIN.shape, dtype=int)
        counts[0, 0, 0] = self.PLAN.strategy.max_records // 2
        estimates = fp.release(self.PLAN, tables_for(self.PLAN, counts)).estimates
        total = next(iter(estimates.values())).sum()
        assert total > 0

    def test_what_does_not_fit_is_refused_before_the_charge(self, tmp_path):
        ledger = fp.Ledger(tmp_path / "budget.db", rho=1e9)
        other = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 4), "race": ["a", "b", "c"]})
        ages = np.zeros((2, 5), dtype=int)
        races = np.zeros(3, dtype=int)
        for tables, says in [
            (fp.Tables(other, {("sex", "age"): ages, "race": races}), "'age'"),
            (fp.Tables(self.DOMAIN, {"race": races}), "the counts have no table with"),
        ]:
            with pytest.raises(fp.TablesError, match=says):
                fp.release(self.PLAN, tables, ledger=ledger)
        assert ledger.spent == 0


RELEASES = 1500


def flat(by_group):
    return np.concatenate([np.asarray(values).ravel() for values in by_group.values()])


@pytest.fixture(
    scope="module",
    params=["rows", "symmetric", pytest.param("symmetric beside dense", marks=pytest.mark.slow)],
)
def draws(request):
    plan = PLANS[request.param]
    x = np.array([5, 0, 7, 100, 3, 2, 40, 1, 0, 12, 9, 6])[: plan.workload.cell_count]
    tables = tables_for(plan, x.reshape(plan.workload.shape))
    # The least squares estimates of B x from A x + z, for the B of the covariance.
    A, (_, B) = np.array(full_strategy(plan), dtype=float), plan.sigma()
    solve = B @ np.linalg.pinv(A)
    np.testing.assert_allclose(solve @ A, B, atol=1e-9)
    basis_estimates, answers = [], []
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "symmetric beside dense":
            patch.setattr(gaussian, "_CHUNK", 5)  # drawn in parts, on threads
            assert plan.strategy.size > 10
        for released in release_often(plan, tables, RELEASES):
            basis_estimates.append(solve @ released.answers)
            answers.append(flat(released.estimates))
    truth = plan.workload.matrix() @ x
    return plan, np.array(basis_estimates) - B @ x, np.array(answers) - truth


class TestTablesBecomeTheExactCounts:
    """Whatever the tables look like, the mechanism starts from B x: anything else would have
    another sensitivity than the one that is paid for.
    """

    @staticmethod
    def moved(plan, x, cell):
        """Squared distance of the exact answers before and after one record more in a cell."""
        one_more = x.copy()
        one_more[cell] += 1
        before, after = (
            [int(v) for v in compute_exact_answers(plan, tables_for(plan, h))]
            for h in (x, one_more)
        )
        return sum((a - b) ** 2 for a, b in zip(after, before, strict=True))

    @pytest.mark.parametrize("size", [2**20, 2**44, 2**90])
    def test_large_coefficients_do_not_wrap(self, size):
        factor = np.array([[1.0, 1, 0], [0, 1, 1]]) * float(size)
        plan = fp.design(fp.Workload.from_matrix(factor, variance=float(size) ** 2))
        x = np.array([524283, 5, 2**23])
        for cell in range(3):
            assert self.moved(plan, x, cell) <= plan.strategy.sensitivity_squared

    def test_products_of_large_factors_do_not_wrap(self):
        domain = fp.Domain({"a": fp.Integers(0, 2), "b": fp.Integers(0, 2)})
        factor = np.array([[1.0, 1, 0], [0, 1, 1]]) * 2.0**20
        group = fp.queries({"a": factor, "b": factor}, variance=2.0**80, name="g")
        plan = fp.design(fp.Workload(domain, [group]))
        x = np.full((3, 3), 2**22)
        for cell in np.ndindex(3, 3):
            assert self.moved(plan, x, cell) <= plan.strategy.sensitivity_squared

    def test_tables_of_a_domain_in_another_order(self):
        ours = fp.Domain({"a": ["1", "2"], "b": ["x", "y", "z"]})
        theirs = fp.Domain({"b": ["x", "y", "z"], "a": ["1", "2"]})
        groups = [fp.marginal("a", "b", std=1e-3, name="g"), fp.marginal("b", std=1.0)]
        plan = fp.design(fp.Workload(ours, groups))
        x = np.array([[1000, 2000, 7], [3000, 4000, 8]])
        released = fp.release(plan, fp.Tables(theirs, {("a", "b"): x}))
        np.testing.assert_allclose(released.estimates["g"], x, atol=0.05)
        np.testing.assert_allclose(released.estimates["b"], x.sum(axis=0), atol=0.05)


@given(seed=st.integers(0, 2**32))
def test_every_attribute_that_is_used_is_counted(seed):
    """A record outside the domain on it must leave every table, so all must be looked at, even an
    attribute of one value or a range over all values, which adds no rank.
    """
    rng = np.random.default_rng(seed)
    domain = fp.Domain({"a": ["1", "2"], "b": fp.Integers(0, 2), "only": ["yes"], "c": ["x", "y"]})
    whole = {"a": "identity", "b": fp.ranges([(0, 2)]), "only": "identity", "c": "prefix"}
    names = list(whole)
    groups = []
    for _ in range(rng.integers(1, 5)):
        chosen = rng.permutation(names)[: rng.integers(0, 4)]
        groups.append(fp.queries({n: whole[n] for n in chosen}, std=float(rng.uniform(1, 9))))
    plan = fp.design(fp.Workload(domain, groups), tolerance=1e-2)
    assert set().union(*plan.tables) == set(plan.workload.attributes)
    records = {
        "a": rng.choice(["1", "2", "3"], 200).tolist(),
        "b": rng.integers(-1, 4, 200),
        "only": rng.choice(["yes", "no"], 200).tolist(),
        "c": rng.choice(["x", "y", "z"], 200).tolist(),
    }
    ours = fp.Tables.from_records(domain, records, plan.tables)
    theirs = fp.Tables.from_records(domain, records, [plan.workload.attributes])
    assert [int(v) for v in compute_exact_answers(plan, ours)] == [
        int(v) for v in compute_exact_answers(plan, theirs)
    ]


class TestNoise:
    """The noise that is really drawn, against the covariance the plan reports."""

    @staticmethod
    def rejects(errors, covariance):
        """Two tests at once, each wrong once in 10^6: the size of the noise, and its shape."""
        n, k = errors.shape
        white = np.linalg.solve(np.linalg.cholesky(covariance), errors.T).T
        size = (white**2).sum()
        low, high = chi2.ppf([5e-7, 1 - 5e-7], n * k)
        # Eigenvalues of an empirical covariance stay within (1 +- sqrt(k/n) +- t/sqrt(n))^2
        # but for a chance of exp(-t^2/2) each (Davidson and Szarek 2001).
        extreme = np.linalg.eigvalsh(white.T @ white / n)
        spread = math.sqrt(k / n) + math.sqrt(2 * math.log(2e6) / n)
        shape = not (1 - spread) ** 2 <= extreme[0] <= extreme[-1] <= (1 + spread) ** 2
        return not low <= size <= high or shape

    def test_the_covariance_is_the_one_reported(self, draws):
        plan, errors, _ = draws
        assert not self.rejects(errors, plan.sigma()[0])

    @pytest.mark.parametrize("factor", [1.2, 1 / 1.2, 0.8**2])
    def test_and_the_test_has_the_power_to_tell(self, draws, factor):
        plan, errors, _ = draws
        assert self.rejects(errors * math.sqrt(factor), plan.sigma()[0])

    def test_correlations_are_seen_too(self, draws):
        plan, errors, _ = draws
        assert self.rejects(errors, np.diag(np.diag(plan.sigma()[0])))

    def test_estimates_are_unbiased(self, draws):
        plan, _, errors = draws
        std = np.sqrt(flat(plan.variances) / len(errors))
        assert (np.abs(errors.mean(axis=0)) <= 5.5 * std).all()

    def test_intervals_cover_as_often_as_they_say(self, draws):
        plan, _, errors = draws
        std = np.sqrt(flat(plan.variances))
        covered = (np.abs(errors) <= 1.6448536 * std).mean(axis=0)
        assert (np.abs(covered - 0.9) <= 5.5 * math.sqrt(0.09 / len(errors))).all()


def test_no_measurement_is_made_of_a_plan_that_claims_too_little():
    plan = PLANS["symmetric"]
    low = replace(plan.strategy, sensitivity_squared=plan.strategy.sensitivity_squared // 4)
    space = fpo.tables_domain(plan), dp.symmetric_distance()
    with pytest.raises(fp.PlanError, match="privacy cost differs from"):
        fpo.make_fitness_for_use(*space, replace(plan, strategy=low))
