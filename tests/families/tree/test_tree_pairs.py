"""Strategies of trees where neighbours replace a record, against all pairs of cells."""

from __future__ import annotations

import numpy as np
import pytest

from fitplug.families import Objective, build_dense_covariance, build_dense_strategy
from fitplug.families.tree.design import designs
from fitplug.families.tree.design.pair_descent import descend_tree_pairs
from fitplug.families.tree.strategy import pair_cost as tree_pair_cost
from fitplug.solve import Options
from tests.helpers.tree_strategies import (
    PAIR_UNITS,
    draw_pair_strategy,
    find_regions,
    make_reader,
    write_out,
)


def compare_cost(seed):
    """Compare the cost of a random strategy with those of all pairs of cells."""
    _, strategy = draw_pair_strategy(seed)
    if strategy is None:
        return 0
    strategy.check_form()
    A = write_out(strategy).astype(float)
    regions = find_regions(strategy.structure.workload, strategy.structure.unit)
    gram = A.T @ A
    squares = np.diag(gram)
    costs = squares[:, None] + squares[None, :] - 2 * gram
    truth = costs[regions[:, None] == regions[None, :]].max()
    # Sums of products below 2^53 are exact, others are rounded.
    lost = 0 if squares.max() < 2**50 else 1e-11
    assert truth * (1 - lost) <= strategy.sensitivity_squared <= truth * (1 + 1e-10) + 1
    above = strategy.upper_overstatement()
    assert strategy.sensitivity_squared <= truth * (1 + above) ** 2 * (1 + 1e-15 + lost)
    assert above <= 1e-10 + 1 / truth
    assert strategy.confirm_cost().sensitivity_squared == strategy.sensitivity_squared
    assert (strategy.column_squares >= strategy.sensitivity_squared).all()
    return 1


def test_the_cost_is_that_of_the_costliest_pair():
    assert sum(compare_cost(seed) for seed in range(30)) > 20


def test_nodes_with_too_many_pairs_of_children_are_bounded(monkeypatch):
    monkeypatch.setattr(tree_pair_cost, "_MOST_WORK", 0)
    looser = 0
    for seed in range(30):
        _, strategy = draw_pair_strategy(seed, sizes=(1, 5, 200))
        if strategy is None:
            continue
        A = write_out(strategy).astype(float)
        regions = find_regions(strategy.structure.workload, strategy.structure.unit)
        gram = A.T @ A
        squares = np.diag(gram)
        costs = squares[:, None] + squares[None, :] - 2 * gram
        truth = costs[regions[:, None] == regions[None, :]].max()
        above = (1 + strategy.upper_overstatement()) ** 2
        assert truth <= strategy.sensitivity_squared <= truth * above * (1 + 1e-12)
        looser += strategy.sensitivity_squared > 1.001 * truth
    assert looser > 10


@pytest.mark.long
def test_the_cost_is_that_of_the_costliest_pair_of_a_thousand_strategies():
    assert sum(compare_cost(seed) for seed in range(100, 1400)) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("unit", PAIR_UNITS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_variances_and_estimates(unit, seed):
    """With public totals, the estimates are those of least squares on all answers and totals."""
    rng, strategy = draw_pair_strategy(seed, unit, (1, 5))
    if strategy is None:
        return
    structure, workload = strategy.structure, strategy.structure.workload
    A, W = write_out(strategy).astype(float), workload.matrix()
    np.testing.assert_array_equal(build_dense_strategy(strategy), A)
    regions = find_regions(workload, structure.unit)
    T = (np.arange(regions.max() + 1)[:, None] == regions).astype(float)
    # Differences between neighbours have no totals: on these, the answers tell the queries.
    basis = np.linalg.svd(T)[2][len(T) :].T
    weights = W @ basis @ np.linalg.pinv(A @ basis, rcond=1e-12)
    np.testing.assert_allclose(weights @ A @ basis, W @ basis, atol=1e-6)
    exact = (weights**2).sum(axis=1)
    bound = structure.group_values(strategy.unit_variances)
    bound = np.concatenate([bound[name].ravel() for name in workload.names])
    assert (bound >= exact * (1 - 1e-7) - 1e-12).all()
    is_public = np.abs(W @ basis).max(axis=1, initial=0) < 1e-9
    assert (bound[is_public] == 0).all()
    np.testing.assert_allclose(bound, exact, rtol=1e-5, atol=1e-9)

    x = rng.integers(0, 1000, workload.shape)
    y = strategy.answer_exactly(make_reader(strategy, x))
    assert len(y) == strategy.released_size
    np.testing.assert_array_equal(y[: strategy.size], (A @ x.ravel()).astype(np.int64))
    np.testing.assert_array_equal(y[strategy.size :], T @ x.ravel())
    found = strategy.make_estimates(y)
    found = np.concatenate([found[name].ravel() for name in workload.names])
    np.testing.assert_allclose(found, W @ x.ravel(), rtol=1e-9, atol=1e-5)

    noisy = y + np.concatenate([rng.integers(-9, 10, strategy.size), np.zeros(len(T), int)])
    found = strategy.make_estimates(noisy)
    found = np.concatenate([found[name].ravel() for name in workload.names])
    errors = found - W @ x.ravel()
    np.testing.assert_allclose(errors, weights @ (noisy - y)[: strategy.size], rtol=1e-5, atol=1e-4)

    names = workload.names
    combinations = [
        {name: rng.normal(size=workload[name].shape) for name in rng.choice(names, 2, False)}
        for _ in range(3)
    ]
    coefficients = np.array(
        [
            np.concatenate(
                [one.get(name, np.zeros(workload[name].shape)).ravel() for name in names]
            )
            for one in combinations
        ]
    )
    covariance = coefficients @ weights @ weights.T @ coefficients.T
    np.testing.assert_allclose(
        strategy.combine(combinations).compute_covariance(), covariance, rtol=1e-5, atol=1e-6
    )
    stds = strategy.combine(combinations).upper_stds()
    assert (stds >= np.sqrt(np.diag(covariance)) * (1 - 1e-7) - 1e-12).all()
    np.testing.assert_allclose(stds, np.sqrt(np.diag(covariance)), rtol=1e-5, atol=1e-6)
    sigma, B = build_dense_covariance(strategy, 1.0)
    on_basis = W @ basis @ np.linalg.pinv(B @ basis, rcond=1e-12)
    np.testing.assert_allclose((on_basis @ sigma * on_basis).sum(1), exact, rtol=1e-5, atol=1e-7)


def test_rounding_goes_on_where_more_bits_cost_more(monkeypatch):
    """With 72 dense cells of very different variances, 23 bits can cost more than 20."""
    structure = draw_pair_strategy(3)[1].structure
    member = descend_tree_pairs(structure, Options("dual", 1e-3, 20, refine=False, progress=None))[
        0
    ]
    costs = [2.03, 2.69, 0.63, 0.57916, 0.57915]
    left, rounded = iter(costs), []

    def evaluate(strategy, objective):
        rounded.append(strategy)
        return next(left)

    monkeypatch.setattr(designs, "evaluate_at_targets", evaluate)
    best = designs.round_trees(
        structure, member.sweeps, objective=Objective(), upper=0.0, loss=1e-4
    )
    assert len(rounded) == len(costs)
    assert best.sensitivity == pytest.approx(rounded[-1].sensitivity, rel=1e-6)
