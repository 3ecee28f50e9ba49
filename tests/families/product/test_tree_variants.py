"""Variants of trees: blocks measure the children of a node with weights of their own."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.families import analysis
from fitplug.families.base import tree_shape
from fitplug.families.base.tree_shape import TreeShape, find_tree_shape
from fitplug.families.blocks.shape import pairs
from fitplug.families.product.shape import grades
from fitplug.families.product.shape.grades import has_unequal_children
from fitplug.families.product.strategy.node_trees import (
    NodeTreeMatrix,
    TreeVariants,
    count_weights,
)
from fitplug.families.product.strategy.weighted_contrasts import WeightedContrasts
from fitplug.testing import check_plan
from fitplug.workload import Factor
from tests.helpers.exact import assert_exact, integer_matrix, least_variance
from tests.helpers.plans import dense


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the product for small workloads, too."""
    monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
    monkeypatch.setattr(pairs, "MOST_PAIR_CELLS", 1)
    for limit in ("MOST_CELLS", "MOST_AGAIN", "MOST_SIBLING_WORK", "MOST_TREE_WORK"):
        monkeypatch.setattr(analysis, limit, 1)


WEIGHTS = st.integers(2, 6).flatmap(
    lambda k: st.lists(st.integers(1, 1000), min_size=k, max_size=k)
)


@given(WEIGHTS)
def test_the_formulas_are_those_of_the_matrix_written_out(weights: list[int]) -> None:
    k = len(weights)
    H = np.diag(weights) @ (k * np.eye(k, dtype=np.int64) - 1)
    contrasts = WeightedContrasts(np.array([weights]))
    assert (contrasts.apply(np.eye(k, dtype=np.int64)[:, None], -1)[:, 0].T == H).all()
    assert contrasts.column_squares[0].tolist() == np.diag(H.T @ H).tolist()
    i, j = np.indices((k, k)).reshape(2, -1)
    products = contrasts.multiply_columns(np.zeros(k * k, dtype=np.int64), i, j)
    assert (products.reshape(k, k) == H.T @ H).all()
    assert contrasts.largest_entry == np.abs(H).max()
    inverse = contrasts.invert(np.eye(k)[:, None], -1)[:, 0].T
    np.testing.assert_allclose(inverse @ H, np.eye(k) - 1 / k, atol=1e-9)
    adjoint = contrasts.adjoint(np.eye(k)[:, None], -1)[:, 0]
    covariance = np.linalg.pinv((H.T @ H).astype(float), rcond=1e-13, hermitian=True)
    scale = covariance.diagonal().max()
    np.testing.assert_allclose(adjoint @ adjoint.T, covariance, atol=1e-7 * scale)
    np.testing.assert_allclose(inverse @ inverse.T, covariance, atol=1e-7 * scale)


@given(WEIGHTS)
def test_variances_are_right_to_a_few_roundings(weights: list[int]) -> None:
    k = len(weights)
    H = [[a * (k * (i == j) - 1) for j in range(k)] for i, a in enumerate(weights)]
    variances = WeightedContrasts(np.array([weights])).variances[0]
    for i, variance in enumerate(variances.tolist()):
        row = [Fraction(int(i == j)) - Fraction(1, k) for j in range(k)]
        exact = least_variance([list(map(Fraction, one)) for one in H], row)
        assert exact is not None
        assert abs(Fraction(variance) / exact - 1) <= 4 * k * Fraction(1, 2**53)


def draw_paths(rng: np.random.Generator, levels: int) -> list[tuple[str, ...]]:
    """Draw a hierarchy in which nodes have one to three children."""
    paths: list[tuple[str, ...]] = [()]
    for _ in range(levels):
        counts = rng.integers(1, 4, len(paths))
        counts[0] = 3  # some node has three children
        paths = [
            (*path, ".".join([*path[-1:], str(i)]))
            for path, count in zip(paths, counts.tolist(), strict=True)
            for i in range(count)
        ]
    return paths


def draw_tree(seed: int) -> tuple[TreeShape, tuple[str, ...], np.random.Generator]:
    """Draw a tree of two or three levels, all of which queries use."""
    rng = np.random.default_rng(seed)
    levels = ("region", "county", "tract")[: int(rng.integers(2, 4))]
    hierarchy = fp.Hierarchy(levels, draw_paths(rng, len(levels)))
    return find_tree_shape(hierarchy, levels, most=1), levels, rng


