"""Pages: how many values the pages of a Parquet column chunk hold, by their own headers.

Readers stop where the footer says that the rows end, whatever the pages hold; only this tells a
footer that leaves rows out. https://parquet.apache.org/docs/file-format/data-pages/
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Any

_COMPRESSED_SIZE, _DATA, _DATA_V2, _VALUES = 3, 5, 8, 1
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_HEADER_BYTES = 2**10
_LARGEST_HEADER = 2**24  # headers may hold the least and the largest value of a page


def chunk_agrees(file: Any, chunk: Any, rows: int, read_ahead: int) -> bool:
    """Whether the pages of a column chunk hold `rows` values, the number that the footer says, and
    no page is left beyond these. Raises anything on bytes that are no pages.

    file: open for reading bytes at any place; chunk: metadata of a column that holds one value a
    row; read_ahead: bytes to read at a time.
    """
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    end = start + chunk.total_compressed_size
    values = 0
    ahead, at = b"", start  # the bytes read, and where they begin
    while values < rows or start < end:
        if not at <= start <= at + len(ahead) - _HEADER_BYTES:
            ahead, at = _read(file, start, max(read_ahead, _HEADER_BYTES)), start
        page, length = _page(file, ahead[start - at :], start)
        if page[_COMPRESSED_SIZE] < 0 or _values(page) < 0:
            raise ValueError("no page header")
        values += _values(page)
        start += length + page[_COMPRESSED_SIZE]
    return bool(values == rows)


def _values(page: dict[int, Any]) -> int:
    header = page.get(_DATA) or page.get(_DATA_V2)
    return int(header[_VALUES]) if header else 0


def _page(file: Any, ahead: bytes, start: int) -> tuple[dict[int, Any], int]:
    """A page's header and its length in bytes."""
    size = _HEADER_BYTES
    while True:
        rest = iter(ahead)
        try:
            return _struct(rest), len(ahead) - length_hint(rest)
        except StopIteration:
            size *= 8
            if size > _LARGEST_HEADER:
                raise ValueError("no page header") from None
            ahead = _read(file, start, size)


def _read(file: Any, start: int, size: int) -> bytes:
    file.seek(start)
    read: bytes = file.read(size)
    return read


# Thrift's compact protocol, as far as page headers use it.


def _struct(rest: Iterator[int]) -> dict[int, Any]:
    fields: dict[int, Any] = {}
    number = 0
    while head := next(rest):
        step, kind = head >> 4, head & 15
        number = number + step if step else _integer(rest)
        fields[number] = _value(rest, kind)
    return fields


def _value(rest: Iterator[int], kind: int) -> Any:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE
    if kind == _BYTE:
        return next(rest)
    if _BYTE < kind < _DOUBLE:
        return _integer(rest)
    if kind == _STRUCT:
        return _struct(rest)
    if kind in (_DOUBLE, _BINARY):
        for _ in range(8 if kind == _DOUBLE else _varint(rest)):
            next(rest)
        return None
    raise ValueError("no field of a page header")


def _integer(rest: Iterator[int]) -> int:
    number = _varint(rest)
    return number >> 1 ^ -(number & 1)


def _varint(rest: Iterator[int]) -> int:
    number = shift = 0
    while True:
        byte = next(rest)
        number |= (byte & 127) << shift
        if byte < 128:
            return number
        shift += 7
