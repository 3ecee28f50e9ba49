"""Measures in OpenDP: the map is the claim for every value, and frames hold exact sums."""

from __future__ import annotations

import datetime
import itertools
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest

import fitplug as fp
import fitplug_opendp as fpo
from tests.helpers.opendp_spaces import features  # noqa: F401

pl = pytest.importorskip("polars")

DOMAIN = fp.Domain(
    {"sex": ["f", "m"], "pay": fp.Measure(-20, 100, unit=10), "hours": fp.Measure(0, 8, other="-")}
)
GROUPS = [
    fp.queries({"sex": "identity", "pay": "sum"}, std=200.0, name="pay"),
    fp.queries({"hours": "sum"}, std=20.0, name="hours"),
    fp.queries({"hours": "count"}, std=3.0, name="working"),
    fp.marginal("sex", std=4.0, name="people"),
]
PLAN = fp.design(fp.Workload(DOMAIN, GROUPS), tolerance=1e-2)
EXACT = fp.design(fp.Workload(DOMAIN, GROUPS), rho=1e9, tolerance=1e-1)
"""So accurate that its estimates show the exact sums."""

PEOPLE = fp.design(fp.Workload(DOMAIN, [fp.marginal("sex", std=2.0)]))

RECORDS = {
    "sex": ["f", "m", "m", "f", "x", None, "m", "f"],
    "pay": [14.0, 1e9, -77.0, 15.0, 20.0, 20.0, float("nan"), None],
    "hours": [3, 9, None, 8, 8, 8, 8, 8],
    "id": [1, 1, 2, 2, 2, 3, 4, 5],
}
"""Four records are inside; 14 is rounded to 10, and 15 upwards to 20."""

FRAME = pl.LazyFrame(RECORDS)
TABLES = fp.Tables.from_records(
    DOMAIN, {n: np.array(v, dtype=object) for n, v in RECORDS.items()}, PLAN.tables
)


def bounds(**given):
    return [dp.polars.Bound(**given)]


def is_cost_of(measurement, plan, d_in, records):
    """Whether the map gives k^2 rho, rounded up and by next to nothing."""
    exact = Fraction(records, plan.strategy.structure.changes) ** 2 * plan.rho_exact
    return exact <= Fraction(measurement.map(d_in)) <= exact * (1 + Fraction(1, 10**14))


def holds_the_sums(release):
    np.testing.assert_allclose(release.estimates["pay"].ravel(), [10 + 20, 100 - 20], atol=0.5)
    np.testing.assert_allclose(release.estimates["hours"].ravel(), [3 + 8 + 8], atol=0.5)
    np.testing.assert_allclose(release.estimates["working"].ravel(), [3], atol=0.1)
    np.testing.assert_allclose(release.estimates["people"].ravel(), [2, 2], atol=0.1)


def space(plan):
    return fpo.tables_domain(plan), dp.symmetric_distance()


class TestMap:
    @pytest.mark.parametrize("unit", [fp.AddRemove(), fp.AddRemove(3)], ids=str)
    def test_is_the_largest_cost_over_all_values_in_exact_rationals(self, unit):
        """The answers to one record more, for every value of both measures, against the map."""
        plan = fp.design(fp.Workload(DOMAIN, GROUPS), tolerance=1e-2, unit=unit)
        values = itertools.product("fm", range(-20, 101, 10), [None, *range(9)])
        costs = []
        for sex, pay, hours in values:
            record = {"sex": [sex], "pay": [pay], "hours": np.array([hours], dtype=object)}
            tables = fp.Tables.from_records(DOMAIN, record, plan.tables)
            changed = plan.strategy.answer_exactly(tables.marginal)
            costs.append(sum(int(a) ** 2 for a in changed) / (2 * Fraction(plan.noise_std) ** 2))
        m = fpo.make_fitness_for_use(*space(plan), plan)
        assert m.map(unit.records) <= plan.rho <= np.nextafter(m.map(unit.records), np.inf)
        assert max(costs) <= Fraction(m.map(1)) <= max(costs) * (1 + Fraction(1, 10**14))
        assert all(is_cost_of(m, plan, d, d) for d in (0, 1, 2, 3, 300))

    @pytest.mark.parametrize("scale", [0.5, 3.0])
    def test_of_a_scale(self, scale):
        m = fpo.make_fitness_for_use(*space(PLAN), PLAN, scale)
        assert m.map(2) == pytest.approx(4 * PLAN.rho / scale**2, rel=1e-14)

    def test_dp_accounting_gets_the_same_event(self):
        pytest.importorskip("dp_accounting")
        rho = 1 / (2 * Fraction(fpo.dp_event(PLAN).noise_multiplier) ** 2)
        assert PLAN.rho_exact <= rho <= PLAN.rho_exact * (1 + Fraction(1, 10**14))


