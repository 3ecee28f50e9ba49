"""Histograms of large releases: projections family by family, from the total down."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.releases import descent, display, display_tables
from fitplug.releases.descent import Descent
from fitplug.releases.division import project_families, round_families
from fitplug.releases.finest_tables import Estimates
from fitplug.releases.invariants import arrange
from tests.helpers.tree_plans import design_tree, people_by_place


def draw(plan, x, noise=1.0, seed=0):
    names = plan.workload.attributes
    tables = fp.Tables(plan.domain, {names: x})
    exact = plan.strategy.answer_exactly(tables.marginal)
    drawn = np.random.default_rng(seed).normal(size=len(exact)) * plan.noise_std * noise
    return fp.Release(plan=plan, answers=exact + np.rint(drawn).astype(np.int64), rho=plan.rho)


@pytest.fixture
def large(monkeypatch):
    """All releases count as large."""
    monkeypatch.setattr(display, "MOST_ENTRIES", 0)


@st.composite
def families(draw_one):
    lengths = draw_one(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    numbers = st.floats(-20, 20, allow_nan=False, width=16)
    values = draw_one(st.lists(numbers, min_size=sum(lengths), max_size=sum(lengths)))
    totals = draw_one(st.lists(st.integers(0, 30), min_size=len(lengths), max_size=len(lengths)))
    return np.array(values), np.repeat(np.arange(len(lengths)), lengths), np.array(totals) * 1.0


class TestProjection:
    @given(families())
    def test_is_the_shift_that_gives_the_total(self, given_families):
        values, of, totals = given_families
        found = project_families(values, of, totals)
        for k, total in enumerate(totals):
            own = values[of == k]
            low, high = own.min() - total - 1, own.max()
            for _ in range(200):  # bisection, independent of sorting
                middle = (low + high) / 2
                over = np.maximum(own - middle, 0).sum() > total
                low, high = (middle, high) if over else (low, middle)
            np.testing.assert_allclose(found[of == k], np.maximum(own - high, 0), atol=1e-9)
            assert found[of == k].sum() == pytest.approx(total, abs=1e-9)

    @given(families())
    def test_rounding_keeps_totals_and_moves_by_less_than_one(self, given_families):
        values, of, totals = given_families
        real = project_families(values, of, totals)
        whole = round_families(real, of, totals)
        np.testing.assert_array_equal(np.bincount(of, whole), totals)
        assert (np.abs(whole - real) < 1 + 1e-9).all()
        assert (whole >= 0).all()
        assert (whole == np.rint(whole)).all()

    def test_is_the_nearest(self):
        values = np.array([3.0, -1.0, 0.5, 2.0])
        x = cp.Variable(4, nonneg=True)
        cp.Problem(cp.Minimize(cp.sum_squares(x - values)), [cp.sum(x) == 3]).solve(cp.CLARABEL)
        found = project_families(values, np.zeros(4, dtype=int), np.array([3.0]))
        np.testing.assert_allclose(found, x.value, atol=1e-5)


def test_one_family_is_the_least_squares_of_all_cells(monkeypatch):
    """With one symmetric attribute and a known total, both procedures are the same problem."""
    domain = fp.Domain({"a": fp.Integers(0, 6)})
    plan = fp.design(fp.Workload(domain, [fp.marginal("a", std=4.0), fp.total(std=3.0, name="n")]))
    release = draw(plan, np.array([3, 0, 0, 9, 1, 0, 2]))
    expected = release.nonnegative(totals={"n": 15.0})
    monkeypatch.setattr(display, "MOST_ENTRIES", 0)
    found = release.nonnegative(totals={"n": 15.0})
    assert found.display.is_by_steps
    assert not expected.display.is_by_steps
    np.testing.assert_allclose(found.histogram, expected.histogram, atol=1e-6)


@pytest.fixture(scope="module")
def release():
    domain = fp.Domain({"a": fp.Integers(0, 4), "b": fp.Integers(0, 6), "c": ["x", "y", "z"]})
    groups = [
        fp.marginal("c", "a", "b", std=3.0, name="cells"),
        fp.marginal("a", "b", std=3.0, name="ab"),
        fp.total(std=2.0, name="n"),
    ]
    plan = fp.design(fp.Workload(domain, groups), tolerance=0.05)
    return draw(plan, np.random.default_rng(1).poisson(1.0, domain.shape))


class TestBlocks:
    def test_counts_are_not_negative_and_agree(self, release, large, monkeypatch):
        monkeypatch.setattr(descent, "CHUNK", 4)
        shown = release.nonnegative()
        assert shown.histogram.shape == (5, 7, 3)
        assert (shown.histogram >= 0).all()
        assert shown.histogram.sum() == pytest.approx(release.estimates["cells"].sum())
        # The first attribute was divided first, by the nearest counts with this total.
        margin = release.estimates["cells"].sum(axis=(0, 2))
        expected = project_families(margin, np.zeros(5, int), shown.histogram.sum()[None])
        np.testing.assert_allclose(shown.histogram.sum(axis=(1, 2)), expected, atol=1e-9)
        assert shown.consistent
        assert shown.to_arrow("ab").schema.metadata[b"fitplug.display"] == (
            b"nonnegative, by steps"
        )
        assert shown.biased

    def test_integers(self, release, large):
        shown = release.integers(totals={"n": 100})
        for table in shown.estimates.values():
            assert table.dtype == np.int64
            assert table.min() >= 0
        assert shown.histogram.sum() == 100
        again = release.integers(totals={"n": 100})
        np.testing.assert_array_equal(shown.histogram, again.histogram)

    def test_exact_counts_are_kept(self, release, large):
        x = np.random.default_rng(1).poisson(1.0, release.plan.domain.shape)
        exact = draw(release.plan, x, noise=0.0)
        np.testing.assert_array_equal(exact.integers().histogram, x)

    @pytest.mark.parametrize(
        ("totals", "says"),
        [
            ({"n": -1}, "add up to the given totals"),
            ({"n": float("nan")}, "must be a finite number, not nan"),
            ({"n": 5, "cells[a = 1]": 6}, "add up to the given totals"),
            ({"cells[a = 1]": 6, "cells[a = 2]": -1}, "add up to the given totals"),
            ({"cells[a = 1]": 6, "cells[b = 2]": 3}, "partly overlapping regions"),
            ({"cells[a <= 1]": 6}, "cannot match the total"),
            ({"n": 5, "ab": 6}, "'ab' must have shape"),
        ],
    )
    def test_bad_totals(self, release, large, totals, says):
        with pytest.raises(fp.WorkloadError, match=says):
            release.nonnegative(totals=totals)

    def test_no_space(self, release, large, monkeypatch):
        monkeypatch.setattr(display_tables, "MOST_CELLS", 100)
        with pytest.raises(fp.WorkloadError, match="at most 100 cells, not 105"):
            release.nonnegative()


def test_trees_are_divided_level_by_level(large):
    """The way passes all that is asked; each count is divided into the nearest integers."""
    plan = design_tree(people_by_place(), tolerance=0.05)
    release = draw(plan, np.random.default_rng(5).poisson(2.0, (2, 17)), noise=2.0)
    shown = release.integers()
    resolutions, (table,) = shown.display.resolutions, shown.display.finest
    way = Descent(resolutions, table, [], integers=True)._steps
    assert way[0] == resolutions.coarsest
    assert way[-1] == table.resolution == resolutions.finest
    values = Estimates(resolutions, release, table).read(0, 0, shown.counts[0].shape[0])
    counts = np.rint(values.sum()).reshape((1, 1))
    for before, after in itertools.pairwise(way):
        wanted = resolutions.coarsen(values, table.resolution, after)
        (axis,) = [k for k in range(2) if before[k] != after[k]]
        parents = resolutions.find_parents(axis, after[axis], before[axis])
        divided = np.zeros(wanted.shape)
        for other in range(wanted.shape[1 - axis]):
            line = (other, slice(None)) if axis else (slice(None), other)
            for k, total in enumerate(counts[line]):
                of, zeros = np.flatnonzero(parents == k), np.zeros((parents == k).sum(), dtype=int)
                real = project_families(wanted[line][of], zeros, np.array([total]))
                divided[line][of] = round_families(real, zeros, np.array([total]))
        counts = divided
        asked = [g for g in plan.workload.groups if resolutions.find_resolution(g) == after]
        for group in asked:
            found = arrange(plan.workload, group, shown.estimates[group.name])
            np.testing.assert_array_equal(found, counts)
    np.testing.assert_array_equal(shown.histogram, counts)
    assert shown.histogram.min() >= 0


def test_numbers_by_sex_are_not_added_up_from_leaves(large):
    """States by sex are divided before tracts, so the biases of tracts do not add up in them."""
    leaves = [(f"{s}", f"{s}-{t}") for s in range(3) for t in range(100)]
    place = fp.Hierarchy(["state", "tract"], leaves)
    domain = fp.Domain({"place": place, "sex": ["f", "m"]})
    groups = [
        fp.queries({"place": level, "sex": "identity"}, std=5.0, name=level)
        for level in ("state", "tract")
    ]
    plan = fp.design(fp.Workload(domain, groups), tolerance=0.05)
    release = draw(plan, np.random.default_rng(5).poisson(1.0, (300, 2)))
    off = release.integers().estimates["state"] - release.estimates["state"]
    assert np.abs(off).max() <= 3


def test_nodes_of_a_level_are_the_cells():
    place = fp.Hierarchy(
        ["state", "county", "tract"],
        [(s, f"{s}{c}", f"{s}{c}{t}") for s in "ab" for c in "cde" for t in "12"],
    )
    domain = fp.Domain({"sex": ["1", "2"], "place": place})
    groups = [
        fp.queries({"sex": "identity", "place": "county"}, std=3.0, name="counties"),
        fp.queries({"place": "state"}, std=3.0, name="states"),
    ]
    plan = fp.design(fp.Workload(domain, groups), tolerance=0.05)
    release = draw(plan, np.random.default_rng(1).poisson(1.0, domain.shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(display, "MOST_ENTRIES", 0)
        shown = release.integers()
    counties = release.estimates["counties"].sum(axis=0)
    states = counties.reshape(2, 3).sum(axis=1)
    total = np.rint(states.sum())
    expected = round_families(
        project_families(states, np.zeros(2, int), total[None]), np.zeros(2, int), total[None]
    )
    np.testing.assert_array_equal(shown.estimates["states"], expected)
    families = np.repeat([0, 1], 3)
    below = round_families(project_families(counties, families, expected), families, expected)
    np.testing.assert_array_equal(shown.estimates["counties"].sum(axis=0), below)
