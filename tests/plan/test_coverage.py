"""Coverage by brute force: every record, in the tables or not, through what really runs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import BudgetError, PlanError
from fitplug.families import analysis as symmetry
from fitplug.files import write_with_digest
from fitplug.ledger import CellCosts
from fitplug.plan.coverage import Coverage
from fitplug.sensitivity import AnswerPath, check_sensitivity
from fitplug_opendp.noise_source import NoiseSource, compute_exact_answers
from tests.helpers.plans import describe

DOMAIN = fp.Domain(
    {
        "sex": ["f", "m"],
        "age": fp.Integers(0, 3),
        "race": fp.Categories(["a", "b"], other="rest"),
        "unused": ["x"],
    }
)
VALUES = {"sex": ["f", "m", None], "age": [0, 3, 9], "race": ["a", "zz"], "unused": ["x", None]}
"""Values of every kind, in the domain and outside it."""

WORKLOADS = {
    "pyramid": [
        fp.queries({"sex": "identity", "age": "prefix"}, std=2.0),
        fp.marginal("race", std=3.0),
    ],
    "tables of different attributes": [fp.marginal("sex", std=3.0), fp.marginal("age", std=1.0)],
    "one attribute": [fp.marginal("age", std=np.array([1.0, 2, 3, 4])), fp.total(std=1.0)],
    "one attribute that is never outside": [fp.marginal("race", "age", std=1.0)],
}


def design(name, **more):
    return fp.design(fp.Workload(DOMAIN, WORKLOADS[name]), coverage=True, **more)


def answer(plan, records):
    """All integers that get noise, for records that are listed by their values."""
    columns = {name: [record[name] for record in records] for name in DOMAIN}
    tables = fp.Tables.from_records(DOMAIN, columns, plan.tables)
    outside = tables.outside
    assert outside.names == plan.coverage.names
    exact = plan.coverage.answer_exactly(outside.by_attribute, outside.in_no_table)
    return [int(v) for v in (*compute_exact_answers(plan, tables), *exact)]


def list_records():
    return [
        dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())
    ]


def rho_of(plan, more):
    """rho of some records more, exact."""
    before = list_records()[::5]
    pairs = zip(answer(plan, [*before, *more]), answer(plan, before), strict=True)
    squared = sum((after - earlier) ** 2 for after, earlier in pairs)
    return Fraction(squared) / Fraction(plan.noise_std) ** 2 / 2


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_record_costs_more_than_the_plan_says(name):
    plan = design(name)
    plain = fp.design(plan.workload)
    assert (plan.rho, plan.rho_exact, plan.gap) == (plain.rho, plain.rho_exact, plain.gap)
    costs = [rho_of(plan, [record]) for record in list_records()]
    assert max(costs) <= plan.rho_exact
    # Records outside the domain use all of it: each costs the same, up to rounding to integers.
    used = [name for name in plan.workload.attributes if name != "race"]
    is_in = [
        all(record[n] in (["f", "m"] if n == "sex" else [0, 3]) for n in used)
        for record in list_records()
    ]
    outside = [cost for cost, inside in zip(costs, is_in, strict=True) if not inside]
    assert min(outside) == max(outside) > plan.rho_exact * (1 - Fraction(1, 10**4))


@pytest.mark.parametrize("records", [2, 3])
def test_no_person_costs_more_than_the_plan_says(records):
    plan = design("tables of different attributes", unit=fp.AddRemove(records=records))
    chosen = [r for r in list_records() if r["race"] == "a" and r["unused"] == "x"]
    costs = [
        rho_of(plan, people) for people in itertools.combinations_with_replacement(chosen, records)
    ]
    assert plan.rho_exact * (1 - Fraction(1, 10**4)) < max(costs) <= plan.rho_exact


@pytest.mark.parametrize("most_dense", [0, 4096])
def test_in_every_family(monkeypatch, most_dense):
    """Also where the plan's cost is that of a product."""
    monkeypatch.setattr(symmetry, "MOST_DENSE", most_dense)
    plan = design("pyramid")
    assert max(rho_of(plan, [record]) for record in list_records()) <= plan.rho_exact
    plan.verify()


