"""A cell for all other values costs little in every family, and only the queries that include it
count it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_codec
from fitplug.numeric import AnyArray

Case = tuple[fp.Domain, list[Any], fp.AddRemove | fp.ReplaceOne]


def make_tree(other: str | None, branches: tuple[int, int, int]) -> fp.Hierarchy:
    a, b, c = (range(n) for n in branches)
    leaves = [[f"{i:02}", f"{i:02}{j:02}", f"{i:02}{j:02}{k:02}"] for i in a for j in b for k in c]
    return fp.Hierarchy(["state", "county", "tract"], leaves, other)


def ask(**factors: Any) -> Any:
    return fp.queries(factors, std=5.0)


def make_prefixes(other: str | None, ages: int = 100, unit: Any = None) -> Case:
    domain = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, ages - 1, other)})
    groups = [ask(sex="identity", age="prefix"), ask(age=fp.ranges([(0, ages - 1)])), ask()]
    return domain, groups, unit or fp.AddRemove()


def make_chain(other: str | None) -> Case:
    domain = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, 4_999, other)})
    return domain, [ask(sex="identity", age="prefix"), ask(age="identity")], fp.AddRemove()


def make_levels(other: str | None) -> Case:
    domain = fp.Domain({"sex": ["f", "m"], "place": make_tree(other, (9, 25, 20))})
    groups = [ask(sex="identity", place="tract"), ask(place="county"), ask(place="state"), ask()]
    return domain, groups, fp.AddRemove()


def make_product(other: str | None) -> Case:
    bins = fp.Bins(list(range(61)), other)
    domain = fp.Domain({"age": fp.Integers(0, 79, other), "income": bins})
    return domain, [ask(age="prefix", income="prefix"), ask(age="prefix")], fp.AddRemove()


def make_persons(other: str | None) -> Case:
    domain = fp.Domain({"month": ["1", "2", "3"], "age": fp.Integers(0, 19, other)})
    unit = fp.AddRemove(records=3, once_per="month")
    return domain, [ask(month="identity", age="prefix"), ask(age="prefix")], unit


CASES: dict[str, tuple[Callable[[str | None], Case], str]] = {
    "blocks": (make_prefixes, "MatrixStructure"),
    "chain": (make_chain, "ChainStructure"),
    "tree": (make_levels, "TreeStructure"),
    "product": (make_product, "ProductStructure"),
    "pairs": (lambda other: make_prefixes(other, 30, fp.ReplaceOne()), "PairStructure"),
    "persons": (make_persons, "PersonStructure"),
}


def count_plainly(domain: fp.Domain, group: Any, cells: AnyArray) -> AnyArray:
    """Count by what the queries mean, axis by axis."""
    answers = cells
    asked = {factor.attribute: factor for factor in group.factors}
    for axis, name in enumerate(domain.names):
        attribute = domain[name]
        moved = np.moveaxis(answers, axis, 0)
        kind = asked[name].kind if name in asked else "total"
        if kind == "prefix":
            moved = moved[: get_codec(attribute).value_count].cumsum(axis=0)
        elif kind == "ranges":  # the one range of all values
            moved = moved[: get_codec(attribute).value_count].sum(axis=0, keepdims=True)
        elif kind in ("state", "county"):
            prefixes = [label[: 2 if kind == "state" else 4] for label in attribute.values]
            prefixes += ["other"] * (attribute.size - get_codec(attribute).value_count)
            _, nodes = np.unique(prefixes, return_inverse=True)
            moved = np.array([moved[nodes == node].sum(axis=0) for node in range(nodes.max() + 1)])
        elif kind == "total":
            moved = moved.sum(axis=0, keepdims=True)
        answers = np.moveaxis(moved, 0, axis)
    return answers.ravel()


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("chain", "product") else name
        for name in CASES
    ],
)
def test_the_cell_costs_little_and_is_counted_where_it_is_asked(family: str) -> None:
    make, kind = CASES[family]
    plans = []
    for other in (None, "missing"):
        domain, groups, unit = make(other)
        plan = fp.design(fp.Workload(domain, groups), unit=unit)
        assert type(plan.strategy.structure).__name__ == kind
        plan.verify()
        cells = np.random.default_rng(7).poisson(5.0, domain.shape)
        tables = fp.Tables(domain, {domain.names: cells})
        # Without noise, the estimates are the counts.
        answers = plan.strategy.answer_exactly(tables.marginal)
        release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
        for group in plan.workload.groups:
            expected = count_plainly(domain, group, cells)
            np.testing.assert_allclose(release.estimates[group.name].ravel(), expected, atol=1e-5)
        plans.append(plan)
    without, with_other = plans
    assert with_other.rho <= 1.01 * without.rho
    assert with_other.gap <= without.gap + 0.01
