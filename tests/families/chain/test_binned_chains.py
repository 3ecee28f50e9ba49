"""Chains with bins: matrices over classes of cells, plans and bounds against dense ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import Objective, analyse_structure, build_dense_strategy, certify_bound
from fitplug.families.base.family import Duals
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.chain.shape import bins
from fitplug.families.chain.shape.bins import BinnedChainStructure
from fitplug.families.chain.strategy.bins import BinnedChain
from fitplug.workload import Factor, build_rows
from tests.helpers.chains import analyse_chain, ask_chain, draft_chain, make_nested, write_out

PREFIX = fp.queries({"x": "prefix"}, variance=1.0)
STARTS = [0, 2, 3, 7, 8, 12]


def ask_bins(n, width, *, variance=1.0, **crossed):
    """Ranges of some width, crossed with other attributes."""
    pairs = [(at, at + width - 1) for at in range(0, n, width)]
    return fp.queries({"x": fp.ranges(pairs), **crossed}, variance=variance)


def make_binned() -> BinnedChain:
    """Two blocks over 20 cells: six classes, and all cells."""
    starts = np.array(STARTS), np.arange(20)
    nested = tuple(make_nested(len(s), 2, 2, grounded=(0,)) for s in starts)
    return BinnedChain(np.array([20]), starts, nested)


def test_a_matrix_over_classes_is_the_matrix_of_their_sums() -> None:
    whole = make_binned()
    assert whole.has_form(20)
    assert not whole.has_form(21)
    x = np.random.default_rng(3).integers(0, 10**6, (2, 20))
    for block, starts in enumerate((STARTS, list(range(20)))):
        chain = whole.of_block(block)
        merge = np.zeros((len(starts), 20), dtype=np.int64)
        merge[np.searchsorted(starts, np.arange(20), side="right") - 1, np.arange(20)] = 1
        A = write_out(chain.inner).astype(np.int64) @ merge
        assert (chain.apply(x, 1) == x @ A.T).all()
        assert (chain.apply(x.astype(object) << 50, 1) == (x.astype(object) << 50) @ A.T).all()
        assert chain.rows == len(A)
        assert chain.growth >= np.abs(A).sum(axis=1).max()
        assert [chain.square_column(i) for i in range(20)] == (A**2).sum(axis=0).tolist()
        near, errors = chain.column_squares
        assert (np.abs(near - (A**2).sum(axis=0)) <= errors).all()
        # The classes' sums come back, and a query of classes has the same weights as its inverse.
        assert merge @ chain.invert(x @ A.T, 1).T == pytest.approx(merge @ x.T, abs=1e-6)
        E = np.linalg.inv(write_out(chain.inner).astype(np.float64))
        w = np.random.default_rng(4).normal(size=(3, len(starts)))
        found = chain.adjoint(w @ merge, 1)
        assert np.abs(found - w @ E).max() <= chain.upper_adjoint_error(w @ merge, 1) + 1e-16
        pairs = [(i, j) for i in range(len(starts)) for j in range(i, len(starts))]
        ends = [*starts[1:], 20]
        ranges = np.array([(starts[i], ends[j] - 1) for i, j in pairs])
        exact = [(E[i : j + 1].sum(axis=0) ** 2).sum() for i, j in pairs]
        mu, upper = chain.upper_variance_parts(Factor("x", "ranges", 20, ranges)).T
        assert not mu.any()
        assert upper == pytest.approx(exact, rel=1e-9)
        assert (upper >= np.array(exact) * (1 - 1e-12)).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"starts_of_blocks": (np.array([0, 2, 3, 7, 8]), np.arange(20))},
        {"starts_of_blocks": (np.array(STARTS, dtype=np.float64), np.arange(20))},
        {"starts_of_blocks": (np.array([STARTS]), np.arange(20))},
        {"cells": np.array([21])},
        {"nested": (make_nested(6, 2, 2), make_nested(20, 2, 2, grounded=(0,)))},
        {"nested": (make_nested(6, 2, 2, grounded=(1,)), make_nested(20, 2, 2, grounded=(0,)))},
    ],
)
def test_the_form_of_matrices_over_classes(wrong) -> None:
    assert not dataclasses.replace(make_binned(), **wrong).has_form(20)


CASES = {
    "two": (ask_chain(60, PREFIX, ask_bins(60, 5, s="identity"), s=["a", "b"]), 0.04),
    "three levels": (
        ask_chain(
            60,
            PREFIX,
            ask_bins(60, 4, s="identity", t="identity"),
            ask_bins(60, 12, variance=0.5, s="identity"),
            fp.total(variance=0.5),
            s=["a", "b", "c", "d"],
            t=["a", "b"],
        ),
        0.03,
    ),
    "alone": (ask_chain(60, PREFIX, ask_bins(60, 5, variance=1.4)), 0.03),
    "cells": (
        ask_chain(
            60,
            PREFIX,
            fp.marginal("x", "s", variance=2.0),
            ask_bins(60, 6, s="identity"),
            s=[str(i) for i in range(9)],
        ),
        0.07,
    ),
}
"""The workload, and how far the plan may be above the dense optimum, and the bound below it."""


@pytest.mark.parametrize("name", CASES)
def test_plan_and_bound_are_near_the_dense_optimum(name, monkeypatch) -> None:
    monkeypatch.setattr(bins, "MOST_CLASSES", 20)
    workload, loss = CASES[name]
    strategy, cost, bound = draft_chain(workload)
    assert type(strategy.structure) is BinnedChainStructure
    assert any(asked.left_out.any() for asked in strategy.structure.class_queries)
    dense = fp.design(workload, rho=0.5)
    assert type(dense.strategy.structure) is MatrixStructure
    optimum, above = dense.lower_bound * dense.scale**0.5, dense.privacy_cost * dense.scale**0.5
    assert optimum * (1 - loss) <= bound <= above
    assert optimum <= cost <= above * (1 + loss)
    # The integers say the same when they are written out.
    A = build_dense_strategy(strategy)
    assert (A**2).sum(axis=0).max() == pytest.approx(strategy.sensitivity_squared, rel=1e-12)
    rows = np.concatenate([build_rows(workload, g, workload.attributes) for g in workload.groups])
    weights = np.linalg.lstsq(A.T / 2.0**30, rows.T, rcond=1e-12)[0] / 2.0**30
    assert A.T @ weights == pytest.approx(rows.T, abs=1e-6)
    least = (weights**2).sum(axis=0)
    by_group = strategy.structure.group_values(strategy.upper_unit_variances())
    stated = np.concatenate([by_group[group.name].ravel() for group in workload.groups])
    assert stated == pytest.approx(least, rel=1e-6)


def test_the_bound_of_any_weights_is_below_the_dense_trace(monkeypatch) -> None:
    workload, _ = CASES["three levels"]
    rng = np.random.default_rng(6)
    for most in (1024, 20):
        monkeypatch.setattr(bins, "MOST_CLASSES", most)
        structure = analyse_chain(workload)
        p, q = rng.lognormal(size=structure.n), rng.lognormal(size=structure.rows)
        bound = certify_bound(structure, Objective(), 1.0, Duals(p, q))
        # The rows of the matrices are those of the chain, in the same order.
        matrices = analyse_structure(workload, family=False)
        assert isinstance(matrices, MatrixStructure)
        exact = 0.0
        for asked in matrices.gather_all_queries():
            weights = q[asked.rows] / structure.targets[asked.rows] * asked.variance_multiples
            X = np.sqrt(weights)[:, None] * asked.matrix * np.sqrt(p)
            exact += np.sqrt(asked.profile_multiple) * np.linalg.norm(X, "nuc")
        exact /= np.sqrt(p.sum() * q.sum())
        assert bound <= exact
        assert bound >= exact * (1 - 1e-4 if most == 1024 else 0.9)


def test_a_long_attribute_with_bins_gets_a_certified_plan(tmp_path) -> None:
    states = [f"{i:02}" for i in range(51)]
    bins_by_state = ask_bins(3_000, 100, variance=0.64, s="identity")
    plan = fp.design(ask_chain(3_000, PREFIX, bins_by_state, s=states))
    assert type(plan.strategy.structure) is BinnedChainStructure
    assert plan.gap < 0.01
    # The contrasts of the states are over 30 bins, and the release has no answers for more.
    assert plan.strategy.size == 3_000 + 51 * 30
    plan.save(tmp_path / "plan.npz")
    fp.Plan.load(tmp_path / "plan.npz").verify()
    x = np.random.default_rng(1).integers(0, 50, (51, 3_000))
    release = fp.release(plan, fp.Tables(plan.domain, {("s", "x"): x}))
    truth = {
        "x prefix": np.cumsum(x.sum(axis=0)),
        "x ranges x s": np.add.reduceat(x, range(0, 3_000, 100), axis=1).T,
    }
    for name, exact in truth.items():
        errors = (release.estimates[name] - exact) / np.sqrt(plan.variances[name])
        assert np.abs(errors).max() < 6
    assert 0.9 < errors.std() < 1.1
    # A bin of all states is the difference of two prefixes, with the same std both ways.
    prefixes, of_bins = np.zeros(3_000), np.zeros((30, 51))
    prefixes[[499, 599]], of_bins[5] = (-1, 1), 1
    one = release.estimate({"x prefix": prefixes})
    other = release.estimate({"x ranges x s": of_bins})
    assert one.value == pytest.approx(other.value, abs=1e-4)
    assert one.std == pytest.approx(other.std, rel=1e-6)


def test_which_workloads_are_chains_with_bins(monkeypatch) -> None:
    def choose(*groups, n=3_000, **others):
        return type(analyse_structure(ask_chain(n, *groups, **others)))

    crossed = ask_bins(3_000, 100, s="identity")
    assert choose(PREFIX, crossed, s=["a", "b"]) is BinnedChainStructure
    # A design over few cells takes little time, and bins without prefixes are few classes.
    assert choose(PREFIX, ask_bins(1_200, 100), n=1_200) is MatrixStructure
    assert choose(crossed, s=["a", "b"]) is MatrixStructure
    # Windows are as many as cells.
    pairs = [(k, k + width) for width in (9, 19) for k in range(5_980)]
    windows = fp.queries({"x": fp.ranges(pairs)}, variance=1.0)
    with pytest.raises(fp.WorkloadError, match=r"71,748,000 coefficients.*Use prefixes"):
        choose(PREFIX, windows, n=6_000)
    monkeypatch.setattr(bins, "MOST_BINNED_CELLS", 3_000)
    with pytest.raises(fp.WorkloadError, match=r"x can have at most 3,000 cells .*not 3,030"):
        choose(PREFIX, crossed, s=["a", "b"])


def test_ranges_much_tighter_than_prefixes_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(bins, "MOST_CLASSES", 20)
    with pytest.raises(fp.DesignError, match=r"ranges and prefixes of x more similar targets"):
        draft_chain(ask_chain(60, PREFIX, ask_bins(60, 2, variance=0.01)))
