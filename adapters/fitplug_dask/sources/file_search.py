"""File search: which files a path, folder, glob or URL means, and what their folders say.

The name of a hive folder (`state=01/`) holds a key and a value, both percent-encoded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from fitplug.errors import DataError
from fitplug_dask.sources.formats import Format, infer_format
from fitplug_dask.sources.local_files import list_local_files
from fitplug_dask.sources.locations import (
    Location,
    Options,
    is_url,
    redact_url,
    strip_local_scheme,
)
from fitplug_dask.sources.stored_files import list_stored_files
from fitplug_dask.sources.table_entries import TableEntry

Paths: TypeAlias = str | Path | Sequence[str | Path]

_NULL = "__HIVE_DEFAULT_PARTITION__"


class FolderKey(NamedTuple):
    """One folder `name=value` on the way to a file.

    Attributes:
        name: The name of an attribute or of another column.
        value: The value that all rows of the file have; None is null.
        folder: The path of the folder, for messages.
    """

    name: str
    value: str | None
    folder: str


class FoundFile(NamedTuple):
    """A file, or a part of a table, that a source means.

    Attributes:
        path: The path as it was given or found, without credentials.
        keys: The keys of the folders that the file lies in.
        location: Where the file is opened. It is a Location, unless another library reads it.
        format: The format of the file.
        entry: What a table says of the file, None if it belongs to no table.
    """

    path: str
    keys: tuple[FolderKey, ...]
    location: Any
    format: Format
    entry: TableEntry | None = None


def find_by_path(source: Paths, options: Options | None = None) -> list[FoundFile]:
    """Find the files that `source` means.

    Args:
        source: A file, a folder (all files of known suffixes below it, except names that start
            with "_" or "."), a glob of files or folders, or a sequence of these. Each is a local
            path or a URL of fsspec.
        options: Keywords of the file systems that URLs name.

    Returns:
        The files, in a fixed order.

    Raises:
        DataError: An entry means no file, a file is found twice (its rows would count twice), or
            the files are of several formats.
    """
    if isinstance(source, (str, Path)):
        given: list[str | Path] = [source]
    elif isinstance(source, Sequence) and all(isinstance(s, (str, Path)) for s in source):
        given = list(source)
    else:
        raise DataError(f"the data must be a path or a list of paths, not {type(source).__name__}")
    if not given:
        raise DataError("the list of data files is empty; name at least one file or folder")
    files = [file for entry in given for file in _find_entry(str(entry), options)]
    check_each_once(files)
    _check_one_format(files)
    return files


def _find_entry(given: str, options: Options | None) -> Iterator[FoundFile]:
    """Yield the files that one path, glob or URL means."""
    if is_url(given):
        for location in list_stored_files(given, options or {}):
            url = location.path
            scheme, _, path = url.partition("://")
            keys = (
                key._replace(folder=redact_url(f"{scheme}://{key.folder}"))
                for key in _parse_keys(os.path.dirname(path))  # noqa: PTH120 (a plain path)
            )
            yield FoundFile(redact_url(url), tuple(keys), location, infer_format(url))
        return
    resolve = cache(lambda folder: str(Path(folder).absolute()))  # of folders, as below
    for path in list_local_files(strip_local_scheme(given)):
        folder, name = os.path.split(path)
        location = Location(os.path.join(resolve(folder), name))  # noqa: PTH118 (a plain path)
        yield FoundFile(path, _parse_keys(folder), location, infer_format(path))


def check_each_once(files: Sequence[FoundFile]) -> None:
    """Raise DataError if a file is found twice, also by links: its rows would count twice."""
    seen: dict[object, FoundFile] = {}
    resolve = cache(os.path.realpath)  # of folders, as many files are in one
    for file in files:
        for identity in _identify(file.location, resolve):
            if identity in seen:
                raise DataError(
                    f"{file.path} is the same file as {seen[identity].path}, named before or under "
                    "another name (a link), so its rows would count twice; name every file once"
                )
            seen[identity] = file


def _identify(location: Location, resolve: Callable[[str], str]) -> Iterator[object]:
    """Yield what distinguishes a file from all others: its path, and its inode if it has one."""
    path = location.path
    if location.options is not None:
        yield path
        return
    now = None
    with suppress(OSError):  # a file without a state cannot be read either, which is an error later
        now = os.lstat(path)
    if now is None or stat.S_ISLNK(now.st_mode):
        yield os.path.realpath(path)
        with suppress(OSError):
            now = os.stat(path)  # noqa: PTH116 (a plain path)
    else:
        folder, name = os.path.split(path)
        yield os.path.join(resolve(folder), name)  # noqa: PTH118 (a plain path)
    if now is not None and now.st_ino:
        # The size and the times are needed, as some mounts give several files one number.
        yield now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def _check_one_format(files: Sequence[FoundFile]) -> None:
    """Raise DataError if the files are of several formats."""
    first = files[0]
    for file in files:
        if file.format is not first.format:
            raise DataError(
                f"the data mix {first.format.value} ({first.path}) and {file.format.value} "
                f"({file.path}), perhaps the same rows twice; name the files of one format, for "
                "instance by a glob"
            )


@lru_cache(2**10)
def _parse_keys(folder: str) -> tuple[FolderKey, ...]:
    """Return the keys of a hive folder and those above it, outermost first."""
    inner = PurePath(folder)
    keys = []
    for one in (*reversed(inner.parents), inner):
        name, equals, value = one.name.partition("=")
        if equals and name:
            text = None if value == _NULL else unquote(value)
            keys.append(FolderKey(unquote(name), text, str(one)))
    return tuple(keys)
