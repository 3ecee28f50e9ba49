"""Residual families against dense algebra, the dense optimum and known figures."""

import functools
import itertools
import math

import numpy as np
import pytest

from fitplug.domain import Domain, Integers
from fitplug.errors import DesignError, WorkloadError
from fitplug.factors import ranges
from fitplug.problem import reduce
from fitplug.solvers import dual, family, pinched, residual
from fitplug.workload import Workload, queries, total

PREFIX_10 = 2.471268


def domain(sizes):
    return Domain({f"a{i}": Integers(0, n - 1) for i, n in enumerate(sizes)})


def ways(sizes, most, kinds="prefix", variance=lambda size: 1.0):
    """All groups over up to `most` attributes, with the total."""
    kinds = [kinds] * len(sizes) if isinstance(kinds, str) else kinds
    groups = [total(variance=variance(0))]
    for k in range(1, most + 1):
        for chosen in itertools.combinations(range(len(sizes)), k):
            factors = {f"a{i}": kinds[i] for i in chosen}
            groups.append(queries(factors, variance=variance(k), name=str(chosen)))
    return Workload(domain(sizes), groups)


def workloads():
    """(name, workload, largest gap of upper and lower to the optimum)."""
    rng = np.random.default_rng(20261121)
    mixed = ["prefix", "all_ranges", "identity", "prefix"]
    by_size = [9.0, 4.0, 1.0, 2.0].__getitem__
    rows = rng.integers(-1, 3, (3, 4)) + 0.5
    along = [
        total(variance=2.0),
        queries({"a0": "prefix"}, variance=rng.uniform(1, 5, 5)),
        queries({"a1": "identity", "a0": "prefix"}, variance=rng.uniform(1, 5, (1, 5))),
    ]
    apart = [
        queries({"a0": "prefix", "a1": "all_ranges"}, variance=rng.uniform(1, 5, (4, 10))),
        queries({"a1": "prefix"}, variance=1.0),
    ]
    thin = [
        queries({"a0": ranges([(0, 1), (1, 3)]), "a1": "prefix"}, variance=1.0),
        queries({"a0": ranges([(2, 3)]), "a1": "total"}, variance=3.0),
    ]
    return [
        ("one attribute", ways([8], 1), 1e-4, 1e-4),
        ("two", ways([5, 6], 1), 0.03, 0.01),
        ("sizes and kinds", ways([4, 5, 3, 6], 2, mixed), 0.03, 0.02),
        ("targets by size", ways([4, 5, 3], 3, mixed, by_size), 0.01, 0.02),
        ("targets along one", Workload(domain([5, 3]), along), 0.05, 0.01),
        ("targets apart", Workload(domain([4, 4]), apart), 0.1, 0.15),
        ("rows that do not span the sum", Workload(domain([5, 6]), thin), 0.02, 0.02),
        ("a matrix", Workload(domain([4, 3]), [
            queries({"a0": rows, "a1": "identity"}, variance=1.0), total(variance=1.0)
        ]), 0.1, 0.02),
        ("an attribute of one cell", ways([1, 6, 4], 2), 0.02, 0.01),
        ("nothing but the total", Workload(domain([3]), [total(variance=4.0)]), 1e-6, 1e-6),
    ]  # fmt: skip


WORKLOADS = workloads()


@functools.cache
def solved(index):
    found = residual.solve(WORKLOADS[index][1])
    return found, pinched.lower_bound(found.layout, found.weights)


def dense_optimum(workload):
    problem, _ = reduce(workload.matrix(), workload.targets())
    found = dual.solve(problem, tolerance=1e-6, max_iterations=5000)
    return found.lower, found.upper


def references(split, n):
    """u and C (n, n) of a split, C on the contrasts that it knows."""
    if isinstance(split, family.Symmetric):
        return np.full(n, 1 / n), np.eye(n) - 1 / n
    u = 1 / n + split.contrasts @ split.reference
    return u, split.contrasts @ split.covariance @ split.contrasts.T


def covariance(found):
    """Sigma over all cells."""
    layout = found.layout
    pairs = [references(s, n) for s, n in zip(found.splits, layout.sizes, strict=True)]
    sigma = 0.0
    for z, members in zip(found.scales.z, layout.members, strict=True):
        part = np.ones((1, 1))
        for a, (u, C) in enumerate(pairs):
            part = np.kron(part, C if a in members else np.outer(u, u))
        sigma = sigma + z * part
    return sigma


