"""Plans on every input that OpenDP can hand over: count vectors, Tables, records, LazyFrames."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest

import fitplug as fp
import fitplug_opendp as fpo
from fitplug_opendp.input_domains import check_unit_is_measurable
from tests.helpers.opendp_spaces import COUNTS, DOMAIN, EXACT, PLAN, RECORDS, SEX, features  # noqa: F401

pl = pytest.importorskip("polars")

TABLES = fp.Tables(DOMAIN, {("sex", "age"): COUNTS.reshape(2, 2)})
AGES = fp.design(fp.Workload(DOMAIN, [fp.marginal("age", std=1e-4)]))
RECORDS_FRAME = pl.LazyFrame(RECORDS)


def vector(T, size=4, distance="i64"):
    return dp.vector_domain(dp.atom_domain(T=T), size=size), dp.l1_distance(T=distance)


def frame_space(metric, data=RECORDS_FRAME):
    return dp.domain_of(data, infer=True), metric


def bounds(**given):
    return [dp.polars.Bound(**given)]


def is_cost_of(measurement, plan, d_in, records):
    """Whether the map gives k^2 rho, rounded up and by next to nothing."""
    exact = records**2 * plan.rho_exact
    return exact <= Fraction(measurement.map(d_in)) <= exact * (1 + Fraction(1, 10**14))


def is_exact(released, counts=COUNTS):
    np.testing.assert_allclose(released.estimates["both"].ravel(), counts, atol=0.01)


class TestCountVectors:
    @pytest.mark.parametrize("T", ["i32", "i64", "u32"])
    @pytest.mark.parametrize("distance", ["i32", "i64", "u32"])
    def test_of_each_integer_type(self, T, distance):
        m = fpo.make_fitness_for_use(*vector(T, distance=distance), EXACT)
        assert all(is_cost_of(m, EXACT, k, k) for k in (0, 1, 2, 1000, 2**31 - 1))
        kind = {"i32": np.int32, "i64": np.int64, "u32": np.uint32}[T]
        top = np.array([np.iinfo(kind).max, 0, 3, 1], dtype=kind)
        if T != "i64":  # estimates are floats
            is_exact(m(top), top)
        assert m(top).answers.dtype == np.int64

    def test_of_no_size_as_opendp_counts_them(self):
        domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        m = fpo.make_fitness_for_use(domain, metric, EXACT)
        is_exact(m(COUNTS))
        whole = np.stack([COUNTS - 1, np.ones(4, dtype=np.int64)], axis=1)
        is_exact(m(whole.ravel()))
        for size in (0, 3, 5, 9):
            with pytest.raises(dp.OpenDPException, match="must have 4 or 8 counts"):
                m(np.zeros(size, dtype=np.int64))

    @pytest.mark.parametrize(("T", "MO"), [("i64", "i64"), ("i32", "u32"), ("u32", "i32")])
    def test_after_opendps_own_counting(self, T, MO):
        records = dp.vector_domain(dp.atom_domain(T="String")), dp.symmetric_distance()
        count = dp.t.then_count_by_categories(
            ["f", "m"], MO=f"L1Distance<{MO}>", TOA=T, null_category=False
        )
        m = records >> count >> fpo.then_fitness_for_use(SEX)
        assert all(is_cost_of(m, SEX, k, k) for k in (1, 2, 7))
        assert m(["f", "m", "m", "x"]).estimates["sex"].shape == (2,)

    def test_the_null_cell_is_the_cell_of_other_values_or_is_explained(self):
        records = dp.vector_domain(dp.atom_domain(T="String")), dp.symmetric_distance()
        count = dp.t.then_count_by_categories(["f", "m"], MO="L1Distance<i64>", TOA="i64")
        with pytest.raises(dp.OpenDPException, match="null_category=False"):
            (records >> count >> fpo.then_fitness_for_use(SEX))(["f"])
        domain = fp.Domain({"sex": fp.Categories(["f", "m"], other="else")})
        plan = fp.design(fp.Workload(domain, [fp.marginal("sex", std=1e-4)]))
        released = (records >> count >> fpo.then_fitness_for_use(plan))(["f", "m", "m", "x", "y"])
        np.testing.assert_allclose(released.estimates["sex"], [1, 2, 2], atol=0.01)

    def test_after_find_bin(self):
        edges = list(DOMAIN["age"].edges)
        m = (
            (dp.vector_domain(dp.atom_domain(T="i32")), dp.symmetric_distance())
            >> dp.t.then_find_bin(edges=[int(e) for e in edges])
            >> dp.t.then_count_by_categories(
                [1, 2], MO="L1Distance<i64>", TOA="i64", null_category=False
            )
            >> fpo.then_fitness_for_use(AGES)
        )
        assert is_cost_of(m, AGES, 2, 2)
        estimates = m([-1, 0, 17, 18, 64, 65, 99, 30]).estimates["age"]
        np.testing.assert_allclose(estimates, [2, 3], atol=0.01)

    def test_a_changed_record_is_two(self):
        records = (
            dp.vector_domain(dp.atom_domain(T="i32"), size=4),
            dp.change_one_distance(),
        )
        m = (
            records
            >> dp.t.then_metric_unbounded()
            >> dp.t.then_find_bin(edges=[0, 18, 65])
            >> dp.t.then_count_by_categories(
                [1, 2], MO="L1Distance<i64>", TOA="i64", null_category=False
            )
            >> fpo.then_fitness_for_use(AGES)
        )
        assert is_cost_of(m, AGES, 1, 2)


class TestTables:
    def space(self, *plans):
        return fpo.tables_domain(*plans), dp.symmetric_distance()

    def test_are_released_at_the_plans_cost(self):
        m = fpo.make_fitness_for_use(*self.space(EXACT), EXACT)
        assert m.map(1) == EXACT.rho
        assert all(is_cost_of(m, EXACT, k, k) for k in (0, 2, 5, 10**6))
        is_exact(m(TABLES))

    def test_a_domain_for_several_plans(self):
        space = self.space(SEX, PLAN)
        both = dp.c.make_composition(
            [fpo.make_fitness_for_use(*space, plan) for plan in (PLAN, SEX)]
        )
        assert both.map(1) == pytest.approx(PLAN.rho + SEX.rho, rel=1e-14)
        assert {r.plan for r in both(TABLES)} == {PLAN, SEX}

    def test_a_domain_is_told_from_others(self):
        finer = fp.Domain({"sex": ["f", "m"], "age": fp.Bins([0, 17, 65])})
        other = fp.design(fp.Workload(finer, [fp.marginal("sex", "age", std=2.0)]))
        same = fp.design(fp.Workload(DOMAIN, [fp.marginal("age", "sex", std=7.0)]))
        assert fpo.tables_domain(PLAN) == fpo.tables_domain(same)
        assert fpo.tables_domain(PLAN) != fpo.tables_domain(other)
        assert fpo.tables_domain(PLAN) != fpo.tables_domain(SEX)
        assert fpo.tables_domain(PLAN).member(TABLES)
        assert not fpo.tables_domain(other).member(TABLES)
        with pytest.raises(ValueError, match="lack counts that the plan needs"):
            fpo.make_fitness_for_use(*self.space(SEX), PLAN)
        with pytest.raises(ValueError, match="lack counts that the plan needs"):
            fpo.make_fitness_for_use(*self.space(other), PLAN)
        with pytest.raises(ValueError, match="different domains"):
            fpo.tables_domain(PLAN, other)

    def test_total_on_tables_of_any_size(self):
        """Beyond what the plan's integers hold, answers are clamped: never an error."""
        huge = fp.Tables(DOMAIN, {("sex", "age"): np.full((2, 2), 2**50)})
        assert huge.marginal(()) > EXACT.strategy.max_records
        assert fpo.make_fitness_for_use(*self.space(EXACT), EXACT)(huge).answers.dtype == np.int64

    def test_other_metrics_are_refused(self):
        with pytest.raises(ValueError, match="symmetric_distance"):
            fpo.make_fitness_for_use(fpo.tables_domain(PLAN), dp.change_one_distance(), PLAN)


