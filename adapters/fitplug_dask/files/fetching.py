"""Fetching: the bytes of portions, from local files when needed, and from stores ahead of that."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import NamedTuple, TypeAlias

from fitplug_dask.files.checked_file import CheckedFile
from fitplug_dask.files.local_reads import open_local, read_at
from fitplug_dask.files.portions import PAD_BYTES, Fetched, Member, Piece, Portion, join_pieces
from fitplug_dask.sources import ChangedError, describe_local_state, get_request_pool

_AHEAD_BYTES = 2**26
"""Bytes that one task has requested and not yet decoded, about."""

_REQUEST_BYTES = 2**23  # of the largest request; larger ranges are requested in parts at once
_LEAST_GAP, _GAP_SHARE = 2**12, 1 / 16
"""Ranges are joined over a gap of few bytes, or as long as all gaps are a small share of what is
wanted."""


Fetch: TypeAlias = Callable[[], Fetched]
"""Returns the bytes of the column chunks of one row group."""


class Range(NamedTuple):
    """The bytes from `start` to before `end`."""

    start: int
    end: int


def join_ranges(wanted: Sequence[Range]) -> list[Range]:
    """Join neighbouring ranges, the closest first; the bytes between them stay a small share.

    Args:
        wanted: The ranges, in any order. They may overlap.

    Returns:
        The ranges to request, in order, that together hold all that is wanted.
    """
    apart: list[Range] = []
    for held in sorted(wanted):
        if apart and held.start <= apart[-1].end:
            apart[-1] = Range(apart[-1].start, max(apart[-1].end, held.end))
        else:
            apart.append(held)
    gaps = sorted((b.start - a.end, i) for i, (a, b) in enumerate(itertools.pairwise(apart), 1))
    budget = int(sum(held.end - held.start for held in apart) * _GAP_SHARE)
    bridged = set()
    for gap, i in gaps:
        budget -= gap
        if gap > _LEAST_GAP and budget < 0:
            break
        bridged.add(i)
    joined: list[Range] = []
    for i, held in enumerate(apart):
        if i in bridged:
            joined[-1] = Range(joined[-1].start, held.end)
        else:
            joined.append(held)
    return joined


def find_ranges(member: Member) -> list[Range]:
    """Return the ranges of bytes to read of a row group."""
    size = member.file.size
    chunks = member.group.chunks.values()
    return join_ranges(
        [Range(chunk.start, min(chunk.start + chunk.bytes + PAD_BYTES, size)) for chunk in chunks]
    )


class Fetcher:
    """The bytes of some portions, one portion after the other.

    Those of files in stores are requested ahead. Closing it gives up all requests.
    """

    def __init__(self, portions: Sequence[Portion]) -> None:
        self._waiting = deque(portions)
        self._requested: deque[tuple[Portion, list[list[_Request]]]] = deque()
        self._bytes = 0

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _, members in self._requested:
            for requests in members:
                for request in requests:
                    for future in request.parts:
                        future.cancel()

    def fetch(self) -> Iterator[tuple[Member, Fetch]]:
        """Yield the row groups of the next portion, each with a function that fetches its bytes.

        The function raises what `StoredObject.read_range` raises, and OSError or ChangedError for
        a local file.
        """
        self._request_ahead()
        portion, members = self._requested.popleft()
        self._bytes -= portion.bytes
        for member, requests in zip(portion.members, members, strict=True):
            if member.file.location.options is None:
                yield member, partial(_read_local, member)
            else:
                yield member, partial(_await_pieces, member, requests)

    def _request_ahead(self) -> None:
        while self._waiting and (not self._requested or self._bytes < _AHEAD_BYTES):
            portion = self._waiting.popleft()
            self._bytes += portion.bytes
            self._requested.append((portion, [_request(member) for member in portion.members]))


class _Request(NamedTuple):
    """A range of bytes that was requested in parts."""

    start: int
    parts: list[Future[bytes]]


def _await_pieces(member: Member, requests: Sequence[_Request]) -> Fetched:
    """Return the bytes that were requested when they are there."""
    pieces = [
        Piece(request.start, b"".join([part.result() for part in request.parts]))
        for request in requests
    ]
    return join_pieces(member, pieces)


def _request(member: Member) -> list[_Request]:
    """Request the bytes of a row group if its file is in a store."""
    file = member.file
    if file.location.options is None:
        return []
    pool, opened = get_request_pool(), _OpenedLater(file)
    return [
        _Request(
            start,
            [
                pool.submit(opened.read_range, begin, min(begin + _REQUEST_BYTES, end))
                for begin in range(start, end, _REQUEST_BYTES)
            ],
        )
        for start, end in find_ranges(member)
    ]


class _OpenedLater:
    """A file in a store, whose client is made in a thread that waits for it anyway."""

    def __init__(self, file: CheckedFile) -> None:
        self._file = file

    def read_range(self, start: int, end: int) -> bytes:
        file = self._file
        return file.location.store(file.state).read_range(start, end)


def _read_local(member: Member) -> Fetched:
    """Read the bytes of a row group of a local file, which must be unchanged before and after."""
    file = member.file
    descriptor = open_local(file.location.path)
    try:
        _check_unchanged(descriptor, file)
        pieces = [
            Piece(start, _read_exactly(descriptor, start, end))
            for start, end in find_ranges(member)
        ]
        _check_unchanged(descriptor, file)
    finally:
        os.close(descriptor)
    return join_pieces(member, pieces)


def _check_unchanged(descriptor: int, file: CheckedFile) -> None:
    if describe_local_state(os.fstat(descriptor)) != file.state:
        raise ChangedError


def _read_exactly(descriptor: int, start: int, end: int) -> bytes:
    """Read bytes of a local file. A file that ends before was changed."""
    content = read_at(descriptor, end - start, start)
    while len(content) < end - start:
        more = read_at(descriptor, end - start - len(content), start + len(content))
        if not more:
            raise ChangedError
        content += more
    return content
