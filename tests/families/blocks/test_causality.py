"""Causal strategies: what is drawn by a period gives all answers of that period, as planned."""

from __future__ import annotations

import functools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import logsumexp

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.errors import BudgetError, FitplugError, InputError
from fitplug.families import build_dense_strategy, date_answers, date_queries, is_causal
from fitplug.workload import build_rows
from tests.helpers.exact import rationals, solve_left

T = 6
MONTHS = fp.Integers(1, T)
CHANGES = np.eye(T)[3:] - np.eye(T)[:-3]


def series_of_one_region(seed=0):
    rng = np.random.default_rng(seed)
    return fp.Workload(
        fp.Domain({"MONTH": MONTHS}),
        [
            fp.marginal("MONTH", variance=rng.uniform(1, 4, T), name="months"),
            fp.queries({"MONTH": "prefix"}, variance=5.0, name="so far"),
            fp.queries({"MONTH": CHANGES}, variance=rng.uniform(0.5, 3), name="changes"),
        ],
    )


def series_of_regions(domain=None):
    domain = domain or fp.Domain({"REGION": fp.Integers(1, 3), "MONTH": MONTHS})
    return fp.Workload(
        domain,
        [
            fp.marginal("REGION", "MONTH", variance=1.0, name="months"),
            fp.queries({"MONTH": "prefix", "REGION": "identity"}, variance=4.0, name="so far"),
            fp.queries({"REGION": "identity", "MONTH": CHANGES}, variance=1.5, name="changes"),
            fp.marginal("REGION", variance=5.0, name="year"),
            fp.total(variance=8.0),
        ],
    )


def series_of_ages():
    domain = fp.Domain(
        {"AGE": fp.Integers(0, 2), "MONTH": fp.Integers(1, 4), "SEX": ["1", "2"], "X": ["a", "b"]}
    )
    return fp.Workload(
        domain,
        [
            fp.queries({"MONTH": "identity", "AGE": "prefix", "SEX": "identity"}, variance=2.0),
            fp.queries({"X": "identity", "MONTH": fp.ranges([(1, 2), (3, 4)])}, variance=1.0),
            fp.queries({"AGE": [[1, 0, -1]], "X": "identity"}, variance=3.0),
        ],
    )


CASES = {
    "one region": (series_of_one_region(), fp.AddRemove()),
    "regions": (series_of_regions(), fp.AddRemove(2)),
    "once a month": (series_of_regions(), fp.AddRemove(T, once_per="MONTH")),
    "at most three": (series_of_regions(), fp.AddRemove(3, once_per="MONTH")),
    "ages": (series_of_ages(), fp.AddRemove()),
}


@functools.cache
def find_plan(name):
    workload, unit = CASES[name]
    return fp.design(workload, unit=unit, periods="MONTH")


@pytest.mark.parametrize("name", CASES)
def test_drawing_period_by_period_costs_nothing(name):
    workload, unit = CASES[name]
    usual, plan = fp.design(workload, unit=unit), find_plan(name)
    assert plan.causal_attributes == ("MONTH",)
    assert "period by period along MONTH" in plan.summary()
    assert usual.causal_attributes == ()
    assert "period by period" not in usual.summary()
    # Both are within the tolerance of one optimum, which no mechanism of any kind is below.
    assert plan.gap < 2e-4
    assert plan.rho == pytest.approx(usual.rho, rel=2e-4)
    assert plan.lower_bound <= usual.privacy_cost
    plan.verify()


@pytest.mark.parametrize("name", CASES)
def test_answers_of_a_period_need_no_later_one(name):
    plan = find_plan(name)
    A, dates = build_dense_strategy(plan.strategy), date_answers(plan.strategy, "MONTH")
    names = plan.workload.attributes
    shape = get_shape(plan.domain, names)
    periods = np.indices(shape)[names.index("MONTH")].ravel()
    assert dates.shape == (len(A),)
    for row, date in zip(A, dates, strict=True):
        assert periods[row != 0].max() == date


