"""Releases of plans whose unit of privacy makes totals public: these are exact, and marked so."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fitplug as fp
import fitplug_opendp as fpo
from fitplug.errors import LedgerError, TablesError
from fitplug.releases import write_folder
from fitplug_dask.releases import release_source
from fitplug_opendp.noise_source import NoiseSource, compute_exact_answers
from tests.helpers.audited_releases import use_small_parts

DOMAIN = fp.Domain(
    {"state": ["1", "2", "3"], "sex": ["f", "m"], "age": fp.Integers(0, 5), "month": ["1", "2"]}
)
WORKLOAD = fp.Workload(
    DOMAIN,
    [
        fp.queries({"state": "identity", "age": "prefix"}, std=2.0, name="ages"),
        fp.marginal("sex", "state", std=3.0, name="sexes"),
        fp.marginal("state", std=1.0, name="states"),
        fp.total(std=0.5, name="all"),
    ],
)
HISTOGRAM = np.random.default_rng(3).integers(0, 900, (3, 2, 6))
UNITS = {"all": fp.ReplaceOne(), "state": fp.ReplaceOne(within=("month", "state"))}
PLANS = {name: fp.design(WORKLOAD, unit=unit) for name, unit in UNITS.items()}


def count(plan: fp.Plan) -> fp.Tables:
    """The exact counts of the histogram, over one table that holds all others."""
    return fp.Tables(DOMAIN, {("state", "sex", "age"): HISTOGRAM})


@pytest.mark.parametrize("options", [{"where": {"sex": "f"}}, {"weights": "n"}], ids=str)
def test_rows_that_are_filtered_or_weighted_have_no_neighbours_that_replace(options):
    records = {"state": ["1"], "sex": ["f"], "age": [0], "n": [2]}
    tables = fp.Tables.from_records(DOMAIN, records, [("state", "sex", "age")], **options)
    with pytest.raises(TablesError, match="counts with weights or a filter"):
        fp.release(PLANS["all"], tables)


def ask(group: str) -> np.ndarray:
    exact = {
        "ages": np.cumsum(HISTOGRAM.sum(axis=1), axis=1),
        "sexes": HISTOGRAM.sum(axis=2).T,
        "states": HISTOGRAM.sum(axis=(1, 2)),
        "all": HISTOGRAM.sum(),
    }
    return exact[group]


@pytest.fixture(params=PLANS)
def plan(request) -> fp.Plan:
    return PLANS[request.param]


def test_what_public_totals_answer_is_exact_and_the_rest_is_not(plan):
    release = fp.release(plan, count(plan))
    exact = {name: plan.variances[name] == 0 for name in plan.workload.names}
    assert exact["all"].all()
    assert exact["states"].all() == (plan is PLANS["state"])
    assert exact["ages"][:, -1].all() == (plan is PLANS["state"])
    assert not exact["sexes"].any()
    for name in plan.workload.names:
        error = release.estimates[name] - ask(name)
        assert np.abs(error[exact[name]]).max(initial=0) < 1e-6
        assert (np.abs(error[~exact[name]]) > 0).all()
        low, high = release.interval(name)
        np.testing.assert_allclose((high - low)[exact[name]], 0)
    assert release.rho == pytest.approx(plan.rho, rel=1e-14)


@pytest.mark.slow
def test_estimates_are_unbiased_with_the_variances_that_the_plan_says(plan):
    tables = count(plan)
    # The sampler is tested once, and not before each draw.
    source, answers = NoiseSource.from_plan(plan), compute_exact_answers(plan, tables)
    drawn = [source.draw(tables, answers, None).estimates for _ in range(300)]
    for name in plan.workload.names:
        errors = np.array([one[name] - ask(name) for one in drawn])
        variance = plan.variances[name]
        noisy = variance > 0
        z = errors.mean(axis=0)[noisy] / np.sqrt(variance[noisy] / len(drawn))
        assert np.abs(z).max(initial=0) < 5
        ratio = errors.var(axis=0)[noisy] / variance[noisy]
        assert (ratio > 0.6).all()
        assert (ratio < 1.5).all()


def test_all_tables_agree_with_the_public_totals(plan):
    release = fp.release(plan, count(plan))
    estimates = release.estimates
    assert estimates["sexes"].sum() == pytest.approx(HISTOGRAM.sum(), abs=1e-6)
    assert estimates["ages"][:, -1].sum() == pytest.approx(HISTOGRAM.sum(), abs=1e-6)
    np.testing.assert_allclose(estimates["sexes"].sum(axis=0), estimates["states"], atol=1e-6)
    # Combinations know that what they add up to is exact.
    one = release.estimate({"sexes": np.ones((2, 3)), "all": np.array(-1.0)})
    assert (one.value, one.std) == (pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6))
    half = release.estimate({"sexes": np.array([[1.0] * 3, [0.0] * 3])})
    assert half.std > 0.1


def test_a_release_has_the_totals_and_says_that_they_are_not_protected(plan, tmp_path):
    release = fp.release(plan, count(plan), tmp_path / "out")
    again = fp.Release.load(tmp_path / "out")
    inside = plan is PLANS["state"]
    expected = HISTOGRAM.sum(axis=(1, 2)) if inside else HISTOGRAM.sum()
    for one in (release, again):
        np.testing.assert_array_equal(one.public_totals, expected)
        assert one.public_totals.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            one.public_totals[...] = 0
    for name in plan.workload.names:
        np.testing.assert_array_equal(again.estimates[name], release.estimates[name])
    privacy = fp.review(release)["deployment"]
    said = json.dumps(privacy)
    assert "released exactly, without noise" in said
    assert "change-one distance" in said
    assert ("keep their state" in said) == inside
    assert "added or removed" not in json.dumps(privacy["privacy_loss"])


def test_tables_and_notebooks_say_the_unit(plan):
    release = fp.release(plan, count(plan))
    metadata = release.to_arrow("all").schema.metadata
    assert json.loads(metadata[b"fitplug.unit"]) == plan.unit.to_spec()
    assert str(plan.unit) in release._repr_html_()
    assert repr(plan.unit) in repr(release)
    default = fp.design(WORKLOAD)
    of_record = fp.release(default, count(default)).to_arrow("all").schema.metadata
    assert json.loads(of_record[b"fitplug.unit"]) == default.unit.to_spec()


@pytest.mark.parametrize(
    "unit", [fp.AddRemove(records=3, distinct=True), fp.AddRemove(records=2, once_per="a")]
)
def test_reviews_say_how_many_rows_a_person_may_have(unit):
    domain = fp.Domain({"a": ["1", "2"], "b": ["1", "2"]})
    plan = fp.design(fp.Workload(domain, [fp.marginal("a", "b", std=2.0)]), unit=unit)
    release = fp.release(plan, fp.Tables(domain, {("a", "b"): np.ones((2, 2), dtype=np.int64)}))
    details = fp.review(release)["deployment"]["privacy_loss"]["privacy_unit_details"]
    most = f"at most {unit.records} rows per person{plan.bound_unit.apart}"
    assumed = f"{most}; fitplug did not check this."
    assert assumed in details
    assert assumed in release.population
    assert "of at most 1 record" not in release._repr_html_()


def test_other_plans_have_no_public_totals():
    plan = fp.design(WORKLOAD)
    assert fp.release(plan, count(plan)).public_totals is None


def test_only_the_totals_that_queries_use_are_released():
    """The unit makes totals of months public too, but no query needs them."""
    plan = PLANS["state"]
    assert plan.strategy.structure.public_attributes == ("state",)
    assert plan.strategy.structure.public_size == 3


class TestRefusals:
    def test_measurements_under_the_symmetric_distance(self):
        dp = pytest.importorskip("opendp.prelude")
        dp.enable_features("contrib", "honest-but-curious")
        plan = PLANS["all"]
        with pytest.raises(ValueError, match=r"need the metric change_one_distance\(\)"):
            fpo.make_fitness_for_use(fpo.tables_domain(plan), dp.symmetric_distance(), plan)

    def test_ledgers(self, tmp_path):
        ledger = fp.Ledger(tmp_path / "budget.db", rho=100.0)
        plan = PLANS["all"]
        released = fp.release(plan, count(plan), ledger=ledger)
        assert ledger.unit == plan.unit
        assert ledger.spent == pytest.approx(released.rho)
        assert ledger.spent >= plan.rho_exact
        records = fp.Ledger(tmp_path / "records.db", rho=100.0, unit=fp.AddRemove())
        with pytest.raises(LedgerError, match="Use this unit instead of"):
            fp.release(plan, count(plan), ledger=records)
        assert records.spent == 0

    @pytest.mark.parametrize("options", [{"where": {"sex": "f"}}, {"weight": "n"}], ids=str)
    def test_releases_in_parts_of_rows_that_are_filtered_or_weighted(self, options, tmp_path):
        (tmp_path / "rows.csv").write_text("state,sex,age,n\n1,f,0,2\n", encoding="utf-8")
        ledger = fp.Ledger(tmp_path / "budget.db", rho=100.0)
        rows = fp.Source(tmp_path / "rows.csv", **options)
        with pytest.raises(TablesError, match="counts with weights or a filter"):
            fp.release(PLANS["all"], rows, tmp_path / "out", ledger=ledger)
        assert not ledger.entries()
        assert not (tmp_path / "out").exists()


def release_in_parts(plan, folder, most, monkeypatch):
    use_small_parts(monkeypatch, most)
    release_source(plan, count(plan), folder)


def write_in_parts(plan, folder, most, monkeypatch):
    write_folder(fp.release(plan, count(plan)), folder, 0.95, most)


@pytest.mark.parametrize("most", [3, 2**20])
@pytest.mark.parametrize("make", [release_in_parts, write_in_parts])
def test_releases_in_parts_have_the_totals_without_noise(plan, make, most, tmp_path, monkeypatch):
    make(plan, tmp_path / "out", most, monkeypatch)
    release = fp.Release.load(tmp_path / "out")
    release.verify()
    expected = HISTOGRAM.sum(axis=(1, 2)) if plan is PLANS["state"] else HISTOGRAM.sum()
    np.testing.assert_array_equal(release.public_totals, expected)
    exact = compute_exact_answers(plan, count(plan))
    changed = np.asarray(release.answers) != exact
    assert changed[: plan.strategy.size].mean() > 0.5
    assert not changed[plan.strategy.size :].any()
    for name in plan.workload.names:
        off, variance = release.estimates[name] - ask(name), plan.variances[name]
        assert np.abs(off[variance == 0]).max(initial=0) < 1e-6
        assert (np.abs(off) <= 8 * np.sqrt(variance) + 1e-6).all()
