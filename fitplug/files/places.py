"""Places: folders on file systems and in stores, where only the first writer makes a file.

Several processes may write one file at the same time. `create` keeps the content of whoever was
first, completely and durably, and tells the others that they were late. On a file system this is
done by a hard link to a complete file, in a store by a conditional put. File systems and stores
without these are refused, because a late writer could replace what others have read already.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from fitplug.errors import FitplugError, InputError
from fitplug.files.folders import make_folder, sync
from fitplug.files.object_stores import open_object_store
from fitplug.files.parquet import import_library

P = ParamSpec("P")
T = TypeVar("T")

CONDITIONAL_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""The protocols of stores that can refuse to replace an object, in one step."""

_URL = re.compile(r"(?!(?i:file|local)://)[A-Za-z][A-Za-z0-9+.-]*(::.*)?://")
_SECRETS = re.compile(r"(?<=://).*:.*@|(?<=://)[^/@]*@|[?#].*")

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Place(ABC):
    """A folder of files, on a file system or in a store. A place can be pickled."""

    @abstractmethod
    def __str__(self) -> str:
        """Name the folder for people."""

    @abstractmethod
    def join(self, name: str) -> Place:
        """Return a folder inside this one."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: The file cannot be read.
        """

    @abstractmethod
    def list_sizes(self) -> Mapping[str, int]:
        """List the names of the files of this folder with their sizes in bytes.

        The result is empty if there is no such folder. Names that begin with a dot are left out.

        Raises:
            OSError: The folder cannot be read.
        """

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one already, atomically and durably.

        When the function returns, a complete file of this name is durable.

        Returns:
            Whether it has this content because this call wrote it. If it is False, another call
            was first, and its content is there.

        Raises:
            OSError: The file cannot be written.
            InputError: The file system or the store cannot do this.
        """

    @abstractmethod
    def replace(self, name: str, content: bytes) -> None:
        """Write a file, atomically and durably; a file that is there is replaced.

        Raises:
            OSError: The file cannot be written.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there.

        Raises:
            OSError: The file cannot be removed.
        """

    @abstractmethod
    def remove_all(self) -> None:
        """Remove the folder and all that it holds, as far as that can be done."""

    def check_exclusive(self) -> None:
        """Check that files can be written here, and that a second writer of one file is refused.

        Raises:
            OSError: Files cannot be written.
            InputError: The file system or the store would replace a file that is there.
        """
        probe = f"probe-{secrets.token_hex(8)}"
        try:
            first = self.create(probe, b"1")
            if not first or self.create(probe, b"2") or self.read(probe) != b"1":
                raise InputError(
                    f"{self} allows existing files to be overwritten. Name a folder in a store "
                    "with conditional writes."
                )
        finally:
            self.remove(probe)


@dataclass(frozen=True)
class LocalPlace(Place):
    """A folder on a file system that this process sees.

    Attributes:
        path: The absolute path; the folder need not exist.
        mode: The permissions of new files, less those that the umask takes away.
        root: For a folder inside another place, the folder of that place. It is never made here:
            where a staging area was removed, a late writer fails, and leaves nothing.
    """

    path: Path
    mode: int = 0o666
    root: Path | None = None

    def __str__(self) -> str:
        return str(self.path)

    def join(self, name: str) -> LocalPlace:
        return replace(self, path=self.path / name, root=self.root or self.path)

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def list_sizes(self) -> Mapping[str, int]:
        try:
            with os.scandir(self.path) as entries:
                return {
                    entry.name: entry.stat().st_size
                    for entry in entries
                    if entry.is_file() and not entry.name.startswith(".")
                }
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def create(self, name: str, content: bytes) -> bool:
        target = self.path / name
        partial = self._write_partial(name, content)
        try:
            is_first = _link(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        # A late writer also waits: the first may not have come to this step.
        sync(self.path)
        return is_first

    def replace(self, name: str, content: bytes) -> None:
        partial = self._write_partial(name, content)
        try:
            partial.replace(self.path / name)
        finally:
            partial.unlink(missing_ok=True)
        sync(self.path)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def remove_all(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _write_partial(self, name: str, content: bytes) -> Path:
        """Write a complete and durable file under a name that nobody else uses."""
        self._make_folder()
        partial = self.path / f".{name}.{secrets.token_hex(8)}.partial"
        try:
            number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self.mode)
            with open(number, "wb") as file:  # noqa: PTH123 - it takes the number of an open file
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(self.path / name)) from None
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return partial

    def _make_folder(self) -> None:
        """Make the folder, if it is not there."""
        if self.root is None:
            make_folder(self.path)
            return
        inside = self.path.relative_to(self.root)
        for folder in [*reversed(inside.parents[:-1]), inside]:
            (self.root / folder).mkdir(exist_ok=True)


def _link(partial: Path, target: Path) -> bool:
    """Give a complete file a second name, unless the name is taken; return whether it was free.

    Raises:
        OSError: The file system refuses.
        InputError: The file system has no hard links.
    """
    try:
        os.link(partial, target)
    except FileExistsError:
        # A network file system may repeat a request that had succeeded.
        return partial.stat().st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise InputError(
            f"{target.parent} is on a file system without hard links. Name a folder on another "
            "file system."
        ) from None
    return True


def _convert_client_errors(act: Callable[P, T]) -> Callable[P, T]:
    """Convert what the client of a store raises, whose words may hold secrets."""

    @wraps(act)
    def convert(*arguments: P.args, **keywords: P.kwargs) -> T:
        place = str(arguments[0])
        try:
            return act(*arguments, **keywords)
        except (ImportError, MemoryError):
            raise
        except Exception as error:
            kind = type(error).__name__
        if kind in _SYSTEM_ERRORS:
            number, text = _SYSTEM_ERRORS[kind]
            raise OSError(number, text, place)
        raise FitplugError(
            f"{place} cannot be used ({kind}). Check the URL and the storage options."
        )

    return convert


_SYSTEM_ERRORS = {
    "FileNotFoundError": (errno.ENOENT, "no such file"),
    "PermissionError": (errno.EACCES, "credentials are missing"),
    "PermissionDeniedError": (errno.EACCES, "the store refuses the credentials"),
    "UnauthenticatedError": (errno.EACCES, "the store refuses the credentials"),
    "GenericError": (errno.EIO, "the store failed to answer or refused the request"),
}
"""What exceptions of `obstore` mean, by their names."""


@dataclass(frozen=True)
class StorePlace(Place):
    """A folder in a store, which `obstore` opens.

    Attributes:
        url: The URL of the folder.
        options: How the store is reached, such as credentials.
        seconds: How long a request may take, with all its attempts.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    seconds: float = 60.0

    def __str__(self) -> str:
        return self.url

    def join(self, name: str) -> StorePlace:
        return replace(self, url=f"{self.url}/{name}")

    @_convert_client_errors
    def read(self, name: str) -> bytes:
        store, path = self._open()
        return bytes(store.get(f"{path}/{name}").bytes())

    @_convert_client_errors
    def list_sizes(self) -> Mapping[str, int]:
        store, path = self._open()
        objects = store.list_with_delimiter(path)["objects"]
        sizes = {str(entry["path"]).rpartition("/")[2]: int(entry["size"]) for entry in objects}
        return {name: size for name, size in sizes.items() if name and not name.startswith(".")}

    @_convert_client_errors
    def create(self, name: str, content: bytes) -> bool:
        store, path = self._open()
        try:
            store.put(f"{path}/{name}", content, mode="create", use_multipart=False)
        except Exception:
            # The client may have repeated a request that had succeeded, or lost the answer to one.
            # Then these bytes are there. If other writers compute the same, it does not matter.
            with suppress(FileNotFoundError):
                return self.read(name) == content
            raise
        return True

    @_convert_client_errors
    def replace(self, name: str, content: bytes) -> None:
        store, path = self._open()
        store.put(f"{path}/{name}", content, use_multipart=False)

    @_convert_client_errors
    def remove(self, name: str) -> None:
        store, path = self._open()
        with suppress(FileNotFoundError):
            store.delete(f"{path}/{name}")

    @_convert_client_errors
    def remove_all(self) -> None:
        store, path = self._open()
        with suppress(Exception):
            for listed in store.list(path, chunk_size=1000):
                store.delete([entry["path"] for entry in listed])

    def _open(self) -> tuple[Any, str]:
        """Return the store, and the path of the folder in it."""
        if _read_protocol(self.url) == "memory":
            return _open_memory(), self.url.partition("://")[2].strip("/")
        opened = open_object_store(self.url, self.options, self.seconds)
        return opened.store, opened.path


