"""Quantiles: against NumPy's, a search through all cells, and 2,000 releases."""

from __future__ import annotations

import contextlib
import functools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import isotonic_regression

import fitplug as fp
from fitplug.expressions import Expressions
from fitplug.expressions.tokens import split_tokens
from fitplug.releases import quantiles
from fitplug.releases.linear_combinations import add_terms, estimate_stds, estimate_values
from fitplug.releases.noisy_answers import EstimatesPart
from fitplug.workload import find_quantile
from tests.helpers.many_releases import release_often

RELEASES = 2000
EDGES = [0, 1_000, 5_000, 20_000, 100_000]
AGES = 40
DOMAIN = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(20, 19 + AGES), "income": fp.Bins(EDGES)})


def make_tables(counts: dict[str, list[int]]) -> fp.Tables:
    """Tables of the domain, with these numbers of each age, by sex, spread over incomes."""
    cells = np.zeros(DOMAIN.shape, dtype=np.int64)
    for s, sex in enumerate("fm"):
        for age, count in enumerate(counts[sex]):
            cells[s, age] = np.bincount((np.arange(count) + age) % 4, minlength=4)
    return fp.Tables(DOMAIN, {DOMAIN.names: cells})


def make_plan(std: float) -> fp.Plan:
    groups = [
        fp.queries({"sex": "identity", "age": "prefix"}, std=std, name="ages"),
        fp.queries({"age": fp.ranges([(20, 29), (30, 44), (45, 59)])}, std=std, name="bands"),
        fp.queries({"sex": "identity", "income": "identity"}, std=std, name="incomes"),
        fp.queries({"age": "identity", "income": "identity"}, std=4 * std, name="both"),
        fp.queries({"age": "all_ranges"}, std=4 * std, name="every"),
    ]
    return fp.design(fp.Workload(DOMAIN, groups), tolerance=0.1)


DENSE = {"f": [1] * AGES, "m": [2 + age % 3 for age in range(AGES)]}
TIES = {"f": [0, 400, *[0] * (AGES - 3), 400], "m": [0] * (AGES - 1) + [300]}
STEPS = {"f": [400] * AGES, "m": [0] * AGES}
EMPTY = {"f": [0] * AGES, "m": [900] + [0] * (AGES - 1)}


def find_exact(counts: list[int], q: float) -> int:
    ages = np.repeat(np.arange(20, 20 + AGES), counts)
    return int(np.quantile(ages, q, method="inverted_cdf"))


@pytest.mark.parametrize("q", [0.1, 0.25, 0.5, 0.9])
def test_without_much_noise_it_is_numpys_quantile(q):
    counts = {sex: [1000 * n for n in DENSE[sex]] for sex in "fm"}
    release = fp.release(make_plan(2.0), make_tables(counts))
    for sex in "fm":
        found = release.quantile(f"ages[sex = {sex}]", q - 0.003)
        assert found.value == found.low == found.high == find_exact(counts[sex], q - 0.003)
    both = [f + m for f, m in zip(counts["f"], counts["m"], strict=True)]
    exact = find_exact(both, q)
    for asked in ("ages", "ages[sex = f] + ages[sex = m]", "ages - ages[sex = f] + ages[sex = f]"):
        assert abs(release.quantile(asked, q).value - exact) <= 1
    income = release.quantile("incomes", q)
    assert 0 <= income.low <= income.value <= income.high <= 100_000
    assert income.low in EDGES
    assert income.high in EDGES
    assert release.quantile("both", q, of="age").low <= exact
    bands = release.quantile("bands", q)
    assert (bands.low, bands.high) in {(20, 29), (30, 44), (45, 59)}
    assert bands.low <= exact <= bands.high


def search_all(release, asked, q, confidence):
    """The interval and the estimate by their definition: every cell, with the exact std of every
    sum."""
    z = find_quantile(confidence)
    reader = Expressions(release.plan.workload)
    cuts, counts = [], []
    for j in range(AGES):
        with contextlib.suppress(fp.WorkloadError):
            counts.append(reader.read(asked, {"age": [(0, j + 1)]}))
            cuts.append(j)
    sums = [add_terms([terms, counts[-1]], [1.0, -q]) for terms in counts]
    t, s = estimate_values(release, sums), estimate_stds(release, sums)
    last = len(cuts) - 1
    low = next((k for k in range(len(cuts)) if t[k] >= -z * s[k]), None)
    high = min(max((k for k in range(len(cuts)) if t[k] <= z * s[k]), default=-1) + 1, last)
    low, high = (0, last) if low is None or low > high else (low, high)
    crossed = np.flatnonzero(isotonic_regression(t).x >= 0)
    none = estimate_values(release, counts[-1:])[0] <= 0 or not len(crossed)
    value = None if none else 20 + cuts[crossed[0]]
    return (cuts[low - 1] + 1 if low else 0, cuts[high]), value


@given(
    st.lists(st.integers(0, 9), min_size=AGES, max_size=AGES),
    st.sampled_from(
        [
            "ages",
            "ages[sex = f]",
            "both",
            "every",
            "ages[sex = f] + bands",
            "both[age != 30]",
            "every[age >= 25, age != 40]",
            "ages[age >= 30] - 0.5 * ages[sex = m]",
        ]
    ),
    st.floats(0.01, 0.99),
    st.sampled_from([0.5, 0.95]),
)
def test_the_search_finds_what_all_cells_say(counts, asked, q, confidence):
    release = fp.release(PLAN, make_tables({"f": counts, "m": counts[::-1]}))
    found = release.quantile(asked, q, of="age", confidence=confidence)
    assert (found.cells, found.value) == search_all(release, asked, q, confidence)
    assert found.low == 20 + found.cells[0]
    assert found.high == 20 + found.cells[1]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("asked", ["ages", "ages[sex = m]", "both[income < 1000]", "every + ages"])