@given(st.integers(0, 2**32 - 1))
def test_the_matrix_of_a_tree_is_the_one_written_out(seed: int) -> None:
    shape, levels, rng = draw_tree(seed)
    weights = rng.integers(1, 40, (2, count_weights(shape)))
    matrix = NodeTreeMatrix.of_weights(shape, weights[0])
    A, n = integer_matrix(matrix), shape.n
    assert (matrix.apply(np.eye(n, dtype=np.int64), 1).T == A).all()
    assert matrix.grades.largest_entries.max() == np.abs(A).max()
    leaves = np.arange(n)
    i, j = np.indices((n, n)).reshape(2, -1)
    products = matrix.compute_products(i, j).toarray()
    slopes, offsets = matrix.part()
    for grade in range(shape.branching):
        rows = A[matrix.grades.rows == grade].astype(np.int64)
        squares = (rows**2).sum(axis=0)
        columns = matrix.grades.column_squares[shape.parents[-1], grade]
        assert columns.tolist() == squares.tolist()
        gram = rows.T @ rows
        assert (products[:, grade].reshape(n, n) == gram).all()
        # Leaves below different children whose columns have the same square.
        alike = (squares[:, None] == squares) & (squares > 0) & (gram < squares)
        np.testing.assert_allclose(
            gram[alike], (slopes[grade] * squares + offsets[grade])[np.nonzero(alike)[0]]
        )
    u = matrix.compute_reference()
    E = matrix.invert(np.eye(matrix.rows), 1).T
    np.testing.assert_allclose(E @ A.astype(float) + u[:, None], np.eye(n), atol=1e-9)
    variants = TreeVariants.of_weights(shape, weights, np.zeros(1, dtype=np.int64))
    assert variants.has_form(n)
    assert (variants.compute_products(leaves, leaves).toarray()[:, : shape.branching] > 0).any()
    for level in levels:
        factor = Factor(level, level, n)  # a level is found by its name
        parts = matrix.upper_variance_parts(factor)
        W = np.zeros((len(parts), n))
        W[shape.find_nodes(leaves, shape.depths[level]), leaves] = 1.0
        rows_of = W @ E
        for grade in range(shape.branching):
            exact = (rows_of[:, matrix.grades.rows == grade] ** 2).sum(axis=1)
            np.testing.assert_allclose(parts[:, 1 + grade], exact, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    ("weights", "is_one"),
    [
        ([[1, 2, 3]], True),
        ([[1, 2, 0]], False),
        ([[1, 2, -3]], False),
        ([[1, 2]], False),
        ([[1.0, 2.0, 3.0]], False),
        ([[1, 2, 2**30 // 3]], False),
    ],
)
def test_false_weights_are_recognised(weights: list[list[float]], is_one: bool) -> None:
    hierarchy = fp.Hierarchy(["r", "c"], [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")])
    shape = find_tree_shape(hierarchy, ["r", "c"], most=1)
    variants = TreeVariants.of_weights(shape, np.array(weights), np.zeros(1, dtype=np.int64))
    assert variants.has_form(4) == is_one
    assert not variants.has_form(5)


@pytest.mark.parametrize(
    ("sizes", "unequal"),
    [([1, 1, 1], False), ([2, 2, 2], False), ([1, 2], False), ([1, 2, 2], True)],
)
def test_only_unequal_children_get_weights(sizes: list[int], unequal: bool) -> None:
    paths = [(f"{i}", f"{i}.{j}") for i, size in enumerate(sizes) for j in range(size)]
    hierarchy = fp.Hierarchy(["r", "c"], paths)
    shape = find_tree_shape(hierarchy, ["r", "c"], most=1)
    assert has_unequal_children(shape) == unequal
    # Of the same nodes, queries use the states alone.
    assert not has_unequal_children(find_tree_shape(hierarchy, ["r"], most=1))


def ask_flows(sizes: tuple[int, ...]) -> fp.Workload:
    """Homes by workplaces in states of unequal size."""
    paths = [(f"{i}", f"{i}.{j}") for i, size in enumerate(sizes) for j in range(size)]
    places = fp.Hierarchy(["state", "county"], paths)
    groups = [
        fp.queries({"home": "county", "work": "county"}, std=20.0),
        fp.queries({"home": "state", "work": "state"}, std=8.0),
        fp.queries({"home": "county"}, std=6.0),
        fp.queries({"work": "county"}, std=6.0),
        fp.total(std=3.0),
    ]
    return fp.Workload(fp.Domain({"home": places, "work": places}), groups)


@pytest.mark.parametrize("unit", [fp.AddRemove(), fp.ReplaceOne()], ids=str)
def test_states_of_unequal_size_cost_little_more_than_the_optimum(
    apart: None, monkeypatch: pytest.MonkeyPatch, unit: fp.AddRemove | fp.ReplaceOne
) -> None:
    workload = ask_flows((1, 2, 9))
    plan = fp.design(workload, unit=unit)
    plan.verify()
    monkeypatch.setattr(grades, "has_unequal_children", lambda tree: False)
    without = fp.design(workload, unit=unit)
    monkeypatch.undo()
    optimum = fp.design(dense(workload), unit=unit, tolerance=1e-3)
    assert plan.rho_lower_bound <= optimum.rho
    assert optimum.rho_lower_bound <= plan.rho <= 1.08 * optimum.rho
    assert without.rho > 1.12 * optimum.rho


def check_size(plan: fp.Plan) -> None:
    """Check that every answer gets noise: what follows the first `size` numbers is public."""
    shapes = [shape for _, _, shape, _ in plan.strategy.list_blocks()]
    assert plan.strategy.size == sum(map(math.prod, shapes))


def test_variants_have_equal_numbers_of_rows() -> None:
    # Four children have contrasts of three rows where all weights are equal, and else of four.
    paths = [(f"{i}", f"{i}.{j}") for i, size in enumerate((1, 2, 3, 4)) for j in range(size)]
    shape = find_tree_shape(fp.Hierarchy(["r", "c"], paths), ["r", "c"], most=1)
    weights = np.array([[1, 1, 1, 1], [1024, 743, 743, 743]])
    variants = TreeVariants.of_weights(shape, weights, np.array([0, 1]))
    assert len({matrix.rows for matrix in variants.matrices}) == 1
    assert variants.rows == variants.of_block(1).rows


@pytest.mark.parametrize("unit", [fp.AddRemove(), fp.ReplaceOne()], ids=str)
def test_all_answers_get_noise_where_one_block_wants_equal_weights(
    apart: None, unit: fp.AddRemove | fp.ReplaceOne
) -> None:
    def draw_places(sizes: tuple[int, ...]) -> fp.Hierarchy:
        paths = [(f"{i}", f"{i}.{j}") for i, size in enumerate(sizes) for j in range(size)]
        return fp.Hierarchy(["state", "county"], paths)

    domain = fp.Domain({"home": draw_places((2, 3, 2, 3)), "work": draw_places((1, 2, 2, 2))})
    stds = np.random.default_rng(8).uniform(2, 9, 3).tolist()
    groups = [
        fp.queries({"home": "state", "work": "state"}, std=stds[0]),
        fp.queries({"home": "county"}, std=stds[1]),
        fp.total(std=2.0),
        fp.queries({"work": "county"}, std=stds[2]),
    ]
    plan = fp.design(fp.Workload(domain, groups), unit=unit, tolerance=0.05)
    weights = plan.strategy.attribute_matrices[1].arrays_in_file["weights"]
    assert isinstance(plan.strategy.attribute_matrices[1], TreeVariants)
    if unit == fp.AddRemove():
        assert any((one == one[0]).all() for one in weights)
    check_size(plan)
    check_plan(plan)
    counts = np.random.default_rng(0).integers(0, 50, domain.shape)
    release = fp.release(plan, fp.Tables(domain, {domain.names: counts}))
    assert len(release.answers) == plan.strategy.released_size
    for answers in (release.answers[1:], np.append(release.answers, 0)):
        with pytest.raises(ValueError, match="number of exact answers"):
            plan.strategy.split_answers(answers)


UNITS = [
    fp.AddRemove(),
    fp.ReplaceOne(),
    fp.ReplaceOne(within=("sex",)),
    fp.AddRemove(records=2, once_per="sex"),
]


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]
)
def test_plans_of_random_trees_claim_what_is_true(
    apart: None, unit: fp.AddRemove | fp.ReplaceOne, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    places = fp.Hierarchy(["region", "county"], draw_paths(rng, 2))
    jobs = fp.Hierarchy(["sector", "job"], [("f", "f1"), ("f", "f2"), ("g", "g1"), ("h", "h1")])
    domain = fp.Domain({"place": places, "sex": ["1", "2"], "job": jobs})
    asked = [
        {"place": "county", "job": "job", "sex": "identity"},
        {"place": "region", "job": "sector", "sex": "identity"},
        {"place": "county", "sex": "identity"},
        {"job": "sector"},
    ]
    groups = [
        fp.queries(factors, variance=float(rng.uniform(1, 9)), name=f"g{i}")
        for i, factors in enumerate(asked)
    ]
    plan = fp.design(fp.Workload(domain, [*groups, fp.total(variance=1.0)]), unit=unit)
    matrices = plan.strategy.attribute_matrices
    assert any(isinstance(matrix, TreeVariants) for matrix in matrices)
    # Rounding may take equal weights, which are exact, if they are nearly as good.
    assert seed or any(
        (one.weights != 1).any()
        for matrix in matrices
        if isinstance(matrix, TreeVariants)
        for one in matrix.matrices
    )
    check_size(plan)
    check_plan(plan)
    if unit == fp.AddRemove():
        assert_exact(plan)
