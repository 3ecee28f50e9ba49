"""The accelerated fixed point on a problem with a known optimum, and its safeguard.

The problem is the dual of one number per cell. T(p) = sum_i sqrt(a_i p_i) is largest at
p = a / sum a with the value sqrt(sum a), and g_i = sqrt(a_i / p_i) gives the upper bound
sqrt(T max g).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from fitplug.errors import DesignError
from fitplug.solve.fixed_point import (
    MIXING,
    Iterate,
    find_fixed_point,
    mix_with_uniform,
    normalise_logarithms,
)

A = 10.0 ** np.linspace(-3, 2, 9)
START = normalise_logarithms(np.zeros(len(A)))


class Problem:
    """The map, with a log of where it was evaluated; it fails at the evaluations in `fails`."""

    def __init__(self, tolerance, fails=()):
        self.mixing = MIXING * tolerance
        self.fails = fails
        self.visited = []

    def evaluate(self, x):
        self.visited.append(x)
        if len(self.visited) in self.fails:
            return None
        p = np.exp(x)
        g = np.sqrt(A / p)
        value = float((p * g).sum())
        return Iterate(
            x=x,
            following=mix_with_uniform(p * g / value, self.mixing),
            lower=value,
            upper=math.sqrt(value * g.max()),
            merit=2 * math.log(value) + self.mixing * float(x.mean()),
            evaluation=g,
        )

    def solve(self, tolerance, max_iterations=200, progress=None):
        return find_fixed_point(
            self.evaluate,
            normalise_logarithms,
            START,
            tolerance=tolerance,
            max_iterations=max_iterations,
            progress=progress,
        )


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
def test_it_finds_the_optimum(tolerance):
    problem = Problem(tolerance)
    found = problem.solve(tolerance)
    optimum = math.sqrt(A.sum())
    assert found.best_lower.lower <= optimum * (1 + 1e-14)
    assert found.best_upper.upper >= optimum * (1 - 1e-14)
    assert found.best_upper.upper <= found.best_lower.lower * (1 + tolerance)
    assert found.iterations == len(problem.visited) < 40
    assert not found.stopped
    np.testing.assert_allclose(np.exp(found.best_lower.x), A / A.sum(), atol=math.sqrt(tolerance))


def test_extrapolation_takes_fewer_iterations_than_plain_steps():
    x, plain = START, 0
    problem = Problem(1e-9)
    while True:
        plain += 1
        here = problem.evaluate(x)
        if here.upper <= here.lower * (1 + 1e-9):
            break
        x = normalise_logarithms(x + here.residual)
    assert problem.solve(1e-9).iterations < plain


def test_an_extrapolation_that_cannot_be_evaluated_is_replaced_by_the_plain_step():
    problem = Problem(1e-6, fails=(4,))
    found = problem.solve(1e-6)
    third, after = problem.visited[2], problem.visited[4]
    plain = normalise_logarithms(third + Problem(1e-6).evaluate(third).residual)
    np.testing.assert_array_equal(after, plain)
    assert found.best_upper.upper <= found.best_lower.lower * (1 + 1e-6)


def test_an_extrapolation_that_lowers_the_merit_is_replaced_by_the_plain_step():
    problem = Problem(1e-6)
    honest = problem.evaluate

    def lower_merit_once(x):
        here = honest(x)
        if len(problem.visited) != 4:
            return here
        return Iterate(x, here.following, here.lower, here.upper, here.merit - 1.0, here.evaluation)

    problem.evaluate = lower_merit_once
    problem.solve(1e-6)
    third, after = problem.visited[2], problem.visited[4]
    plain = normalise_logarithms(third + Problem(1e-6).evaluate(third).residual)
    np.testing.assert_array_equal(after, plain)


@pytest.mark.parametrize("fails", [(1,), (4, 5)])
def test_a_plain_step_that_cannot_be_evaluated_is_an_error(fails):
    with pytest.raises(DesignError, match="differ too much in size"):
        Problem(1e-6, fails).solve(1e-6)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_it_stops_after_max_iterations(most):
    problem = Problem(1e-12)
    found = problem.solve(1e-12, max_iterations=most)
    assert found.iterations == len(problem.visited) == most
    assert not found.stopped


def test_progress_sees_every_gap_and_may_stop():
    seen = []

    def stop(iteration, gap):
        seen.append((iteration, gap))
        return iteration == 3

    found = Problem(1e-12).solve(1e-12, progress=stop)
    assert found.stopped
    assert [iteration for iteration, _ in seen] == [1, 2, 3]
    assert seen[-1][1] == found.best_upper.upper / found.best_lower.lower - 1


def test_mixing_keeps_the_sum():
    weights = np.array([0.0, 0.25, 0.75])
    mixed = mix_with_uniform(weights, 0.1, 0.5)
    assert mixed.sum() == pytest.approx(0.5)
    assert (mixed > 0).all()


def test_logarithms_far_apart_are_normalised_without_overflow():
    x = normalise_logarithms(np.array([1e4, 0.0, -1e4]))
    assert np.exp(x).sum() == pytest.approx(1.0)
