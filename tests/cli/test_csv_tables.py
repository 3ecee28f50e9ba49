"""CSV tables: what spreadsheets would run as formulas, by other readers than ours."""

from __future__ import annotations

import csv
import io
import re
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug_opendp import csv_tables
from fitplug_opendp.output import estimate_size
from tests.helpers.command_line import SPEC, fitplug, make

# OWASP, "CSV injection": what a cell must not begin with, also in full width.
DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
FORMULAS = ("=1+1", "+cmd|'/c calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "＝1+1", " =1", "a;=1")
PLAIN = ("1", "-5", "+4.5e3", "-5..-1", "18+", "a-b", "", "x = y", "O'Brien", "[-5, 10)")


def runs(cell: str) -> bool:
    number = r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?"
    if re.fullmatch(rf"{number}(\.\.{number})?", cell, re.IGNORECASE):
        return False
    return cell.startswith(DANGEROUS) or cell.lstrip("\ufeff\u200b \xa0").startswith(DANGEROUS)


def cells(text: str) -> list[str]:
    """As programs split them that take other separators than commas."""
    found = []
    for separator in ",;\t|":
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            found += row
    return found


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gets_an_apostrophe_and_keeps_its_text(text: str) -> None:
    safe = csv_tables.neutralise(text)
    assert safe != text
    assert safe.replace("'", "") == text.replace("'", "")


@pytest.mark.parametrize("text", PLAIN)
def test_what_computes_nothing_is_left_as_it_is(text: str) -> None:
    assert csv_tables.neutralise(text) == text


# The module csv of Python 3.10 neither writes nor reads a NUL.
UNWRITTEN = "\x00" if sys.version_info < (3, 11) else ""
dangerous_texts = st.text(
    st.one_of(
        st.sampled_from([*DANGEROUS, *",;|'\" \ufeff\u200b15ae.\x00"]), st.characters()
    ).filter(lambda character: character not in UNWRITTEN)
)


@given(st.lists(dangerous_texts, min_size=1, max_size=3))
def test_no_cell_runs_however_the_file_is_split(texts: list[str]) -> None:
    safe = [csv_tables.neutralise(text.encode("utf-8", "replace").decode()) for text in texts]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(safe)
    (read,) = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert not [cell for cell in read if runs(cell)]
    for text in safe:
        if not re.fullmatch(r"[-+.\deE]+", text):
            assert not [part for part in re.split(r"[,;\t\r\n|]", text) if runs(part)]


def test_a_table_of_arrow(tmp_path) -> None:
    texts = [*FORMULAS, *PLAIN]
    columns = {"=name": texts, "n": [-1] * len(texts), "f": [-0.5] * len(texts)}
    for kind in (pa.string(), pa.large_string()):
        table = pa.table(columns).cast(
            pa.schema([("=name", kind), ("n", pa.int64()), ("f", pa.float64())])
        )
        csv_tables.write_csv(tmp_path / "exact.csv", table)
        csv_tables.write_csv(tmp_path / "safe.csv", table, spreadsheet_safe=True)
        exact, safe = (
            list(csv.reader(io.StringIO((tmp_path / name).read_bytes().decode(), newline="")))
            for name in ("exact.csv", "safe.csv")
        )
        assert [row[0] for row in exact] == ["=name", *texts]
        assert not [cell for row in safe for cell in row if runs(cell)]
        assert [row[1:] for row in safe] == [row[1:] for row in exact]
        assert [row[0] for row in safe[-len(PLAIN) :]] == list(PLAIN)


LABELLED = SPEC.replace('SEX = ["1", "2"]', 'SEX = ["1", "2", "=1+1", "@x"]')


def test_a_release_is_written_safe_on_request_and_its_parquet_never_is(tmp_path) -> None:
    spec = make(tmp_path, LABELLED.replace("[output]", "[output]\nspreadsheet_safe = true"))
    ran = fitplug("run", spec)
    assert ran.code == 0, ran
    assert "formulas" not in ran.err
    folder = tmp_path / "release"
    text = (folder / "ages.csv").read_text("utf-8")
    assert not [cell for cell in cells(text) if runs(cell)]
    assert "'=1+1" in text
    assert "=1+1" in pq.read_table(folder / "ages.parquet")["SEX"].to_pylist()
    fp.Release.load(folder)


def test_without_the_option_run_and_report_name_the_labels(tmp_path) -> None:
    spec = make(tmp_path, LABELLED)
    for command in (
        ["report", spec],
        ["run", spec],
        ["report", spec, "--output", tmp_path / "r.html"],
    ):
        ran = fitplug(*command)
        assert ran.code == 0, ran
        (line,) = (line for line in ran.err.splitlines() if line.startswith("warning: "))
        assert "'SEX' ('=1+1', '@x')" in line
        assert "[output] spreadsheet_safe = true" in line
    assert "&#39;=1+1&#39;" in (tmp_path / "r.html").read_text("utf-8")
    assert "=1+1" in (tmp_path / "release" / "ages.csv").read_text("utf-8")


def test_labels_that_run_nowhere_warn_of_nothing(tmp_path) -> None:
    ran = fitplug("report", make(tmp_path))
    assert (ran.code, ran.err) == (0, "")


def test_the_ledger_on_request(tmp_path) -> None:
    ledger = fp.Ledger(tmp_path / "budget.db", rho=1.0)
    ledger.charge(0.1, what="=HYPERLINK(1)", key="+k", folder="@there")
    exact = fitplug("ledger", "show", ledger.path, "--csv").out
    safe = fitplug("ledger", "show", ledger.path, "--csv", "--spreadsheet-safe").out
    assert {"=HYPERLINK(1)", "+k", "@there"} <= set(next(csv.reader(exact.splitlines()[1:])))
    assert {"'=HYPERLINK(1)", "'+k", "'@there"} <= set(next(csv.reader(safe.splitlines()[1:])))
    assert fitplug("ledger", "show", ledger.path, "--json", "--spreadsheet-safe").code == 2


@pytest.mark.parametrize(
    ("stds", "expected"),
    [([12.345678], 2), ([9.9996], 2), ([9.9994], 3), ([0.012345], 5), ([99999.0], 0),
     ([0.5, 80.0], 4), ([0.0, 80.0], 2), ([0.0], 15), ([float("nan"), 80.0], 2), ([], 15)],
)  # fmt: skip
def test_four_digits_of_the_smallest_std(stds, expected):
    assert csv_tables.count_table_decimals(np.array(stds)) == expected


def test_numbers_have_the_digits_that_matter(tmp_path):
    """Against the Parquet table's: a rounding, and a file of less than half the size."""
    rng = np.random.default_rng(1)
    std = 12 + rng.uniform(size=1000)
    estimate = np.concatenate([[-0.0001], rng.normal(0, 1e5, 999)])
    columns = {"A": np.arange(1000), "estimate": estimate, "std": std, "moe": 2 * std,
               "lower": estimate - 2 * std, "upper": estimate + 2 * std,
               "confidence": np.full(1000, 0.9973)}  # fmt: skip
    table = pa.table(columns)
    csv_tables.write_csv(tmp_path / "t.csv", table)
    found = pacsv.read_csv(tmp_path / "t.csv")
    for name in ("estimate", "std", "moe", "lower", "upper"):
        np.testing.assert_allclose(found[name].to_numpy(), columns[name], atol=0.0050001)
    assert found["confidence"].to_pylist() == [0.9973] * 1000
    text = (tmp_path / "t.csv").read_text()
    assert not re.search(r"\.[0-9]{5}", text)
    assert text.splitlines()[1].startswith("0,0,12.")  # no -0
    pacsv.write_csv(table, tmp_path / "all.csv")
    assert len(text) < (tmp_path / "all.csv").stat().st_size / 2


def test_a_release_needs_room_for_its_csv_tables(tmp_path, monkeypatch):
    ages = SPEC.replace("integers = [0, 5]", "integers = [0, 20000]")
    spec = make(tmp_path, ages.replace('AGE = "prefix"', 'AGE = "identity"'))
    assert fitplug("design", spec, "--output", tmp_path / "plan.npz").code == 0
    plan = fp.Plan.load(tmp_path / "plan.npz")
    of_csv = sum(csv_tables.estimate_csv_size(plan.domain, one) for one in plan.workload.groups)
    free = estimate_size(plan) + of_csv - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (10**12, 0, free))
    refused = fitplug("run", spec)
    assert refused.code == 1
    assert "MB free. Free some space" in refused.err
    assert not list(tmp_path.glob("budget.db*"))
    free += 1
    assert fitplug("run", spec).code == 0
    written = sum(path.stat().st_size for path in (tmp_path / "release").glob("*.csv"))
    assert of_csv / 3 < written < of_csv
