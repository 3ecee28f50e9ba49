"""Conversions between rho and (epsilon, delta), against OpenDP and 50-digit arithmetic."""

from __future__ import annotations

import math

import mpmath
import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st

from fitplug.errors import BudgetError
from fitplug.privacy import CONTINUOUS, delta_at, epsilon_at, rho_at


def exact_log_delta(cost, epsilon):
    """The paper's Theorem 3, evaluated as it stands with digits to spare."""
    with mpmath.workdps(400):
        cost, epsilon = mpmath.mpf(cost), mpmath.mpf(epsilon)
        near = mpmath.ncdf(cost / 2 - epsilon / cost)
        far = mpmath.exp(epsilon) * mpmath.ncdf(-cost / 2 - epsilon / cost)
        return float(mpmath.log(near - far))


@pytest.mark.parametrize(
    ("rho", "zcdp", "gaussian"),
    [(0.5, 5.2215, 4.8866), (0.1, 2.1419, 1.9945), (0.01, 0.6217, 0.5751)],
)
def test_known_values_at_one_in_a_million(rho, zcdp, gaussian):
    cost = math.sqrt(2 * rho)
    assert epsilon_at(cost, 1e-6) == pytest.approx(zcdp, abs=6e-5)
    assert epsilon_at(cost, 1e-6, CONTINUOUS) == pytest.approx(gaussian, abs=6e-5)


@given(log_rho=st.floats(-12, 5), log_delta=st.floats(-30, -0.1))
def test_zcdp_conversion_against_opendp(log_rho, log_delta):
    rho, delta = math.exp(log_rho), math.exp(log_delta)
    dp.enable_features("contrib")
    space = dp.atom_domain(T="f64", nan=False), dp.absolute_distance(T="f64")
    measurement = space >> dp.m.then_gaussian(scale=1 / math.sqrt(2 * rho))
    theirs = dp.c.make_zCDP_to_approxDP(measurement).map(1.0).epsilon(delta)
    ours = epsilon_at(math.sqrt(2 * rho), delta)
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
    assert ours >= theirs * (1 - 1e-9)


