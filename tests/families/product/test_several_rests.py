"""The product bound with several rests: against the optimum that an interior-point solver finds."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fitplug.domain.domain import Domain
from fitplug.domain.hierarchy import Hierarchy
from fitplug.domain.numbers import Integers
from fitplug.families.analysis import analyse_structure
from fitplug.families.base import tree_shape
from fitplug.families.product.certificate.product_bound import lower_product_cost
from fitplug.families.product.certificate.product_duals import ProductDuals
from fitplug.families.product.design.bound_ascent import ascend_product_bound
from fitplug.families.product.design.members import FamilyWeights
from fitplug.plan import design
from fitplug.testing.plans import find_least_cost
from fitplug.workload.factors import ranges
from fitplug.workload.query_group import queries, total
from fitplug.workload.workload import Workload


def draw_tree(rng):
    """A tree of two levels and at most four leaves."""
    sizes = rng.integers(1, 3, 2)
    return Hierarchy(
        ["top", "leaf"], [(f"{i}", f"{i}.{j}") for i, k in enumerate(sizes) for j in range(k)]
    )


def build_product(seed, nested):
    """A workload on two trees, or on nested ranges, prefixes and a symmetric attribute."""
    rng = np.random.default_rng(seed)
    std = [{"std": float(s)} for s in rng.uniform(1, 9, 6)]
    if nested:
        domain = {"a": Integers(0, 3), "b": Integers(0, 1), "c": ["1", "2"]}
        first = ("prefix", ranges([(0, 1), (2, 3)]))
        second = ("prefix", "prefix")
    else:
        domain = {name: draw_tree(rng) for name in "ab"}
        first = second = ("leaf", "top")
    groups = [
        queries({"a": first[0], "b": second[0]}, **std[0]),
        queries({"a": first[1], "b": second[1]}, **std[1]),
        queries({"a": first[0], "c": "identity"} if nested else {"a": first[0]}, **std[2]),
        queries({"b": second[1]}, **std[3]),
        total(**std[4]),
    ]
    return rng, Workload(Domain(domain), groups)


def climb(seed, nested):
    """The workload, and the bounds at random weights for each t and number of rests, ascended."""
    rng, workload = build_product(seed, nested)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_shape, "LEAST_TREE", 1)
        batched = analyse_structure(workload, family=True).batched
    sizes = zip(batched.sizes, batched.symmetric, strict=True)
    weights = ProductDuals(
        tuple(rng.dirichlet(np.ones(1 if symmetric else n)) for n, symmetric in sizes),
        tuple(rng.dirichlet(np.ones(one.count)) for one in batched.factors),
        rng.dirichlet(np.ones(len(batched.workload.groups))),
        1,
        1,
        1.0,
    )
    bounds = {
        (t, rests): lower_product_cost(batched, replace(weights, t=t, rests=rests))
        for t, rests in itertools.product(range(1, max(batched.widths) + 1), (1, 2, 99))
    }
    start = FamilyWeights(
        weights.p, tuple(np.ones_like(batch.targets) for batch in batched.batches), weights.y
    )
    return workload, bounds, ascend_product_bound(batched, start)[1]


@settings(max_examples=4)
@given(st.integers(0, 2**32), st.booleans())
def test_no_mechanism_costs_less(seed, nested):
    workload, bounds, ascended = climb(seed, nested)
    cost = design(workload).privacy_cost
    for (t, _), bound in bounds.items():
        assert 0 < bound <= cost
        # The contrasts of different nodes have nothing between them.
        assert nested or bound >= bounds[t, 1] * (1 - 1e-9)
    assert max(bounds.values()) * 0.9 <= ascended <= cost


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_the_least_cost_is_above(nested):
    workload, bounds, ascended = climb(7, nested)
    W = workload.matrix()
    least = np.sqrt(find_least_cost(W, workload.targets(), np.eye(W.shape[1])))
    assert max(*bounds.values(), ascended) <= least * (1 + 1e-6)
    assert ascended >= 0.9 * least
