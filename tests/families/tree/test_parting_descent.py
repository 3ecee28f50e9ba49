"""Pairs of cells by where their paths part, against all pairs and against full matrices."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.families.base.objective import Objective
from fitplug.families.tree.design import designs
from fitplug.families.tree.design.designs import round_trees
from fitplug.families.tree.design.parting_descent import PartingDescent
from fitplug.families.tree.design.sibling_covariance import (
    SharedPrice,
    SiblingCovariances,
    build_strategies,
    solve_siblings,
)
from tests.helpers.tree_strategies import find_structure, write_out

b, k = 3, 5


@pytest.mark.parametrize("seed", range(5))
def test_covariances_of_siblings_whose_pairs_share_something(seed):
    rng = np.random.default_rng(seed)
    P, K = rng.uniform(0.1, 2, (2, b, k))
    z, s = rng.uniform(0.1, 1, (b, k)), rng.uniform(0.05, 0.5, b)
    c = rng.uniform(-1, 0.99, b) / (z * z / P).sum(axis=1)
    found = SiblingCovariances.make_even(b, k)
    for _ in range(8):
        found = solve_siblings(P, K, s, found, SharedPrice(c, z))
    A = build_strategies(found)
    for i in range(b):
        # The geometric mean Sigma # (K + lambda 11')^-1 of full matrices.
        L = np.linalg.cholesky(np.diag(P[i]) - c[i] * np.outer(z[i], z[i]))
        values, V = np.linalg.eigh(L.T @ (np.diag(K[i]) + found.multipliers[i]) @ L)
        sigma = L @ (V / np.sqrt(values)) @ V.T @ L.T
        total = sigma.sum()
        if found.multipliers[i] > 0:
            assert total == pytest.approx(s[i], rel=1e-6)
        u = sigma.sum(axis=1) / total
        X = np.linalg.inv(sigma) - 1 / total
        np.testing.assert_allclose(found.references[i], u, rtol=1e-6)
        np.testing.assert_allclose(found.variances[i], np.diag(sigma) - u * u * total, atol=1e-7)
        np.testing.assert_allclose(found.profiles[i], np.diag(X), rtol=1e-6)
        np.testing.assert_allclose(found.images[i], X @ z[i], atol=1e-6)
        np.testing.assert_allclose(A[i].T @ A[i], X, atol=1e-9)


def make_workload(tracts):
    """States and counties of different sizes, crossed with ages."""
    leaves = [
        (f"s{s}", f"s{s}.{c}", f"s{s}.{c}.{t}")
        for s in range(3)
        for c in range(s + 1)
        for t in range(tracts + (s + c) % 3)
    ]
    place = fp.Hierarchy(["state", "county", "tract"], leaves)
    groups = [
        fp.queries({"place": "tract", "age": fp.ranges([(0, 1), (2, 3)])}, std=9.0),
        fp.queries({"place": "county", "age": "identity"}, std=7.0),
        fp.queries({"place": "state", "age": "prefix"}, std=5.0),
        fp.total(std=2.0),
    ]
    return fp.Workload(fp.Domain({"place": place, "age": fp.Integers(0, 3)}), groups)


@pytest.mark.parametrize("tracts", [1, 8], ids=["different", "identical"])
def test_mean_costs_are_those_of_all_pairs(tracts, monkeypatch):
    structure = find_structure(make_workload(tracts), unit=fp.ReplaceOne())
    descent = PartingDescent(structure, 1e-3)
    x = descent.first_weights
    for _ in range(6):
        iterate = descent.evaluate(x)
        x = descent.normalise(np.log(iterate.following))
    weights = descent.split(x)
    sweeps = descent.sweep(descent._start, weights)
    found = np.zeros(descent.shape)
    found[descent.valid] = descent.measure_costs(sweeps, weights).of_kinds

    monkeypatch.setattr(designs, "_BITS", (44,))
    monkeypatch.setattr(designs, "_SHARED_BITS", 22)
    monkeypatch.setattr(designs, "add_claim_margins", lambda strategy: strategy)
    strategy = round_trees(structure, sweeps, objective=Objective(), upper=0.0, loss=1e-9)
    A = write_out(strategy).astype(float)
    tree, D = structure.tree, structure.cells
    gram = (A.T @ A).reshape(-1, D, len(A.T) // D, D)
    share = (weights.p / tree.multiplicities[tree.leaves])[
        np.searchsorted(tree.leaves, tree.leaf_nodes)
    ]
    assert share.sum() == pytest.approx(1)
    parents = np.zeros(tree.size, dtype=int)
    for step in tree.steps:
        parents[step.children] = step.parents[:, None]

    def list_path(v):
        return [v] if v == 0 else [v, *list_path(parents[v])]

    n, groups = len(share), descent.groups
    group_of = {groups.top[children[0]]: g for g, children in enumerate(groups.children)}
    expected, mass = np.zeros((groups.count, D, D)), np.zeros(groups.count)
    for i in range(n):
        for j in range(n):
            g = groups.count - 1
            first, second = list_path(tree.leaf_nodes[i]), list_path(tree.leaf_nodes[j])
            if i != j:
                above = second[1:] if first[0] == second[0] else second
                g = group_of[next(v for v in above if v in first)]
            weight = share[i] * (1 if i == j else share[j])
            squares = np.diag(gram[i, :, i])[:, None] + np.diag(gram[j, :, j])
            expected[g] += weight * (squares - gram[i, :, j] - gram[j, :, i].T) / 2
            mass[g] += weight
    first, second = structure.cell_pairs
    expected = (expected / mass[:, None, None])[:, first, second]
    ratio = expected[found[:, 0] > 0] / found[:, 0][found[:, 0] > 0]
    assert ratio.size > 10 * (groups.count - 1)
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-4)