@pytest.mark.parametrize("d", range(1, 13))
def test_every_pattern_costs_the_same_and_estimates_are_unbiased(d):
    domain = fp.Domain({f"a{i}": ["x", "y"] for i in range(d)})
    groups = [fp.marginal(name, std=3.0) for name in domain]
    plan = fp.design(fp.Workload(domain, groups), coverage=True)
    coverage = plan.coverage
    zero = [0] * d
    for pattern in itertools.islice(itertools.product([0, 1], repeat=d), 1, 300):
        moved = coverage.answer_exactly(pattern, 1)
        assert sum(int(v) ** 2 for v in moved) == coverage.sensitivity_squared
        assert coverage.estimate(moved) == pytest.approx([*pattern, 1])
    most = plan.strategy.sensitivity_squared
    assert most * (1 - 1e-5) < coverage.sensitivity_squared <= most
    assert not coverage.answer_exactly(zero, 0).any()
    # The variances follow from what one noisy answer adds to each estimate.
    responses = np.array([coverage.estimate(row) for row in np.eye(coverage.size)])
    exact = (responses**2).sum(axis=0) * plan.noise_std**2
    claimed = coverage.upper_variances(plan.noise_std)
    assert (exact <= claimed).all()
    assert claimed == pytest.approx(exact, rel=1e-12)
    least = 1 if d == 1 else (d + 3) / 3 if d <= 9 else (1 + math.sqrt(d)) ** 2 / 4
    assert max(claimed) * 2 * plan.rho == pytest.approx(least, rel=1e-5)


@pytest.mark.parametrize(("d", "excess"), [(1, 0.0), (2, 0.0083), (3, 0.0), (4, 0.0), (6, 0.0)])
def test_no_mechanism_is_more_accurate_at_this_cost(d, excess):
    """The queries as a workload over the patterns, whose lower bound is certified."""
    patterns = list(itertools.product([0, 1], repeat=d))[1:]
    W = [[pattern[a] for pattern in patterns] for a in range(d)] + [[1] * len(patterns)]
    least = 2 * fp.design(fp.Workload.from_matrix(W, variance=1.0)).rho_lower_bound
    of_coverage = 1 if d == 1 else (d + 3) / 3
    assert least * (1 + excess) == pytest.approx(of_coverage, rel=1e-4)


def test_answers_are_clamped():
    """However many records there are, one more moves no answer by more than its factor."""
    coverage = design("pyramid").coverage
    m, n = coverage.attribute_factor, coverage.any_factor
    assert np.abs(coverage.answer_exactly([2**53, 0], 2**53)).max() == 2**62
    for numbers, total in (([2**52, 5], 2**53), ([2**80, 2**79], 2**80)):
        before = coverage.answer_exactly(numbers, total)
        after = coverage.answer_exactly([numbers[0] + 1, numbers[1]], total + 1)
        assert (np.abs(after - before) <= [m, m, n]).all()


@pytest.mark.parametrize(
    ("groups", "more", "why"),
    [
        ("pyramid", {"unit": fp.ReplaceOne()}, "unit of privacy"),
        ("pyramid", {"unit": fp.AddRemove(records=2, distinct=True)}, "unit of privacy"),
        ("pyramid", {"unit": fp.AddRemove(records=2, once_per="age")}, "unit of privacy"),
        ("pyramid", {"periods": "age"}, "periods"),
        ("only others", {}, "every value is in the domain"),
        ("no attribute", {}, "every value is in the domain"),
    ],
)
def test_what_has_no_coverage(groups, more, why):
    known = WORKLOADS | {
        "only others": [fp.marginal("race", std=1.0)],
        "no attribute": [fp.total(std=1.0)],
    }
    with pytest.raises(BudgetError, match=why):
        fp.design(fp.Workload(DOMAIN, known[groups]), coverage=True, **more)
    with pytest.raises(fp.InputError, match="coverage must be True or False, not 1"):
        fp.design(fp.Workload(DOMAIN, WORKLOADS["pyramid"]), coverage=1)


