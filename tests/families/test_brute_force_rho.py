"""rho of every plan by brute force: one record more in each cell in turn, through what really runs.

Records become tables and tables become the integers that get the noise, as in a release; how far
one record moves them is then added up in rational numbers. Nothing of how the plan knows its own
cost is used.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.families import analysis as symmetry
from fitplug.families.base import tree_shape
from fitplug_opendp.noise_source import compute_exact_answers
from tests.helpers.plans import MIXED, PRODUCTS
from tests.helpers.workloads import small


def brute_force(plan):
    """The largest rho of one record more, over all cells of the attributes used."""
    names = plan.domain.ordered(tuple({name for table in plan.tables for name in table}))
    before = np.random.default_rng(1).integers(0, 9, get_shape(plan.domain, names))
    start = integers(plan, fp.Tables(plan.domain, {names: before}))
    most = Fraction(0)
    for cell in itertools.product(*map(range, before.shape)):
        more = before.copy()
        more[cell] += 1
        after = integers(plan, fp.Tables(plan.domain, {names: more}))
        most = max(most, Fraction(sum((a - b) ** 2 for a, b in zip(after, start, strict=True))))
    return most / Fraction(plan.noise_std) ** 2 / 2


def integers(plan, tables):
    return [int(v) for v in compute_exact_answers(plan, tables)]


def check(plan):
    rho = brute_force(plan)
    assert plan.rho_exact == rho
    assert rho <= Fraction(plan.rho) <= rho * (1 + Fraction(1, 2**48))
    assert Fraction(plan.privacy_cost) ** 2 >= 2 * rho


@pytest.mark.parametrize(("name", "W", "c"), small(), ids=[w[0] for w in small()])
def test_of_matrices(name, W, c):
    check(fp.design(fp.Workload.from_matrix(W, variance=c)))


@pytest.mark.parametrize("name", MIXED)
def test_of_structured_workloads(name):
    check(fp.design(MIXED[name]()))


@pytest.mark.parametrize(
    "most_dense", [0, pytest.param(symmetry.MOST_DENSE, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", PRODUCTS)
def test_of_the_product_family(name, most_dense, monkeypatch):
    monkeypatch.setattr(symmetry, "MOST_CELLS", 1)
    monkeypatch.setattr(symmetry, "MOST_DENSE", most_dense)
    monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
    check(fp.design(PRODUCTS[name]()))


@pytest.mark.parametrize("keywords", [{"rho": 0.3}, {"total_error_weight": 1.0}, {"solver": "sm2"}])
def test_however_it_was_designed(keywords):
    check(fp.design(MIXED["pyramid"](), **keywords))


def test_with_cell_budgets():
    first = fp.design(MIXED["pyramid"]())
    more = fp.Workload(first.domain, [fp.marginal("age", "sex", std=1.0)])
    check(fp.design(more, cell_budgets=first.profile()))
