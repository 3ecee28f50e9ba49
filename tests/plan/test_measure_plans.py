"""Plans of measures: their costs against closed forms and another solver, files, and refusals."""

from __future__ import annotations

import json
import warnings

import cvxpy as cp
import numpy as np
import pytest

import fitplug as fp
from fitplug.files import write_with_digest
from tests.helpers.many_releases import release_often
from tests.helpers.plans import describe

DOMAIN = fp.Domain({"g": ["a", "b"], "y": fp.Measure(0, 10)})


def people_and_money(variance, domain=DOMAIN):
    """Counts at variance 1 and sums at another one, of two groups."""
    return fp.Workload(
        domain,
        [
            fp.queries({"g": "identity"}, variance=1.0, name="people"),
            fp.queries({"g": "identity", "y": "sum"}, variance=variance, name="money"),
        ],
    )


def least_cost(values, variances):
    """Delta squared of (count, sum) of one group, where a record with value y counts (1, y).

    The covariance S has at most these variances, and (1, y) S^-1 (1, y)' <= t for all values y.
    """
    S, t = cp.Variable((2, 2), PSD=True), cp.Variable()
    within = [
        cp.bmat([[S, np.array([[1.0], [y]])], [np.array([[1.0, y]]), cp.reshape(t, (1, 1), "C")]])
        >> 0
        for y in values
    ]
    problem = cp.Problem(cp.Minimize(t), [cp.diag(S) <= variances, *within])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        problem.solve(solver=cp.CLARABEL)
    return float(t.value)


@pytest.mark.parametrize(
    ("variance", "alpha", "apart"), [(25.0, 4.0, 5.0), (100.0, 4 / 3, 2.0), (400.0, 16 / 15, 1.25)]
)
def test_a_count_and_a_sum_cost_less_together(variance, alpha, apart):
    """mathematics of measures: alpha = 4, 4/3 and 16/15, where noise apart costs 5, 2 and 5/4."""
    plan = fp.design(people_and_money(variance), tolerance=1e-6)
    plan.verify()
    assert plan.privacy_cost**2 == pytest.approx(alpha, rel=1e-4)
    assert plan.lower_bound**2 == pytest.approx(alpha, rel=1e-4)
    assert least_cost(range(11), [1.0, variance]) == pytest.approx(alpha, rel=1e-5)
    people = fp.queries({"g": "identity"}, variance=1.0)
    money = fp.queries({"g": "identity", "y": "sum"}, variance=variance)
    costs = [fp.design(fp.Workload(DOMAIN, [own])).privacy_cost ** 2 for own in (people, money)]
    assert sum(costs) == pytest.approx(apart, rel=1e-4)


@pytest.mark.parametrize(("low", "high", "unit"), [(-4, 6, 0.5), (20, 30, 1), (-10, 0, 5)])
def test_other_bounds_cost_what_another_solver_finds(low, high, unit):
    domain = fp.Domain({"g": ["a", "b"], "y": fp.Measure(low, high, unit=unit)})
    plan = fp.design(people_and_money(150.0, domain), tolerance=1e-6)
    values = np.linspace(low, high, 11)
    assert plan.privacy_cost**2 == pytest.approx(least_cost(values, [1.0, 150.0]), rel=1e-4)


def test_units_change_no_cost():
    coarse, fine = (
        fp.design(people_and_money(50.0, fp.Domain({"g": ["a", "b"], "y": fp.Measure(0, 10, u)})))
        for u in (10, 0.01)
    )
    assert fine.privacy_cost == pytest.approx(coarse.privacy_cost, rel=1e-5)
    for name in ("people", "money"):
        np.testing.assert_allclose(fine.variances[name], coarse.variances[name], rtol=1e-5)
    np.testing.assert_allclose(fine.sigma()[0].shape, coarse.sigma()[0].shape)