class TestSpaces:
    @pytest.mark.parametrize("size", [PLAN.workload.cell_count, DOMAIN.size, None])
    def test_a_vector_of_counts_holds_no_sums(self, size):
        vector = dp.vector_domain(dp.atom_domain(T="i64"), size=size), dp.l1_distance(T="i64")
        with pytest.raises(ValueError, match=r"no sums.* pay, hours. .*tables_domain"):
            fpo.make_fitness_for_use(*vector, PLAN)

    def test_nor_does_one_of_a_domain_with_measures_hold_counts(self):
        vector = dp.vector_domain(dp.atom_domain(T="i64"), size=DOMAIN.size)
        with pytest.raises(ValueError, match="must be vector_domain"):
            fpo.make_fitness_for_use(vector, dp.l1_distance(T="i64"), PEOPLE)
        whole = dp.vector_domain(dp.atom_domain(T="i64"), size=2), dp.l1_distance(T="i64")
        assert is_cost_of(fpo.make_fitness_for_use(*whole, PEOPLE), PEOPLE, 5, 5)

    def test_other_metrics_are_refused(self):
        for metric in (dp.change_one_distance(), dp.l1_distance(T="i64")):
            with pytest.raises(ValueError, match="symmetric_distance"):
                fpo.make_fitness_for_use(fpo.tables_domain(PLAN), metric, PLAN)

    def test_other_units_are_refused(self):
        unit = fp.AddRemove(2, once_per="sex")
        plan = fp.design(fp.Workload(DOMAIN, GROUPS[1:]), tolerance=0.1, unit=unit)
        with pytest.raises(fp.BudgetError, match="OpenDP has no metric"):
            fpo.make_fitness_for_use(*space(plan), plan)

    def test_other_bounds_are_another_domain(self):
        wider = fp.Domain({"sex": ["f", "m"], "pay": fp.Measure(-20, 110, unit=10),
                           "hours": DOMAIN["hours"]})  # fmt: skip
        other = fp.design(fp.Workload(wider, GROUPS), tolerance=0.1)
        assert fpo.tables_domain(PLAN) != fpo.tables_domain(other)
        assert fpo.tables_domain(PLAN).member(TABLES)
        assert not fpo.tables_domain(other).member(TABLES)
        with pytest.raises(ValueError, match="lack counts that the plan needs"):
            fpo.make_fitness_for_use(*space(other), PLAN)
        with pytest.raises(fp.TablesError, match="do not match the plan in the attribute 'pay'"):
            fp.release(other, TABLES)

    def test_tables_that_hold_no_whole_records_are_refused_whatever_they_hold(self):
        """One record more or less does not change whether they do."""
        m = fpo.make_fitness_for_use(*space(PEOPLE), PEOPLE)
        for low in (1, 1213, 12 * 10**6 + 1):
            broken = fp.Tables(DOMAIN, {("sex", "pay"): np.array([[low, 0], [0, 24]])})
            with pytest.raises(dp.OpenDPException, match="do not add up to whole rows") as caught:
                m(broken)
            assert "1213" not in str(caught.value)

    def test_total_on_tables_of_any_size(self):
        """Beyond what the plan's integers hold, answers are clamped: never an error."""
        counts = np.full((2, 2), 12 * 2**52)
        huge = fp.Tables(DOMAIN, {("sex", "pay"): counts})
        m = fpo.make_fitness_for_use(*space(PEOPLE_AND_PAY), PEOPLE_AND_PAY)
        assert m(huge).answers.dtype == np.int64


PEOPLE_AND_PAY = fp.design(fp.Workload(DOMAIN, [GROUPS[0], GROUPS[3]]), tolerance=1e-2)


