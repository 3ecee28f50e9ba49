"""Schemas of Parquet files: read from a footer, checked, and written anew for Arrow.

https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from fitplug.files import thrift
from fitplug.files.thrift import BINARY, I32, I64, LIST, STRUCT, ThriftFields

_MAGIC = b"PAR1"
_ARROW_SCHEMA = b"ARROW:schema"  # the key under which Arrow describes types of its own
_DEEPEST = 64
_LONGEST_WRITER = 200
_REPEATED = 2
_MOST = 2**62

# The numbers of fields: of the file, of a schema element, of a row group, of a column chunk.
_VERSION, _SCHEMA, _NUM_ROWS, _GROUPS, _KEYS, _WRITER = range(1, 7)
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION = range(1, 9)
_FIELD_ID, _LOGICAL = 9, 10
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_PLACE, _METADATA = 2, 3
_CHUNK_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _PLAIN_BYTES, _BYTES = range(1, 8)
_DATA_PAGE, _DICTIONARY_PAGE = 9, 11

_ENCODINGS_GIVEN = thrift.encode_list(I32, [thrift.encode_integer(0)])
"""A field that the format requires and Arrow does not use."""

_KEPT_SCHEMAS = 128
"""Schemas that are kept in memory, as files of one source mostly share one."""


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
        codec: The number of the compression.
        data_page: The position of the first data page.
        dictionary_page: The position of the dictionary, 0 if there is none.
    """

    start: int
    bytes: int
    dictionary: bool
    values: int
    plain_bytes: int
    codec: int
    data_page: int
    dictionary_page: int


class Leaf(NamedTuple):
    """A column, its physical type, and the names on its path as an encoded list."""

    column: Column
    type: int
    path: bytes


class RowGroup(NamedTuple):
    """The number of rows of a row group, and chunks by the positions of their columns."""

    rows: int
    chunks: Mapping[int, ColumnChunk]


class MovedGroup(NamedTuple):
    """A row group whose bytes lie elsewhere than in its own file.

    Attributes:
        group: The row group.
        distances: By the positions of the columns, how many bytes further behind the chunk lies.
    """

    group: RowGroup
    distances: Mapping[int, int]


