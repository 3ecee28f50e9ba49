"""Trees against dense matrices, in floats and in exact rationals, and against the dense optimum."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy.linalg import helmert

from fitplug.domain import get_codec
from fitplug.domain.hierarchy import Hierarchy
from fitplug.errors import DesignError, DomainError
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.base.tree_shape import find_tree_shape
from fitplug.families.product.certificate.factor_pinching import pinch_tree
from fitplug.families.product.design.cell_ascent import share_among_nodes
from fitplug.families.product.design.dense_covariance import DenseCovariance
from fitplug.families.product.design.tree_covariance import TreeCovariance, optimise_tree
from fitplug.families.product.shape.batches import classify_nodes
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.solve import dual
from fitplug.solve.problem import reduce_matrix
from tests.helpers.exact import (
    branching,
    integer_matrix,
    least_variance,
    nodes_of,
    rationals,
    solve_left,
)

NAMES = ("a", "b", "c", "d")


def hierarchy(children):
    """Per level, of every node above in turn, its number of children."""
    paths = [()]
    for depth, counts in enumerate(children):
        labels = (f"{NAMES[depth]}{i}" for i in itertools.count())
        paths = [
            (*path, next(labels)) for path, k in zip(paths, counts, strict=True) for _ in range(k)
        ]
    return Hierarchy(NAMES[: len(children)], paths)


def random_hierarchy(rng, depth, sizes):
    children, nodes = [], 1
    for _ in range(depth):
        children.append(rng.choice(sizes, nodes).tolist())
        nodes = sum(children[-1])
    return hierarchy(children)


@st.composite
def trees(draw, most=60, sizes=(1, 1, 2, 3, 4, 5, 12)):
    """A hierarchy, the levels asked for, and the shape, its top chosen or not."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    geo = random_hierarchy(rng, draw(st.integers(1, 4)), sizes)
    assume(geo.size <= most)
    names = (*geo.levels[:-1], draw(st.sampled_from([geo.levels[-1], "identity"])))
    asked = draw(st.sets(st.sampled_from(names), min_size=1))
    finest = max(map(names.index, asked))
    top = draw(st.sampled_from([None, *geo.levels[: finest + 1]]))
    shape = find_tree_shape(geo, asked, most=draw(st.sampled_from([0, 3, 600])), top=top)
    return rng, geo, sorted(asked), shape


def indicator(geo, level):
    """The rows of a level over the leaves."""
    if level == "total":
        return np.ones((1, geo.size))
    first, last = (
        get_codec(geo).intervals(geo.levels[-1] if level == "identity" else level).T[:, :, None]
    )
    cell = np.arange(geo.size)
    return ((first <= cell) & (cell <= last)).astype(float)


def even_spread(shape, depth):
    """How nodes of a depth spread over the leaves (n, nodes)."""
    spread = np.eye(len(shape.first[depth]))
    for at in range(depth, shape.steps):
        step = nodes_of(shape, at + 1) @ nodes_of(shape, at).T > 0
        spread = (step / step.sum(axis=0)) @ spread
    return spread


def dense(split):
    """u (n,), C and Y (n, n)."""
    shape, (N,), (K,) = split.shape, split.top.estimates, split.top.precisions
    S, lift = nodes_of(shape, 0), even_spread(shape, 0)
    u = lift @ split.top.reference
    C = lift @ N @ N.T @ lift.T
    Y = S.T @ K.T @ K @ S
    for c, R in zip(split.scales, branching(shape), strict=True):
        k = len(R)
        centre = np.eye(k) - 1 / k
        # The children spread as their depth does: found by any depth at which they are nodes.
        depth = next(d for d in range(shape.steps + 1) if (nodes_of(shape, d) == R[0]).all(1).any())
        places = [int(np.flatnonzero((nodes_of(shape, depth) == r).all(1))[0]) for r in R]
        E = even_spread(shape, depth)[:, places]
        C += c * E @ centre @ E.T
        Y += R.T @ centre @ R / c
    return u, C, Y


