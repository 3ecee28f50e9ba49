"""Prices of targets against designs with other targets, and relaxations against a grid of them."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug.families import analysis as symmetry
from fitplug.families.base.family import certify_bound
from fitplug.plan import relaxation
from fitplug.plan.designer import design
from fitplug.plan.relaxation import LARGEST_FACTOR, relax
from fitplug.plan.summary import estimate_saving, price_groups as prices
from fitplug.workload import make_bound_workload
from tests.helpers.plans import MIXED, geography

PYRAMID = MIXED["pyramid"]()
RHO = fp.design(PYRAMID).rho


def relaxed(workload, factors):
    """The workload with the variances of its groups multiplied."""
    groups = [
        replace(group, variances=group.variances * factors.get(group.name, 1.0))
        for group in workload.groups
    ]
    return make_bound_workload(workload.domain, groups)


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("factor", [0.9, 1.1, 3.0])
def test_no_relaxation_saves_more_than_its_price(name, factor):
    workload = MIXED[name]()
    plan = fp.design(workload, tolerance=1e-6)
    found = prices(plan)
    assert list(found) == list(workload.names)
    assert math.fsum(found.values()) == pytest.approx(1, abs=1e-12)
    for group, price in found.items():
        other = fp.design(relaxed(workload, {group: factor}), tolerance=1e-6)
        saved = math.log(plan.rho / other.rho) / math.log(factor)
        if factor > 1:
            assert saved <= price + 2e-4
        else:
            assert saved >= price - 2e-4
        if factor != 3.0:
            assert saved == pytest.approx(price, abs=0.05)


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.floats(0.1, 10))
@pytest.mark.slow
def test_the_slope_of_random_workloads(seed, at):
    rng = np.random.default_rng(seed)
    domain = fp.Domain({"x": fp.Integers(0, 4)})
    groups = [
        fp.queries({"x": rng.integers(-1, 2, (3, 5)).astype(float) + np.eye(3, 5)}, std=1.0),
        fp.queries({"x": "prefix"}, std=at),
        fp.total(std=2.0),
    ]
    workload = fp.Workload(domain, groups)
    plan = fp.design(workload, tolerance=1e-7)
    step = 1.02
    for group, price in prices(plan).items():
        up, down = (
            fp.design(relaxed(workload, {group: f}), tolerance=1e-7).rho for f in (step, 1 / step)
        )
        low, high = math.log(plan.rho / up), math.log(down / plan.rho)
        assert low - 2e-5 <= price * math.log(step) <= high + 2e-5


def test_what_has_no_prices():
    plan = fp.design(PYRAMID, total_error_weight=0.1)
    with pytest.raises(fp.DesignError, match="no prices"):
        prices(plan)


@functools.cache
def design_apart():
    return fp.design(geography())


@pytest.fixture
def apart(monkeypatch):
    """A plan of the product family."""
    monkeypatch.setattr(symmetry, "MOST_CELLS", 1)
    monkeypatch.setattr(symmetry, "MOST_DENSE", 0)
    return design_apart()


@pytest.mark.slow
def test_relaxing_a_plan_that_is_not_the_optimum(apart):
    found = relax(apart.workload, apart.rho / 2, plan=apart)
    assert not found.groups
    assert found.plan is None
    assert found.rho == apart.rho
    alike = relaxed(apart.workload, dict.fromkeys(apart.workload.names, found.proportional**2))
    assert 0.99 * apart.rho / 2 <= fp.design(alike).rho <= apart.rho / 2


def assert_within_prices(plan, least, factor):
    """No group saves more than is said. least: the certified least rho of a relaxed workload."""
    found = prices(plan)
    assert list(found) == list(plan.workload.names)
    assert math.fsum(found.values()) == pytest.approx(1, abs=1e-12)
    for group, price in found.items():
        saved = 1 - least({group: factor}) / plan.rho
        assert saved <= estimate_saving(plan, price, factor) + 2e-4


@pytest.mark.parametrize("factor", [1.0, 1.21, 4.0, 1e3])
@pytest.mark.slow
def test_prices_of_the_product_family_bound_the_true_optimum(apart, monkeypatch, factor):
    """The optimum of the relaxed targets, found where the product is solved whole."""
    monkeypatch.setattr(symmetry, "MOST_CELLS", 4096)
    assert apart.gap > 2e-3
    assert_within_prices(
        apart, lambda by: fp.design(relaxed(apart.workload, by)).lower_bound ** 2 / 2, factor
    )


@pytest.mark.slow
def test_a_targets_price_is_by_which_the_bound_falls(apart):
    """The inequality of the docstring, against the certified bound at the same weights."""
    for group, price in prices(apart).items():
        # Only its structure is used, which is the same however far the design goes.
        wider = fp.design(relaxed(apart.workload, {group: 1.21}), tolerance=0.99)
        structure, duals = wider.strategy.structure, apart.proof.duals
        bound = certify_bound(structure, wider.objective, 1.0, duals)
        expected = apart.lower_bound / math.sqrt(1 + price * 0.21)
        assert bound == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("name", MIXED)
def test_what_is_saved_at_most_of_plans_far_from_the_optimum(name):
    workload = MIXED[name]()
    far = fp.design(workload, max_iterations=2)
    assert_within_prices(far, lambda by: fp.design(relaxed(workload, by)).rho, 1.21)


def designs(monkeypatch):
    """Counts the designs that a search makes."""
    made = []

    def counted(*arguments, **keywords):
        made.append(design(*arguments, **keywords))
        return made[-1]

    monkeypatch.setattr(relaxation, "design", counted)
    return made


@pytest.mark.parametrize("rho", [None, 0.2 * RHO, 5 * RHO])
def test_a_finished_plan_is_not_designed_again(monkeypatch, rho):
    plan = fp.design(PYRAMID, rho=rho)
    asked = plan.rho * plan.scale
    made = designs(monkeypatch)
    assert relax(PYRAMID, asked * 1.001, plan=plan) is None
    assert not made
    found = relax(PYRAMID, RHO / 2, plan=plan)
    after = len(made)
    anew = relax(PYRAMID, RHO / 2)
    assert not any(one.scale == 1 and one.rho == pytest.approx(RHO) for one in made[:after])
    assert after <= len(made) - after
    assert found.rho == pytest.approx(anew.rho, rel=1e-3)
    assert found.proportional == pytest.approx(anew.proportional, rel=1e-3)
    assert found.groups == pytest.approx(dict(anew.groups), rel=0.02)


def test_a_plan_of_the_product_family_is_never_designed_again(apart, monkeypatch):
    made = designs(monkeypatch)
    assert relax(apart.workload, apart.rho / 3, plan=apart) is not None
    assert not made


@pytest.mark.parametrize("share", [0.97, 0.8, 0.5, 0.05])
def test_a_relaxation_fits_the_budget_and_gives_little_away(share):
    found = relax(PYRAMID, RHO * share)
    assert found.rho == RHO
    assert RHO * share * (1 - 4e-3) <= found.plan.rho <= RHO * share
    again = relaxed(PYRAMID, {name: factor**2 for name, factor in found.groups.items()})
    assert fp.design(again).rho <= RHO * share
    alike = relaxed(PYRAMID, dict.fromkeys(PYRAMID.names, found.proportional**2))
    assert RHO * share * (1 - 3e-3) <= fp.design(alike).rho <= RHO * share
    if max(found.groups.values()) <= LARGEST_FACTOR:
        alike_product = found.proportional ** len(PYRAMID.names)
        assert math.prod(found.groups.values()) <= alike_product * 1.01


@pytest.mark.slow
def test_the_cheapest_of_a_grid():
    """Of two groups, no pair of factors that fits has a smaller product."""
    domain = fp.Domain({"x": fp.Integers(0, 5)})
    workload = fp.Workload(
        domain, [fp.queries({"x": "prefix"}, std=2.0), fp.queries({"x": "identity"}, std=1.0)]
    )
    rho = 0.4 * fp.design(workload).rho
    found = relax(workload, rho)
    product = math.prod(found.groups.values())
    grid = np.exp(np.linspace(0, math.log(5), 15))
    fits = [
        a * b
        for a, b in itertools.product(grid, grid)
        if fp.design(
            relaxed(workload, dict(zip(workload.names, (a * a, b * b), strict=True))), refine=False
        ).rho
        <= rho
    ]
    assert len(fits) > 20
    assert product <= min(fits) * 1.01


def test_few_groups_are_relaxed_if_few_are_enough():
    domain = fp.Domain({name: fp.Integers(0, 3) for name in "abc"})
    loose = [fp.marginal(a, std=30.0) for a in "abc"]
    workload = fp.Workload(domain, [*loose, fp.total(std=1.0)])
    found = relax(workload, 0.2 * fp.design(workload).rho)
    assert list(found.groups) == ["total"]


def test_what_fits_already():
    assert relax(PYRAMID, RHO) is None
    told = []
    assert relax(PYRAMID, RHO / 2, progress=lambda made, over: told.append((made, over)))
    assert [made for made, _ in told] == list(range(1, len(told) + 1))
    assert told[0][1] == pytest.approx(2)
    with pytest.raises(fp.BudgetError, match="rho"):
        relax(PYRAMID, 0.0)


def test_far_out_of_reach_all_groups_are_relaxed():
    found = relax(PYRAMID, RHO * 1e-8)
    assert found.plan.rho <= RHO * 1e-8
    assert set(found.groups) == set(PYRAMID.names)