@dataclass(frozen=True)
class ParquetSchema:
    """The columns of a Parquet file, and what Arrow must know to read their pages.

    Attributes:
        version: The version of the format.
        elements: The elements of the schema as the file holds them.
        arrow_schema: The schema in Arrow's own types, None if the file does not hold it.
        writer: The program that wrote the file, None if it does not say so.
        leaves: The columns.
    """

    version: int
    elements: tuple[bytes, ...]
    arrow_schema: bytes | None
    writer: bytes | None
    leaves: tuple[Leaf, ...] = field(repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process, where equal schemas are again one."""
        return make_schema, (self.version, self.elements, self.arrow_schema, self.writer)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns."""
        return tuple(leaf.column for leaf in self.leaves)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The position of the first column of each path."""
        return {leaf.column.path: i for i, leaf in reversed(list(enumerate(self.leaves)))}

    def encode_file(self, groups: Sequence[RowGroup]) -> bytes:
        """Encode a Parquet file that has a footer and no rows.

        Args:
            groups: The row groups. Columns without a chunk must not be read.
        """
        return self.encode_moved([MovedGroup(group, {}) for group in groups])

    def encode_moved(self, moved: Sequence[MovedGroup]) -> bytes:
        """Encode the footer of row groups that lie elsewhere, as `encode_file` does."""
        rows = sum(group.rows for group, _ in moved)
        encoded = [self._encode_group(group, distances) for group, distances in moved]
        footer = (
            self._encoded_head
            + bytes((1 << 4 | I64,))
            + thrift.encode_integer(rows)
            + bytes((1 << 4 | LIST,))
            + thrift.encode_list(STRUCT, encoded)
            + self._encoded_end
        )
        return _MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC

    @cached_property
    def _encoded_head(self) -> bytes:
        """The fields before the number of rows."""
        elements = [_encode_element(element) for element in _read_elements(self.elements)]
        head = [
            (_VERSION, I32, thrift.encode_integer(self.version)),
            (_SCHEMA, LIST, thrift.encode_list(STRUCT, elements)),
        ]
        return thrift.encode_struct(head)[:-1]

    @cached_property
    def _encoded_end(self) -> bytes:
        """The fields behind the row groups, and the end of the footer."""
        # A field's number is written as the distance from the field before it.
        fields: list[tuple[int, int, bytes]] = []
        if self.arrow_schema is not None:
            pair = [(1, _ARROW_SCHEMA), (2, self.arrow_schema)]
            schema = thrift.encode_struct(
                (number, BINARY, thrift.encode_binary(text)) for number, text in pair
            )
            fields.append((_KEYS - _GROUPS, LIST, thrift.encode_list(STRUCT, [schema])))
        writer = self.writer
        if writer is not None and len(writer) <= _LONGEST_WRITER and writer.isascii():
            # Arrow reads the pages of some old writers in another way.
            fields.append((_WRITER - _GROUPS, BINARY, thrift.encode_binary(writer)))
        return thrift.encode_struct(fields)

    def _encode_group(self, group: RowGroup, distances: Mapping[int, int]) -> bytes:
        chunks, encoders = group.chunks, self._chunk_encoders
        columns = list(self._absent_chunks)
        for i, chunk in chunks.items():
            columns[i] = encoders[i].encode(chunk, distances.get(i, 0))
        plain_bytes = sum(chunk.plain_bytes for chunk in chunks.values())
        return thrift.encode_struct(
            [
                (_COLUMNS, LIST, thrift.encode_list(STRUCT, columns)),
                (_GROUP_BYTES, I64, thrift.encode_integer(plain_bytes)),
                (_GROUP_ROWS, I64, thrift.encode_integer(group.rows)),
            ]
        )

    @cached_property
    def _chunk_encoders(self) -> tuple[_ChunkEncoder, ...]:
        return tuple(map(_ChunkEncoder, self.leaves))

    @cached_property
    def _absent_chunks(self) -> tuple[bytes, ...]:
        return tuple(encoder.absent for encoder in self._chunk_encoders)


class _ChunkEncoder:
    """How the chunks of one column are encoded.

    Attributes:
        absent: A chunk without values, of a column that is not read.
    """

    def __init__(self, leaf: Leaf) -> None:
        fields = [
            (_CHUNK_TYPE, I32, thrift.encode_integer(leaf.type)),
            (_ENCODINGS, LIST, _ENCODINGS_GIVEN),
            (_PATH, LIST, leaf.path),
        ]
        self._head = thrift.encode_struct(fields)[:-1]
        self.absent = self.encode(ColumnChunk(4, 0, False, 0, 0, 0, 4, 0))

    def encode(self, chunk: ColumnChunk, distance: int = 0) -> bytes:
        encode, data_page = thrift.encode_integer, chunk.data_page + distance
        fields = [
            (_CODEC, I32, encode(chunk.codec)),
            (_VALUES, I64, encode(chunk.values)),
            (_PLAIN_BYTES, I64, encode(chunk.plain_bytes)),
            (_BYTES, I64, encode(chunk.bytes)),
            (_DATA_PAGE, I64, encode(data_page)),
        ]
        if chunk.dictionary:
            fields.append((_DICTIONARY_PAGE, I64, encode(chunk.dictionary_page + distance)))
        relative = [(number - _PATH, kind, value) for number, kind, value in fields]
        metadata = self._head + thrift.encode_struct(relative)
        place = (_PLACE, I64, encode(data_page))
        return thrift.encode_struct([place, (_METADATA, STRUCT, metadata)])


@lru_cache(_KEPT_SCHEMAS)
def make_schema(
    version: int, elements: tuple[bytes, ...], arrow_schema: bytes | None, writer: bytes | None
) -> ParquetSchema:
    """Check a schema.

    Args:
        version: The version of the format.
        elements: The elements of the schema, each an encoded struct.
        arrow_schema: The schema in Arrow's own types, if the file holds it.
        writer: The program that wrote the file, if it says so.

    Raises:
        ValueError: The schema contradicts itself.
        IndexError: An element does not end.
    """
    fields = _read_elements(elements)
    schema = ParquetSchema(version, elements, arrow_schema, writer, tuple(_iterate_leaves(fields)))
    schema.encode_file([])  # The elements that are encoded for Arrow are checked now.
    return schema


def find_arrow_schema(metadata: Mapping[bytes, bytes]) -> bytes | None:
    """Return the schema in Arrow's own types from the keys and values of a footer."""
    return metadata.get(_ARROW_SCHEMA)


def get_number(fields: ThriftFields, number: int, most: int) -> int:
    """Return a field that is an integer from 0 to `most`.

    Raises:
        ValueError: It is not.
    """
    found = fields.get(number)
    if not isinstance(found, int) or not 0 <= found <= most:
        raise ValueError("no number where one must be, or one out of range")
    return found


def get_text(fields: ThriftFields, number: int) -> bytes:
    """Return a field that is a text, or a struct left as its bytes.

    Raises:
        ValueError: It is neither.
    """
    found = fields.get(number)
    if not isinstance(found, bytes):
        raise ValueError("no text where one must be")
    return found


def _read_elements(elements: Sequence[bytes]) -> list[ThriftFields]:
    return [thrift.read_struct(element, 0, {_LOGICAL: None})[0] for element in elements]


def _iterate_leaves(elements: Sequence[ThriftFields]) -> Iterator[Leaf]:
    """Yield the leaves of a schema, whose elements stand in the order of a walk from the root."""
    if not elements or _TYPE in elements[0]:
        raise ValueError("a schema without root")
    # The children that are still to come: of the root, of its open child, and so on.
    open_groups = [get_number(elements[0], _CHILDREN, _MOST)]
    names: list[bytes] = []
    repeated = [False]
    for element in elements[1:]:
        while open_groups and not open_groups[-1]:
            _ = open_groups.pop(), repeated.pop()
            names = names[: len(open_groups) - 1]
        if not open_groups:
            raise ValueError("elements beyond the schema's root")
        open_groups[-1] -= 1
        path = [*names, get_text(element, _NAME)]
        many = repeated[-1] or element.get(_REPETITION) == _REPEATED
        if _TYPE in element:
            if element.get(_CHILDREN):
                raise ValueError("a value that has children")
            text = b".".join(path).decode()
            encoded = thrift.encode_list(BINARY, [thrift.encode_binary(name) for name in path])
            yield Leaf(Column(text, not many), get_number(element, _TYPE, 7), encoded)
            continue
        names = path
        open_groups.append(get_number(element, _CHILDREN, _MOST))
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
        (number, I32, thrift.encode_integer(get_number(element, number, most[number])))
        for number in most
        if number in element
    ]
    encoded += [
        (number, I32, thrift.encode_integer(get_number(element, number, 2**31 - 1)))
        for number in (_SCALE, _PRECISION)
        if number in element
    ]
    number = element.get(_FIELD_ID)  # lakes know columns by it, as names change
    if isinstance(number, int) and abs(number) < 2**31:
        encoded.append((_FIELD_ID, I32, thrift.encode_integer(number)))
    encoded.append((_NAME, BINARY, thrift.encode_binary(get_text(element, _NAME))))
    if _LOGICAL in element:
        encoded.append((_LOGICAL, STRUCT, get_text(element, _LOGICAL)))
    return thrift.encode_struct(sorted(encoded))