def ask(level):
    return SimpleNamespace(factor=SimpleNamespace(kind=level))


def random_split(rng, shape):
    P = shape.top
    N = np.linalg.qr(np.column_stack([np.ones(P), rng.standard_normal((P, P - 1))]))[0][:, 1:]
    root = rng.standard_normal((P - 1, P - 1)) + 2 * np.eye(P - 1)
    top = DenseCovariance.of_contrasts(N, 0.1 * rng.standard_normal(P - 1), root @ root.T)
    return TreeCovariance(shape, top, rng.uniform(0.1, 3, shape.branching))


def random_integers(rng, shape, bits):
    """Rows of A_T of any size up to 2^bits, and multipliers from 1 to 2^bits."""
    P = shape.top
    matrix = rng.integers(-(2**bits), 2**bits, (P - 1, P), endpoint=True)
    assume(P == 1 or np.linalg.cond(np.vstack([matrix / 2**bits, np.ones(P)])) < 1e4)
    m = 2 ** rng.integers(0, bits, shape.branching, endpoint=True)
    return TreeMatrix(shape, DenseMatrix(matrix), m + rng.integers(0, m))


class TestShape:
    @given(trees())
    def test_its_nodes_are_the_levels(self, drawn):
        rng, geo, asked, shape = drawn
        assert shape.n == geo.size
        assert len(shape.first[-1]) == geo.size
        S = nodes_of(shape, 0)
        for level in (*asked, "total"):
            W = indicator(geo, level)
            assert shape.count_nodes(level) == len(W)
            if level in shape.above:
                np.testing.assert_array_equal(shape.build_top_rows(level) @ S, W)
            else:
                np.testing.assert_array_equal(nodes_of(shape, shape.depths[level]), W)
                x = rng.integers(0, 9, (2, geo.size))
                np.testing.assert_array_equal(shape.sum_leaves(x, shape.depths[level]), x @ W.T)
        for step, k in enumerate(shape.children):
            linked = nodes_of(shape, step) @ nodes_of(shape, step + 1).T > 0
            np.testing.assert_array_equal(k, linked.sum(axis=1))
            np.testing.assert_array_equal(shape.parents[step], linked.argmax(axis=0))
            np.testing.assert_array_equal(shape.first_children[step], linked.argmax(axis=1))
        assert shape.branching == len(list(branching(shape)))

    def test_the_top_is_the_second_finest_level_unless_too_large(self):
        geo = random_hierarchy(np.random.default_rng(0), 4, [3])

        def sizes(asked, **chosen):
            return [len(first) for first in find_tree_shape(geo, asked, **chosen).first]

        assert sizes(["b", "identity"]) == [9, 81]
        assert sizes(["a", "d", "total"]) == [3, 81]
        assert sizes(["a", "c"]) == [3, 27, 81]  # below c there are leaves that nobody asks for
        assert sizes(["identity"]) == sizes([]) == [1, 81]
        assert sizes(["c", "identity"], most=9) == [9, 27, 81]
        assert sizes(["b", "identity"], most=2) == [1, 9, 81]
        assert sizes(["a", "identity"], top="d") == [81]
        assert find_tree_shape(geo, ["a", "c"]).deepest == 1
        with pytest.raises(DomainError, match="unknown level 'e'"):
            find_tree_shape(geo, ["e"])
        with pytest.raises(DomainError, match="finer than all levels"):
            find_tree_shape(geo, ["b"], top="c")

    def test_a_single_child_is_no_branch(self):
        shape = find_tree_shape(hierarchy([[2], [1, 1], [1, 3]]), ["a", "b", "c"], top="a")
        assert [len(first) for first in shape.first] == [2, 4]
        assert shape.depths == {"a": 0, "b": 0, "c": 1, "identity": 1}
        assert shape.branching == 1


