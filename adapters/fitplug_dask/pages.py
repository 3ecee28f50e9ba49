"""Pages: how many values the pages of a Parquet column chunk hold, by their own headers.

Readers stop where the footer says that the rows end, whatever the pages hold; only this tells a
footer that leaves rows out. https://parquet.apache.org/docs/file-format/data-pages/
"""

from __future__ import annotations

from typing import Any

from fitplug.footers import Chunk
from fitplug.thrift import Fields, Wanted, read_struct

_COMPRESSED_SIZE, _DATA, _DATA_V2, _VALUES = 3, 5, 8, 1
_WANTED: Wanted = {_DATA: {}, _DATA_V2: {}}
_HEADER_BYTES = 2**10
_LARGEST_HEADER = 2**24  # headers may hold the least and the largest value of a page


def chunk_agrees(file: Any, chunk: Chunk, rows: int, read_ahead: int) -> bool:
    """Whether the pages of a column chunk hold `rows` values, the number that the footer says, and
    no page is left beyond these. Raises anything on bytes that are no pages.

    file: open for reading bytes at any place; chunk: of a column that holds one value a row;
    read_ahead: bytes to read at a time.
    """
    start, end = chunk.start, chunk.start + chunk.bytes
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


def _values(page: Fields) -> int:
    data = [page[field] for field in (_DATA, _DATA_V2) if field in page]
    return sum(header[_VALUES] for header in data)


def _page(file: Any, start: int, ahead: bytes, within: int) -> tuple[Fields, int]:
    """The header of a page that starts there, and where its data start. ahead: bytes that were
    read; within: where the page starts among them.
    """
    size = _HEADER_BYTES
    while True:
        try:
            page, end = read_struct(ahead, within, _WANTED)
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
