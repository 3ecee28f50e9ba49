"""Limits on the records of a person: what the intervals are about, and what a limit leaves out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import chi2

import fitplug as fp
import fitplug_dask as fpd
from fitplug.counts import describe_rows, make_filters
from fitplug.errors import BudgetError, InputError
from fitplug.releases.noisy_answers import describe_population
from fitplug.releases.review_texts import format_markdown
from fitplug.workload import describe_apart
from fitplug_cli.render.facts import collect_facts
from fitplug_cli.render.page import render_page
from tests.helpers import people
from tests.helpers.command_line import fitplug
from tests.helpers.forged_folders import find_table, forge_manifest, forge_table
from tests.helpers.many_releases import release_often

RELEASES = 1000
DOMAIN = fp.Domain({"SEX": ["1", "2"], "AGE": fp.Integers(0, 9)})
KEPT, LARGEST = 3, 40
PLAN = fp.design(
    fp.Workload(DOMAIN, [fp.marginal("SEX", "AGE", std=12.0, name="table"), fp.total(std=20.0)]),
    unit=fp.AddRemove(KEPT),
)
COARSE = fp.design(fp.Workload(DOMAIN, [fp.total(std=60.0)]), unit=fp.AddRemove(LARGEST))


def visits() -> dict[str, np.ndarray]:
    """Visits of 300 persons: most have few, some many."""
    rng = np.random.default_rng(11)
    rows = np.minimum(rng.geometric(0.2, 300), LARGEST)
    person = np.repeat(np.arange(300), rows)
    sex = np.repeat(rng.choice(["1", "2"], 300), rows)
    return {"ID": person, "SEX": sex, "AGE": rng.integers(0, 10, len(person))}


VISITS = visits()
PER_PERSON = np.bincount(VISITS["ID"])
TRUE_KEPT, TRUE_ALL = int(np.minimum(PER_PERSON, KEPT).sum()), len(VISITS["ID"])


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> fp.Tables:
    path = tmp_path_factory.mktemp("visits") / "visits.parquet"
    pq.write_table(pa.table(VISITS), path)
    return fpd.count(fp.Source(path, person="ID"), PLAN)


@pytest.fixture(scope="module")
def whole() -> fp.Tables:
    table = {("SEX",): np.bincount((VISITS["SEX"] == "2").astype(int))}
    return fp.Tables(DOMAIN, table, unit=fp.AddRemove(LARGEST), person="ID")


@pytest.fixture(scope="module")
def limited(counted: fp.Tables) -> list[fp.Release]:
    return list(release_often(PLAN, counted, RELEASES))


def is_share(covered: float, confidence: float) -> bool:
    """Within five standard deviations of the binomial."""
    return abs(covered - confidence) <= 5 * math.sqrt(confidence * (1 - confidence) / RELEASES)


@pytest.mark.slow
def test_intervals_cover_the_records_kept_and_rarely_all(
    limited: list[fp.Release], counted: fp.Tables
) -> None:
    kept = counted["SEX", "AGE"]
    every = np.zeros(DOMAIN.shape)
    np.add.at(every, ((VISITS["SEX"] == "2").astype(int), VISITS["AGE"]), 1)
    assert (every > kept).all()
    ends = [release.interval("table") for release in limited]
    of_kept, of_all = (
        np.mean([(low <= exact) & (exact <= high) for low, high in ends], axis=0)
        for exact in (kept, every)
    )
    assert all(is_share(share, 0.95) for share in of_kept.ravel())
    assert of_all.mean() < 0.2  # 0.14 was found
    totals = [release.interval("total") for release in limited]
    assert is_share(np.mean([low <= TRUE_KEPT <= high for low, high in totals]), 0.95)
    assert not any(low <= TRUE_ALL <= high for low, high in totals)
    assert limited[0].limited == "enforced"
    assert "Counting kept at most 3 rows per person. " in limited[0].population
    assert "may miss the count of all rows" in limited[0].population


def estimated(noise: float, counted: fp.Tables, whole: fp.Tables) -> list[fp.TruncationLoss]:
    """Pairs of releases by the sampler that releases, or with so much noise of another kind."""
    rng = np.random.default_rng(5)

    def drawn(plan: fp.Plan, tables: fp.Tables) -> fp.Release:
        if noise == 1.0:
            return fp.release(plan, tables)
        exact = plan.strategy.answer_exactly(tables.marginal)
        added = rng.normal(size=len(exact)) * plan.noise_std * noise
        answers = exact + np.rint(added).astype(np.int64)
        return fp.Release(plan, answers, plan.rho, limited="enforced")

    return [
        fp.estimate_truncation(drawn(PLAN, counted), drawn(COARSE, whole)) for _ in range(RELEASES)
    ]


def is_calibrated(found: list[fp.TruncationLoss]) -> bool:
    """Whether the intervals cover what was lost as often as they say, and errors have their std."""
    records, share = TRUE_ALL - TRUE_KEPT, 1 - TRUE_KEPT / TRUE_ALL
    covered = []
    for lost in found:
        low, high = lost.share_interval()
        least, most = lost.rows.interval()
        covered.append((low <= share <= high, least <= records <= most))
    errors = sum(((lost.rows.value - records) / lost.rows.std) ** 2 for lost in found)
    spread = 1e-6 <= chi2.cdf(errors, RELEASES) <= 1 - 1e-6
    return spread and all(is_share(part, 0.95) for part in np.mean(covered, axis=0))


@pytest.mark.long
def test_the_estimate_of_truncation_covers_them_as_often_as_it_says(
    counted: fp.Tables, whole: fp.Tables
) -> None:
    assert is_calibrated(estimated(1.0, counted, whole))


@pytest.mark.parametrize("noise", [0.8, 1.25])
@pytest.mark.slow
def test_other_noise_would_be_noticed(noise: float, counted: fp.Tables, whole: fp.Tables) -> None:
    assert not is_calibrated(estimated(noise, counted, whole))


def exact(plan: fp.Plan, tables: fp.Tables, limited: str | None) -> fp.Release:
    answers = plan.strategy.answer_exactly(tables.marginal)
    return fp.Release(plan, answers, plan.rho, limited=limited)  # type: ignore[arg-type]


def test_what_is_lost_without_noise(counted: fp.Tables, whole: fp.Tables) -> None:
    few, many = (
        exact(PLAN, counted, "enforced"),
        exact(COARSE, whole, "enforced"),
    )
    lost = fp.estimate_truncation(few, many)
    assert lost.rows.value == pytest.approx(TRUE_ALL - TRUE_KEPT)
    assert lost.share == pytest.approx(1 - TRUE_KEPT / TRUE_ALL)
    # AGE is in the first plan alone, and SEX too: rows outside their domains are told apart.
    assert lost.apart == ("SEX", "AGE")
    low, high = lost.share_interval()
    assert low < lost.share < high
    by_group = fp.estimate_truncation(few, many, "table[SEX = 1] + table[SEX = 2]", of="total")
    assert by_group.rows.value == pytest.approx(lost.rows.value)


def test_fieller_ends_solve_their_equation() -> None:
    from fitplug.releases.combination import Estimate
    from fitplug.workload.targets import find_quantile

    lost = fp.TruncationLoss(Estimate(700.0, 20.0), Estimate(1000.0, 60.0), PLAN.unit, COARSE.unit)
    for end in lost.share_interval(0.9):
        ratio = 1 - end
        at = abs(700.0 - ratio * 1000.0) / math.hypot(20.0, ratio * 60.0)
        assert at == pytest.approx(find_quantile(0.9, 1))


def test_releases_that_tell_nothing_of_a_limit_are_refused(
    counted: fp.Tables, whole: fp.Tables
) -> None:
    few, many = (
        exact(PLAN, counted, "enforced"),
        exact(COARSE, whole, "declared"),
    )
    for first in ("declared", None):
        with pytest.raises(InputError, match="Name a release that was counted with person="):
            fp.estimate_truncation(exact(PLAN, counted, first), many)
    with pytest.raises(
        InputError,
        match=r"the second release must keep more rows per person \(3\) than the first \(3\)",
    ):
        fp.estimate_truncation(few, few)
    with pytest.raises(InputError, match=r"keep more rows per person \(unknown\)"):
        fp.estimate_truncation(few, replace(many, limited=None))
    only = replace(few, rows='only rows where ST is "15" are counted')
    with pytest.raises(
        InputError, match=r'count different rows.* ST is "15".*each row counts once'
    ):
        fp.estimate_truncation(only, many)
    with pytest.raises(InputError, match="each row counts N times") as caught:
        fp.estimate_truncation(few, replace(many, rows="each row counts N times" + "; x" * 99))
    assert len(str(caught.value)) < 400
    same = fp.estimate_truncation(only, replace(many, rows=only.rows))
    assert same.rows == fp.estimate_truncation(few, many).rows
    with pytest.raises(InputError, match=r"is a ratio. Give a count"):
        fp.estimate_truncation(few, many, "total / total")
    near = fp.TruncationLoss(
        fp.Estimate(70.0, 20.0), fp.Estimate(100.0, 60.0), PLAN.unit, COARSE.unit
    )
    with pytest.raises(InputError, match="Release this count again with a smaller std"):
        near.share_interval()


ALL_COUNTED = "Every matching row was counted. The guarantee assumes at most "
UNCHECKED = "fitplug did not check this."


@pytest.mark.parametrize(
    ("k", "limited", "said", "unsaid"),
    [
        (3, "enforced", "Counting kept at most 3 rows per person. Rows without", "assumes"),
        (1, "enforced", "one row per person, so a total is a number of persons. Rows", "assumes"),
        (3, "declared", f"{ALL_COUNTED}3 rows per person; {UNCHECKED}", "kept"),
        (1, "declared", f"{ALL_COUNTED}one row per person; {UNCHECKED}", "kept"),
        (3, None, f"assumes at most 3 rows per person; {UNCHECKED}", "Every matching row"),
    ],
)
def test_every_limit_in_words(k: int, limited: str | None, said: str, unsaid: str) -> None:
    sentences = describe_population(k, limited)  # type: ignore[arg-type]
    assert said in sentences
    assert unsaid not in sentences
    assert "household" in describe_population(k, limited, "household")  # type: ignore[arg-type]


@pytest.mark.parametrize(("records", "most"), [(1, "one row"), (3, "3 rows")])
def test_the_assumption_is_about_weights_where_rows_have_some(records: int, most: str) -> None:
    """With a weight, a row is many people: a guarantee of one row per person would say too much."""
    filtered = describe_rows(None, make_filters({"a": ["x"]}))
    assert f"at most {most} per person;" in describe_population(records, "declared", rows=filtered)
    weighted = describe_rows("POP", make_filters({}))
    assert f"each person adds at most {records} to the weights;" in describe_population(
        records, "declared", rows=weighted
    )


def test_folders_keep_it_and_earlier_ones_are_read(tmp_path: Path) -> None:
    made = fp.release(people.plan(2), people.tables(people.histogram()))
    assert made.limited == "declared"
    made.save(tmp_path / "now")
    again = fp.Release.load(tmp_path / "now")
    assert again.limited == "declared"
    assert again.population == made.population
    said = pq.read_schema(find_table(tmp_path / "now", "total")).metadata
    assert said[b"fitplug.limited"] == b"declared"
    assert said[b"fitplug.population"].decode() == made.population
    assert made.to_arrow("total").schema.metadata[b"fitplug.population"]
    assert made.to_pandas("total").attrs["fitplug.limited"] == "declared"
    assert "about all rows counted" in repr(made)

    earlier = replace(made, limited=None)  # a folder as it was written before: without these words
    earlier.save(tmp_path / "before")
    assert "limited" not in json.loads((tmp_path / "before/answers/manifest.json").read_text())
    assert fp.Release.load(tmp_path / "before").limited is None
    assert "fitplug.limited" not in earlier.to_pandas("total").attrs


def test_a_release_into_a_folder_keeps_it(counted: fp.Tables, tmp_path: Path) -> None:
    ledger = fp.Ledger(tmp_path / "budget.db", rho=10.0)
    keywords = {"ledger": ledger, "key": "visits"}
    for _ in range(2):  # made, and found
        release = fp.release(PLAN, counted, tmp_path / "out", **keywords)  # type: ignore[arg-type]
        assert release.limited == "enforced"
    assert len(ledger.entries()) == 1
    assert fp.Release.load(tmp_path / "out").limited == "enforced"


def test_an_edited_limit_is_noticed(tmp_path: Path) -> None:
    made = fp.release(people.plan(2), people.tables(people.histogram()))
    made.save(tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "total.parquet")
    metadata = table.schema.metadata | {b"fitplug.limited": b"enforced"}
    forge_table(tmp_path / "out", "total", table.replace_schema_metadata(metadata))
    with pytest.raises(InputError, match="the table does not match"):
        fp.Release.load(tmp_path / "out")
    forge_manifest(tmp_path / "out", lambda header: header.update(limited="perhaps"))
    with pytest.raises(InputError, match="do not match their description"):
        fp.Release.load(tmp_path / "out")


def test_reviews_say_whom_the_numbers_are_about(counted: fp.Tables) -> None:
    release = fp.release(PLAN, counted)
    about = fp.About(unit="patient")
    said = fp.review(release, about=about)["deployment"]
    processed = said["accounting"]["post_processing"]
    assert "Counting kept at most 3 rows per patient. " in processed
    assert "further rows were left out" in said["privacy_loss"]["privacy_unit_details"]
    assert "no count contains the others" in format_markdown({"deployment": said})
    with pytest.raises(BudgetError, match="limited = 'declared' contradicts the release"):
        fp.review(release, limited="declared")
    before = fp.review(replace(release, limited="declared"), limited="enforced")["deployment"]
    assert "describe the rows kept" in before["accounting"]["post_processing"]


def test_reports_tell_what_each_limit_costs() -> None:
    three, seven = (fp.design(PLAN.workload, unit=fp.AddRemove(k)) for k in (3, 7))
    told = collect_facts(three, delta=1e-6, limited="enforced")
    assert [limit.records for limit in told.limits] == [1, 2, 3, 5, 10]
    for limit in told.limits:
        k = limit.records
        assert limit.rho == pytest.approx(k**2 * PLAN.rho / 9)
        assert limit.rho >= k**2 * PLAN.rho_exact / 9
        assert limit.std_factor == k / 3
        # The same release with every std larger by the factor costs what the declared one does.
        eased = fp.design(
            fp.Workload(
                DOMAIN,
                [
                    fp.marginal("SEX", "AGE", std=12.0 * k / 3, name="table"),
                    fp.total(std=20.0 * k / 3),
                ],
            )
        )
        assert k**2 * eased.rho == pytest.approx(PLAN.rho, rel=1e-3)
    limits = collect_facts(seven).limits
    assert [limit.records for limit in limits][-2:] == [7, 10]
    page = " ".join(render_page(told).split())
    assert "<h2>Rows per person</h2>" in page
    assert "Counting will keep at most 3 rows per person, and no row without an identifier." in page
    assert "3 (this plan)" in page


SPEC = """
ledger = false

