"""Pages: how many values the pages of a Parquet column chunk hold, by their own headers.

Readers stop where the footer says that the rows end, whatever the pages hold; only this tells a
footer that leaves rows out. https://parquet.apache.org/docs/file-format/data-pages/
"""

from __future__ import annotations

from typing import Any

from fitplug.files import Chunk, Fields, Wanted, read_struct

_SIZE, _COMPRESSED_SIZE, _DATA, _DICTIONARY, _DATA_V2, _VALUES = 2, 3, 5, 7, 8, 1
_WANTED: Wanted = {_DATA: {}, _DICTIONARY: {}, _DATA_V2: {}}
_USUAL_PAGE = 2**26  # bytes that a page may have whatever the footer says of all pages
_SLACK = 100  # bytes of dictionaries' headers, which old writers left out of the footer
_HEADER_BYTES = 2**10
_LARGEST_HEADER = 2**24  # headers may hold the least and the largest value of a page


def chunk_agrees(file: Any, chunk: Chunk, rows: int, read_ahead: int) -> bool:
    """Whether the pages of a column chunk hold `rows` values, the number that the footer says, and
    no page is left beyond these, nor says that it takes more bytes than all of them: Arrow would
    fill these with zeros. Raises anything on bytes that are no pages.

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
        values += _values(page)
        start = data + page[_COMPRESSED_SIZE]
        most = max(chunk.plain_bytes, _USUAL_PAGE)
        if start > end + _SLACK or not 0 <= page[_SIZE] <= most or page[_COMPRESSED_SIZE] < 0:
            raise ValueError("no page of this column chunk")
    return bool(values == rows)


def _values(page: Fields) -> int:
    data = [page[field][_VALUES] for field in (_DATA, _DATA_V2) if field in page]
    entries = page[_DICTIONARY][_VALUES] if _DICTIONARY in page else 0
    # An entry of a dictionary takes a byte at least.
    if min(data, default=0) < 0 or not 0 <= entries <= page[_SIZE]:
        raise ValueError("no page header")
    return sum(data)


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
