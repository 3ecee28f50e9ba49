"""Files damaged on purpose, opened by whatever of fitplug opens files, in a process of its own.

    python -m tests.helpers.hostile_files FOLDER FIRST LAST

counts every file of the folder with the mutations of those seeds, and those that the seed "bytes"
stands for: every byte of a footer changed. The last line told is the one that ended the process.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import gzip
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import FitplugError
from fitplug_dask.preview import list_columns

ROWS = 60
DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 99)})
WANTED = (DOMAIN, [("sex", "age")])
_INTERESTING = bytes((0, 1, 2, 0x0F, 0x15, 0x18, 0x19, 0x1C, 0x7F, 0x80, 0xF0, 0xFE, 0xFF))
_INTEGERS = (2**7, 2**14, 2**20, 2**27, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**64 - 1)


def people() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({"sex": rng.choice(["1", "2"], ROWS), "age": rng.integers(0, 99, ROWS)})


def write_shapes(folder: Path) -> list[Path]:
    """Files of the same people: in row groups, with and without statistics, indices, filters,
    dictionaries and checksums, beside lists and maps, beside columns of every type.
    """
    folder.mkdir()
    table = people()
    nested = {
        "list": pa.array([[1, 2], None, []] * (ROWS // 3)),
        "struct": pa.array([{"a": 1, "b": [{"c": "x"}]}] * ROWS),
        "map": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
    }
    noon = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.timezone.utc)
    typed = {
        "date": pa.array([noon.date()] * ROWS),
        "time": pa.array([noon] * ROWS),
        "float": pa.array([1.5] * ROWS, pa.float32()),
        "decimal": pa.array([decimal.Decimal("1.23")] * ROWS),
        "truth": pa.array([True] * ROWS),
        "dictionary": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
        "duration": pa.array([1] * ROWS, pa.duration("s")),
        "large": pa.array(["x"] * ROWS, pa.large_string()),
        "fixed": pa.array([b"abc"] * ROWS, pa.binary(3)),
        "half": pa.array(np.ones(ROWS, np.float16)),
        "null": pa.nulls(ROWS),
    }
    shapes = {
        "plain": (table, {"store_schema": False}),
        "groups": (table, {"row_group_size": 20}),
        "bare": (table, {"use_dictionary": False, "write_statistics": False, "version": "1.0"}),
        "indexed": (
            table,
            {
                **{"data_page_version": "2.0", "write_page_index": True, "row_group_size": 30},
                **{"compression": "zstd", "write_page_checksum": True},
            },
        ),
        "nested": (with_columns(table, nested), {}),
        "typed": (with_columns(table, typed), {"sorting_columns": [pq.SortingColumn(0)]}),
        "nulls": (
            pa.table({"sex": ["1", None, "2"] * 20, "age": [1, None, 3] * 20}),
            {"row_group_size": 25, "data_page_size": 64, "write_page_index": True},
        ),
        "int96": (
            with_columns(table, {"time": pa.array([datetime.datetime(2020, 1, 1)] * ROWS)}),
            {"use_deprecated_int96_timestamps": True, "compression": "gzip"},
        ),
    }
    for name, (written, options) in shapes.items():
        pq.write_table(written, folder / f"{name}.parquet", **options)
    with pa.ipc.new_file(folder / "file.arrow", shapes["typed"][0].schema) as writer:
        writer.write_table(shapes["typed"][0], 20)
    with pa.ipc.new_stream(folder / "stream.arrows", shapes["nested"][0].schema) as writer:
        writer.write_table(shapes["nested"][0], 20)
    pa.feather.write_feather(table, folder / "lz4.feather", compression="lz4")
    pa.csv.write_csv(table, folder / "text.csv")
    (folder / "text.csv.gz").write_bytes(gzip.compress((folder / "text.csv").read_bytes()))
    return sorted(folder.iterdir())


def with_columns(table: pa.Table, more: dict[str, pa.Array]) -> pa.Table:
    for name, column in more.items():
        table = table.append_column(name, column)
    return table


def footer(content: bytes) -> tuple[int, int]:
    """Where the footer of a Parquet file begins and ends."""
    end = len(content) - 8
    return end - int.from_bytes(content[-8:-4], "little"), end


def each_byte(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The file with one byte of its footer changed."""
    for at in range(*footer(content)):
        for new in (content[at] ^ 1, content[at] ^ 128, (content[at] + 1) % 256):
            yield f"byte {at} = {new}", content[:at] + bytes((new,)) + content[at + 1 :]


def mutated(content: bytes, rng: random.Random, *, parquet: bool) -> bytes:
    """Some bytes changed, left out, put in or moved, mostly in the footer, which stays one."""
    start, end = footer(content) if parquet else (0, len(content))
    parts = [bytearray(content[:start]), bytearray(content[start:end])]
    part = parts[1 if not start or rng.random() < 0.75 else 0]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        if len(part) < 4:
            break
        at, size = rng.randrange(len(part)), rng.choice((1, 1, 2, 4, 8, 30))
        match rng.randrange(7):
            case 0:
                part[at] ^= 1 << rng.randrange(8)
            case 1:
                part[at] = rng.choice(_INTERESTING)
            case 2:
                del part[at : at + size]
            case 3:
                part[at:at] = rng.randbytes(size)
            case 4:
                behind = at
                while behind < len(part) and part[behind] > 127:
                    behind += 1
                part[at : behind + 1] = varint(rng.choice(_INTEGERS))
            case 5:
                part[at:at] = part[at : at + size]
            case 6:
                other = rng.randrange(len(part))
                part[at : at + size] = part[other : other + size]
    if not parquet:
        return bytes(part)
    new = b"".join([*parts, len(parts[1]).to_bytes(4, "little"), content[-4:]])
    return new[: rng.randrange(len(new))] if rng.random() < 0.02 else new


def varint(number: int) -> bytes:
    """As Thrift writes integers."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def open_everywhere(path: Path) -> None:
    """Nothing but an error of ours may leave."""
    for opens in (list_columns, lambda p: fpd.preview(p, WANTED), lambda p: fpd.count(p, WANTED)):
        with contextlib.suppress(FitplugError):
            opens(path)


def main() -> None:
    folder, first, last = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    with tempfile.TemporaryDirectory() as place:
        for path in sorted(folder.iterdir()):
            content = path.read_bytes()
            parquet = path.suffix == ".parquet"
            made = (
                each_byte(content)
                if first == "bytes"
                else (
                    (
                        f"seed {i}",
                        mutated(content, random.Random(f"{path.name} {i}"), parquet=parquet),
                    )
                    for i in range(int(first), int(last))
                )
            )
            target = Path(place, path.name)
            for what, damaged in made:
                print(path.name, what, flush=True)
                target.write_bytes(damaged)
                open_everywhere(target)
    print("survived", flush=True)


if __name__ == "__main__":
    main()