def test_a_plan_file_keeps_it(tmp_path):
    plan = design("pyramid")
    plan.save(tmp_path / "plan.npz")
    loaded = fp.Plan.load(tmp_path / "plan.npz")
    assert loaded.coverage == plan.coverage
    assert loaded.digest == plan.digest != fp.design(plan.workload).digest


@pytest.mark.parametrize(("given", "unit"), [(1, {}), ("yes", {}), (True, {"records": 2})])
def test_edited_files_are_refused(tmp_path, given, unit):
    plan = fp.design(
        fp.Workload(DOMAIN, WORKLOADS["pyramid"]),
        unit=fp.AddRemove(**unit, distinct=True) if unit else fp.AddRemove(),
    )
    header, arrays = describe(plan)
    write_with_digest(tmp_path / "plan.npz", header | {"coverage": given}, arrays)
    with pytest.raises(PlanError):
        fp.Plan.load(tmp_path / "plan.npz")


@pytest.mark.parametrize("factor", ["attribute_factor", "any_factor"])
def test_answers_with_less_noise_are_refused(factor):
    """As with 0.8 times the noise: both the proof and the check of the answers notice."""
    plan = design("pyramid")
    good = plan.coverage
    louder = dataclasses.replace(good, **{factor: getattr(good, factor) * 5 // 4})
    vars(plan)["coverage"] = louder
    with pytest.raises(PlanError, match="rows outside the domain cost more"):
        plan.verify()
    with pytest.raises(PlanError, match="does not protect"):
        check_sensitivity(AnswerPath.in_memory(plan))
    vars(plan)["coverage"] = good
    plan.verify()
    assert check_sensitivity(AnswerPath.in_memory(plan)).largest_squared > 0


def test_the_check_of_answers_counts_every_record_of_a_person():
    plan = design("one attribute", unit=fp.AddRemove(records=3))
    found = check_sensitivity(AnswerPath.in_memory(plan)).largest_squared
    assert found == plan.strategy.sensitivity_squared
    vars(plan)["coverage"] = Coverage(plan.coverage.names, 0, plan.coverage.any_factor * 5 // 4)
    with pytest.raises(PlanError, match="does not protect"):
        check_sensitivity(AnswerPath.in_memory(plan))


def test_the_noise_that_is_drawn_is_that_of_the_plan():
    plan = design("pyramid")
    source = NoiseSource.from_plan(plan)
    outside = fp.counts.OutsideCounts(plan.coverage.names, (40, 7), 45)
    exact = plan.coverage.answer_exactly(outside.by_attribute, outside.in_no_table)
    draws = np.array([source.draw_coverage(outside, "test") - exact for _ in range(400)])
    ratio = float((draws / plan.noise_std).var())

    def accepts(scale):
        # The variance of 1,200 draws has a relative std of 4%.
        return abs(ratio / scale**2 - 1) < 0.2

    assert accepts(1.0)
    assert not accepts(0.8)
    assert not accepts(1.25)


def test_epsilon_counts_all_answers():
    plan = design("pyramid")
    assert plan.noise.answers == plan.strategy.size + plan.coverage.size
    budget = {"epsilon": 1.0, "delta": 1e-6}
    bounded = design("pyramid", **budget)
    assert bounded.epsilon(1e-6) <= 1.0


def test_every_cell_costs_as_much_as_a_record_in_no_table():
    """Such a record may be in a cell of another plan."""
    plan = design("one attribute")
    plain = fp.design(plan.workload)
    assert CellCosts.from_plan(plan).costs.min() >= 2 * plan.rho_exact
    assert CellCosts.from_plan(plain).costs.min() < 2 * plan.rho_exact
    with pytest.raises(BudgetError, match="no unused budget"):
        plan.unused_budget()
