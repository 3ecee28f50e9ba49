"""What the command line counts: dry runs, URLs and their credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from fitplug_cli.render import read_counts
from fitplug_dask.kernel import reading
from tests.helpers.command_line import NUMBER, SPEC, WORD, fitplug, make, rows, tree, truth

SECRET = "CANARY7351"


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_a_dry_run_reads_no_row_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make(tmp_path)
    monkeypatch.setattr(reading, "read_partition", None)
    before = tree(tmp_path)
    ran = fitplug("count", spec, "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    lines = dict(line.split(None, 1) for line in ran.out.splitlines())
    assert lines["files"].strip() == "2 Parquet"
    assert "about 800 (from the files' footers)" in ran.out
    assert " on " in lines["tasks"]
    assert lines["memory"].startswith("about ")
    assert tree(tmp_path) == before


def test_a_dry_run_of_csv_knows_no_rows(tmp_path: Path) -> None:
    spec = make(tmp_path, SPEC.replace('"people/"', '"people/*.csv"'))
    pa.csv.write_csv(pa.table(rows(0)), tmp_path / "people" / "a.csv")
    ran = fitplug("count", spec, "--dry-run")
    assert ran.code == 0
    assert "1 CSV" in ran.out
    assert "unknown before reading" in ran.out


def test_a_dry_run_finds_what_is_wrong(tmp_path: Path) -> None:
    spec = make(tmp_path)
    path = tmp_path / "people" / "b.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    ran = fitplug("count", spec, "--dry-run")
    assert ran.code == 2
    assert "b.parquet is truncated" in ran.err


def test_counts_of_a_store_and_of_csv_equal_those_of_a_folder(tmp_path: Path, memory: Any) -> None:
    data = 'path = "memory://people/*.parquet"\nstorage_options = { use_listings_cache = false }'
    spec = make(tmp_path, SPEC.replace('path = "people/"', data, 1))
    for part, name in enumerate("ab"):
        with memory.open(f"/people/{name}.parquet", "wb") as file:
            pq.write_table(pa.table(rows(part)), file)
        pa.csv.write_csv(pa.table(rows(part)), tmp_path / f"{name}.csv")
    assert fitplug("count", spec).code == 0
    of_csv = tmp_path / "csv.toml"
    of_csv.write_text(SPEC.replace('path = "people/"', f'path = "file://{tmp_path}/*.csv"', 1))
    assert fitplug("count", of_csv).code == 0
    for counts in ("spec.counts.npz", "csv.counts.npz"):
        tables = read_counts(tmp_path / counts)
        for table in tables:
            np.testing.assert_array_equal(tables[table], truth().marginal(table))


@pytest.mark.parametrize("command", ["run", "count"])
def test_credentials_show_in_no_error(tmp_path: Path, command: str) -> None:
    urls = [f"s3://me:{SECRET}@bucket/people", f"memory://none?key={SECRET}"]
    for url in urls:
        data = f'path = "{url}"\nstorage_options = {{ secret = "{SECRET}" }}'
        (tmp_path / "spec.toml").write_text(SPEC.replace('path = "people/"', data, 1))
        ran = fitplug(command, tmp_path / "spec.toml")
        assert ran.code == 2
        assert url.partition("://")[0] in ran.err
        assert SECRET not in ran.out + ran.err
    assert not (tmp_path / "budget.db").exists()
    data = f'path = "s3://bucket"\nstorage_options = "{SECRET}"'
    (tmp_path / "spec.toml").write_text(SPEC.replace('path = "people/"', data, 1))
    ran = fitplug(command, tmp_path / "spec.toml")
    assert ran.code == 2
    assert "[data] storage_options" in ran.err
    assert SECRET not in ran.err


def test_rows_of_a_bad_csv_file_never_show(tmp_path: Path) -> None:
    spec = make(tmp_path, SPEC.replace('"people/"', '"people/*.csv"'))
    names = "SEX,AGE,INC,NOTE\n"
    for text in (f"{WORD},{NUMBER}\n", f'{names}1,1,1,"{WORD}\n', f"{names}{WORD},{NUMBER}\n"):
        (tmp_path / "people" / "a.csv").write_text(text)
        ran = fitplug("run", spec)
        assert ran.code == 2
        assert "a.csv" in ran.err
        assert WORD not in ran.out + ran.err
        assert str(NUMBER) not in ran.out + ran.err
    assert not (tmp_path / "release").exists()
    assert not (tmp_path / "budget.db").exists()


def test_tables_of_lakes_and_columns_that_files_lack(tmp_path: Path) -> None:
    spec = make(tmp_path)
    lake, first, second = tmp_path / "lake", pa.table(rows(0)), pa.table(rows(1))
    write_deltalake(lake, first)
    write_deltalake(lake, second, mode="append")
    deltalake.DeltaTable(lake).delete("SEX = '1'")
    for version in (0, 2):
        path = f'"lake/"\ntable = "delta"\nversion = {version}'
        spec.write_text(SPEC.replace('"people/"', path))
        counts = tmp_path / f"{version}.counts.npz"
        ran = fitplug("count", spec, "--output", counts)
        assert (ran.code, ran.err) == (0, "")
        counted = read_counts(counts).marginal(("SEX",))
        assert (counted[0] == 0) == (version == 2)
        assert counted[1] > 0
    spec.write_text(SPEC.replace('"people/"', '"people/"\nversion = 3'))
    ran = fitplug("count", spec, "--dry-run")
    assert ran.code == 2
    assert "[data] 'version' needs 'table' = \"delta\"" in ran.err
    pq.write_table(first.drop_columns(["SEX"]), tmp_path / "people" / "c.parquet")
    spec.write_text(SPEC)
    assert "has no column 'SEX'" in fitplug("count", spec, "--dry-run").err
    spec.write_text(SPEC.replace('"people/"', '"people/"\nmissing = { SEX = "2" }'))
    assert fitplug("count", spec, "--dry-run").code == 0
