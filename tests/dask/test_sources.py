"""Which files a source means, what hive folders say, and what a bad file or source gets."""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError, DomainError, TablesError
from fitplug_dask import request as requests
from fitplug_dask.files import take_snapshot
from fitplug_dask.kernel import Fault, Job, count_partition, reading
from fitplug_dask.kernel.partitions import FileSlice, Partition
from fitplug_dask.sources import find_files
from tests.helpers.sources import count_rows

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 9)})
BOTH = (DOMAIN, [("sex", "age")])
NARROW = pa.dictionary(pa.int8(), pa.string())


def write(path: Path, rows: int = 4, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    held = {"sex": ["1", "2"] * (rows // 2), "age": list(range(rows)), **columns}
    kept = {n: v for n, v in held.items() if v is not None}
    pq.write_table(pa.table(kept), path, row_group_size=2, compression="none")
    return path


def total(source: Any, wanted: Any = BOTH) -> int:
    return int(next(iter(fpd.count(source, wanted).values())).sum())


def fails(source: Any, wanted: Any = BOTH, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        count_rows(source, wanted, **options)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    message = str(caught.value)
    assert "\n" not in message
    return message


# Sources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "data" / "a.parquet")
    write(tmp_path / "data" / "deep" / "er" / "b.parq")
    write(tmp_path / "data" / "part.parquet" / "part-0.parquet")
    for passed_over in ("_metadata", ".hidden.parquet", "_temporary/c.parquet", "notes.txt"):
        path = tmp_path / "data" / passed_over
        path.parent.mkdir(exist_ok=True)
        path.write_text("not Parquet")
    return tmp_path / "data"


def test_a_folder_is_read_at_any_depth(folder: Path) -> None:
    assert total(folder) == 12
    assert total(str(folder) + "/") == 12


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [("*", 12), ("**", 12), ("*.parq*", 8), ("**/*.parq*", 12), ("d*p/", 4), ("[a]*.parquet", 4)],
)
def test_globs_match_files_and_folders(folder: Path, pattern: str, rows: int) -> None:
    assert total(f"{folder}/{pattern}") == rows


def test_lists_and_relative_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert total([Path("a.parquet"), "./deep"]) == 8
    assert total(".") == 12


def test_a_path_with_glob_characters_that_exists_is_that_path(tmp_path: Path) -> None:
    assert total(write(tmp_path / "a[1]*.parquet")) == 4


def test_a_named_file_needs_no_suffix(tmp_path: Path) -> None:
    assert total(write(tmp_path / "_people")) == 4


def test_links_that_lead_back_up_end(folder: Path) -> None:
    (folder / "deep" / "up").symlink_to(folder)
    assert total(folder) == 12


def test_a_file_met_twice_is_refused(folder: Path) -> None:
    assert "is the same file as" in fails([folder, folder / "a.parquet"])
    (folder / "again.parquet").symlink_to(folder / "a.parquet")
    assert "Name every file once" in fails(folder)


def test_a_hard_link_is_the_file_itself(folder: Path) -> None:
    """Two names in one folder, in other folders and in lists; nobody counts its rows twice."""
    again = folder / "deep" / "again.parquet"
    again.hardlink_to(folder / "a.parquet")
    for source in (folder, f"{folder}/**", [folder / "a.parquet", again]):
        message = fails(source)
        assert str(folder / "a.parquet") in message
        assert str(again) in message
        assert "Name every file once" in message
        with pytest.raises(DataError, match="Name every file once"):
            fpd.preview(source, BOTH)
    assert total([again, folder / "part.parquet"]) == 8
    again.unlink()
    again.write_bytes((folder / "a.parquet").read_bytes())  # a copy may hold other people
    assert total(folder) == 16


def test_sources_that_mean_no_file(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (
        fails(tmp_path / "none.parquet")
        == f"{tmp_path}/none.parquet does not exist. Check the path."
    )
    assert "matches no .parquet, .parq, " in fails(f"{tmp_path}/*.parquet")
    assert "or .csv.gz file. Check the path" in fails(tmp_path / "empty")
    assert "list of data files is empty" in fails([])
    assert "not int" in fails(3)


def test_a_delta_table_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    (tmp_path / "_delta_log").mkdir()
    assert "Delta table" in fails(tmp_path)


# Hive folders


def hive(root: Path, key: str, values: list[str]) -> Path:
    for i, value in enumerate(values):
        write(root / f"{key}={value}" / "a.parquet", rows=2 * (i + 1))
    return root


def test_hive_values_are_typed_by_the_domain_alone(tmp_path: Path) -> None:
    root = hive(tmp_path / "d", "state", ["01", "1", "09"])
    with duckdb.connect() as connection:
        expected = connection.sql(
            f"SELECT state, count(*) FROM read_parquet('{root}/*/*.parquet', "
            "hive_partitioning=true, hive_types={'state': VARCHAR}) GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    strings = fp.Domain({"state": ["01", "09", "1"]})
    counted = fpd.count(root, (strings, [("state",)]))["state"]
    assert list(zip(["01", "09", "1"], counted.tolist(), strict=True)) == expected
    for attribute, cells in [
        (fp.Integers(0, 9), [0, 6, 0, 0, 0, 0, 0, 0, 0, 6]),
        (fp.Categories([9, 1]), [6, 6]),
        (fp.Bins([0, 1, 5]), [0, 6]),
    ]:
        domain = fp.Domain({"state": attribute})
        np.testing.assert_array_equal(fpd.count(root, (domain, [("state",)]))["state"], cells)


def test_hive_null_and_percent_encoding(tmp_path: Path) -> None:
    hive(tmp_path, "a%20b", ["__HIVE_DEFAULT_PARTITION__", "x%2Fy", "z"])
    domain = fp.Domain({"a b": fp.Categories(["x/y"], other="rest"), "sex": ["1", "2"]})
    counted = fpd.count(tmp_path, (domain, [("a b", "sex")]))["a b", "sex"]
    np.testing.assert_array_equal(counted, [[2, 2], [4, 4]])
    bare = fp.Domain({"a b": ["x/y"]})
    assert fpd.count(tmp_path, (bare, [("a b",), ()]))[()] == 4


def test_a_hive_value_outside_the_domain_leaves_every_table(tmp_path: Path) -> None:
    hive(tmp_path, "state", ["01", "03", "02"])
    domain = fp.Domain({"sex": ["1", "2"], "state": ["01", "02"]})
    counted = fpd.count(tmp_path, (domain, [("sex", "state"), ("sex",), ()]))
    np.testing.assert_array_equal(counted["sex", "state"], [[1, 3], [1, 3]])
    np.testing.assert_array_equal(counted["sex"], [4, 4])
    np.testing.assert_array_equal(fpd.count(tmp_path, (domain, [("sex",)]))["sex"], [6, 6])


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": "weight"},
        {"where": {"sex": "1"}},
        {"person": "id", "person_key": bytes(16), "unit": fp.AddRemove(2)},
    ],
)
def test_small_files_of_many_folders_are_counted_like_one_file(
    tmp_path: Path, options: dict[str, Any], sharded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, n = np.random.default_rng(7), 900
    rows = pa.table(
        {
            "state": rng.choice(["01", "02", "03", "04"], n),
            "pay": rng.integers(0, 4, n),
            "sex": pa.array(rng.choice(["1", "2", "3"], n), mask=rng.random(n) < 0.3),
            "weight": rng.integers(0, 5, n),
            "id": rng.integers(0, 300, n),
        }
    )
    pq.write_table(rows, tmp_path / "one.parquet")
    folders = {"partitioning": ["state", "pay"], "partitioning_flavor": "hive"}
    ds.write_dataset(rows, tmp_path / "many", format="parquet", **folders)
    if sharded and "person" not in options:
        monkeypatch.setattr(requests, "_TABLES_SHARE", 1e-9)
        monkeypatch.setattr(requests, "_TABLE_BYTES", 0)
    domain = fp.Domain({"state": ["01", "02", "03"], "pay": fp.Measure(0, 2), "sex": ["1", "2"]})
    tables = [("state", "sex"), ("state", "pay"), ("pay", "sex"), ("sex",), ()]
    many = count_rows(tmp_path / "many", (domain, tables), **options)
    one = count_rows(tmp_path / "one.parquet", (domain, tables), **options)
    for names in tables:
        np.testing.assert_array_equal(many[names], one[names])
    assert many[()] > 0


def test_hive_booleans_numbers_and_huge_integers(tmp_path: Path) -> None:
    flags = hive(tmp_path / "f", "flag", ["true", "False"])
    domain = fp.Domain({"flag": [True, False]})
    np.testing.assert_array_equal(fpd.count(flags, (domain, [("flag",)]))["flag"], [2, 4])
    sizes = hive(tmp_path / "s", "size", ["-1.5", "2e0", "NaN", "1e999", "7" * 30])
    bins = fp.Domain({"size": fp.Bins([-2, 0, 3])})
    np.testing.assert_array_equal(fpd.count(sizes, (bins, [("size",)]))["size"], [2, 4])
    huge = hive(tmp_path / "h", "n", ["7" * 30, "-3"])
    for attribute in (fp.Integers(-3, 3), fp.Categories([-3])):
        counted = fpd.count(huge, (fp.Domain({"n": attribute}), [("n",)]))["n"]
        assert counted[0] == counted.sum() == 4


@pytest.mark.parametrize("source", ["d", "d/state=*", "d/state=*/", "d/state=*/*.parquet", "d/**"])
def test_hive_keys_lie_anywhere_on_the_path(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hive(tmp_path / "d", "state", ["01", "02"])
    monkeypatch.chdir(tmp_path)
    domain = fp.Domain({"sex": ["1", "2"], "state": ["01", "02"]})
    counted = fpd.count(source, (domain, [("sex", "state"), ("state",)]))
    np.testing.assert_array_equal(counted["sex", "state"], [[1, 2], [1, 2]])


@pytest.mark.parametrize("value", ["1.5", "x", "", "1_0", "1 0", "٣"])
def test_a_folder_that_spells_no_integer(tmp_path: Path, value: str) -> None:
    hive(tmp_path, "state", ["1", value])
    message = fails(tmp_path, (fp.Domain({"state": fp.Integers(0, 9)}), [("state",)]))
    assert message.startswith(f"folder {tmp_path}/state={value}: ")
    assert "expects integers for 'state'" in message


@pytest.mark.parametrize("value", ["7", "07", "+7", " 7", "7.0"])
def test_a_folder_spells_an_integer_as_a_csv_file_does(tmp_path: Path, value: str) -> None:
    hive(tmp_path, "state", [value])
    counted = fpd.count(tmp_path, (fp.Domain({"state": fp.Integers(0, 9)}), [("state",)]))
    assert np.flatnonzero(counted["state"]).tolist() == [7]


def test_folders_that_spell_no_number_or_boolean(tmp_path: Path) -> None:
    hive(tmp_path, "x", ["yes"])
    assert "numbers" in fails(tmp_path, (fp.Domain({"x": fp.Bins([0, 1])}), [("x",)]))
    assert "booleans" in fails(tmp_path, (fp.Domain({"x": [True]}), [("x",)]))


def test_a_key_that_is_also_a_column_or_set_twice(tmp_path: Path) -> None:
    write(tmp_path / "a" / "sex=1" / "a.parquet")
    assert total(tmp_path / "a") == 2  # the rows of the other sex contradict their folder
    assert total(tmp_path / "a", (DOMAIN, [("age",)])) == 4
    write(tmp_path / "b" / "sex=1" / "sex=2" / "a.parquet", sex=None)
    assert "two folders that set 'sex'" in fails(tmp_path / "b")


# Schemas


def test_a_column_missing_in_one_of_many_files(tmp_path: Path) -> None:
    for i in range(40):
        write(tmp_path / f"{i:02}.parquet")
    pq.write_table(pa.table({"sex": ["1"], "Age": [1]}), tmp_path / "27.parquet")
    expected = f"{tmp_path}/27.parquet has no column 'age'. Did you mean 'Age'?"
    assert fails(tmp_path) == expected


def test_a_doubled_column(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["1"])] * 2, names=["sex", "sex"])
    pq.write_table(table, tmp_path / "a.parquet")
    assert "has two columns 'sex'" in fails(tmp_path, (DOMAIN, [("sex",)]))


TYPES = {
    "strings": fp.Categories(["1"]),
    "integers": fp.Integers(0, 9),
    "booleans": fp.Categories([True]),
    "numbers": fp.Bins([0, 2]),
}
COLUMNS = {
    "string": (pa.array(["1"]), {"strings"}),
    "int64": (pa.array([1]), {"integers", "numbers"}),
    "uint8": (pa.array([1], pa.uint8()), {"integers", "numbers"}),
    "double": (pa.array([1.0]), {"integers", "numbers"}),
    "bool": (pa.array([True]), {"booleans"}),
    "null": (pa.nulls(1), {"strings", "integers", "booleans", "numbers"}),
    "date32": (pa.array([1], pa.date32()), set()),
    "timestamp": (pa.array([1], pa.timestamp("us")), set()),
    "decimal128": (pa.array([1]).cast(pa.decimal128(20, 0)), {"integers", "numbers"}),
    "decimal256": (pa.array([1]).cast(pa.decimal256(20, 0)), set()),
    "list": (pa.array([["1"]]), set()),
    "struct": (pa.array([{"a": 1}]), set()),
    "fixed_size_binary": (pa.array([b"1"], pa.binary(1)), set()),
    "dictionary<values=string": (pa.array(["1"]).dictionary_encode(), {"strings"}),
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("wanted", TYPES)
def test_every_type_against_every_attribute(tmp_path: Path, column: str, wanted: str) -> None:
    array, accepted_by = COLUMNS[column]
    pq.write_table(pa.table({"x": array}), tmp_path / "a.parquet")
    task = (fp.Domain({"x": TYPES[wanted]}), [("x",)])
    if wanted in accepted_by:
        assert total(tmp_path, task) == (column != "null")
    else:
        message = fails(tmp_path, task)
        assert message.startswith(f"{tmp_path}/a.parquet: column 'x' has the type {column}")
        assert f"but the domain expects {wanted}. Convert the column" in message


# Damage


def flip(path: Path, at: int, length: int = 4) -> None:
    content = bytearray(path.read_bytes())
    for i in range(at, at + length):
        content[i] ^= 0xFF
    path.write_bytes(bytes(content))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda p: p.write_bytes(b""), "is empty (0 bytes)"),
    "text": (lambda p: p.write_text("sex,age\n1,2\n" * 9), "is not a Parquet file"),
    "short": (lambda p: p.write_bytes(b"PAR1"), "has a damaged footer"),
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:-9]), "is truncated"),
    "footer": (lambda p: flip(p, p.stat().st_size - 60, 40), "has a damaged footer"),
    "encrypted": (
        lambda p: p.write_bytes(b"PARE" + p.read_bytes()[4:-4] + b"PARE"),
        "is encrypted",
    ),
    "page": (lambda p: flip(p, 4, 12), "row group 0 cannot be read, so the file is damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / f"{name}.parquet")
    spoil, expected = DAMAGES[damage]
    spoil(tmp_path / "b.parquet")
    message = fails(tmp_path)
    assert message.startswith(f"{tmp_path}/b.parquet")
    assert expected in message


def test_a_flipped_byte_is_caught_where_pages_carry_checksums(tmp_path: Path) -> None:
    table = pa.table({"sex": ["1", "2"] * 500})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    flip(path, path.read_bytes().index(b"1\x01\x00\x00\x002"), 1)
    assert "row group 0 cannot be read" in fails(tmp_path, (DOMAIN, [("sex",)]))


def test_any_flipped_byte_of_pages_with_checksums_is_refused_or_tells_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.parquet"
    rng = np.random.default_rng(1)
    sexes = [[None, "1", "2", "3"][i] for i in rng.integers(0, 4, 60)]
    table = pa.table({"sex": sexes, "age": rng.integers(-1, 12, 60)})
    pq.write_table(table, path, write_page_checksum=True, row_group_size=30)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    exact = fpd.count(path, BOTH)["sex", "age"]
    refused = []
    for at in range(4, footer, 4):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
        try:
            counted = fpd.count(path, BOTH)["sex", "age"]
        except DataError as error:
            refused.append(str(error))
        else:  # a byte of a header that says nothing of the values
            np.testing.assert_array_equal(counted, exact)
    assert len(refused) > 0.8 * footer / 4
    assert all(message.startswith(f"{path}: row group") for message in refused)


def test_many_small_files(tmp_path: Path) -> None:
    for i in range(300):
        rows = pa.table({"sex": ["1", "2"][: i % 3], "age": [i % 10, 3][: i % 3]})
        pq.write_table(rows, tmp_path / f"{i}.parquet")
    assert total(tmp_path) == 300
    assert fpd.count(tmp_path, BOTH)["sex", "age"].sum(axis=1).tolist() == [200, 100]


def test_small_files_of_other_dictionaries(tmp_path: Path) -> None:
    """Together they have more entries than the indices of one of them could number."""
    codes = [f"{i:03}" for i in range(400)]
    for i in range(4):
        column = pa.array([*codes[100 * i : 100 * i + 100], None])
        table = pa.table({"code": column.dictionary_encode().cast(NARROW)})
        pq.write_table(table, tmp_path / f"{i}.parquet")
        (tmp_path / "arrow").mkdir(exist_ok=True)
        pf.write_feather(table, tmp_path / "arrow" / f"{i}.arrow")
    wanted = (fp.Domain({"code": codes}), [("code",)])
    assert fpd.count(str(tmp_path / "*.parquet"), wanted)["code"].tolist() == [1] * 400
    assert fpd.count(tmp_path / "arrow", wanted)["code"].tolist() == [1] * 400


def at_start(act: Callable[[], object]) -> Callable[[int, int], None]:
    def told(done: int, total: int) -> None:
        if not done:
            act()

    return told


def test_a_file_that_changes_during_the_run(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    longer = write(tmp_path / "other" / "b.parquet", rows=10)
    message = fails(path, progress=at_start(lambda: shutil.copy(longer, path)))
    assert message == f"{path} changed during the count. Count again when nothing writes to it."
    touched = fails(path, (DOMAIN, [("sex",)]), progress=at_start(lambda: os.utime(path, (1, 1))))
    assert "changed" in touched
    assert "disappeared" in fails(path, progress=at_start(path.unlink))


def test_a_file_replaced_by_one_of_the_same_size_and_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", rows=10)
    other = write(tmp_path / "other" / "b.parquet", rows=10, sex=["2"] * 10)
    state = path.stat()

    def swap() -> None:
        other.write_bytes(other.read_bytes().ljust(state.st_size, b"\0")[: state.st_size])
        os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
        other.replace(path)

    message = fails(path, progress=at_start(swap))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    assert message.startswith(f"{path} changed during the count")


def test_a_file_that_changes_while_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.parquet", rows=2)

    def read(*args: Any) -> Any:
        fault = read_row_groups(*args)
        os.utime(path, (1, 1))
        return fault

    read_row_groups = reading._read_row_groups
    monkeypatch.setattr(reading, "_read_row_groups", read)
    assert "changed during the count" in fails(path)


def test_a_hive_key_alone_still_checks_that_the_file_is_there(tmp_path: Path) -> None:
    root = hive(tmp_path, "state", ["01"])
    wanted = (fp.Domain({"state": ["01"]}), [("state",)])
    gone = at_start((root / "state=01" / "a.parquet").unlink)
    assert "disappeared" in fails(tmp_path, wanted, progress=gone)


def test_rows_that_the_footer_does_not_count(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    job = Job({"sex": DOMAIN["sex"]}, (("sex",),))
    (file,) = take_snapshot(find_files(fp.Source(path)), job.attributes)
    wrong = replace(file, rows=(2, 3), footer=None)
    fault = count_partition(job, Partition((FileSlice(wrong, (0, 1)),)))
    assert isinstance(fault, Fault)
    assert re.search(
        "row group 1 does not hold the number of rows that the footer gives", fault.message
    )


def test_a_file_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        write(folder / "a.parquet").chmod(0)
        root = os.geteuid() == 0
        if root:  # who may read everything, so become nobody for a while
            os.seteuid(65534)
        try:
            assert "cannot be read: Permission denied" in fails(folder)
        finally:
            if root:
                os.seteuid(0)


# What is wanted


def test_what_cannot_be_wanted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    with pytest.raises(DomainError, match="Did you mean 'sex'"):
        fpd.count(path, (DOMAIN, [("sexx",)]))
    with pytest.raises(TablesError, match="names an attribute twice"):
        fpd.count(path, (DOMAIN, [("sex", "sex")]))
    with pytest.raises(TablesError, match="no tables are given"):
        fpd.count(path, (DOMAIN, []))


def test_tables_too_large_for_memory_are_refused_before_any_file_is_touched() -> None:
    domain = fp.Domain({n: fp.Integers(0, 9999) for n in "abcde"})
    with pytest.raises(TablesError, match=r"1,000,000,000,000 cells.*GiB.*coarser"):
        fpd.count("does/not/exist", (domain, [("a", "b", "c")]))
    with pytest.raises(TablesError, match="coarser"):
        fpd.count("does/not/exist", (domain, [tuple("abcde")]))


def test_what_is_no_client_or_progress() -> None:
    with pytest.raises(TypeError, match="client must be"):
        fpd.count("data", BOTH, client="tcp://host:8786")  # type: ignore[arg-type]
    waiting = SimpleNamespace(submit=None, nthreads=None, asynchronous=True)
    with pytest.raises(TypeError, match="synchronous"):
        fpd.count("data", BOTH, client=waiting)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="progress must be"):
        fpd.count("data", BOTH, progress="yes")  # type: ignore[arg-type]


# Names that hold rows and are not read


@pytest.mark.parametrize(
    "name",
    ["a.pq", "b.PARQUET", "C.Csv", "part-00000", "d.orc", "e.jsonl", "f.parquet.gz", "g.tsv"],
)
def test_a_stray_suffix_is_named_and_not_passed_over(tmp_path: Path, name: str) -> None:
    write(tmp_path / "x" / "a.parquet")
    shutil.copy(tmp_path / "x" / "a.parquet", tmp_path / "x" / name)
    for source in (tmp_path, tmp_path / "x", f"{tmp_path}/*", f"{tmp_path}/x/*", f"{tmp_path}/**"):
        assert f"x/{name} must end in one of" in fails(source)
    assert total(f"{tmp_path}/x/*.parquet") == 4


@pytest.mark.parametrize(
    ("name", "pattern"), [("a.pq", "*.pq"), ("a.PARQUET", "*.PARQUET"), ("part-00000", "part-*")]
)
def test_a_glob_may_ask_for_any_suffix(tmp_path: Path, name: str, pattern: str) -> None:
    shutil.copy(write(tmp_path / "y.parquet"), tmp_path / name)
    assert total(f"{tmp_path}/{pattern}") == 4
    assert total(tmp_path / name) == 4


@pytest.mark.parametrize(
    "name", ["README", "notes.txt", "_SUCCESS", ".a.pq", "schema.md", "LICENSE"]
)
def test_names_that_hold_no_rows_are_passed_over(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.parquet")
    (tmp_path / name).write_text("nothing")
    assert total(tmp_path) == 4


@pytest.mark.parametrize("checksums", [False, True])
def test_pages_without_checksums_are_told_once(
    tmp_path: Path, checksums: bool, caplog: pytest.LogCaptureFixture
) -> None:
    table = pa.table({"sex": ["1", "2"] * 50, "age": [3, 4] * 50})
    for number in range(3):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path, write_page_checksum=checksums, row_group_size=10)
    with caplog.at_level("INFO", "fitplug_dask"):
        assert total(tmp_path) == 300
    said = [record.getMessage() for record in caplog.records if "checksum" in record.getMessage()]
    assert said == [] if checksums else [s[:30] for s in said] == ["3 of 3 inspected Parquet files"]
    assert fpd.preview(tmp_path, BOTH).without_checksums == (0 if checksums else 3)


def test_a_summary_of_other_files_is_refused(tmp_path: Path) -> None:
    """Its footer has the rows of the other files, which would be counted twice."""
    pq.write_table(pa.table({"y": [1] * 5}), tmp_path / "a.parquet")
    with pq.ParquetFile(tmp_path / "a.parquet") as parquet:
        summary = parquet.metadata
    summary.set_file_path("a.parquet")
    summary.write_metadata_file(tmp_path / "_metadata")
    wanted = (fp.Domain({"y": fp.Integers(0, 2)}), [()])
    assert fpd.count(tmp_path, wanted)[()] == 5
    summary.write_metadata_file(tmp_path / "summary.parquet")
    with pytest.raises(DataError, match=r"summary\.parquet is only a summary of other files"):
        fpd.count(tmp_path, wanted)


class _Keys(pe.KmsClient):
    """Keys that are wrapped by writing them down: the files need only be encrypted."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, master: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, master: str) -> bytes:
        return base64.b64decode(wrapped)


@pytest.mark.parametrize("in_store", [False, True])
def test_encrypted_columns_are_refused_where_they_are_counted(
    tmp_path: Path, in_store: bool
) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"sex": ["1", "2"] * 50, "age": [3, 4] * 50})
    encryption = pe.CryptoFactory(_Keys).file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration("footer", column_keys={"key": ["age"]}, plaintext_footer=True),
    )
    with pq.ParquetWriter(path, table.schema, encryption_properties=encryption) as writer:
        writer.write_table(table)
    source = str(path)
    if in_store:
        memory = fsspec.filesystem("memory")
        memory.pipe("/encrypted/a.parquet", path.read_bytes())
        source = "memory://encrypted/a.parquet"
    assert total(source, (DOMAIN, [("sex",)])) == 100
    message = fails(source, (DOMAIN, [("age",)]))
    assert message.endswith(
        "has encrypted columns, and fitplug cannot decrypt Parquet. Store it unencrypted."
    )
