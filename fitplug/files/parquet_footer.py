"""Footers of Parquet files: read, checked, and written anew for Arrow.

Arrow ends the process on some footers, for example on one whose histograms of levels have another
length than its schema says. So Arrow is never given a file's own footer, but a new one that holds
only what is needed to read rows: the schema, and where the pages of each column chunk lie and how
many bytes they have. Statistics, histograms, indices and filters are left out.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, Any

from fitplug.files import thrift
from fitplug.files.parquet_schema import (
    Column,
    ColumnChunk,
    Leaf,
    ParquetSchema,
    RowGroup,
    find_arrow_schema,
    get_number,
    get_text,
    make_schema,
)
from fitplug.files.thrift import ThriftFields

_MAGIC = b"PAR1"
_LEAST_TAIL, _LONGEST_TAIL, _TAIL_SHARE = 2**13, 2**16, 1 / 32
"""The bytes that are read from the end of a file: so many that most footers are shorter, and one
request to a store is enough, but few beside what is read of the columns."""

_MOST_ROWS = 2**48  # Sums over files then stay below 2^63.
_MOST = 2**62

# The numbers of fields: of the file, of a row group, of a column chunk.
_VERSION, _SCHEMA, _NUM_ROWS, _GROUPS, _KEYS, _WRITER, _ENCRYPTION = 1, 2, 3, 4, 5, 6, 8
_COLUMNS, _GROUP_ROWS = 1, 3
_FILE_PATH, _METADATA, _CRYPTO = 1, 3, 8
_CHUNK_TYPE, _CODEC, _VALUES, _PLAIN_BYTES, _BYTES = 1, 4, 5, 6, 7
_DATA_PAGE, _DICTIONARY_PAGE = 9, 11

_WANTED: dict[int, Any] = {_SCHEMA: None, _GROUPS: {_COLUMNS: None}, _KEYS: {}, _ENCRYPTION: {}}
_WANTED_OF_CHUNK: dict[int, Any] = {_METADATA: {}, _CRYPTO: {}}


class EncryptedError(ValueError):
    """Some columns of the file are encrypted."""


class SummaryError(ValueError):
    """The file sums up other files, which hold the rows."""


@dataclass(frozen=True)
class Footer:
    """The content of a footer that is used.

    Attributes:
        rows: The number of rows of each row group. CONFIDENTIAL.
        schema: The columns, and what Arrow must know of them.
        metadata: The keys and values that the writer of the file chose.
        size: The size of the file in bytes.
        encoded_chunks: For each row group, one chunk per column as the footer holds it.
    """

    rows: tuple[int, ...] = field(repr=False)
    schema: ParquetSchema = field(repr=False)
    metadata: Mapping[bytes, bytes] = field(repr=False)
    size: int = field(repr=False)
    encoded_chunks: tuple[tuple[bytes, ...], ...] = field(repr=False)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The leaves of the schema."""
        return self.schema.columns

    @cached_property
    def chunks(self) -> tuple[tuple[ColumnChunk, ...], ...]:
        """For each row group, one chunk per column. It raises as `read_groups`."""
        everything = range(len(self.columns))
        return tuple(tuple(group.chunks.values()) for group in self.read_groups(everything))

    @cached_property
    def for_arrow(self) -> bytes:
        """A Parquet file without rows, whose footer Arrow reads in place of the file's own."""
        return self.schema.encode_file(self.read_groups(range(len(self.columns))))

    def read_groups(self, positions: Iterable[int]) -> tuple[RowGroup, ...]:
        """Return the row groups with the chunks of some columns, checked.

        Args:
            positions: The positions of the columns.

        Raises:
            EncryptedError: One of the columns is encrypted.
            SummaryError: One of the columns is in another file.
            ValueError: A chunk contradicts the schema or the size of the file.
            IndexError: A chunk does not end.
        """
        leaves = [(i, self.schema.leaves[i]) for i in positions]
        return tuple(
            RowGroup(rows, {i: _check_chunk(encoded[i], leaf, self.size) for i, leaf in leaves})
            for rows, encoded in zip(self.rows, self.encoded_chunks, strict=True)
        )


