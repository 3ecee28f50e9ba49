"""Chains against the dense optimum, and plans of chains from design to release."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import WorkloadError
from fitplug.families import analyse_structure, analysis as symmetry, build_dense_strategy
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.chain.design import optimum
from fitplug.families.chain.shape.chains import ChainStructure
from fitplug.families.chain.strategy.chains import NestedChain
from fitplug.families.chain.strategy.convolutions import ChainMatrix
from fitplug.workload import build_rows
from tests.helpers.chains import ask_chain, build_square_root, draft_chain

PREFIX = fp.queries({"x": "prefix"}, variance=1.0)

CELLS = 600

# The workload, and how far the plan of the chain may be above the dense optimum.
CASES = {
    "prefixes": (ask_chain(100, PREFIX), 0.006),
    "looser": (ask_chain(100, fp.queries({"x": "prefix"}, variance=np.linspace(1, 4, 100))), 0.03),
    "cells": (ask_chain(100, PREFIX, fp.marginal("x", variance=0.1)), 0.03),
    "total": (ask_chain(100, PREFIX, fp.total(variance=0.1)), 0.03),
    "crossed": (
        ask_chain(
            100, PREFIX, fp.queries({"s": "identity", "x": "prefix"}, variance=1.0), s=["a", "b"]
        ),
        0.02,
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_a_plan_is_between_the_dense_optimum_and_a_little_more(name: str) -> None:
    workload, loss = CASES[name]
    strategy, cost, bound = draft_chain(workload)
    structure = analyse_structure(workload, family=False)
    assert isinstance(structure, MatrixStructure)
    dense = fp.design(workload, rho=0.5)
    optimum, above = dense.lower_bound * dense.scale**0.5, dense.privacy_cost * dense.scale**0.5
    assert optimum * (1 - 1e-4) * 0.9995 <= bound <= above
    assert optimum <= cost <= above * (1 + loss)
    # The integers say the same when they are written out.
    A = build_dense_strategy(strategy)
    assert (A**2).sum(axis=0).max() == pytest.approx(strategy.sensitivity_squared, rel=1e-12)
    rows = np.concatenate([build_rows(workload, g, workload.attributes) for g in workload.groups])
    exact = np.einsum("ri,ri->r", rows @ np.linalg.inv(A.T @ A / 2.0**60) / 2.0**60, rows)
    found = strategy.upper_unit_variances()
    by_group = strategy.structure.group_values(found)
    stated = np.concatenate([by_group[group.name].ravel() for group in workload.groups])
    assert stated == pytest.approx(exact, rel=1e-6)


@pytest.fixture(scope="module")
def workload() -> fp.Workload:
    return ask_chain(
        CELLS,
        fp.queries({"x": "prefix"}, variance=1e4, name="prefixes"),
        fp.marginal("x", variance=1.5e4, name="cells"),
        fp.total(variance=3e3),
    )


@pytest.fixture(scope="module")
def plan(workload: fp.Workload) -> fp.Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symmetry, "LEAST_CHAIN", 1)
        return fp.design(workload)


@pytest.mark.slow
def test_a_long_attribute_gets_a_certified_plan(plan: fp.Plan, tmp_path) -> None:
    assert isinstance(plan.strategy.structure, ChainStructure)
    assert plan.gap < 0.06
    assert plan.strategy.size <= 1.2 * CELLS
    assert all((plan.variances[name] <= plan.targets[name]).all() for name in plan.targets)
    plan.verify()
    path = tmp_path / "plan.npz"
    plan.save(path)
    again = fp.Plan.load(path)
    assert again.digest == plan.digest
    again.verify()
    assert "600 cells of x in a chain" in str(plan.strategy.structure)
    assert plan.tables == (("x",),)
    assert plan.profile().max() == pytest.approx(plan.privacy_cost**2)


@pytest.mark.slow
def test_estimates_are_unbiased_and_as_accurate_as_stated(plan: fp.Plan) -> None:
    x = np.random.default_rng(1).integers(0, 100, CELLS)
    release = fp.release(plan, fp.Tables(plan.domain, {("x",): x}))
    truth = {"prefixes": np.cumsum(x), "cells": x, "total": x.sum()}
    for name, exact in truth.items():
        errors = (release.estimates[name] - exact) / np.sqrt(plan.variances[name])
        assert np.abs(errors).max() < 6
    errors = (release.estimates["cells"] - x) / np.sqrt(plan.variances["cells"])
    assert 0.9 < errors.std() < 1.1
    # The cells between two prefixes, both ways.
    first, last = 300, 400
    prefixes, cells = np.zeros(CELLS), np.zeros(CELLS)
    prefixes[[first, last]] = -1, 1
    cells[first + 1 : last + 1] = 1
    one, other = release.estimate({"prefixes": prefixes}), release.estimate({"cells": cells})
    assert one.value == pytest.approx(other.value, abs=1e-4)
    assert one.std == pytest.approx(other.std, rel=1e-6)
    alone = np.zeros(CELLS)
    alone[first] = 1
    std = release.estimate({"prefixes": alone}).std
    assert std**2 == pytest.approx(plan.variances["prefixes"][first], rel=1e-6)
    nothing = release.estimate({"prefixes": alone, "cells": -1.0 * (np.arange(CELLS) <= first)})
    assert nothing.std < 1e-3


@pytest.mark.slow
def test_a_long_chain_is_between_the_bounds_of_mathias() -> None:
    # The factorization norm of prefixes: Mathias, SIAM J. Matrix Anal. Appl. 14 (1993).
    n = 1200
    _, cost, bound = draft_chain(ask_chain(n, PREFIX))
    angles = (2 * np.arange(1, n + 1) - 1) * np.pi / (2 * n)
    mean = float(np.mean(1 / np.abs(np.sin(angles))))
    assert bound <= (mean + 1) / 2
    assert cost >= (n + 1) / (2 * n) * mean
    # The usual mechanism of continual counting needs a tenth more of rho.
    root = float(np.sum(build_square_root(n) ** 2))
    assert cost**2 < root**2 / 1.1
    assert cost / bound < 1.01


@pytest.mark.slow
def test_the_blocks_of_longer_chains_share_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "_LONG", 0)
    workload, loss = CASES["crossed"]
    strategy, cost, bound = draft_chain(workload)
    assert any(isinstance(own, ChainMatrix) for own in strategy.attribute_matrices)
    assert bound <= cost <= bound * (1 + loss)
    # Where it costs much more than the bound, each block has a matrix of its own.
    tight = np.where(np.arange(100) % 10 == 9, 1.0, 10.0)
    tight_workload = ask_chain(100, fp.queries({"x": "prefix"}, variance=tight))
    strategy, cost, bound = draft_chain(tight_workload)
    assert any(isinstance(own, NestedChain) for own in strategy.attribute_matrices)
    assert bound <= cost <= bound * 1.02


@pytest.mark.long
def test_a_hundred_thousand_cells() -> None:
    plan = fp.design(ask_chain(100_000, fp.queries({"x": "prefix"}, variance=1e6)))
    assert plan.gap < 0.02
    assert plan.strategy.size == 100_000
    plan.verify()


def test_which_workloads_are_chains() -> None:
    def choose(*groups, n=5000, **others):
        return type(analyse_structure(ask_chain(n, *groups, **others)))

    assert choose(PREFIX) is ChainStructure
    assert choose(PREFIX, fp.marginal("s", "x", variance=1.0), s=["a", "b"]) is ChainStructure
    # Few prefixes are a small matrix, which has an optimum.
    few = fp.queries({"x": fp.ranges([(0, 100 * k) for k in range(40)])}, variance=1.0)
    assert choose(few) is MatrixStructure
    assert choose(PREFIX, n=1000) is MatrixStructure
    # Matrices of more cells, or of many blocks, would take minutes.
    assert choose(PREFIX, n=1100) is ChainStructure
    pairs = itertools.combinations(["x", "s", "t", "u", "v"], 2)
    tables = [fp.marginal(*pair, variance=1.0) for pair in pairs]
    assert choose(PREFIX, *tables, n=1000, **{key: ["a", "b"] for key in "stuv"}) is ChainStructure
    # Two ordered attributes are no chain.
    other = fp.queries({"y": "prefix"}, variance=1.0)
    with pytest.raises(WorkloadError, match="the design for y, x would take"):
        choose(PREFIX, other, y=fp.Integers(0, 9))


def test_what_is_too_long_is_refused() -> None:
    with pytest.raises(WorkloadError, match="the limit is 2,097,152"):
        analyse_structure(ask_chain(3 * 10**6, PREFIX))


@pytest.mark.slow
def test_targets_that_differ_at_random_cost_little_more_than_the_bound() -> None:
    stds = np.random.default_rng(3).lognormal(2, 0.8, 8000)
    plan = fp.design(ask_chain(8000, fp.queries({"x": "prefix"}, std=stds)))
    assert (1 + plan.gap) ** 0.5 < 1.01


def test_what_only_a_matrix_of_many_cells_could_answer_is_refused() -> None:
    domain = fp.Domain({"x": fp.Integers(0, 9_999)})
    windows = fp.queries({"x": fp.ranges([(i, i + 19) for i in range(9_981)])}, std=3.0)
    message = r"10,000 cells of x \('ranges' in query 'x ranges'\) would take .* coarser"
    with pytest.raises(fp.WorkloadError, match=message):
        analyse_structure(fp.Workload(domain, [windows]))
