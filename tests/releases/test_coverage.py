"""What intervals promise, measured: 2,000 releases by the sampler that releases, and targets that
ask for simultaneous intervals.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2, norm

import fitplug as fp
from fitplug.families import LEAST_NOISE
from fitplug.files import write_with_digest
from fitplug.workload.targets import find_quantile, two_sided_quantile
from tests.helpers.many_releases import release_often
from tests.helpers.plans import describe

RELEASES = 2000
CONFIDENCES = (0.5, 0.9, 0.95)

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 3)})
X = np.array([[9, 4, 0, 30], [700, 2, 51, 8]])


@pytest.fixture(scope="module")
def releases():
    groups = [
        fp.queries({"sex": "identity", "age": "prefix"}, std=3.0, name="pyramid"),
        fp.total(moe=4.0, confidence=0.9),
    ]
    plan = fp.design(fp.Workload(DOMAIN, groups))
    tables = fp.Tables(DOMAIN, {DOMAIN.names: X})
    return list(release_often(plan, tables, RELEASES))


def within(share, confidence):
    """Five standard deviations of the binomial."""
    return abs(share - confidence) <= 5 * math.sqrt(confidence * (1 - confidence) / RELEASES)


EXACT = {"pyramid": X.cumsum(axis=1), "total": X.sum()}


@pytest.mark.slow
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_each_interval_covers_as_often_as_it_says(releases, confidence):
    for name, exact in EXACT.items():
        ends = [release.interval(name, confidence) for release in releases]
        covered = np.mean([(low <= exact) & (exact <= high) for low, high in ends], axis=0)
        assert all(within(share, confidence) for share in covered.ravel())


def covered_by_discrete_noise(sigma):
    """The probability that |z| <= 1.96 sigma, for z of the discrete Gaussian."""
    weights = np.exp(-(np.arange(math.ceil(10 * sigma) + 2) ** 2) / (2 * sigma**2))
    covered = weights[: math.floor(two_sided_quantile(0.95) * sigma) + 1]
    return (2 * covered.sum() - 1) / (2 * weights.sum() - 1)


def test_intervals_of_discrete_noise_cover_as_often_as_the_docs_say():
    assert covered_by_discrete_noise(LEAST_NOISE) == pytest.approx(0.883, abs=5e-4)
    shares = [covered_by_discrete_noise(sigma) for sigma in np.linspace(10, 200, 20_001)]
    assert 0.944 < min(shares) < 0.945
    assert 0.955 < max(shares) < 0.956
    assert covered_by_discrete_noise(1e6) == pytest.approx(0.95, abs=1e-6)
    text = " ".join(str(fp.Release.interval.__doc__).split()).replace(" %", "%")
    assert "If it is 10 or more" in text
    assert "between 94.4% and 95.6%" in text
    assert "only about 88%" in text


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_simultaneous_intervals_cover_all_at_once(releases, confidence):
    def share(simultaneous):
        ends = [r.interval("pyramid", confidence, simultaneous=simultaneous) for r in releases]
        exact = EXACT["pyramid"]
        return np.mean([((low <= exact) & (exact <= high)).all() for low, high in ends])

    error = 5 * math.sqrt(confidence * (1 - confidence) / RELEASES)
    assert share(True) >= confidence - error
    # They are needed, and not wasteful: eight intervals of one each cover far less together.
    assert share(False) < confidence - error
    assert share(True) < confidence + (1 - confidence) * 0.9


COMBINED = {
    "women of two ages": ("pyramid[sex = 2, 1 <= age <= 2]", 53),
    "difference": ("pyramid[sex = 2] - pyramid[sex = 1]", 761 - 43),
    "all": ("total", 804),
    "share": ("pyramid[sex = 2] / total", 761 / 804),
}


@pytest.fixture(scope="module")
def combined(releases):
    asked = {name: text for name, (text, _) in COMBINED.items()}
    return [release.estimate_all(asked) for release in releases[::2]]


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.slow
def test_combinations_and_ratios_cover_too(combined, confidence):
    exact = np.array([value for _, value in COMBINED.values()])
    ends = [one.interval(confidence) for one in combined]
    covered = np.mean([(low <= exact) & (exact <= high) for low, high in ends], axis=0)
    error = 5 * math.sqrt(confidence * (1 - confidence) / len(combined))
    assert (np.abs(covered - confidence) <= error).all()
    together = [one.interval(confidence, simultaneous=True) for one in combined]
    assert np.mean([((a <= exact) & (exact <= b)).all() for a, b in together]) >= confidence - error


@pytest.mark.slow
def test_the_joint_covariance_is_that_of_the_noise(combined):
    """Mahalanobis lengths are chi-square, and the sample covariance is within 5 of its stds."""
    exact = np.array([value for _, value in COMBINED.values()])[:3]
    claimed = combined[0].covariance[:3, :3]
    errors = np.array([one.values[:3] for one in combined]) - exact
    sample = errors.T @ errors / len(errors)
    variances = np.diag(claimed)
    spread = np.sqrt((claimed**2 + np.outer(variances, variances)) / len(errors))
    assert (np.abs(sample - claimed) < 5 * spread).all()
    lengths = np.einsum("ij,jk,ik->i", errors, np.linalg.inv(claimed), errors)
    for level in CONFIDENCES:
        share = (lengths <= chi2.ppf(level, 3)).mean()
        assert abs(share - level) < 5 * math.sqrt(level * (1 - level) / len(errors))


class TestQuantile:
    @pytest.mark.parametrize("confidence", [1e-6, 0.3, 0.5, 0.9, 0.95, 1 - 1e-9])
    @pytest.mark.parametrize("queries", [1, 2, 7, 192, 10**6, 10**18])
    def test_is_sidaks(self, confidence, queries):
        z = find_quantile(confidence, queries)
        # k log P(|N| <= z) = log confidence, to the digits that the tail holds.
        inside = queries * np.log1p(-2 * norm.sf(z)) if z > 0.5 else queries * np.log(
            2 * norm.cdf(z) - 1
        )  # fmt: skip
        assert inside == pytest.approx(math.log(confidence), rel=1e-9)
        assert find_quantile(confidence, 1) == two_sided_quantile(confidence)

    def test_covers_whatever_the_correlations(self):
        """Sidak's inequality, on normals of many correlations; an equality if independent."""
        rng = np.random.default_rng(2)
        for rank in (1, 2, 5, 40):
            F = rng.normal(size=(8, rank)) + (50 * np.eye(8, 40) if rank == 40 else 0.0)
            F /= np.linalg.norm(F, axis=1, keepdims=True)
            draws = np.abs(rng.normal(size=(20_000, rank)) @ F.T).max(axis=1)
            share = (draws <= find_quantile(0.9, 8)).mean()
            assert share >= 0.9 - 5 * math.sqrt(0.09 / 20_000)


