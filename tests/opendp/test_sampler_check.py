"""The test of the sampler: wrong samplers are caught, and correct ones are not."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

import fitplug as fp
import fitplug_opendp as fpo
from fitplug.errors import SamplerError
from fitplug_opendp import discrete_gaussian as exact, gaussian, noise_source, sampler_check
from fitplug_opendp.sampler_check import check_sampler, judge_noise
from tests.helpers.opendp_spaces import features  # noqa: F401

DRAWS = 6144
STDS = [1.0, 1.5, 12.25, 900.0, 2.0**12 + 1, 1e7, 2.0**40, 2.0**55]


def sum_masses(std, reach=40):
    """Masses of the discrete Gaussian as exact sums of floats, by nothing of the package."""
    values = range(-math.ceil(reach * std), math.ceil(reach * std) + 1)
    weights = [math.exp(-((x / std) ** 2) / 2) for x in values]
    total = math.fsum(weights)
    return np.array(values), np.array(weights) / total


def draw_correctly(rng, std, size):
    """Discrete Gaussian draws from NumPy's randomness, by the inverse of the distribution."""
    if std > 2**12:  # rounded normal draws, which differ by less than any test of this size sees
        return np.rint(rng.normal(0, std, size)).astype(np.int64)
    values, masses = sum_masses(std, 9)
    return rng.choice(values, size=size, p=masses / masses.sum())


def repeat_a_call(rng, std, size):
    return np.random.default_rng(5).normal(0, std, size).astype(np.int64)


def repeat_another_call_negated(rng, std, size):
    sign = rng.choice([-1, 1])
    return sign * np.random.default_rng(5).normal(0, std, size).astype(np.int64)


def use_few_seeds(rng, std, size):
    return draw_correctly(np.random.default_rng(int(rng.integers(4))), std, size)


