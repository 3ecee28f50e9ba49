"""Headers: what a file says about itself before any row is read, in each format."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pd
import pyarrow.parquet as pq

from fitplug.files import EncryptedError, Footer, read_footer
from fitplug_dask.codes import kind as kind_of
from fitplug_dask.formats import Format
from fitplug_dask.places import Place

_NAMES_BYTES = 2**18  # the line of names of a CSV file ends within these
_ROW_BYTES = 32  # a guess; shares and progress go by it where no footer tells the rows
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_ARROW = b"ARROW1"
_ENCRYPTED = "is encrypted; store it decrypted"
_INT96 = "us"  # of old timestamps: nanoseconds would wrap beyond the year 2262


@dataclass(frozen=True)
class Header:
    """schema: names and Arrow types of all columns, as text is typed by the domain: binary in CSV.

    rows: of each unit that can be read on its own (a row group, a record batch, a whole file);
    guesses of at least 1 unless `exact`. records: rows in all, None if only reading would tell.
    footer: that of Parquet.
    """

    schema: Any
    rows: tuple[int, ...]
    exact: bool
    records: int | None
    footer: Footer | None = None


def read_header(place: Place, kind: Format, size: int) -> Header | str:
    """The header of a file of `size` bytes, or what is wrong with it; the words quote nothing."""
    if not size:
        return _unreadable(place, kind)
    try:
        header = _READ[kind](place, size)
        # Damaged names, of columns and of time zones, raise when they are read: here and not later.
        _ = header.schema.names, str(header.schema), [kind_of(held) for held in header.schema.types]
        return header
    except _DamagedError as error:
        return str(error)
    except Exception:
        # What a reader says may quote the file's content.
        return _unreadable(place, kind)


def parquet_footer(place: Place) -> Footer:
    """The footer of a Parquet file. Raises what `read_footer` does."""
    with place.open(in_order=False) as file:
        return read_footer(file)


def parquet_file(place: Place, footer: Footer, **options: Any) -> Any:
    """An open ParquetFile, to be closed; Arrow looks at no footer but this one."""
    source = place.path if place.options is None else place.open(in_order=False)
    metadata = pq.read_metadata(pa.BufferReader(footer.for_arrow))
    return pq.ParquetFile(source, metadata=metadata, coerce_int96_timestamp_unit=_INT96, **options)


class _DamagedError(Exception):
    """A fault in words of ours."""


def _parquet(place: Place, size: int) -> Header:
    try:
        footer = parquet_footer(place)
    except EncryptedError:
        raise _DamagedError(_ENCRYPTED) from None
    with pq.ParquetFile(
        pa.BufferReader(footer.for_arrow), coerce_int96_timestamp_unit=_INT96
    ) as parquet:
        return Header(parquet.schema_arrow, footer.rows, True, sum(footer.rows), footer)


def _arrow(place: Place, size: int) -> Header:
    with closing(arrow_source(place)) as source:
        if is_stream(source):
            return _arrow_stream(source, size)
        if source.read(len(_ARROW)) != _ARROW:
            raise ValueError("no Arrow file")
        reader = pa.ipc.open_file(source)
        batches = reader.num_record_batches
        records = pd.IpcFileFormat().make_fragment(source).count_rows()
    # Which batch holds how many rows is known only when it is read.
    rows = (max(1, records // batches),) * batches if batches else ()
    return Header(reader.schema, rows, False, records)


def arrow_source(place: Place) -> Any:
    """An Arrow file to read from; mapped into memory, one cut short would end the process."""
    if place.options is None:
        return pa.OSFile(place.path)
    return pa.PythonFile(place.open(in_order=False), mode="r")


def is_stream(source: Any) -> bool:
    """Whether an Arrow source is a stream, without a footer."""
    start = source.read(8)
    source.seek(0)
    return bool(start[:4] == _END_OF_STREAM[:4])


def _arrow_stream(source: Any, size: int) -> Header:
    source.seek(size - len(_END_OF_STREAM))
    if source.read() != _END_OF_STREAM:
        raise _DamagedError("has no end-of-stream mark, so it may be truncated; write it again")
    source.seek(0)
    schema = pa.ipc.open_stream(source).schema
    return Header(schema, (_guess(size),), False, None)


def _csv(place: Place, size: int) -> Header:
    return _csv_header(csv_names(place, zipped=False), size)


def _csv_gz(place: Place, size: int) -> Header:
    return _csv_header(csv_names(place, zipped=True), size)


def _csv_header(names: Sequence[str], size: int) -> Header:
    if not names:
        raise _DamagedError("has no line of column names; write one")
    schema = pa.schema([pa.field(name, pa.binary()) for name in names])
    return Header(schema, (_guess(size),), False, None)


def csv_names(place: Place, *, zipped: bool) -> Sequence[str]:
    """The names on the first line of a CSV file that is not blank; none if there is no such."""
    with csv_bytes(place, zipped=zipped) as stream:
        text = stream.read(_NAMES_BYTES).decode("utf-8-sig", errors="replace")
    records = csv.reader(io.StringIO(text, newline=""), strict=True)
    return next((record for record in records if record), ())


def csv_bytes(place: Place, *, zipped: bool) -> Any:
    """The bytes of a CSV file, to be closed; the gzip reader checks length and checksum."""
    stream = place.open(in_order=True)
    if not zipped:
        return stream
    return pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "gzip")


def _guess(size: int) -> int:
    return max(1, size // _ROW_BYTES)


_READ: dict[Format, Callable[[Place, int], Header]] = {
    Format.PARQUET: _parquet,
    Format.ARROW: _arrow,
    Format.CSV: _csv,
    Format.CSV_GZ: _csv_gz,
}

_MAGIC = {
    Format.PARQUET: (b"PAR1", b"PAR1", "has a damaged footer; write it again"),
    Format.ARROW: (b"ARRO", b"ROW1", "has a damaged footer or schema; write it again"),
    Format.CSV: (b"", b"", "has no readable line of column names; write one"),
    Format.CSV_GZ: (b"\x1f\x8b", b"", "is damaged or truncated; write it again"),
}

_A = {
    Format.PARQUET: "a Parquet",
    Format.ARROW: "an Arrow",
    Format.CSV: "a CSV",
    Format.CSV_GZ: "a gzipped CSV",
}


def _unreadable(place: Place, kind: Format) -> str:
    """Why no header can be read, told by the file's size and its first and last four bytes."""
    try:
        with place.open(in_order=False) as file:
            head = file.read(4)
            size = file.seek(0, io.SEEK_END)
            file.seek(max(0, size - 4))
            tail = file.read(4)
    except FileNotFoundError:
        return "does not exist; check the path"
    except OSError as error:
        if place.options is None:
            return f"cannot be read: {error.strerror}"
        return "cannot be read; check the URL and storage_options"
    except Exception:  # a store's client raises kinds of its own, whose words may hold credentials
        return "cannot be read; check the URL and storage_options"
    start, end, fault = _MAGIC[kind]
    if not size:
        return "is empty (0 bytes); write it again or remove it"
    if kind is Format.PARQUET and b"PARE" in (head, tail):
        return _ENCRYPTED
    if kind is Format.ARROW and head == b"FEA1":
        return "is Feather version 1; write it again as version 2"
    if kind is Format.ARROW and head == _END_OF_STREAM[:4]:
        return fault
    if not head.startswith(start):
        return f"is not {_A[kind]} file; convert it or remove it"
    return "is truncated; write it again" if not tail.endswith(end) else fault
