"""Parquet: the header and the row groups of a Parquet file, as Arrow reads them.

With some damaged footers, `metadata.row_group(g).column(c)` and pickling the metadata crash the
process. Nothing here uses either, and tests forbid it. Everything else raises on damage. PyArrow's
errors may quote values, so callers do not pass them on. Damage goes unnoticed if a footer leaves
out the last rows of a row group consistently in all of its totals, since no reader looks at the
rest of the pages.

Row groups of files in stores are read ahead by threads that mostly wait for the store. Each column
is a separate request, so that all threads have one under way.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from fitplug_dask.files.checked_file import (
    Batches,
    CheckedFile,
    DamagedFileError,
    Header,
    ReadRowGroup,
)
from fitplug_dask.sources import BlockReader, Format, Location, State, get_request_pool

_ENCRYPTED_COLUMNS_FAULT = (
    "has encrypted columns, and fitplug cannot decrypt Parquet. Store it unencrypted."
)
_SUMMARY_FAULT = (
    "is only a summary of other files. Remove this file, or name the files that hold the rows."
)

_INT96_UNIT = "us"  # of old timestamps: nanoseconds would wrap beyond the year 2262
_FOOTER_ENDS = 12  # bytes: the magic numbers at both ends of a file, and the length of the footer
_MOST_ROWS = 2**48  # sums over files then stay below 2^63
_LARGEST_FOOTER = 2**14
"""The largest footer, in bytes, that travels with every task that reads the file."""

_LEAST_TAIL, _MOST_TAIL, _TAIL_SHARE = 2**13, 2**16, 1000
"""A file in a store is first read at its end to find the footer: about 1/1000 of the file, between
these numbers of bytes."""

_LOCAL_BUFFER = 2**20
_STORE_BUFFER = 2**22  # a request to a store takes as long as reading a few MB
_STORE_BUFFERS = 2**25

_DICTIONARY_BYTES = 2**20
"""The size of a dictionary, in bytes, above which its column is read as plain text. Writers give up
a dictionary of about this size, and every batch would repeat all distinct values so far."""

_AHEAD_VALUES = 2**23
"""About how many values a task requests from a store ahead of their use. Larger row groups are not
read ahead."""
_WHOLE_FILE = 2**18  # the largest file in a store, in bytes, that one request reads whole
_WHOLE_ROWS = 2**16
"""The most rows of a local file's only row group that are read at once."""


def read_parquet_header(location: Location, state: State) -> Header:
    """Return the header of a Parquet file.

    Raises:
        DamagedFileError: The file is only a summary of other files.
        Exception: The footer is damaged.
    """
    content = None if location.options is None else _read_footer(location, state)
    source = pa.OSFile(location.path) if content is None else pa.BufferReader(content)
    with source, _open_parquet(source) as parquet:
        footer, schema = parquet.metadata, parquet.schema_arrow
    rows = tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups))
    if min(rows, default=0) < 0 or not sum(rows) == footer.num_rows <= _MOST_ROWS:
        raise ValueError("its row groups do not add up to its number of rows")
    if sum(rows) and footer.num_columns and footer.serialized_size + _FOOTER_ENDS >= state[0]:
        raise DamagedFileError(_SUMMARY_FAULT)
    travels = content is not None and len(content) <= _LARGEST_FOOTER
    return Header(schema, rows, True, sum(rows), content if travels else None)


