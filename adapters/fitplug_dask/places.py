"""Places: where a file lies, on this machine or in a store, how it is opened and how it stands.

Whatever a store or its client says in an exception may hold credentials: callers drop it.
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

_IN_ORDER_BYTES = 2**22  # a request to a store takes as long as a few MB
_ANYWHERE_BYTES = 2**18

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::.*)?://")
_LOCAL = ("file://", "local://")
_SECRETS = re.compile(r"(?<=://).*:.*@|(?<=://)[^/@]*@|[?#].*")

UNMARKED = "ukey="
"""How stamps begin of files whose store tells nothing of their content or its time."""

# What stores tell of a file's content and time, by the names that file systems of fsspec use.
_MARKS = (
    *("ETag", "etag", "md5Hash", "md5", "content_md5", "Content-MD5", "Digest", "checksum"),
    *("VersionId", "version_id", "version", "generation"),
    *("LastModified", "Last-Modified", "last_modified", "modified", "mtime", "updated", "created"),
)


def is_url(text: str) -> bool:
    """Whether this names a file in a store and not a local path."""
    return bool(_SCHEME.match(text)) and not text.startswith(_LOCAL)


def local_path(text: str) -> str:
    """A local path, with the scheme `file://` left out."""
    for scheme in _LOCAL:
        if text.startswith(scheme):
            return text[len(scheme) :]
    return text


def shown(url: str) -> str:
    """A URL without what may be a credential in it: users, passwords and queries."""
    return _SECRETS.sub("", url) if is_url(url) else url


@dataclass(frozen=True, repr=False)
class Place:
    """path: absolute if local, else a URL; options: None if local, else how to reach the store."""

    path: str
    options: Options | None = field(default=None, hash=False)

    def __repr__(self) -> str:
        return f"Place({shown(self.path)!r})"

    def state(self) -> tuple[int, str]:
        """Size in bytes, and a stamp that another content does not have. Raises what stores raise.

        Of local files the stamp holds the times of the last change of content and of the file's
        record: copying, renaming or resetting times changes the latter. It holds no inode, as
        some network mounts number the same file differently on every machine.
        """
        if self.options is None:
            now = os.stat(self.path)  # noqa: PTH116 (a plain path travels to workers)
            return now.st_size, f"mtime={now.st_mtime_ns} ctime={now.st_ctime_ns}"
        system, path = file_system(self.path, self.options)
        system.invalidate_cache(path)
        info = system.info(path)
        marks = [f"{name}={info[name]}" for name in _MARKS if info.get(name) is not None]
        return int(info["size"]), " ".join(marks) or f"{UNMARKED}{system.ukey(path)}"

    def open(self, *, in_order: bool) -> Any:
        """The file for reading bytes; in_order: from the beginning to the end."""
        if self.options is None:
            return open(self.path, "rb")  # noqa: PTH123 (the caller closes it)
        ranges = _Ranges(*file_system(self.path, self.options))
        return io.BufferedReader(ranges, _IN_ORDER_BYTES if in_order else _ANYWHERE_BYTES)


class _Ranges(io.RawIOBase):
    """A file in a store as ranges of bytes.

    The files that file systems open themselves are not for this: some are one for all threads,
    and some read far ahead, again and again where columns are read in turns.
    """

    def __init__(self, system: Any, path: str) -> None:
        self._system, self._path = system, path
        self._size = int(system.info(path)["size"])
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        read = self._system.cat_file(self._path, start=self._at, end=end)
        if len(read) != end - self._at:
            raise OSError("the store gives other ranges than asked for")
        buffer[: len(read)] = read
        self._at = end
        return len(read)


def file_system(url: str, options: Options) -> tuple[Any, str]:
    """The file system of fsspec that a URL names, and the path in it. Raises what that raises."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url, **options)
    return system, path
