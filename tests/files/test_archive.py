"""Files that would unpack to more than they may: nothing of it is ever allocated."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

import fitplug as fp
from fitplug.files import archive
from fitplug.plan import plan_file as planfile
from fitplug_cli.render import read_counts
from tests.helpers.plans import people_plan

BIG = 2**29 + 2**27
"""Bytes that a file of a few megabytes unpacks to."""


def npy_header(shape: tuple[int, ...], dtype: str = "<i8") -> bytes:
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def in_zip(members: dict[str, bytes | tuple[bytes, int]], path: Path) -> None:
    """An archive; a member may be (its beginning, how many bytes of zeros follow)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as held:
        for name, content in members.items():
            begin, zeros = content if isinstance(content, tuple) else (content, 0)
            with held.open(name + ".npy", "w", force_zip64=True) as file:
                file.write(begin)
                for _ in range(zeros // 2**20):
                    file.write(bytes(2**20))


def in_npy(text: bytes) -> bytes:
    return npy_header((len(text),), "|u1") + text


@pytest.fixture(scope="module")
def header() -> Any:
    header = planfile.describe_workload(people_plan().workload)[0]
    return header | {"groups": header["groups"].decode()}


def limited(act: Callable[[], object], megabytes: int = 200) -> Exception | None:
    """What this raises; no more memory may be taken."""
    tracemalloc.start()
    try:
        act()
    except Exception as error:
        return error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < megabytes * 2**20
    return None


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory, header: Any) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("bombs")
    text = in_npy(json.dumps(header).encode())
    mark = in_npy(b"0" * 64)
    whole = {"header": text, "digest": mark}
    cells = BIG // 8
    one = npy_header((cells,)), BIG
    long_text = npy_header((BIG,), "|u1")
    parts = {f"family{i}.M": (npy_header((2**24,)), 2**27) for i in range(5)}
    for name, members in {
        "an array": whole | {"p": one},
        "many arrays": whole | parts,
        "an array that no plan has": whole | {"note": one},
        "a header": {"digest": mark, "header": (long_text, BIG)},
        "a digest": whole | {"digest": (long_text, BIG)},
        "bytes after an array": whole | {"p": (npy_header((4,)), BIG)},
        "a long line of npy": whole | {"p": (b"\x93NUMPY\2\0" + struct.pack("<I", BIG - 1), BIG)},
    }.items():
        in_zip(members, root / name)
        assert (root / name).stat().st_size < 4 * 2**20
    said = {
        "format": 2, "seal": "0" * 64, "nonce": "0" * 64, "person": None, "unit": None,
        "domain": [["a", ["1", "2"]]], "tables": [["a"]],
    }  # fmt: skip
    in_zip({"header": in_npy(json.dumps(said).encode()), "table0": one}, root / "counts")
    return {path.name: path for path in root.iterdir()}


@pytest.mark.parametrize(
    "name",
    ["an array", "many arrays", "an array that no plan has", "a header", "a digest",
     "bytes after an array", "a long line of npy"],
)  # fmt: skip
@pytest.mark.long
def test_plans_that_unpack_to_too_much(bombs: dict[str, Path], name: str) -> None:
    error = limited(lambda: fp.Plan.load(bombs[name]))
    assert isinstance(error, fp.PlanError), error
    assert "not a plan file, or it is damaged" in str(error)


@pytest.mark.slow
def test_counts_that_unpack_to_too_much(bombs: dict[str, Path]) -> None:
    for path in bombs.values():
        error = limited(lambda: read_counts(path))  # noqa: B023
        assert isinstance(error, fp.TablesError)
        assert "is damaged, or not a counts file" in str(error) or "another version" in str(error)


def lie(path: Path, size: int) -> None:
    """Let the directory of an archive, and its members, say that they unpack to so much."""
    content = bytearray(path.read_bytes())
    for mark, at in ((b"PK\1\2", 24), (b"PK\3\4", 22)):
        start = 0
        while (start := content.find(mark, start)) >= 0:
            content[start + at : start + at + 4] = struct.pack("<I", size)
            start += 4
    path.write_bytes(bytes(content))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 100, 200, 2**20, 2**32 - 2])
def test_directories_that_lie(tmp_path: Path, header: Any, size: int) -> None:
    path = tmp_path / "plan.npz"
    zeros = npy_header((2**22,)) + bytes(2**25)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as held:
        held.writestr("header.npy", in_npy(json.dumps(header).encode()))
        held.writestr("digest.npy", in_npy(b"0" * 64))
        held.writestr("p.npy", zeros)
    del zeros
    lie(path, size)
    assert isinstance(limited(lambda: fp.Plan.load(path)), fp.PlanError)


def test_one_entry_said_many_times(tmp_path: Path) -> None:
    """A directory whose entries all point at one member, as in a quine of zips."""
    path = tmp_path / "plan.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as held:
        held.writestr("header.npy", in_npy(b"{}"))
        held.writestr("p0.npy", npy_header((2**21,)) + bytes(2**24))
        for i in range(1, 40):
            twin = zipfile.ZipInfo(f"p{i}.npy")
            first = held.getinfo("p0.npy")
            for field in ("compress_type", "CRC", "compress_size", "file_size", "header_offset"):
                setattr(twin, field, getattr(first, field))
            held.filelist.append(twin)
    assert isinstance(limited(lambda: fp.Plan.load(path)), fp.PlanError)


@pytest.mark.parametrize(
    "content",
    [
        npy_header((-1,)),
        npy_header((3,)) + bytes(23),
        npy_header((3,)) + bytes(25),
        npy_header((2,), "|O") + bytes(16),
        npy_header((2,), "<c16") + bytes(32),
        npy_header((2,), "<M8[D]") + bytes(16),
        npy_header((0, 2**62)),
        npy_header((2**62, 2**62)),
        b"\x93NUMPY\3\0" + npy_header((3,))[8:] + bytes(24),
        b"\x93NUMPY\1\0\xff\xff" + b" " * 100,
        b"",
    ],
)
def test_arrays_that_are_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.npz"
    in_zip({"header": in_npy(b"{}"), "digest": in_npy(b"0" * 64), "p": content}, path)
    assert isinstance(limited(lambda: fp.Plan.load(path)), fp.PlanError)


def test_arrays_of_every_order_are_read_as_they_were_written() -> None:
    rng = np.random.default_rng(1)
    square = rng.integers(0, 9, (3, 4, 5))
    arrays = {
        "c": square,
        "fortran": np.asfortranarray(square),
        "floats": square.astype(">f8"),
        "number": np.array(3),
        "empty": np.zeros((0, 4)),
        "words": np.array(["a", "bc"]),
    }
    text = np.frombuffer(b'{"x": 1}', dtype=np.uint8)
    file = io.BytesIO()
    archive.write_archive(file, {"header": text} | arrays)
    header, found = archive.read_archive(file)
    assert header == {"x": 1}
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].flags.f_contiguous == array.flags.f_contiguous
        with pytest.raises(ValueError, match=r"WRITEABLE|read-only"):
            found[name].setflags(write=True)


def test_what_is_written_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros shrink a thousandfold: more of them than there is room for are not compressed."""
    monkeypatch.setattr(archive, "ROOM", 2**22)
    monkeypatch.setattr(archive, "_HEADER_ROOM", 2**10)
    text = np.frombuffer(b"{}", dtype=np.uint8)
    for size in (2**18, 2**20):
        file = io.BytesIO()
        archive.write_archive(file, {"header": text, "zeros": np.zeros(size)})
        assert archive.read_archive(file)[1]["zeros"].shape == (size,)
