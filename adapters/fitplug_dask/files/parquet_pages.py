"""Parquet pages: how many values the pages of a column chunk hold, by their own headers.

Readers stop where the footer says that the rows end, whatever the pages hold. So only the headers
of the pages reveal a footer that leaves rows out.
https://parquet.apache.org/docs/file-format/data-pages/
"""

from __future__ import annotations

from typing import Any

from fitplug.files import ColumnChunk, ThriftFields, WantedFields, read_struct

# Numbers of fields in the Thrift definition of a page header, and of the structures in it.
_SIZE, _COMPRESSED_SIZE, _DATA, _DICTIONARY, _DATA_V2, _VALUES = 2, 3, 5, 7, 8, 1
_WANTED: WantedFields = {_DATA: {}, _DICTIONARY: {}, _DATA_V2: {}}

_USUAL_PAGE = 2**26  # bytes that a page may have whatever the footer says of all pages
_SLACK = 100  # bytes of dictionaries' headers, which old writers left out of the footer
_HEADER_BYTES = 2**10
_LARGEST_HEADER = 2**24  # headers may hold the least and the largest value of a page


def holds_rows(
    file: Any, chunk: ColumnChunk, rows: int, read_ahead: int, distance: int = 0
) -> bool:
    """Return whether the pages of a column chunk hold exactly `rows` values.

    No page may follow these values, and none may say that it takes more bytes than all pages do:
    Arrow would fill these bytes with zeros.

    Args:
        file: A file open for reading bytes at any offset.
        chunk: A chunk of a column that holds one value for each row.
        rows: The number of rows that the footer says.
        read_ahead: The number of bytes to read at once.
        distance: How many bytes further behind the chunk lies than it says.

    Raises:
        Exception: The bytes are no pages.
    """
    start = chunk.start + distance
    end = start + chunk.bytes
    values = 0
    buffer, offset = b"", start  # the bytes read, and where they begin in the file
    while values < rows or start < end:
        if not offset <= start <= offset + len(buffer) - _HEADER_BYTES:
            buffer, offset = _read(file, start, max(read_ahead, _HEADER_BYTES)), start
        page, data = _read_page_header(file, start, buffer, start - offset)
        values += _count_values(page)
        start = data + page[_COMPRESSED_SIZE]
        largest = max(chunk.plain_bytes, _USUAL_PAGE)
        if start > end + _SLACK or not 0 <= page[_SIZE] <= largest or page[_COMPRESSED_SIZE] < 0:
            raise ValueError("no page of this column chunk")
    return bool(values == rows)


def _count_values(page: ThriftFields) -> int:
    """Return the number of values of a data page, 0 for a dictionary page."""
    data = [page[field][_VALUES] for field in (_DATA, _DATA_V2) if field in page]
    entries = page[_DICTIONARY][_VALUES] if _DICTIONARY in page else 0
    # An entry of a dictionary takes at least one byte.
    if min(data, default=0) < 0 or not 0 <= entries <= page[_SIZE]:
        raise ValueError("no page header")
    return sum(data)


def _read_page_header(
    file: Any, start: int, buffer: bytes, within: int
) -> tuple[ThriftFields, int]:
    """Return the header of the page that begins at `start`, and the offset of its data.

    Args:
        file: The file, for a header that the buffer does not hold entirely.
        start: The offset of the page in the file.
        buffer: Bytes that were read.
        within: The offset of the page in the buffer.
    """
    size = _HEADER_BYTES
    while True:
        try:
            page, end = read_struct(buffer, within, _WANTED)
            return page, start + end - within
        except IndexError:
            size *= 8
            if size > _LARGEST_HEADER:
                raise ValueError("no page header") from None
            buffer, within = _read(file, start, size), 0


def _read(file: Any, start: int, size: int) -> bytes:
    file.seek(start)
    read: bytes = file.read(size)
    return read
