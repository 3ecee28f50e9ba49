"""Product families against dense algebra, the dense optimum and known figures."""

import functools
import itertools
import math

import numpy as np
import pytest

from fitplug.domain.domain import Domain
from fitplug.domain.numbers import Integers
from fitplug.errors import WorkloadError
from fitplug.families.analysis import analyse_structure as structure
from fitplug.families.product.design.attribute_covariance import SymmetricCovariance
from fitplug.families.product.design.bound_ascent import ascend_product_bound
from fitplug.families.product.design.products import find_member
from fitplug.families.product.design.scales import build_extreme_rows, find_hull, find_largest
from fitplug.solve import dual
from fitplug.solve.problem import reduce_matrix
from fitplug.workload.factors import ranges
from fitplug.workload.query_group import queries, total
from fitplug.workload.workload import Workload

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


def apart(workload):
    return structure(workload, family=True)


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
    found = find_member(apart(WORKLOADS[index][1]))
    return found, ascend_product_bound(found.batched, found.weights)[1]


def dense_optimum(workload):
    problem, _ = reduce_matrix(workload.matrix(), workload.targets())
    found = dual.solve_dual(problem, tolerance=1e-6, max_iterations=5000)
    return found.lower, found.upper


def references(split, n):
    """u u' and the C_k (n, n) of a covariance, on the contrasts that it knows."""
    if isinstance(split, SymmetricCovariance):
        return [np.full((n, n), 1 / n**2), np.eye(n) - 1 / n]
    return [np.outer(split.reference, split.reference), *(E @ E.T for E in split.estimates)]


def variances(found):
    return found.batched.compute_variances(
        found.batched.compute_tables(found.covariances), found.scales.z
    )


def covariance(found):
    """Sigma over all cells."""
    layout = found.batched
    parts = [references(s, n) for s, n in zip(found.covariances, layout.sizes, strict=True)]
    labels = [layout.scales.label(a) for a in range(len(parts))]
    sigma = 0.0
    for z, *grades in zip(found.scales.z, *labels, strict=True):
        part = np.ones((1, 1))
        for own, k in zip(parts, grades, strict=True):
            part = np.kron(part, own[k])
        sigma = sigma + z * part
    return sigma


@pytest.mark.slow
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
    for group, own in zip(workload.groups, variances(found), strict=True):
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
     (3, 2, 11.9077, 0.012), pytest.param(4, 3, 32.62, 0.012, marks=pytest.mark.long),
     (4, 2, 19.76, 0.021)],
)  # fmt: skip
@pytest.mark.slow
def test_prefixes_of_ten(d, most, largest, gap):
    found = find_member(apart(ways([10] * d, most)))
    lower = ascend_product_bound(found.batched, found.weights)[1]
    assert found.upper**2 <= largest * (1 + 2e-4)
    assert lower <= found.upper <= lower * (1 + gap)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "largest", "gap"),
    [(2, 99.9, 0.018), pytest.param(3, 428.5, 0.03, marks=pytest.mark.long)],
    ids=["pairs", "triples"],
)
def test_ten_attributes(most, largest, gap):
    found = find_member(apart(ways([10] * 10, most)))
    lower = ascend_product_bound(found.batched, found.weights)[1]
    assert found.upper**2 <= largest
    assert lower <= found.upper <= lower * (1 + gap)


def test_one_kronecker_group_multiplies():
    group = queries({"a0": "prefix", "a1": "all_ranges", "a2": "identity"}, variance=3.0)
    found = find_member(apart(Workload(domain([10, 6, 4]), [group])))
    alone = math.prod(
        dense_optimum(Workload(domain([n]), [queries({"a0": kind}, variance=1.0)]))[1]
        for n, kind in [(10, "prefix"), (6, "all_ranges"), (4, "identity")]
    )
    assert found.upper * math.sqrt(3.0) == pytest.approx(alone, rel=1e-4)
    assert ascend_product_bound(found.batched, found.weights)[1] == pytest.approx(
        found.upper, rel=3e-4
    )


def test_marginals_are_exact():
    found = find_member(apart(ways([10] * 10, 3, "identity")))
    assert found.upper**2 == pytest.approx(105.0308, rel=1e-4)
    assert ascend_product_bound(found.batched, found.weights)[1] == pytest.approx(
        found.upper, rel=1e-4
    )


@pytest.mark.parametrize("slack", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_the_hull_dominates_every_row(seed, slack):
    rng = np.random.default_rng(seed)
    table = np.abs(rng.normal(size=(30, 2))) * [1.0, 10.0**seed]
    hull = find_hull(table, slack)
    for angle in np.linspace(0, np.pi / 2, 200):
        way = np.array([math.cos(angle), math.sin(angle)]) / table.max(axis=0)
        largest = (table @ way).max()
        assert largest * (1 - 1e-12) <= (hull @ way).max() <= largest * (1 + slack) * (1 + 1e-12)


@pytest.mark.parametrize("slack", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_the_largest_rows_stand_for_all(seed, slack):
    """No positive combination of columns is larger at a row than at the few points."""
    rng = np.random.default_rng(seed)
    table = np.abs(rng.normal(size=(200, 3))) * [1.0, 10.0**seed, 10.0**-seed]
    points = find_largest(table, slack)
    assert len(points) < 80
    for way in rng.exponential(size=(200, 3)) / table.max(axis=0):
        largest = (table @ way).max()
        assert largest <= (points @ way).max() <= largest * (1 + slack) * (1 + 1e-12)


def test_too_many_targets_are_refused():
    variance = np.random.default_rng(1).uniform(1, 2, (130, 130, 130))
    group = queries(dict.fromkeys(["a0", "a1", "a2"], "prefix"), variance=variance)
    layout = apart(Workload(domain([130] * 3), [group])).batched
    with pytest.raises(WorkloadError, match="same target"):
        build_extreme_rows(layout, [np.ones((130, 2))] * 3)
