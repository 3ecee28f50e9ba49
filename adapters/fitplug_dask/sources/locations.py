"""Locations: where a file is, on this machine or in a store, how it is opened, and its state.

Files in stores are read ahead. The file objects of fsspec are not suitable for this: some are
shared by all threads, and some read far ahead again and again if columns are read in turn.

Exceptions of a store or its client may contain credentials, so callers never pass their text on.
"""

from __future__ import annotations

import io
import os
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fitplug.files import is_url, redact_url
from fitplug_dask.sources.stores import (
    Options,
    State,
    StoredObject,
    find_tag,
    get_request_pool,
    guard_secrets,
    open_store,
)

_BLOCK_BYTES = 2**22  # a request to a store takes as long as the transfer of a few MB
_FIRST_BLOCK_BYTES = 2**18  # enough to read only the names of the columns
_BLOCKS_AHEAD = 4
_RANDOM_ACCESS_BYTES = 2**18

_LOCAL_SCHEMES = ("file://", "local://")


def strip_local_scheme(text: str) -> str:
    """Return a local path without the scheme `file://` or `local://`."""
    for scheme in _LOCAL_SCHEMES:
        if text.startswith(scheme):
            return text[len(scheme) :]
    return text


@dataclass(frozen=True, repr=False)
class Location:
    """Where a file is and how it is opened.

    Attributes:
        path: An absolute local path, or a URL.
        options: How to reach the store of a URL; None for a local path.
        listed: The state of the file in the listing of its store; None if the listing has none.
    """

    path: str
    options: Options | None = field(default=None, hash=False)
    listed: State | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"Location({redact_url(self.path)!r})"

    def read_state(self) -> State:
        """Return the size in bytes and a stamp that changes whenever the content changes.

        The stamp of a local file consists of its mtime and ctime: copying or renaming the file, or
        resetting its times, changes the ctime. The inode is not used because some network mounts
        give the same file different inodes on different machines.

        Raises:
            OSError: There is no such local file, or it cannot be read.
            StoreError: The store cannot be reached.
            FileNotFoundError: The store does not have the file.
        """
        if self.options is None:
            now = os.stat(self.path)  # noqa: PTH116 (a plain path)
            return now.st_size, f"mtime={now.st_mtime_ns} ctime={now.st_ctime_ns}"
        options = self.options

        def ask() -> State:
            store, path = open_store(self.path, options)
            return store.read_state(path)

        return guard_secrets(ask)

    def proves_state(self, stamp: str) -> bool:
        """Return whether every read is guaranteed to return bytes of the state with this stamp.

        If so, the state need not be read again before or after the bytes.
        """
        return self.options is not None and find_tag(stamp) is not None

    def store(self, state: State) -> StoredObject:
        """Return the file in its store; reads check that it still has this state, if they can.

        Raises:
            StoreError: The store cannot be reached.
            ImportError: A package for the store is missing.
        """
        assert self.options is not None
        options, (size, stamp) = self.options, state
        store, path = guard_secrets(lambda: open_store(self.path, options))
        return StoredObject(store, path, size, find_tag(stamp))

    def open(self, *, sequential: bool, state: State | None = None) -> Any:
        """Open the file for reading bytes.

        Args:
            sequential: Whether it will be read from beginning to end. Otherwise it may be read at
                any offset.
            state: The state that the file must have. If None, a store is asked for it.
        """
        if self.options is None:
            return open(self.path, "rb")  # noqa: PTH123 (the caller closes it)
        stored = self.store(self.read_state() if state is None else state)
        if sequential:
            return io.BufferedReader(_SequentialReader(stored), _BLOCK_BYTES)
        return io.BufferedReader(_RangeReader(stored), _RANDOM_ACCESS_BYTES)


def locate(path: str, options: Options | None) -> Location:
    """Return the location of a table's file, given its URL or local path, even with a scheme."""
    if is_url(path):
        return Location(path, options or {})
    if path.startswith("file:") and not path.startswith("file://"):
        path = path.removeprefix("file:")
    return Location(str(Path(strip_local_scheme(path)).absolute()))


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


class BlockReader(_RangeReader):
    """A file in a store, of which several regions are read in turn, each in blocks of one size.

    After each full block, the next block is requested ahead. A shorter read ends a region.
    """

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
        content = b""
        if start in self._ahead:
            content = self._ahead.pop(start).result()
        if start + len(content) < end:
            content += self._stored.read_range(start + len(content), end)
        behind = min(end + self._block, self._stored.size)
        if size == self._block and end < behind:
            self._ahead[end] = get_request_pool().submit(self._stored.read_range, end, behind)
        return content[: end - start]

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
        """Keep `blocks` requests under way as long as bytes are left."""
        pool = get_request_pool()
        while len(self._ahead) < blocks and self._requested < self._stored.size:
            start = self._requested
            block = _BLOCK_BYTES if start else _FIRST_BLOCK_BYTES
            self._requested = min(start + block, self._stored.size)
            self._ahead.append(pool.submit(self._stored.read_range, start, self._requested))