@pytest.mark.parametrize("cost", [1e-6, 1e-3, 0.019, 0.021, 0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("t", [-6.0, -0.3, 0.0, 0.4, 5.0, 20.0, 36.0])
def test_delta_is_the_exact_curve_and_never_below_it(cost, t):
    epsilon = (t + cost / 2) * cost
    if epsilon <= 0:
        epsilon = cost / 1000
    exact = exact_log_delta(cost, epsilon)
    if exact < -690:
        return  # not a float any more
    ours = delta_at(cost, epsilon, CONTINUOUS)
    assert math.log(ours) == pytest.approx(exact, abs=2e-8)
    assert math.log(ours) >= min(exact, 0.0) - 1e-14


@given(log_epsilon=st.floats(-9.2, 4.6), log_delta=st.floats(-690, -0.694))
def test_the_curve_is_inverted_both_ways_on_the_safe_side(log_epsilon, log_delta):
    epsilon, delta = math.exp(log_epsilon), math.exp(log_delta)
    cost = math.sqrt(2 * rho_at(epsilon, delta, CONTINUOUS))
    assert exact_log_delta(cost, epsilon) <= math.log(delta)
    assert exact_log_delta(cost * (1 + 1e-7), epsilon) > math.log(delta)
    assert epsilon_at(cost, delta, CONTINUOUS) == pytest.approx(epsilon, rel=1e-5)


@given(log_cost=st.floats(-14, 4), log_delta=st.floats(-690, -0.694))
def test_epsilon_is_never_too_small(log_cost, log_delta):
    cost, delta = math.exp(log_cost), math.exp(log_delta)
    epsilon = epsilon_at(cost, delta, CONTINUOUS)
    if epsilon > 0:
        assert exact_log_delta(cost, epsilon) <= math.log(delta)
    assert epsilon <= epsilon_at(cost, delta)


@pytest.mark.parametrize("rho", [1.5758982155524697e-12, 1e-9, 1e-3, 1.0, 1e4])
def test_zcdp_epsilon_is_valid_at_some_order_in_high_precision(rho):
    """Proposition 12 at the order that is best, found in 50 digits: never below its minimum."""
    delta = 1e-6

    def epsilon(log_excess):
        excess = mpmath.exp(log_excess)
        alpha = 1 + excess
        gain = alpha * mpmath.log(1 - 1 / alpha) - mpmath.log(delta * excess)
        return alpha * rho + gain / excess

    with mpmath.workdps(50):
        start = mpmath.log(-mpmath.log(delta) / rho) / 2
        order = mpmath.findroot(lambda t: mpmath.diff(epsilon, t), start)
        best = epsilon(order)
    ours = epsilon_at(math.sqrt(2 * rho), delta)
    assert ours >= best
    assert ours == pytest.approx(float(best), rel=1e-8)


def least_zcdp_log_delta(cost, epsilon):
    """Proposition 12 with 60 digits, at the order where its derivative is zero."""
    with mpmath.workdps(60):
        rho, epsilon = mpmath.mpf(cost) ** 2 / 2, mpmath.mpf(epsilon)
        low, high = mpmath.mpf(-90), mpmath.mpf(90)
        for _ in range(200):
            middle = (low + high) / 2
            excess = mpmath.exp(middle)
            slope = (1 + 2 * excess) * rho - epsilon - mpmath.log1p(1 / excess)
            low, high = (low, middle) if slope > 0 else (middle, high)
        excess = mpmath.exp(low)
        return (
            excess * ((1 + excess) * rho - epsilon) - (1 + excess) * mpmath.log1p(1 / excess) - low
        )


@pytest.mark.parametrize(
    ("cost", "delta"),
    [
        (2.5148370636294549, 0.9623365377077409),
        (2.7742185998858235, 0.980218409305432),
        (4.3651041639335414, 0.9999271966806029),
        (5.1626660734995744, 0.9999980521748395),
        (5.339678626982905, 0.9999942931894873),
        (5.910008488952223, 0.9999998786999155),
    ],
)
def test_zcdp_epsilon_is_safe_where_its_terms_cancel(cost, delta):
    """Here epsilon is far smaller than the terms of the conversion, which are rounded."""
    epsilon = epsilon_at(cost, delta)
    assert 0 < epsilon < 3
    with mpmath.workdps(60):
        assert least_zcdp_log_delta(cost, epsilon) <= mpmath.log(mpmath.mpf(delta))
        assert least_zcdp_log_delta(cost, epsilon * (1 - 1e-6)) > mpmath.log(mpmath.mpf(delta))


@settings(max_examples=60)
@given(log_cost=st.floats(-6, 13), log_epsilon=st.floats(-12, 20))
def test_zcdp_conversions_are_safe_both_ways(log_cost, log_epsilon):
    cost, epsilon = math.exp(log_cost), math.exp(log_epsilon)
    delta = delta_at(cost, epsilon)
    with mpmath.workdps(60):
        if delta < 1:
            assert least_zcdp_log_delta(cost, epsilon) <= mpmath.log(mpmath.mpf(delta))
        if 1e-300 < delta < 1:
            back = epsilon_at(cost, delta)
            assert least_zcdp_log_delta(cost, back) <= mpmath.log(mpmath.mpf(delta))


def test_extremes_are_answered_on_the_safe_side():
    assert epsilon_at(1e200, 1e-9) == math.inf
    assert delta_at(1e200, 1.0) == 1.0
    assert epsilon_at(1e-200, 1e-300) >= 0
    assert delta_at(math.sqrt(3e-4), 3065.0) > 0
    assert delta_at(math.sqrt(3e-4), 3065.0) > 0


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, math.nan, True, "x"])
def test_delta_out_of_range(bad):
    with pytest.raises(BudgetError, match="delta"):
        epsilon_at(1.0, bad)


@given(log_epsilon=st.floats(-12, 12), log_delta=st.floats(-200, -0.01))
def test_rho_is_the_largest_that_converts_back(log_epsilon, log_delta):
    epsilon, delta = math.exp(log_epsilon), math.exp(log_delta)
    try:
        rho = rho_at(epsilon, delta)
    except BudgetError:
        assert epsilon_at(1e-9, delta) > epsilon
        return
    assert epsilon_at(math.sqrt(2 * rho), delta) <= epsilon
    assert epsilon_at(math.sqrt(2 * rho) * (1 + 1e-6), delta) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.1), (-1, 0.1), (1, 0), (1, 1), (1e-19, 1e-200)]
)
def test_no_rho_for_these(epsilon, delta):
    with pytest.raises(BudgetError):
        rho_at(epsilon, delta)