class TestReleases:
    RELEASES = 600

    def test_sums_are_unbiased_with_the_variance_that_is_said(self):
        """Sample means and variances of 600 releases; noise of 0.8 times the size would fail."""
        measure = fp.Measure(-2, 10, unit=0.5, other="none")
        domain = fp.Domain({"g": ["a", "b"], "y": measure, "z": fp.Measure(5, 7)})
        groups = [
            fp.queries({"g": "identity"}, std=3.0, name="people"),
            fp.queries({"g": "identity", "y": "sum"}, std=20.0, name="money"),
            fp.queries({"y": "count"}, std=5.0, name="with money"),
            fp.queries({"y": "sum", "z": "sum"}, std=90.0, name="product"),
        ]
        plan = fp.design(fp.Workload(domain, groups))
        rng = np.random.default_rng(1)
        g, z = rng.choice(["a", "b"], 300), rng.integers(4, 9, 300)
        y = rng.normal(4, 5, 300)
        y[::7] = np.nan
        tables = fp.Tables.from_records(domain, {"g": g, "y": y, "z": z}, plan.tables)
        inside = np.clip(np.floor(np.clip(y, -2, 10) * 2 + 0.5) / 2, -2, 10)
        exact = {
            "people": [(g == k).sum() for k in "ab"],
            "money": [np.nansum(inside[g == k]) for k in "ab"],
            "with money": [np.isfinite(y).sum()],
            "product": [np.nansum(inside * np.clip(z, 5, 7))],
        }
        releases = list(release_often(plan, tables, self.RELEASES))
        for name, answer in exact.items():
            errors = np.array([r.estimates[name].ravel() - answer for r in releases])
            variances = plan.variances[name].ravel()
            assert (np.abs(errors.mean(0)) < 5 * np.sqrt(variances / self.RELEASES)).all()
            spread = 5 * np.sqrt(2 / self.RELEASES)
            np.testing.assert_allclose(errors.var(0) / variances, 1.0, atol=spread)
            assert 1 - spread > 0.8**2
            np.testing.assert_array_equal(releases[0].variances[name].ravel(), variances)

    def test_public_totals_count_records(self):
        plan = fp.design(people_and_money(50.0), unit=fp.ReplaceOne())
        tables = fp.Tables.from_records(DOMAIN, {"g": list("aab"), "y": [3, 9, 12]}, plan.tables)
        assert fp.release(plan, tables).public_totals.tolist() == 3