def test_estimates_in_parts_give_the_same(monkeypatch, axis, asked):
    release = fp.release(PLAN, make_tables(DENSE))
    whole = release.quantile(asked, [0.2, 0.7], of="age")

    def list_parts(self, name):
        estimates = self.estimates[name]
        along = min(axis, estimates.ndim - 1)
        starts = range(0, estimates.shape[along], 7)
        split = np.split(estimates, starts[1:], axis=along)
        return [
            EstimatesPart(along, start, start + part.shape[along], lambda part=part: part)
            for start, part in zip(starts, split, strict=True)
        ]

    monkeypatch.setattr(quantiles, "list_parts", list_parts)
    assert release.quantile(asked, [0.2, 0.7], of="age") == whole


@pytest.mark.parametrize("asked", ["incomes", "incomes[sex = f]", "incomes + incomes[sex = m]"])
def test_an_expression_is_read_a_few_times_and_not_for_every_cell(monkeypatch, asked):
    reads = []
    monkeypatch.setattr(
        "fitplug.expressions.parser.split_tokens",
        lambda text: reads.append(text) or split_tokens(text),
    )
    release_long_chain().quantile(asked, 0.5)
    assert len(reads) <= 50


PLAN = make_plan(6.0)


@functools.cache
def release_long_chain():
    """A release of 500 cells with 40 rows in each, by sex."""
    domain = fp.Domain({"sex": ["f", "m"], "income": fp.Integers(0, 499)})
    incomes = fp.queries({"sex": "identity", "income": "prefix"}, std=6.0, name="incomes")
    plan = fp.design(fp.Workload(domain, [incomes]), tolerance=0.1)
    return fp.release(plan, fp.Tables(domain, {domain.names: np.full(domain.shape, 40)}))


def share_covered(counts, sex, q, confidence):
    """The share of releases whose interval has the exact quantile."""
    exact = find_exact(counts[sex], q)
    covered = 0
    for release in release_often(PLAN, make_tables(counts), RELEASES):
        found = release.quantile(f"ages[sex = {sex}]", q, confidence=confidence)
        covered += found.low <= exact <= found.high
    return covered / RELEASES


def spread(confidence):
    """Five standard deviations of the binomial."""
    return 5 * math.sqrt(confidence * (1 - confidence) / RELEASES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "sex", "q"),
    [(DENSE, "f", 0.5), (DENSE, "m", 0.9), (TIES, "f", 0.5), (TIES, "m", 0.01), (EMPTY, "m", 0.5)],
)
def test_intervals_cover_also_at_ties_and_ends(counts, sex, q):
    assert share_covered(counts, sex, q, 0.9) >= 0.9 - spread(0.9)


@pytest.mark.slow
@pytest.mark.parametrize("narrower", [1.0, 0.8])
def test_at_the_edge_of_a_cell_coverage_is_what_one_side_leaves(narrower):
    """T is exactly zero at the quantile and far from it at the cell before, so that only the lower
    end may fail; with 0.8 of the width it does so more often."""
    z = narrower * find_quantile(0.9)
    share = share_covered(STEPS, "f", 0.5, math.erf(z / math.sqrt(2)))
    expected = (1 + math.erf(z / math.sqrt(2))) / 2
    assert abs(share - expected) <= 0.6 * spread(expected)


@pytest.mark.slow
def test_simultaneous_intervals_cover_all_at_once():
    quantiles = [0.1, 0.5, 0.9]
    exact = [find_exact(DENSE["m"], q) for q in quantiles]
    covered = 0
    for release in release_often(PLAN, make_tables(DENSE), RELEASES):
        found = release.quantile("ages[sex = m]", quantiles, confidence=0.9, simultaneous=True)
        covered += all(f.low <= e <= f.high for f, e in zip(found, exact, strict=True))
    assert covered / RELEASES >= 0.9 - spread(0.9)


def test_a_group_without_rows_has_no_estimate_more_often_than_not():
    found = [
        release.quantile("ages[sex = f]", 0.5)
        for release in release_often(PLAN, make_tables(EMPTY), 50)
    ]
    assert sum(quantile.value is None for quantile in found) >= 10
    assert all(20 <= quantile.low <= quantile.high <= 59 for quantile in found)


@pytest.mark.parametrize(
    ("asked", "q", "options", "says"),
    [
        ("ages", 0.0, {}, "between 0 and 1, not 0.0"),
        ("ages", 1, {}, "between 0 and 1, not 1"),
        ("ages", True, {}, "between 0 and 1, not True"),
        ("ages / both", 0.5, {}, "is a ratio"),
        ("both", 0.5, {}, "have quantiles: 'age', 'income'"),
        ("ages + incomes", 0.5, {}, "lists values in order"),
        ("ages", 0.5, {"of": "sex"}, "'sex' has no quantiles"),
        ("nothing", 0.5, {}, "nothing"),
        ("ages", 0.5, {"confidence": 1.0}, "confidence"),
    ],
)
def test_wrong_questions_are_refused(asked, q, options, says):
    release = fp.release(PLAN, make_tables(DENSE))
    with pytest.raises(fp.FitplugError, match=says):
        release.quantile(asked, q, **options)
