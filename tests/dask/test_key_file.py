"""The key of encrypted counts never lies where they do, and is found again by whoever needs it."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug.errors import FitplugError, InputError
from fitplug_dask.releases import release_source
from fitplug_opendp.key_file import KeyFile
from tests.helpers.command_line import fitplug

DOMAIN = fp.Domain({"MONTH": fp.Integers(1, 2), "REGION": fp.Integers(1, 3)})
WORKLOAD = fp.Workload(DOMAIN, [fp.marginal("MONTH", "REGION", std=5.0, name="months")])
PLAN = fp.design(WORKLOAD, periods="MONTH")
TABLES = fp.Tables(DOMAIN, {("MONTH", "REGION"): np.full((2, 3), 100)})


def keep_counts(kind: str, root: Path, key_file: Any) -> None:
    """Make what keeps encrypted counts in `root / "data" / "out"`, or beside it."""
    out = root / "data" / "out"
    ledger = fp.Ledger(root / "budget.db", rho=1.0)
    if kind == "series":
        fp.begin_series(PLAN, out, ledger=ledger, key="a", key_file=key_file)
    else:
        release_source(PLAN, TABLES, out, ledger=ledger, key="a", key_file=key_file)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data" / "keys").mkdir(parents=True)
    return tmp_path


KINDS = pytest.mark.parametrize("kind", ["series", "release"])
TOGETHER = ["data/k", "data/out/k", "data/out/deep/k", "data/.out.0123.series/k", "data/link/k"]


@KINDS
@pytest.mark.parametrize("place", TOGETHER)
def test_a_key_beside_the_counts_is_refused_before_anything_is_written(
    root: Path, keys: Path, kind: str, place: str
) -> None:
    (root / "data" / "link").symlink_to(root / "data")
    with pytest.raises(InputError, match=r"next to the encrypted counts in .* to a file elsewhere"):
        keep_counts(kind, root, root / place)
    check_nothing(root)


@KINDS
@pytest.mark.parametrize("where", ["data", "data/out", "data/out/home"])
def test_an_account_in_the_output_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, kind: str, where: str
) -> None:
    """Of `data` only the folder of keys itself is beside the counts; it has an own one."""
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(root / where))
    if where == "data":
        keep_counts(kind, root, None)
        return
    with pytest.raises(InputError, match="next to the encrypted counts in"):
        keep_counts(kind, root, None)
    check_nothing(root)


@KINDS
def test_other_places_of_the_key(root: Path, keys: Path, kind: str) -> None:
    with pytest.raises(InputError, match="does not exist"):
        keep_counts(kind, root, root / "not mounted" / "k")
    with pytest.raises(InputError, match="is a URL"):
        keep_counts(kind, root, "s3://bucket/k")
    (root / "k").write_text("my own notes")
    with pytest.raises(InputError, match="is damaged or not a fitplug key"):
        keep_counts(kind, root, root / "k")
    assert (root / "k").read_text() == "my own notes"
    other = KeyFile.locate(root / "k2", "something", "another owner", beside=())
    other.keep()
    with pytest.raises(InputError, match=r"k2 is not the key of"):
        keep_counts(kind, root, root / "k2")
    check_nothing(root)
    assert other.find()
    keep_counts(kind, root, root / "data" / "keys" / "k")
    left = list((root / "data" / "keys").iterdir())
    assert [path.name for path in left] == (["k"] if kind == "series" else [])
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in left)
    assert not keys.exists()


@KINDS
def test_an_account_that_cannot_be_written_charges_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (root / "state").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    with pytest.raises(FitplugError, match=r"a directory. Set key_file .* to a file elsewhere"):
        keep_counts(kind, root, None)
    check_nothing(root)


def check_nothing(root: Path) -> None:
    """Nothing was charged, and no counts were written."""
    if (root / "budget.db").exists():
        assert not fp.Ledger(root / "budget.db").entries()
    assert not [path for path in root.rglob("*") if ".part" in path.name or "counts-" in path.name]


def test_a_relative_state_home_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", "/home/somebody")
    located = KeyFile.locate(None, "x", "o", beside=())
    assert located.path == Path("/home/somebody/.local/state/fitplug/keys/o.key")


def test_whoever_is_first_makes_the_key(tmp_path: Path) -> None:
    file = KeyFile.locate(tmp_path / "k", "x", "owner", beside=())
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(file.keep())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {file.read()}
    assert os.listdir(tmp_path) == ["k"]  # noqa: PTH208 - hidden names, too
    KeyFile.locate(tmp_path / "k", "y", "another owner", beside=()).remove()
    assert file.find() == found[0]
    file.remove()
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_a_series_is_continued_from_another_account_with_a_named_key(
    root: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, out = fp.Ledger(root / "budget.db", rho=1.0), root / "data" / "out"
    series = fp.begin_series(PLAN, out, ledger=ledger, key="a")
    assert series.key_file is not None
    assert series.key_file.parent == keys
    series.release(1, TABLES)
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "other"))
    entries = ledger.entries()
    with pytest.raises(InputError, match=r"is missing from .*other.* or set key_file to the file"):
        fp.open_series(out, ledger=ledger).release(2, TABLES)
    assert ledger.entries() == entries
    shared = series.key_file.rename(root / "shared.key")
    opened = fp.open_series(out, ledger=ledger, key_file=shared)
    assert opened.release(2, TABLES).drawn == 2
    assert not shared.exists()


def test_a_spec_names_the_key(root: Path, keys: Path) -> None:
    spec = root / "spec.toml"
    (root / "rows").mkdir()
    pq.write_table(pa.table({"MONTH": [1], "REGION": [1]}), root / "rows" / "1.parquet")
    spec.write_text(
        """
[data]
path = "rows/"
[privacy]
unit = { records = 1 }
[domain]
MONTH = { integers = [1, 2] }
REGION = { integers = [1, 3] }
[[query]]
name = "months"
MONTH = "identity"
REGION = "identity"
std = 5.0
[design]
periods = "MONTH"
[ledger]
path = "budget.db"
rho = 1.0
[output]
path = "data/out"
key_file = "data/k"
"""
    )
    refused = fitplug("series", "begin", spec, "--key", "a")
    assert (refused.code, "to a file elsewhere" in refused.err) == (2, True), refused
    assert not (root / "budget.db").exists()
    spec.write_text(spec.read_text().replace("data/k", "data/keys/k"))
    begun = fitplug("series", "begin", spec, "--key", "a")
    assert begun.code == 0, begun
    assert f"{root}/data/keys/k" in begun.out
    assert (root / "data" / "keys" / "k").exists()
    assert fitplug("series", "add", spec, 1).code == 0
    assert fitplug("series", "close", spec).code == 0
    assert not (root / "data" / "keys" / "k").exists()
    whole = spec.read_text().replace('[design]\nperiods = "MONTH"\n', "")
    spec.write_text(whole.replace("data/out", "data/parts") + "parts = true\n")
    ran = fitplug("run", spec, "--key", "b")
    assert ran.code == 0, ran
    assert not list((root / "data" / "keys").iterdir())
    assert not keys.exists() or not list(keys.iterdir())
