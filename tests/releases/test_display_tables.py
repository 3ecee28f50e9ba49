"""Adjusted tables against CVXPY on the same problem, and what they promise."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.expressions.parser import parse
from fitplug.families import build_dense_strategy
from fitplug.releases import display
from fitplug.releases.least_squares import (
    NoSolutionError,
    round_to_integers,
    solve_nonnegative,
)
from tests.helpers import people
from tests.helpers.exact import full_strategy
from tests.helpers.plans import product_plan, symmetric_plan

TOTAL = int(people.histogram().sum())


def noisy(plan, seed, mean=0.5):
    """A release with noise as large as the counts, so that many estimates are negative."""
    x = np.random.default_rng(seed).poisson(mean, plan.workload.cell_count)
    A = np.array(full_strategy(plan), dtype=np.float64)
    z = np.random.default_rng(seed + 1).normal(size=len(A)) * plan.noise_std
    answers = np.rint(A @ x + z).astype(np.int64)
    return fp.Release(plan=plan, answers=answers, rho=plan.rho), x


def solved(release, E=None, totals=None):
    """W x of the least squares, by CVXPY from the exact strategy."""
    plan = release.plan
    A = np.array(full_strategy(plan), dtype=np.float64) / plan.noise_std
    x = cp.Variable(A.shape[1], nonneg=True)
    held = [] if E is None else [E @ x == totals]
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(A @ x - release.answers / plan.noise_std)), held
    )
    problem.solve(solver=cp.CLARABEL)
    return plan.workload.matrix() @ x.value


def flat(by_group):
    return np.concatenate([np.asarray(v, dtype=np.float64).ravel() for v in by_group.values()])


PLANS = {"dense": people.plan, "symmetric": symmetric_plan, "product": product_plan}


@pytest.fixture(scope="module", params=PLANS.values(), ids=PLANS)
def release(request):
    return noisy(request.param(), seed=3)[0]


def test_the_strategy_written_out_is_the_strategy(release):
    exact = np.array(full_strategy(release.plan), dtype=np.float64)
    np.testing.assert_array_equal(build_dense_strategy(release.plan.strategy), exact)


class TestNonnegative:
    def test_is_the_least_squares_that_cvxpy_finds(self, release):
        found = release.nonnegative()
        expected = solved(release)
        scale = np.sqrt(flat(release.variances)).max()
        np.testing.assert_allclose(flat(found.estimates), expected, atol=1e-4 * scale)
        assert (found.histogram >= 0).all()
        assert flat(release.estimates).min() < 0, "there was nothing to adjust"

    def test_with_a_total(self, release):
        number, name = 40, "total" if "total" in release.estimates else "'race x sex'"
        found = release.nonnegative(totals={name: number})
        d = release.plan.workload.cell_count
        expected = solved(release, np.ones((1, d)), np.array([number]))
        scale = np.sqrt(flat(release.variances)).max()
        np.testing.assert_allclose(flat(found.estimates), expected, atol=1e-4 * scale)
        assert found.histogram.sum() == pytest.approx(number, rel=1e-11)
        assert dict(found.totals) == {name: number}

    def test_all_tables_are_of_one_histogram(self, release):
        found = release.nonnegative()
        W = release.plan.workload.matrix()
        np.testing.assert_allclose(flat(found.estimates), W @ found.histogram.ravel(), atol=1e-9)
        for group in release.plan.workload.groups:
            assert found.estimates[group.name].shape == group.shape

    def test_a_release_that_needs_nothing_stays_as_it_is(self):
        release = people.release()
        found = release.nonnegative()
        np.testing.assert_allclose(flat(found.estimates), flat(release.estimates), atol=1e-5)

    def test_is_marked_as_biased_and_keeps_the_release(self, release):
        found = release.nonnegative()
        assert isinstance(found, fp.DisplayTables)
        assert found.biased
        assert found.release is release
        assert found.method == "nonnegative"
        for spread in ("variances", "estimate", "combine"):
            assert not hasattr(found, spread)
        assert "biased" in repr(found)
        with pytest.raises(ValueError, match="read-only"):
            found.histogram[...] = 0

    def test_its_bias_is_real(self):
        """Cells without people: held at zero from below, they count people that are not there."""
        plan = symmetric_plan()
        means = [noisy(plan, seed, mean=0.0)[0].nonnegative().estimates["ba"].mean()
                 for seed in range(30)]  # fmt: skip
        assert min(means) >= 0
        assert np.mean(means) > 0.05

    def test_several_totals_by_expressions(self):
        release, _ = noisy(people.plan(), seed=8)
        totals = {"total": 60.0, "pyramid[sex = 1]": 25, "cities[place = rom, income < 10]": 4}
        found = release.nonnegative(totals=totals)
        assert float(found.estimates["total"]) == pytest.approx(60, rel=1e-11)
        assert found.estimates["pyramid"][0, -1] == pytest.approx(25, rel=1e-11)
        assert found.estimates["cities"][2, 0] == pytest.approx(4, rel=1e-11)

    @pytest.mark.parametrize(
        ("totals", "says"),
        [
            ({"totel": 3}, "Did you mean 'total'"),
            ({"pyramid": 3}, "'pyramid' must have shape"),
            ({"total / total": 3}, "is a ratio"),
            ({"total": "many"}, "must be a finite number, not 'many'"),
            ({"total": float("nan")}, "must be a finite number"),
            ({"total": True}, "must be a finite number"),
            ({"total": -1}, "add up to the given totals"),
            ({"total": 5, "pyramid[sex = 1]": 6}, "add up to the given totals"),
        ],
    )
    def test_bad_totals(self, totals, says):
        with pytest.raises(fp.WorkloadError, match=says):
            people.release(1.0).nonnegative(totals=totals)

    def test_ranges_of_a_large_release_do_not_list_its_cells(self, monkeypatch):
        monkeypatch.setattr(display, "MOST_ENTRIES", 10)
        domain = fp.Domain({"age": fp.Integers(0, 9)})
        ages = fp.queries({"age": fp.ranges([(0, 4), (3, 9)])}, std=3.0)
        plan = fp.design(fp.Workload(domain, [ages]))
        release = fp.release(plan, fp.Tables(domain, {("age",): np.ones(10, dtype=np.int64)}))
        with pytest.raises(
            fp.WorkloadError, match=r"answers times 10 cells exceed the limit of 10 "
        ):
            release.nonnegative()


class TestIntegers:
    def test_are_next_to_the_nonnegative_ones(self, release):
        real, whole = release.nonnegative(), release.integers()
        assert whole.method == "integers"
        assert whole.biased
        assert whole.histogram.dtype == np.int64
        assert (np.abs(whole.histogram - real.histogram) < 1 + 1e-6).all()
        assert (whole.histogram >= 0).all()
        # Nearer, in the norm of the least squares, than rounding each count by itself.
        A = build_dense_strategy(release.plan.strategy)
        x = real.histogram.ravel()
        off, plain = (np.linalg.norm(A @ (v - x)) for v in (whole.histogram.ravel(), np.rint(x)))
        assert off <= plain * (1 + 1e-9)
        W = release.plan.workload.matrix()
        np.testing.assert_allclose(flat(whole.estimates), W @ whole.histogram.ravel(), atol=1e-9)

    def test_counts_are_int64_and_sums_of_fractions_are_not(self):
        whole = people.release(1.0).integers()
        for name, values in whole.estimates.items():
            assert values.dtype == (np.float64 if name == "weighted" else np.int64)

    def test_totals_are_kept_exactly(self):
        release, x = noisy(people.plan(), seed=5)
        x = x.reshape(release.plan.workload.shape)
        totals = {
            "total": int(x.sum()),
            "pyramid[sex = 2]": int(x[1].sum()),
            "spans[age = 3]": int(x[:, 3].sum()),
            "cities[place = south, income < 10]": int(x[:, :, 0, 2].sum()),
        }
        found = release.integers(totals=totals)
        for text, number in totals.items():
            own = parse(release.plan.workload, text)
            assert sum((c * found.estimates[n]).sum() for n, c in own.items()) == number

    @pytest.mark.parametrize("total", [0.5, 3.25])
    def test_totals_are_whole(self, total):
        with pytest.raises(fp.WorkloadError, match="must be an integer, not"):
            people.release().integers(totals={"total": total})

    def test_a_total_that_no_rounding_has(self):
        with pytest.raises(fp.WorkloadError, match="no rounded counts match the totals"):
            people.release().integers(totals={"2 * total": 2 * TOTAL + 1})


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_tables_have_no_std(library):
    found = people.release(1.0).integers(totals={"total": TOTAL})
    if library == "pyarrow":
        table = found.to_arrow("pyramid")
        assert table.schema.metadata[b"fitplug.biased"] == b"true"
        assert table.column_names == ["sex", "age", "display", "lower", "upper", "confidence"]
        assert table["display"].to_pylist() == found.estimates["pyramid"].ravel().tolist()
        return
    pytest.importorskip(library)
    frame = found.to_pandas("pyramid") if library == "pandas" else found.to_polars("pyramid")
    assert list(frame.columns) == ["sex", "age", "display", "lower", "upper", "confidence"]


class TestLeastSquares:
    @given(seed=st.integers(0, 2**32), n=st.integers(1, 8), d=st.integers(1, 8))
    def test_first_order_conditions(self, seed, n, d):
        """x >= 0, and the gradient is zero where x > 0 and points out where x = 0."""
        rng = np.random.default_rng(seed)
        A, y = rng.normal(size=(n, d)), rng.normal(size=n) * 3
        x = solve_nonnegative(A, y, np.zeros((0, d)), np.zeros(0))
        slope = A.T @ (A @ x - y)
        assert (x >= 0).all()
        assert (slope >= -1e-8).all()
        assert abs(x @ slope) < 1e-8

    @given(seed=st.integers(0, 2**32), d=st.integers(2, 12))
    def test_totals_of_any_groups_of_cells(self, seed, d):
        rng = np.random.default_rng(seed)
        E = np.vstack([np.ones(d), rng.integers(0, 2, d)]).astype(float)
        x = rng.poisson(2.0, d)
        A, y = np.eye(d) * rng.uniform(0.1, 2, d), rng.normal(size=d) * 3
        found = solve_nonnegative(A, y, E, E @ x)
        np.testing.assert_allclose(E @ found, E @ x, atol=1e-9)
        whole = round_to_integers(A, found, E, E @ x)
        np.testing.assert_array_equal(E @ whole, E @ x)
        assert (np.abs(whole - found) < 1 + 1e-6).all()
        assert (whole >= 0).all()

    def test_totals_that_contradict_each_other(self):
        with pytest.raises(NoSolutionError):
            solve_nonnegative(np.eye(2), np.ones(2), np.ones((2, 2)), np.array([1.0, 2.0]))

    def test_a_total_of_nothing(self):
        E = np.zeros((1, 2))
        x = solve_nonnegative(np.eye(2), np.array([1.5, -2.0]), E, np.zeros(1))
        np.testing.assert_allclose(x, [1.5, 0])
        with pytest.raises(NoSolutionError):
            solve_nonnegative(np.eye(2), np.ones(2), E, np.ones(1))

    def test_whole_numbers_stay(self):
        x = np.array([3.0, 0.0, 7.0])
        whole = round_to_integers(np.eye(3), x, np.ones((1, 3)), np.array([10.0]))
        assert whole.tolist() == [3, 0, 7]
        with pytest.raises(NoSolutionError):
            round_to_integers(np.eye(3), x, np.ones((1, 3)), np.array([11.0]))