class TestRealSplit:
    @given(trees())
    def test_it_is_that_of_dense_matrices(self, drawn):
        rng, geo, asked, shape = drawn
        split = random_split(rng, shape)
        u, C, Y = dense(split)
        size = np.abs(C).max() * np.abs(Y).max() + 1
        ones = np.ones(geo.size)
        assert u.sum() == pytest.approx(1)
        np.testing.assert_allclose(Y @ C, np.eye(geo.size) - np.outer(ones, u), atol=1e-12 * size)
        np.testing.assert_allclose(Y @ u, 0, atol=1e-12 * np.abs(Y).max())
        np.testing.assert_allclose(split.compute_eta()[:, 0], np.diag(Y), rtol=1e-9)
        for level in (*asked, "total"):
            W = indicator(geo, level)
            expected = np.stack([(W @ u) ** 2, ((W @ C) * W).sum(axis=1)], axis=1)
            np.testing.assert_allclose(
                split.compute_variance_parts(ask(level)), expected, rtol=1e-8, atol=1e-12
            )

    @given(trees(most=30))
    def test_descent_finds_the_least_lagrangian(self, drawn):
        rng, geo, asked, shape = drawn
        split = random_split(rng, shape)
        p, price = rng.dirichlet(np.ones(geo.size)), rng.uniform(0.5, 2)
        asked = [*asked, "total"]
        weights = [(level, rng.uniform(0.1, 1, (shape.count_nodes(level), 2))) for level in asked]
        found = split.descend_levels(price * p, weights)

        def cost(scales, top=found.top):
            other = TreeCovariance(shape, top, scales)
            moments = sum(
                (w * other.compute_variance_parts(ask(level))).sum() for level, w in weights
            )
            return price * (p @ other.compute_eta()[:, 0]) + moments

        needed = np.isfinite(found.scales)
        if shape.depths.get("identity") == shape.steps:
            assert needed.all()
        least = cost(found.scales)
        for v in np.flatnonzero(needed):
            for change in (0.99, 1.01):
                scales = found.scales.copy()
                scales[v] *= change
                assert cost(scales) > least
        # First C, then u: each is the best that the others leave.
        best_C = found.top.move(split.top.reference - found.top.reference)
        assert least <= cost(found.scales, best_C) * (1 + 1e-12)
        assert cost(found.scales, best_C) <= cost(found.scales, split.top) * (1 + 1e-12)

    def test_the_integer_split_next_to_it(self):
        rng = np.random.default_rng(3)
        geo = random_hierarchy(rng, 3, [1, 2, 5, 12])
        for asked in (["a", "b", "identity"], ["b", "identity"], ["identity"]):
            shape = find_tree_shape(geo, asked, most=6)
            split = random_split(rng, shape)
            bits = 45 if "a" in asked else 30
            own = split.round_to_integers([], bits)
            unit = split.compute_eta().max() / own.column_square
            assert math.log2(own.column_square) == pytest.approx(2 * bits, abs=1e-6)
            np.testing.assert_allclose(
                (own.compute_column_squares() * unit).astype(float),
                split.compute_eta()[:, 0],
                rtol=1e-6,
            )
            for level in asked:
                ours = own.upper_variance_parts(ask(level).factor) / [1, unit]
                np.testing.assert_allclose(
                    ours, split.compute_variance_parts(ask(level)), rtol=1e-6
                )

    def test_bits_that_lose_a_contrast_are_refused(self):
        shape = find_tree_shape(hierarchy([[3], [2, 2, 2]]), ["a", "b"])
        top = DenseCovariance.of_contrasts(helmert(3).T, np.zeros(2), np.diag([1.0, 1e12]))
        with pytest.raises(DesignError, match="could not be rounded to integers"):
            TreeCovariance(shape, top, np.ones(3)).round_to_integers([], 4)


