"""File search: which files a path, folder, glob or URL means, and what their folders say.

The name of a hive folder (`state=01/`) holds a key and a value, both percent-encoded.
"""

from __future__ import annotations

import glob
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path, PurePath
from typing import TypeAlias
from urllib.parse import unquote

from fitplug.errors import DataError
from fitplug_dask.sources.file_names import (
    IGNORED_PREFIXES,
    SUFFIX_LIST,
    SUFFIXES,
    describe_lake,
    describe_stray,
    find_lake_above,
    find_local_lake,
    infer_format,
    is_stray,
    names_suffix,
)
from fitplug_dask.sources.found_files import FolderKey, FoundFile
from fitplug_dask.sources.locations import (
    Location,
    Options,
    is_url,
    redact_url,
    strip_local_scheme,
)
from fitplug_dask.sources.stored_files import list_stored_files


def list_local_files(given: str) -> list[str]:
    """List the files that a local file, folder or glob means.

    Args:
        given: The path or pattern. The paths returned begin as it does.

    Returns:
        The paths, in a fixed order.

    Raises:
        DataError: The path does not exist, a folder cannot be read, it is or lies in a table of a
            lake, or a file that seems to hold rows has no known suffix.
    """
    path = Path(given)
    if lake := find_lake_above(_find_fixed(given) / "any"):
        folder, kind = lake
        shown = given if folder == path.absolute() else folder
        raise DataError(f"{shown} is {describe_lake(kind)}")
    if path.is_dir():
        files = list(_walk_folder(given, ()))
        if not files:
            raise DataError(f"the folder {given} holds no {SUFFIX_LIST} file; check the path")
        return files
    if path.exists():
        return [given]
    if not glob.has_magic(given):
        raise DataError(f"{given} does not exist; check the path")
    files = []
    for match in _match_pattern(given):
        if Path(match).is_dir():
            files += _walk_folder(match, ())
        elif match.endswith(SUFFIXES) or names_suffix(given, match):
            files.append(match)
        elif is_stray(match):
            raise DataError(describe_stray(match))
    if not files:
        raise DataError(f"{given} matches no {SUFFIX_LIST} file; check the pattern")
    return files


def _find_fixed(given: str) -> Path:
    """Return the part of a path or pattern before the first name with a wildcard."""
    if Path(given).exists():
        return Path(given)
    parts = itertools.takewhile(lambda part: not glob.has_magic(part), PurePath(given).parts)
    return Path(*parts)


def _match_pattern(pattern: str) -> list[str]:
    """List the files and folders that match a pattern, without ignored names."""
    fixed = list(itertools.takewhile(lambda p: not glob.has_magic(p), PurePath(pattern).parts))
    matches = [
        match
        for match in sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)
        if not any(
            name.startswith(IGNORED_PREFIXES) for name in PurePath(match).parts[len(fixed) :]
        )
    ]
    # `**` matches folders and what lies in them; a folder already stands for all of it.
    folders = {PurePath(match) for match in matches if Path(match).is_dir()}
    return [match for match in matches if folders.isdisjoint(PurePath(match).parents)]


def _walk_folder(folder: str, above: tuple[str, ...]) -> Iterator[str]:
    """Yield the files of known suffixes below a folder; `above` are the real paths on the way."""
    real = os.path.realpath(folder)
    if real in above:  # a link back up
        return
    # A directory entry knows whether it is a folder, and its path begins as the folder's does.
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        reason = error.strerror
    else:
        reason = None
    if reason is not None:
        raise DataError(f"the folder {folder} cannot be read: {reason}")
    if kind := find_local_lake(Path(folder), [entry.name for entry in entries]):
        raise DataError(f"{folder} is {describe_lake(kind)}")
    for entry in entries:
        if entry.name.startswith(IGNORED_PREFIXES):
            continue
        if _is_folder(entry):
            yield from _walk_folder(entry.path, (*above, real))
        elif entry.name.endswith(SUFFIXES):
            yield entry.path
        elif is_stray(entry.name):
            raise DataError(describe_stray(entry.path))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Tell whether an entry of a folder is a folder, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, for instance
        return False


Paths: TypeAlias = str | Path | Sequence[str | Path]

_NULL = "__HIVE_DEFAULT_PARTITION__"


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
