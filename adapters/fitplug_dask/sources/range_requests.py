"""Range requests: bytes of one file in a store, which must be those of a known version of it.

A store that tells a strong ETag is asked for bytes of just that version (If-Match), and what it
answers must bear the same ETag, as some servers ignore the question. Then a request of the state
before and after reading is not needed. The file systems of fsspec offer this for no store, so two
of them are asked more directly here. The others are asked as fsspec does it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fitplug_dask._compat import request_s3_object
from fitplug_dask.sources.store_errors import ChangedError, StoreError, TransientError, retry

REQUESTS = 32
"""Requests that one process has in flight at once. A request mostly waits for the store."""

LEAST_SECONDS, _BYTES_PER_SECOND = 30.0, 2**17
"""A request may take so many seconds, and one more for so many bytes. A store that does not send
anything for so long has failed to answer."""


@dataclass(frozen=True)
class StoredObject:
    """A file in a store.

    Attributes:
        system: The file system of fsspec.
        path: The path in it.
        size: The size in bytes.
        tag: The strong ETag that answers must bear, None if the store tells none.
    """

    system: Any
    path: str
    size: int
    tag: str | None

    def read_range(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to before `end`, after further attempts if need be.

        Raises:
            ChangedError: The store holds another version now.
            StoreError: The bytes cannot be read.
            FileNotFoundError: The store does not have the file.
        """
        if end <= start:
            return b""
        return retry(lambda: self._request(start, end))

    def _request(self, start: int, end: int) -> bytes:
        ask = _REQUESTS.get(find_kind(self.system), _request_plain)
        seconds = LEAST_SECONDS + (end - start) / _BYTES_PER_SECOND
        answer = ask(self, start, end, seconds)
        if self.tag is not None and answer.tag != self.tag:
            raise ChangedError
        if answer.size is not None and answer.size != self.size:
            raise ChangedError
        if len(answer.content) != end - start:
            raise TransientError
        return answer.content


@dataclass(frozen=True)
class _Answer:
    """What a store answers: the bytes, and the ETag and the size of the whole file if told."""

    content: bytes
    tag: str | None = None
    size: int | None = None


def find_kind(system: Any) -> str:
    """Return the protocol of a file system that is asked directly, "" for any other."""
    protocols = getattr(system, "protocol", ())
    held = (protocols,) if isinstance(protocols, str) else tuple(protocols)
    return next((kind for kind in _REQUESTS if kind in held), "")


def find_strong_tag(system: Any, info: Mapping[str, Any]) -> str | None:
    """Return the ETag that requests may name, if the store tells one that they may.

    A weak ETag stands for contents that are not identical, so a range may not be asked by it.
    """
    tag = info.get("ETag")
    if not find_kind(system) or not isinstance(tag, str) or not tag or tag.startswith("W/"):
        return None
    return tag


def _request_http(file: StoredObject, start: int, end: int, seconds: float) -> _Answer:
    from asyncio import wait_for

    from fsspec.asyn import sync

    system = file.system
    headers = {
        **system.kwargs.get("headers", {}),
        "Accept-Encoding": "identity",
        "Range": f"bytes={start}-{end - 1}",
    }
    if file.tag is not None:
        headers["If-Match"] = file.tag

    async def fetch() -> _Answer:
        session = await system.set_session()
        url = system.encode_url(file.path)
        async with session.get(url, **{**system.kwargs, "headers": headers}) as response:
            response.raise_for_status()
            tag, told = response.headers.get("ETag"), response.headers.get("Content-Range", "")
            if response.status != 206 and (start, end) != (0, file.size):
                raise StoreError(
                    "cannot be read in parts: its server sends whole files only; use a local copy"
                )
            return _Answer(await response.read(), tag, _parse_total(told))

    return sync(system.loop, lambda: wait_for(fetch(), seconds))


def _request_s3(file: StoredObject, start: int, end: int, seconds: float) -> _Answer:
    content, headers = request_s3_object(file.system, file.path, start, end, file.tag, seconds)
    return _Answer(content, headers.get("ETag"), _parse_total(headers.get("ContentRange", "")))


def _request_plain(file: StoredObject, start: int, end: int, seconds: float) -> _Answer:
    """Ask as fsspec does it, which takes no limit: the clients of these stores have their own."""
    return _Answer(file.system.cat_file(file.path, start=start, end=end))


def _parse_total(content_range: str) -> int | None:
    """Return the size of the whole file that the header Content-Range tells, if it does."""
    total = content_range.rpartition("/")[2]
    return int(total) if total.isdecimal() else None


_REQUESTS: dict[str, Callable[[StoredObject, int, int, float], _Answer]] = {
    "http": _request_http,
    "https": _request_http,
    "s3": _request_s3,
}

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