class TestIntegerSplit:
    @given(trees(), st.sampled_from([3, 20, 40]))
    def test_it_is_exact(self, drawn, bits):
        rng, geo, _, shape = drawn
        own = random_integers(rng, shape, bits)
        A = integer_matrix(own)
        n = geo.size
        assert (own.n, own.rows) == (n, len(A)) == (A.shape[1], own.rows)
        squares = (A * A).sum(axis=0) if len(A) else np.zeros(n, dtype=object)
        assert own.compute_column_squares().tolist() == squares.tolist()
        assert own.column_square == max(squares.tolist())
        assert own.largest_entry == (np.abs(A).max() if A.size else 0)
        assert own.growth >= (np.abs(A).sum(axis=1).max() if A.size else 0)
        fit = (2**63 - 1) // max(own.growth, 2)
        for size in (9, 2**20, fit, 2**62):
            x = rng.integers(-size, size, (2, n, 3), endpoint=True)
            y = own.apply(x, 1)
            assert (y == np.einsum("ri,aib->arb", A, x.astype(object))).all()
            assert y.dtype == (np.int64 if own.growth * int(np.abs(x).max()) < 2**63 else object)
        huge = x.astype(object) * 2**70
        assert (own.apply(huge, 1) == np.einsum("ri,aib->arb", A, huge)).all()

    @given(trees(), st.sampled_from([3, 20, 40]))
    def test_estimates_and_the_total_are_the_leaves(self, drawn, bits):
        rng, geo, _, shape = drawn
        own = random_integers(rng, shape, bits)
        x = rng.integers(0, 99, (geo.size, 2))
        found = own.invert(own.apply(x, 0), 0) + np.outer(own.compute_reference(), x.sum(axis=0))
        np.testing.assert_allclose(found, x, atol=1e-7 * np.abs(x).sum())
        z = rng.standard_normal((3, own.rows))
        np.testing.assert_allclose(own.invert(z, 1).sum(axis=1), 0, atol=1e-9)

    @given(trees(most=30), st.sampled_from([3, 20]))
    def test_adjoint_has_the_norms_of_the_inverse(self, drawn, bits):
        rng, _, _, shape = drawn
        own = random_integers(rng, shape, bits)
        E = own.invert(np.eye(own.rows), 0)
        x = rng.standard_normal((own.n, 3))
        ours, expected = own.adjoint(x, 0), E.T @ x
        np.testing.assert_allclose(ours.T @ ours, expected.T @ expected, rtol=1e-7, atol=1e-12)

    @given(trees(most=9, sizes=(1, 2, 3, 4)), st.sampled_from([3, 20]))
    def test_moments_lie_above_the_exact_ones(self, drawn, bits):
        rng, geo, asked, shape = drawn
        own = random_integers(rng, shape, bits)
        A = rationals(integer_matrix(own))
        K = np.vstack([own.top.matrix, np.ones((1, shape.top), dtype=np.int64)])
        u = solve_left(rationals(K.T), [Fraction(0)] * (shape.top - 1) + [Fraction(1)])
        for k, parents in zip(shape.children, shape.parents, strict=True):
            u = [u[v] / int(k[v]) for v in parents]
        if A:
            assert not any(sum(a * b for a, b in zip(row, u, strict=True)) for row in A)
        for level in (*asked, "total"):
            for row, (square, gamma) in zip(
                rationals(indicator(geo, level)),
                own.upper_variance_parts(ask(level).factor),
                strict=True,
            ):
                mu = sum(a * b for a, b in zip(row, u, strict=True))
                rest = [a - mu for a in row]
                least = least_variance(A, rest) if A else Fraction(0)
                size = mu**2 + least * 4**bits
                assert 0 <= Fraction(float(square)) - mu**2 <= Fraction(1, 10**9) * size
                assert 0 <= Fraction(float(gamma)) - least <= Fraction(1, 10**9) * size / 4**bits

    def test_a_lost_contrast_is_refused(self):
        shape = find_tree_shape(hierarchy([[2], [2, 3]]), ["a", "b"])
        A, m = np.array([[1, -1]]), np.array([1, 2])
        assert TreeMatrix(shape, DenseMatrix(A), m).rows == 1 + 1 + 3
        with pytest.raises(DesignError, match="ill-conditioned"):
            TreeMatrix(shape, DenseMatrix(np.array([[1, 1]])), m).upper_variance_parts(
                ask("b").factor
            )


