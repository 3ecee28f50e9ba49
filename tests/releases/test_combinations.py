"""Estimates and their joint covariance against matrices written out, ratios against draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fitplug as fp
from fitplug.families.base import estimates as reconstruction
from fitplug.families.base.mechanism import Combined
from tests.helpers import people
from tests.helpers.exact import full_strategy
from tests.helpers.plans import product_plan, symmetric_plan


@pytest.fixture(
    scope="module",
    params=[people.plan, symmetric_plan, product_plan],
    ids=["dense", "symmetric", "product"],
)
def plan(request):
    return request.param()


def empty(plan, **fields):
    zeros = np.zeros(plan.strategy.size, np.int64)
    return fp.Release(plan=plan, answers=zeros, rho=plan.rho, **fields)


def rows(plan, several):
    """Each combination as a row over the cells."""
    W, groups = plan.workload.matrix(), plan.workload.groups
    weights = [
        np.concatenate([np.broadcast_to(one.get(g.name, 0.0), g.shape).ravel() for g in groups])
        for one in several
    ]
    return np.array(weights) @ W


def chosen(plan, seed, k=4):
    rng = np.random.default_rng(seed)
    groups = plan.workload.groups
    return [
        {g.name: rng.normal(size=g.shape) for g in rng.permutation(np.array(groups, object))[:2]}
        for _ in range(k)
    ]


class TestCovariance:
    @pytest.mark.parametrize("noise_scale", [1.0, 2.5])
    def test_is_that_of_the_strategy_written_out(self, plan, noise_scale):
        """R R' sigma^2 with R = W A^+: what least squares makes of y = A x + z."""
        given = chosen(plan, 1)
        A = np.array(full_strategy(plan), dtype=np.float64)
        R = rows(plan, given) @ np.linalg.pinv(A, rcond=1e-12)
        expected = R @ R.T * (plan.noise_std * noise_scale) ** 2
        release = empty(plan, noise_scale=noise_scale)
        found = release.estimate_all(dict(zip("pqrs", given, strict=True)))
        assert found.names == ("p", "q", "r", "s")
        scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
        np.testing.assert_allclose(found.covariance / scale, expected / scale, atol=1e-7)
        np.testing.assert_allclose(found.stds, [release.estimate(one).std for one in given])
        assert np.linalg.eigvalsh(found.covariance).min() > -1e-9 * scale.max()
        assert not found.approximate.any()

    def test_is_that_of_sigma(self, plan):
        given = chosen(plan, 2)
        covariance, B = plan.sigma()
        L = np.linalg.lstsq(B.T.astype(float), rows(plan, given).T, rcond=None)[0].T
        found = empty(plan).estimate_all(dict(zip("pqrs", given, strict=True)))
        expected = L @ covariance @ L.T
        np.testing.assert_allclose(found.covariance, expected, atol=1e-7 * expected.max())

    def test_differences_and_sums_follow_from_it(self, plan):
        one, two = chosen(plan, 3, k=2)
        release = empty(plan)
        covariance = release.estimate_all({"one": one, "two": two}).covariance
        names = {**one, **two}
        for sign in (1, -1):
            both = {n: one.get(n, 0.0) + sign * np.asarray(two.get(n, 0.0)) for n in names}
            variance = covariance[0, 0] + covariance[1, 1] + 2 * sign * covariance[0, 1]
            assert release.estimate(both).std == pytest.approx(math.sqrt(variance), rel=1e-7)


