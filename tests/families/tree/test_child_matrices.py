"""What is measured of children, in exact rationals: [E, u] [A; 1'] = I, and bounds on its rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fitplug.errors import DesignError
from fitplug.families.tree.shape.node_tree import TreeStep
from fitplug.families.tree.strategy.child_matrices import (
    LeafMatrices,
    SiblingMatrices,
    StepMatrices,
)
from fitplug.numeric import invert_each_with_residual, multiply_exactly
from tests.helpers.exact import rationals, solve_left

NEARLY = 1 + Fraction(1, 10**9)


def invert(A):
    """[E, u] in rationals, for integers A (k - 1, k)."""
    k = A.shape[1]
    K = [[Fraction(int(v)) for v in row] for row in A] + [[Fraction(1)] * k]
    eye = np.eye(k, dtype=int).tolist()
    return [solve_left(K, [Fraction(v) for v in row]) for row in eye]


def random_matrices(seed, b, k, spread):
    """Rows whose sizes differ by up to 2^spread."""
    rng = np.random.default_rng(seed)
    scale = 2.0 ** rng.uniform(0, spread, (b, k - 1, 1))
    return np.rint(rng.normal(size=(b, k - 1, k)) * 2**12 * scale).astype(np.int64)


@pytest.mark.parametrize(("k", "spread"), [(2, 0), (3, 20), (6, 0), (6, 12), (4, 35)])
def test_variances_of_siblings_are_bounded(k, spread) -> None:
    A = random_matrices(1, 3, k, spread)
    spreads, added = SiblingMatrices(A).upper_variance_parts()
    for i, own in enumerate(A):
        for j, row in enumerate(invert(own)):
            u, E = row[-1] ** 2, sum(v * v for v in row[:-1])
            assert (
                u <= Fraction(spreads[i, j]) <= u * (1 + Fraction(1, 10**9)) + Fraction(1, 10**20)
            )
            assert E <= Fraction(added[i, j]) <= E * (1 + Fraction(1, 10**9))


@pytest.mark.parametrize("k", [2, 4, 7, 12])
def test_variances_of_identical_leaves_are_bounded(k) -> None:
    m = np.array([1, 3, 2**40])
    nodes = np.arange(3)
    step = TreeStep(0, 1, nodes, nodes[:, None] + 3, np.full(3, k))
    matrices = StepMatrices(m, np.ones((3, 1, 1), dtype=np.int64))
    spreads, added = matrices.upper_child_variances(step)
    H = LeafMatrices(np.ones(1, dtype=np.int64), k).write_out()[0].astype(object)
    precision = Fraction(int((H * H).sum()), k - 1)  # H'H = precision (I - J/k)
    for i, multiplier in enumerate(m.tolist()):
        u, E = Fraction(1, k * k), Fraction(k - 1, k) / precision / multiplier**2
        assert u <= Fraction(spreads[i, 0]) <= u * (1 + Fraction(1, 10**12))
        assert E <= Fraction(added[i, 0]) <= E * (1 + Fraction(1, 10**12))
    near, positions = matrices.estimate_child_squares(step), np.array([2, 0])
    exact = matrices.square_children(step, positions, np.zeros(2, dtype=np.int64))
    assert exact.tolist() == [m[i].item() ** 2 * sum(H[:, 0] ** 2) for i in positions]
    np.testing.assert_allclose(near[positions, 0], exact.astype(float), rtol=1e-14)


@pytest.mark.parametrize(
    "matrices",
    [
        SiblingMatrices(random_matrices(2, 4, 5, 10)),
        LeafMatrices(np.array([1, 5, 900, 2**30]), 5),
        LeafMatrices(np.array([1, 5, 900, 2**30]), 8),
    ],
)
def test_children_are_what_is_measured_of_them(matrices) -> None:
    rng = np.random.default_rng(3)
    A = matrices.write_out()
    k = A.shape[2]
    x = rng.integers(-99, 99, (4, k, 2))
    y = matrices.apply(x)
    np.testing.assert_array_equal(y, A @ x)
    total = x.sum(axis=1, keepdims=True)
    u = matrices.reference[:, :, None]
    np.testing.assert_allclose(matrices.invert(y.astype(float)) + u * total, x, atol=1e-6)
    np.testing.assert_array_equal(
        matrices.apply(x.astype(object) * 2**70), A.astype(object) @ (x.astype(object) * 2**70)
    )
    # The adjoint is one up to an isometry, so inner products of what it makes are those of E'.
    E = matrices.invert(np.tile(np.eye(A.shape[1]), (4, 1, 1)))
    g = rng.normal(size=(4, k, 3))
    found = matrices.adjoint(g)
    expected = g.swapaxes(1, 2) @ E @ E.swapaxes(1, 2) @ g
    size = np.abs(expected).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(found.swapaxes(1, 2) @ found / size, expected / size, atol=1e-12)
    norms = matrices.norms
    assert (norms.contrasts >= np.linalg.norm(E, 2, axis=(1, 2)) * (1 - 1e-12)).all()
    assert (norms.reference >= np.linalg.norm(matrices.reference, axis=1) * (1 - 1e-12)).all()


def test_errors_of_inverses_are_bounded() -> None:
    A = random_matrices(4, 3, 5, 16)
    matrices = SiblingMatrices(A)
    E = matrices.invert(np.tile(np.eye(4), (3, 1, 1)))
    for i, own in enumerate(A):
        exact, norms = np.array(invert(own)), matrices.norms
        off = exact[:, :-1] - np.array(rationals(E[i]))
        assert math.hypot(*map(float, off.ravel())) <= norms.contrasts_error[i]
        off = exact[:, -1] - np.array(rationals(matrices.reference[i][None]))[0]
        assert math.hypot(*map(float, off)) <= norms.reference_error[i]


def test_some_nodes_have_the_inverses_of_all() -> None:
    matrices = SiblingMatrices(random_matrices(5, 6, 4, 3))
    some = matrices.take(np.array([1, 4]))
    np.testing.assert_array_equal(some.reference, matrices.reference[[1, 4]])
    np.testing.assert_array_equal(some.norms.contrasts, matrices.norms.contrasts[[1, 4]])
    assert matrices.take(np.arange(6)) is matrices


def test_residuals_of_inverses_are_bounded() -> None:
    rng = np.random.default_rng(6)
    K = rng.normal(size=(5, 4, 4)) * 2.0 ** rng.integers(-9, 9, (5, 4, 1))
    X, residuals = invert_each_with_residual(K)
    for own, inverse, bound in zip(K, X, residuals.tolist(), strict=True):
        product = np.array(rationals(own)) @ np.array(rationals(inverse))
        off = product - np.eye(4, dtype=int)
        assert float(sum((off * off).ravel())) <= bound**2
        assert bound < 1e-9
    for singular in (np.zeros((1, 2, 2)), np.array([np.eye(2), np.ones((2, 2))])):
        with pytest.raises(DesignError, match="too ill-conditioned"):
            invert_each_with_residual(singular)


@pytest.mark.parametrize("largest", [9, 2**30, 2**45])
def test_stacks_of_integers_are_multiplied_exactly(largest) -> None:
    rng = np.random.default_rng(7)
    a = rng.integers(-largest, largest, (3, 2, 4))
    b = rng.integers(-9, 9, (3, 4, 5)) * rng.choice([1, largest], (3, 4, 1))
    expected = a.astype(object) @ b.astype(object)
    assert multiply_exactly(a, b).tolist() == expected.tolist()
    assert multiply_exactly(b.swapaxes(1, 2), a.swapaxes(1, 2)).tolist() == (
        expected.swapaxes(1, 2).tolist()
    )
