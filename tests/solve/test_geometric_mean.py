"""The geometric mean against its definition, in every form that a reduced workload takes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from fitplug.solve.dual import evaluate_dual, evaluate_numbers
from fitplug.solve.geometric_mean import compute_mean
from fitplug.solve.problem import Block, Problem, reduce_matrix
from tests.helpers.workloads import all_ranges, kron, marginals, prefix, small

RNG = np.random.default_rng(20261120)
WORKLOADS = {
    "cells as the basis": all_ranges(8),
    "some cells alike, some never queried": np.repeat(
        np.hstack([prefix(5), np.zeros((5, 1))]), 2, 1
    ),
    "queries as the basis": RNG.normal(size=(5, 9)),
    "queries as the basis, cells alike": np.repeat(RNG.normal(size=(5, 7)), 2, axis=1),
    "neither": marginals([3, 4], 1),
    "neither, cells alike": np.repeat(marginals([3, 4], 1), 2, axis=1),
}


@pytest.fixture(params=WORKLOADS.values(), ids=WORKLOADS.keys())
def case(request):
    W = request.param
    rng = np.random.default_rng(1)
    c = rng.uniform(1, 10, len(W))
    p, q = rng.dirichlet(np.ones(W.shape[1])), rng.dirichlet(np.ones(len(W)))
    return W, c, p, q


def assert_is_the_mean(found, block, p, q, rtol=1e-9):
    B, L = block.basis, block.representation
    inverse = found.compute_whitener()
    F = np.linalg.inv(inverse)
    S, precision = F @ F.T, inverse.T @ inverse
    P, Q = (B * p) @ B.T, (L.T * q[block.rows]) @ L
    np.testing.assert_allclose(S @ Q @ S, P, rtol=rtol, atol=rtol * np.abs(P).max())
    assert found.value == pytest.approx(np.trace(P @ precision), rel=rtol)
    assert found.value == pytest.approx(np.trace(Q @ S), rel=rtol)
    np.testing.assert_allclose(found.profile, ((inverse @ B) ** 2).sum(axis=0), rtol=rtol)
    np.testing.assert_allclose(found.ratios, ((L @ F) ** 2).sum(axis=1), rtol=rtol)


def test_it_is_what_it_says(case):
    W, c, p, q = case
    (block,) = reduce_matrix(W, c)[0].blocks
    found = compute_mean(block, p, q)
    assert_is_the_mean(found, block, p, q)
    nuclear = np.linalg.svd(np.sqrt(q / c)[:, None] * W * np.sqrt(p), compute_uv=False).sum()
    assert found.value == pytest.approx(nuclear, rel=1e-12)


def test_a_block_of_some_rows_with_a_weight(case):
    W, c, p, q = case
    (block,) = reduce_matrix(W, c)[0].blocks
    m = len(W)
    part = Block(0.5 * block.basis, 1 + np.arange(m), block.representation)
    longer = np.concatenate([[0.5], q / 2, [0.5]])
    found = compute_mean(part, p, longer)
    assert_is_the_mean(found, part, p, longer)
    # A quarter of the weight p, and half of q: the same mean but for a factor.
    assert found.value == pytest.approx(0.5 * 0.5**0.5 * compute_mean(block, p, q).value, rel=1e-9)


def test_budgets_of_the_cells_scale_the_basis(case):
    W, c, p, q = case
    budgets = np.random.default_rng(2).uniform(0.1, 10, W.shape[1])
    (block,) = reduce_matrix(W, c)[0].divide_profile(budgets).blocks
    assert_is_the_mean(compute_mean(block, p, q), block, p, q)


@pytest.mark.parametrize(
    "W", [prefix(24), all_ranges(24)[::7], kron(np.ones((2, 1)), [[1.0, 2.0]], prefix(24))]
)
def test_singular_values_far_apart_survive(W):
    c = 10.0 ** np.random.default_rng(3).uniform(-8, 8, len(W))
    p = 10.0 ** np.random.default_rng(4).uniform(-12, 0, W.shape[1])
    (block,) = reduce_matrix(W, c)[0].blocks
    found = compute_mean(block, p, np.ones(len(W)))
    k = len(block.basis)
    singular = np.linalg.svd(W / np.sqrt(c)[:, None] * np.sqrt(p), compute_uv=False)[:k]
    assert singular[-1] < 1e-9 * singular[0], "beyond what squares in floating point can tell"
    assert found.value == pytest.approx(singular.sum(), rel=1e-14)
    ours = np.sort((found.compute_whitener() @ block.basis) ** 2 @ p)[::-1]
    kept = singular > 1e-12 * singular[0]
    np.testing.assert_allclose(ours[kept], singular[kept], rtol=1e-3)


def test_numbers_are_blocks_of_one_number_each():
    rng = np.random.default_rng(7)
    shares = rng.uniform(0.1, 2, (6, 9)) * (rng.random((6, 9)) < 0.5)
    shares[rng.integers(0, 6, 9), np.arange(9)] += 1
    weight, p, q = rng.uniform(0.5, 2, 9), np.array([0.7]), rng.dirichlet(np.ones(6))
    blocks = []
    for w, column in zip(weight, shares.T, strict=True):
        rows = np.flatnonzero(column)
        blocks.append(Block(np.array([[np.sqrt(w)]]), rows, np.sqrt(column[rows])[:, None]))
    together = evaluate_numbers(weight[:, None], csr_array(shares), p, q)
    apart = evaluate_dual(Problem(1, 6, tuple(blocks)), p, q)
    for what in ("value", "profile", "ratios"):
        np.testing.assert_allclose(getattr(together, what), getattr(apart, what), rtol=1e-12)
    roots = np.array([whitener[0, 0] for whitener in apart.whiteners])
    np.testing.assert_allclose(together.whiteners[0], roots, rtol=1e-12)
    s = 1 / together.whiteners[0] ** 2
    np.testing.assert_allclose(s * (shares.T @ q) * s, weight * p, rtol=1e-12)


@pytest.mark.parametrize(("name", "W", "c"), small(), ids=[s[0] for s in small()])
def test_the_reduced_problem_is_the_workload(name, W, c):
    problem, independent = reduce_matrix(W, c)
    (block,) = problem.blocks
    W_over = W / np.sqrt(c)[:, None]
    scale = np.abs(W_over).max(axis=1, keepdims=True)
    assert (np.abs(block.representation @ block.basis - W_over) <= 1e-13 * scale).all()
    rank = np.linalg.matrix_rank(W / np.maximum(np.abs(W).max(axis=1, keepdims=True), 1e-300))
    assert len(block.basis) == len(independent) == rank
    assert np.linalg.matrix_rank(W[independent]) == rank
