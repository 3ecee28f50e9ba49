"""Ratios, means and formulas: Fieller's intervals against (E5) itself and draws, and releases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy.stats import norm

import fitplug as fp
from fitplug.expressions import Expressions
from fitplug.releases import find_ends
from fitplug.releases.combined_numbers import Estimate, Estimates, Ratio, find_ratio_interval
from tests.helpers.many_releases import release_often

RELEASES = 2000
Z95 = norm.ppf(0.975)

reals = st.floats(-100, 100)
stds = st.floats(0.01, 10)


def excess(theta, above, below, covariance, quantile):
    """By how much (a - r b)^2 exceeds z^2 Var(e_a - r e_b), as a part of the larger terms."""
    left = (above.value - theta * below.value) ** 2
    parts = np.array([above.std**2, -2 * theta * covariance, (theta * below.std) ** 2])
    scale = above.value**2 + (theta * below.value) ** 2 + quantile**2 * np.abs(parts).sum()
    return (left - quantile**2 * parts.sum()) / scale


class TestFieller:
    @given(reals, reals, stds, stds, st.floats(-0.999, 0.999), st.floats(0.1, 6.0))
    def test_the_ends_are_where_the_test_of_a_ratio_turns(self, a, b, s, t, correlation, z):
        above, below = Estimate(a, s), Estimate(b, t)
        covariance = correlation * s * t
        assume(abs(abs(b) - z * t) > 1e-3 * z * t)
        low, high = find_ratio_interval(above, below, covariance, z)
        if abs(b) <= z * t:
            assert (low, high) == (-math.inf, math.inf)
            return
        assert low <= a / b <= high
        for end in (low, high):
            assert excess(end, above, below, covariance, z) == pytest.approx(0, abs=1e-9)
        width = high - low
        inside = low + width * np.linspace(0.01, 0.99, 9)
        assert all(excess(theta, above, below, covariance, z) < 0 for theta in inside)
        assert excess(high + width, above, below, covariance, z) > 0
        assert excess(low - width, above, below, covariance, z) > 0

    def test_nothing_is_known_of_a_ratio_over_zero(self):
        for below in (Estimate(0.0, 0.0), Estimate(1.0, 1.0), Estimate(-1.9, 1.0)):
            assert find_ratio_interval(Estimate(5.0, 1.0), below, 0.0, Z95) == (
                -math.inf,
                math.inf,
            )

    def test_an_exact_denominator_gives_the_usual_interval(self):
        low, high = find_ratio_interval(Estimate(5.0, 1.0), Estimate(-2.0, 0.0), 0.0, 3.0)
        assert (low, high) == pytest.approx((-4.0, -1.0))

    @pytest.mark.slow
    @pytest.mark.parametrize("away", [3, 5, 10, 30])
    @pytest.mark.parametrize("correlation", [-0.9, 0.0, 0.9])
    def test_covers_however_near_to_zero_the_denominator_is(self, away, correlation):
        """Of 20,000 draws; noise of 0.8 times the size is noticed. The docs have these figures."""
        rng = np.random.default_rng(away)
        e = rng.normal(size=(20_000, 2)) @ np.array(
            [[1, correlation], [0, (1 - correlation**2) ** 0.5]]
        )
        for numerator in (0.0, 2.0, 20.0):
            shares = []
            for said in (1.0, 0.8):
                ends = [
                    find_ratio_interval(
                        Estimate(numerator + x, said),
                        Estimate(away + y, said),
                        correlation * said**2,
                        Z95,
                    )
                    for x, y in e[:: 1 if said == 1.0 else 4].tolist()
                ]
                low, high = np.array(ends).T
                shares.append(((low <= numerator / away) & (numerator / away <= high)).mean())
            error = 5 * math.sqrt(0.95 * 0.05 / len(e))
            # An interval without ends covers always; it is given where the test has no two ends.
            unbounded = norm.cdf(Z95 - away)
            assert 0.95 - error <= shares[0] <= 0.95 + error + unbounded
            assert shares[1] < 0.95 - error


DOMAIN = fp.Domain({"sex": ["f", "m"], "y": fp.Measure(-2, 10), "square": fp.Measure(0, 100)})
GROUPS = [
    fp.queries({"sex": "identity"}, std=6.0, name="people"),
    fp.queries({"sex": "identity", "y": "sum"}, std=30.0, name="income"),
    fp.queries({"square": "sum"}, std=300.0, name="squares"),
]
ASKED = {
    "mean": "income[sex=f] / people[sex=f]",
    "difference": "income[sex=f] / people[sex=f] - income[sex=m] / people[sex=m]",
    "variance": "squares / people - (income / people) * (income / people)",
    "sum": "income",
}


@pytest.fixture(scope="module")
def plan():
    return fp.design(fp.Workload(DOMAIN, GROUPS))


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(2)
    sex, y = rng.choice(["f", "m"], 260, p=[0.4, 0.6]), rng.integers(-2, 11, 260)
    return {"sex": sex, "y": y, "square": y * y}


@pytest.fixture(scope="module")
def exact(records):
    sex, y = records["sex"], records["y"]
    f, m = y[sex == "f"], y[sex == "m"]
    return {
        "mean": f.mean(),
        "difference": f.mean() - m.mean(),
        "variance": y.var(),
        "sum": y.sum(),
    }


@pytest.fixture(scope="module")
def combined(plan, records):
    tables = fp.Tables.from_records(DOMAIN, records, plan.tables)
    return [release.estimate_all(ASKED) for release in release_often(plan, tables, RELEASES)]


@pytest.mark.long
@pytest.mark.parametrize("simultaneous", [False, True])
def test_intervals_of_means_cover_over_2000_releases(combined, exact, simultaneous):
    """Denominators are 17 stds from zero; intervals 0.8 times as wide are noticed."""
    answers = np.array(list(exact.values()))
    ends = np.array([one.interval(0.95, simultaneous=simultaneous) for one in combined])
    covered = (ends[:, 0] <= answers) & (answers <= ends[:, 1])
    error = 5 * math.sqrt(0.95 * 0.05 / RELEASES)
    if simultaneous:
        assert covered.all(axis=1).mean() >= 0.95 - error
        return
    share = dict(zip(ASKED, covered.mean(axis=0), strict=True))
    for name in ("mean", "sum"):
        assert abs(share[name] - 0.95) < error, name
    # By the delta method: the second-order terms are a twentieth of the noise.
    for name in ("difference", "variance"):
        assert abs(share[name] - 0.95) < error + 0.01, name
    middle, half = ends.mean(axis=1), 0.8 * (ends[:, 1] - ends[:, 0]) / 2
    narrow = (np.abs(middle - answers) <= half).mean(axis=0)
    assert (narrow < 0.95 - error).all()


@pytest.mark.slow
def test_stds_are_those_of_the_releases(combined, exact):
    values = np.array([one.values for one in combined])
    claimed = np.mean([one.stds for one in combined], axis=0)
    np.testing.assert_allclose(values.std(axis=0) / claimed, 1.0, atol=0.1)
    bias = values.mean(axis=0) - np.array(list(exact.values()))
    assert (np.abs(bias) < 5 * claimed / math.sqrt(RELEASES) + 0.1 * claimed).all()
    joint = np.mean([one.covariance for one in combined], axis=0)
    sample = np.cov(values.T)
    scale = np.sqrt(np.outer(np.diag(joint), np.diag(joint)))
    np.testing.assert_allclose(sample / scale, joint / scale, atol=0.2)


def test_each_alone_is_what_all_together_are(plan, records):
    tables = fp.Tables.from_records(DOMAIN, records, plan.tables)
    (release,) = release_often(plan, tables, 1)
    together = release.estimate_all(ASKED)
    for k, (one, text) in enumerate(zip(together.each, ASKED.values(), strict=True)):
        alone = release.estimate(text)
        assert type(alone) is type(one)
        assert (alone.value, alone.std) == pytest.approx((one.value, one.std), rel=1e-6)
        assert alone.interval(0.9) == pytest.approx(one.interval(0.9), rel=1e-6)
        assert together.moe(0.9)[k] == pytest.approx(alone.moe(0.9), rel=1e-5)
        assert alone.approximate == (not isinstance(alone, fp.Estimate))


@pytest.mark.parametrize(
    "text",
    [
        "income[sex=f] / people[sex=f]",
        "people[sex=f] / income",
        "people / people[sex=f]",
        "(income - income) / people",
        "(0.001 * income) / people",
        "(people[sex=f] - people[sex=m]) / people",
        "income / (people[sex=f] - people[sex=f])",
        "people[sex=f] / (people[sex=f] - 1e-9 * people)",
    ],
)
def test_covariances_are_those_of_the_plan(plan, text):
    """Alone, they follow from standard deviations; together, from the joint covariance."""
    above, below = text.split(" / ", 1)
    for size in (0, 10**6):
        answers = np.full(plan.strategy.size, size, np.int64)
        release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
        (found,) = release.estimate_each([text])
        joint = release.estimate_all([above, below])
        scale = joint.stds.prod()
        assert found.covariance == pytest.approx(joint.covariance[0, 1], abs=1e-6 * scale)
        numbers = joint.each[0], joint.each[1], joint.covariance[0, 1], 2.0
        assert find_ends(found, 2.0) == pytest.approx(
            find_ratio_interval(*numbers), rel=1e-5, abs=1e-5
        )


def test_a_ratio_near_zero_has_an_interval_but_no_value(plan):
    zeros = np.zeros(plan.strategy.size, np.int64)
    release = fp.Release(plan=plan, answers=zeros, rho=plan.rho)
    ratio, formula = release.estimate_each([ASKED["mean"], ASKED["difference"]])
    assert math.isnan(ratio.value)
    assert ratio.interval() == (-math.inf, math.inf)
    assert isinstance(formula, fp.Approximation)
    assert math.isnan(formula.value)
    assert math.isnan(formula.std)
    for text in (ASKED["mean"], ASKED["difference"]):
        with pytest.raises(fp.WorkloadError, match="the denominator is too close to zero"):
            release.estimate(text)
        with pytest.raises(fp.WorkloadError, match="'it': the denominator"):
            release.estimate_all({"it": text})


@pytest.mark.parametrize(
    "text", [ASKED["variance"], "people / (income / people) - 3 + income / people"]
)
def test_derivatives_are_those_of_differences(plan, text):
    formula = Expressions(plan.workload).read(text)
    values = np.random.default_rng(5).uniform(1, 3, len(formula.sums))
    value, gradient = formula.evaluate(values)
    for k in range(len(values)):
        step = np.eye(len(values))[k] * 1e-6
        ends = [formula.evaluate(values + sign * step)[0] for sign in (1, -1)]
        assert gradient[k] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)
    assert math.isfinite(value)


def test_numbers_are_shown_with_the_digits_that_noise_leaves():
    above, below = Estimate(1234.5678, 12.3456), Estimate(20.0, 0.5)
    assert repr(above) == "Estimate(1,235, std 12, 95% interval 1,210 to 1,259)"
    assert repr(Estimate(7.0, 0.0)) == "Estimate(7, std 0, 95% interval 7 to 7)"
    ratio = Ratio(61.728, 1.66, above, below, 0.0)
    assert repr(ratio) == "Ratio(61.7, std 1.7, 95% interval 58.6 to 65.1)"
    assert "<td" in ratio._repr_html_()
    unknown = Ratio(math.nan, math.nan, above, Estimate(0.0, 1.0), 0.0)
    assert repr(unknown) == "Ratio(nan, std nan, 95% interval -inf to inf)"
    pair = Estimates(("a <b>", "c"), np.ones(2), np.eye(2), np.zeros(2, bool), (above, ratio))
    assert repr(pair) == f"Estimates(a <b>: {above!r}, c: {ratio!r})"
    assert "a &lt;b&gt;" in pair._repr_html_()