class TestLazyFrames:
    @pytest.mark.parametrize(
        ("metric", "d_in", "records"),
        [
            (dp.symmetric_distance(), 7, 7),
            (dp.change_one_distance(), 3, 6),
            (dp.frame_distance(dp.symmetric_distance()), bounds(per_group=3), 3),
            (
                dp.frame_distance(dp.symmetric_distance()),
                bounds(by=["id"], per_group=2, num_groups=3),
                6,
            ),
        ],
    )
    def test_maps_count_the_records_that_differ(self, metric, d_in, records):
        frames = dp.domain_of(FRAME, infer=True), metric
        counted = fpo.make_tables(*frames, EXACT)
        assert counted.map(d_in) == records
        for m in (counted >> fpo.then_fitness_for_use(EXACT),
                  fpo.make_fitness_for_use(*frames, EXACT)):  # fmt: skip
            assert is_cost_of(m, EXACT, d_in, records)
            holds_the_sums(m(FRAME))

    def test_tables_are_those_of_the_records(self):
        counted = fpo.make_tables(dp.domain_of(FRAME, infer=True), dp.symmetric_distance(), PLAN)(
            FRAME
        )
        for names in PLAN.tables:
            np.testing.assert_array_equal(counted[names], TABLES[names])

    def test_in_a_context_beside_opendps_own_sum(self):
        """OpenDP's sum of the same clamped column has the same exact value."""
        fpo.register()
        inside = FRAME.filter(pl.col("sex").is_in(["f", "m"]), pl.col("pay").is_not_nan())
        context = dp.Context.compositor(
            data=inside, privacy_unit=dp.unit_of(contributions=2), privacy_loss=dp.loss_of(rho=1e12)
        )
        release = context.query(rho=4.1 * EXACT.rho).fitness_for_use(EXACT).release()
        holds_the_sums(release)
        clamped = inside.filter(pl.col("pay").is_not_null()).select(
            pl.col("pay").clip(-20, 100).truediv(10).add(0.5).floor().sum() * 10
        )
        assert release.estimates["pay"].sum() == pytest.approx(clamped.collect().item(), abs=0.5)

    @pytest.mark.parametrize(
        "dtype",
        ["Int32", "Int64", "UInt32", "UInt64", "Float32", "Float64"],
    )
    def test_every_type_of_numbers_that_opendp_takes_gives_exact_sums(self, dtype):
        """Against sums of fractions, clamped and rounded here."""
        signed = not dtype.startswith("U")
        pool: list[object] = [None, 0, 3, 4, 5, 6, 99, 100, 101, 127, *([-1, -128] * signed)]
        pool += {"UInt64": [2**64 - 1], "Int64": [-(2**63)]}.get(dtype, [])
        if dtype.startswith("Float"):
            pool += [2.5, 99.5, float("inf"), -float("inf"), 1e30]
        drawn = [pool[i] for i in np.random.default_rng(2).integers(0, len(pool), 500)]
        frame = pl.LazyFrame({"y": pl.Series(drawn, dtype=getattr(pl, dtype))})
        domain = fp.Domain({"y": fp.Measure(0, 100, unit=5)})
        plan = fp.design(fp.Workload(domain, [fp.queries({"y": "sum"}, std=50.0)]), tolerance=1e-2)
        counted = fpo.make_tables(
            dp.domain_of(frame, infer=True), dp.symmetric_distance(), plan
        )(frame)  # fmt: skip
        kept = [100 if v > 100 else max(v, 0) for v in drawn if v is not None]
        units = sum(int((Fraction(v) / 5 + Fraction(1, 2)) // 1) for v in kept)
        assert counted["y",].tolist() == [20 * len(kept) - units, units]

    @pytest.mark.parametrize("kind", ["Date", "Datetime", "String"])
    def test_dates(self, kind):
        days = [datetime.date(2019, 1, 1), datetime.date(2020, 1, 3), None]
        frame = pl.LazyFrame({"day": pl.Series(days, dtype=pl.Date).cast(getattr(pl, kind))})
        domain = fp.Domain({"day": fp.Measure("2020-01-01", "2020-01-11", other="none")})
        plan = fp.design(fp.Workload(domain, [fp.queries({"day": "sum"}, std=50.0)]), tolerance=0.1)
        counted = fpo.make_tables(
            dp.domain_of(frame, infer=True), dp.symmetric_distance(), plan
        )(frame)  # fmt: skip
        assert counted["day",].tolist() == [10 + 8, 2, 10]

    @pytest.mark.parametrize("values", [["7"], [True]])
    def test_what_is_no_number_is_refused_by_its_type(self, values):
        frame = pl.LazyFrame({"y": values})
        domain = fp.Domain({"y": fp.Measure(0, 10)})
        plan = fp.design(fp.Workload(domain, [fp.queries({"y": "sum"}, std=5.0)]), tolerance=0.1)
        with pytest.raises(ValueError, match=r"column 'y' has the type .* needs numbers"):
            fpo.make_tables(dp.domain_of(frame, infer=True), dp.symmetric_distance(), plan)
