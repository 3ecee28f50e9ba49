"""Strategies of trees against the matrix that they measure, written out by its definition."""

from __future__ import annotations

import numpy as np
import pytest

from fitplug.mechanism import (
    answer_exactly,
    bound_combined_stds,
    build_dense_covariance,
    build_dense_strategy,
    check_strategy,
    compute_combined_covariance,
    list_mechanisms,
    make_estimates,
)
from tests.helpers.tree_strategies import (
    find_structure,
    random_strategy,
    random_workload,
    write_out,
)

KINDS = [
    {"symmetric": symmetric, "dense": dense, "varying": varying}
    for symmetric in (False, True)
    for dense in (False, True)
    for varying in (False, True)
]


def make(seed, kind, most=5):
    rng = np.random.default_rng(seed)
    structure = find_structure(random_workload(rng, **kind))
    return rng, random_strategy(rng, structure, most)


def reader(strategy, x):
    """Reads marginals of counts x over the workload's attributes."""
    names = strategy.structure.workload.attributes

    def read(asked):
        rest = tuple(i for i, name in enumerate(names) if name not in asked)
        kept = [name for name in names if name in asked]
        return x.sum(axis=rest).transpose([kept.index(name) for name in asked])

    return read


cases = pytest.mark.parametrize("kind", KINDS)
seeds = pytest.mark.parametrize("seed", range(3))


@cases
@seeds
def test_cost_and_variances(kind, seed) -> None:
    _, strategy = make(seed, kind)
    check_strategy(strategy)
    structure, workload = strategy.structure, strategy.structure.workload
    A = write_out(strategy)
    assert strategy.size == len(A)
    np.testing.assert_array_equal(build_dense_strategy(strategy), A.astype(float))
    squares = (A * A).sum(axis=0)
    assert strategy.sensitivity_squared == max(squares)
    assert strategy.max_records == 2**62 // max(abs(a) for a in A.ravel())
    axes = [workload.attributes.index(name) for name in structure.told_apart]
    rest = [i for i in range(len(workload.shape)) if i not in axes]
    by_cell = squares.reshape(workload.shape).transpose(*axes, *rest)
    by_cell = by_cell.reshape(*by_cell.shape[: len(axes)], -1)
    above = structure.arrange_by_cell(strategy.column_squares)[..., None]
    assert (above >= by_cell).all()
    assert (above <= by_cell.astype(float) * (1 + 1e-12)).all()

    W, numbers = workload.matrix(), A.astype(float)
    sigma = np.linalg.pinv(numbers.T @ numbers, rcond=1e-12)
    exact = np.diag(W @ sigma @ W.T)
    bound = structure.group_values(strategy.unit_variances)
    bound = np.concatenate([bound[name].ravel() for name in workload.names])
    np.testing.assert_allclose(W @ sigma @ (numbers.T @ numbers), W, atol=1e-7)
    assert (bound >= exact * (1 - 1e-9)).all()
    np.testing.assert_allclose(bound, exact, rtol=1e-7)
    (mechanism,) = list_mechanisms(strategy, 2.0)
    assert mechanism.dimension == len(A)


@cases
@seeds
def test_answers_and_estimates(kind, seed) -> None:
    rng, strategy = make(seed, kind)
    workload = strategy.structure.workload
    A, W = write_out(strategy), workload.matrix()
    x = rng.integers(-50, 1000, workload.shape)
    y = answer_exactly(strategy, reader(strategy, x))
    np.testing.assert_array_equal(y, (A @ x.ravel().astype(object)).astype(np.int64))
    estimates = make_estimates(strategy, y)
    found = np.concatenate([estimates[name].ravel() for name in workload.names])
    np.testing.assert_allclose(found, W @ x.ravel(), atol=1e-6 * np.abs(W @ x.ravel()).max())
    noisy = y + rng.integers(-100, 100, len(y))
    estimates = make_estimates(strategy, noisy)
    found = np.concatenate([estimates[name].ravel() for name in workload.names])
    expected = W @ np.linalg.lstsq(A.astype(float), noisy.astype(float), rcond=1e-12)[0]
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())
    assert all(estimates[group.name].shape == group.shape for group in workload.groups)


@cases
@seeds
def test_combinations(kind, seed) -> None:
    rng, strategy = make(seed, kind)
    workload = strategy.structure.workload
    A, W = write_out(strategy).astype(float), workload.matrix()
    covariance = W @ np.linalg.pinv(A.T @ A, rcond=1e-12) @ W.T
    combinations, rows = [], []
    for size in (1, 2, len(workload.groups)):
        one = {}
        for g in rng.choice(len(workload.groups), size, replace=False).tolist():
            group = workload.groups[g]
            sparse = rng.random(group.shape) < rng.choice([0.1, 1.0])
            one[group.name] = rng.normal(size=group.shape) * sparse
        combinations.append(one)
        rows.append(
            np.concatenate([one.get(g.name, np.zeros(g.shape)).ravel() for g in workload.groups])
        )
    c = np.array(rows)
    expected = c @ covariance @ c.T
    stds = np.sqrt(np.diag(expected))
    found = bound_combined_stds(strategy, combinations)
    np.testing.assert_allclose(found, stds, rtol=1e-7, atol=1e-9)
    assert (found >= stds * (1 - 1e-9)).all()
    together = compute_combined_covariance(strategy, combinations)
    np.testing.assert_allclose(together, expected, atol=1e-7 * stds.max() ** 2)


@pytest.mark.parametrize("kind", KINDS[::3])
def test_the_covariance_is_written_out(kind) -> None:
    _, strategy = make(5, kind)
    A = write_out(strategy).astype(float)
    covariance, basis = build_dense_covariance(strategy, 3.0)
    assert np.linalg.matrix_rank(basis) == len(basis)
    sigma = 9 * np.linalg.pinv(A.T @ A, rcond=1e-12)
    np.testing.assert_allclose(
        basis @ sigma @ basis.T, covariance, atol=1e-7 * np.abs(covariance).max()
    )
    np.testing.assert_allclose(A @ np.linalg.pinv(basis) @ basis, A, atol=1e-6)


@pytest.mark.parametrize("most", [2**20, 2**51])
@pytest.mark.parametrize("kind", KINDS[::3])
def test_answers_are_exact_for_every_integer(kind, most) -> None:
    rng, strategy = make(2, kind, most)
    A = write_out(strategy)
    assert strategy.sensitivity_squared == max((A * A).sum(axis=0))
    for largest in (2**20, 2**40, 2**62):
        x = rng.integers(-largest, largest, strategy.structure.workload.shape, endpoint=True)
        read = reader(strategy, x.astype(object))

        def read_counts(names, read=read):
            # Marginals are those of int64 counts, so they fit; others have no exact counts.
            return np.clip(read(names), -(2**63), 2**63 - 1).astype(np.int64)

        if largest == 2**62:
            continue
        expected = A @ x.ravel().astype(object)
        expected = np.clip(expected, -(2**62), 2**62).astype(np.int64)
        np.testing.assert_array_equal(answer_exactly(strategy, read_counts), expected)
