"""Portions: row groups of Parquet files that are fetched and decoded together.

Each request to a store, and each file that Arrow opens, takes time however few bytes there are.
So row groups with the same schema make a portion. All its bytes are fetched at once, while the
portion before is decoded, and Arrow decodes it as the row groups of one file in memory, whose
footer is made here.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fitplug.files import MovedGroup, RowGroup
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
    def bytes(self) -> int:
        """The number of bytes of the wanted columns."""
        return self.layout.bytes[self.row_group]

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
        return sum(member.bytes for member in self.members)


class Piece(NamedTuple):
    """Bytes of a file, and the position of the first."""

    start: int
    content: bytes


class Fetched(NamedTuple):
    """The bytes of a row group's column chunks.

    Attributes:
        content: The bytes of all pieces, one behind the other.
        distances: By the positions of the columns, how many bytes further behind a chunk lies in
            the content than in its file.
    """

    content: bytes
    distances: Mapping[int, int]


def can_be_portioned(file: CheckedFile, row_group: int) -> bool:
    """Return whether a row group may be read as a part of a portion."""
    if file.layout is None or not file.columns or file.has_deletions:
        return False
    size = file.layout.bytes[row_group]
    return size <= (
        _LARGEST_LOCAL_GROUP if file.location.options is None else _LARGEST_STORED_GROUP
    )


def cut_portions(members: Iterable[Member]) -> Iterator[Portion]:
    """Cut row groups into portions of neighbours."""
    held: list[Member] = []
    size = plain = 0
    for member in members:
        more = member.bytes
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


def join_pieces(member: Member, pieces: Sequence[Piece]) -> Fetched:
    """Return the bytes of a row group, laid one behind the other."""
    content = pieces[0].content if len(pieces) == 1 else b"".join(p.content for p in pieces)
    distances = {}
    for i, chunk in member.group.chunks.items():
        place = 0
        for piece in pieces:
            end = piece.start + len(piece.content)
            if piece.start <= chunk.start and chunk.start + chunk.bytes <= end:
                distances[i] = place - piece.start
            place += len(piece.content)
    return Fetched(content, distances)


def holds_pages(member: Member, fetched: Fetched) -> bool:
    """Return whether the pages of a row group hold the rows that the footer says.

    This must be known before Arrow reads the pages.

    Args:
        member: The row group.
        fetched: Its bytes.

    Raises:
        Exception: The bytes are no pages.
    """
    file, group = io.BytesIO(fetched.content), member.group
    return all(
        holds_rows(file, chunk, group.rows, 0, fetched.distances[i])
        for i, chunk in group.chunks.items()
    )


def decode(members: Sequence[Member], fetched: Sequence[Fetched], rows: int) -> Batches:
    """Yield the rows of row groups in batches of at most `rows`.

    Args:
        members: The row groups.
        fetched: The bytes of each.
        rows: The most rows of a batch.

    Raises:
        Exception: The bytes are damaged. The words may quote values.
    """
    groups = []
    place = len(_HEAD)
    for member, (content, distances) in zip(members, fetched, strict=True):
        moved = {i: distance + place for i, distance in distances.items()}
        groups.append(MovedGroup(member.group, moved))
        place += len(content)
    content = b"".join([_HEAD, *(held.content for held in fetched)])
    file, schema = members[0].file.name_stored(), members[0].layout.schema
    large = sum(member.group.rows for member in members) >= _DICTIONARY_ROWS * len(members)
    with pq.ParquetFile(
        pa.BufferReader(content),
        metadata=pq.read_metadata(pa.BufferReader(schema.encode_moved(groups))),
        coerce_int96_timestamp_unit=INT96_UNIT,
        read_dictionary=list(file.dictionaries) if large else None,
        pre_buffer=False,
        page_checksum_verification=True,
    ) as parquet:
        yield from parquet.iter_batches(
            rows, range(len(groups)), list(file.columns), use_threads=False
        )
