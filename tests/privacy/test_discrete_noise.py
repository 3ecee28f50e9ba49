"""The Gaussian curve for discrete noise, against exact sums and dp_accounting's PLD."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fitplug.errors import BudgetError, InputError
from fitplug.privacy import (
    CONTINUOUS,
    USUAL,
    CurveLoss,
    DiscreteNoise,
    delta_at,
    epsilon_at,
    rho_at,
    rho_of_budget,
)


@lru_cache(maxsize=1)
def weigh_integers(sigma, largest):
    """The weights of -`largest` to `largest`, in units of 2^-240."""
    with mpmath.workdps(90):
        square = 2 * mpmath.mpf(sigma) ** 2
        halves = [int(mpmath.exp(-mpmath.mpf(v * v) / square) * 2**240) for v in range(largest + 1)]
    return [*halves[:0:-1], *halves]


def sum_delta(sigma, shift, epsilon):
    """The least delta of discrete Gaussian noise on integer answers that differ by `shift`.

    The largest P(T) - e^epsilon Q(T) is a sum over all integer vectors, in 60 digits. Beyond 14
    sigma there is less than 1e-40.
    """
    reach, moves = math.ceil(14 * sigma) + max(map(abs, shift)), max(map(abs, shift))
    weights = weigh_integers(sigma, reach + moves)
    with mpmath.workdps(90):
        factor, unit = int(mpmath.exp(mpmath.mpf(epsilon)) * 2**240), 2**240
    size = 2 * reach + 1
    both = [
        list(zip(weights[moves:][:size], weights[moves - d :][:size], strict=True)) for d in shift
    ]
    delta = 0
    for point in itertools.product(*both):
        p, q = point[0]
        for other_p, other_q in point[1:]:
            p, q = p * other_p, q * other_q
        if p * unit > factor * q:
            delta += p * unit - factor * q
    with mpmath.workdps(60):
        return mpmath.mpf(delta) / sum(weights) ** len(shift) / unit


@pytest.mark.parametrize("sigma", [0.7, 1.0, 1.6, 2.0, 3.0, 5.5, 12.0, 40.0])
@pytest.mark.parametrize("share", [0.05, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_one_answer_against_exact_sums(sigma, share, shift):
    cost, epsilon = shift / sigma, share * shift / sigma * 3
    loss = DiscreteNoise(sigma, 1).loss
    exact = sum_delta(sigma, (shift,), epsilon)
    assert delta_at(cost, epsilon, loss) >= exact
    if 1e-200 < exact < 0.99:
        assert epsilon_at(cost, float(exact) * (1 + 1e-9), loss) >= epsilon * (1 - 1e-8)
    if loss.stretch < 1.01 and exact > 1e-30:
        # Not only safe: the discrete noise really is as good as the continuous one.
        assert delta_at(cost, epsilon, CONTINUOUS) == pytest.approx(float(exact), rel=0.02)


@pytest.mark.parametrize(("sigma", "shift"), [(1.3, (1, 1)), (1.9, (1, 2)), (2.4, (2, -1))])
def test_two_answers_against_exact_sums(sigma, shift):
    cost = math.hypot(*shift) / sigma
    for epsilon in (0.2, 1.0, 3.0):
        exact = sum_delta(sigma, shift, epsilon)
        assert delta_at(cost, epsilon, DiscreteNoise(sigma, 2).loss) >= exact


def test_the_continuous_curve_is_false_for_little_noise():
    """What Theorem 4 subtracts is needed: the sums above would notice a curve without it."""
    assert any(
        delta_at(1 / sigma, epsilon, CONTINUOUS) < sum_delta(sigma, (1,), epsilon)
        for sigma in (0.4, 0.5, 0.6)
        for epsilon in np.linspace(0.1, 6, 30)
    )


@pytest.mark.parametrize("sigma", [20.0, 60.0])
@pytest.mark.parametrize("releases", [1, 7])
def test_a_second_opinion_by_privacy_loss_distributions(sigma, releases):
    """dp_accounting rounds privacy losses up, so its epsilon is at least the true one."""
    privacy_loss_distribution = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    theirs = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        sigma, value_discretization_interval=1e-4
    ).self_compose(releases)
    loss = CONTINUOUS
    for _ in range(releases):
        loss = loss.join(DiscreteNoise(sigma, 1).loss)
    for delta in (1e-4, 1e-8):
        ours = epsilon_at(math.sqrt(releases) / sigma, delta, loss)
        assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=0.02)
        assert ours < 0.95 * epsilon_at(math.sqrt(releases) / sigma, delta)


@settings(max_examples=60)
@given(
    log_sigma=st.floats(-1, 30),
    log_answers=st.floats(0, 36),
    log_cost=st.floats(-8, 3),
    log_delta=st.floats(-300, -1),
)
def test_epsilon_lies_between_the_curve_and_the_conversion(
    log_sigma, log_answers, log_cost, log_delta
):
    loss = DiscreteNoise(math.exp(log_sigma), math.ceil(math.exp(log_answers))).loss
    cost, delta = math.exp(log_cost), math.exp(log_delta)
    epsilon = epsilon_at(cost, delta, loss)
    assert epsilon_at(cost, delta, CONTINUOUS) * (1 - 1e-9) <= epsilon <= epsilon_at(cost, delta)
    if epsilon > 1e-9:
        assert delta_at(cost, epsilon * (1 + 1e-9), loss) <= delta * (1 + 1e-4)


@given(log_sigma=st.floats(0.5, 20), log_answers=st.floats(0, 36))
def test_the_loss_covers_the_definitions_in_50_digits(log_sigma, log_answers):
    sigma, answers = math.exp(log_sigma), math.ceil(math.exp(log_answers))
    loss = DiscreteNoise(sigma, answers).loss
    if loss.stretch == math.inf:
        return
    with mpmath.workdps(50):
        # s^2 = sigma^2 (1 - 1 / stretch), to the safe side for eta.
        smoothing = mpmath.mpf(sigma) ** 2 * (1 - 1 / mpmath.mpf(loss.stretch))
        q = mpmath.exp(-2 * mpmath.pi**2 * smoothing)
        eta = 2 * mpmath.nsum(lambda j: q ** (j**2), [1, 6])
        ratio = answers * mpmath.log((1 + eta) / (1 - eta))
    # Where sigma is large, the step up of the stretch is much of s^2, which only lowers eta.
    assert ratio <= loss.log_ratio


@settings(max_examples=40)
@given(log_epsilon=st.floats(-9, 6), log_delta=st.floats(-300, -1), log_sigma=st.floats(0.8, 20))
def test_rho_is_the_largest_that_converts_back(log_epsilon, log_delta, log_sigma):
    epsilon, delta = math.exp(log_epsilon), math.exp(log_delta)
    loss = DiscreteNoise(math.exp(log_sigma), 1000).loss
    rho = rho_at(epsilon, delta, loss)
    assert rho >= rho_at(epsilon, delta)
    assert epsilon_at(math.sqrt(2 * rho), delta, loss) <= epsilon
    assert epsilon_at(math.sqrt(2 * rho) * (1 + 1e-5), delta, loss) > epsilon
    assert rho_of_budget(epsilon, delta, loss) <= rho


@pytest.mark.parametrize(("epsilon", "gain"), [(1.0, 1.106), (4.0, 1.095), (10.0, 1.084)])
def test_what_the_curve_is_worth(epsilon, gain):
    assert rho_of_budget(epsilon, 1e-9) / rho_at(epsilon, 1e-9) == pytest.approx(gain, abs=6e-4)


def test_losses_of_many_releases_add_up():
    loss = CONTINUOUS
    for noise in [DiscreteNoise(1e6, 10**15)] * 1000 + [DiscreteNoise(1e5, 3)]:
        loss = loss.join(noise.loss)
    assert loss.stretch == DiscreteNoise(1e5, 3).loss.stretch
    assert 1001e-18 <= loss.log_ratio <= 1001e-18 * (1 + 1e-9)
    assert not loss.exceeds(USUAL)
    assert loss.join(DiscreteNoise(100.0, 1).loss).exceeds(USUAL)
    assert CONTINUOUS.join(CONTINUOUS) == CurveLoss()


def test_an_epsilon_below_the_ratio_pays_for_it():
    for log_ratio in (0.3, 1e-3, 1e-9):
        loss = CurveLoss(1.0, log_ratio)
        least = delta_at(1e-3, 0.0, CONTINUOUS) + math.expm1(2 * log_ratio)
        assert delta_at(1e-3, 0.0, loss) >= min(least, delta_at(1e-3, 0.0))


@pytest.mark.parametrize("epsilon", [1e-11, 1e-12, 5e-9])
def test_a_rho_too_small_is_refused_and_no_fault(epsilon):
    with pytest.raises(
        BudgetError, match=r"is below the least rho, 5e-19\. Raise epsilon or delta"
    ):
        rho_of_budget(epsilon, 1e-300)


def test_three_answers_against_exact_sums():
    sigma, shift = 1.7, (1, 1, -1)
    loss = DiscreteNoise(sigma, 3).loss
    cost = math.sqrt(3) / sigma
    for epsilon in (0.3, 2.0):
        assert delta_at(cost, epsilon, loss) >= sum_delta(sigma, shift, epsilon)


@pytest.mark.parametrize(
    ("sigma", "answers"),
    [
        *((0.0, 1), (math.inf, 1), (math.nan, 1), (10**400, 1), ("2", 1)),
        *((2.0, 0), (2.0, 1.0), (2.0, math.nan), (2.0, True), (2.0, 2**63)),
    ],
)
def test_no_noise(sigma, answers):
    wrong = "answers" if sigma == 2.0 else "noise_std"
    with pytest.raises(InputError, match=f"{wrong} must be"):
        DiscreteNoise(sigma, answers)


def test_noise_too_small_for_the_theorem_is_converted_from_rho():
    loss = DiscreteNoise(1.0, 5).loss
    assert loss.stretch == math.inf
    assert epsilon_at(1.0, 1e-6, loss) == epsilon_at(1.0, 1e-6)
    assert delta_at(1.0, 2.0, loss) == delta_at(1.0, 2.0)
    assert rho_at(1.0, 1e-6, loss) == rho_at(1.0, 1e-6)
