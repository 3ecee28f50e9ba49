"""Trees and plain attributes whose nodes have targets of their own, against the optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import analysis, designs
from fitplug.families.blocks.design import optimum
from fitplug.plan import designer


def make_areas(n):
    """Areas by types; the targets grow with the sizes of areas."""
    std = 2 + np.random.default_rng(0).lognormal(3, 1, n)
    domain = fp.Domain({"area": [str(i) for i in range(n)], "type": [str(i) for i in range(10)]})
    return fp.Workload(
        domain,
        [
            fp.marginal("area", "type", std=std[:, None]),
            fp.marginal("area", std=std),
            fp.marginal("type", std=10.0),
            fp.total(std=5.0),
        ],
    )


def make_lopsided(counties=1.2):
    """A tree whose nodes have from one child to dozens, and targets that grow with their sizes."""
    rng = np.random.default_rng(0)
    paths = [
        (str(r), f"{r}.{c}", f"{r}.{c}.{t}")
        for r in range(4)
        for c in range(int(np.ceil(np.exp(rng.normal(counties, 1.2)))))
        for t in range(int(np.ceil(np.exp(rng.normal(1.5, 1.5)))))
    ]
    leaves, groups = np.exp(rng.normal(7, 1, len(paths))), []
    for depth, level in enumerate(["state", "county", "tract"]):
        sizes: dict[str, float] = {}
        for path, size in zip(paths, leaves, strict=True):
            sizes[path[depth]] = sizes.get(path[depth], 0.0) + size
        std = np.minimum(2 + 0.01 * np.array([*sizes.values()]), 200)
        groups.append(fp.queries({"place": level}, std=std))
    tree = fp.Hierarchy(["state", "county", "tract"], paths)
    return fp.Workload(fp.Domain({"place": tree}), [*groups, fp.total(std=5.0)])


def design_tree(monkeypatch, workload):
    monkeypatch.setattr(analysis, "MOST_BEFORE_TREE", 1)
    monkeypatch.setattr(designer, "find_nearer_structure", lambda *_: None)
    plan = fp.design(workload)
    assert plan.strategy.structure.names_in_files["tree"]
    return plan


def test_cells_with_targets_of_their_own_are_at_the_optimum(monkeypatch):
    workload = make_areas(100)
    best = fp.design(workload)
    assert best.strategy.structure.holds_optimum
    plan = design_tree(monkeypatch, workload)
    plan.verify()
    assert best.lower_bound <= plan.privacy_cost * (1 + 1e-9)
    assert plan.privacy_cost < best.privacy_cost * 1.0005
    assert plan.privacy_cost < plan.lower_bound * 1.003


def test_lopsided_trees_reach_the_optimum_of_their_family(monkeypatch):
    workload = make_lopsided()
    best = fp.design(workload)
    plan = design_tree(monkeypatch, workload)
    # The weights of the family's optimum prove 1.1% less.
    assert best.lower_bound * 0.9995 < plan.lower_bound <= best.privacy_cost
    # One sweep an iteration ended at 1.096.
    assert plan.privacy_cost < best.privacy_cost * 1.065


def test_lopsided_trees_are_designed_over_their_cells_where_the_gap_is_large(monkeypatch):
    monkeypatch.setattr(analysis, "MOST_BEFORE_TREE", 1)
    plan = fp.design(make_lopsided())
    assert plan.strategy.structure.holds_optimum
    assert plan.gap <= plan.tolerance


@pytest.mark.slow
def test_trees_over_their_cells_begin_near_the_optimum(monkeypatch):
    workload = make_lopsided(counties=2.1)
    monkeypatch.setattr(analysis, "MOST_BEFORE_TREE", math.inf)
    plan = fp.design(workload, refine=False)
    monkeypatch.setattr(designs, "find_start", lambda *_: None)
    best = fp.design(workload, refine=False)
    assert plan.gap <= plan.tolerance
    assert plan.privacy_cost == pytest.approx(best.privacy_cost, rel=2e-4)
    assert plan.proof.iterations <= 2 < 20 < best.proof.iterations


def test_slow_iterations_are_few(monkeypatch):
    monkeypatch.setattr(optimum, "_ITERATING", 1)
    plan = fp.design(make_areas(100))
    assert plan.proof.iterations == optimum._FEWEST
    assert plan.privacy_cost < plan.lower_bound * 1.02


@pytest.mark.parametrize("n", [7, 300])
def test_cells_with_targets_of_their_own_are_kept_in_files(monkeypatch, tmp_path, n):
    plan = design_tree(monkeypatch, make_areas(n))
    plan.save(tmp_path / "plan.fitplug")
    again = fp.Plan.load(tmp_path / "plan.fitplug")
    again.verify()
    assert again.rho == plan.rho
    assert again.lower_bound == plan.lower_bound
