"""Plans in OpenDP's Context API and in its compositors, beside OpenDP's own measurements."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from opendp import context as context_room

import fitplug as fp
import fitplug_opendp as fpo
from fitplug.privacy import epsilon_at
from tests.helpers.opendp_spaces import COUNTS, DOMAIN, PLAN, RECORDS, SEX, features, zcdp  # noqa: F401

pl = pytest.importorskip("polars")

SPACE = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
PEOPLE = np.array([400, 300, 200, 100])
TO_EPSILON = dp.c.make_zCDP_to_approxDP


@pytest.fixture(autouse=True)
def registered():
    fpo.register()


def context(loss, *, l1=1, **given):
    unit = dp.unit_of(l1=l1, U="i64")
    return dp.Context.compositor(data=PEOPLE, privacy_unit=unit, privacy_loss=loss, **given)


def fitted(query, plan=PLAN):
    return query.fitness_for_use(plan).resolve()


class TestRegister:
    def test_registering_again_does_nothing(self):
        fpo.register()
        fpo.register()

    def test_a_name_that_is_taken_is_refused(self, monkeypatch):
        from opendp.context import constructors

        monkeypatch.setitem(constructors, "fitness_for_use", (dp.m.then_laplace, True))
        with pytest.raises(ValueError, match="another constructor 'fitness_for_use'"):
            fpo.register()

    @pytest.mark.parametrize("rho", [1e-9, 0.003, 0.1, 5.0, 1e4])
    @pytest.mark.parametrize("l1", [1, 2, 9])
    def test_the_scale_spends_rho_and_no_more_without_a_search(self, rho, l1, monkeypatch):
        monkeypatch.setattr(context_room, "binary_search", None)
        measurement = fitted(context(dp.loss_of(rho=1e6), l1=l1).query(rho=rho))
        assert rho * (1 - 1e-14) <= measurement.map(l1) <= rho
        expected = l1 * float(PLAN.rho_exact / Fraction(rho)) ** 0.5
        assert measurement.param == pytest.approx(expected, rel=1e-14)

    @pytest.mark.parametrize("epsilon", [1e-3, 0.5, 4.0])
    def test_in_a_context_of_epsilon_and_delta(self, epsilon):
        queried = context(dp.loss_of(epsilon=9.0, delta=1e-6))
        measurement = fitted(queried.query(epsilon=epsilon, delta=1e-7))
        spent, delta = measurement.map(1)
        assert epsilon * (1 - 1e-6) <= spent <= epsilon
        assert delta == 1e-7
        fpo.preflight(queried, measurement)
        assert isinstance(queried(measurement), fp.Release)
        assert queried.current_privacy_loss() == (spent, 1e-7)

    def test_in_a_context_of_approximate_zcdp(self):
        queried = context(dp.loss_of(rho=0.5, delta=1e-6))
        assert fitted(queried.query(rho=0.1, delta=0.0)).map(1) == pytest.approx((0.1, 0))

    def test_pure_epsilon_is_refused_in_words(self):
        with pytest.raises(fp.BudgetError, match="epsilon= and delta="):
            context(dp.loss_of(epsilon=1.0)).query(epsilon=0.5).fitness_for_use(PLAN).resolve()

    def test_a_scale_that_is_given_is_kept(self):
        query = context(dp.loss_of(rho=1.0)).query(rho=0.5)
        m = query.fitness_for_use(PLAN, scale=2.0).resolve()
        assert m.map(1) == pytest.approx(PLAN.rho / 4, rel=1e-14)

    def test_after_opendps_own_counting(self):
        data = dp.Context.compositor(
            data=["f", "m", "m", "x"],
            privacy_unit=dp.unit_of(contributions=2),
            privacy_loss=dp.loss_of(rho=0.5),
            domain=dp.vector_domain(dp.atom_domain(T="String")),
        )
        counted = data.query(rho=0.25).count_by_categories(
            ["f", "m"], MO="L1Distance<i64>", TOA="i64", null_category=False
        )
        assert 0.25 * (1 - 1e-14) <= fitted(counted, SEX).map(2) <= 0.25
        assert counted.fitness_for_use(SEX).release().estimates["sex"].shape == (2,)

    def test_on_tables(self):
        data = dp.Context.compositor(
            data=fp.Tables(DOMAIN, {("sex", "age"): PEOPLE.reshape(2, 2)}),
            privacy_unit=dp.unit_of(contributions=2),
            privacy_loss=dp.loss_of(rho=0.5),
            domain=fpo.tables_domain(PLAN, SEX),
            split_evenly_over=2,
        )
        for plan in (PLAN, SEX):
            measurement = fitted(data.query(), plan)
            fpo.preflight(data, measurement)
            assert data(measurement).plan is plan
            assert measurement.map(2) == pytest.approx(0.25, rel=1e-12)

    @pytest.mark.slow
    def test_on_lazyframes_beside_opendps_own_queries(self):
        data = dp.Context.compositor(
            data=pl.LazyFrame(RECORDS),
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(rho=0.5),
            margins=[dp.polars.Margin(by=(), max_length=1000)],
        )
        assert data.query(rho=0.1).select(dp.len(signed=True)).release().collect().shape == (1, 1)
        young = data.query(rho=0.3).filter(pl.col("age") < 18)
        m = fitted(fpo.as_query(young))
        fpo.preflight(data, m)
        released = data(m)
        assert released.estimates["both"].shape == (2, 2)
        assert data.current_privacy_loss() == pytest.approx(0.4, rel=1e-12)
        assert fpo.as_query(context(dp.loss_of(rho=1.0)).query())._chain == SPACE


class TestPreflight:
    LOSSES = (
        (dp.loss_of(rho=0.5), lambda part: {"rho": 0.5 * part}),
        (
            dp.loss_of(epsilon=1.0, delta=1e-6),
            lambda part: {"epsilon": 1.0 * part, "delta": 1e-6 * part},
        ),
    )

    @pytest.mark.parametrize(("loss", "of"), LOSSES, ids=["rho", "epsilon"])
    def test_a_refused_query_exhausts_a_filter_and_preflight_refuses_first(self, loss, of):
        for asked_first in (True, False):
            data = context(loss)
            data.query(**of(0.5)).fitness_for_use(PLAN).release()
            too_much = data.query(**of(0.75)).fitness_for_use(PLAN).resolve()
            if asked_first:
                with pytest.raises(fp.OverBudget) as caught:
                    fpo.preflight(data, too_much)
                assert caught.value.requested > caught.value.remaining > 0
            else:
                with pytest.raises(dp.OpenDPException, match="exhausted"):
                    data(too_much)
            rest = data.query(**of(0.25)).fitness_for_use(PLAN).resolve()
            if asked_first:
                fpo.preflight(data, rest)
                data(rest)
            else:
                with pytest.raises(fp.OverBudget) as caught:
                    fpo.preflight(data, rest)
                assert caught.value.remaining == 0

    @pytest.mark.parametrize("seed", range(20))
    def test_it_says_what_the_filter_does_to_the_last_bit(self, seed):
        """Losses that sum to the budget but for their last bits."""
        rng = np.random.default_rng(seed)
        parts = rng.dirichlet(np.ones(4)) * 0.5
        data = context(dp.loss_of(rho=0.5))
        for part in parts[:-1]:
            data.query(rho=float(part)).fitness_for_use(PLAN).release()
        left = 0.5 - data.current_privacy_loss()
        last = float(left * (1 + rng.integers(-8, 9) * 2.0**-53))
        measurement = data.query(rho=last).fitness_for_use(PLAN).resolve()
        try:
            fpo.preflight(data, measurement)
        except fp.OverBudget:
            with pytest.raises(dp.OpenDPException, match="exhausted"):
                data(measurement)
        else:
            data(measurement)

    def test_shares_and_unbounded_contexts(self):
        shares = context(dp.loss_of(rho=0.5), split_evenly_over=2)
        small = fitted(shares.query())
        fpo.preflight(shares, small)
        with pytest.raises(fp.OverBudget):
            fpo.preflight(shares, SPACE >> fpo.then_fitness_for_use(PLAN, scale=0.5))
        shares(small)
        shares(small)
        with pytest.raises(fp.OverBudget):
            fpo.preflight(shares, small)
        fpo.preflight(context(dp.loss_of(rho=float("inf"))), small)

    def test_what_is_of_another_space_is_refused(self):
        data = context(dp.loss_of(rho=0.5))
        sized = dp.vector_domain(dp.atom_domain(T="i64"), size=4), SPACE[1]
        with pytest.raises(ValueError, match="input domain"):
            fpo.preflight(data, sized >> fpo.then_fitness_for_use(PLAN))
        narrow = SPACE[0], dp.l1_distance(T="i32")
        with pytest.raises(ValueError, match="input metric"):
            fpo.preflight(data, narrow >> fpo.then_fitness_for_use(PLAN))
        with pytest.raises(ValueError, match="output measure"):
            fpo.preflight(data, SPACE >> dp.m.then_laplace(9.0))


class TestComposition:
    """With OpenDP's own measurements on the same data."""

    OURS = staticmethod(lambda scale=1.0: SPACE >> fpo.then_fitness_for_use(PLAN, scale))

    def test_all_at_once(self):
        theirs = zcdp(SPACE, 4.0)
        both = dp.c.make_composition([self.OURS(), theirs])
        assert both.map(3) == pytest.approx(self.OURS().map(3) + theirs.map(3), rel=1e-14)
        released, noisy = both(COUNTS)
        assert released.estimates["both"].shape == (2, 2)
        assert len(noisy) == 4

    def test_adaptively(self):
        budget = [self.OURS().map(1), zcdp(SPACE, 4.0).map(1)]
        measure = dp.zero_concentrated_divergence()
        compositor = dp.c.make_adaptive_composition(*SPACE, measure, 1, budget)
        assert compositor.map(1) == pytest.approx(sum(budget), rel=1e-14)
        ask = compositor(PEOPLE)
        ask(self.OURS())
        with pytest.raises(dp.OpenDPException, match="insufficient budget"):
            ask(self.OURS())
        ask(zcdp(SPACE, 4.0))

    def test_fully_adaptively_and_filtered(self):
        measure = dp.zero_concentrated_divergence()
        odometer = dp.c.make_fully_adaptive_composition(*SPACE, measure)
        ask = odometer(PEOPLE)
        first = ask(self.OURS(3.0))
        # The second depends on what the first says.
        ask(self.OURS(4.0 if first.estimates["total"] > 500 else 8.0))
        ask(zcdp(SPACE, 4.0))
        spent = self.OURS(3.0).map(1) + self.OURS(4.0).map(1) + zcdp(SPACE, 4.0).map(1)
        assert ask.privacy_loss(1) == pytest.approx(spent, rel=1e-14)
        filtered = dp.c.make_privacy_filter(odometer, 1, self.OURS().map(1))
        ask = filtered(PEOPLE)
        ask(self.OURS())
        with pytest.raises(dp.OpenDPException, match="exhausted"):
            ask(zcdp(SPACE, 4.0))

    def test_with_delta_fixed(self):
        data = context(dp.loss_of(epsilon=8.0, delta=1e-6))
        ours = dp.c.make_fix_delta(TO_EPSILON(self.OURS(3.0)), 5e-7)
        theirs = dp.c.make_approximate(SPACE >> dp.m.then_laplace(4.0))
        for measurement in (ours, theirs):
            fpo.preflight(data, measurement)
            data(measurement)
        epsilon = ours.map(1)[0] + theirs.map(1)[0]
        assert data.current_privacy_loss() == pytest.approx((epsilon, 5e-7), rel=1e-12)
        theirs_at_delta = dp.c.make_fix_delta(TO_EPSILON(self.OURS()), 5e-7).map(1)[0]
        assert epsilon_at(PLAN.privacy_cost, 5e-7) <= theirs_at_delta * (1 + 1e-6)

    def test_a_zcdp_compositor_inside_epsilon_and_delta(self):
        data = context(dp.loss_of(epsilon=2.0, delta=1e-6))
        inner = (
            data.query(epsilon=2.0, delta=1e-6)
            .compositor(split_evenly_over=3, output_measure=dp.zero_concentrated_divergence())
            .release()
        )
        for _ in range(3):
            measurement = fitted(inner.query())
            fpo.preflight(inner, measurement)
            assert inner(measurement).plan is PLAN