class TestTargets:
    def test_are_met_at_once(self):
        group = fp.marginal("age", "sex", moe=10.0, confidence=0.9, simultaneous=True, name="t")
        plan = fp.design(fp.Workload(DOMAIN, [group]))
        z = find_quantile(0.9, 8)
        assert (z * np.sqrt(plan.variances["t"]) <= 10.0).all()
        assert np.sqrt(plan.variances["t"]).max() * z == pytest.approx(10.0, rel=1e-3)
        assert "moe 10 at 90% simultaneous" in plan.summary()
        release = fp.Release(plan=plan, answers=np.zeros(plan.strategy.size, np.int64), rho=1.0)
        low, high = release.interval("t", 0.9, simultaneous=True)
        assert (high - low <= 20.0).all()

    def test_an_array_of_targets(self):
        moe = np.array([5.0, 10.0])
        group = fp.marginal("age", "sex", moe=moe, confidence=0.9, simultaneous=True)
        (bound,) = fp.Workload(DOMAIN, [group]).groups
        expected = np.broadcast_to((moe / find_quantile(0.9, 8)) ** 2, (4, 2))
        np.testing.assert_allclose(bound.variances, expected, rtol=1e-14)
        assert (bound.variances <= expected).all()

    def test_one_query_is_as_before(self):
        for simultaneous in (False, True):
            workload = fp.Workload(DOMAIN, [fp.total(moe=3.0, simultaneous=simultaneous)])
            assert workload.groups[0].variances == pytest.approx((3 / 1.959963984540054) ** 2)

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            (
                {"std": 1.0, "simultaneous": True},
                "'simultaneous' needs the target 'moe', not 'std'",
            ),
            ({"moe": 1.0, "simultaneous": 1}, "simultaneous must be True or False, not 1"),
        ],
    )
    def test_refused(self, given, says):
        with pytest.raises(fp.WorkloadError, match=says):
            fp.queries({"sex": "identity"}, **given)


class TestPlanFiles:
    def plan(self, simultaneous):
        group = fp.marginal("sex", moe=10.0, confidence=0.9, simultaneous=simultaneous)
        return fp.design(fp.Workload(DOMAIN, [group, fp.total(std=5.0)]))

    def test_keep_it(self, tmp_path):
        plan = self.plan(True)
        plan.save(tmp_path / "plan.npz")
        again = fp.Plan.load(tmp_path / "plan.npz")
        again.verify()
        assert again.digest == plan.digest
        assert again.workload["sex"].target.simultaneous
        assert not again.workload["total"].target.simultaneous
        assert again.summary() == plan.summary()

    @pytest.mark.parametrize("forged", [False, 1, "yes", None])
    def test_a_forged_one_is_refused(self, tmp_path, forged):
        header, arrays = describe(self.plan(True))
        header["groups"][0]["simultaneous"] = forged
        write_with_digest(tmp_path / "plan.npz", header, arrays)
        with pytest.raises(fp.PlanError):
            fp.Plan.load(tmp_path / "plan.npz")
