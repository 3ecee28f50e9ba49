"""Local files: the files that a local path, folder or glob means."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterator
from pathlib import Path, PurePath

from fitplug.errors import DataError
from fitplug_dask.sources.folder_contents import (
    describe_lake,
    describe_stray,
    find_lake_above,
    find_local_lake,
    is_stray,
    names_suffix,
)
from fitplug_dask.sources.formats import IGNORED_PREFIXES, SUFFIX_LIST, SUFFIXES


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
