"""Stored bytes: a file in a store as a file object, with requests ahead of the reader.

The file objects that file systems of fsspec open do not serve here: some are shared by all
threads, and some read far ahead, again and again where columns are read in turns.
"""

from __future__ import annotations

import io
from collections import deque
from concurrent.futures import Future
from typing import Any

from fitplug_dask.sources.stores import StoredObject, get_request_pool

_BLOCK_BYTES = 2**22  # a request to a store takes as long as the transfer of a few MB
_FIRST_BLOCK_BYTES = 2**18  # enough for who reads the names of the columns
_BLOCKS_AHEAD = 4
_RANDOM_ACCESS_BYTES = 2**18


def open_stored_file(stored: StoredObject, *, sequential: bool) -> Any:
    """Open a file in a store for reading from the beginning to the end, or at any offset."""
    if sequential:
        return io.BufferedReader(_SequentialReader(stored), _BLOCK_BYTES)
    return io.BufferedReader(_RangeReader(stored), _RANDOM_ACCESS_BYTES)


def open_stored_blocks(stored: StoredObject, block: int) -> Any:
    """Open a file in a store for reading regions of it in turns, each in blocks of so many bytes.

    Reading fewer bytes ends a region.
    """
    return _BlockReader(stored, block)


class _RangeReader(io.RawIOBase):
    """A file in a store, read as ranges of bytes."""

    def __init__(self, stored: StoredObject) -> None:
        self._stored = stored
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._offset = offset + (0, self._offset, self._stored.size)[whence]
        return self._offset

    def readinto(self, buffer: Any) -> int:
        end = min(self._offset + len(buffer), self._stored.size)
        if end <= self._offset:
            return 0
        read = self._stored.read_range(self._offset, end)
        buffer[: len(read)] = read
        self._offset = end
        return len(read)


class _BlockReader(_RangeReader):
    """A file in a store, where the block behind each that is read is requested ahead."""

    def __init__(self, stored: StoredObject, block: int) -> None:
        super().__init__(stored)
        self._block = block
        self._ahead: dict[int, Future[bytes]] = {}

    def read(self, size: int = -1) -> bytes:
        start = self._offset
        end = self._stored.size if size < 0 else min(start + size, self._stored.size)
        if end <= start:
            return b""
        self._offset = end
        held = b""
        if start in self._ahead:
            held = self._ahead.pop(start).result()
        if start + len(held) < end:
            held += self._stored.read_range(start + len(held), end)
        behind = min(end + self._block, self._stored.size)
        if size == self._block and end < behind:
            self._ahead[end] = get_request_pool().submit(self._stored.read_range, end, behind)
        return held[: end - start]

    def close(self) -> None:
        for request in self._ahead.values():
            request.cancel()
        self._ahead.clear()
        super().close()


class _SequentialReader(io.RawIOBase):
    """A file in a store, read from the beginning with some requests ahead."""

    def __init__(self, stored: StoredObject) -> None:
        self._stored = stored
        self._requested = 0
        self._ahead: deque[Future[bytes]] = deque()
        self._block = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._block:
            self._request(_BLOCKS_AHEAD if self._requested else 1)
            if not self._ahead:
                return 0
            self._block = memoryview(self._ahead.popleft().result())
        size = min(len(buffer), len(self._block))
        buffer[:size] = self._block[:size]
        self._block = self._block[size:]
        return size

    def close(self) -> None:
        for request in self._ahead:
            request.cancel()
        self._ahead.clear()
        super().close()

    def _request(self, blocks: int) -> None:
        """Have so many requests under way, as long as bytes are left."""
        pool = get_request_pool()
        while len(self._ahead) < blocks and self._requested < self._stored.size:
            start = self._requested
            block = _BLOCK_BYTES if start else _FIRST_BLOCK_BYTES
            self._requested = min(start + block, self._stored.size)
            self._ahead.append(pool.submit(self._stored.read_range, start, self._requested))
