"""One import: what `fitplug` calls of its adapters, and what is said where a library is missing."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.adapters.entry_points import GROUP, _find_entry_point
from fitplug.errors import InputError
from fitplug_cli.spec.errors import tomllib
from tests.helpers.places import ROOT

NAMED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "entry-points"
][GROUP]

MISSING = """\
import sys
sys.modules[{library!r}] = None
import fitplug as fp
domain = fp.Domain({{"sex": ["1", "2"]}})
plan = fp.design(fp.Workload(domain, [fp.queries({{"sex": "identity"}}, std=5.0)]))
try:
    {call}
except ImportError as error:
    print(error)
"""


def say_missing(library: str, call: str) -> str:
    code = MISSING.format(library=library, call=call)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_what_is_declared_is_installed_and_has_the_same_parameters() -> None:
    found = {point.name: point for point in entry_points(group=GROUP)}
    assert {name: point.value for name, point in found.items()} == NAMED
    offered = {name: name for name in ("count", "preview", "begin_series", "open_series")}
    for name, offer in (offered | {"count_in_database": "count"}).items():
        ours, theirs = (
            {p.name: (p.kind, p.default) for p in inspect.signature(f).parameters.values()}
            for f in (getattr(fp, offer), found[name].load())
        )
        assert ours == theirs, name


@pytest.mark.parametrize(
    ("library", "call", "extra"),
    [
        ("pyarrow", 'fp.count("people.csv", plan)', "dask"),
        ("fitplug_dask", 'fp.preview("people.csv", plan)', "dask"),
        ("fitplug_dask", 'fp.release(plan, "people.csv", "out")', "dask,opendp"),
        ("opendp", "fp.release(plan, fp.Tables(domain, {('sex',): [1, 2]}))", "opendp"),
        ("fitplug_opendp", "fp.release(plan, fp.Tables(domain, {('sex',): [1, 2]}))", "opendp"),
    ],
)
def test_a_missing_library_is_one_sentence_with_the_fix(
    library: str, call: str, extra: str
) -> None:
    said = say_missing(library, call)
    assert f'pip install "fitplug[{extra}]"' in said
    assert len(said.splitlines()) == 1


def test_a_missing_adapter_is_one_sentence_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    _find_entry_point.cache_clear()
    monkeypatch.setattr("fitplug.adapters.entry_points.entry_points", lambda **_: ())
    with pytest.raises(ImportError, match=r"fitplug\.count is not installed"):
        fp.count("people.csv", (fp.Domain({"sex": ["1", "2"]}), [("sex",)]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"again": True}, "again= needs folder=. Name a folder"),
        ({"replace": True}, "replace= needs folder="),
        ({"key_file": "a.key"}, "key_file= needs folder="),
        ({"client": object()}, "client= needs folder="),
        (
            {"folder_options": {"key": "CANARY"}},
            "folder_options= needs folder=",
        ),
        ({"folder": "out", "folder_options": {"key": "CANARY"}}, "Give the URL of a store"),
    ],
)
def test_arguments_that_need_a_folder_say_so(options: Any, says: str) -> None:
    domain = fp.Domain({"sex": ["1", "2"]})
    plan = fp.design(fp.Workload(domain, [fp.marginal("sex", std=5.0)]))
    tables = fp.Tables(domain, {("sex",): [3, 4]})
    with pytest.raises(InputError, match=says) as caught:
        fp.release(plan, tables, **options)
    assert "CANARY" not in str(caught.value)


def test_exchanged_arguments_are_named() -> None:
    workload = fp.Workload(fp.Domain({"sex": ["1", "2"]}), [fp.marginal("sex", std=5.0)])
    plan, strategy = fp.design(workload), fp.Strategy.from_matrix([[1, 0], [0, 1]])
    tables = fp.Tables(workload.domain, {("sex",): [3, 4]})
    calls: list[tuple[Any, tuple[Any, ...], str]] = [
        (
            fp.release,
            (tables, plan),
            "plan must be a fitplug.Plan, not Tables. Call fitplug.release",
        ),
        (fp.count, (plan, "a.csv"), "plan must be a fitplug.Plan, not str. Call fitplug.count(sou"),
        (fp.preview, (plan, "a.csv"), "plan must be a fitplug.Plan, not str. Call fitplug.preview"),
        (fp.design, (plan,), "workload must be a fitplug.Workload, not Plan. Call fitplug.design"),
        (fp.evaluate, (strategy, workload), "workload must be a fitplug.Workload, not Strategy."),
        (fp.evaluate, (workload, plan), "strategy must be a fitplug.Strategy, not Plan."),
        (fp.review, (plan,), "release must be a fitplug.Release, not Plan."),
        (
            functools.partial(fp.evaluate, plan=workload),
            (workload, strategy),
            "plan must be a fitplug.Plan, not Workload.",
        ),
        (
            functools.partial(fp.begin_series, ledger=None, key="key"),
            ("folder", plan),
            "plan must be a fitplug.Plan, not str. Call fitplug.begin_series(plan, folder,",
        ),
    ]
    for call, arguments, says in calls:
        with pytest.raises(TypeError) as caught:
            call(*arguments)
        assert str(caught.value).startswith(says)


def test_one_release_of_tables_or_rows_in_memory_or_a_folder(tmp_path: Path) -> None:
    """Whatever way it is made: the same answers up to the noise, charged once each."""
    domain = fp.Domain({"sex": ["1", "2"]})
    plan = fp.design(fp.Workload(domain, [fp.marginal("sex", std=5.0)]))
    rows = tmp_path / "rows.csv"
    rows.write_text("id,sex\n" + "".join(f"{n // 2},{1 + n % 2}\n" for n in range(2000)))
    tables = fp.count(rows, plan)
    persons = fp.Source(rows, person="id")
    ledger = fp.Ledger(tmp_path / "budget.db", rho=100.0)
    for key, data, folder in (
        ("a", tables, None),
        ("b", tables, tmp_path / "b"),
        ("c", rows, None),
        ("d", [rows], tmp_path / "d"),
        ("e", fp.Source(rows, where={"sex": "1"}), None),
        ("f", persons, None),
        ("g", persons, tmp_path / "g"),
    ):
        released = fp.release(plan, data, folder, ledger=ledger, key=key)
        expected = {"e": [1000, 0], "f": [500, 500], "g": [500, 500]}.get(key, [1000, 1000])
        assert np.abs(released.estimates["sex"] - expected).max() < 200
        assert released.limited == ("enforced" if data is persons else "declared")
        assert released.entry is not None
        assert released.entry.key == key
        if folder is None:
            with pytest.raises(fp.KeyTaken, match="was drawn at"):
                fp.release(plan, data, ledger=ledger, key=key)
        else:
            again = fp.release(plan, data, folder, ledger=ledger, key=key)
            np.testing.assert_array_equal(np.asarray(again.answers), np.asarray(released.answers))
    assert ledger.spent == pytest.approx(7 * plan.rho)


def test_a_refused_release_in_memory_reads_no_row(tmp_path: Path) -> None:
    domain = fp.Domain({"sex": ["1", "2"]})
    plan = fp.design(fp.Workload(domain, [fp.marginal("sex", std=5.0)]))
    ledger = fp.Ledger(tmp_path / "budget.db", rho=plan.rho / 2)
    with pytest.raises(fp.OverBudget):
        fp.release(plan, tmp_path / "no such file", ledger=ledger)


def test_frames_in_memory_are_counted_by_from_records() -> None:
    domain = fp.Domain({"sex": ["1", "2"]})
    plan = fp.design(fp.Workload(domain, [fp.marginal("sex", std=5.0)]))
    with pytest.raises(fp.DataError, match=r"rows in memory with fitplug\.Tables\.from_records"):
        fp.release(plan, {"sex": ["1", "2"]})
