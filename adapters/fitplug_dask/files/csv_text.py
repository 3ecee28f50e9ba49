"""CSV text: the names and the rows of CSV files, plain or gzipped.

One task reads a whole CSV file: because quoted values may contain line ends, all earlier bytes are
needed to know where a record begins. PyArrow's errors may quote values, so callers do not pass them
on.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv as pc

from fitplug_dask.encoding import MOST_ROWS, find_forms
from fitplug_dask.files.checked_file import (
    Batches,
    CheckedFile,
    DamagedFileError,
    Header,
    guess_rows,
)
from fitplug_dask.sources import Format, Location, State

_NAMES_BYTES = 2**18  # the line of column names must end within these
_BLOCK_BYTES = 2**22


def read_csv_header(location: Location, state: State, *, zipped: bool = False) -> Header:
    """Return the header of a CSV file, which may be gzipped.

    Raises:
        DamagedFileError: The file has no line of names.
        Exception: The line of names cannot be read.
    """
    rows = _read_first_rows(location, state, zipped=zipped)
    if not rows:
        raise DamagedFileError("has no line of column names. Add this line.")
    names = rows[0]
    schema = pa.schema([pa.field(name, pa.binary()) for name in names])
    columns = zip(*(row for row in rows[1:] if len(row) == len(names)), strict=True)
    forms = {
        name: found
        for name, texts in zip(names, columns, strict=False)
        if (found := find_forms(texts))
    }
    return Header(schema, (guess_rows(state[0]),), False, None, forms=forms)


def _read_first_rows(
    location: Location, state: State, *, zipped: bool, most: int = MOST_ROWS
) -> Sequence[Sequence[str]]:
    """Read the line of names, the first that is not blank, and up to `most` rows after it."""
    with _open_bytes(location, state, zipped=zipped) as stream:
        read = stream.read(_NAMES_BYTES)
    text = read.decode("utf-8-sig", errors="replace")
    records = filter(None, csv.reader(io.StringIO(text, newline=""), strict=True))
    rows = list(islice(records, 1))
    with suppress(csv.Error):  # for a row that ends beyond the bytes read
        rows += islice(records, most)
    # The last row may be cut off.
    return rows[:-1] if 1 < len(rows) <= most and len(read) == _NAMES_BYTES else rows


def _open_bytes(location: Location, state: State, *, zipped: bool) -> Any:
    """Open the unzipped bytes of a CSV file. The gzip reader checks their length and checksum."""
    stream = location.open(sequential=True, state=state)
    if not zipped:
        return stream
    return pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "gzip")


def read_csv(file: CheckedFile, _: int, rows: int) -> Batches:
    """Read a whole CSV file, and yield batches of binary columns.

    Whether a text is a value of the attribute is decided when it is encoded. An empty value is
    null; a quoted empty value is the empty string.
    """
    zipped = file.format is Format.CSV_GZ
    (names,) = _read_first_rows(file.location, file.state, zipped=zipped, most=0)
    wanted = list(file.columns) or [names[0]]
    sentinel = uuid4().hex.encode()
    with _open_bytes(file.location, file.state, zipped=zipped) as stream:
        reader = pc.open_csv(
            _SentinelStream(stream, b",".join([sentinel] * len(names)) + b"\n"),
            read_options=pc.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            # In a file of one column, an empty line is a null.
            parse_options=pc.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=len(names) > 1
            ),
            convert_options=pc.ConvertOptions(
                include_columns=wanted,
                column_types={name: pa.binary() for name in wanted},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        yield from _slice_batches(_drop_sentinel(reader, sentinel), rows)


class _SentinelStream:
    """A stream of bytes followed by one record of sentinels on its own line.

    The stream's last line may lack a line end, as some programs omit it. So a file that was cut off
    within its last line looks like one whose last line is short.

    Arrow's parser closes a quote that is still open at the end of the file. The sentinels are then
    inside the quote rather than a record, which reveals a truncated file.

    If a block ends in a carriage return and the next begins with a line feed, the parser drops the
    line feed even inside a quote. So no block of this stream ends in a carriage return. The
    sentinels are part of the last block, because the first block must contain the names and their
    line end.
    """

    def __init__(self, stream: Any, record: bytes) -> None:
        self._stream, self._record = stream, record
        self._next = b""  # the byte after those already returned
        self._at_end = False
        self.closed = False

    def read(self, size: int) -> bytes:
        if self._at_end:
            return b""
        read: bytes = self._next + self._stream.read(size - 2)
        self._next = self._stream.read(1)
        while self._next and read.endswith(b"\r"):
            read += self._next
            self._next = self._stream.read(1)
        if self._next:
            return read
        self._at_end = True
        return read + (b"" if read.endswith((b"\n", b"\r")) else b"\n") + self._record


def _drop_sentinel(reader: Any, sentinel: bytes) -> Batches:
    """Yield the batches without the last record, which must be the sentinel's."""
    previous = None
    for batch in reader:
        if not batch.num_rows:
            continue
        if previous is not None:
            yield previous
        previous = batch
    if previous is None or previous.column(0)[-1].as_py() != sentinel:
        raise ValueError("the file ends inside a quoted value")
    yield previous.slice(0, previous.num_rows - 1)


def _slice_batches(batches: Batches, rows: int) -> Batches:
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
