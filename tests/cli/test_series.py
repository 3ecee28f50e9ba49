"""`fitplug series`: a spec is released period by period."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from tests.helpers.command_line import fitplug

SPEC = """
[data]
path = "rows/"
person = "ID"

[domain]
MONTH = { integers = [1, 3] }
REGION = ["a", "b"]

[[query]]
name = "months"
MONTH = "identity"
REGION = "identity"
std = 2.0

[[query]]
name = "so far"
MONTH = "prefix"
std = 4.0

[privacy]
unit = { records = 3, once_per = "MONTH" }

[design]
periods = "MONTH"

[ledger]
path = "budget.db"
rho = 10.0

[output]
path = "out/"
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


def add_month(folder, month, persons):
    """Two rows of each person in a month, of which one is counted."""
    person = np.repeat(np.arange(persons), 2)
    region = np.array(["a", "b"])[person % 2]
    table = pa.table({"ID": person, "MONTH": np.full(len(person), month), "REGION": region})
    pq.write_table(table, folder / "rows" / f"{month}.parquet")


def test_display_tables_of_each_period(tmp_path, spec):
    shown = SPEC.replace('path = "out/"', 'path = "out/"\ndisplay = true')
    spec.write_text(shown.replace("display = true", "display = { totals = { months = 3 } }"))
    ran = fitplug("series", "begin", spec, "--key", "2024")
    assert (ran.code, ran.out) == (2, "")
    assert "display tables of a series cannot add up to totals. Set" in ran.err
    assert not (tmp_path / "out").exists()
    spec.write_text(shown)
    assert fitplug("series", "begin", spec, "--key", "2024").code == 0
    add_month(tmp_path, 1, 3)
    assert fitplug("series", "add", spec, 1).code == 0
    tables = {path.name for path in (tmp_path / "out" / "period-1").glob("*.display.parquet")}
    assert tables == {"months.display.parquet", "so_far.display.parquet"}
    table = pq.read_table(tmp_path / "out" / "period-1" / "months.display.parquet")
    assert table["display"].to_pylist() == [max(0, one) for one in table["display"].to_pylist()]
    spec.write_text(SPEC)
    ran = fitplug("series", "add", spec, 2)
    assert ran.code == 2
    assert "does not match the series in" in ran.err


def test_a_spec_month_by_month(tmp_path, spec):
    ran = fitplug("series", "begin", spec, "--key", "2024")
    assert ran.code == 0, ran
    assert "0 of 3 periods drawn" in ran.out
    ledger = fp.Ledger(tmp_path / "budget.db")
    spent = ledger.spent
    assert fitplug("series", "begin", spec, "--key", "2024").code == 0
    assert ledger.spent == spent
    for month, persons in ((1, 100), (2, 80), (3, 60)):
        add_month(tmp_path, month, persons)
        ran = fitplug("series", "add", spec, month, "--json")
        assert (ran.code, ran.err) == (0, "")
        said = json.loads(ran.out)
        assert (said["drawn"], said["periods"]) == (month, ["1", "2", "3"])
        assert said["ledger"]["spent"] == spent
    released = fp.open_series(tmp_path / "out").read()
    assert released.limited == "enforced"
    assert np.abs(released.estimates["so far"] - [100, 180, 240]).max() < 30
    assert fitplug("verify", tmp_path / "out").code == 0
    assert fitplug("series", "add", spec, 2).code == 0
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith("budget.db-")} == {
        "budget.db", "out", "rows", "spec.toml"}  # fmt: skip


def test_what_is_drawn_is_shown_and_verified(tmp_path, spec):
    assert fitplug("series", "begin", spec, "--key", "2024").code == 0
    out = tmp_path / "out"
    ran = fitplug("show", out)
    assert (ran.code, ran.err) == (0, "")
    assert "0 of 3 periods drawn" in ran.out
    assert "months: no answers yet" in ran.out
    for month in (1, 2):
        add_month(tmp_path, month, 50)
        assert fitplug("series", "add", spec, month).code == 0
    released = fp.open_series(out).read()
    said = json.loads(fitplug("show", out, "--json", "--confidence", "0.9").out)
    assert (said["drawn"], said["periods"]) == (2, 3)
    for table in said["tables"]:
        rows = released.to_arrow(table["name"], confidence=0.9).to_pylist()
        assert table["rows"] == rows != []
    ran = fitplug("show", out, "so far")
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 4 + 2 + 2)
    for arguments in (["show", out, "--display"], ["verify", out, "--ledger", spec]):
        ran = fitplug(*arguments)
        assert ran.code == 2
        assert "needs a complete release" in ran.err
    ran = fitplug("estimate", out, "months")
    assert ran.code == 2
    assert "out is a series, not a release. Use `fitplug show`" in ran.err
    ran = fitplug("verify", out)
    assert (ran.code, ran.err) == (0, "")
    assert "the tables of 2 of 3 periods follow from the noisy sums" in ran.out
    path = out / "period-2" / "months.parquet"
    table = pq.read_table(path)
    estimates = pa.array([value + 1 for value in table["estimate"].to_pylist()])
    at = table.column_names.index("estimate")
    pq.write_table(table.set_column(at, table.schema.field(at), estimates), path)
    ran = fitplug("verify", out)
    assert ran.code == 1
    assert re.search("series +FAILED", ran.out)


def test_what_is_refused(tmp_path, spec):
    def refuse(code, says, *arguments, **changes):
        text = SPEC
        for old, new in changes.values():
            assert old in text
            text = text.replace(old, new)
        spec.write_text(text)
        ran = fitplug("series", *arguments)
        assert ran.code == code, ran
        assert says in ran.err
        assert ran.err.count("\n") == 1
        spec.write_text(SPEC)

    ran = fitplug("run", spec)
    assert (ran.code, ran.out) == (2, "")
    assert "describes a series" in ran.err
    assert not (spec.parent / "budget.db").exists()
    begin = ("begin", spec, "--key", "k")
    refuse(2, "not the folder of a series", "add", spec, 1)
    refuse(2, "--key", "begin", spec)
    periods = 'periods = "MONTH"'
    refuse(2, "cannot be released period by period", *begin, change=(periods, ""))
    refuse(2, "Did you mean", *begin, change=(periods, 'periods = "MONTHS"'))
    text = SPEC.replace('[ledger]\npath = "budget.db"\nrho = 10.0', "")
    refuse(2, "needs a ledger", *begin, change=(SPEC, f"ledger = false\n{text}"))
    refuse(2, "must be a local folder, not a URL", *begin, change=('"out/"', '"memory://out"'))
    refuse(3, "over budget", *begin, change=("rho = 10.0", "rho = 0.001"))
    assert not (tmp_path / "budget.db").exists()
    assert fitplug(*("series", *begin)).code == 0
    refuse(2, "the next period is", "add", spec, 2)
    refuse(2, "does not match the series in", "add", spec, 1, change=("std = 4.0", "std = 5.0"))
    add_month(tmp_path, 1, 10)
    assert fitplug("series", "add", spec, 1).code == 0
    assert "1 of 3" in fitplug("series", "close", spec).out
    refuse(2, "is closed", "add", spec, 2)
