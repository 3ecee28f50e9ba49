"""Locations: where a file lies, on this machine or in a store, how it is opened, and its state.

An exception of a store or of its client may hold credentials. Callers never pass its text on.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Options: TypeAlias = Mapping[str, Any]
"""Keywords of a file system of fsspec, such as credentials."""

_SEQUENTIAL_BYTES = 2**22  # a request to a store takes as long as the transfer of a few MB
_RANDOM_ACCESS_BYTES = 2**18

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::.*)?://")
_LOCAL_SCHEMES = ("file://", "local://")
_SECRETS = re.compile(r"(?<=://).*:.*@|(?<=://)[^/@]*@|[?#].*")

UNTRACKED = "ukey="
"""The prefix of the stamp of a file whose store tells neither a checksum, a version nor a time."""

# What stores tell of a file's content and time, by the names that file systems of fsspec use.
_STAMP_FIELDS = (
    *("ETag", "etag", "md5Hash", "md5", "content_md5", "Content-MD5", "Digest", "checksum"),
    *("VersionId", "version_id", "version", "generation"),
    *("LastModified", "Last-Modified", "last_modified", "modified", "mtime", "updated", "created"),
)


def is_url(text: str) -> bool:
    """Return whether a text names a file in a store and not a local path."""
    return bool(_SCHEME.match(text)) and not text.startswith(_LOCAL_SCHEMES)


def strip_local_scheme(text: str) -> str:
    """Return a local path without the scheme `file://` or `local://`."""
    for scheme in _LOCAL_SCHEMES:
        if text.startswith(scheme):
            return text[len(scheme) :]
    return text


def redact_url(url: str) -> str:
    """Return a URL without users, passwords and queries, which may be credentials."""
    return _SECRETS.sub("", url) if is_url(url) else url


@dataclass(frozen=True, repr=False)
class Location:
    """Where a file lies and how it is opened.

    Attributes:
        path: An absolute local path, or a URL.
        options: How to reach the store of a URL; None for a local path.
    """

    path: str
    options: Options | None = field(default=None, hash=False)

    def __repr__(self) -> str:
        return f"Location({redact_url(self.path)!r})"

    def read_state(self) -> tuple[int, str]:
        """Return the size in bytes and a stamp that changes whenever the content changes.

        The stamp of a local file holds the times of the last change of its content and of its
        record: copying, renaming or resetting times changes the latter. It holds no inode, as
        some network mounts number the same file differently on every machine.

        Raises:
            Exception: Whatever the file system or the client of the store raises.
        """
        if self.options is None:
            now = os.stat(self.path)  # noqa: PTH116 (a plain path travels to workers)
            return now.st_size, f"mtime={now.st_mtime_ns} ctime={now.st_ctime_ns}"
        system, path = open_file_system(self.path, self.options)
        system.invalidate_cache(path)
        info = system.info(path)
        fields = [f"{name}={info[name]}" for name in _STAMP_FIELDS if info.get(name) is not None]
        return int(info["size"]), " ".join(fields) or f"{UNTRACKED}{system.ukey(path)}"

    def open(self, *, sequential: bool) -> Any:
        """Open the file for reading bytes.

        Args:
            sequential: Whether it will be read from the beginning to the end. Otherwise it may be
                read at any offset.
        """
        if self.options is None:
            return open(self.path, "rb")  # noqa: PTH123 (the caller closes it)
        ranges = _RangeReader(*open_file_system(self.path, self.options))
        return io.BufferedReader(ranges, _SEQUENTIAL_BYTES if sequential else _RANDOM_ACCESS_BYTES)


class _RangeReader(io.RawIOBase):
    """A file in a store, read as ranges of bytes.

    The file objects that file systems of fsspec open do not serve here: some are shared by all
    threads, and some read far ahead, again and again where columns are read in turns.
    """

    def __init__(self, system: Any, path: str) -> None:
        self._system, self._path = system, path
        self._size = int(system.info(path)["size"])
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._offset = offset + (0, self._offset, self._size)[whence]
        return self._offset

    def readinto(self, buffer: Any) -> int:
        end = min(self._offset + len(buffer), self._size)
        if end <= self._offset:
            return 0
        read = self._system.cat_file(self._path, start=self._offset, end=end)
        if len(read) != end - self._offset:
            raise OSError("the store returned another range of bytes than was requested")
        buffer[: len(read)] = read
        self._offset = end
        return len(read)


def open_file_system(url: str, options: Options) -> tuple[Any, str]:
    """Return the file system of fsspec that a URL names, and the path of the URL in it.

    Raises:
        Exception: Whatever the client of the store raises.
    """
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url, **options)
    return system, path