def stacked(geo, targets):
    W = [indicator(geo, level) for level in targets]
    c = [np.full(len(w), target) for w, target in zip(W, targets.values(), strict=True)]
    return np.concatenate(W), np.concatenate(c)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("targets", "chosen", "above"),
    [
        ({"b": 1.0, "identity": 3.0}, {}, 1e-4),
        ({"identity": 3.0, "a": 2.0}, {}, 1e-4),
        ({"a": 1.0, "b": 1.0}, {}, 1e-4),
        ({"identity": 1.0}, {}, 1e-4),
        ({"a": 2.0, "b": 1.0, "identity": 1.0}, {"top": "c"}, 1e-4),
        ({"a": 1.0, "b": 1.5, "identity": 4.0}, {"top": "a"}, 0.02),
        ({"a": 1.0, "b": 1.5, "identity": 4.0}, {"most": 2}, 0.02),
    ],
)
@pytest.mark.parametrize("summed", [False, True])
def test_alone_is_the_dense_optimum(targets, chosen, above, summed):
    geo = random_hierarchy(np.random.default_rng(5), 3, [3, 4, 5, 7])
    shape = find_tree_shape(geo, list(targets), **chosen)
    found = optimise_tree(shape, targets, summed)
    every = targets | ({"total": 1.0} if summed else {})
    W, c = stacked(geo, every)
    problem, _ = reduce_matrix(W, c)
    optimum = dual.solve_dual(problem, tolerance=2e-5, max_iterations=2000)
    assert optimum.lower * (1 - 1e-9) <= found.upper <= optimum.upper * (1 + above)
    if above == 1e-4:
        assert found.lower <= optimum.upper * (1 + 1e-9)
    assert found.cells.shape == (geo.size,)
    assert found.cells.sum() == pytest.approx(1)
    assert {level: len(q) for level, q in found.queries.items()} == {
        level: shape.count_nodes(level) for level in every
    }
    q = np.concatenate([found.queries[level] for level in every])
    dense_dual = np.linalg.norm(np.sqrt(q / c)[:, None] * W * np.sqrt(found.cells), "nuc")
    assert dense_dual <= optimum.upper * (1 + 1e-9)
    if above == 1e-4:
        assert dense_dual == pytest.approx(found.lower, rel=1e-9)
    # The split with the total's variance that is best for it costs what it says.
    split = TreeCovariance(shape, found.top, found.scales)
    moments = (
        np.concatenate([split.compute_variance_parts(ask(level)) for level in every]) / c[:, None]
    )
    eta = split.compute_eta().max()

    def cost(total):
        return math.sqrt((eta + 1 / total) * (moments @ [total, 1]).max())

    totals = np.geomspace(1e-3, 1e3, 4001)
    assert min(map(cost, totals)) == pytest.approx(found.upper, rel=1e-4)
    # And a step of the descent finds nothing better, with the total's part in mu's weights.
    weights = {level: q / every[level] for level, q in found.queries.items()}
    price, seen = (
        found.upper**-2,
        [w @ split.compute_variance_parts(ask(at))[:, 0] for at, w in weights.items()],
    )
    total = math.sqrt(price / sum(seen))
    asked = [(level, np.stack([total * w, w], axis=1)) for level, w in weights.items()]
    again = split.descend_levels(price * found.cells, asked)
    before, after = (
        price * (found.cells @ s.compute_eta())
        + sum((w * s.compute_variance_parts(ask(at))).sum() for at, w in asked)
        for s in (split, again)
    )
    assert after <= before <= after * (1 + 1e-4)


def project_contrasts(shape, p, depth, node):
    """The projection onto the contrasts of a node's children, for leaves of weight p, (n, n)."""

    def unit(of):
        return np.sqrt(of * p / (of @ p))

    at, inside = nodes_of(shape, depth)[node], nodes_of(shape, depth + 1)
    columns = [unit(child) for child in inside if child @ at]
    return sum(np.outer(s, s) for s in columns) - np.outer(unit(at), unit(at))


