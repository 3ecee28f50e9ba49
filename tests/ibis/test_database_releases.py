"""Releases of a database: by one call, by a spec, charged once, and never of a second choice."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import DataError, InputError, LedgerError
from fitplug_ibis.connections import expand_variables
from fitplug_opendp import folder_release
from tests.helpers.command_line import fitplug
from tests.helpers.databases import DOMAIN, load_duckdb, load_sqlite, make_rows

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(
        not entry_points(group="fitplug.adapters", name="count_in_database"),
        reason="fitplug was installed before it counted in databases: pip install -e .",
    ),
]

UNIT = fp.AddRemove(records=2)


def make_plan() -> fp.Plan:
    return fp.design(fp.Workload(DOMAIN, [fp.marginal("sex", "age", std=2.0)]), unit=UNIT)


@pytest.mark.parametrize("folder", [None, "out"])
def test_a_release_is_charged_once(tmp_path: Path, folder: str | None) -> None:
    source = fp.Source(load_duckdb(make_rows(2000), tmp_path), person="person")
    plan, ledger = make_plan(), fp.Ledger(tmp_path / "budget.db", rho=100.0)
    out = None if folder is None else tmp_path / folder
    release = fp.release(plan, source, out, ledger=ledger, key="a")
    assert ledger.spent == pytest.approx(plan.rho)
    assert release.limited == "enforced"
    tables = fp.count(source, plan)
    total = release.estimates["sex x age"].sum()
    assert abs(total - tables.marginal(()).item()) < 6 * 2.0 * np.sqrt(48)
    if out is not None:
        again = fp.release(plan, source, out, ledger=ledger, key="a")
        assert np.array_equal(again.answers, release.answers)
    assert ledger.spent == pytest.approx(plan.rho)


def test_a_killed_run_counts_again_and_only_one_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the charge and before the draw: one charge, one set of answers."""
    source = fp.Source(load_duckdb(make_rows(2000), tmp_path), person="person")
    plan, ledger = make_plan(), fp.Ledger(tmp_path / "budget.db", rho=100.0)

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(folder_release.FolderPublication, "_draw", die)
        with pytest.raises(Killed):
            fp.release(plan, source, tmp_path / "out", ledger=ledger, key="a")
    assert ledger.spent == pytest.approx(plan.rho)
    assert not (tmp_path / "out").exists()
    release = fp.release(plan, source, tmp_path / "out", ledger=ledger, key="a")
    assert ledger.spent == pytest.approx(plan.rho)
    assert np.array_equal(fp.Release.load(tmp_path / "out").answers, release.answers)


def test_no_second_choice_of_rows_is_covered(tmp_path: Path) -> None:
    source = fp.Source(load_duckdb(make_rows(2000), tmp_path), person="person")
    ledger = fp.Ledger(tmp_path / "budget.db", rho=100.0)
    first, second = (
        fp.design(
            fp.Workload(DOMAIN, [fp.queries({"sex": [row], "age": "identity"}, std=2.0)]),
            unit=UNIT,
        )
        for row in ([1, 0], [0, 1])
    )
    tables = fp.count(source, first)
    fp.release(first, tables, ledger=ledger, key="first")
    with pytest.raises(LedgerError, match="Use the counts file of that release"):
        fp.release(second, source, ledger=ledger, key="b", covered_by="first")
    fp.release(second, tables, ledger=ledger, key="b", covered_by="first")
    assert ledger.spent == pytest.approx(first.rho)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"client": object()}, "client= cannot be combined with rows in a database"),
        ({"key_file": "a.key"}, "key_file= cannot be combined with rows in a database"),
    ],
)
def test_releases_in_parts_are_refused(tmp_path: Path, options: Any, says: str) -> None:
    table = load_duckdb(make_rows(20), tmp_path)
    with pytest.raises(InputError, match=says):
        fp.release(make_plan(), table, tmp_path / "out", **options)
    with pytest.raises(
        InputError, match="a URL as folder= cannot be combined with rows in a database"
    ):
        fp.release(make_plan(), table, "s3://bucket/out")
    with pytest.raises(InputError, match="preview cannot read a database"):
        fp.preview(table, make_plan())


SPEC = """
[data]
connection = "sqlite://${WHERE}.sqlite"
table = "people"
person = "person"
[domain]
sex = ["1", "2"]
age = { integers = [-3, 20] }
[[query]]
name = "ages"
sex = "identity"
age = "identity"
std = 2.0
[privacy]
unit = { records = 2 }
[ledger]
path = "budget.db"
rho = 10.0
[output]
path = "out"
"""


def test_a_spec_names_a_table_and_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_sqlite(make_rows(500), tmp_path).get_backend().disconnect()
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    said = fitplug("run", spec)
    assert said.code == 2
    assert "environment variable 'WHERE'" in said.err
    monkeypatch.setenv("WHERE", "rows")
    ran = fitplug("run", spec, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["ledger"]
    assert (tmp_path / "out" / "release.json").exists()


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('table = "people"', "", "'connection' needs 'table', the name of a table"),
        ('table = "people"', 'table = "people"\npath = "x"', "'path' and 'connection' cannot"),
        (
            'table = "people"',
            'table = "people"\ncluster = "x"',
            "'cluster' and 'connection' cannot",
        ),
        (
            'connection = "sqlite://${WHERE}.sqlite"',
            'path = "x"',
            'must be "delta" or "iceberg" without',
        ),
        ('connection = "sqlite://${WHERE}.sqlite"\ntable = "people"', "", "the data are missing"),
        ('table = "people"', 'table = "people"\nzone = "UTC"', "'zone' is for files"),
    ],
)
def test_a_spec_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, says: str
) -> None:
    load_sqlite(make_rows(20), tmp_path).get_backend().disconnect()
    monkeypatch.setenv("WHERE", "rows")
    (tmp_path / "spec.toml").write_text(SPEC.replace(before, after))
    said = fitplug("run", tmp_path / "spec.toml")
    assert said.code in (1, 2)
    assert says in said.err


def test_passwords_are_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_NAME", "CANARY/@:")
    url = "postgresql://me:${CANARY_NAME}@127.0.0.1:1/nowhere"
    assert expand_variables(url) == "postgresql://me:CANARY%2F%40%3A@127.0.0.1:1/nowhere"
    assert expand_variables("${CANARY_NAME}") == "CANARY/@:"
    for connection in (url, "postgresql://me:CANARY@127.0.0.1:1/nowhere"):
        source = fp.Source(fp.DatabaseTable(connection, "people"))
        assert "CANARY" not in repr(source)
        with pytest.raises(DataError, match="cannot be reached") as caught:
            fp.count(source, make_plan().workload)
        assert "CANARY" not in str(caught.value)
        assert caught.value.__context__ is caught.value.__cause__ is None
    with pytest.raises(DataError, match="cannot show a table 'nothing'"):
        fp.count(fp.DatabaseTable(f"duckdb://{tmp_path}/a.duckdb", "nothing"), make_plan())
