"""Footers: what a Parquet file says of itself, read, checked, and written anew for Arrow.

Arrow ends the whole process on some footers, such as one whose histograms of levels have another
length than its schema says. So Arrow is given none of a file's own, but one that holds no more
than reading rows needs: the schema, and where the pages of each column chunk lie, in how many
bytes. Statistics, histograms, indices and filters are passed over.
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
_ARROW_SCHEMA = b"ARROW:schema"  # what Arrow says of types that Parquet does not have
_TAIL_BYTES = 2**16  # most footers are shorter: one request to a store
_MOST_ROWS = 2**48  # so that sums over files stay below 2^63
_MOST = 2**62
_DEEPEST = 64
_LONGEST_WRITER = 200
_REPEATED = 2

# Fields by their numbers: of the file, an element of the schema, a row group, a column chunk.
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
_ENCODINGS_GIVEN = thrift.values(I32, [thrift.integer(0)])  # required, and not looked at


class EncryptedError(ValueError):
    """Columns of the file are encrypted."""


class Column(NamedTuple):
    """A leaf of the schema. path: names from the root, with dots between them; flat: whether it
    holds one value a row.
    """

    path: str
    flat: bool


class ColumnChunk(NamedTuple):
    """Where a column's values in a row group lie: the first byte, of the dictionary or the first
    data page, and the bytes of all pages. dictionary: whether there is one. values, plain_bytes:
    how many values, and their bytes when decompressed, as the footer says.
    """

    start: int
    bytes: int
    dictionary: bool
    values: int
    plain_bytes: int


@dataclass(frozen=True)
class Footer:
    """rows: of each row group, CONFIDENTIAL; columns: the leaves of the schema; chunks: of each
    row group, one per column; said: keys and values of the file; for_arrow: a file without rows
    whose footer Arrow reads in place of the file's own.
    """

    rows: tuple[int, ...] = field(repr=False)
    columns: tuple[Column, ...] = field(repr=False)
    chunks: tuple[tuple[ColumnChunk, ...], ...] = field(repr=False)
    said: Mapping[bytes, bytes] = field(repr=False)
    for_arrow: bytes = field(repr=False)


def read_footer(file: IO[bytes]) -> Footer:
    """The footer of a Parquet file that is open for reading. It takes time and memory in
    proportion to the bytes of the footer.

    Raises EncryptedError, ValueError or IndexError for a file that has no sound footer, and what
    the file raises.
    """
    size = file.seek(0, io.SEEK_END)
    tail = _end(file, size, _TAIL_BYTES)
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != _MAGIC or length > size - 8:
        raise ValueError("no footer")
    if length + 8 > len(tail):
        tail = _end(file, size, length + 8)
    data = tail[len(tail) - 8 - length : -8]
    fields, end = thrift.read_struct(data, 0, _WANTED)
    if end > len(data):
        raise ValueError("a footer that is longer than it says")
    return _checked(fields, size)


def _end(file: IO[bytes], size: int, length: int) -> bytes:
    file.seek(max(0, size - length))
    return file.read(length)


def _checked(fields: ThriftFields, size: int) -> Footer:
    if _ENCRYPTION in fields:
        raise EncryptedError
    elements = _structs(fields, _SCHEMA)
    leaves = list(_leaves(elements))
    groups = [_Group.of(group, leaves, size) for group in _structs(fields, _GROUPS)]
    rows = tuple(group.rows for group in groups)
    if sum(rows) != _number(fields, _NUM_ROWS, _MOST_ROWS):
        raise ValueError("row groups that hold other rows than the file")
    said = {_text(pair, 1): _text(pair, 2) for pair in _structs(fields, _KEYS, []) if 2 in pair}
    return Footer(
        rows,
        tuple(leaf.column for leaf in leaves),
        tuple(group.chunks for group in groups),
        said,
        _file(fields, elements, groups, said),
    )


def _file(
    fields: ThriftFields,
    elements: Sequence[ThriftFields],
    groups: Sequence[_Group],
    said: Mapping[bytes, bytes],
) -> bytes:
    """A Parquet file of nothing but a footer."""
    version = _number(fields, 1, 2)
    written = [
        (1, I32, thrift.integer(version)),
        (_SCHEMA, LIST, thrift.values(STRUCT, [_element(element) for element in elements])),
        (_NUM_ROWS, I64, thrift.integer(sum(group.rows for group in groups))),
        (_GROUPS, LIST, thrift.values(STRUCT, [group.written for group in groups])),
    ]
    if _ARROW_SCHEMA in said:
        pair = [(1, _ARROW_SCHEMA), (2, said[_ARROW_SCHEMA])]
        held = thrift.struct((number, BINARY, thrift.binary(text)) for number, text in pair)
        written.append((_KEYS, LIST, thrift.values(STRUCT, [held])))
    writer = fields.get(_WRITER)
    if isinstance(writer, bytes) and len(writer) <= _LONGEST_WRITER and writer.isascii():
        # Arrow reads the pages of some old writers in another way.
        written.append((_WRITER, BINARY, thrift.binary(writer)))
    footer = thrift.struct(written)
    return _MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC


class _Leaf(NamedTuple):
    """A column, its physical type, and the names on its path as Thrift has them."""

    column: Column
    type: int
    path: bytes


def _leaves(elements: Sequence[ThriftFields]) -> Iterator[_Leaf]:
    """The leaves of a schema, whose elements stand in the order of a walk from the root."""
    if not elements or _TYPE in elements[0]:
        raise ValueError("a schema without root")
    open_groups = [_number(elements[0], _CHILDREN, _MOST)]  # children to come, from the root down
    names: list[bytes] = []
    repeated = [False]
    for element in elements[1:]:
        while open_groups and not open_groups[-1]:
            _ = open_groups.pop(), repeated.pop()
            names = names[: len(open_groups) - 1]
        if not open_groups:
            raise ValueError("elements beyond the schema's root")
        open_groups[-1] -= 1
        path = [*names, _text(element, _NAME)]
        many = repeated[-1] or element.get(_REPETITION) == _REPEATED
        if _TYPE in element:
            if element.get(_CHILDREN):
                raise ValueError("a value that has children")
            text = b".".join(path).decode()
            written = thrift.values(BINARY, [thrift.binary(name) for name in path])
            yield _Leaf(Column(text, not many), _number(element, _TYPE, 7), written)
            continue
        names = path
        open_groups.append(_number(element, _CHILDREN, _MOST))
        repeated.append(many)
        if len(open_groups) > _DEEPEST:
            raise ValueError("a schema that is too deep")
    if any(open_groups):
        raise ValueError("a schema without its last elements")


def _element(element: ThriftFields) -> bytes:
    """An element of the schema."""
    most = {_TYPE: 7, _LENGTH: 2**31 - 1, _REPETITION: 2, _CONVERTED: 21}
    if _TYPE not in element:
        most[_CHILDREN] = 2**31 - 1
    written = [
        (number, I32, thrift.integer(_number(element, number, most[number])))
        for number in most
        if number in element
    ]
    written += [
        (number, I32, thrift.integer(_number(element, number, 2**31 - 1)))
        for number in (_SCALE, _PRECISION)
        if number in element
    ]
    written.append((_NAME, BINARY, thrift.binary(_text(element, _NAME))))
    if _LOGICAL in element:
        written.append((_LOGICAL, STRUCT, _text(element, _LOGICAL)))
    return thrift.struct(sorted(written))


class _Group(NamedTuple):
    """A row group: its rows, its column chunks, and what Arrow is given."""

    rows: int
    chunks: tuple[ColumnChunk, ...]
    written: bytes

    @classmethod
    def of(cls, fields: ThriftFields, leaves: Sequence[_Leaf], size: int) -> _Group:
        columns = _structs(fields, _COLUMNS)
        rows = _number(fields, _GROUP_ROWS, _MOST_ROWS)
        made = [_chunk(column, leaf, size) for column, leaf in zip(columns, leaves, strict=True)]
        written = thrift.struct(
            [
                (_COLUMNS, LIST, thrift.values(STRUCT, [text for _, text in made])),
                (_GROUP_BYTES, I64, thrift.integer(sum(chunk.plain_bytes for chunk, _ in made))),
                (_GROUP_ROWS, I64, thrift.integer(rows)),
            ]
        )
        return cls(rows, tuple(chunk for chunk, _ in made), written)


def _chunk(column: ThriftFields, leaf: _Leaf, size: int) -> tuple[ColumnChunk, bytes]:
    """A column chunk of a file of `size` bytes, and what Arrow is given."""
    if _CRYPTO in column:
        raise EncryptedError
    held = column.get(_METADATA)
    if not isinstance(held, dict) or held.get(_CHUNK_TYPE) != leaf.type:
        raise ValueError("a column chunk of another type than the schema's")
    number = thrift.integer
    values, plain = _number(held, _VALUES, _MOST), _number(held, _PLAIN_BYTES, _MOST)
    length, first = _number(held, _BYTES, size), _number(held, _DATA_PAGE, size)
    dictionary = held.get(_DICTIONARY_PAGE, 0) != 0
    written = [
        (_CHUNK_TYPE, I32, number(leaf.type)),
        (_ENCODINGS, LIST, _ENCODINGS_GIVEN),
        (_PATH, LIST, leaf.path),
        (_CODEC, I32, number(_number(held, _CODEC, 7))),
        (_VALUES, I64, number(values)),
        (_PLAIN_BYTES, I64, number(plain)),
        (_BYTES, I64, number(length)),
        (_DATA_PAGE, I64, number(first)),
    ]
    start = first
    if dictionary:
        at = _number(held, _DICTIONARY_PAGE, size)
        written.append((_DICTIONARY_PAGE, I64, number(at)))
        start = min(first, at)
    if start + length > size:
        raise ValueError("a column chunk that ends beyond the file")
    place = (2, I64, number(first))
    text = thrift.struct([place, (_METADATA, STRUCT, thrift.struct(written))])
    return ColumnChunk(start, length, dictionary, values, plain), text


def _structs(
    fields: ThriftFields, number: int, default: list[ThriftFields] | None = None
) -> list[ThriftFields]:
    found = fields.get(number, default)
    if not isinstance(found, list):
        raise ValueError("no list where one must be")
    return found


def _number(fields: ThriftFields, number: int, most: int) -> int:
    """An integer from 0 to `most`."""
    found = fields.get(number)
    if not isinstance(found, int) or not 0 <= found <= most:
        raise ValueError("no number where one must be, or one out of range")
    return found


def _text(fields: ThriftFields, number: int) -> bytes:
    found = fields.get(number)
    if not isinstance(found, bytes):
        raise ValueError("no text where one must be")
    return found
