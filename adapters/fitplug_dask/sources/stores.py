"""Stores: listing the files in a store, reading their states, and reading ranges of bytes.

S3, Google Cloud Storage, Azure and HTTP are reached through `obstore`, which repeats requests that
fail temporarily. If a store gives a strong ETag, only bytes of that version are requested
(If-Match), and the answer must have the same ETag, because some servers ignore If-Match. The state
then need not be requested before and after reading. Other schemes are reached through the file
systems of fsspec, which do not support If-Match.

An exception of a store's client may contain credentials. Its text is dropped here, and its type
determines the message.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

from fitplug.errors import FitplugError
from fitplug.files import OBJECT_SCHEMES, open_object_store
from fitplug_dask._compat import is_short_answer

if TYPE_CHECKING:
    from obstore import GetOptions

T = TypeVar("T")

Options: TypeAlias = Mapping[str, Any]
"""How a store is reached, such as credentials."""

State: TypeAlias = tuple[int, str]
"""The size of a file in bytes, and a stamp that changes whenever its content changes."""

REQUESTS = 32
"""The number of requests in flight from one process. A request mostly waits for the store."""

_TAGGED = "strong ETag="  # the prefix of a stamp that requests can require

UNTRACKED = "ukey="
"""The prefix of the stamp of a file whose store gives neither a checksum, a version nor a time."""

# Fields about a file's version and time, under the names that file systems of fsspec use.
_STAMP_FIELDS = (
    *("ETag", "etag", "md5Hash", "md5", "content_md5", "Content-MD5", "Digest", "checksum"),
    *("VersionId", "version_id", "version", "generation"),
    *("LastModified", "Last-Modified", "last_modified", "modified", "mtime", "updated", "created"),
)

_SHORT_ANSWERS = 8  # attempts to read a range of which a store sends only a part
_WAIT_SECONDS = 0.1


class StoreError(Exception):
    """A file in a store cannot be read. The text completes a sentence that begins with its path.

    Attributes:
        fault: The text, unless another is given.
        raised: The name of the exception of the store's client, "" if there was none.
    """

    fault = "cannot be read. Check the URL and storage_options."

    def __init__(self, fault: str | None = None, raised: str = "") -> None:
        super().__init__(fault or self.fault)
        self.raised = raised


class AccessError(StoreError):
    """The store refuses the credentials, or there are none."""

    fault = "cannot be accessed. Check the credentials in storage_options."


class ChangedError(StoreError):
    """The content in the store has changed since the snapshot."""

    fault = "changed during the count. Count again when nothing writes to it."


class UnansweredError(StoreError):
    """Requests failed repeatedly, but may succeed later."""

    fault = "cannot be read now: its store repeatedly failed to answer. Count again later."


class ShortAnswerError(UnansweredError):
    """The store sent fewer bytes than requested; the request is tried again."""


class RangesError(StoreError):
    """The server does not support requests for ranges."""

    fault = "cannot be read in parts, because its server sends whole files only. Use a local copy."


_MEANINGS: Mapping[str, Callable[[], StoreError]] = {
    "PermissionDeniedError": AccessError,
    "UnauthenticatedError": AccessError,
    "PreconditionError": ChangedError,
    "NotSupportedError": RangesError,
    "GenericError": UnansweredError,  # includes requests that failed repeatedly
}
"""The errors that exceptions of `obstore` become, by the names of their classes."""


def guard_secrets(act: Callable[[], T]) -> T:
    """Return the result of `act`, and replace exceptions of the store's client by our own.

    Raises:
        StoreError: The store cannot be read; the subclass tells why.
        FileNotFoundError: The store does not have the file.
        ImportError: A package for the store is missing.
        FitplugError: `act` raised it, so the message is fitplug's own.
        MemoryError: There is not enough memory.
    """
    try:
        return act()
    except (StoreError, FitplugError, MemoryError):
        raise
    except Exception as error:
        meaning = _classify_error(error)
    raise meaning


def _classify_error(error: Exception) -> Exception:
    """Return our own error for an exception of a store's client, without its text."""
    if isinstance(error, ImportError):
        return ImportError("a package for this store is not installed")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError("the store does not have the file")
    if isinstance(error, PermissionError):
        return AccessError()
    if isinstance(error, (TimeoutError, ConnectionError)):
        return UnansweredError()
    name = type(error).__name__
    if is_short_answer(error):
        return ShortAnswerError()
    return _MEANINGS.get(name, lambda: StoreError(raised=name))()


class Store(Protocol):
    """A store. Paths of files neither begin nor end with a slash. Any exception may be raised."""

    def read_state(self, path: str) -> State:
        """Return the state of a file; raise FileNotFoundError if there is none."""

    def list_states(self, folder: str) -> dict[str, State | None]:
        """Return all files at any depth below a folder, with states if the listing has them."""

    def read_range(self, path: str, start: int, end: int, size: int, tag: str | None) -> bytes:
        """Return bytes of a file, which must have this size, and this ETag if one is given."""

    def make_url(self, path: str) -> str:
        """Return the URL of a file."""

    @property
    def has_listings(self) -> bool:
        """Whether files can be listed."""