class TestUnits:
    """The map of a plan for k records is the plan's own claim at k records."""

    plan = fp.design(EXACT.workload, unit=fp.AddRemove(3))

    @staticmethod
    def is_cost_of(measurement, plan, d_in, records):
        exact = Fraction(records, 3) ** 2 * plan.rho_exact
        return exact <= Fraction(measurement.map(d_in)) <= exact * (1 + Fraction(1, 10**14))

    def test_counts_and_tables(self):
        for space in (vector("i64"), (fpo.tables_domain(self.plan), dp.symmetric_distance())):
            m = fpo.make_fitness_for_use(*space, self.plan)
            assert all(self.is_cost_of(m, self.plan, d, d) for d in (0, 1, 2, 3, 4, 300))
            assert m.map(3) <= self.plan.rho <= math.nextafter(m.map(3), math.inf)

    def test_frames(self):
        frame = dp.frame_distance(dp.symmetric_distance())
        of_frames = {
            "records": (dp.symmetric_distance(), 3, 3),
            "replaced": (dp.change_one_distance(), 1, 2),
            "bounded": (frame, bounds(by=["sex"], per_group=1, num_groups=3), 3),
        }
        for metric, d_in, records in of_frames.values():
            m = fpo.make_fitness_for_use(*frame_space(metric), self.plan)
            assert self.is_cost_of(m, self.plan, d_in, records)
            is_exact(m(RECORDS_FRAME))

    def test_persons_with_identifiers(self):
        """Truncation by month and by the number of months makes as many records as both say."""
        context = dp.Context.compositor(
            data=RECORDS_FRAME,
            privacy_unit=dp.unit_of(contributions=1, identifier="id"),
            privacy_loss=dp.loss_of(rho=1e12),
        )
        fpo.register()
        once = context.query(rho=0.1).truncate_per_group(1, by=["age"])
        query = fpo.as_query(once.truncate_num_groups(3, by=["age"]))
        m = query.fitness_for_use(self.plan, scale=1.0).resolve()
        assert m.map(1) <= self.plan.rho <= math.nextafter(m.map(1), math.inf)

    def test_a_replacement_costs_no_more_than_two_records(self):
        two = fp.design(EXACT.workload, unit=fp.AddRemove(2))
        replaced = fp.design(EXACT.workload, unit=fp.ReplaceOne())
        m = fpo.make_fitness_for_use(*frame_space(dp.change_one_distance()), two)
        assert m.map(1) == two.rho
        assert two.rho >= replaced.rho

    def test_records_replaced(self):
        """The map is the claim; brute force over all pairs of records is in the audit of units."""
        domain = fp.Domain({name: fp.Categories(["0", "1"], other="else") for name in ("a", "b")})
        asked = [fp.marginal("a", "b", std=1e-4, name="both"), fp.total(std=1.0)]
        plan = fp.design(fp.Workload(domain, asked), unit=fp.ReplaceOne())
        frame = pl.LazyFrame({"a": ["0", "1", "7", None], "b": ["1", "1", "1", ""]})
        tables = fp.Tables.from_records(domain, frame.collect(), plan.tables)
        spaces = {
            "tables": (fpo.tables_domain(plan), dp.change_one_distance()),
            "frame": frame_space(dp.change_one_distance(), frame),
        }
        for name, space in spaces.items():
            m = fpo.make_fitness_for_use(*space, plan)
            assert all(is_cost_of(m, plan, d, d) for d in (0, 1, 2, 50))
            assert m.map(1) <= plan.rho <= math.nextafter(m.map(1), math.inf)
            released = m(tables if name == "tables" else frame)
            assert released.public_totals == 4
            assert released.estimates["total"] == 4
            assert released.variances["total"] == 0
            is_exact(released, [0, 1, 0, 0, 1, 0, 0, 1, 1])

    def test_other_metrics_than_that_of_replacements_are_refused(self):
        plan = fp.design(EXACT.workload, unit=fp.ReplaceOne())
        refused = {
            "change_one_distance": [
                (fpo.tables_domain(plan), dp.symmetric_distance()),
                frame_space(dp.symmetric_distance()),
                vector("i64"),
            ],
            "needs other= in the attribute": [frame_space(dp.change_one_distance())],
        }
        for message, spaces in refused.items():
            for space in spaces:
                with pytest.raises(ValueError, match=message):
                    fpo.make_fitness_for_use(*space, plan)
        with pytest.raises(ValueError, match="symmetric_distance"):
            fpo.make_fitness_for_use(fpo.tables_domain(EXACT), dp.change_one_distance(), EXACT)

    def test_regions_that_no_distance_says_are_refused(self):
        plan = fp.design(EXACT.workload, unit=fp.ReplaceOne(within=("sex",)))
        with pytest.raises(fp.BudgetError, match=r"Design the plan for fp.ReplaceOne\(\)"):
            fpo.make_fitness_for_use(fpo.tables_domain(plan), dp.change_one_distance(), plan)

    @pytest.mark.parametrize(
        "unit", [fp.AddRemove(3, distinct=True), fp.AddRemove(3, once_per="age")], ids=str
    )
    def test_records_apart_are_refused(self, unit):
        with pytest.raises(fp.BudgetError, match=r"AddRemove\(records=3\)"):
            check_unit_is_measurable(unit)