WRONG = {
    "0.9 of the scale": lambda rng, std, size: draw_correctly(rng, 0.9 * std, size),
    "0.8 of the scale": lambda rng, std, size: draw_correctly(rng, 0.8 * std, size),
    "1.15 of the scale": lambda rng, std, size: draw_correctly(rng, 1.15 * std, size),
    "a mean of a tenth": lambda rng, std, size: (
        draw_correctly(rng, std, size) + (rng.random(size) < std / 8 - std // 8) + int(std // 8)
    ),
    "always even": lambda rng, std, size: 2 * draw_correctly(rng, std / 2, size),
    "multiples of 5": lambda rng, std, size: 5 * draw_correctly(rng, std / 5, size),
    "a clip at 2.5": lambda rng, std, size: np.clip(
        draw_correctly(rng, std, size), -int(2.5 * std), int(2.5 * std)
    ),
    "redrawn beyond 2": lambda rng, std, size: (lambda x: x[np.abs(x) <= 2 * std][:size])(
        draw_correctly(rng, std, 2 * size)
    ),
    "no noise": lambda rng, std, size: np.zeros(size, dtype=np.int64),
    "a constant": lambda rng, std, size: np.full(size, round(std)),
    "one sign": lambda rng, std, size: np.abs(draw_correctly(rng, std, size)),
    "only two values": lambda rng, std, size: rng.choice([-1, 1], size) * round(std),
    "uniform": lambda rng, std, size: np.rint(
        rng.uniform(-math.sqrt(3) * std, math.sqrt(3) * std, size)
    ).astype(np.int64),
    "Laplace": lambda rng, std, size: np.rint(rng.laplace(0, std / math.sqrt(2), size)).astype(
        np.int64
    ),
    "each draw twice": lambda rng, std, size: np.repeat(draw_correctly(rng, std, size // 2), 2),
    "the same call again": repeat_a_call,
    "the same call negated": repeat_another_call_negated,
    "four seeds": use_few_seeds,
}
WIDE_ONLY = {"0.9 of the scale", "a clip at 2.5", "uniform"}
"""Of standard deviation 1 these differ less, as integers are few."""


def replace_sampler(monkeypatch, draw, seed=0):
    """Put a wrong sampler in the place of OpenDP's, where releases and their test both draw."""
    rng = np.random.default_rng(seed)

    class Wrong:
        def __init__(self, _dp, size, std):
            self.size, self.std = size, std

        def map(self, distance):
            return (distance / self.std) ** 2 / 2 * (1 + 1e-15)

        def __call__(self, answers):
            return np.asarray(answers) + draw(rng, self.std, self.size)

    monkeypatch.setattr(gaussian, "make_gaussian", Wrong)


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("std", [1.0, 12.25, 1e7])
def test_a_wrong_sampler_is_caught(monkeypatch, name, std):
    if std == 1.0 and name in WIDE_ONLY | {"multiples of 5", "always even"}:
        std = 5.0
    replace_sampler(monkeypatch, WRONG[name])
    for _ in range(3):
        with pytest.raises(SamplerError, match="fails a test"):
            check_sampler(std)


@pytest.mark.parametrize("std", [1e7, 2.0**55])
@pytest.mark.parametrize("bit", [3, 4, 12, 20])
def test_a_bit_that_is_stuck_is_caught(monkeypatch, std, bit):
    replace_sampler(monkeypatch, lambda rng, std, n: draw_correctly(rng, std, n) | (1 << bit))
    with pytest.raises(SamplerError):
        check_sampler(std)


def test_noise_that_depends_on_the_answers_is_caught(monkeypatch):
    def make(_dp, size, std):
        rng = np.random.default_rng(1)
        return lambda answers: np.where(
            np.asarray(answers) == 0, answers + draw_correctly(rng, std, size), answers
        )

    monkeypatch.setattr(gaussian, "make_gaussian", make)
    with pytest.raises(SamplerError):
        check_sampler(30.0)


def test_every_release_makes_the_test(monkeypatch, tmp_path):
    """Not only the first of a process, as in the fixture that saves other tests its time."""
    tested = []
    monkeypatch.setattr(noise_source, "check_sampler", tested.append)
    plan, tables = TestReleases.PLAN, TestReleases.TABLES
    for folder in (None, None, tmp_path / "first", tmp_path / "second"):
        fp.release(plan, tables, folder)
    assert tested == [plan.noise_std] * 4


class TestReleases:
    DOMAIN = fp.Domain({"a": fp.Integers(1, 6)})
    PLAN = fp.design(fp.Workload(DOMAIN, [fp.marginal("a", std=5.0)]))
    TABLES = fp.Tables(DOMAIN, {("a",): np.arange(6)})

    @pytest.fixture
    def ledger(self, tmp_path):
        return fp.Ledger(tmp_path / "budget.db", rho=10.0)

    @pytest.fixture(autouse=True)
    def wrong(self, monkeypatch):
        self.sizes = []

        def draw(rng, std, size):
            self.sizes.append(size)
            return draw_correctly(rng, 0.8 * std, size)

        replace_sampler(monkeypatch, draw)

    def check_nothing_happened(self, ledger):
        assert ledger.entries() == ()
        assert not ledger.stages()
        assert self.PLAN.strategy.size not in self.sizes

    def test_in_memory(self, ledger):
        for keywords in ({}, {"ledger": ledger}, {"ledger": ledger, "key": "a"}):
            with pytest.raises(fp.SamplerError):
                fp.release(self.PLAN, self.TABLES, **keywords)
        self.check_nothing_happened(ledger)

    def test_into_a_folder(self, ledger, tmp_path):
        before = sorted(tmp_path.iterdir())
        with pytest.raises(fp.SamplerError):
            fp.release(self.PLAN, self.TABLES, tmp_path / "out", ledger=ledger)
        self.check_nothing_happened(ledger)
        assert sorted(tmp_path.iterdir()) == before

    def test_as_a_measurement(self, features):  # noqa: F811
        import opendp.prelude as dp

        space = fpo.tables_domain(self.PLAN), dp.symmetric_distance()
        sampler_check._check_power_of_two.cache_clear()
        for _ in range(2):
            with pytest.raises(fp.SamplerError):
                fpo.make_fitness_for_use(*space, self.PLAN)


class TestBounds:
    @pytest.mark.parametrize("std", [1.0, 1.5, 7.25, 400.0])
    def test_probabilities_are_those_of_the_sums(self, std):
        values, masses = sum_masses(std)
        found = exact.DiscreteGaussian(std)
        at = np.unique(np.floor(np.linspace(-4, 4, 41) * std).astype(np.int64))
        wanted = [math.fsum(masses[values <= t]) for t in at]
        np.testing.assert_allclose(found.compute_cumulative(at), wanted, atol=1e-11, rtol=0)
        for modulus in (2, 3, 16):
            wanted = [math.fsum(masses[values % modulus == r]) for r in range(modulus)]
            np.testing.assert_allclose(found.compute_residues(modulus), wanted, atol=1e-11, rtol=0)

    def test_probabilities_of_wide_noise_are_within_their_margin(self):
        std = 4500.0
        values, masses = sum_masses(std, 10)
        found = exact.DiscreteGaussian(std)
        at = np.arange(-20_000, 20_000, 777)
        wanted = np.cumsum(masses)[np.searchsorted(values, at)]
        assert np.abs(found.compute_cumulative(at) - wanted).max() <= found.margin < 1e-8

    @pytest.mark.parametrize("draws", [10, 150])
    @pytest.mark.parametrize("chance", [0.5, 1 / 16, 0.003])
    def test_binomial_p_values_are_no_less_than_exact_tails(self, draws, chance):
        p = Fraction(chance)
        masses = [
            math.comb(draws, k) * p**k * (1 - p) ** (draws - k) for k in range(min(draws, 60) + 1)
        ]
        for k in range(len(masses)):
            below = sum(masses[: k + 1])
            least = min(below, 1 - below + masses[k])
            assert exact.upper_binomial_p_value(k, draws, chance, 0.0) >= min(1, 2 * least)

    @pytest.mark.parametrize("std", [1.0, 2.0])
    def test_sums_of_few_draws_are_within_their_bounds(self, std):
        """Every pair of draws: P(p <= a) <= a for each of the p-values, by full enumeration."""
        values, masses = sum_masses(std, 9)
        pair = {}
        for (x, p), (y, q) in itertools.product(zip(values, masses, strict=True), repeat=2):
            found = (
                exact.upper_mean_p_value((x + y) / 2 / std, 2),
                exact.upper_variance_p_value((x * x + y * y) / 2 / std**2, 2, std),
                exact.upper_product_p_value(x * y / std**2, 1),
                exact.upper_multiplicity_p_value(2 if x == y else 1, 2, std),
            )
            pair[int(x), int(y)] = (p * q, found)
        for which in range(4):
            ordered = sorted((found[which], mass) for mass, found in pair.values())
            total = 0.0
            for a, mass in ordered:
                total += mass
                assert total <= a * (1 + 1e-9) or a >= 1 or a == 0

    def test_the_variance_bound_holds_for_ratios_close_to_zero(self):
        for ratio, std in ((0.0, 1.0), (1e-4, 1.0), (0.02, 2.0), (0.1, 1.0)):
            _, masses = sum_masses(std)
            zero = masses.max() ** 8
            assert zero <= exact.upper_variance_p_value(ratio, 8, std)


class TestFalseAlarms:
    @pytest.mark.parametrize("std", STDS)
    def test_the_sampler_of_opendp_passes(self, std, features):  # noqa: F811
        check_sampler(std)

    @pytest.mark.parametrize("std", [1.0, 12.25, 1e7])
    def test_the_rate_is_at_most_what_is_promised(self, std):
        """At a promised rate of 10 % the number of alarms is within its binomial bound."""
        rng, alarms, runs = np.random.default_rng(4), 0, 100
        for _ in range(runs):
            try:
                judge_noise(draw_correctly(rng, std, DRAWS), std, 0.1)
            except SamplerError:
                alarms += 1
        assert binom.sf(alarms - 1, runs, 0.1) > 1e-6
