"""Pages: how many values the pages of a Parquet column chunk hold, by their own headers.

Readers stop where the footer says that the rows end, whatever the pages hold; only this tells a
footer that leaves rows out. https://parquet.apache.org/docs/file-format/data-pages/
"""

from __future__ import annotations

from typing import Any

_COMPRESSED_SIZE, _DATA, _DATA_V2, _VALUES = 3, 5, 8, 1
_BYTE, _DOUBLE, _BINARY, _STRUCT = 3, 7, 8, 12  # between the first two are the integers
_BYTES = {1: 0, 2: 0, _BYTE: 1, _DOUBLE: 8}  # 1 and 2 are true and false
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
        page, data = _page(file, start, ahead, start - at)
        if page[_COMPRESSED_SIZE] < 0 or _values(page) < 0:
            raise ValueError("no page header")
        values += _values(page)
        start = data + page[_COMPRESSED_SIZE]
    return bool(values == rows)


def _values(page: dict[int, Any]) -> int:
    data = [page[field] for field in (_DATA, _DATA_V2) if field in page]
    return sum(header[_VALUES] for header in data)


def _page(file: Any, start: int, ahead: bytes, within: int) -> tuple[dict[int, Any], int]:
    """The header of a page that starts there, and where its data start. ahead: bytes that were
    read; within: where the page starts among them.
    """
    size = _HEADER_BYTES
    while True:
        try:
            page, end = _struct(ahead, within)
            return page, start + end - within
        except IndexError:
            size *= 8
            if size > _LARGEST_HEADER:
                raise ValueError("no page header") from None
            ahead, within = _read(file, start, size), 0


def _read(file: Any, start: int, size: int) -> bytes:
    file.seek(start)
    read: bytes = file.read(size)
    return read


# Thrift's compact protocol, as far as page headers use it: what begins at a place, and where the
# next begins. Beyond the last byte there is an IndexError.


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        step, kind = head >> 4, head & 15
        at += 1
        if step:
            number += step
        else:
            number, at = _integer(data, at)
        if _BYTE < kind < _DOUBLE:
            fields[number], at = _integer(data, at)
        elif kind == _STRUCT:
            fields[number], at = _struct(data, at)
        else:
            fields[number], at = None, _beyond(data, at, kind)
    return fields, at + 1


def _beyond(data: bytes, at: int, kind: int) -> int:
    """The place after a value that tells nothing here."""
    if kind in _BYTES:
        return at + _BYTES[kind]
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    raise ValueError("no field of a page header")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("no number of a page header")