def read_footer(file: IO[bytes]) -> Footer:
    """Read the footer of a Parquet file, and check all of it but the chunks of its columns.

    Time and memory are in proportion to the bytes of the footer.

    Args:
        file: Open for reading, and seekable.

    Raises:
        EncryptedError: Columns of the file are encrypted.
        SummaryError: The rows are in other files.
        ValueError: The file has no footer, or one that contradicts itself.
        IndexError: The footer ends early.
    """
    size = file.seek(0, io.SEEK_END)

    def read_end(length: int) -> bytes:
        file.seek(size - length)
        return file.read(length)

    return decode_footer(size, read_end)


def decode_footer(size: int, read_end: Callable[[int], bytes]) -> Footer:
    """Read the footer of a Parquet file as `read_footer` does.

    Args:
        size: The size of the file in bytes.
        read_end: Returns so many bytes from the end of the file.
    """
    tail = read_end(min(size, max(_LEAST_TAIL, min(_LONGEST_TAIL, int(size * _TAIL_SHARE)))))
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != _MAGIC or length > size - 8:
        raise ValueError("no footer")
    if length + 8 > len(tail):
        tail = read_end(length + 8)
    data = tail[len(tail) - 8 - length : -8]
    fields, end = thrift.read_struct(data, 0, _WANTED)
    if end > len(data):
        raise ValueError("a footer that is longer than it says")
    return _build_footer(fields, size)


def _build_footer(fields: ThriftFields, size: int) -> Footer:
    """Check the fields of a footer in a file of `size` bytes."""
    if _ENCRYPTION in fields:
        raise EncryptedError
    pairs = [pair for pair in _get_list(fields, _KEYS, []) if 2 in pair]
    metadata = {get_text(pair, 1): get_text(pair, 2) for pair in pairs}
    writer = fields.get(_WRITER)
    schema = make_schema(
        get_number(fields, _VERSION, 2),
        tuple(_get_list(fields, _SCHEMA)),
        find_arrow_schema(metadata),
        writer if isinstance(writer, bytes) else None,
    )
    groups = _get_list(fields, _GROUPS)
    rows = tuple(get_number(group, _GROUP_ROWS, _MOST_ROWS) for group in groups)
    if sum(rows) != get_number(fields, _NUM_ROWS, _MOST_ROWS):
        raise ValueError("row groups that hold other rows than the file")
    chunks = tuple(tuple(_get_list(group, _COLUMNS)) for group in groups)
    if any(len(held) != len(schema.leaves) for held in chunks):
        raise ValueError("a row group of other columns than the schema's")
    if any(thrift.read_struct(held[0], 0, {})[0].get(_FILE_PATH) for held in chunks if held):
        raise SummaryError
    return Footer(rows, schema, metadata, size, chunks)


def _check_chunk(encoded: bytes, leaf: Leaf, size: int) -> ColumnChunk:
    """Check a column chunk of a file of `size` bytes."""
    column, _ = thrift.read_struct(encoded, 0, _WANTED_OF_CHUNK)
    if _CRYPTO in column:
        raise EncryptedError
    if column.get(_FILE_PATH):
        raise SummaryError
    fields = column.get(_METADATA)
    if not isinstance(fields, dict) or fields.get(_CHUNK_TYPE) != leaf.type:
        raise ValueError("a column chunk of another type than the schema's")
    values, plain = get_number(fields, _VALUES, _MOST), get_number(fields, _PLAIN_BYTES, _MOST)
    length, first = get_number(fields, _BYTES, size), get_number(fields, _DATA_PAGE, size)
    codec = get_number(fields, _CODEC, 7)
    dictionary = fields.get(_DICTIONARY_PAGE, 0) != 0
    at = get_number(fields, _DICTIONARY_PAGE, size) if dictionary else 0
    start = min(first, at) if dictionary else first
    if start + length > size:
        raise ValueError("a column chunk that ends beyond the file")
    return ColumnChunk(start, length, dictionary, values, plain, codec, first, at)


def _get_list(fields: ThriftFields, number: int, default: list[Any] | None = None) -> list[Any]:
    """Return a field that is a list of structs, or the default if it is absent."""
    found = fields.get(number, default)
    if not isinstance(found, list):
        raise ValueError("no list where one must be")
    return found
