"""Plans for persons with several records: everything they say of privacy is for one person."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

import fitplug as fp
import fitplug_opendp as fpo
from fitplug.errors import InputError, WorkloadError
from fitplug.families import build_dense_strategy
from tests.helpers.command_line import fitplug
from tests.helpers.plans import MIXED, PRODUCTS

DOMAIN = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, 4), "month": ["1", "2", "3"]})
WORKLOADS = {
    "dense": lambda: fp.Workload.from_matrix(np.tri(6), variance=1.0),
    "blocks": MIXED["pyramid"],
    "numbers": MIXED["marginals"],
    "product": PRODUCTS["prefixes"],
    "tree": PRODUCTS["geography"],
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_k_records_cost_their_square(name, tmp_path):
    workload = WORKLOADS[name]()
    one = fp.design(workload)
    three = fp.design(workload, unit=fp.AddRemove(records=3))
    assert three.unit == fp.AddRemove(records=3)
    assert three.noise_std == one.noise_std
    assert three.rho_exact == 9 * one.rho_exact
    assert three.rho >= three.rho_exact
    assert three.privacy_cost == pytest.approx(3 * one.privacy_cost, rel=1e-14)
    assert three.lower_bound == pytest.approx(3 * one.lower_bound, rel=1e-14)
    assert three.gap == pytest.approx(one.gap, rel=1e-6, abs=1e-13)
    np.testing.assert_allclose(three.profile(), 9 * one.profile(), rtol=1e-13)
    assert three.profile().max() == pytest.approx(three.privacy_cost**2, rel=1e-12)
    np.testing.assert_allclose(
        three.unused_budget(), 9 * one.unused_budget(), rtol=1e-9, atol=1e-9 * three.rho
    )
    for group in workload.names:
        np.testing.assert_array_equal(three.variances[group], one.variances[group])
    total = sum((Fraction(m.sensitivity) / Fraction(m.sigma)) ** 2 / 2 for m in three.mechanisms())
    assert three.rho_exact <= total <= three.rho_exact * (1 + Fraction(1, 10**13))
    assert three.epsilon(1e-9) > one.epsilon(1e-9)
    for found, expected in zip(three.tiers, one.tiers, strict=True):
        assert found.level == pytest.approx(9 * expected.level, rel=1e-12)
        if expected.lower_bound is not None:
            assert found.lower_bound == pytest.approx(9 * expected.lower_bound, rel=1e-9)
    three.verify()
    three.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    again.verify()
    assert (again.unit, again.digest) == (three.unit, three.digest)
    assert three.digest != one.digest
    assert "at most 3, anywhere" in three.summary()
    assert one.summary().startswith("unit          one row added or removed\n")


def test_the_cost_is_that_of_the_worst_person():
    plan = fp.design(WORKLOADS["dense"](), unit=fp.AddRemove(records=2))
    A = build_dense_strategy(plan.strategy)
    worst = max(float(((A[:, i] + A[:, j]) ** 2).sum()) for i in range(6) for j in range(6))
    assert plan.strategy.sensitivity_squared == worst


def test_a_budget_is_that_of_a_person():
    workload = MIXED["pyramid"]()
    one = fp.design(workload, rho=0.5)
    two = fp.design(workload, rho=0.5, unit=fp.AddRemove(records=2))
    assert 0.5 * (1 - 1e-12) < two.rho <= 0.5
    assert two.scale == pytest.approx(4 * one.scale, rel=1e-12)
    two.verify()


def test_cell_budgets_are_those_of_a_person():
    workload = fp.Workload.from_matrix(np.tri(5), variance=1.0)
    budgets = np.array([1.0, 2.0, 3.0, 2.0, 1.0])
    one = fp.design(workload, cell_budgets=budgets / 9)
    three = fp.design(workload, cell_budgets=budgets, unit=fp.AddRemove(records=3))
    assert (three.profile() <= budgets).all()
    assert three.scale == pytest.approx(one.scale, rel=1e-9)
    three.verify()


@pytest.mark.parametrize(
    ("unit", "error", "says"),
    [
        (fp.AddRemove(records=2, distinct=True), WorkloadError, "no query uses age"),
        (fp.AddRemove(records=2, once_per="day"), fp.DomainError, "day"),
        (3, InputError, "unit of privacy"),
    ],
)
def test_other_units_are_refused_with_a_sentence(unit, error, says):
    workload = fp.Workload(DOMAIN, [fp.marginal("sex", "month", std=3.0)])
    with pytest.raises(error, match=says):
        fp.design(workload, unit=unit)


class TestReleases:
    workload = fp.Workload(
        DOMAIN, [fp.marginal("sex", "month", std=3.0), fp.queries({"age": "prefix"}, std=4.0)]
    )
    plan = fp.design(workload, unit=fp.AddRemove(records=3))
    tables = fp.Tables.from_records(
        DOMAIN, {"sex": ["f", "m"], "age": [1, 4], "month": ["1", "3"]}, plan.tables
    )

    def test_a_release_costs_what_the_plan_says(self):
        release = fp.release(self.plan, self.tables)
        assert release.rho == pytest.approx(self.plan.rho, rel=1e-14)
        assert release.rho >= self.plan.rho_exact
        assert release.privacy_cost == self.plan.privacy_cost
        assert "3^2 times the rho of one row" in str(fp.review(release))

    def test_a_folder_is_read_back(self, tmp_path):
        ledger = fp.Ledger(tmp_path / "budget.db", rho=1000.0)
        release = fp.release(self.plan, self.tables, tmp_path / "out", ledger=ledger)
        assert float(ledger.spent) == pytest.approx(self.plan.rho, rel=1e-12)
        assert ledger.spent >= release.rho
        again = fp.Release.load(tmp_path / "out")
        assert again.plan.unit == self.plan.unit

    def test_the_measurement_charges_each_record_once(self):
        dp = pytest.importorskip("opendp.prelude")
        dp.enable_features("contrib", "honest-but-curious")
        one = fp.design(self.workload)
        space = fpo.tables_domain(one), dp.symmetric_distance()
        maps = [fpo.make_fitness_for_use(*space, plan).map for plan in (one, self.plan)]
        for d_in in (1, 2, 3):
            assert maps[1](d_in) == pytest.approx(maps[0](d_in), rel=1e-13)
        assert maps[1](3) == pytest.approx(self.plan.rho, rel=1e-14)


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (fp.AddRemove(records=3), "at most 3, anywhere"),
        (fp.ReplaceOne(), "one row replaced by another"),
    ],
)
def test_reports_name_the_unit(unit, said, tmp_path):
    """A report is also of the costs of other numbers of records, by the triangle inequality."""
    plan = fp.design(WORKLOADS["dense"](), unit=unit)
    plan.save(tmp_path / "plan.npz")
    ran = fitplug("report", tmp_path / "plan.npz")
    assert ran.code == 0
    assert said in " ".join(ran.out.split())
    record = json.loads(fitplug("report", tmp_path / "plan.npz", "--json").out)
    assert record["unit"] == unit.to_spec()
    assert record["rho"] == pytest.approx(plan.rho, rel=1e-13)
    fitplug("report", tmp_path / "plan.npz", "--output", tmp_path / "report.html")
    assert said in (tmp_path / "report.html").read_text(encoding="utf-8")