@pytest.mark.parametrize("index", range(len(WORKLOADS)), ids=[w[0] for w in WORKLOADS])
def test_it_lies_next_to_the_optimum_and_the_bound_below(index):
    _, workload, above, below = WORKLOADS[index]
    found, lower = solved(index)
    least, most = dense_optimum(workload)
    assert least * (1 - 1e-9) <= found.upper <= most * (1 + above)
    assert least * (1 - below) <= lower <= most * (1 + 1e-9)


@pytest.mark.parametrize("index", range(len(WORKLOADS)), ids=[w[0] for w in WORKLOADS])
def test_variances_and_privacy_cost_are_those_of_its_covariance(index):
    workload = WORKLOADS[index][1]
    found, _ = solved(index)
    sigma = covariance(found)
    W = workload.matrix()
    expected = (W @ sigma * W).sum(axis=1)
    # Its own rows are in the domain's order, one for all cells of a symmetric attribute.
    for group, own in zip(workload.groups, found.variances(), strict=True):
        factors = [f for f in group.factors if f.kind != "total"]
        order = [workload.attributes.index(f.attribute) for f in factors]
        mine = np.transpose(own, np.argsort(np.argsort(order)))
        shape = [f.rows for f in factors]
        mine = np.broadcast_to(mine, shape)
        np.testing.assert_allclose(mine.ravel(), expected[: group.size], rtol=1e-7)
        assert (mine <= group.variances.reshape(shape) * (1 + 1e-9)).all()
        expected = expected[group.size :]
    if np.linalg.matrix_rank(sigma) == len(sigma):
        profile = np.diag(np.linalg.inv(sigma))
        assert math.sqrt(profile.max()) == pytest.approx(found.upper, rel=1e-6)


@pytest.mark.parametrize(
    ("d", "most", "largest", "gap"),
    [(1, 1, PREFIX_10, 1e-4), (2, 2, 6.10717, 1e-4), (3, 3, 15.09244, 1e-4),
     (3, 2, 11.9077, 0.012), (4, 3, 32.62, 0.012), (4, 2, 19.76, 0.021)],
)  # fmt: skip
def test_prefixes_of_ten(d, most, largest, gap):
    found = residual.solve(ways([10] * d, most))
    lower = pinched.lower_bound(found.layout, found.weights)
    assert found.upper**2 <= largest * (1 + 2e-4)
    assert lower <= found.upper <= lower * (1 + gap)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "largest", "gap"), [(2, 99.9, 0.018), (3, 428.5, 0.03)], ids=["pairs", "triples"]
)
def test_ten_attributes(most, largest, gap):
    found = residual.solve(ways([10] * 10, most))
    lower = pinched.lower_bound(found.layout, found.weights)
    assert found.upper**2 <= largest
    assert lower <= found.upper <= lower * (1 + gap)


def test_one_kronecker_group_multiplies():
    group = queries({"a0": "prefix", "a1": "all_ranges", "a2": "identity"}, variance=3.0)
    found = residual.solve(Workload(domain([10, 6, 4]), [group]))
    alone = math.prod(
        dense_optimum(Workload(domain([n]), [queries({"a0": kind}, variance=1.0)]))[1]
        for n, kind in [(10, "prefix"), (6, "all_ranges"), (4, "identity")]
    )
    assert found.upper * math.sqrt(3.0) == pytest.approx(alone, rel=1e-4)
    assert pinched.lower_bound(found.layout, found.weights) == pytest.approx(found.upper, rel=3e-4)


def test_marginals_are_exact():
    found = residual.solve(ways([10] * 10, 3, "identity"))
    assert found.upper**2 == pytest.approx(105.0308, rel=1e-4)
    assert pinched.lower_bound(found.layout, found.weights) == pytest.approx(found.upper, rel=1e-4)


def product_matrix(layout, product):
    """X of the module, dense, and the sum of q."""
    rows, mass, term = [], 0.0, 0
    for batch in layout.batches:
        for own, factors, targets in zip(
            batch.attributes, batch.factors, batch.targets, strict=True
        ):
            parts = dict(zip(own, factors, strict=True))
            X, c = np.ones((1, 1)), targets
            for a, p in enumerate(product.p):
                if a not in parts:
                    X = np.kron(X, np.sqrt(p / p.sum()))
                    continue
                y, W = product.y[parts[a]], layout.factors[parts[a]][1]
                if layout.symmetric[a]:
                    y, W = np.full(len(p), 1 / len(p)), np.eye(len(p))
                X = np.kron(X, np.sqrt(y)[:, None] * W * np.sqrt(p))
                c = np.tensordot(product.y[parts[a]] if c.shape[0] > 1 else np.ones(1), c, (0, 0))
            rows.append(math.sqrt(product.w[term]) * X)
            mass += product.w[term] * float(c)
            term += 1
    return np.concatenate(rows), mass