@cache
def _open_memory() -> Any:
    """Return the store in the memory of this process."""
    return import_library("obstore.store").MemoryStore()


def open_place(
    location: str | os.PathLike[str],
    options: Mapping[str, Any] | None = None,
    *,
    mode: int = 0o666,
) -> Place:
    """Open a folder, which need not exist.

    Args:
        location: A path, or a URL of a store such as s3://bucket/folder.
        options: For a URL, how the store is reached, such as credentials.
        mode: For a path, the permissions of new files, less those that the umask takes away.

    Raises:
        InputError: The URL is of a store that cannot refuse to replace an object.
    """
    text = os.fspath(location)
    protocol = _read_protocol(text)
    if protocol is None or protocol in ("file", "local"):
        path = text if protocol is None else text.split("://", 1)[1]
        return LocalPlace(Path(path).absolute(), mode)
    if protocol not in CONDITIONAL_STORES:
        raise InputError(
            f"fitplug cannot write to {protocol}://. Use a path or one of "
            f"{', '.join(CONDITIONAL_STORES)}."
        )
    return StorePlace(text.rstrip("/"), dict(options or {}))


def is_url(location: str | os.PathLike[str]) -> bool:
    """Return whether a location is a URL of a store, and no path."""
    return bool(_URL.match(os.fspath(location)))


def redact_url(url: str) -> str:
    """Return a URL without users, passwords and queries, which may be credentials."""
    return _SECRETS.sub("", url) if is_url(url) else url


def hash_content(content: bytes) -> str:
    """Compute the SHA-256 of the content of a file, in hex."""
    return hashlib.sha256(content).hexdigest()


def _read_protocol(text: str) -> str | None:
    """Read the protocol of a URL; None for a path."""
    protocol, mark, _ = text.partition("://")
    return protocol.lower() if mark and protocol.replace("+", "").isalnum() else None