@dataclass(frozen=True)
class ObjectStore:
    """A store opened by `obstore`.

    Attributes:
        store: The store of `obstore`.
        root: The URL to which paths are relative.
    """

    store: Any
    root: str

    def read_state(self, path: str) -> State:
        import obstore
        from obstore import exceptions

        try:
            described = obstore.head(self.store, path)
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
            if not self.root.startswith("http"):
                raise
            # A signed URL only permits getting the file.
            described = obstore.get(self.store, path, options={"range": (0, 1)}).meta
        return _describe_object(described)

    def list_states(self, folder: str) -> dict[str, State | None]:
        import obstore

        listed = obstore.list(self.store, folder or None, chunk_size=1000)
        states = {
            described["path"]: _describe_object(described)
            for chunk in listed
            for described in chunk
            # Some programs mark folders with empty objects.
            if described["size"] or "." in described["path"].rpartition("/")[2]
        }
        # Listings give times with another precision than requests for one file.
        return {
            path: None if find_tag(state[1]) is None else state for path, state in states.items()
        }

    @property
    def has_listings(self) -> bool:
        return not self.root.startswith("http")

    def read_range(self, path: str, start: int, end: int, size: int, tag: str | None) -> bytes:
        import obstore

        asked: GetOptions = {}
        if (start, end) != (0, size):  # some servers send only whole files
            asked["range"] = (start, end)
        if tag is not None:
            asked["if_match"] = tag
        answer = obstore.get(self.store, path, options=asked)
        described = answer.meta
        if described["size"] != size or (tag is not None and _quote_tag(described["e_tag"]) != tag):
            raise ChangedError
        return bytes(answer.bytes())

    def make_url(self, path: str) -> str:
        spelled = quote(path) if self.root.startswith("http") else path
        return f"{self.root}/{spelled}" if path else self.root


def _describe_object(described: Mapping[str, Any]) -> State:
    """Return the size and the stamp of a file from its description by `obstore`.

    Contents with the same weak ETag need not be identical, so a request for a range cannot require
    a weak ETag.
    """
    tag = _quote_tag(described["e_tag"])
    if tag is not None and not tag.startswith("W/"):
        return described["size"], f"{_TAGGED}{tag}"
    modified = described["last_modified"].timestamp()  # 0 if the server does not give it
    if tag is None and not modified:
        return described["size"], f"{UNTRACKED}{described['path']}"
    return described["size"], f"ETag={tag} modified={modified}"


def _quote_tag(tag: str | None) -> str | None:
    """Return an ETag in quotes, which some stores' listings omit."""
    return tag if not tag or tag.endswith('"') else f'"{tag}"'


@dataclass(frozen=True)
class FileSystemStore:
    """A store reached through a file system of fsspec.

    Attributes:
        system: The file system.
    """

    system: Any
    has_listings = True

    def read_state(self, path: str) -> State:
        self.system.invalidate_cache(path)
        described = self.system.info(path)
        if described["type"] == "directory":
            raise FileNotFoundError
        return self._describe(path, described)

    def list_states(self, folder: str) -> dict[str, State | None]:
        self.system.invalidate_cache()
        return dict.fromkeys(self.system.find(folder))

    def read_range(self, path: str, start: int, end: int, size: int, tag: str | None) -> bytes:
        content: bytes = self.system.cat_file(path, start=start, end=end)
        if len(content) != end - start:
            raise ShortAnswerError
        return content

    def make_url(self, path: str) -> str:
        url: str = self.system.unstrip_protocol(path)
        return url

    def _describe(self, path: str, described: Mapping[str, Any]) -> State:
        if described["size"] is None:
            raise StoreError("has an unknown size. Use a local copy.")
        fields = [
            f"{name}={described[name]}" for name in _STAMP_FIELDS if described.get(name) is not None
        ]
        return int(described["size"]), " ".join(fields) or f"{UNTRACKED}{self.system.ukey(path)}"


def open_store(url: str, options: Options) -> tuple[Store, str]:
    """Return the store of a URL, and the path of the URL in it.

    Raises:
        Exception: Any exception of the store's client.
    """
    if url.partition("://")[0].lower() in OBJECT_SCHEMES:
        from fitplug_dask.workers import read_timeout  # it imports Dask

        opened = open_object_store(url, options, read_timeout())
        return ObjectStore(opened.store, opened.root), opened.path
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url, **options)
    return FileSystemStore(system), path


@dataclass(frozen=True)
class StoredObject:
    """A file in a store.

    Attributes:
        store: The store.
        path: The path in it.
        size: The size in bytes.
        tag: The strong ETag that answers must have; None if the store gives none.
    """

    store: Store
    path: str
    size: int
    tag: str | None

    def read_range(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to before `end`, with several attempts if necessary.

        Raises:
            ChangedError: The store now has another version.
            StoreError: The bytes cannot be read.
            FileNotFoundError: The store does not have the file.
        """
        if end <= start:
            return b""
        read = partial(self.store.read_range, self.path, start, end, self.size, self.tag)
        for attempt in range(1, _SHORT_ANSWERS):
            with suppress(ShortAnswerError):
                return guard_secrets(read)
            time.sleep(_WAIT_SECONDS * attempt)
        return guard_secrets(read)


def find_tag(stamp: str) -> str | None:
    """Return the strong ETag of a stamp, which requests can require, or None."""
    return stamp.removeprefix(_TAGGED) if stamp.startswith(_TAGGED) else None


_POOLS: dict[int, ThreadPoolExecutor] = {}
_POOLS_LOCK = threading.Lock()


def get_request_pool() -> ThreadPoolExecutor:
    """Return the threads of this process that wait for stores."""
    with _POOLS_LOCK:
        process = os.getpid()  # a forked process does not have the threads of its parent
        if process not in _POOLS:
            _POOLS.clear()
            _POOLS[process] = ThreadPoolExecutor(REQUESTS, thread_name_prefix="fitplug-store")
        return _POOLS[process]