def _read_footer(location: Location, state: State) -> bytes:
    """Return the footer of a file in a store, as a file without rows; one request usually suffices.

    It travels as bytes, because pickling damaged metadata crashes the process.
    """
    size, stored = state[0], location.store(state)
    read = min(size, max(_LEAST_TAIL, min(_MOST_TAIL, size // _TAIL_SHARE)))
    tail = stored.read_range(size - read, size)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > size:
        raise ValueError("no footer")
    if length > len(tail):
        tail = stored.read_range(size - length, size)
    return b"PAR1" + tail[-length:]


def _open_parquet(source: Any, footer: bytes | None = None, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(
        source,
        metadata=None if footer is None else pq.read_metadata(pa.BufferReader(footer)),
        coerce_int96_timestamp_unit=_INT96_UNIT,
        pre_buffer=False,  # otherwise Arrow's threads would read an entire row group into memory
        page_checksum_verification=True,
        **options,
    )


@contextmanager
def open_parquet_row_groups(file: CheckedFile) -> Iterator[ReadRowGroup]:
    """Open a Parquet file on disk or in a store for reading its row groups batch by batch."""
    if file.location.options is None and len(file.rows) == 1 and file.rows[0] <= _WHOLE_ROWS:
        yield lambda row_group, rows: _explain_encryption(_read_whole(file, row_group, rows))
        return
    dictionaries = set(file.dictionaries)
    opened: dict[frozenset[str], pq.ParquetFile] = {}  # by the columns read as dictionaries
    in_store = file.location.options is not None
    buffer = _choose_store_buffer(len(file.columns)) if in_store else _LOCAL_BUFFER
    with closing(
        BlockReader(file.location.store(file.state), buffer)
        if in_store
        else pa.OSFile(file.location.path)
    ) as source:

        def read_batches(row_group: int, rows: int) -> Batches:
            wanted = frozenset(dictionaries)
            if wanted not in opened:
                opened[wanted] = _open_parquet(
                    source,
                    file.footer,
                    read_dictionary=list(wanted),
                    buffer_size=buffer if file.size > buffer else 0,
                )
            # Arrow's threads would only compete with the scheduler's.
            return opened[wanted].iter_batches(
                rows, [row_group], list(file.columns), use_threads=False
            )

        def read_row_group(row_group: int, rows: int) -> Batches:
            done = 0
            while True:
                end = 0
                try:
                    for batch in read_batches(row_group, rows):
                        begin, end = end, end + batch.num_rows
                        if end > done:
                            yield batch.slice(max(0, done - begin))
                            done = end
                        if large := dictionaries.intersection(_list_large_dictionaries(batch)):
                            dictionaries.difference_update(large)
                            if done < file.rows[row_group]:
                                break  # and read it again, skipping the rows already yielded
                    else:
                        return
                except OSError as error:
                    if error.errno is not None or not dictionaries:
                        raise
                    dictionaries.clear()  # Arrow cannot read some encodings as dictionaries

        yield lambda row_group, rows: _explain_encryption(read_row_group(row_group, rows))


def _read_whole(file: CheckedFile, row_group: int, rows: int) -> Batches:
    yield from _read_columns(file, row_group, file.columns).to_batches(rows)


def _choose_store_buffer(columns: int) -> int:
    """Return how many bytes of each column are requested at once; as many again are read ahead."""
    return max(_LOCAL_BUFFER // 4, min(_STORE_BUFFER, _STORE_BUFFERS // max(1, columns)))


def _list_large_dictionaries(batch: Any) -> list[str]:
    return [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if pt.is_dictionary(column.type) and column.dictionary.nbytes > _DICTIONARY_BYTES
    ]


def _explain_encryption(batches: Batches) -> Batches:
    """Yield batches. Raise DamagedFileError for encrypted columns, which headers do not show."""
    try:
        yield from batches
        return
    except OSError as error:  # Arrow's, without a number
        if error.errno is not None or "decrypt" not in str(error).lower():
            raise
    raise DamagedFileError(_ENCRYPTED_COLUMNS_FAULT)


class ReadAhead:
    """Reads row groups of Parquet files in stores ahead of their use, one after the other."""

    def __init__(self, row_groups: Iterable[tuple[CheckedFile, int]]) -> None:
        """Take the row groups in the order of their use, of files for which `reads` is true."""
        self._waiting = deque(row_groups)
        self._requested: deque[list[Future[Any]]] = deque()
        self._values = 0

    def close(self) -> None:
        """Cancel all requests."""
        for futures in self._requested:
            for future in futures:
                future.cancel()

    @staticmethod
    def reads(file: CheckedFile) -> bool:
        """Return whether a file is in a store and all of its row groups are small enough."""
        return (
            file.format is Format.PARQUET
            and file.location.options is not None
            and bool(file.columns)
            and max(file.rows, default=0) * len(file.columns) <= _AHEAD_VALUES
        )

    def read(self, file: CheckedFile, row_group: int, rows: int) -> Batches:
        """Yield the batches of the next row group, each of at most `rows` rows.

        Raises:
            StoreError: The store does not send the bytes.
            Exception: The row group is damaged.
        """
        yield from _explain_encryption(self._await_next(file, row_group, rows))

    def _await_next(self, file: CheckedFile, row_group: int, rows: int) -> Batches:
        self._request()
        tables = [future.result() for future in self._requested.popleft()]
        self._values -= file.rows[row_group] * len(file.columns)
        columns = {name: table[name] for table in tables for name in table.column_names}
        yield from pa.table(columns).to_batches(rows)

    def _request(self) -> None:
        """Request row groups until enough values are under way."""
        pool = get_request_pool()
        while self._waiting and (not self._requested or self._values < _AHEAD_VALUES):
            file, row_group = self._waiting.popleft()
            self._values += file.rows[row_group] * len(file.columns)
            stored = file.name_stored()
            # A small file takes one request; others take one for each column of a row group.
            asked = [stored.columns]
            if stored.size > _WHOLE_FILE:
                asked = [(name,) for name in stored.columns]
            self._requested.append(
                [pool.submit(_read_columns, stored, row_group, names) for names in asked]
            )


def _read_columns(file: CheckedFile, row_group: int, columns: Sequence[str]) -> Any:
    """Read whole columns of a row group. `file.columns` must be names as the file stores them."""
    local = file.location.options is None
    opened = pa.OSFile(file.location.path) if local else file.open(sequential=False)
    with closing(opened):
        source = opened if local or file.size <= _WHOLE_FILE else opened.raw

        def read(dictionaries: Sequence[str]) -> Any:
            with _open_parquet(source, file.footer, read_dictionary=list(dictionaries)) as parquet:
                return parquet.read_row_group(row_group, list(columns), use_threads=False)

        try:
            table = read(file.dictionaries)
        except OSError as error:
            if error.errno is not None or not file.dictionaries:
                raise
            table = read(())  # Arrow cannot read some encodings as dictionaries
    if table.num_rows <= _WHOLE_ROWS:
        return table
    for batch in table.to_batches()[-1:]:
        for name in _list_large_dictionaries(batch):
            plain = table[name].cast(table[name].type.value_type)
            table = table.set_column(table.column_names.index(name), name, plain)
    return table


# A page header begins with three integers. The fourth one is the checksum, if the page has one;
# otherwise, the number of another field follows.
_CHECKED_PAGE = re.compile(rb"(?:\x15[\x80-\xff]*[\x00-\x7f]){4}")
_FIRST_PAGE = 4  # after the magic bytes; writers put nothing else there
_HEADER_BYTES = 2**10
_LOCAL_FILES, _STORED_FILES = 100, 2


def sample_checksums(files: Sequence[CheckedFile]) -> tuple[int, int]:
    """Look for a checksum in the first page of a sample of the Parquet files.

    Checksums are optional, and most files have none; the files of one writer either all have them
    or all lack them. Without a checksum, a flipped bit in a page may change a value unnoticed. Each
    count logs this once.

    Returns:
        The number of inspected files whose first page has no checksum, and of all inspected files.
    """
    parquet = [file for file in files if file.format is Format.PARQUET and not file.left_out]
    in_store = any(file.location.options is not None for file in parquet)
    step = -(-len(parquet) // (_STORED_FILES if in_store else _LOCAL_FILES)) or 1
    checksums = [_has_checksum(file) for file in parquet[::step]]
    known = [has for has in checksums if has is not None]
    return known.count(False), len(known)


def _has_checksum(file: CheckedFile) -> bool | None:
    """Return whether the first page of a file has a checksum; None if that is unknown."""
    if not any(file.rows):
        return None
    try:
        with closing(file.open(sequential=False)) as source:
            source.raw.seek(_FIRST_PAGE)  # the buffered reader would read more
            return _CHECKED_PAGE.match(source.raw.read(_HEADER_BYTES)) is not None
    except Exception:  # reading the file later reports what is wrong with it
        return None