@given(trees(most=40))
def test_what_nodes_add_is_what_the_rows_of_a_dense_matrix_add(drawn):
    rng, geo, asked, shape = drawn
    p = rng.dirichlet(np.ones(geo.size))
    classes, count = classify_nodes(shape, int(rng.integers(1, 99)))
    on_top, on_nodes = rng.uniform(size=shape.top), rng.uniform(size=count)
    for level in set(asked) & set(shape.depths):
        y = rng.uniform(0.1, 1, shape.count_nodes(level))
        polar = indicator(geo, level) * np.sqrt(p)
        X = np.sqrt(y)[:, None] * polar
        polar /= np.linalg.norm(polar, axis=1, keepdims=True)
        columns = nodes_of(shape, 0) * np.sqrt(p)
        columns /= np.linalg.norm(columns, axis=1, keepdims=True)
        Z = polar @ (columns.T * on_top) @ columns
        for step in range(shape.steps):
            for v in np.flatnonzero(shape.children[step] > 1):
                Z += on_nodes[classes[step][v]] * polar @ project_contrasts(shape, p, step, v)
        found = share_among_nodes(shape, p, y, level, classes, (on_top, on_nodes))
        np.testing.assert_allclose(found, (Z * X).sum(axis=1), rtol=1e-9, atol=1e-12)
        # A node's part goes to its leaves in proportion to their weights.
        leaves = (found / (indicator(geo, level) @ p)) @ indicator(geo, level) * p
        np.testing.assert_allclose(leaves, (Z * X).sum(axis=0), rtol=1e-9, atol=1e-12)


class TestPinching:
    @given(trees(most=40), st.booleans(), st.sampled_from([1, 2, 99]))
    def test_it_is_below_the_nuclear_norm(self, drawn, alike, most):
        rng, geo, asked, shape = drawn
        p = rng.dirichlet(np.ones(geo.size))
        if alike:
            p = even_spread(shape, 0) @ rng.uniform(0.1, 1, shape.top)
        classes = classify_nodes(shape, most)
        assert classes[1] == min(most, shape.branching)
        dense, collapsed, loose = [], [], []
        for level in asked:
            y = rng.uniform(0.1, 1, shape.count_nodes(level))
            if alike and level in shape.depths:
                of_top = nodes_of(shape, shape.depths[level]) @ nodes_of(shape, 0).T > 0
                y = y[: shape.top][of_top.argmax(axis=1)]
            X = np.sqrt(y)[:, None] * indicator(geo, level) * np.sqrt(p)
            part, rests = pinch_tree(shape, p, y, level, classes)
            assert (rests >= 0).all()
            assert rests.shape == (len(part), classes[1])
            one = np.linalg.norm(part, "nuc") + rests.sum()
            assert one == pytest.approx(np.linalg.norm(X, "nuc"))
            polar = indicator(geo, level) * np.sqrt(p)
            polar /= np.linalg.norm(polar, axis=1, keepdims=True)
            expected = np.zeros(classes[1])
            for step in range(shape.depths.get(level, 0)):
                for v in np.flatnonzero(shape.children[step] > 1):
                    E = project_contrasts(shape, p, step, v)
                    expected[classes[0][step][v]] += np.sum((polar @ E) * X)
            np.testing.assert_allclose(rests.sum(axis=0), expected, rtol=1e-9, atol=1e-12)
            dense.append(X)
            collapsed.append(part)
            loose.append(rests.sum(axis=0))
        bound = np.linalg.norm(np.concatenate(collapsed), "nuc")
        bound += np.linalg.norm(loose, axis=0).sum()
        exact = np.linalg.norm(np.concatenate(dense), "nuc")
        assert bound <= exact * (1 + 1e-9)
        if alike and shape.deepest <= 1 and np.count_nonzero(np.sum(loose, axis=1)) <= 1:
            assert bound == pytest.approx(exact)