class TestEach:
    def test_is_what_each_alone_is(self, plan):
        release = empty(plan, noise_scale=2.0)
        given = chosen(plan, 4, k=6)
        group = plan.workload.groups[0]
        single = np.zeros(group.shape)
        single.flat[-1] = -2.5
        given += [{group.name: single}, {group.name: 0.0}]
        found = list(release.estimate_each(iter(given)))
        joint = release.estimate_all({str(k): one for k, one in enumerate(given)})
        np.testing.assert_allclose([one.value for one in found], joint.values, atol=1e-9)
        np.testing.assert_allclose([one.std for one in found], joint.stds, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose([release.estimate(one) for one in given], found, atol=1e-9)

    def test_one_answer_beside_a_group_without_coefficients(self):
        release = people.release()
        first, second, *_ = release.plan.workload.groups
        one = np.zeros(first.shape)
        one.flat[0] = 2.0
        alone = release.estimate({first.name: one})
        nothing = np.zeros(second.shape)
        assert release.estimate({first.name: one, second.name: nothing}) == alone
        assert release.estimate({second.name: nothing, first.name: one}) == alone
        assert release.estimate({second.name: nothing}) == (0.0, 0.0)

    def test_ratios_stand_among_sums(self):
        release = people.release(noise=1.0)
        asked = ["total", "pyramid[sex=1] / total", "pyramid[age=0]", "spans[age=3] / pyramid"]
        found = list(release.estimate_each(asked))
        joint = release.estimate_all(asked)
        assert [one.approximate for one in found] == [False, True, False, True]
        np.testing.assert_allclose([one.value for one in found], joint.values)
        np.testing.assert_allclose([one.std for one in found], joint.stds, rtol=1e-7)

    def test_a_ratio_that_means_nothing_has_no_value(self):
        release = people.release(noise=1.0)
        one, two = release.estimate_each(["pyramid / (total - total)", "total"])
        assert math.isnan(one.value)
        assert math.isnan(one.std)
        assert one.numerator == release.estimate("pyramid")
        assert two == release.estimate("total")

    def test_many_share_inversions_and_have_no_covariance(self, monkeypatch):
        release = people.release(noise=1.0)
        inverted = []
        original = reconstruction.upper_solution_norms

        def counting(L, M, **errors):
            inverted.append(len(L))
            return original(L, M, **errors)

        monkeypatch.setattr(reconstruction, "upper_solution_norms", counting)
        monkeypatch.delattr(Combined, "compute_covariance")
        asked = [f"{k} * pyramid[sex={k % 2 + 1}] - spans[age={k % 6}]" for k in range(1_000)]
        few = list(release.estimate_each(asked[:12]))
        inverted.clear()
        found = list(release.estimate_each(asked))
        np.testing.assert_allclose(found[:12], few, rtol=1e-9)
        assert len(inverted) <= len(release.plan.strategy.positions)

    def test_what_is_wrong_is_said_when_it_comes(self):
        found = people.release().estimate_each(["total", "totel"])
        with pytest.raises(fp.WorkloadError, match="Did you mean 'total'"):
            list(found)


class TestRatios:
    def test_is_the_delta_method(self):
        release = people.release(noise=1.0)
        found = release.estimate("pyramid[age <= 2] / total")
        assert isinstance(found, fp.Ratio)
        assert found.approximate
        assert not found.numerator.approximate
        joint = release.estimate_all(["pyramid[age <= 2]", "total"])
        a, b = joint.values
        gradient = np.array([1 / b, -a / b**2])
        assert found.value == pytest.approx(a / b, rel=1e-12)
        assert found.std == pytest.approx(math.sqrt(gradient @ joint.covariance @ gradient))
        assert found.numerator == release.estimate("pyramid[age <= 2]")
        assert found.covariance == pytest.approx(joint.covariance[0, 1], rel=1e-6)
        low, high = found.interval(0.9)
        assert low < found.value < high
        assert (high - low) / 2 == pytest.approx(1.6448536 * found.std, rel=1e-3)
        assert found.moe(0.9) == max(found.value - low, high - found.value)

    def test_against_5000_draws(self):
        """The std and the coverage of a ratio whose denominator is 30 stds from zero."""
        plan = people.plan()
        exact = people.release().estimate("2 * pyramid[sex = 1] / total")
        sigma = people.release().estimate_all(["2 * pyramid[sex = 1]", "total"])
        factor = sigma.values[1] / 30 / sigma.stds[1]
        draws = np.random.default_rng(5).multivariate_normal(
            sigma.values, sigma.covariance * factor**2, size=5000
        )
        ratios = draws[:, 0] / draws[:, 1]
        noisy = fp.Release(
            plan=plan, answers=people.release().answers, rho=plan.rho, noise_scale=factor
        )
        found = noisy.estimate("2 * pyramid[sex = 1] / total")
        assert found.value == pytest.approx(exact.value)
        assert np.std(ratios) == pytest.approx(found.std, rel=0.05)
        # Of the interval made of each draw: binomial, five of its stds.
        a, b = draws.T
        gradient = np.stack([1 / b, -a / b**2], axis=1)
        own = np.sqrt(np.einsum("ij,jk,ik->i", gradient, sigma.covariance * factor**2, gradient))
        covered = (np.abs(ratios - exact.value) <= 1.959963984540054 * own).mean()
        assert abs(covered - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 5000)

    def test_several_at_once(self):
        release = people.release(noise=1.0)
        asked = {
            "men": "pyramid[sex = 1] / total",
            "women": "pyramid[sex = 2] / total",
            "all": "total",
            "both": "(pyramid[sex = 1] + pyramid[sex = 2]) / total",
        }
        found = release.estimate_all(asked)
        assert found.approximate.tolist() == [True, True, False, True]
        for k, expression in enumerate(asked.values()):
            one = release.estimate(expression)
            assert found.values[k] == pytest.approx(one.value)
            assert found.stds[k] == pytest.approx(one.std, rel=1e-6, abs=1e-7)
        # Shares of one whole add up to one without noise.
        assert found.values[3] == pytest.approx(1.0)
        assert found.stds[3] < 1e-6
        shares = found.covariance[:2, :2]
        assert shares.sum() == pytest.approx(0.0, abs=1e-6 * shares.max())

    def test_a_denominator_near_zero_is_refused(self):
        release = people.release()
        for asked in ("total / (pyramid[sex = 1] - pyramid[sex = 1])", "total / (total - total)"):
            with pytest.raises(fp.WorkloadError, match="denominator is too close to zero"):
                release.estimate(asked)
            with pytest.raises(fp.WorkloadError, match=r"'shares'.*close to zero"):
                release.estimate_all({"shares": asked})


class TestIntervals:
    def test_of_one_combination(self):
        found = people.release().estimate({"total": 1, "voting age": [-1, 0]})
        value, std = found
        low, high = found.interval(0.95)
        assert (low, high) == (value - found.moe(0.95), value + found.moe(0.95))
        assert found.moe() == pytest.approx(1.959963984540054 * std)
        with pytest.raises(fp.WorkloadError, match="confidence"):
            found.interval(1.5)

    def test_of_several(self):
        found = people.release().estimate_all(["total", "pyramid[sex = 1]"])
        low, high = found.interval(0.95)
        np.testing.assert_allclose(high - low, 2 * 1.959963984540054 * found.stds)
        wider = found.moe(0.95, simultaneous=True)
        # Sidak for two: 0.95^(1/2) each.
        np.testing.assert_allclose(wider, 2.2364774 * found.stds, rtol=1e-6)

    @pytest.mark.parametrize("asked", [{}, [], "total", 3, None])
    def test_nothing_to_combine(self, asked):
        with pytest.raises(fp.WorkloadError, match="estimate_all needs"):
            people.release().estimate_all(asked)

    def test_lists_are_of_expressions_once_each(self):
        with pytest.raises(fp.WorkloadError, match="listed twice"):
            people.release().estimate_all(["total", "total"])
        with pytest.raises(fp.WorkloadError, match="must be text"):
            people.release().estimate_all([{"total": 1}])

    def test_what_is_wrong_is_named(self):
        release = people.release()
        with pytest.raises(fp.WorkloadError, match=r"'mine'.*Did you mean 'total'"):
            release.estimate_all({"mine": "totel"})
        with pytest.raises(fp.WorkloadError, match=r"'mine'.*shape"):
            release.estimate_all({"mine": {"pyramid": [1, 2, 3]}})
        with pytest.raises(fp.WorkloadError, match="must be an expression"):
            release.estimate(3)
