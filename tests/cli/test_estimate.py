"""`fitplug estimate`: what it prints, reads and refuses."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

import fitplug as fp
from fitplug.releases.tables import RESULT_COLUMNS
from fitplug_cli.commands import estimate
from fitplug_cli.render.estimate_tables import _read_umask
from tests.helpers import people
from tests.helpers.command_line import fitplug, make, names, tree


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimate") / "out"
    people.release().save(folder)
    return folder


def test_the_release_of_a_run_is_read(tmp_path):
    """The folder of the command line is what `Release.load` reads, entry and all."""
    assert fitplug("run", make(tmp_path)).code == 0
    release = fp.Release.load(tmp_path / "release")
    (entry,) = fp.Ledger(tmp_path / "budget.db").entries()
    assert release.entry == entry
    before = tree(tmp_path)
    ran = fitplug("estimate", tmp_path / "release", "ages[SEX=1, AGE<=3] + total", "--json")
    assert (ran.code, ran.err) == (0, "")
    (row,) = json.loads(ran.out)["estimates"]
    value, std = release.estimate("ages[SEX=1, AGE<=3] + total")
    assert row["value"] == pytest.approx(value)
    assert row["std"] == pytest.approx(std)
    assert tree(tmp_path) == before
    # An edit of the folder is noticed.
    shutil.rmtree(tmp_path / "release" / "total.parquet")
    ran = fitplug("estimate", tmp_path / "release", "total")
    assert ran.code == 2
    assert re.fullmatch(r"fitplug: .*total.parquet/part-00000.parquet is missing.*\n", ran.err)


ASKED = ["pyramid[sex=1, age<=2] + total", '2 * total - "voting age"[age >= 2]',
         "pyramid[sex=1] / total"]  # fmt: skip


GOLDEN = """\
 estimate of                                  value     std     moe   lower   upper
 people[sex = 1, age <= 1]                   130.00    7.07   13.86  116.14  143.86
 2 * people - people[age = 2]                 550.0    21.2    41.6   508.4   591.6
 people[sex = 1, age = 0] - people[sex = 2]  -100.0    10.0    19.6  -119.6   -80.4
 people[sex = 1] / people (approximate)      0.5000  0.0204  0.0401  0.4599  0.5401
