"""Releases of attributes with a cell for all other values: intervals, quantiles, the command."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import fitplug as fp
from fitplug.expressions import Expressions
from fitplug.releases.linear_combinations import estimate_stds, estimate_values
from fitplug.workload import find_quantile
from tests.helpers.command_line import fitplug
from tests.helpers.many_releases import release_often

RELEASES = 400
AGES = 30
DOMAIN = fp.Domain(
    {
        "sex": ["f", "m"],
        "age": fp.Integers(0, AGES - 1, other="missing"),
        "income": fp.Bins([0, 10, 50, 100], other="none"),
    }
)
GROUPS = [
    fp.queries({"sex": "identity", "age": "prefix"}, std=6.0, name="ages"),
    fp.queries({"age": fp.ranges([(0, 17), (18, "missing")])}, std=6.0, name="bands"),
    fp.queries({"sex": "identity", "income": "prefix"}, std=6.0, name="incomes"),
    fp.queries({"age": "identity", "income": "identity"}, std=20.0, name="both"),
    fp.queries({"age": fp.ranges([(0, 17), (18, 29)])}, std=6.0, name="known"),
    fp.total(std=6.0),
]
PLAN = fp.design(fp.Workload(DOMAIN, GROUPS), tolerance=0.05)
CELLS = np.random.default_rng(3).poisson(4.0, DOMAIN.shape)
CELLS[:, -1] += 70  # so that the median with these rows would be another one
TABLES = fp.Tables(DOMAIN, {DOMAIN.names: CELLS})
ASKED = {
    "ages[age <= 17]": CELLS[:, :18].sum(),
    "ages[sex = f, age > 17]": CELLS[0, 18:AGES].sum(),
    "bands[age <= 17]": CELLS[:, :18].sum(),
    "bands[age = '18..29 or missing']": CELLS[:, 18:].sum(),
    "bands": CELLS.sum(),
    "both[age = missing]": CELLS[:, AGES].sum(),
    "both[age = missing, income = none]": CELLS[:, AGES, 3].sum(),
    "both[age != 0]": CELLS[:, 1:].sum(),
    "both[age >= 0, income < 50]": CELLS[:, :AGES, :2].sum(),
    "incomes[sex = m, income < 100]": CELLS[1, :, :3].sum(),
    "total - ages[age <= 29]": CELLS[:, AGES].sum(),
    "total": CELLS.sum(),
}


def find_median(counts: np.ndarray) -> int:
    ages = np.repeat(np.arange(AGES), counts)
    return int(np.quantile(ages, 0.5, method="inverted_cdf"))


def test_estimates_count_the_rows_that_they_name() -> None:
    answers = PLAN.strategy.answer_exactly(TABLES.marginal)
    exact = fp.Release(plan=PLAN, answers=answers, rho=PLAN.rho)  # without noise
    for asked, count in ASKED.items():
        assert exact.estimate(asked).value == pytest.approx(count, abs=1e-6), asked
    for sex in (0, 1):
        asked = f"ages[sex = {'fm'[sex]}]"
        counts = CELLS[sex, :AGES].sum(axis=1)
        assert exact.quantile(asked, 0.5).value == find_median(counts)
        assert type(exact.quantile(asked, 0.5).low) is int
    for asked in ("ages", "both", "ages[sex = f] + ages[sex = m]"):
        assert exact.quantile(asked, 0.5, of="age").value == find_median(
            CELLS[:, :AGES].sum(axis=(0, 2))
        )
    assert 0 <= exact.quantile("incomes", 0.9).value <= 100


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("ages", r"\(none counts missing\)\."),
        ("known", r"0\.\.17, 18\.\.29 \(none counts missing\)\."),
        ("ages[sex = f, age = missing]", r"\(none counts missing\)\."),
        ("both[age < missing]", "'missing' has no order"),
        ("both[income >= none]", "'none' has no order"),
    ],
)
def test_what_rows_cannot_count_is_refused(asked: str, says: str) -> None:
    release = fp.release(PLAN, TABLES)
    with pytest.raises(fp.WorkloadError, match=says):
        release.estimate(asked)


@pytest.mark.slow
def test_intervals_cover_the_rows_that_they_count() -> None:
    reader = Expressions(PLAN.workload)
    terms = [reader.read(asked) for asked in ASKED]
    counts = np.array(list(ASKED.values()))
    median = find_median(CELLS[:, :AGES].sum(axis=(0, 2)))
    covered, median_covered, widths = np.zeros(len(terms)), 0, None
    for release in release_often(PLAN, TABLES, RELEASES):
        if widths is None:  # the stds do not depend on the noise
            widths = find_quantile(0.9) * estimate_stds(release, terms)
        covered += np.abs(estimate_values(release, terms) - counts) <= widths
        found = release.quantile("ages", 0.5, confidence=0.9)
        median_covered += found.low <= median <= found.high
    spread = 5 * np.sqrt(0.09 / RELEASES)
    assert np.abs(covered / RELEASES - 0.9).max() <= spread, covered
    assert median_covered / RELEASES >= 0.9 - spread


SPEC = """
ledger = false

[data]
path = "people.csv"

[privacy]
unit = { records = 1 }

[domain]
SEX = { categories = ["1", "2"], other = "?" }
AGE = { integers = [0, 9], other = "missing" }

[[query]]
name = "ages"
SEX = "identity"
AGE = "prefix"
std = 2.0

[[query]]
name = "bands"
AGE = { ranges = [[0, 4], [5, 9], ["missing", "missing"]] }
std = 2.0

[[query]]
name = "total"
std = 2.0

[output]
path = "release/"
"""


def test_a_run_counts_every_row(tmp_path) -> None:
    ages = [3, 7, None, 120]
    frame = pd.DataFrame({"SEX": ["1", "2", None, "9"] * 250, "AGE": ages * 250})
    frame.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "release.toml").write_text(SPEC)
    ran = fitplug("run", tmp_path / "release.toml")
    assert ran.code == 0, ran.err
    release = fp.Release.load(tmp_path / "release")
    for asked, count in {"total": 1000, "bands[AGE = missing]": 500, "ages[AGE <= 9]": 500}.items():
        assert abs(release.estimate(asked).value - count) < 20
    shown = fitplug("show", tmp_path / "release").out
    assert re.search("not counted +no rows: every attribute in use has a cell for other", shown)
    review = next((tmp_path / "release").rglob("review*")).read_text()
    assert "Every row is in the tables." in review
    assert "missing counts missing values and all others" in review
