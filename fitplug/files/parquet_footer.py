"""Footers of Parquet files: read, checked, and written anew for Arrow.

Arrow ends the process on some footers, for example on one whose histograms of levels have another
length than its schema says. So Arrow is never given a file's own footer, but a new one that holds
only what is needed to read rows: the schema, and where the pages of each column chunk lie and how
many bytes they have. Statistics, histograms, indices and filters are left out.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, NamedTuple

from fitplug.files import thrift
from fitplug.files.thrift import BINARY, I32, I64, LIST, STRUCT, ThriftFields

_MAGIC = b"PAR1"
_ARROW_SCHEMA = b"ARROW:schema"  # the key under which Arrow describes types of its own
_TAIL_BYTES = 2**16  # Most footers are shorter, so that one request to a store is enough.
_MOST_ROWS = 2**48  # Sums over files then stay below 2^63.
_MOST = 2**62
_DEEPEST = 64
_LONGEST_WRITER = 200
_REPEATED = 2

# The numbers of fields: of the file, of a schema element, of a row group, of a column chunk.
_SCHEMA, _NUM_ROWS, _GROUPS, _KEYS, _WRITER, _ENCRYPTION = 2, 3, 4, 5, 6, 8
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION = range(1, 9)
_LOGICAL = 10
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_METADATA, _CRYPTO = 3, 8
_CHUNK_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _PLAIN_BYTES, _BYTES = range(1, 8)
_DATA_PAGE, _DICTIONARY_PAGE = 9, 11

_WANTED = {
    _SCHEMA: {_LOGICAL: None},
    _GROUPS: {_COLUMNS: {_METADATA: {}, _CRYPTO: {}}},
    _KEYS: {},
    _ENCRYPTION: {},
}
_ENCODINGS_GIVEN = thrift.encode_list(I32, [thrift.encode_integer(0)])
"""A field that the format requires and Arrow does not use."""


class EncryptedError(ValueError):
    """Some columns of the file are encrypted."""


class Column(NamedTuple):
    """A leaf of the schema.

    Attributes:
        path: The names from the root to the leaf, with dots between them.
        flat: Whether the column holds one value a row.
    """

    path: str
    flat: bool


class ColumnChunk(NamedTuple):
    """Where the values of a column lie in a row group, as the footer says.

    Attributes:
        start: The position of the first byte, of the dictionary or of the first data page.
        bytes: The number of bytes of all pages.
        dictionary: Whether there is a dictionary.
        values: The number of values.
        plain_bytes: The number of bytes of the pages when they are decompressed.
    """

    start: int
    bytes: int
    dictionary: bool
    values: int
    plain_bytes: int


@dataclass(frozen=True)
class Footer:
    """The content of a footer that is used.

    Attributes:
        rows: The number of rows of each row group. CONFIDENTIAL.
        columns: The leaves of the schema.
        chunks: For each row group, one chunk per column.
        metadata: The keys and values that the writer of the file chose.
        for_arrow: A Parquet file without rows, whose footer Arrow reads in place of the file's own.
    """

    rows: tuple[int, ...] = field(repr=False)
    columns: tuple[Column, ...] = field(repr=False)
    chunks: tuple[tuple[ColumnChunk, ...], ...] = field(repr=False)
    metadata: Mapping[bytes, bytes] = field(repr=False)
    for_arrow: bytes = field(repr=False)


def read_footer(file: IO[bytes]) -> Footer:
    """Read and check the footer of a Parquet file.

    Time and memory are in proportion to the bytes of the footer.

    Args:
        file: Open for reading, and seekable.

    Raises:
        EncryptedError: Columns of the file are encrypted.
        ValueError: The file has no footer, or one that contradicts itself.
        IndexError: The footer ends early.
    """
    size = file.seek(0, io.SEEK_END)
    tail = _read_end(file, size, _TAIL_BYTES)
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != _MAGIC or length > size - 8:
        raise ValueError("no footer")
    if length + 8 > len(tail):
        tail = _read_end(file, size, length + 8)
    data = tail[len(tail) - 8 - length : -8]
    fields, end = thrift.read_struct(data, 0, _WANTED)
    if end > len(data):
        raise ValueError("a footer that is longer than it says")
    return _build_footer(fields, size)


def _read_end(file: IO[bytes], size: int, length: int) -> bytes:
    """Read the last bytes of a file, at most `length`."""
    file.seek(max(0, size - length))
    return file.read(length)


def _build_footer(fields: ThriftFields, size: int) -> Footer:
    """Check the fields of a footer in a file of `size` bytes."""
    if _ENCRYPTION in fields:
        raise EncryptedError
    elements = _get_structs(fields, _SCHEMA)
    leaves = list(_iterate_leaves(elements))
    groups = [_check_row_group(group, leaves, size) for group in _get_structs(fields, _GROUPS)]
    rows = tuple(group.rows for group in groups)
    if sum(rows) != _get_number(fields, _NUM_ROWS, _MOST_ROWS):
        raise ValueError("row groups that hold other rows than the file")
    pairs = [pair for pair in _get_structs(fields, _KEYS, []) if 2 in pair]
    metadata = {_get_text(pair, 1): _get_text(pair, 2) for pair in pairs}
    return Footer(
        rows,
        tuple(leaf.column for leaf in leaves),
        tuple(group.chunks for group in groups),
        metadata,
        _encode_file(fields, elements, groups, metadata),
    )


def _encode_file(
    fields: ThriftFields,
    elements: Sequence[ThriftFields],
    groups: Sequence[_RowGroup],
    metadata: Mapping[bytes, bytes],
) -> bytes:
    """Encode a Parquet file that has a footer and no rows."""
    version = _get_number(fields, 1, 2)
    encoded = [
        (1, I32, thrift.encode_integer(version)),
        (_SCHEMA, LIST, thrift.encode_list(STRUCT, [_encode_element(e) for e in elements])),
        (_NUM_ROWS, I64, thrift.encode_integer(sum(group.rows for group in groups))),
        (_GROUPS, LIST, thrift.encode_list(STRUCT, [group.encoded for group in groups])),
    ]
    if _ARROW_SCHEMA in metadata:
        pair = [(1, _ARROW_SCHEMA), (2, metadata[_ARROW_SCHEMA])]
        schema = thrift.encode_struct(
            (number, BINARY, thrift.encode_binary(text)) for number, text in pair
        )
        encoded.append((_KEYS, LIST, thrift.encode_list(STRUCT, [schema])))
    writer = fields.get(_WRITER)
    if isinstance(writer, bytes) and len(writer) <= _LONGEST_WRITER and writer.isascii():
        # Arrow reads the pages of some old writers in another way.
        encoded.append((_WRITER, BINARY, thrift.encode_binary(writer)))
    footer = thrift.encode_struct(encoded)
    return _MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC


class _Leaf(NamedTuple):
    """A column, its physical type, and the names on its path as an encoded list."""

    column: Column
    type: int
    path: bytes


def _iterate_leaves(elements: Sequence[ThriftFields]) -> Iterator[_Leaf]:
    """Yield the leaves of a schema, whose elements stand in the order of a walk from the root."""
    if not elements or _TYPE in elements[0]:
        raise ValueError("a schema without root")
    # The children that are still to come: of the root, of its open child, and so on.
    open_groups = [_get_number(elements[0], _CHILDREN, _MOST)]
    names: list[bytes] = []
    repeated = [False]
    for element in elements[1:]:
        while open_groups and not open_groups[-1]:
            _ = open_groups.pop(), repeated.pop()
            names = names[: len(open_groups) - 1]
        if not open_groups:
            raise ValueError("elements beyond the schema's root")
        open_groups[-1] -= 1
        path = [*names, _get_text(element, _NAME)]
        many = repeated[-1] or element.get(_REPETITION) == _REPEATED
        if _TYPE in element:
            if element.get(_CHILDREN):
                raise ValueError("a value that has children")
            text = b".".join(path).decode()
            encoded = thrift.encode_list(BINARY, [thrift.encode_binary(name) for name in path])
            yield _Leaf(Column(text, not many), _get_number(element, _TYPE, 7), encoded)
            continue
        names = path
        open_groups.append(_get_number(element, _CHILDREN, _MOST))
        repeated.append(many)
        if len(open_groups) > _DEEPEST:
            raise ValueError("a schema that is too deep")
    if any(open_groups):
        raise ValueError("a schema without its last elements")


def _encode_element(element: ThriftFields) -> bytes:
    """Encode an element of the schema."""
    most = {_TYPE: 7, _LENGTH: 2**31 - 1, _REPETITION: 2, _CONVERTED: 21}
    if _TYPE not in element:
        most[_CHILDREN] = 2**31 - 1
    encoded = [
        (number, I32, thrift.encode_integer(_get_number(element, number, most[number])))
        for number in most
        if number in element
    ]
    encoded += [
        (number, I32, thrift.encode_integer(_get_number(element, number, 2**31 - 1)))
        for number in (_SCALE, _PRECISION)
        if number in element
    ]
    encoded.append((_NAME, BINARY, thrift.encode_binary(_get_text(element, _NAME))))
    if _LOGICAL in element:
        encoded.append((_LOGICAL, STRUCT, _get_text(element, _LOGICAL)))
    return thrift.encode_struct(sorted(encoded))


class _RowGroup(NamedTuple):
    """The number of rows of a row group, its column chunks, and its encoding for Arrow."""

    rows: int
    chunks: tuple[ColumnChunk, ...]
    encoded: bytes


def _check_row_group(fields: ThriftFields, leaves: Sequence[_Leaf], size: int) -> _RowGroup:
    """Check a row group of a file of `size` bytes, and encode it for Arrow."""
    columns = _get_structs(fields, _COLUMNS)
    rows = _get_number(fields, _GROUP_ROWS, _MOST_ROWS)
    made = [_check_chunk(column, leaf, size) for column, leaf in zip(columns, leaves, strict=True)]
    plain_bytes = sum(chunk.plain_bytes for chunk, _ in made)
    encoded = thrift.encode_struct(
        [
            (_COLUMNS, LIST, thrift.encode_list(STRUCT, [text for _, text in made])),
            (_GROUP_BYTES, I64, thrift.encode_integer(plain_bytes)),
            (_GROUP_ROWS, I64, thrift.encode_integer(rows)),
        ]
    )
    return _RowGroup(rows, tuple(chunk for chunk, _ in made), encoded)


def _check_chunk(column: ThriftFields, leaf: _Leaf, size: int) -> tuple[ColumnChunk, bytes]:
    """Check a column chunk of a file of `size` bytes, and encode it for Arrow."""
    if _CRYPTO in column:
        raise EncryptedError
    fields = column.get(_METADATA)
    if not isinstance(fields, dict) or fields.get(_CHUNK_TYPE) != leaf.type:
        raise ValueError("a column chunk of another type than the schema's")
    encode = thrift.encode_integer
    values, plain = _get_number(fields, _VALUES, _MOST), _get_number(fields, _PLAIN_BYTES, _MOST)
    length, first = _get_number(fields, _BYTES, size), _get_number(fields, _DATA_PAGE, size)
    dictionary = fields.get(_DICTIONARY_PAGE, 0) != 0
    encoded = [
        (_CHUNK_TYPE, I32, encode(leaf.type)),
        (_ENCODINGS, LIST, _ENCODINGS_GIVEN),
        (_PATH, LIST, leaf.path),
        (_CODEC, I32, encode(_get_number(fields, _CODEC, 7))),
        (_VALUES, I64, encode(values)),
        (_PLAIN_BYTES, I64, encode(plain)),
        (_BYTES, I64, encode(length)),
        (_DATA_PAGE, I64, encode(first)),
    ]
    start = first
    if dictionary:
        at = _get_number(fields, _DICTIONARY_PAGE, size)
        encoded.append((_DICTIONARY_PAGE, I64, encode(at)))
        start = min(first, at)
    if start + length > size:
        raise ValueError("a column chunk that ends beyond the file")
    place = (2, I64, encode(first))
    text = thrift.encode_struct([place, (_METADATA, STRUCT, thrift.encode_struct(encoded))])
    return ColumnChunk(start, length, dictionary, values, plain), text


def _get_structs(
    fields: ThriftFields, number: int, default: list[ThriftFields] | None = None
) -> list[ThriftFields]:
    """Return a field that is a list of structs, or the default if it is absent."""
    found = fields.get(number, default)
    if not isinstance(found, list):
        raise ValueError("no list where one must be")
    return found


def _get_number(fields: ThriftFields, number: int, most: int) -> int:
    """Return a field that is an integer from 0 to `most`."""
    found = fields.get(number)
    if not isinstance(found, int) or not 0 <= found <= most:
        raise ValueError("no number where one must be, or one out of range")
    return found


def _get_text(fields: ThriftFields, number: int) -> bytes:
    """Return a field that is a text, or a struct left as its bytes."""
    found = fields.get(number)
    if not isinstance(found, bytes):
        raise ValueError("no text where one must be")
    return found
