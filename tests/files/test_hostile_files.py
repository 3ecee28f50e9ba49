"""No file ends the process: thousands of damaged ones, each batch in a process that may die."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
import fitplug_opendp as fpo
from fitplug.errors import DataError, InputError
from fitplug.files import thrift
from fitplug.files.parquet_footer import read_footer
from fitplug.release.release import Release
from tests.helpers.hostile_files import WANTED, each_byte, mutated, people, write_shapes
from tests.helpers.places import ROOT


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "shapes"
    write_shapes(folder)
    return folder


def survives(folder: Path, first: object, last: object = "") -> None:
    command = [
        sys.executable,
        "-m",
        "tests.helpers.hostile_files",
        str(folder),
        str(first),
        str(last),
    ]
    done = subprocess.run(
        [*command, str(folder), str(first), str(last)],
        cwd=ROOT,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines() or [""]
    assert (done.returncode, lines[-1]) == (0, "survived"), f"{lines[-1]}: {done.stderr[-2000:]}"


def test_files_that_are_whole_are_counted(shapes: Path) -> None:
    for path in shapes.iterdir():
        expected = 40 if path.name == "nulls.parquet" else people().num_rows
        assert fpd.count(path, WANTED)["sex", "age"].sum() == expected, path


@pytest.mark.long
def test_every_byte_of_a_footer(shapes: Path, tmp_path: Path) -> None:
    """Lengths of histograms are among them, on which Arrow ends the process."""
    shutil.copy(shapes / "plain.parquet", tmp_path)
    survives(tmp_path, "bytes")


@pytest.mark.slow
def test_random_damage_in_every_format(shapes: Path) -> None:
    survives(shapes, 0, 40)


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_much_random_damage(shapes: Path, part: int) -> None:
    survives(shapes, 1000 * (part + 1), 1000 * (part + 1) + 300)


@pytest.mark.long
@pytest.mark.parametrize("name", ["groups", "bare", "indexed", "nested", "typed", "nulls", "int96"])
def test_every_byte_of_other_footers(shapes: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(shapes / f"{name}.parquet", tmp_path)
    survives(tmp_path, "bytes")


def test_arrow_sees_the_same_rows_by_the_footer_that_is_written_anew(shapes: Path) -> None:
    for path in shapes.glob("*.parquet"):
        with path.open("rb") as file:
            footer = read_footer(file)
        ours = pq.ParquetFile(path, metadata=pq.read_metadata(pa.BufferReader(footer.for_arrow)))
        theirs = pq.ParquetFile(path)
        assert ours.schema_arrow.equals(theirs.schema_arrow)
        assert ours.read().equals(theirs.read())
        told = theirs.metadata
        assert footer.rows == tuple(told.row_group(g).num_rows for g in range(told.num_row_groups))
        assert [c.path for c in footer.columns] == [
            told.schema.column(i).path for i in range(told.num_columns)
        ]
        for g, chunks in enumerate(footer.chunks):
            for i, chunk in enumerate(chunks):
                column = told.row_group(g).column(i)
                assert chunk.bytes == column.total_compressed_size
                assert chunk.plain_bytes == column.total_uncompressed_size
                assert chunk.values == column.num_values
                assert chunk.dictionary == column.has_dictionary_page
        assert not ours.metadata.row_group(0).column(0).is_stats_set


def test_footers_that_ask_for_memory_or_depth_are_refused_at_once(tmp_path: Path) -> None:
    """Lists of 2^60 elements, a schema of 10,000 levels, structs within structs without an end."""
    path = tmp_path / "a.parquet"
    pq.write_table(people(), path)
    content = path.read_bytes()
    huge = b"\xff" * 8 + b"\x0f"
    deep = b"\x15\x02" + b"\x19\xfc\x90\x4e" + b"\x48\x01a\x15\x02\x00" * 10_000
    for footer in (
        b"\x15\x02\x19\xfc" + huge,
        b"\x15\x02\x29\xf5" + huge,
        b"\x15\x02\x1b" + huge + b"\x5c",
        b"\x15\x02" + b"\x9c" * 100_000,
        b"\x15\x02" + b"\x99\x1c" * 100_000,
        b"\x15\x02" + b"\xf5\xff\x7f" * 100_000,
        deep,
    ):
        tail = len(footer).to_bytes(4, "little") + b"PAR1"
        path.write_bytes(content[:-8] + footer + tail)
        with pytest.raises(DataError, match="has a damaged footer"):
            fpd.count(path, WANTED)


def test_a_page_that_claims_two_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    """Arrow fills with zeros what a page claims and does not hold."""
    path = tmp_path / "a.parquet"
    pq.write_table(people(), path, compression="none")
    content = path.read_bytes()
    with path.open("rb") as file:
        ((_, chunk),) = read_footer(file).chunks
    page, end = thrift.read_struct(content, chunk.start, {5: {}, 7: {}})
    size = thrift.encode_integer(page[3])
    head = content[chunk.start : end].replace(
        b"\x15" + size, b"\x15" + thrift.encode_integer(2**31 - 13)
    )
    path.write_bytes(content[: chunk.start] + head + content[end:])
    with pytest.raises(DataError, match="row group 0 cannot be read"):
        fpd.count(path, WANTED)
    assert pa.default_memory_pool().max_memory() < 2**30


def test_thrift_reads_what_it_writes_and_passes_over_all_else() -> None:
    inner = thrift.encode_struct([(1, thrift.I64, thrift.encode_integer(-(2**62)))])
    passed_over = [
        (2, thrift.TRUE, b""),
        (3, thrift.BYTE, b"\x7f"),
        (4, thrift.DOUBLE, bytes(8)),
        (5, thrift.MAP, b"\x01\x5c\x02" + inner),
        (6, thrift.MAP, b"\x00"),
        (7, thrift.SET, thrift.encode_list(thrift.BINARY, [thrift.encode_binary(b"x" * 200)] * 20)),
        (8, thrift.LIST, thrift.encode_list(thrift.TRUE, [b"\x01", b"\x02"])),
    ]
    data = thrift.encode_struct(
        [
            (1, thrift.STRUCT, inner),
            *passed_over,
            (9, thrift.LIST, thrift.encode_list(thrift.STRUCT, [inner] * 15)),
            (10, thrift.STRUCT, inner),
            (25, thrift.I32, thrift.encode_integer(2**31 - 1)),
        ]
    )
    fields, end = thrift.read_struct(data + b"beyond", 0, {1: {}, 9: {}, 10: None})
    assert end == len(data)
    expected = {1: -(2**62)}
    assert fields == {1: expected, 2: True, 9: [expected] * 15, 10: inner, 25: 2**31 - 1}
    for cut in range(len(data)):
        with pytest.raises(IndexError):
            thrift.read_struct(data[:cut], 0, {1: {}, 9: {}, 10: None})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = fp.design(fp.Workload(fp.Domain({"sex": ["1", "2"]}), [fp.marginal("sex", std=2.0)]))
    tables = fp.Tables(plan.domain, {("sex",): [3, 4]})
    place = tmp_path_factory.mktemp("release") / "r"
    fpo.release(plan, tables).write(place)
    return place


@pytest.mark.long
def test_a_damaged_table_of_a_release(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "r"
    shutil.copytree(folder, place)
    (table,) = place.glob("*.parquet")
    content = table.read_bytes()
    made = [damaged for _, damaged in each_byte(content)][::19]
    made += [mutated(content, random.Random(i), parquet=True) for i in range(80)]
    refused = 0
    for damaged in made:
        table.write_bytes(damaged)
        try:
            Release.read(place)
        except InputError:
            refused += 1
    assert refused > len(made) / 3
