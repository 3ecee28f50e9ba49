"""The parts of the bound by where paths part: factors, shares, and the weights of plans."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import fitplug as fp
from fitplug.certify import factor_change
from fitplug.families.base.family import Duals, certify_bound
from fitplug.families.base.objective import Objective
from fitplug.families.tree.certificate.parted_pairs import factor_covariances
from fitplug.families.tree.design.pair_descent import descend_tree_pairs
from fitplug.families.tree.design.parted_bound import RowAscent
from fitplug.solve import Options
from tests.helpers.tree_strategies import find_structure


@pytest.mark.parametrize("seed", range(20))
def test_factors_of_changed_precisions_are_proven(seed):
    rng = np.random.default_rng(seed)
    b, r, m, n = 3, *rng.integers(1, 7, 3).tolist()
    Zt = np.tril(rng.normal(size=(b, r, r))) * 10.0 ** rng.uniform(-4, 4, r)
    F = rng.normal(size=(b, m, r)) * 10.0 ** rng.uniform(-4, 4, r)
    # Less than what Z Z' has, but up to nearly all of it.
    H = (1 - 10.0 ** -rng.uniform(0, 6, (b, 1, 1))) ** 0.5 * Zt[:, :n]
    with np.errstate(all="ignore"):
        P, proven = factor_change(Zt, F, H)
    assert np.isfinite(proven.departure).any()
    for i in np.flatnonzero(np.isfinite(proven.departure)):
        with mpmath.workdps(60):
            Z, f, h, p = (mpmath.matrix(x[i].tolist()) for x in (Zt, F, H, P))
            own, added, taken = Z * p, f * p, h * p
            E = own.T * own + added.T * added - taken.T * taken - mpmath.eye(r)
            assert mpmath.norm(E) <= proven.departure[i]
            spectral = float(mpmath.svd_r(own, compute_uv=False)[0]) ** 2
            assert spectral <= proven.growth[i] * (1 + 1e-12)
            changed = float(mpmath.norm(added)) ** 2 + float(mpmath.norm(taken)) ** 2
            assert changed <= proven.changed[i]


def test_precisions_that_are_not_positive_prove_nothing():
    one = np.ones((1, 1, 1))
    with np.errstate(all="ignore"):
        _, proven = factor_change(one, one[:, :0], 2 * one)
    assert np.isinf(proven.departure).all()
    assert factor_covariances(np.array([[[1.0, 2.0], [2.0, 1.0]]])) is None


def test_factors_of_covariances_are_from_below():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 5, 9))
    stack = A @ A.swapaxes(1, 2)
    proven = factor_covariances(stack)
    assert proven is not None
    X, least = proven
    assert 1 - 1e-10 < least < 1
    for own, C in zip(X, stack, strict=True):
        with mpmath.workdps(50):
            x, c = mpmath.matrix(own.tolist()), mpmath.matrix(C.tolist())
            assert min(mpmath.eigsy(x * c * x.T, eigvals_only=True)) >= least


def make_structure():
    """States and counties of different sizes, crossed with ages."""
    leaves = [(f"s{s}", f"s{s}.{c}") for s in range(5) for c in range(2 + s % 4)]
    domain = fp.Domain(
        {"place": fp.Hierarchy(["state", "county"], leaves), "age": fp.Integers(0, 5)}
    )
    groups = [
        fp.queries({"place": "county", "age": "prefix"}, std=10.0),
        fp.queries({"place": "state", "age": "prefix"}, std=8.0),
        fp.queries({"age": "identity"}, std=5.0),
    ]
    return find_structure(fp.Workload(domain, groups), unit=fp.ReplaceOne())


@pytest.fixture(scope="module")
def member():
    structure = make_structure()
    options = Options(
        solver="dual", tolerance=1e-3, max_iterations=300, refine=False, progress=lambda *_: False
    )
    return structure, descend_tree_pairs(structure, options)[-1]


def test_the_plan_proves_more_by_where_paths_part(member):
    structure, best = member
    before = structure.differences - structure.parts_below
    assert best.duals.p[before:].any()
    p = np.append(best.duals.p[:before], np.zeros(structure.parts_below))
    bounds = [
        certify_bound(structure, Objective(), 1.0, Duals(x, best.duals.q))
        for x in (best.duals.p, p)
    ]
    assert bounds[0] > 1.005 * bounds[1]


def test_the_ascent_has_the_value_and_the_derivatives_of_the_bound(member):
    structure, best = member
    p, q = best.duals.p, best.duals.q
    ascent = RowAscent(structure, p, 1e-6)
    value, h = ascent.evaluate(q)
    bound = certify_bound(structure, Objective(), 1.0, Duals(p, q))
    scale = (2 / ascent.mass) ** 0.5
    assert value * scale == pytest.approx(bound, rel=2e-3)
    for j in (0, 7, structure.rows - 1):
        change = np.zeros_like(q)
        change[j] = 1e-3 * q[j]
        more, less = (
            certify_bound(structure, Objective(), 1.0, Duals(p, one)) * one.sum() ** 0.5
            for one in (q + change, q - change)
        )
        slope = (more - less) / (2e-3 * q[j])
        assert h[j] * scale / 2 == pytest.approx(slope, rel=2e-2)
