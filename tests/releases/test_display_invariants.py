"""Display tables against all integer tables of tiny domains; the coverage of intervals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import LinearConstraint, milp

import fitplug as fp
from fitplug.releases import display
from fitplug.releases.display import plan_display
from fitplug.releases.display_answers import add_up
from fitplug.releases.finest_tables import Estimates, list_finest
from fitplug.releases.resolutions import Resolutions, refines
from tests.helpers import people
from tests.helpers.plans import product_plan, symmetric_plan
from tests.helpers.tree_plans import design_tree, people_by_place

PLACE = fp.Hierarchy(["state", "county"], [("1", "11"), ("1", "12"), ("2", "21")])
DOMAIN = fp.Domain({"sex": ["f", "m"], "place": PLACE})
GROUPS = [
    fp.queries({"place": "county", "sex": "identity"}, std=2.0, name="cells"),
    fp.queries({"place": "county"}, std=2.0, name="counties"),
    fp.queries({"place": "state"}, std=2.0, name="states"),
    fp.total(std=2.0, name="n"),
]
PLAN = fp.design(fp.Workload(DOMAIN, GROUPS), tolerance=0.05)
MOST = 4
ALL = np.array(list(itertools.product(range(MOST + 1), repeat=6))).reshape(-1, 2, 3)
ALL = ALL[ALL.sum(axis=(1, 2)) <= MOST]
KNOWN = (
    "n", "states", "counties", "states[place = 1]", "states[place = 2]", "counties[place = 11]",
    "counties[place = 21]", "cells[place = 11, sex = f]", "cells[place = 21, sex = m]",
)  # fmt: skip


def noisy(plan, seed, x=None, scale=1.0):
    rng = np.random.default_rng(seed)
    answers = rng.normal(size=plan.strategy.size) * plan.noise_std * scale
    if x is not None:
        tables = fp.Tables(plan.domain, {plan.workload.attributes: x})
        answers = answers + plan.strategy.answer_exactly(tables.marginal)
    return fp.Release(plan=plan, answers=np.rint(answers).astype(np.int64), rho=plan.rho)


def answers_of(x):
    """All known numbers of tables (k, sex, county), by name, with the tables first."""
    counties = x.sum(axis=1)
    states = np.stack([counties[:, :2].sum(axis=1), counties[:, 2]], axis=1)
    exact = (
        counties.sum(axis=1), states, counties, states[:, 0], states[:, 1], counties[:, 0],
        counties[:, 2], x[:, 0, 0], x[:, 1, 2],
    )  # fmt: skip
    return dict(zip(KNOWN, exact, strict=True))


@st.composite
def known_numbers(draw):
    """Some numbers of one table, among them the total; at times one is changed."""
    tables = ALL[ALL.sum(axis=(1, 2)) < MOST]
    x = tables[draw(st.integers(0, len(tables) - 1))]
    names = draw(st.sets(st.sampled_from(KNOWN), max_size=4)) | {"n"}
    totals = {name: answers_of(x[None])[name][0] for name in KNOWN if name in names}
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(names)))
        totals[name] = totals[name] + draw(st.integers(-1, 1))
    return totals


@pytest.mark.parametrize("by_steps", [False, True])
@given(known_numbers(), st.integers(0, 2**32 - 1))
def test_they_are_one_of_all_tables_that_have_the_totals(by_steps, totals, seed):
    release = noisy(PLAN, seed)
    exact = answers_of(ALL)
    allowed = np.ones(len(ALL), dtype=bool)
    for name, value in totals.items():
        allowed &= (exact[name] == value).reshape(len(ALL), -1).all(axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(display, "MOST_ENTRIES", 0 if by_steps else 10**7)
        if not allowed.any():
            with pytest.raises(fp.WorkloadError, match="add up to the given totals"):
                release.integers(totals=totals)
            return
        shown = release.integers(totals=totals)
    assert shown.display.is_by_steps is by_steps
    assert (ALL[allowed] == shown.histogram).all(axis=(1, 2)).any()
    found = answers_of(shown.histogram[None])
    for name in ("n", "states", "counties"):
        np.testing.assert_array_equal(shown.estimates[name], found[name][0])
    np.testing.assert_array_equal(shown.estimates["cells"], shown.histogram.T)
    for name in ("n", "states", "counties", "cells"):
        low, high = shown.display._bound(PLAN.workload[name])
        values = ALL[allowed].transpose(0, 2, 1) if name == "cells" else exact[name][allowed]
        assert (low <= values.min(axis=0)).all()
        assert (high >= values.max(axis=0)).all()
        if set(totals) == {"n"}:  # of one invariant the limits are the exact ones
            np.testing.assert_array_equal(np.broadcast_to(low, values[0].shape), values.min(axis=0))
            np.testing.assert_array_equal(
                np.broadcast_to(high, values[0].shape), values.max(axis=0)
            )


@pytest.mark.parametrize("by_steps", [False, True])
def test_structural_zeros_cross_all_else(by_steps, monkeypatch):
    monkeypatch.setattr(display, "MOST_ENTRIES", 0 if by_steps else 10**7)
    zeros = {"cells[sex = m]": 0, "cells[place = 11]": 0, "n": 9}
    shown = noisy(PLAN, 3).integers(totals=zeros)
    assert not shown.histogram[1].any()
    assert not shown.histogram[:, 0].any()
    assert shown.histogram.sum() == 9
    lower, upper = shown.interval("cells")
    assert not upper[0].any()
    assert not upper[:, 1].any()
    assert (lower >= 0).all()
    assert (upper <= 9).all()


@pytest.mark.parametrize("by_steps", [False, True])
@pytest.mark.parametrize("within", [(), ("b",), ("a", "b")])
def test_public_totals_are_kept_without_being_named(within, by_steps, monkeypatch):
    monkeypatch.setattr(display, "MOST_ENTRIES", 0 if by_steps else 10**7)
    domain = fp.Domain({"a": fp.Integers(0, 3), "b": ["x", "y", "z"], "c": ["1", "2"]})
    groups = [fp.marginal("a", "b", "c", std=3.0), fp.marginal("b", std=2.0)]
    plan = fp.design(fp.Workload(domain, groups), unit=fp.ReplaceOne(within=within), tolerance=0.05)
    x = np.random.default_rng(1).poisson(1.0, domain_shape := (4, 3, 2))
    release = fp.release(plan, fp.Tables(domain, {("a", "b", "c"): x}))
    shown = release.integers()
    summed = tuple(k for k, name in enumerate("abc") if name not in within)
    np.testing.assert_array_equal(shown.histogram.sum(axis=summed), x.sum(axis=summed))
    assert shown.histogram.shape == domain_shape
    _, upper = shown.interval("a x b x c")
    blocks = x.sum(axis=summed, keepdims=True)
    assert (upper <= np.broadcast_to(blocks, x.shape)).all()


PLANS = {
    "dense": people.plan,
    "symmetric": symmetric_plan,
    "product": product_plan,
    "tree": lambda: design_tree(people_by_place(), tolerance=0.05),
    "tree of two tables": lambda: design_tree(people_by_place(ages=True), tolerance=0.05),
}


@pytest.mark.parametrize("make", PLANS.values(), ids=PLANS)
def test_estimates_of_finest_tables_determine_all_estimates(make):
    release = noisy(make(), 5)
    workload = release.plan.workload
    resolutions = Resolutions(workload)
    finest, _ = list_finest(resolutions)
    for group in workload.groups:
        table = next(t for t in finest if refines(t.resolution, resolutions.find_resolution(group)))
        rows = resolutions.shape(table.resolution)[0]
        values = Estimates(resolutions, release, table).read(0, 0, rows)
        found = add_up(resolutions, group, table.resolution, values)
        scale = np.sqrt(release.variances[group.name]).max()
        np.testing.assert_allclose(found, release.estimates[group.name], atol=1e-6 * scale)


def pairs(names, couples):
    domain = fp.Domain({name: ["1", "2", "3"] for name in names})
    groups = [fp.marginal(*couple, std=2.0, name="".join(couple)) for couple in couples]
    return fp.design(fp.Workload(domain, groups), tolerance=0.05)


class TestWithoutACommonTable:
    @pytest.mark.parametrize("seed", range(4))
    def test_tables_of_a_chain_are_of_one_integer_histogram(self, seed, monkeypatch):
        monkeypatch.setattr(display, "MOST_ENTRIES", 0)
        plan = pairs("abcd", ["ab", "bc", "bd"])
        shown = noisy(plan, seed).integers(totals={"ab[b = 1]": 7})
        assert shown.consistent
        W = plan.workload.matrix()
        wanted = np.concatenate([shown.estimates[g.name].ravel() for g in plan.workload.groups])
        whole = milp(
            np.zeros(W.shape[1]),
            constraints=LinearConstraint(W, wanted, wanted),
            integrality=np.ones(W.shape[1]),
        )
        assert whole.success
        assert shown.estimates["bc"][0].sum() == shown.estimates["bd"][0].sum() == 7
        with pytest.raises(fp.WorkloadError, match="these tables have no histogram"):
            shown.histogram  # noqa: B018

    def test_of_a_circle_each_agrees_with_the_one_it_began_from(self, monkeypatch):
        monkeypatch.setattr(display, "MOST_ENTRIES", 0)
        shown = noisy(pairs("abc", ["ab", "bc", "ac"]), 1).integers()
        assert not shown.consistent
        assert "false" in str(shown.to_arrow("ab").schema.metadata[b"fitplug.consistent"])
        sums = {}
        for name, table in shown.estimates.items():
            assert table.min() >= 0
            for axis, attribute in enumerate(name):
                sums.setdefault(attribute, []).append(table.sum(axis=1 - axis).tolist())
        assert len({sum(one) for both in sums.values() for one in both}) == 1
        agree = [both[0] == both[1] for both in sums.values()]
        assert sum(agree) >= 2

    def test_many_attributes(self):
        names = [f"q{i}" for i in range(30)]
        domain = fp.Domain({name: ["a", "b", "c"] for name in names})
        couples = list(itertools.pairwise(names))
        groups = [fp.marginal(a, b, std=9.0, name=f"{a} {b}") for a, b in couples]
        plan = fp.design(fp.Workload(domain, groups))
        shown = noisy(plan, 2).integers(totals={"q0 q1": np.full((3, 3), 11)})
        assert shown.consistent
        for (a, b), (_, c) in itertools.pairwise(couples):
            one, other = shown.estimates[f"{a} {b}"], shown.estimates[f"{b} {c}"]
            np.testing.assert_array_equal(one.sum(axis=0), other.sum(axis=1))

    def test_trees_share_the_nodes_that_both_tables_count(self, monkeypatch):
        monkeypatch.setattr(display, "MOST_ENTRIES", 0)
        plan = design_tree(people_by_place(ages=True), tolerance=0.05)
        shown = noisy(plan, 1).integers()
        resolutions, first = shown.display.resolutions, shown.display.finest[0]
        assert shown.consistent
        for k, table in enumerate(shown.display.finest[1:], 1):
            assert table.begun_from == 0
            common = [
                resolutions.coarsen(shown.counts[j], one.resolution, table.begins)
                for j, one in ((0, first), (k, table))
            ]
            np.testing.assert_array_equal(*common)


RELEASES = 2000


@pytest.mark.slow
def test_cut_intervals_cover_and_half_the_noise_would_not():
    """Of 2,000 releases; with 0.8 times the noise they would cover far less often."""
    x = np.array([[0, 3, 40], [1, 0, 0]])
    totals = {"n": 44, "states[place = 2]": 40, "cells[sex = m, place = 21]": 0}
    groups = PLAN.workload.groups
    exact = {"cells": x.T, "counties": x.sum(axis=0), "states": [4, 40], "n": np.array(44)}
    hits = {(g.name, factor): 0.0 for g in groups for factor in (1.0, 0.8)}
    unbiased = {g.name: 0.0 for g in groups}
    for seed in range(RELEASES):
        release = noisy(PLAN, seed, x)
        display = plan_display(release, "integers", totals)
        for group in groups:
            estimates, truth = release.estimates[group.name], exact[group.name]
            moe = 1.96 * np.sqrt(release.variances[group.name])
            covered = np.abs(estimates - truth) <= moe
            unbiased[group.name] += covered
            for factor in (1.0, 0.8):
                lower, upper = display.cut_interval(group, estimates, factor * moe)
                hit = (lower <= truth) & (truth <= upper)
                assert factor < 1 or (hit >= covered).all()
                hits[group.name, factor] += hit
    slack = 4 * np.sqrt(0.05 * 0.95 / RELEASES)
    for group in groups:
        assert (unbiased[group.name] / RELEASES >= 0.95 - slack).all()
        assert (hits[group.name, 1.0] / RELEASES >= 0.95 - slack).all()
    assert (hits["cells", 0.8] / RELEASES).min() < 0.95 - slack
