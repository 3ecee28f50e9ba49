"""The optimum for persons with several records, against an independent semidefinite program."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import Objective, analyse_structure, certify_bound
from fitplug.families.blocks.certificate import sum_moments
from fitplug.families.blocks.design import persons
from fitplug.families.designs import find_design
from fitplug.neighbours import build_record_products
from fitplug.neighbours.person_ascent import ascend, list_costliest_records
from fitplug.numeric import guard_linear_algebra
from fitplug.solve import Options
from fitplug.testing.plans import find_least_cost
from tests.helpers.persons import list_persons, monthly, small_person_problems

PROBLEMS = small_person_problems()
CASES = {"argvalues": [p[1:] for p in PROBLEMS], "ids": [p[0] for p in PROBLEMS]}


def solve(workload, unit, tolerance=1e-5):
    """The certified bounds on Delta squared, from below and from above, of the integers."""
    structure = analyse_structure(workload, unit=unit)
    options = Options("dual", tolerance, 5000, refine=False, progress=None)
    with guard_linear_algebra():
        design = find_design(structure, Objective(), options, tolerance / 10)
        strategy = design.strategy
        lower = certify_bound(strategy.structure, Objective(), 1.0, design.duals)
    worst = (strategy.unit_variances / structure.targets).max()
    return lower**2, strategy.sensitivity_squared * float(worst)


@pytest.mark.parametrize(
    ("matrix", "k", "alpha"),
    [
        (np.eye(4), 2, 1 + np.sqrt(3) / 2),
        (np.eye(6), 2, 1.924951),
        (np.eye(6), 3, 2.618034),
        (np.tri(4), 2, 5.333333),
        (np.tri(6), 2, 6.306451),
        (np.tri(6), 3, 12.000748),
    ],
)
def test_records_in_distinct_cells(matrix, k, alpha):
    workload = fp.Workload.from_matrix(matrix, variance=1.0)
    lower, upper = solve(workload, fp.AddRemove(records=k, distinct=True))
    assert lower <= alpha * (1 + 1e-6)
    assert upper == pytest.approx(alpha, rel=5e-5)
    assert lower == pytest.approx(alpha, rel=5e-5)


@pytest.mark.parametrize(
    ("T", "n", "alpha"), [(2, 2, 1.560584), (3, 2, 2.133333), (3, 3, 2.343033)]
)
def test_at_most_one_record_a_period(T, n, alpha):
    domain = fp.Domain({"month": fp.Integers(1, T), "region": fp.Integers(1, n)})
    unit = fp.AddRemove(records=T, once_per="month")
    for sum_variance, expected in ((None, alpha), (float(T), T), (1.0, T * T)):
        lower, upper = solve(monthly(domain, sum_variance=sum_variance), unit)
        assert lower <= expected * (1 + 1e-6)
        assert upper == pytest.approx(expected, rel=5e-5)
        assert lower == pytest.approx(expected, rel=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "unit"), [p[1:] for p in PROBLEMS], ids=[p[0] for p in PROBLEMS]
)
def test_no_gaussian_mechanism_costs_less(workload, unit):
    persons = list_persons(workload.domain, unit)
    alpha = find_least_cost(workload.matrix(), workload.targets(), persons)
    lower, upper = solve(workload, unit)
    assert lower <= alpha * (1 + 1e-5)
    assert upper >= alpha * (1 - 1e-5)
    assert lower == pytest.approx(alpha, rel=1e-4)


def test_twelve_months_of_a_hundred_cells():
    """With the sum over the year at twelve times the variance, a year costs twelve months."""
    domain = fp.Domain({"month": fp.Integers(1, 12), "region": fp.Integers(1, 100)})
    unit = fp.AddRemove(records=12, once_per="month")
    lower, upper = solve(monthly(domain, sum_variance=12.0), unit, 1e-4)
    assert 12 * (1 - 3e-4) <= lower <= 12 <= upper * (1 + 1e-9) <= 12 * (1 + 3e-4)
    lower, upper = solve(monthly(domain, sum_variance=12.0, cumulative=True), unit, 1e-4)
    assert upper <= lower * (1 + 3e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", [fp.AddRemove(4, once_per="state"), fp.AddRemove(4, distinct=True)], ids=str
)
def test_states_are_not_crossed_with_ages(unit):
    """5,100 cells that are all told apart have too many pairs, and 1,020 took minutes."""
    domain = fp.Domain({"state": fp.Integers(1, 51), "age": fp.Integers(0, 99)})
    queries = [
        fp.queries({"state": "identity", "age": "prefix"}, std=10.0),
        fp.queries({"age": "prefix"}, std=20.0, name="ages"),
        fp.marginal("state", std=5.0),
    ]
    plan = fp.design(fp.Workload(domain, queries), unit=unit, tolerance=1e-3)
    assert plan.strategy.structure.cells == 100
    assert plan.gap < 1e-3


@pytest.mark.parametrize(("cells", "records"), [(25, 4), (47, 3)])
def test_the_costliest_of_few_differences_is_always_found(cells, records):
    """A search that takes records one by one misses it here, and the design ended 4 % apart."""
    domain = fp.Domain({"x": fp.Integers(1, cells)})
    workload = fp.Workload(domain, [fp.queries({"x": "prefix"}, variance=1.0)])
    lower, upper = solve(workload, fp.AddRemove(records=records, distinct=True), 1e-3)
    assert upper == pytest.approx(lower, rel=3e-3)


@pytest.mark.parametrize(
    ("sizes", "kinds", "records", "once_per"),
    [
        ((100, 3), ("prefix", "prefix"), 2, None),
        ((4, 2, 20), ("identity", "prefix", "identity"), 3, None),
        pytest.param((12, 20), ("prefix", "prefix"), 6, "a", marks=pytest.mark.long),
    ],
)
@pytest.mark.slow
def test_costly_persons_are_found_at_every_cell(sizes, kinds, records, once_per):
    """The costliest persons of all are few, and a design that heeds them alone has a gap of 26%."""
    names = "abc"[: len(sizes)]
    domain = fp.Domain({name: fp.Integers(1, n) for name, n in zip(names, sizes, strict=True)})
    asked = dict(zip(names, kinds, strict=True))
    queries = [fp.queries(asked, std=3.0, name="table"), fp.marginal("a", std=2.0, name="margin")]
    unit = fp.AddRemove(records, distinct=once_per is None, once_per=once_per)
    plan = fp.design(fp.Workload(domain, queries), unit=unit, tolerance=1e-3)
    assert plan.gap < 1e-3


@pytest.mark.slow
def test_few_records_of_many_periods():
    """Persons who favour the same few days bring the design nowhere: it ended 0.1% apart."""
    days = fp.Integers(1, 120)
    queries = [
        fp.queries({"day": "identity"}, std=5.0),
        fp.queries({"day": fp.ranges([(1, 30), (31, 120)])}, std=8.0),
        fp.total(std=9.0),
    ]
    workload = fp.Workload(fp.Domain({"day": days}), queries)
    unit = fp.AddRemove(4, once_per="day")
    plan = fp.design(workload, unit=unit, tolerance=3e-4, max_iterations=500)
    assert plan.gap <= 3e-4


@pytest.mark.parametrize(
    ("workload", "unit"), [p[1:] for p in PROBLEMS], ids=[p[0] for p in PROBLEMS]
)
def test_moments_are_the_same_by_pairs_and_by_columns(workload, unit, monkeypatch):
    structure = analyse_structure(workload, unit=unit)
    problem, rng = persons.PersonProblem.reduce(structure), np.random.default_rng(0)
    gram = np.eye(structure.cells)
    products = build_record_products(structure.person, [((), gram)], [], [])
    noise = rng.random((8, structure.cells))
    starts = list_costliest_records(products, 8)
    sets = ascend(products, starts, keeps_first=True, favour=noise[: len(starts)])
    sets.check_form(structure.person)
    p = rng.random(len(sets))
    for block, attributes in zip(problem.blocks, problem.attributes, strict=True):
        moment, _ = sum_moments(sets, attributes, structure.person.sizes, p, structure.cells)
        whitener = rng.random((2, len(block.basis)))
        for cost in (-1e9, 1e9):
            monkeypatch.setattr(persons, "_GATHERED", cost)
            both = persons.multiply_records(sets, block, attributes, structure.person.sizes)
            assert both.add_up(p) == pytest.approx(block.basis @ moment @ block.basis.T)
            spent = p @ both.measure(whitener)
            assert spent == pytest.approx(np.trace(whitener @ both.add_up(p) @ whitener.T))