@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn_gives_the_planned_variances(name):
    """The best estimates from the answers drawn so far, by dense least squares."""
    plan = find_plan(name)
    A, dates = build_dense_strategy(plan.strategy), date_answers(plan.strategy, "MONTH")
    count = plan.domain["MONTH"].size
    names = plan.workload.attributes
    for group in plan.workload.groups:
        W = build_rows(plan.workload, group, names)
        known = date_queries(group, "MONTH", count).ravel()
        variances = plan.variances[group.name].ravel()
        for t in range(count):
            drawn = A[dates <= t]
            weights = W[known == t] @ np.linalg.pinv(drawn, rcond=1e-13)
            assert np.abs(weights @ drawn - W[known == t]).max(initial=0) < 1e-6
            best = plan.noise_std**2 * (weights**2).sum(axis=1)
            # Directions that no query needs are measured too, with next to no precision.
            assert best == pytest.approx(variances[known == t], rel=1e-5)
            assert (best <= variances[known == t] * (1 + 1e-9)).all()


def test_later_answers_have_no_weight_exactly():
    """In rational numbers: the one unbiased estimate of each query, and its variance."""
    plan = find_plan("one region")
    A = build_dense_strategy(plan.strategy)
    dates = date_answers(plan.strategy, "MONTH")
    assert sorted(dates) == list(range(T))
    exact_rows = rationals(A)
    for group in plan.workload.groups:
        W = build_rows(plan.workload, group, ("MONTH",))
        known = date_queries(group, "MONTH", T)
        for row, date, variance in zip(
            rationals(W), known, plan.variances[group.name], strict=True
        ):
            weights = solve_left(exact_rows, row)
            assert all(w == 0 for w, own in zip(weights, dates, strict=True) if own > date)
            exact = Fraction(plan.noise_std) ** 2 * sum(w * w for w in weights)
            assert exact <= Fraction(variance) <= exact * (1 + Fraction(1, 10**9))


def test_queries_are_known_after_the_last_period_that_they_count():
    groups = {group.name: group for group in series_of_regions().groups}
    assert date_queries(groups["months"], "MONTH", T).tolist() == [list(range(T))] * 3
    assert date_queries(groups["so far"], "MONTH", T)[:, 2].tolist() == list(range(T))
    assert date_queries(groups["changes"], "MONTH", T)[0].tolist() == [3, 4, 5]
    assert date_queries(groups["year"], "MONTH", T).tolist() == [T - 1] * 3
    assert date_queries(groups["total"], "MONTH", T) == T - 1


def test_the_integers_alone_decide(tmp_path):
    """A plan file says nothing of periods. A usual plan has other numbers of classes."""
    plan = find_plan("regions")
    plan.save(tmp_path / "plan.npz")
    read = fp.Plan.load(tmp_path / "plan.npz")
    assert read.digest == plan.digest
    assert read.causal_attributes == ("MONTH",)
    read.verify()
    usual = fp.design(series_of_regions()).strategy
    assert {own.basis.kind for own in usual.block_sets} == {"cells"}
    assert not is_causal(usual, "MONTH")
    assert not is_causal(plan.strategy, "REGION")  # which is symmetric
    first, *others = plan.strategy.block_sets
    swapped = replace(first.basis, index=first.basis.size - 1 - first.basis.index)
    lower = first.M.copy()
    lower[0, -1, 0] = 1
    for changed in (replace(first, basis=swapped), replace(first, M=lower)):
        assert not is_causal(replace(plan.strategy, block_sets=(changed, *others)), "MONTH")


def test_a_period_that_is_asked_for_by_itself_alone_is_told_apart():
    domain = fp.Domain({"MONTH": MONTHS, "REGION": fp.Integers(1, 3)})
    workload = fp.Workload(
        domain, [fp.marginal("MONTH", "REGION", variance=1.0), fp.marginal("REGION", variance=4.0)]
    )
    usual, plan = fp.design(workload), fp.design(workload, periods="MONTH")
    assert usual.strategy.structure.dense == ()
    assert plan.causal_attributes == ("MONTH",)
    assert plan.rho == pytest.approx(usual.rho, rel=2e-4)


