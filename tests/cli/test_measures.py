"""Measures on the command line: what it counts, what it says of sums, and what it refuses."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug_cli.render import read_counts
from fitplug_cli.spec import load_spec
from tests.helpers.command_line import fitplug

SPEC = """
[data]
path = "people.csv"

[domain]
SEX = ["1", "2"]
INCOME = { measure = [0, 2000], unit = 10, other = "none" }

[[query]]
name = "income"
SEX = "identity"
INCOME = "sum"
std = 40.0

[[query]]
name = "earners"
SEX = "identity"
INCOME = "count"
std = 0.2

[[query]]
name = "people"
SEX = "identity"
std = 0.2

[privacy]
unit = { records = 1 }
delta = 1e-9

[design]
tolerance = 0.1

[ledger]
path = "budget.db"
rho = 1e6

[output]
path = "release/"
"""
CLAMPED = (
    "values below 0 count as 0, values above 2,000 as 2,000, and all are rounded to steps of 10 "
    "from 0; rows without a value are counted and add nothing to sums"
)
WEAK = (
    "warning: epsilon is above 100, so a release would protect nobody. std and moe are numbers of "
    "rows or amounts, not shares. Give larger targets or a smaller budget.\n"
)
NOT_COVERED = "no margin of error covers that change"
DRAWN = np.random.default_rng(18)
PEOPLE = {
    "SEX": DRAWN.choice(["1", "2"], 300).tolist(),
    "INCOME": [None if draw < -900 else round(draw, 2) for draw in DRAWN.uniform(-1000, 3000, 300)],
}


def find_sums() -> list[tuple[Fraction, int, int]]:
    """The sum of clamped and rounded incomes, the earners and the people, by sex."""
    found = []
    for sex in "12":
        own = [y for s, y in zip(PEOPLE["SEX"], PEOPLE["INCOME"], strict=True) if s == sex]
        units = [
            (Fraction(min(max(y, 0), 2000)) / 10 + Fraction(1, 2)) // 1
            for y in own
            if y is not None
        ]
        found.append((10 * sum(units), len(units), len(own)))
    return found


def make(root: Path, spec: str = SPEC) -> Path:
    with (root / "people.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(PEOPLE)
        for sex, income in zip(*PEOPLE.values(), strict=True):
            writer.writerow((sex, "N" if income is None else income))
    pq.write_table(pa.table(PEOPLE), root / "people.parquet")
    (root / "spec.toml").write_text(spec, encoding="utf-8")
    return root / "spec.toml"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("measures")
    ran = fitplug("run", make(root))
    assert (ran.code, ran.err) == (0, WEAK)
    assert f"Measure INCOME: {CLAMPED}." in ran.out
    assert NOT_COVERED in ran.out
    assert "sum of INCOME" in ran.out
    return root


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check_estimates(folder: Path) -> None:
    """Sums and counts are those of the rows, within six standard deviations."""
    for row, (total, earners, people) in zip(range(2), find_sums(), strict=True):
        for name, exact, most in (
            ("income", total, 40.0),
            ("earners", earners, 0.2),
            ("people", people, 0.2),
        ):
            found = read(folder / f"{name}.csv")[row]
            assert float(found["std"]) <= most * 1.001
            assert abs(float(found["estimate"]) - float(exact)) < 6 * most


class TestRelease:
    def test_texts_that_are_no_numbers_are_records_without_a_value(self, root):
        check_estimates(root / "release")
        assert [row["INCOME"] for row in read(root / "release" / "income.csv")] == ["sum"] * 2

    def test_of_parquet(self, tmp_path):
        ran = fitplug("run", make(tmp_path, SPEC.replace("people.csv", "people.parquet")))
        assert (ran.code, ran.err) == (0, WEAK)
        check_estimates(tmp_path / "release")

    @pytest.mark.slow
    def test_in_parts(self, tmp_path):
        ran = fitplug("run", make(tmp_path, SPEC.replace("[output]", "[output]\nparts = true")))
        assert (ran.code, ran.err) == (0, WEAK)
        folder = tmp_path / "release"
        found = json.loads((folder / "release.json").read_text())
        assert NOT_COVERED in found["measure_rules"][-1]
        (part,) = (folder / "income.parquet").iterdir()
        metadata = pq.read_schema(part).metadata
        assert metadata[b"fitplug.units"].endswith(b": sum of INCOME")
        assert "counts as 200 shares" in (folder / "review.md").read_text()

    def test_release_json_has_the_rules(self, root):
        found = json.loads((root / "release" / "release.json").read_text())
        assert found["measures"] == {"INCOME": {"measure": [0, 2000], "unit": 10, "other": "none"}}
        assert CLAMPED in found["measure_rules"][0]
        assert NOT_COVERED in found["measure_rules"][-1]
        assert NOT_COVERED in found["population"]
        quantities = {group["name"]: group["quantity"] for group in found["groups"]}
        assert quantities == {"income": "sum of INCOME", "earners": "rows", "people": "rows"}

    def test_tables_say_their_units(self, root):
        for name, units in (("income", b"sum of INCOME"), ("earners", b"rows")):
            metadata = pq.read_table(root / "release" / f"{name}.parquet").schema.metadata
            assert metadata[b"fitplug.units"] == b"estimate, std, moe, lower, upper: " + units
            assert NOT_COVERED.encode() in metadata[b"fitplug.population"]

    def test_the_review_says_what_neighbours_and_bounds_are(self, root):
        text = (root / "release" / "review.md").read_text()
        assert text.startswith("# Counts and sums: income, earners, people")
        assert f"* INCOME: a measure; {CLAMPED}" in text
        assert "6 counts and sums in 3 tables" in text
        assert "These rows may have any values, of measures too" in text
        assert "The bounds are public; fitplug did not read them from the rows" in text
        assert NOT_COVERED in text
        assert "counts as 200 shares" in text
        assert "No standard deviation and no interval covers" in text

    def test_a_release_is_read_back_and_estimated(self, root, tmp_path):
        table = tmp_path / "means.csv"
        table.write_text("name,expression\nmean,income[SEX=1]/earners[SEX=1]\nall,income\n")
        ran = fitplug("estimate", root / "release", "--from", table, "--json")
        assert (ran.code, ran.err) == (0, "")
        found = json.loads(ran.out)
        mean, every = found["estimates"]
        (total, earners, _), (other, *_) = find_sums()
        assert mean["approximate"]
        exact = float(total / earners)
        # Both the sum and the number that divides it have noise, of 40 and of 0.2.
        assert mean["value"] == pytest.approx(exact, abs=6 * (40 + 0.2 * exact) / float(earners))
        assert every["value"] == pytest.approx(float(total + other), abs=6 * 57)
        assert every["std"] < 57
        assert NOT_COVERED in found["population"]

    def test_counts_files_hold_shares(self, root, tmp_path):
        counts = tmp_path / "counts.npz"
        assert fitplug("count", root / "spec.toml", "--output", counts).code == 0
        low, high, none = read_counts(counts)["SEX", "INCOME"].T
        for sex, (total, earners, people) in enumerate(find_sums()):
            assert (low + high)[sex] == 200 * earners
            assert 10 * high[sex] == total
            assert none[sex] == 200 * (people - earners)
        ran = fitplug(
            "release", root / "spec.toml", "--counts", counts, "--key", "again", "--replace"
        )
        assert ran.code == 0
        check_estimates(root / "release")

    def test_targets_may_name_the_sum(self, tmp_path):
        spec = SPEC.replace("std = 40.0", 'targets = "targets.csv"')
        path = make(tmp_path, spec)
        rows = "SEX,INCOME,std\n1,sum,400\n2,,500\n"
        (tmp_path / "targets.csv").write_text(rows)
        assert fitplug("design", path, "--output", tmp_path / "plan.npz").code == 0
        stds = np.sqrt(fp.Plan.load(tmp_path / "plan.npz").targets["income"]).ravel()
        np.testing.assert_allclose(stds, [400, 500])
        (tmp_path / "targets.csv").write_text(rows.replace("sum", "total"))
        ran = fitplug("design", path, "--output", tmp_path / "plan.npz")
        assert ran.code == 2
        assert "line 2: unknown label of 'INCOME'" in ran.err


class TestReport:
    def test_in_a_terminal_and_as_a_page(self, root, tmp_path):
        page = tmp_path / "report.html"
        assert fitplug("report", root / "spec.toml", "--output", page).code == 0
        ran = fitplug("report", root / "spec.toml", "--full")
        assert (ran.code, ran.err) == (0, WEAK)
        for text in (ran.out, page.read_text(encoding="utf-8")):
            assert "sum of INCOME" in text
            assert f"Measure INCOME: {CLAMPED}." in text
            assert NOT_COVERED in text
            assert "costs more privacy than the costlier" in text
            assert "only for answers in the same units" in text
            assert "counts by INCOME" not in text
        assert "6 counts and sums at rho" in page.read_text(encoding="utf-8")

    def test_as_json(self, root):
        found = json.loads(fitplug("report", root / "spec.toml", "--json").out)
        assert [group["quantity"] for group in found["groups"]] == [
            "sum of INCOME",
            *["rows"] * 2,
        ]
        assert found["measures"]["INCOME"]["unit"] == 10
        assert all(free["attribute"] != "INCOME" for free in found["free"])
        factors = {usual["name"]: usual["factor"] for usual in found["usual_mechanisms"]}
        assert {short for short, factor in factors.items() if factor is None} == {
            "Gaussian mechanism, equal noise", "matrix mechanism",
            "matrix mechanism, weights 1/target^2",
        }  # fmt: skip


REFUSED = [
    ('INCOME = "sum"', 'INCOME = "identity"', "INCOME is a measure. Use 'sum'"),
    ('INCOME = "sum"', 'INCOME = { ranges = [[0, 5]] }', "Use 'sum' or 'count' or 'total'."),
    ('INCOME = "sum"', 'INCOME = { rows = { a = ["0"] } }', "INCOME is a measure"),
    ("[0, 2000]", "[2000]", "measure = [2000] must be two numbers or dates, [low, high]"),
    ("[0, 2000]", "[2000, 0]", "lower bound 2000 must be below its upper bound 0"),
    ("[0, 2000]", '["a", "b"]', "must be two numbers, or two dates such as '2020-12-31'"),
    ("[0, 2000]", "[0, inf]", "the measure's bound inf must be a number between"),
    ("[0, 2000]", "[true, 5]", "the measure's bound True must be a number between"),
    ("unit = 10", "unit = 7", "a multiple of the unit 7, at most"),
    ("unit = 10", "unit = 0.00001", "at most 33,554,432 units"),
    ("unit = 10", 'unit = "a"', "unit must be a positive number below 2**53, not 'a'"),
    ("unit = 10", "units = 10", "unknown key 'units'. Did you mean 'unit'?"),
    ('"none"', '"0"', "other = '0' is also a listed value"),
    (', other = "none"', "", "Use 'sum' or 'total'"),
    ("{ records = 1 }", '{ replace_one = ["INCOME"] }', "'within' names the measure 'INCOME'"),
    ("{ records = 1 }", '{ records = 2, once_per = "INCOME" }', "names the measure 'INCOME'"),
    ("{ records = 1 }", "{ records = 2, distinct = true }", "combined with the measure INCOME"),
    ("tolerance = 0.1", 'periods = "INCOME"', "periods = 'INCOME' is a measure"),
    ('"people.csv"', '"people.csv"\nweight = "INCOME"', "both the weight and an attribute"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "says"), REFUSED, ids=[new for _, new, _ in REFUSED])
def test_is_refused_in_one_sentence_that_names_the_file(tmp_path, old, new, says):
    ran = fitplug("design", make(tmp_path, SPEC.replace(old, new, 1)))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"fitplug: {tmp_path / 'spec.toml'}: ")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_measures_with_too_many_units_together_are_refused(tmp_path):
    more = "[domain]\nTAX = { measure = [0, 1000000] }"
    spec = SPEC.replace("[domain]", more).replace('INCOME = "sum"', 'INCOME = "sum"\nTAX = "sum"')
    ran = fitplug("design", make(tmp_path, spec))
    assert ran.code == 2
    assert "TAX, INCOME divide each row into 200,000,000 shares" in ran.err


def test_truncation_of_sums_is_not_estimated(tmp_path):
    """Two limits on the records of persons: sums of what they leave out are not estimated."""
    spec = SPEC.replace('INCOME = "count"', 'INCOME = "total"')
    table = pa.table(PEOPLE | {"ID": [i // 3 for i in range(300)]})
    for name, records in (("kept", 1), ("whole", 3)):
        folder = tmp_path / name
        folder.mkdir()
        pq.write_table(table, folder / "people.parquet")
        of_people = spec.replace('"people.csv"', '"people.parquet"\nperson = "ID"')
        of_people = of_people.replace("records = 1", f"records = {records}")
        (folder / "spec.toml").write_text(of_people)
        assert fitplug("run", folder / "spec.toml").code == 0
    both = [tmp_path / name / "release" for name in ("kept", "whole")]
    found = json.loads(fitplug("truncation", *both, "people", "--json").out)
    assert found["lost"]["value"] == pytest.approx(200, abs=5)
    ran = fitplug("truncation", *both, "income")
    assert ran.code == 2
    assert "'income' is a sum of INCOME, not a number of rows" in ran.err


CODEBOOK = {
    "SEX": ["1", "2"],
    "AGE": {"min": 0, "max": 95},
    "INCOME": {"min": 0, "max": 200_000},
    "RENT": {"min": -4.5, "max": 1995.5},
    "NAME": {"min": 0, "max": 200_000},
    "TAX": {"min": 0, "max": 500, "unit": 0.5},
    "PLACE": {"min": 0, "max": 500, "unit": 5},
}


def test_init_makes_measures_of_wide_ranges_in_a_codebook(tmp_path):
    """From the codebook alone: the row is outside all ranges."""
    row = {"SEX": ["9"], "AGE": [777], "INCOME": [7.5e7], "RENT": [-7e7], "NAME": ["x"], "Y": [7]}
    row |= {"TAX": [7.7e7], "PLACE": ["x"]}
    pq.write_table(pa.table(row), tmp_path / "people.parquet")
    (tmp_path / "book.json").write_text(json.dumps(CODEBOOK))
    path = tmp_path / "new.toml"
    made = ("init", tmp_path / "people.parquet", "--codebook", tmp_path / "book.json",
            "--records", "1")  # fmt: skip
    assert fitplug(*made, "--output", path).code == 0
    text = path.read_text()
    assert "INCOME = { measure = [0, 200000], unit = 100 }\n" in text
    assert "RENT = { measure = [-4.5, 1995.5], unit = 1 }" in text
    assert "AGE = { integers = [0, 95] }  # 96 cells" in text
    assert "NAME = { integers = [0, 200000] }" in text
    assert "TAX = { measure = [0, 500], unit = 0.5 }" in text
    assert "# PLACE = ...  # strings\n" in text
    assert "# Y = ...  # integers\n" in text
    assert text.count("#   numbers   { measure = [0, 200000], unit = 100 }, for sums") == 1
    # Its queries, with the comment signs taken away, make a plan.
    asked = text.replace("# [[query]]", "[[query]]").replace('# name = "', 'name = "')
    asked = asked.replace('# SEX = "identity"', 'SEX = "identity"').replace("# std", "std")
    asked = asked.replace('# INCOME = "sum"', 'INCOME = "sum"').replace("std = ...", "std = 1e6")
    asked = asked.replace('name = "..."', "").split("[about]")[0]
    path.write_text(asked)
    ran = fitplug("design", path)
    assert (ran.code, ran.err) == (0, "")
    assert "sum of INCOME" in ran.out


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_codebook_says_the_bounds_and_the_unit(tmp_path, kind):
    rows = "attribute,value,min,max,unit\nSEX,1,,,\nSEX,2,,,\nINCOME,,0,2000,10\nRENT,,-0.5,7,0.5"
    bounds = {"INCOME": {"min": 0, "max": 2000, "unit": 10}}
    (tmp_path / "book.csv").write_text(rows)
    (tmp_path / "book.json").write_text(json.dumps({"SEX": ["1", "2"], **bounds}))
    given = '{ measure = [0, 2000], unit = 10, other = "none" }'
    named = f'{{ codebook = "book.{kind}", other = "none" }}'
    path = make(tmp_path, SPEC.replace(given, named))
    assert load_spec(path).workload.domain["INCOME"] == fp.Measure(0, 2000, 10, other="none")
    (tmp_path / "book.csv").write_text(rows.replace("2000,10", "2000,ten"))
    (tmp_path / "book.json").write_text(json.dumps({"INCOME": {"min": 0, "max": 5, "unit": 2}}))
    ran = fitplug("design", path)
    assert ran.code == 2
    said = {"csv": "line 4: 'min', 'max' and 'unit' must", "json": "no valid values for this"}
    assert said[kind] in ran.err
