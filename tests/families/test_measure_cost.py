"""The cost of records with measures by brute force: every value, not only the bounds.

Records go through tables and the integers that get noise, as in a release. How far they move these
is added up in integers, for every value of every measure, and for every pair where neighbours
replace records. Nothing of how a plan knows its own cost is used.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug.domain import get_codec
from fitplug.families import analysis as symmetry
from fitplug.families.base import tree_shape
from fitplug.families.blocks.shape.matrices import PersonStructure
from fitplug_opendp.noise_source import compute_exact_answers


def list_values(attribute):
    """All values of an attribute; of a measure all that differ after rounding, and none."""
    if not get_codec(attribute).quantities:
        return list(get_codec(attribute).column_values())
    unit = Fraction(repr(attribute.unit))
    values = [float(attribute.low + unit * k) for k in range(get_codec(attribute).shares + 1)]
    return [*values, None] if attribute.other is not None else values


def list_records(plan):
    """All records that differ for a plan, as tuples over the attributes that it uses."""
    domain = plan.domain
    return list(itertools.product(*(list_values(domain[n]) for n in plan.workload.attributes)))


def answer(plan, records):
    """What the integer mechanism adds noise to, as Python integers, for some records."""
    names = plan.workload.attributes
    columns = {n: np.array([r[i] for r in records], object) for i, n in enumerate(names)}
    tables = fp.Tables.from_records(plan.domain, columns, plan.tables)
    answers = compute_exact_answers(plan, tables)[: plan.strategy.size]
    return np.array([int(v) for v in answers], dtype=object)


def check(plan):
    """The claimed cost is that of some neighbours with values at bounds, and of none is above."""
    plan.verify()
    records = list_records(plan)
    moved = [answer(plan, [record]) for record in records]
    bounds = [is_at_bounds(plan, record) for record in records]
    if isinstance(plan.unit, fp.ReplaceOne):
        pairs = list(itertools.product(range(len(records)), repeat=2))
        squares = [int(((moved[i] - moved[j]) ** 2).sum()) for i, j in pairs]
        at_bounds = [bounds[i] and bounds[j] for i, j in pairs]
    else:
        squares = [int((own**2).sum()) * plan.unit.records**2 for own in moved]
        at_bounds = bounds
    worst = max(squares)
    assert worst == plan.strategy.sensitivity_squared
    assert worst == max(s for s, own in zip(squares, at_bounds, strict=True) if own)
    assert plan.rho_exact == Fraction(worst) / (2 * Fraction(plan.noise_std) ** 2)
    assert plan.rho >= plan.rho_exact
    assert plan.overstatement == 0
    # The mechanisms say the same, each for itself.
    parts = [(Fraction(m.sensitivity) / Fraction(m.sigma)) ** 2 / 2 for m in plan.mechanisms()]
    assert plan.rho_exact <= sum(parts) <= plan.rho_exact * (1 + Fraction(1, 10**13))


def is_at_bounds(plan, record):
    for name, value in zip(plan.workload.attributes, record, strict=True):
        attribute = plan.domain[name]
        if get_codec(attribute).quantities and value is not None:
            (code,) = get_codec(attribute).codes([value])
            if code not in (0, get_codec(attribute).shares):
                return False
    return True


def ask(domain, *groups):
    return fp.Workload(fp.Domain(domain), groups)


def one_measure():
    return ask(
        {"g": ["a", "b", "c"], "y": fp.Measure(-2, 6, unit=2)},
        fp.queries({"g": "identity"}, variance=1.0, name="people"),
        fp.queries({"g": "identity", "y": "sum"}, variance=25.0, name="money"),
    )


def with_other():
    return ask(
        {"g": ["a", "b"], "y": fp.Measure(1, 3, unit=0.5, other="none")},
        fp.queries({"g": "identity"}, variance=1.0, name="people"),
        fp.queries({"g": "identity", "y": "sum"}, variance=3.0, name="money"),
        fp.queries({"y": "count"}, variance=2.0, name="with money"),
    )


def two_measures():
    return ask(
        {"g": ["a", "b"], "y": fp.Measure(1, 3, unit=0.5), "z": fp.Measure(-3, 0)},
        fp.queries({"g": "identity", "y": "sum"}, variance=1.0, name="one"),
        fp.queries({"z": "sum"}, variance=2.0, name="other"),
        fp.queries({"y": "sum", "z": "sum", "g": "identity"}, variance=30.0, name="products"),
    )


def beside_ages():
    return ask(
        {
            "sex": ["1", "2"],
            "age": fp.Integers(0, 3),
            "y": fp.Measure(-1, 3),
            "z": fp.Measure(0, 2),
        },
        fp.queries({"sex": "identity", "age": "prefix"}, std=2.0, name="p"),
        fp.queries({"age": "prefix", "y": "sum"}, std=4.0, name="q"),
        fp.queries({"sex": "identity", "y": "sum", "z": "sum"}, std=9.0, name="r"),
        fp.queries({"z": "sum"}, std=2.0, name="s"),
    )


def beside_places():
    leaves = [("1", "11"), ("1", "12"), ("2", "21"), ("2", "22"), ("2", "23")]
    return ask(
        {
            "place": fp.Hierarchy(["state", "county"], leaves),
            "sex": ["1", "2"],
            "y": fp.Measure(0, 4),
        },
        fp.queries({"place": "county"}, std=3.0, name="p"),
        fp.queries({"place": "state", "y": "sum"}, std=5.0, name="q"),
        fp.queries({"place": "county", "sex": "identity", "y": "sum"}, std=15.0, name="r"),
    )


WORKLOADS = [one_measure, with_other, two_measures, beside_ages, beside_places]


@pytest.mark.slow
@pytest.mark.parametrize("build", WORKLOADS)
@pytest.mark.parametrize(
    "unit", [fp.AddRemove(), fp.AddRemove(records=3), fp.ReplaceOne()], ids=["1", "3", "replace"]
)
def test_no_value_costs_more_than_the_bounds(build, unit):
    check(fp.design(build(), unit=unit))


@pytest.mark.parametrize(
    ("build", "most_dense", "structure"),
    [
        (beside_ages, 0, "ProductStructure"),
        (beside_places, 0, "ProductStructure"),
        (beside_places, symmetry.MOST_DENSE, "TreeStructure"),
    ],
)
@pytest.mark.slow
def test_of_the_product_family(build, most_dense, structure, monkeypatch):
    monkeypatch.setattr(symmetry, "MOST_CELLS", 1)
    monkeypatch.setattr(symmetry, "MOST_DENSE", most_dense)
    monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
    plan = fp.design(build())
    assert type(plan.strategy.structure).__name__ == structure
    check(plan)


@pytest.mark.parametrize(
    ("build", "structure"),
    [(beside_ages, "ProductPairStructure"), (beside_places, "TreePairStructure")],
)
@pytest.mark.slow
def test_of_cells_too_many_for_pairs(build, structure, monkeypatch):
    """The product family and trees where records are replaced: the cost bounds all moves."""
    monkeypatch.setattr(symmetry.PairStructure, "fits", False)
    monkeypatch.setattr(symmetry.PairStructure, "fits_named", False)
    monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
    monkeypatch.setattr(symmetry, "unfold_siblings", lambda _: None)
    plan = fp.design(build(), unit=fp.ReplaceOne())
    assert type(plan.strategy.structure).__name__ == structure
    plan.verify()
    moved = [answer(plan, [record]) for record in list_records(plan)]
    worst = max(int(((a - b) ** 2).sum()) for a, b in itertools.combinations(moved, 2))
    assert worst <= plan.strategy.sensitivity_squared <= worst * (1 + Fraction(1, 10**9))
    assert plan.overstatement < 1e-9


def find_costliest_person(plan, month):
    """The largest cost of a person with at most one record in each of two months."""
    one_by_one = {record: answer(plan, [record]) for record in list_records(plan)}
    axis = plan.workload.attributes.index("month")
    choices = [[None, *(r for r in one_by_one if r[axis] == name)] for name in month]
    squares = []
    for person in itertools.product(*choices):
        moved = sum((one_by_one[r] for r in person if r is not None), np.zeros(1, object))
        squares.append(int((moved**2).sum()))
    return max(squares)


def test_persons_with_a_record_each_month():
    """All persons with at most one record in each month, with every value in it."""
    workload = ask(
        {"month": ["1", "2"], "g": ["a", "b"], "y": fp.Measure(0, 3)},
        fp.queries({"month": "identity", "g": "identity"}, variance=1.0, name="p"),
        fp.queries({"month": "prefix", "y": "sum"}, variance=20.0, name="s"),
    )
    plan = fp.design(workload, unit=fp.AddRemove(records=2, once_per="month"))
    plan.verify()
    assert plan.overstatement < 1e-6
    worst = find_costliest_person(plan, ("1", "2"))
    # The claim is a proven bound, which may be above the truth by its overstatement.
    assert worst <= plan.strategy.sensitivity_squared <= worst * (1 + 1e-6)


@pytest.mark.slow
def test_persons_with_a_record_each_month_in_a_large_hierarchy(monkeypatch):
    monkeypatch.setattr(PersonStructure, "has_room", False)
    monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
    leaves = [("1", "11"), ("1", "12"), ("2", "21")]
    workload = ask(
        {
            "month": ["1", "2"],
            "place": fp.Hierarchy(["state", "county"], leaves),
            "y": fp.Measure(0, 2),
        },
        fp.queries({"month": "identity", "place": "county"}, std=3.0, name="p"),
        fp.queries({"place": "state", "y": "sum"}, std=3.0, name="q"),
        fp.queries({"month": "identity", "place": "county", "y": "sum"}, std=5.0, name="r"),
    )
    plan = fp.design(workload, unit=fp.AddRemove(records=2, once_per="month"))
    assert type(plan.strategy.structure).__name__ == "PersonTreeStructure"
    plan.verify()
    worst = find_costliest_person(plan, ("1", "2"))
    claimed = plan.strategy.sensitivity_squared
    assert worst <= claimed <= worst * (1 + plan.overstatement) ** 2 * (1 + 1e-6)


@settings(max_examples=15)
@given(
    st.sampled_from([1, 0.1, 2.5, 100]),
    st.integers(-30, 30),
    st.integers(1, 12),
    st.floats(0.1, 10.0),
    st.booleans(),
)
def test_of_any_bounds(unit, first, count, ratio, replaces):
    exact = Fraction(repr(unit))
    measure = fp.Measure(float(exact * first), float(exact * (first + count)), unit=unit)
    size = ratio * max(abs(measure.low), abs(measure.high))
    workload = ask(
        {"g": ["a", "b"], "y": measure},
        fp.queries({"g": "identity"}, std=1.0, name="people"),
        fp.queries({"y": "sum"}, std=size, name="money"),
    )
    check(fp.design(workload, unit=fp.ReplaceOne() if replaces else fp.AddRemove()))


@pytest.mark.parametrize(
    "measure",
    [
        fp.Measure("2020-01-01", "2020-12-31"),
        fp.Measure(0, 200_000),
        fp.Measure(0, 0.3, unit=0.001),
        fp.Measure(-7, 49, unit=0.1),
        fp.Measure(1900, 2020, unit=0.01),
    ],
    ids=str,
)
@pytest.mark.parametrize("unit", [fp.AddRemove(), fp.ReplaceOne()], ids=["add", "replace"])
def test_large_coefficients_leave_precision(measure, unit):
    """The queries have fewer directions than cells, and coefficients such as 18,262 and 18,627."""
    low, high = (float(end) for end in get_codec(measure).quantities["sum"])
    workload = ask(
        {"g": ["a", "b"], "age": fp.Integers(0, 4), "y": measure},
        fp.queries({"g": "identity", "age": "prefix"}, std=3.0, name="people"),
        fp.queries({"g": "identity", "y": "sum"}, std=5 * max(-low, high), name="sums"),
    )
    plan = fp.design(workload, unit=unit)
    plan.verify()
    assert plan.gap < 0.004
    answers = answer_without_noise(plan, [("a", 3, measure.high), ("b", 0, measure.low)])
    np.testing.assert_allclose(answers["sums"].ravel(), [high, low], rtol=1e-9, atol=1e-9 * high)
    np.testing.assert_allclose(answers["people"], [[0, 0, 0, 1, 1], [1] * 5], atol=1e-7)


def test_two_measures_leave_precision():
    """600,000 shares leave twelve bits, and some blocks integers as small as 2."""
    month, region, sector = {"m": "identity"}, {"r": "identity"}, {"b": "identity"}
    workload = ask(
        {
            "m": [str(i) for i in range(12)],
            "r": [str(i) for i in range(16)],
            "b": [str(i) for i in range(21)],
            "wage": fp.Measure(0, 20_000, unit=10),
            "hours": fp.Measure(0, 300),
        },
        fp.queries(month | region | sector, std=20.0, name="jobs"),
        fp.queries(month | sector | {"wage": "sum"}, std=2e5, name="wages"),
        fp.queries(month | region | {"hours": "sum"}, std=3000.0, name="hours"),
        fp.queries({}, std=2.0, name="everybody"),
    )
    plan = fp.design(workload)
    plan.verify()
    assert plan.gap < 0.01
    assert plan.strategy.max_records >= 10**9


def answer_without_noise(plan, records):
    """The estimates of some records, from the integers that get noise."""
    names = plan.workload.attributes
    columns = {n: np.array([r[i] for r in records], object) for i, n in enumerate(names)}
    tables = fp.Tables.from_records(plan.domain, columns, plan.tables)
    answers = compute_exact_answers(plan, tables)
    return fp.Release(plan=plan, answers=answers, rho=plan.rho).estimates


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1, 2**-10, 2**-17, 2**-22])
@pytest.mark.parametrize("most_cells", [symmetry.MOST_CELLS, 1])
def test_fine_units_leave_room(unit, most_cells, monkeypatch):
    """10^9 records with all their shares fit, and the finest units cost a little precision."""
    monkeypatch.setattr(symmetry, "MOST_CELLS", most_cells)
    monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
    domain = {
        "place": fp.Hierarchy(["state", "county"], [("1", "11"), ("1", "12"), ("2", "21")]),
        "sex": ["1", "2"],
        "y": fp.Measure(0, 1, unit=unit),
    }
    workload = ask(
        domain,
        fp.queries({"place": "county"}, std=3.0, name="p"),
        fp.queries({"place": "state", "sex": "identity", "y": "sum"}, std=2.0, name="q"),
    )
    plan = fp.design(workload)
    plan.verify()
    assert plan.strategy.max_records >= 10**9
    assert plan.gap < (5e-3 if unit > 2**-20 else 0.03)
    x, shares = 10**9, plan.strategy.structure.shares
    if x * shares <= 2**58:
        largest = np.zeros(plan.domain.shape, np.int64)
        largest[0, 1, 1] = x * shares
        answers = compute_exact_answers(plan, fp.Tables(plan.domain, {plan.domain.names: largest}))
        release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
        np.testing.assert_allclose(release.estimates["p"].ravel(), [x, 0, 0], atol=1e-3)
        np.testing.assert_allclose(release.estimates["q"].ravel(), [0, x, 0, 0], atol=1e-3)