[data]
path = "visits.parquet"
person = "ID"

[privacy]
unit = { records = 3 }

[domain]
SEX = ["1", "2"]
AGE = { integers = [0, 9] }

[[query]]
name = "table"
SEX = "identity"
AGE = "identity"
std = 12.0

[[query]]
name = "total"
std = 20.0
"""


@pytest.mark.slow
def test_the_command_line_says_it_everywhere(tmp_path: Path) -> None:
    pq.write_table(pa.table(VISITS), tmp_path / "visits.parquet")
    spec, coarse = tmp_path / "visits.toml", tmp_path / "rows.toml"
    spec.write_text(SPEC, encoding="utf-8")
    text = SPEC.replace("= 3", "= 40").replace('AGE = "identity"\nstd = 12.0', "std = 60.0")
    coarse.write_text(text + '[output]\npath = "rows"\n', encoding="utf-8")

    kept = "Counting kept at most 3 rows per person. "
    reported = fitplug("report", spec, "--full")
    planned = "Counting will keep at most 3 rows per person, and no row without an identifier."
    assert planned in " ".join(reported.out.split())
    assert "3 (this plan)" in reported.out
    assert "rho = K^2 / (2 std^2)" in reported.out
    record = json.loads(fitplug("report", spec, "--json").out)
    assert [limit["std_factor"] for limit in record["limits"]][2] == 1

    ran = fitplug("run", spec)
    assert ran.code == 0, ran.err
    assert "the rows kept, at most 3 per person" in ran.out
    said = json.loads((tmp_path / "release/release.json").read_text(encoding="utf-8"))
    assert said["limited"] == "enforced"
    assert kept in said["population"]
    assert kept in (tmp_path / "release/review.md").read_text(encoding="utf-8")
    assert kept in fitplug("estimate", tmp_path / "release", "total").out
    assert (
        kept
        in json.loads(fitplug("estimate", tmp_path / "release", "total", "--json").out)[
            "population"
        ]
    )

    assert fitplug("run", coarse).code == 0
    lost = fitplug("truncation", tmp_path / "release", tmp_path / "rows")
    assert lost.code == 0, lost.err
    assert "with at most 3 per person" in lost.out
    assert "The domains of AGE differ" in lost.out
    told = fitplug("truncation", tmp_path / "release", tmp_path / "rows", "--json").out
    record = json.loads(told)
    assert abs(record["lost"]["value"] - (TRUE_ALL - TRUE_KEPT)) < 6 * record["lost"]["std"]
    assert record["left_out_by_one_only"] == ["AGE"]
    ran = fitplug("truncation", tmp_path / "rows", tmp_path / "release")
    assert ran.code == 2
    assert "the second release must keep more" in ran.err

    declared = SPEC.replace('person = "ID"\n', "")
    spec.write_text(declared.replace("path", "path", 1) + '[output]\npath = "d"\n', "utf-8")
    ran = fitplug("run", spec)
    assert f"The guarantee assumes at most 3 rows per person; {UNCHECKED}" in " ".join(
        ran.out.split()
    )
    ran = fitplug("truncation", tmp_path / "d", tmp_path / "rows")
    assert ran.code == 2
    assert "the first release did not limit the rows per person" in ran.err


APART = {
    "3 a month": fp.AddRemove(3, once_per="MONTH"),
    "4 a month": fp.AddRemove(4, once_per="MONTH"),
    "4 a cell": fp.AddRemove(4, distinct=True),
    "3": fp.AddRemove(3),
    "4": fp.AddRemove(4),
}
KEEPS_MORE = {("3 a month", "4 a month"), ("3 a month", "4"), ("3 a month", "3"), ("3", "4")} | {
    ("4 a month", "4"),
    ("4 a cell", "4"),
    ("3 a month", "4 a cell"),  # where months are the only attribute
}


def test_a_unit_that_keeps_records_apart_is_part_of_the_limit() -> None:
    """Only a release that keeps all that the first one keeps says what that one lost."""
    domain = fp.Domain({"MONTH": fp.Integers(1, 4)})
    workload = fp.Workload(domain, [fp.marginal("MONTH", std=2.0, name="months")])
    counts = {name: 100 + i for i, name in enumerate(APART)}
    releases = {
        name: exact(
            fp.design(workload, unit=unit),
            fp.Tables(domain, {("MONTH",): np.full(4, counts[name])}),
            "enforced",
        )
        for name, unit in APART.items()
    }
    for first, kept in releases.items():
        for second, whole in releases.items():
            if (first, second) not in KEEPS_MORE:
                with pytest.raises(InputError, match="the second release must keep more"):
                    fp.estimate_truncation(kept, whole, "months")
                continue
            lost = fp.estimate_truncation(kept, whole, "months")
            assert lost.rows.value == pytest.approx(4 * (counts[second] - counts[first]))
            assert (lost.kept_unit, lost.whole_unit) == (APART[first], APART[second])
    with pytest.raises(
        InputError,
        match=r"person \(3, at most one .*than the first \(4, each in a different cell\)",
    ):
        fp.estimate_truncation(releases["4 a cell"], releases["3 a month"], "months")


@pytest.mark.parametrize(
    ("limited", "says"),
    [
        ("enforced", "Counting kept at most 3 rows per person{apart}. Rows"),
        ("declared", f"{ALL_COUNTED}3 rows per person{{apart}}; {UNCHECKED}"),
        (None, f"assumes at most 3 rows per person{{apart}}; {UNCHECKED}"),
    ],
)
def test_the_population_names_what_keeps_records_apart(limited: str | None, says: str) -> None:
    """The privacy cost rests on it, too: a person with three records in a month costs more."""
    domain = fp.Domain({"MONTH": fp.Integers(1, 4)})
    workload = fp.Workload(domain, [fp.marginal("MONTH", std=2.0, name="months")])
    plan = fp.design(workload, unit=APART["3 a month"])
    release = exact(plan, fp.Tables(domain, {("MONTH",): np.full(4, 9)}), limited)
    says = says.replace("{apart}", describe_apart(plan.unit))
    assert says in release.population
    if limited is not None:
        assert says in fp.review(release)["deployment"]["accounting"]["post_processing"]
    if limited == "enforced":
        assert f"at most 3 per person{describe_apart(plan.unit)})" in repr(release)
