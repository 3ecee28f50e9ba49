"""Locations: where a file lies, on this machine or in a store, how it is opened, and its state.

An exception of a store or of its client may hold credentials. Callers never pass its text on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from fitplug_dask.sources import range_requests
from fitplug_dask.sources.range_requests import (
    REQUESTS,
    StoredObject,
    find_kind,
    find_strong_tag,
)
from fitplug_dask.sources.store_errors import StoreError, guard_secrets, retry
from fitplug_dask.sources.stored_bytes import open_stored_file

Options: TypeAlias = Mapping[str, Any]
"""Keywords of a file system of fsspec, such as credentials."""

State: TypeAlias = tuple[int, str]
"""The size of a file in bytes, and a stamp that changes whenever its content changes."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::.*)?://")
_S3_SCHEMES = ("s3://", "s3a://")
_HTTP_SCHEMES = ("http://", "https://")
_LOCAL_SCHEMES = ("file://", "local://")
_SECRETS = re.compile(r"(?<=://).*:.*@|(?<=://)[^/@]*@|[?#].*")

_TAGGED = "strong ETag="  # the prefix of a stamp that requests can name

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
        listed: The state of a file that the listing of its store told, None if it told none.
    """

    path: str
    options: Options | None = field(default=None, hash=False)
    listed: State | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"Location({redact_url(self.path)!r})"

    def read_state(self) -> State:
        """Return the size in bytes and a stamp that changes whenever the content changes.

        The stamp of a local file holds the times of the last change of its content and of its
        record: copying, renaming or resetting times changes the latter. It holds no inode, as
        some network mounts number the same file differently on every machine.

        Raises:
            OSError: There is no such local file, or it cannot be read.
            StoreError: The store cannot be asked.
            FileNotFoundError: The store does not have the file.
        """
        if self.options is None:
            return describe_local_state(os.stat(self.path))  # noqa: PTH116 (a plain path)
        options = self.options

        def ask() -> State:
            system, path = open_file_system(self.path, options)
            system.invalidate_cache(path)
            return describe_state(system, path, system.info(path))

        return retry(ask)

    def proves_state(self, stamp: str) -> bool:
        """Return whether all bytes that are read are those of the state with this stamp.

        Then the state need not be read again, before or after the bytes.
        """
        if self.options is None or not stamp.startswith(_TAGGED):
            return False
        return bool(guard_secrets(lambda: find_kind(self._open_system()[0])))

    def store(self, state: State) -> StoredObject:
        """Return the file in its store, whose bytes are those of this state where that is provable.

        Raises:
            StoreError: The store cannot be reached.
            ImportError: A package for the store is missing.
        """
        system, path = guard_secrets(self._open_system)
        size, stamp = state
        tag = stamp.removeprefix(_TAGGED) if stamp.startswith(_TAGGED) else None
        return StoredObject(system, path, size, tag if find_kind(system) else None)

    def open(self, *, sequential: bool, state: State | None = None) -> Any:
        """Open the file for reading bytes.

        Args:
            sequential: Whether it will be read from the beginning to the end. Otherwise it may be
                read at any offset.
            state: The state that the file must have. None asks a store for it.
        """
        if self.options is None:
            return open(self.path, "rb")  # noqa: PTH123 (the caller closes it)
        stored = self.store(self.read_state() if state is None else state)
        return open_stored_file(stored, sequential=sequential)

    def _open_system(self) -> tuple[Any, str]:
        assert self.options is not None
        return open_file_system(self.path, self.options)


def locate(path: str, options: Options | None) -> Location:
    """Return where a file of a table lies: a URL, or a local path, also one with a scheme."""
    if is_url(path):
        return Location(path, options or {})
    if path.startswith("file:") and not path.startswith("file://"):
        path = path.removeprefix("file:")
    return Location(str(Path(strip_local_scheme(path)).absolute()))


def describe_local_state(now: os.stat_result) -> State:
    """Return the size and the stamp of a local file."""
    return now.st_size, f"mtime={now.st_mtime_ns} ctime={now.st_ctime_ns}"


def describe_state(system: Any, path: str, info: Mapping[str, Any]) -> State:
    """Return the size and the stamp of a file by what a file system of fsspec says of it."""
    size = info["size"]
    if size is None:
        raise StoreError("has no size that its server tells; use a local copy")
    tag = find_strong_tag(system, info)
    if tag is not None:
        return int(size), f"{_TAGGED}{tag}"
    fields = [f"{name}={info[name]}" for name in _STAMP_FIELDS if info.get(name) is not None]
    return int(size), " ".join(fields) or f"{UNTRACKED}{system.ukey(path)}"


def open_file_system(url: str, options: Options) -> tuple[Any, str]:
    """Return the file system of fsspec that a URL names, and the path of the URL in it.

    Raises:
        Exception: Whatever the client of the store raises.
    """
    from fsspec.core import url_to_fs

    if url.startswith(_S3_SCHEMES):
        # Its client allows 10 connections otherwise, and makes attempts of its own beside ours.
        client = {
            "max_pool_connections": REQUESTS,
            "retries": {"total_max_attempts": 2},
            "connect_timeout": range_requests.LEAST_SECONDS,
            "read_timeout": range_requests.LEAST_SECONDS,
        }
        options = {**options, "config_kwargs": {**client, **options.get("config_kwargs", {})}}
    elif url.startswith(_HTTP_SCHEMES):
        # Its client waits 300 seconds otherwise for a server that takes requests and is silent.
        from aiohttp import ClientTimeout

        limit = range_requests.LEAST_SECONDS
        client = {"timeout": ClientTimeout(total=None, sock_connect=limit, sock_read=limit)}
        options = {**options, "client_kwargs": {**client, **options.get("client_kwargs", {})}}
    system, path = url_to_fs(url, **options)
    if url.startswith(_S3_SCHEMES):
        system.retries = 1  # as its file system does, too
    return system, path
