"""Store errors: what keeps a file in a store from being read, in words that hold no credentials.

An exception of a store's client may hold credentials, and each client has exceptions of its own.
So they are sorted here by what they mean, and their text is dropped. Requests that fail in passing
are made again, later and later.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fitplug.errors import FitplugError

T = TypeVar("T")

_ATTEMPTS = 8
_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 10.0
_LONGEST_SECONDS = 180.0
"""After so many seconds no further attempt begins, as clients make attempts of their own, too."""


class StoreError(Exception):
    """A file in a store cannot be read. The text completes a sentence that begins with its path.

    Attributes:
        raised: The name of the exception of the store's client, "" if there was none.
    """

    def __init__(
        self, fault: str = "cannot be read; check the URL and storage_options", raised: str = ""
    ) -> None:
        super().__init__(fault)
        self.raised = raised


class AccessError(StoreError):
    """The store refuses the credentials, or there are none."""

    def __init__(self) -> None:
        super().__init__("may not be read; check the credentials in storage_options")


class ChangedError(StoreError):
    """The store holds another content than that of the snapshot."""

    def __init__(self) -> None:
        super().__init__("changed while it was counted; count again when nothing writes to it")


class TransientError(StoreError):
    """A request failed in a way that may not happen again: it is worth another attempt."""

    def __init__(self) -> None:
        super().__init__(
            "cannot be read now: its store failed to answer or broke off, again and again; "
            "nothing is known to be wrong with the file, so count again later"
        )


_DENIED = frozenset({401, 403, 407})
_GONE = frozenset({404, 410})
_CHANGED = frozenset({412, 416})  # the precondition failed; the range lies beyond the end
_TRANSIENT = frozenset({408, 425, 429})  # and all that are at least 500

_DENIED_NAMES = frozenset(
    {
        *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"),
        *(
            "NoAuthTokenError",
            "TokenRetrievalError",
            "UnauthorizedSSOTokenError",
            "SSOTokenLoadError",
        ),
        *(
            "ProfileNotFound",
            "DefaultCredentialsError",
            "RefreshError",
            "ClientAuthenticationError",
        ),
    }
)
"""Exceptions about credentials, of the clients of all stores."""

_TRANSIENT_NAMES = frozenset(
    {
        *("HTTPClientError", "IncompleteRead", "IncompleteReadError", "ResponseParserError"),
        *("ClientConnectionError", "ClientPayloadError", "ServerDisconnectedError"),
        *("ServiceRequestError", "ServiceResponseError", "ProtocolError", "ChecksumError"),
        *("RequestException", "TransportError", "HttpProcessingError"),
    }
)
"""Exceptions about lost connections and bodies that ended early, of the clients of all stores."""

_TRANSIENT_NUMBERS = frozenset(
    getattr(errno, name)
    for name in (
        *("ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "ETIMEDOUT", "EPIPE", "EBUSY"),
        *("EREMOTEIO", "EHOSTUNREACH", "ENETUNREACH", "ENETRESET", "EAGAIN", "EINTR"),
    )
    if hasattr(errno, name)
)


def guard_secrets(act: Callable[[], T]) -> T:
    """Return what `act` returns; what it raises has no text of the store's client.

    Raises:
        StoreError: The store cannot be read; the subclass says why.
        FileNotFoundError: The store does not have the file.
        ImportError: A package for the store is missing.
        FitplugError: `act` raised it, so its words are ours.
        MemoryError: The memory does not suffice.
    """
    try:
        return act()
    except (StoreError, FitplugError, MemoryError):
        raise
    except Exception as error:
        sorted_out = classify_error(error)
    raise sorted_out


def retry(act: Callable[[], T]) -> T:
    """Return what a request to a store returns; a transient error leads to another attempt.

    The waits double. Each is drawn between half of its length and all of it, so that many threads
    that a store turned away do not come back at the same moment.

    Raises:
        TransientError: All attempts failed in passing.
        StoreError: As by `guard_secrets`, at once.
        FileNotFoundError: As by `guard_secrets`, at once.
    """
    begun = time.monotonic()
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return guard_secrets(act)
        except TransientError:
            if attempt == _ATTEMPTS or time.monotonic() - begun > _LONGEST_SECONDS:
                raise
        wait = min(_FIRST_WAIT_SECONDS * 2 ** (attempt - 1), _LONGEST_WAIT_SECONDS)
        time.sleep(wait * random.uniform(0.5, 1.0))
    raise AssertionError("the last attempt returns or raises")


def classify_error(error: Exception) -> Exception:
    """Return the error that says what an exception of a store's client means."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, ImportError):
        return ImportError("a package for this store is missing")
    # Clients translate exceptions, but the one that was raised last usually says most.
    for link in _follow_causes(error):
        names = {kind.__name__ for kind in type(link).__mro__}
        status = _find_status(link)
        if isinstance(link, PermissionError) or names & _DENIED_NAMES:
            return AccessError()
        if names & _TRANSIENT_NAMES:
            return TransientError()
        if status is not None:
            return _classify_status(status)
        if _is_transient(link):
            return TransientError()
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError("the store does not have the file")
    return StoreError(raised=type(error).__name__)


def _classify_status(status: int) -> Exception:
    """Return the error that a status of HTTP means."""
    if status in _DENIED:
        return AccessError()
    if status in _GONE:
        return FileNotFoundError("the store does not have the file")
    if status in _CHANGED:
        return ChangedError()
    if status in _TRANSIENT or status >= 500:
        return TransientError()
    return StoreError()


def _follow_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from.

    Clients translate exceptions: over HTTP, fsspec says that there is no file, whatever happened.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _find_status(error: BaseException) -> int | None:
    """Return the status of HTTP that an exception tells, if it tells one."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):  # of botocore
        told = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        told = getattr(response, "status_code", None)
    for name in ("status", "status_code", "code"):
        told = getattr(error, name, None) if told is None else told
    if isinstance(told, (int, str)) and str(told).isdecimal() and 400 <= int(told) < 600:
        return int(told)
    return None


def _is_transient(error: BaseException) -> bool:
    """Return whether an exception that tells no status is about a connection or a delay."""
    if isinstance(error, (TimeoutError, ConnectionError)) or type(error).__name__ == "TimeoutError":
        return True
    return isinstance(error, OSError) and error.errno in _TRANSIENT_NUMBERS