def test_queries_of_fewer_directions_than_cells():
    """Changes alone leave most directions without a query: they are hardly measured."""
    domain = fp.Domain({"MONTH": MONTHS})
    workload = fp.Workload(domain, [fp.queries({"MONTH": CHANGES}, variance=1.0)])
    plan = fp.design(workload, periods="MONTH")
    assert plan.causal_attributes == ("MONTH",)
    assert plan.rho == pytest.approx(fp.design(workload).rho, rel=2e-4)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"periods": "YEAR"}, InputError, "Known: 'REGION', 'MONTH'"),
        ({"periods": 3}, InputError, "must be the name of an attribute"),
        (
            {"periods": "MONTH", "unit": fp.ReplaceOne()},
            BudgetError,
            "'periods' cannot be combined with the unit of privacy",
        ),
        ({"periods": "MONTH", "solver": "sm2", "max_iterations": 3}, None, ""),
    ],
)
def test_what_cannot_be_causal_is_refused(options, kind, says):
    if kind is None:
        assert fp.design(series_of_one_region(), **options).causal_attributes == ("MONTH",)
        return
    with pytest.raises(kind, match=says):
        fp.design(series_of_regions(), **options)


def test_a_cell_of_other_values_is_no_period():
    domain = fp.Domain({"MONTH": fp.Categories(["1", "2"], other="later")})
    with pytest.raises(FitplugError, match="has a cell for all other values"):
        fp.design(fp.Workload(domain, [fp.marginal("MONTH", std=1.0)]), periods="MONTH")


def test_one_cell_is_no_periods():
    """Such a plan would be no series, and this is said before there is one."""
    domain = fp.Domain({"MONTH": ["1"], "REGION": ["a", "b"]})
    with pytest.raises(fp.InputError, match="only one cell"):
        fp.design(fp.Workload(domain, [fp.marginal("MONTH", "REGION", std=1.0)]), periods="MONTH")


def log_gaussian(mean, std, values):
    """The logarithms of the probabilities of a discrete Gaussian around an integer."""
    norm = logsumexp(-(np.arange(-400, 401) ** 2) / (2 * std**2))
    return -((values - mean) ** 2) / (2 * std**2) - norm


def compute_divergence(A, std, order, second):
    """Sum up the Renyi divergence of the answers of two periods, from data that adapt to them.

    A person has the difference 1 in the first period, and `second(y)` in the second one, where y is
    the first answer. Everybody else has nothing at first, and y // 2 in the second period.
    """
    y, later = np.arange(-60, 61)[:, None], np.arange(-250, 251)
    others = A[1][1] * (y // 2)
    logs = [
        log_gaussian(A[0][0] * b, std, y)
        + log_gaussian(others + b * (A[1][0] + A[1][1] * second(y)), std, later)
        for b in (0, 1)
    ]
    return logsumexp(order * logs[1] + (1 - order) * logs[0]) / (order - 1)


@pytest.mark.parametrize("order", [1.5, 4.0])
def test_data_that_adapt_to_earlier_answers_cost_no_more(order):
    """Summed over all outcomes: the divergence is at most that of the costliest difference."""
    A, std = [[3, 0], [-1, 4]], 6.0
    costs = {own: 3**2 + (-1 + 4 * own) ** 2 for own in (0, 1)}  # at most one record in each
    rules = {
        "always": lambda y: np.ones_like(y),
        "never": np.zeros_like,
        "if many": lambda y: (y > 1).astype(int),
        "if odd": lambda y: y % 2,
    }
    found = {name: compute_divergence(A, std, order, rule) for name, rule in rules.items()}
    proven = {own: order * cost / (2 * std**2) for own, cost in costs.items()}
    assert found["always"] == pytest.approx(proven[1], rel=1e-9)
    assert found["never"] == pytest.approx(proven[0], rel=1e-9)
    assert proven[0] < found["if odd"] < found["if many"] < proven[1]
    # Two records in the second period are another unit, which costs more.
    more = compute_divergence(A, std, order, lambda y: 2 * (y > 1))
    assert more > proven[1]
