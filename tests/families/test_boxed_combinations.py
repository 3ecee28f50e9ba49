"""Combinations of products: bounds and covariances are those of the arrays that they stand for."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import Product
from fitplug.families.base import estimates as boxed
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.tree.shape.blocks import TreeStructure
from tests.helpers import people
from tests.helpers.plans import MIXED, product_plan, symmetric_plan, two_trees_plan
from tests.helpers.tree_strategies import (
    find_structure,
    random_strategy,
    random_workload,
    wide_workload,
)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def draw_product(rng, group, kind):
    """A product of what few or many rows along each axis have."""
    factors = []
    for rows in group.shape:
        size = rows if kind == "all" else int(rng.integers(1, rows + 1))
        at = np.sort(rng.choice(rows, size, replace=False))
        values = rng.normal(size=size) if kind == "floats" else rng.integers(-1, 2, size) * 1.0
        factors.append((at, np.ones(size) if kind == "all" else values))
    return Product(float(rng.normal()), tuple(factors))


def draw_combinations(rng, workload, count=4):
    combinations = []
    for _ in range(count):
        groups = rng.choice(len(workload.groups), int(rng.integers(1, 4)))
        one = {}
        for g in set(groups.tolist()):
            group = workload.groups[g]
            kinds = rng.choice(["all", "signs", "floats"], int(rng.integers(1, 4)))
            one[group.name] = [draw_product(rng, group, kind) for kind in kinds]
        combinations.append(one)
    return combinations


def write_out(workload, products):
    found = {}
    for name, own in products.items():
        array = np.zeros(workload[name].shape)
        for product in own:
            dense = np.array(product.weight)
            for rows, (at, values) in zip(workload[name].shape, product.factors, strict=True):
                vector = np.zeros(rows)
                vector[at] = values
                dense = np.multiply.outer(dense, vector)
            array += dense
        found[name] = array
    return found


def check(strategy, combinations):
    workload = strategy.structure.workload
    arrays = [write_out(workload, one) for one in combinations]
    stds = strategy.combine(arrays).upper_stds()
    # Noise that cancels leaves rounding alone, in proportion to what cancels.
    sizes = np.array([strategy.combine([cancel_nothing(one)]).upper_stds()[0] for one in arrays])
    products = strategy.combine_products(combinations)
    found = products.upper_stds()
    np.testing.assert_allclose(found, stds, rtol=1e-8, atol=1e-11 * sizes.max())
    exact = strategy.combine(arrays).compute_covariance()
    covariance = products.compute_covariance()  # read again, after the stds
    np.testing.assert_allclose(covariance, exact, rtol=1e-8, atol=1e-10 * sizes.max() ** 2)
    assert (found**2 >= np.diag(exact) * (1 - 1e-9)).all()
    assert np.linalg.eigvalsh(covariance).min() >= -1e-9 * sizes.max() ** 2


def cancel_nothing(arrays):
    return {name: np.abs(array) for name, array in arrays.items()}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(symmetric_plan, id="numbers"),
        pytest.param(people.plan, id="matrix"),
        pytest.param(lambda: fp.design(MIXED["sizes 1 and 2"](), tolerance=0.05), id="ones"),
        pytest.param(lambda: fp.design(MIXED["pyramid"](), tolerance=0.05), id="pyramid"),
        pytest.param(product_plan, id="product"),
        pytest.param(two_trees_plan, id="two trees"),
    ],
)
def test_every_structure(make, rng):
    strategy = make().strategy
    for _ in range(6):
        check(strategy, draw_combinations(rng, strategy.structure.workload))


def test_the_structures_are_all_there():
    assert isinstance(symmetric_plan().strategy.structure, MatrixStructure)
    assert not symmetric_plan().strategy.structure.dense
    assert isinstance(product_plan().strategy.structure, ProductStructure)


def test_trees(rng):
    for number in range(5):
        workload = wide_workload(rng) if number % 4 == 3 else random_workload(rng)
        structure = find_structure(workload)
        assert isinstance(structure, TreeStructure)
        strategy = random_strategy(rng, structure)
        for _ in range(2):
            check(strategy, draw_combinations(rng, workload))


def test_noise_that_cancels():
    """A group less itself, and a total that margins of all other blocks cancel in."""
    plan = symmetric_plan()
    group = plan.workload["ba"]
    everything = tuple((np.arange(rows), np.ones(rows)) for rows in group.shape)
    halves = [
        ((group_rows, np.ones(len(group_rows))), everything[1])
        for group_rows in (np.arange(2), np.arange(2, 5))
    ]
    products = [Product(1.0, everything), *(Product(-1.0, factors) for factors in halves)]
    (std,) = plan.strategy.combine_products([{"ba": products}]).upper_stds()
    (size,) = plan.strategy.combine_products([{"ba": products[:1]}]).upper_stds()
    assert 0 <= std <= 1e-11 * size
    (total,) = plan.strategy.combine([{"ba": np.ones(group.shape)}]).upper_stds()
    assert total <= size * (1 + 1e-12)
    assert size == pytest.approx(total, rel=1e-11)


def test_a_combination_of_nothing():
    plan = symmetric_plan()
    product = Product(0.0, tuple((np.arange(1), np.ones(1)) for _ in range(2)))
    assert plan.strategy.combine_products([{"ba": [product]}, {}]).upper_stds().tolist() == [
        0.0,
        0.0,
    ]


def test_too_many_selections_are_refused(monkeypatch, rng):
    monkeypatch.setattr(boxed, "_MOST_DIRECTIONS", 3)
    plan = symmetric_plan()
    products = [draw_product(rng, plan.workload["ba"], "floats") for _ in range(9)]
    with pytest.raises(fp.WorkloadError, match=r"too many selections \(9\)"):
        plan.strategy.combine_products([{"ba": products}]).upper_stds()
