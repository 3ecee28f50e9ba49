"""No file ends the process: thousands of damaged ones, each batch in a process that may die."""

from __future__ import annotations

import ast
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError, InputError
from fitplug.releases.release import Release
from tests.helpers.hostile_files import WANTED, each_byte, mutated, people, varint, write_shapes
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


def test_no_call_that_may_end_the_process_is_made() -> None:
    """Arrow may end it where a column of a row group's metadata is asked for: only rows are."""
    counted = 0
    for root in (ROOT / "fitplug", ROOT / "adapters"):
        for path in root.rglob("*.py"):
            text = path.read_text()
            if "to_dict" not in text and "row_group" not in text:
                continue
            nodes = list(ast.walk(ast.parse(text)))
            of_rows = {
                node.value
                for node in nodes
                if isinstance(node, ast.Attribute) and node.attr == "num_rows"
            }
            for node in nodes:
                if isinstance(node, ast.Attribute) and node.attr == "to_dict":
                    assert "metadata" not in ast.unparse(node), f"{path}:{node.lineno}"
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                if node.func.attr == "row_group":
                    counted += 1
                    assert node in of_rows, f"{path}:{node.lineno}"
    assert counted


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


@pytest.mark.parametrize("number", [1, 2])
def test_a_page_that_claims_two_gigabytes_takes_no_memory(tmp_path: Path, number: int) -> None:
    """Of the sizes of a page, plain and compressed, one is false."""
    path = tmp_path / "a.parquet"
    pq.write_table(people(), path, compression="none")
    content = path.read_bytes()
    parts = re.match(rb"PAR1((?:\x15[\x80-\xff]*[\x00-\x7f]){3})", content)
    assert parts is not None
    integers = re.findall(rb"\x15[\x80-\xff]*[\x00-\x7f]", parts[1])
    integers[number] = b"\x15" + varint(2 * (2**31 - 13))
    path.write_bytes(b"PAR1" + b"".join(integers) + content[parts.end() :])
    with pytest.raises(DataError, match="row group 0 cannot be read"):
        fpd.count(path, WANTED)
    assert pa.default_memory_pool().max_memory() < 2**30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = fp.design(fp.Workload(fp.Domain({"sex": ["1", "2"]}), [fp.marginal("sex", std=2.0)]))
    tables = fp.Tables(plan.domain, {("sex",): [3, 4]})
    place = tmp_path_factory.mktemp("release") / "r"
    fp.release(plan, tables).save(place)
    return place


@pytest.mark.long
def test_a_damaged_table_of_a_release(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "r"
    shutil.copytree(folder, place)
    (table,) = place.glob("*.parquet/*.parquet")
    content = table.read_bytes()
    made = [damaged for _, damaged in each_byte(content)][::19]
    made += [mutated(content, random.Random(i), parquet=True) for i in range(80)]
    refused = 0
    for damaged in made:
        table.write_bytes(damaged)
        try:
            Release.load(place)
        except InputError:
            refused += 1
    assert refused > len(made) / 3
