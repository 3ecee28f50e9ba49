"""What plans of every kind claim, by brute force: `fitplug.testing.check_plan`."""

from __future__ import annotations

import pytest

import fitplug as fp
from fitplug.families import analysis as symmetry
from fitplug.families.base import tree_shape
from fitplug.testing import check_plan
from tests.helpers.plans import MIXED, PRODUCTS
from tests.helpers.workloads import small


@pytest.mark.parametrize(("name", "W", "c"), small(), ids=[w[0] for w in small()])
def test_of_matrices(name, W, c):
    check_plan(fp.design(fp.Workload.from_matrix(W, variance=c)))


@pytest.mark.parametrize("name", MIXED)
def test_of_structured_workloads(name):
    check_plan(fp.design(MIXED[name]()))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCTS)
def test_of_the_product_family_with_dense_attributes(name, monkeypatch):
    """Those without are in tests/families/product/test_product_plans.py."""
    monkeypatch.setattr(symmetry, "MOST_CELLS", 1)
    monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
    check_plan(fp.design(PRODUCTS[name](), tolerance=0.01))


@pytest.mark.parametrize("keywords", [{"rho": 0.3}, {"total_error_weight": 1.0}, {"solver": "sm2"}])
def test_however_it_was_designed(keywords):
    check_plan(fp.design(MIXED["pyramid"](), **keywords))


def test_with_cell_budgets():
    first = fp.design(MIXED["pyramid"]())
    more = fp.Workload(first.domain, [fp.marginal("age", "sex", std=1.0)])
    check_plan(fp.design(more, cell_budgets=first.profile()))
