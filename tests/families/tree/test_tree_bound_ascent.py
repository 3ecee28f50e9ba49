"""The gradient of the bound of trees, and its ascent, against the bound by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug.families import Duals, Objective
from fitplug.families.base.workload_subsets import find_workload_subsets
from fitplug.families.tree.certificate.block_weights import average_weights
from fitplug.families.tree.design import bound_ascent as tree_bound_ascent
from fitplug.families.tree.design.bound_ascent import ascend_tree_bound
from fitplug.families.tree.design.bound_gradient import evaluate_tree_bound
from fitplug.families.tree.shape.blocks import TreeStructure
from tests.helpers.tree_weights import PLAIN, exact, random_structure, random_weights

ERROR = 3e-4
"""Of a few poles, relative."""


def norm(structure, p, q, objective):
    return float(exact(structure, p, q, objective)) * np.sqrt(p.sum() * q.sum())


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.booleans())
@pytest.mark.slow
def test_the_gradient_is_that_of_the_norm(seed, dense):
    rng = np.random.default_rng(seed)
    structure = random_structure(rng, dense=dense, most=8)
    p, q = (random_weights(rng, n) for n in (structure.differences, structure.rows))
    if rng.random() < 0.7:
        p = average_weights(structure, p)
    objective = PLAIN
    if rng.random() < 0.3:
        objective = Objective(rng.uniform(0.5, 2, len(p)), 0.3)
    value, g, h = evaluate_tree_bound(structure, objective, p, q, 1e-4)
    assert value == pytest.approx(norm(structure, p, q, objective), rel=ERROR)
    assert p @ g == pytest.approx(value, rel=1e-6)
    assert q @ h == pytest.approx(value, rel=1e-6)
    change, step = rng.standard_normal(len(p)), rng.standard_normal(len(q))
    ends = [
        norm(structure, p * np.exp(e * change), q * np.exp(e * step), objective)
        for e in (-1e-4, 1e-4)
    ]
    slope = (p * g) @ change / 2 + (q * h) @ step / 2
    scale = (p * g) @ np.abs(change) + (q * h) @ np.abs(step)
    assert slope == pytest.approx((ends[1] - ends[0]) / 2e-4, abs=3 * ERROR * scale)


def test_the_gradient_of_cells_with_next_to_no_weight():
    variances = np.geomspace(1.0, 100.0, 40)
    tree = fp.Hierarchy(["leaf"], [(f"{i:02}",) for i in range(40)])
    workload = fp.Workload(
        fp.Domain({"place": tree}), [fp.queries({"place": "leaf"}, variance=variances)]
    )
    subsets = find_workload_subsets(workload, ())
    structure = TreeStructure(workload, fp.AddRemove(), (), subsets, "place", True)
    rng = np.random.default_rng(0)
    p, q = (10.0 ** rng.uniform(-10, 0, 40) for _ in range(2))
    value, g, h = evaluate_tree_bound(structure, PLAIN, p, q, 1e-4)
    # Alone, a leaf adds (p q / variance)^1/2.
    c = structure.targets
    assert value == pytest.approx(np.sqrt(p * q / c).sum(), rel=1e-4)
    assert g == pytest.approx(np.sqrt(q / c / p), rel=0.01)
    assert h == pytest.approx(np.sqrt(p / c / q), rel=0.01)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("averages", [False, True])
@pytest.mark.slow
def test_the_ascent_raises_the_bound(seed, averages, monkeypatch):
    if averages:  # as where there is little time
        monkeypatch.setattr(tree_bound_ascent, "_MOST_WORK", 1e7)
    rng = np.random.default_rng(seed)
    structure = random_structure(rng, dense=True, most=8)
    while structure.cells == 1:  # where the family's own weights are good enough
        structure = random_structure(rng, dense=True, most=8)
    p, q = (random_weights(rng, n) for n in (structure.differences, structure.rows))
    _, g, h = evaluate_tree_bound(structure, PLAIN, p, q, 1e-4)
    upper = np.sqrt(g.max() * h.max())
    start = Duals(p / p.sum(), q / q.sum())
    found = ascend_tree_bound(structure, PLAIN, [start], upper, 1e-4)
    before, after = exact(structure, p, q), exact(structure, found.p, found.q)
    assert after > before
    _, g, h = evaluate_tree_bound(structure, PLAIN, found.p, found.q, 1e-4)
    # The best covariance at these weights, which need not be in the family, is hardly worse.
    assert g.max() * h.max() <= float(after) ** 2 * (1.06 if averages else 1.002)
