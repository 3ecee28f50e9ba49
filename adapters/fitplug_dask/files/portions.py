"""Portions: row groups of Parquet files that are fetched and decoded together.

Each request to a store, and each file that Arrow opens, takes time however few bytes there are.
So row groups with the same schema make a portion. All its bytes are fetched at once, while the
portion before is decoded, and Arrow decodes it as the row groups of one file in memory, whose
footer is made here.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fitplug.files import ColumnChunk, RowGroup
from fitplug_dask.files.checked_file import Batches, CheckedFile, ParquetLayout
from fitplug_dask.files.parquet_pages import holds_rows

INT96_UNIT = "us"  # of old timestamps: nanoseconds would wrap beyond the year 2262

_HEAD = b"PAR1"  # no page may begin at position 0, which stands for no page

_PORTION_BYTES = 2**24
_PORTION_PLAIN_BYTES = 2**26
_PORTION_GROUPS = 2**8
_LARGEST_STORED_GROUP = 2**25
_LARGEST_LOCAL_GROUP = 2**20
"""Bytes of the wanted columns of a row group up to which local files are read as portions. To open
a file takes as long as to decode about as many bytes."""

_DICTIONARY_ROWS = 2**12
"""Rows of a row group from which its texts are read as a dictionary. Batches end where dictionaries
do, and many small batches take longer than plain texts."""

PAD_BYTES = 100
"""Bytes behind a column chunk that are read with it: old writers left the header of the dictionary
out of the number of its bytes, and Arrow reads on."""


class Member(NamedTuple):
    """One row group of a file."""

    file: CheckedFile
    row_group: int

    @property
    def layout(self) -> ParquetLayout:
        """Where the columns lie."""
        assert self.file.layout is not None
        return self.file.layout

    @property
    def group(self) -> RowGroup:
        """The row group: its rows, and its chunks by the positions of their columns."""
        return self.layout.groups[self.row_group]


@dataclass(frozen=True)
class Portion:
    """Row groups that are decoded together. Their files share the schema and the folder codes.

    Attributes:
        members: The row groups, neighbours in the order of the files.
    """

    members: tuple[Member, ...]

    @property
    def file(self) -> CheckedFile:
        """The first file. What all files share may be asked of it."""
        return self.members[0].file

    @property
    def rows(self) -> int:
        """The number of rows. CONFIDENTIAL."""
        return sum(member.group.rows for member in self.members)

    @property
    def bytes(self) -> int:
        """The number of bytes of the wanted columns."""
        return sum(map(_count_bytes, self.members))


class Piece(NamedTuple):
    """Bytes of a file, and the position of the first."""

    start: int
    content: bytes


def can_be_portioned(file: CheckedFile, row_group: int) -> bool:
    """Return whether a row group may be read as a part of a portion."""
    if file.layout is None or not file.columns or file.has_deletions:
        return False
    size = _count_bytes(Member(file, row_group))
    return size <= (
        _LARGEST_LOCAL_GROUP if file.location.options is None else _LARGEST_STORED_GROUP
    )


def cut_portions(members: Iterable[Member]) -> Iterator[Portion]:
    """Cut row groups into portions of neighbours."""
    held: list[Member] = []
    size = plain = 0
    for member in members:
        more = _count_bytes(member)
        more_plain = sum(chunk.plain_bytes for chunk in member.group.chunks.values())
        full = (
            size + more > _PORTION_BYTES
            or plain + more_plain > _PORTION_PLAIN_BYTES
            or len(held) == _PORTION_GROUPS
        )
        if held and (full or not _go_together(held[0], member)):
            yield Portion(tuple(held))
            held, size, plain = [], 0, 0
        held.append(member)
        size, plain = size + more, plain + more_plain
    if held:
        yield Portion(tuple(held))


def _count_bytes(member: Member) -> int:
    return sum(chunk.bytes for chunk in member.group.chunks.values())


def _go_together(one: Member, other: Member) -> bool:
    """Return whether two row groups may be decoded together."""
    a, b = one.file, other.file
    return a is b or (
        one.layout.schema == other.layout.schema
        and a.columns == b.columns
        and a.adaptation == b.adaptation
        and a.folder_codes == b.folder_codes
        and (a.location.options is None) == (b.location.options is None)
    )


def holds_pages(member: Member, pieces: Sequence[Piece]) -> bool:
    """Return whether the pages of a row group hold the rows that the footer says.

    This must be known before Arrow reads the pages.

    Args:
        member: The row group.
        pieces: The bytes of its column chunks.
    """
    content = _join_pieces(pieces)
    file = io.BytesIO(content.content)
    rows = member.group.rows
    return all(
        holds_rows(file, content.move(chunk), rows, 0) for chunk in member.group.chunks.values()
    )


def decode(members: Sequence[Member], fetched: Sequence[Sequence[Piece]], rows: int) -> Batches:
    """Yield the rows of row groups in batches of at most `rows`.

    Args:
        members: The row groups.
        fetched: The bytes of the column chunks of each.
        rows: The most rows of a batch.

    Raises:
        Exception: The bytes are damaged. The words may quote values.
    """
    content = _join_pieces([piece for pieces in fetched for piece in pieces])
    groups = []
    first = 0
    for member, pieces in zip(members, fetched, strict=True):
        held = content.select(first, len(pieces))
        first += len(pieces)
        chunks = {i: held.move(chunk) for i, chunk in member.group.chunks.items()}
        groups.append(RowGroup(member.group.rows, chunks))
    file, layout = members[0].file.name_stored(), members[0].layout
    with _open_in_memory(layout, groups, content.content, file, rows) as parquet:
        yield from parquet.iter_batches(
            rows, range(len(groups)), list(file.columns), use_threads=False
        )


@contextmanager
def _open_in_memory(
    layout: ParquetLayout,
    groups: Sequence[RowGroup],
    content: bytes,
    file: CheckedFile,
    rows: int,
) -> Iterator[Any]:
    large = sum(group.rows for group in groups) >= _DICTIONARY_ROWS * len(groups)
    footer = layout.schema.encode_file(groups)
    with pq.ParquetFile(
        pa.BufferReader(content),
        metadata=pq.read_metadata(pa.BufferReader(footer)),
        coerce_int96_timestamp_unit=INT96_UNIT,
        read_dictionary=list(file.dictionaries) if large else None,
        pre_buffer=False,
        page_checksum_verification=True,
    ) as parquet:
        yield parquet


class _Content(NamedTuple):
    """Pieces laid one behind the other.

    Attributes:
        content: The bytes of all pieces.
        starts: Where each piece begins in its file.
        ends: Where each piece ends in its file.
        places: Where each piece begins in the content.
    """

    content: bytes
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    places: tuple[int, ...]

    def select(self, first: int, number: int) -> _Content:
        """Return the content with some neighbouring pieces only, which are those of one file."""
        which = slice(first, first + number)
        return _Content(self.content, self.starts[which], self.ends[which], self.places[which])

    def move(self, chunk: ColumnChunk) -> ColumnChunk:
        """Return a column chunk of the file as it lies in the content."""
        for start, end, place in zip(self.starts, self.ends, self.places, strict=True):
            if start <= chunk.start and chunk.start + chunk.bytes <= end:
                return chunk.move(place - start)
        raise ValueError("a column chunk that was not read")


def _join_pieces(pieces: Sequence[Piece]) -> _Content:
    places = []
    place = len(_HEAD)
    for piece in pieces:
        places.append(place)
        place += len(piece.content)
    return _Content(
        b"".join([_HEAD, *(piece.content for piece in pieces)]),
        tuple(piece.start for piece in pieces),
        tuple(piece.start + len(piece.content) for piece in pieces),
        tuple(places),
    )