class TestFiles:
    def test_are_read_back(self, tmp_path):
        plan = fp.design(people_and_money(25.0))
        plan.save(tmp_path / "plan.npz")
        again = fp.Plan.load(tmp_path / "plan.npz")
        again.verify()
        assert (again.digest, again.domain) == (plan.digest, plan.domain)
        assert again.rho_exact == plan.rho_exact
        assert again.workload["money"].factors[1].kind == "sum"

    @pytest.mark.parametrize(
        "edit",
        [
            lambda h: h["domain"]["y"].update(measure=[0, 20]),
            lambda h: h["domain"]["y"].update(unit=0.5),
            lambda h: h["domain"]["y"].update(unit=10),
            lambda h: h["domain"]["y"].update(unit=3),
            lambda h: h["domain"]["y"].update(other="none"),
            lambda h: h["domain"].update(y=["0", "10"]),
            lambda h: h.update(sensitivity_squared=str(int(h["sensitivity_squared"]) // 100)),
            lambda h: h.update(sensitivity_squared=str(int(h["sensitivity_squared"]) + 1)),
            lambda h: h.update(max_records=str(10 * int(h["max_records"]))),
            lambda h: h.update(noise_std=(float.fromhex(h["noise_std"]) / 10).hex()),
            lambda h: h.update(format=2),
        ],
    )
    def test_edited_ones_are_refused(self, edit, tmp_path):
        header, arrays = describe(fp.design(people_and_money(25.0)))
        domain = header["domain"]
        if not isinstance(domain, dict):
            header["domain"] = dict(json.loads(domain) if isinstance(domain, str) else domain)
        edit(header)
        if not isinstance(domain, dict):
            header["domain"] = type(domain)(header["domain"].items())
        write_with_digest(tmp_path / "plan.npz", header, arrays)
        with pytest.raises(fp.PlanError):
            fp.Plan.load(tmp_path / "plan.npz").verify()


class TestQueries:
    def test_marginals_leave_measures_out(self):
        domain = fp.Domain({"g": ["a", "b"], "y": fp.Measure(0, 1), "h": ["c", "d"]})
        workload = fp.Workload(domain, [fp.marginals(domain, ways=2, std=1.0)])
        assert workload.attributes == ("g", "h")

    def test_the_matrix_is_that_of_the_bounds(self):
        domain = fp.Domain({"g": ["a", "b"], "y": fp.Measure(-1, 3, other="none")})
        groups = [
            fp.queries({"g": "identity", "y": "sum"}, std=1.0, name="s"),
            fp.queries({"y": "count"}, std=1.0, name="c"),
            fp.queries({"y": "total"}, std=1.0, name="t"),
        ]
        W = fp.Workload(domain, groups).matrix()
        expected = [[-1, 3, 0, 0, 0, 0], [0, 0, 0, -1, 3, 0], [1, 1, 0, 1, 1, 0], [1] * 6]
        np.testing.assert_array_equal(W, expected)

    @pytest.mark.parametrize("query", ["identity", "prefix", "all_ranges", "count", [[1.0, 0.0]]])
    def test_other_queries_of_a_measure_are_refused(self, query):
        with pytest.raises(fp.WorkloadError, match=r"y is a measure\. Use 'sum'"):
            fp.Workload(DOMAIN, [fp.queries({"y": query}, std=1.0)])
        with pytest.raises(fp.WorkloadError):
            fp.Workload(DOMAIN, [fp.queries({"y": fp.ranges([(0, 5)])}, std=1.0)])

    def test_a_sum_of_an_attribute_with_cells_is_refused(self):
        with pytest.raises(fp.WorkloadError):
            fp.Workload(DOMAIN, [fp.queries({"g": "sum"}, std=1.0)])

    @pytest.mark.parametrize(
        ("unit", "error", "says"),
        [
            (
                fp.AddRemove(records=2, distinct=True),
                fp.WorkloadError,
                "distinct=True cannot be combined",
            ),
            (fp.AddRemove(records=2, once_per="y"), fp.DomainError, "the measure 'y'"),
            (fp.ReplaceOne(within=("y",)), fp.DomainError, "the measure 'y'"),
        ],
    )
    def test_units_that_know_cells_are_refused(self, unit, error, says):
        with pytest.raises(error, match=says):
            fp.design(people_and_money(25.0), unit=unit)

    def test_too_many_units_together_are_refused(self):
        domain = fp.Domain({"a": fp.Measure(0, 2**13), "b": fp.Measure(0, 2**13)})
        groups = [fp.queries({name: "sum"}, std=1e5) for name in "ab"]
        with pytest.raises(fp.WorkloadError, match="into 67,108,864 shares"):
            fp.design(fp.Workload(domain, groups))


class TestPrices:
    def test_what_cells_have_left_is_free(self, tmp_path):
        """A sum costs most at the upper bound, and records at the lower one have that left."""
        money = fp.queries({"g": "identity", "y": "sum"}, std=10.0, name="money")
        first = fp.design(fp.Workload(DOMAIN, [money]))
        ledger = fp.Ledger(tmp_path / "ledger.db", rho=10.0)
        records = {"g": ["a", "b"], "y": [3, 8]}
        tables = fp.Tables.from_records(DOMAIN, records, first.tables)
        fp.release(first, tables, ledger=ledger, what="sums", key="first")
        left = ledger.unused_budget("first", DOMAIN)
        assert left.ravel() == pytest.approx([1, 0], abs=1e-6)
        people = fp.queries({"g": "identity"}, std=100.0, name="people")
        with pytest.raises(fp.OverBudget):
            ledger.charge_covered(
                fp.design(fp.Workload(DOMAIN, [people])), covered_by="first", what="people"
            )
        wider = fp.Domain({"g": ["a", "b"], "y": fp.Measure(0, 20)})
        with pytest.raises(fp.LedgerError, match="another domain"):
            ledger.charge_covered(
                fp.design(people_and_money(1e6, wider)), covered_by="first", what="other bounds"
            )

    @pytest.mark.parametrize("name", ["input_perturbation", "gaussian", "matrix_mechanism"])
    def test_usual_mechanisms_are_compared_at_the_same_cost(self, name):
        """Variances of W x by the usual mechanisms, against the workload as a dense matrix."""
        workload = people_and_money(25.0)
        dense = fp.Workload.from_matrix(workload.matrix(), variance=workload.targets())
        mechanism = getattr(fp.baselines, name)
        found, expected = mechanism(workload, 2.0), mechanism(dense, 2.0)
        np.testing.assert_allclose(
            np.concatenate([found[n].ravel() for n in workload.names]),
            np.concatenate([expected[n].ravel() for n in dense.names]),
        )