@pytest.mark.parametrize("index", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("tilt", [0.1, 1.0])
def test_the_pinched_norm_is_below_the_norm_and_equal_with_a_whole_frame(index, tilt):
    layout = family.layout(WORKLOADS[index][1])
    rng = np.random.default_rng(index)
    product = pinched.Product(
        tuple(
            np.full(n, 1 / n) if symmetric else rng.dirichlet(np.ones(n))
            for n, symmetric in zip(layout.sizes, layout.symmetric, strict=True)
        ),
        tuple(rng.dirichlet(np.ones(len(W))) for _, W in layout.factors),
        rng.dirichlet(np.ones(len(layout.workload.groups))),
    )
    X, mass = product_matrix(layout, product)
    exact = np.linalg.svd(X, compute_uv=False).sum()
    for t in range(1, max(layout.sizes) + 1):
        grams = pinched._grams(layout, t)
        tables = [pinch.table for pinch in pinched._pinches(layout, product, tilt, t)]
        bound, by_w, _ = grams.evaluate(product.w, tables)
        assert bound <= exact * (1 + 1e-9)
        assert 2 * by_w @ product.w == pytest.approx(bound, rel=1e-6)
    assert bound == pytest.approx(exact, rel=1e-6)
    costs, _ = pinched._costs(layout, product)
    assert costs @ product.w == pytest.approx(mass)


def test_ascent_knows_its_derivatives():
    layout = family.layout(WORKLOADS[3][1])
    found, _ = solved(3)
    product = pinched._product(layout, found.weights)
    t = max(layout.sizes)
    grams = pinched._grams(layout, t)

    def bound(y):
        pinches = pinched._pinches(layout, pinched.Product(product.p, y, product.w), 1.0, t)
        return grams.evaluate(product.w, [pinch.table for pinch in pinches]), pinches

    (value, _, by_table), pinches = bound(product.y)
    for f, (a, _) in enumerate(layout.factors):
        if layout.symmetric[a]:
            continue
        parts = pinches[f].parts(by_table[f])
        for j in np.argsort(product.y[f])[-2:]:
            y = list(product.y)
            y[f] = y[f].copy()
            y[f][j] *= 1 + 1e-5
            moved = bound(tuple(y))[0][0]
            assert (moved - value) / 0.5e-5 == pytest.approx(parts[j], rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("slack", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_the_hull_dominates_every_row(seed, slack):
    rng = np.random.default_rng(seed)
    table = np.abs(rng.normal(size=(30, 2))) * [1.0, 10.0**seed]
    hull = family._hull(table, slack)
    for angle in np.linspace(0, np.pi / 2, 200):
        way = np.array([math.cos(angle), math.sin(angle)]) / table.max(axis=0)
        largest = (table @ way).max()
        assert largest * (1 - 1e-12) <= (hull @ way).max() <= largest * (1 + slack) * (1 + 1e-12)


@pytest.mark.parametrize("index", [0, 2, 6])
def test_integer_splits(index):
    found, _ = solved(index)
    layout = found.layout
    splits = []
    for split in found.splits:
        if isinstance(split, family.Ordered):
            whole = family.whole(split, 20)
            A, n = whole.matrix, whole.matrix.shape[1]
            E, u = whole.inverse[:, :-1], whole.inverse[:, -1]
            assert A.dtype == np.int64
            assert A.shape == (n - 1, n)
            np.testing.assert_allclose(E @ A + np.outer(u, np.ones(n)), np.eye(n), atol=1e-6)
            assert (whole.eta() == (A * A).sum(axis=0)).all()
            splits.append(whole)
        else:
            splits.append(split)
    rows = family.extreme_rows(layout, splits)
    again = family.scales(rows, family.largest_spend(layout, splits), tolerance=1e-5)
    assert again.upper == pytest.approx(found.upper, rel=3e-4)


def test_integers_too_coarse_are_refused():
    split = family.Ordered(np.eye(3)[:, :2] - 1 / 3, np.zeros(2), np.diag([1.0, 1e12]))
    with pytest.raises(DesignError, match="bits"):
        family.whole(split, 8)


def test_too_many_targets_are_refused():
    variance = np.random.default_rng(1).uniform(1, 2, (130, 130, 130))
    group = queries(dict.fromkeys(["a0", "a1", "a2"], "prefix"), variance=variance)
    workload = Workload(domain([130] * 3), [group])
    layout = family.layout(workload)
    splits = [family.Symmetric(130)] * 3
    with pytest.raises(WorkloadError, match="one target"):
        family.extreme_rows(layout, splits)