Each interval holds at 95% confidence.
approximate: the std of a ratio is computed by the delta method
"""


def test_what_people_see(tmp_path):
    """Of a plan whose stds are known: 5 in each of six cells, independent."""
    domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 2)})
    plan = fp.design(fp.Workload(domain, [fp.marginal("sex", "age", std=5.0, name="people")]))
    x = np.array([[50, 80, 20], [70, 50, 30]])
    answers = plan.strategy.answer_exactly(fp.Tables(domain, {domain.names: x}).marginal)
    release = fp.Release(plan=plan, answers=answers, rho=plan.rho, limited="declared")
    release.save(tmp_path / "out")
    asked = re.findall(r"^ (people.*?|2 .*?)(?: \(app.*?)?  +", GOLDEN, flags=re.MULTILINE)
    assert len(asked) == 4
    ran = fitplug("estimate", tmp_path / "out", *asked)
    assert (ran.code, ran.err) == (0, "")
    assert [line.rstrip() for line in ran.out.splitlines()] == GOLDEN.splitlines()


def test_quantiles_are_those_of_python(out):
    """With their intervals, by sex too; an attribute is named where there is no other way."""
    release = fp.Release.load(out)
    texts = ["median(pyramid)", "quantile(pyramid[sex=1], 0.25)", "median(pyramid, age)"]
    ran = fitplug("estimate", out, *texts, "total", "--json")
    assert (ran.code, ran.err) == (0, "")
    rows = json.loads(ran.out)["estimates"]
    expected = [("pyramid", 0.5), ("pyramid[sex=1]", 0.25), ("pyramid", 0.5)]
    for row, (asked, q) in zip(rows[:3], expected, strict=True):
        found = release.quantile(asked, q)
        assert (row["value"], row["lower"], row["upper"]) == (found.value, found.low, found.high)
        assert row["std"] is None
        assert row["moe"] == max(found.value - found.low, found.high - found.value)
    assert rows[3]["std"] > 0
    ran = fitplug("estimate", out, "median(pyramid)", "--by", "sex", "--json")
    for row in json.loads(ran.out)["estimates"]:
        assert row["value"] == release.quantile(f"pyramid[sex={row['sex']}]", 0.5).value
    assert re.search(r"median\(pyramid\) +\d+ +- +\d", fitplug("estimate", out, texts[0]).out)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("quantile(pyramid)", "names no quantile. Write, for example, quantile\\(pyramid, 0.9"),
        ("quantile(pyramid, 2)", "between 0 and 1, not 2.0"),
        ("median(pyramid, age, sex)", "too many arguments"),
        ("median(total)", "lists values in order"),
        ("median(pyramid, sex)", "'sex' has no quantiles"),
        ("median(pyramid[sex in [1, 2], age <= 1])", None),
    ],
)
def test_wrong_quantiles_are_refused(out, text, says):
    ran = fitplug("estimate", out, text)
    assert ran.code == (0 if says is None else 2), ran.err
    assert re.search(says or "", ran.err)


@pytest.mark.parametrize("simultaneous", [False, True])
def test_json(out, simultaneous):
    options = ["--simultaneous"] * simultaneous
    ran = fitplug("estimate", out, *ASKED, "--json", "--confidence", "0.9", *options)
    said = json.loads(ran.out)
    assert (said["confidence"], said["simultaneous"]) == (0.9, simultaneous)
    found = people.release().estimate_all(ASKED)
    low, high = found.interval(0.9, simultaneous=simultaneous)
    for k, row in enumerate(said["estimates"]):
        assert row["name"] == row["expression"] == ASKED[k]
        assert row["approximate"] == (k == 2)
        assert row["value"] == pytest.approx(found.values[k])
        assert row["std"] == pytest.approx(found.stds[k])
        assert (row["lower"], row["upper"]) == pytest.approx((low[k], high[k]))
        farther = max(high[k] - row["value"], row["value"] - low[k])
        assert row["moe"] == pytest.approx(farther)
        assert farther == pytest.approx((high[k] - low[k]) / 2, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("asked.csv", 'name,expression\nyoung,"pyramid[sex=1, age<=2]"\nall,total\n'),
        ("asked.txt", "# of the release\n\nyoung: pyramid[sex=1, age<=2]\n  all:total  \n"),
    ],
)
def test_expressions_from_a_file(out, tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    ran = fitplug("estimate", out, "spans[age = 3]", "--from", path, "--json")
    rows = json.loads(ran.out)["estimates"]
    assert [(row["name"], row["expression"]) for row in rows] == [
        ("spans[age = 3]", "spans[age = 3]"), ("young", "pyramid[sex=1, age<=2]"),
        ("all", "total"),
    ]  # fmt: skip


def test_a_line_may_be_an_expression_alone(out, tmp_path):
    path = tmp_path / "asked.txt"
    path.write_text("'voting age'[age = '4..5']\ntotal\n")
    ran = fitplug("estimate", out, "--from", path)
    assert ran.code == 0
    assert "'voting age'[age = '4..5']" in ran.out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("name,what\na,total\n", "first line must be: name,expression"),
        ("name,expression\na,total\na,pyramid\n", "line 3: the name is already used"),
        ("name,expression\na,\n", "line 2 has no expression"),
        (
            "name,expression\na,totel\n",
            "line 2 is not a valid expression on this release: error at character 1",
        ),
        ("name,expression\n", "Nothing to estimate"),
    ],
)
def test_bad_tables(out, tmp_path, content, says):
    path = tmp_path / "asked.csv"
    path.write_text(content)
    ran = fitplug("estimate", out, "--from", path)
    assert ran.code == 2
    assert re.fullmatch(rf"fitplug: .*{says}.*\n", ran.err)
    assert ran.out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Nothing to estimate"),
        (["totel"], "Did you mean 'total'"),
        (["pyramid[age<=17]"], "age has no value '17'. Its values are 0 to 5"),
        (["total", "--confidence", "1.5"], "below 1, not 1.5"),
        (["--from", "nowhere.csv"], "nowhere.csv: no such file"),
    ],
)
def test_bad_arguments(out, arguments, says):
    ran = fitplug("estimate", out, *arguments)
    assert ran.code == 2
    assert re.fullmatch(rf"fitplug: .*{says}.*\n", ran.err)


def test_no_release(tmp_path):
    ran = fitplug("estimate", tmp_path / "none", "total")
    assert ran.code == 2
    assert "this release folder does not exist" in ran.err
    assert names(tmp_path) == set()


def test_a_spec_may_ask_for_simultaneous_margins(tmp_path):
    spec = make(tmp_path)
    text = spec.read_text()
    spec.write_text(text.replace("confidence = 0.9\n", "confidence = 0.9\nsimultaneous = true\n"))
    ran = fitplug("run", spec)
    assert ran.code == 0
    assert "moe 9 at 90% simultaneous" in ran.out
    table = (tmp_path / "release" / "income.csv").read_text().splitlines()
    assert all(float(line.split(",")[-4]) <= 9.0 for line in table[1:])
    said = json.loads((tmp_path / "release" / "release.json").read_text())
    assert [group["simultaneous"] for group in said["groups"]] == [False, True, False]
    spec.write_text(text.replace("confidence = 0.9\n", "simultaneous = 3\n"))
    ran = fitplug("design", spec)
    assert ran.code == 2
    assert "simultaneous must be True or False, not 3" in ran.err


class TestFiles:
    """Of any length, in and out."""

    def test_a_csv_of_estimates(self, out, tmp_path):
        path = tmp_path / "e.csv"
        ran = fitplug("estimate", out, *ASKED, "--output", path, "--confidence", "0.9")
        assert (ran.code, ran.out) == (0, "")
        assert ran.err == f"3 estimates written to {path}\n"
        found = pd.read_csv(path)
        assert list(found) == ["name", "expression", *RESULT_COLUMNS, "approximate"]
        joint = people.release().estimate_all(ASKED)
        assert found["name"].tolist() == found["expression"].tolist() == ASKED
        np.testing.assert_allclose(found["std"], joint.stds, rtol=1e-2)
        np.testing.assert_allclose(found["estimate"], joint.values, atol=1e-5)
        np.testing.assert_allclose(found["upper"] - found["estimate"], found["moe"], atol=2e-5)
        assert found["approximate"].tolist() == [False, False, True]
        exact = tmp_path / "e.parquet"
        assert fitplug("estimate", out, *ASKED, "--output", exact).code == 0
        np.testing.assert_allclose(pd.read_parquet(exact)["std"], joint.stds, rtol=1e-7)

    def test_json_and_a_file_together(self, out, tmp_path):
        ran = fitplug("estimate", out, "total", "--json", "--output", tmp_path / "e.csv")
        assert json.loads(ran.out)["estimates"][0]["name"] == "total"
        assert (tmp_path / "e.csv").read_text().count("\n") == 2

    def test_what_spreadsheets_run(self, out, tmp_path):
        (tmp_path / "asked.csv").write_text("name,expression\n=cmd(),-total\n")
        asked = ["estimate", out, "--from", tmp_path / "asked.csv", "--output", tmp_path / "e.csv"]
        assert fitplug(*asked).code == 0
        assert (tmp_path / "e.csv").read_text().splitlines()[1].startswith('"=cmd()","-total",')
        assert fitplug(*asked, "--spreadsheet-safe").code == 0
        assert (tmp_path / "e.csv").read_text().splitlines()[1].startswith('"\'=cmd()","\'-total",')
        assert fitplug("estimate", out, "total", "--spreadsheet-safe").code == 2

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("e.txt", "the name must end in .csv or .parquet"),
            ("none/e.csv", "folder does not exist"),
            (".csv/", "must end in .csv|cannot be written"),
        ],
    )
    def test_where_nothing_can_be_written(self, out, tmp_path, name, says):
        (tmp_path / ".csv").mkdir()
        ran = fitplug("estimate", out, "total", "--output", tmp_path / name)
        assert ran.code == 2
        assert re.search(says, ran.err)

    def test_no_file_of_another_kind_is_replaced(self, out, tmp_path):
        path = tmp_path / "people.csv"
        path.write_text("name,age\nAnn,3\n")
        ran = fitplug("estimate", out, "total", "--output", path)
        assert ran.code == 2
        assert "already exists with other content" in ran.err
        assert path.read_text() == "name,age\nAnn,3\n"
        path.unlink()
        for suffix in ("csv", "parquet"):
            path = path.with_suffix(f".{suffix}")
            for asked in ("total", "pyramid"):
                assert fitplug("estimate", out, asked, "--output", path).code == 0
                assert path.stat().st_mode & 0o777 == (0o666 & ~_read_umask())

    def test_a_ratio_that_means_nothing_has_no_numbers(self, out, tmp_path):
        asked = ["pyramid / (total - pyramid)", "total"]
        ran = fitplug("estimate", out, *asked, "--output", tmp_path / "e.csv", "--json")
        assert ran.code == 0
        rows = json.loads(ran.out)["estimates"]
        assert [rows[0][key] for key in ("value", "std", "moe", "lower", "upper")] == [None] * 5
        found = pd.read_csv(tmp_path / "e.csv")
        assert found["estimate"].isna().tolist() == [True, False]
        ran = fitplug("estimate", out, *asked)
        assert re.search(r"\(approximate\) +- +- +- +- +-", ran.out)
        assert "less than 3 stds from zero" in ran.out

    @pytest.mark.long
    def test_an_expression_of_many_values(self, out, tmp_path):
        """Longer than what Python's csv takes for a field, and than any command line."""
        listed = "|".join(["0"] * 200_000)
        added = " + ".join(["pyramid[age=0]"] * 20_000)
        for name, text in {
            "long.csv": f'name,expression\nlisted,"spans[age={listed}]"\nadded,{added}\n',
            "long.txt": f"listed: spans[age={listed}]\nadded: {added}\n",
        }.items():
            (tmp_path / name).write_text(text)
            ran = fitplug("estimate", out, "spans[age=0]", "--from", tmp_path / name, "--json")
            one, listed_row, added_row = json.loads(ran.out)["estimates"]
            assert listed_row["value"] == pytest.approx(one["value"])
            assert added_row["value"] == pytest.approx(20_000 * one["value"])
            assert added_row["std"] == pytest.approx(20_000 * one["std"], rel=1e-6)

    @pytest.mark.long
    def test_100_000_lines(self, out, tmp_path, monkeypatch):
        """In turn: the joint covariance alone would take 80 GB. How far it is, is told."""
        monkeypatch.setattr(estimate, "_SECONDS_PER_REPORT", 0.1)
        with (tmp_path / "asked.csv").open("w") as file:
            file.write("name,expression\n")
            for k in range(100_000):
                file.write(f'n{k},"pyramid[sex={k % 2 + 1}, age<={k % 6}]"\n')
        asked = ["--from", tmp_path / "asked.csv", "--output", tmp_path / "e.csv"]
        ran = fitplug("estimate", out, *asked)
        assert ran.code == 0
        assert "of 100,000 estimated after" in ran.err
        found = pd.read_csv(tmp_path / "e.csv")
        six = people.release().estimate_all(found["expression"][:6].tolist())
        np.testing.assert_allclose(found["estimate"], np.resize(six.values, 100_000), atol=1e-3)

    def test_files_that_are_none_of_expressions_are_not_quoted(self, out, tmp_path):
        (tmp_path / "people.txt").write_text("Ann Smith: ZEBRACANARY 7\n")
        ran = fitplug("estimate", out, "--from", tmp_path / "people.txt")
        assert ran.code == 2
        assert "people.txt: line 1 is not a valid expression on this release" in ran.err
        assert "ZEBRA" not in ran.err
        assert "Ann" not in ran.err
        (tmp_path / "people.csv").write_text('name,expression\n"ZEBRACANARY,7\n')
        ran = fitplug("estimate", out, "--from", tmp_path / "people.csv")
        assert re.search(r"people.csv: not valid CSV at line 2 or before", ran.err)
        assert "ZEBRA" not in ran.err