class TestLazyFrames:
    FRAME = "FrameDistance<SymmetricDistance>"

    @pytest.mark.parametrize(
        ("metric", "d_in", "records"),
        [
            (dp.symmetric_distance, 1, 1),
            (dp.symmetric_distance, 7, 7),
            (dp.change_one_distance, 1, 2),
            (dp.change_one_distance, 3, 6),
            ("frame", bounds(per_group=3), 3),
            ("frame", bounds(by=["sex"], per_group=2, num_groups=3), 6),
            ("frame", bounds(by=["sex"], per_group=2, num_groups=3) + bounds(per_group=4), 4),
            ("frame", bounds(by=["sex"], per_group=9) + bounds(per_group=4), 4),
            ("frame", bounds(by=["sex"], per_group=2) + bounds(by=["sex"], num_groups=3), 6),
            (
                "frame",
                bounds(by=["sex", "age"], num_groups=2) + bounds(by=["age", "sex"], per_group=2),
                4,
            ),
        ],
    )
    def test_maps_count_the_records_that_differ(self, metric, d_in, records):
        metric = dp.frame_distance(dp.symmetric_distance()) if metric == "frame" else metric()
        counted = fpo.make_tables(*frame_space(metric), EXACT)
        assert counted.map(d_in) == records
        assert counted.output_domain == fpo.tables_domain(EXACT)
        assert counted.output_metric == dp.symmetric_distance()
        np.testing.assert_array_equal(counted(RECORDS_FRAME)["sex", "age"].ravel(), COUNTS)
        for m in (
            counted >> fpo.then_fitness_for_use(EXACT),
            fpo.make_fitness_for_use(*frame_space(metric), EXACT),
            frame_space(metric) >> fpo.then_tables(EXACT) >> fpo.then_fitness_for_use(EXACT),
        ):
            assert is_cost_of(m, EXACT, d_in, records)
            is_exact(m(RECORDS_FRAME))

    def test_people_with_identifiers_are_truncated_by_opendp(self):
        person = dp.symmetric_id_distance(pl.col("id"))
        space = frame_space(person)
        with pytest.raises(ValueError, match="truncate_per_group"):
            fpo.make_tables(*space, PLAN)
        context = dp.Context.compositor(
            data=RECORDS_FRAME,
            privacy_unit=dp.unit_of(contributions=2, identifier="id"),
            privacy_loss=dp.loss_of(rho=1e9),
        )
        fpo.register()
        query = fpo.as_query(context.query(rho=0.1).truncate_per_group(3))
        m = query.fitness_for_use(EXACT, scale=1.0).resolve()
        assert is_cost_of(m, EXACT, 2, 6)
        is_exact(m(RECORDS_FRAME))

    @pytest.mark.parametrize(
        "given",
        [
            [],
            bounds(by=["sex"], per_group=3),
            bounds(num_groups=1),
            bounds(by=["sex"], per_group=3) + bounds(by=["age"], num_groups=2),
            bounds(by=["sex"], per_group=3) + bounds(by=["sex", "age"], num_groups=2),
        ],
    )
    def test_bounds_that_bound_nothing(self, given):
        metric = dp.frame_distance(dp.symmetric_distance())
        with pytest.raises(dp.OpenDPException, match="no Bound limits"):
            fpo.make_tables(*frame_space(metric), PLAN).map(given)

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            ({"sex": ["f"]}, "no column 'age'"),
            ({"sex": ["f"], "age": ["old"]}, "column 'age' has the type String"),
            ({"sex": [1], "age": [1]}, "column 'sex' has the type Int64"),
        ],
    )
    def test_columns_that_do_not_fit_are_refused_at_once(self, data, says):
        with pytest.raises(ValueError, match=says):
            fpo.make_tables(*frame_space(dp.symmetric_distance(), pl.LazyFrame(data)), PLAN)

    def test_every_kind_of_column_is_counted_as_from_records(self):
        domain = fp.Domain(
            {
                "text": fp.Categories(["x", "y"], other="else"),
                "code": ["x", "y"],
                "enum": ["p", "q", "r"],
                "whole": fp.Integers(-2, 9),
                "small": [3, 1, 2],
                "flag": [True, False],
                "real": fp.Bins([0, 0.5, 1]),
                "bins": fp.Bins([-5, 0, 5]),
                "tree": fp.Hierarchy({"a": 1, "b": 2}, ["11", "12", "21"]),
            }
        )
        rng = np.random.default_rng(1)
        pools = {
            "text": ["x", "y", "z", None],
            "code": ["x", "x", "y", "w"],
            "enum": ["p", "q", "r"],
            "whole": [-3, -2, 0, 9, 10, 2**40, None],
            "small": [1, 2, 3, 4, None],
            "flag": [True, False, None],
            "real": [0.0, 0.5, 1.0, -0.1, float("nan"), None],
            "bins": [-6, -5, 0, 4, 5, None],
            "tree": ["11", "12", "21", "22", None],
        }
        records = {n: [v[i] for i in rng.integers(0, len(v), 3000)] for n, v in pools.items()}
        dtypes = {"code": pl.Categorical, "enum": pl.Enum(["r", "q", "p"]), "small": pl.UInt32}
        data = pl.LazyFrame(records, schema_overrides=dtypes)
        chosen = [("text", "whole"), ("code", "enum"), ("small", "flag"), ("real",), ("bins",)]
        for names in [*chosen, ("tree", "text"), ()]:
            group = fp.marginal(*names, std=2.0) if names else fp.total(std=2.0)
            plan = fp.design(fp.Workload(domain, [group]), tolerance=1e-2)
            counted = fpo.make_tables(*frame_space(dp.symmetric_distance(), data), plan)(data)
            columns = {n: np.array(v, dtype=object) for n, v in records.items()}
            expected = fp.Tables.from_records(domain, columns, plan.tables)
            for table in plan.tables:
                np.testing.assert_array_equal(counted[table], expected[table])
