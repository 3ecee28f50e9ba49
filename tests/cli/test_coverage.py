"""`coverage = true`: run, show, the review and release.json name how many rows are not counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fitplug as fp
from tests.helpers.command_line import SPEC, fitplug, make, rows
from tests.helpers.secrets import secrets_in

COVERED = SPEC + "\n[design]\ncoverage = true\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("coverage")
    ran = fitplug("run", make(root, COVERED))
    assert (ran.code, ran.err) == (0, "")
    (root / "said.txt").write_text(ran.out)
    return root


def count_outside() -> dict[str | None, int]:
    """The rows of both files, one by one."""
    inside = {
        "SEX": lambda v: v in ("1", "2"),
        "AGE": lambda v: v in range(6),
        "INC": lambda v: v is not None and 0 <= v <= 50,
    }
    exact: dict[str | None, int] = dict.fromkeys((*inside, None), 0)
    for part in (rows(0), rows(1)):
        for row in zip(*(part[name] for name in inside), strict=True):
            outside = [n for n, v in zip(inside, row, strict=True) if not inside[n](v)]
            for name in [*outside, *([None] if outside else [])]:
                exact[name] += 1
    return exact


def test_run_and_show_print_it(root: Path) -> None:
    for said in ((root / "said.txt").read_text(), fitplug("show", root / "release").out):
        assert "rows not counted (95% margins of error)" in said
        assert "any attribute" in said
        assert said.count("%") >= 8
        assert not secrets_in(said)
    assert "(std 3.426), at no further cost" in (root / "said.txt").read_text()


def test_a_run_names_how_to_count_what_it_leaves_out(root: Path, tmp_path: Path) -> None:
    """Without coverage also how to estimate the number, if the unit of privacy allows that."""
    other, number = (
        'To count them, set other = "missing" in [domain]',
        "coverage = true in [design]",
    )
    said = (root / "said.txt").read_text()
    assert other in said
    assert number not in said
    spec = make(tmp_path)
    assert f"{other}; to estimate how many, set {number}." in fitplug("design", spec).out
    text = spec.read_text()
    for old, new, where in (
        ("{ records = 1 }", "{ replace_one = [] }", "."),
        ("[privacy]", 'person = "ID"\n[privacy]', "."),
        ("[ledger]", '[design]\nperiods = "SEX"\n[ledger]', " (not possible for SEX)."),
    ):
        assert text.count(old) == 1
        spec.write_text(text.replace(old, new))
        said = fitplug("design", spec).out
        assert other + where in said
        assert number not in said


def test_json_and_the_review_say_it(root: Path) -> None:
    exact = count_outside()
    ran = fitplug("show", root / "release", "--json", "--confidence", 0.99)
    for record in (json.loads(ran.out), json.loads((root / "release/release.json").read_text())):
        assert [row["attribute"] for row in record["coverage"]] == ["SEX", "AGE", "INC", None]
        for row in record["coverage"]:
            assert abs(row["rows"] - exact[row["attribute"]]) < 6 * row["std"]
            assert row["lower"] < row["share"] < row["upper"]
    assert json.loads(ran.out)["coverage_confidence"] == 0.99
    total = fp.Release.load(root / "release").to_arrow("total")
    said = total.schema.metadata[b"fitplug.coverage"]
    numbers = json.loads((root / "release/release.json").read_text())["coverage"]
    assert [(row["rows"], row["std"]) for row in json.loads(said)] == [
        (row["rows"], row["std"]) for row in numbers
    ]
    review = (root / "release" / "review.md").read_text()
    assert "are released with noise of the same sigma, by attribute: SEX: " in review
    assert fitplug("verify", root / "release").code == 0


def test_it_costs_nothing(root: Path, tmp_path: Path) -> None:
    plain = json.loads(fitplug("design", make(tmp_path), "--json").out)
    covered = json.loads(fitplug("design", root / "spec.toml", "--json").out)
    assert plain["rho"] == covered["rho"] == fp.Ledger(root / "budget.db").entries()[0].rho
    assert "coverage" not in plain
    assert covered["coverage"]["attributes"] == ["SEX", "AGE", "INC"]
    report = fitplug("report", root / "spec.toml", "-o", root / "report.html")
    assert report.code == 0
    page = (root / "report.html").read_text()
    said = "Coverage: estimates the rows not counted, by attribute (std 3.426), at no further cost."
    assert said in page
    assert "Not counted: " in page


def test_counts_files_carry_it(root: Path, tmp_path: Path) -> None:
    spec = make(tmp_path, COVERED)
    assert fitplug("count", spec).code == 0
    assert fitplug("release", spec, "--counts", tmp_path / "spec.counts.npz").code == 0
    spec.write_text(SPEC)
    plain = fitplug("design", spec, "-o", tmp_path / "plain.npz")
    assert plain.code == 0
    spec.write_text(COVERED)
    ran = fitplug("run", spec, "--plan", tmp_path / "plain.npz")
    assert ran.code == 2
    assert "does not have the queries, targets or coverage of" in ran.err


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "[data]\n",
            '[data]\nperson = "NOTE"\n',
            "'person' and [design] coverage cannot be combined",
        ),
        (
            "{ records = 1 }",
            "{ replace_one = [] }",
            "cannot be combined with the unit of privacy",
        ),
        (
            "{ records = 1 }",
            "{ records = 2, distinct = true }",
            "cannot be combined with the unit of privacy",
        ),
        ("coverage = true", 'coverage = true\nperiods = "AGE"', "periods"),
    ],
)
def test_what_has_no_coverage_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    ran = fitplug("run", make(tmp_path, COVERED.replace(old, new)))
    assert ran.code == 2
    assert why in ran.err
    assert not (tmp_path / "budget.db").exists()
