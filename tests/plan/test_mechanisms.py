"""A plan taken apart, for review and for another accountant."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest

import fitplug as fp
import fitplug_opendp as fpo
from tests.helpers.workloads import prefix

DOMAIN = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, 4), "race": ["a", "b", "c"]})
PLANS = {
    "dense": fp.design(fp.Workload.from_matrix(prefix(4), variance=0.7)),
    "symmetric": fp.design(
        fp.Workload(DOMAIN, [fp.marginal("sex", "race", std=2.0), fp.total(std=1.0)])
    ),
    "symmetric beside dense": fp.design(
        fp.Workload(DOMAIN, [fp.queries({"sex": "identity", "age": "prefix"}, std=2.0)])
    ),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_mechanisms_cost_together_what_the_plan_does(plan):
    apart = plan.mechanisms()
    assert sum(m.dimension for m in apart) == plan.strategy.size
    assert {m.sigma for m in apart} == {plan.noise_std}
    assert {m.kind for m in apart} == {"discrete Gaussian"}
    total = sum((Fraction(m.sensitivity) / Fraction(m.sigma)) ** 2 / 2 for m in apart)
    assert plan.rho_exact <= total <= plan.rho_exact * (1 + Fraction(1, 10**14))
    assert math.fsum(m.rho for m in apart) == pytest.approx(plan.rho, rel=1e-14)
    with pytest.raises(FrozenInstanceError):
        apart[0].sigma = 1.0


def test_blocks_are_named_by_their_attributes():
    names = {m.name: m.dimension for m in PLANS["symmetric"].mechanisms()}
    assert names.keys() == {"total", "sex", "race", "sex x race"}
    assert names["total"] == 1
    assert [m.name for m in PLANS["dense"].mechanisms()] == ["all answers"]


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_the_pld_accountant_gives_the_gaussian_curve(plan, delta):
    pld = pytest.importorskip("dp_accounting.pld")
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(fpo.dp_event(plan))
    assert accountant.get_epsilon(delta) == pytest.approx(plan.epsilon(delta), abs=1e-3)


def test_the_event_of_several_records_of_a_person():
    pytest.importorskip("dp_accounting")
    plan = PLANS["symmetric"]
    plans = plan, fp.design(plan.workload, unit=fp.AddRemove(3))
    one, three = (fpo.dp_event(plan).noise_multiplier for plan in plans)
    assert three == pytest.approx(one / 3, rel=1e-15)
    assert 1 / one == pytest.approx(plan.privacy_cost, rel=1e-14)
    assert Fraction(one) ** -2 >= 2 * plan.rho_exact
