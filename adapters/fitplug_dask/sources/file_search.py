"""File search: listing the files of a folder or glob, on this machine or in a store."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePath
from typing import TypeAlias

from fitplug.errors import DataError
from fitplug.files import OBJECT_SCHEMES, redact_url
from fitplug_dask._compat import find_install_hint
from fitplug_dask.sources.locations import Location
from fitplug_dask.sources.source_files import (
    IGNORED_PREFIXES,
    SUFFIX_LIST,
    SUFFIXES,
    describe_lake,
    describe_stray,
    find_lake_above,
    find_local_lake,
    find_stored_lake,
    is_ignored,
    is_stray,
    names_suffix,
)
from fitplug_dask.sources.stores import (
    AccessError,
    Options,
    State,
    Store,
    StoreError,
    UnansweredError,
    guard_secrets,
    open_store,
)

States: TypeAlias = dict[str, State | None]
"""The paths of files in a store, with their states if these are known."""

FindLake: TypeAlias = Callable[[str], tuple[Path, str] | None]
"""`find_lake_above`, or a version of it that caches its results."""


def list_local_files(given: str, find_lake: FindLake = find_lake_above) -> list[str]:
    """List the files of a local path or glob.

    Args:
        given: The path or pattern. The returned paths begin in the same way.
        find_lake: `find_lake_above`, or a version of it that caches its results.

    Returns:
        The paths, in a fixed order.

    Raises:
        DataError: The path does not exist, a folder cannot be read, it is or lies in a lakehouse
            table, or a file that seems to contain rows has no known suffix.
    """
    is_folder, exists = os.path.isdir(given), os.path.exists(given)  # noqa: PTH110, PTH112 (fast)
    above = os.path.dirname(given) if exists and not is_folder else _find_fixed(given)  # noqa: PTH120
    if lake := find_lake(above):
        folder, kind = lake
        shown = given if folder == Path(given).absolute() else folder
        raise DataError(f"{shown} is {describe_lake(kind)}")
    if is_folder:
        files = list(_walk_folder(given))
        if not files:
            raise DataError(f"the folder {given} holds no {SUFFIX_LIST} file. Check the path.")
        return files
    if exists:
        return [given]
    if not glob.has_magic(given):
        raise DataError(f"{given} does not exist. Check the path.")
    files = []
    for match in _match_pattern(given):
        if Path(match).is_dir():
            files += _walk_folder(match)
        elif match.endswith(SUFFIXES) or names_suffix(given, match):
            files.append(match)
        elif is_stray(match):
            raise DataError(describe_stray(match))
    if not files:
        raise DataError(f"{given} matches no {SUFFIX_LIST} file. Check the pattern.")
    return files


def _find_fixed(given: str) -> str:
    """Return the part of a path or pattern before the first name with a wildcard."""
    path = Path(given)
    if path.exists():
        return given
    return str(Path(*itertools.takewhile(lambda part: not glob.has_magic(part), path.parts)))


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
    # `**` matches folders and their content, but a folder already stands for all of its content.
    folders = {PurePath(match) for match in matches if Path(match).is_dir()}
    return [match for match in matches if folders.isdisjoint(PurePath(match).parents)]


def make_resolver() -> Callable[[str], str]:
    """Return a function that finds the real paths of folders, and caches those of their parents."""

    @cache
    def resolve(folder: str) -> str:
        above, name = os.path.split(folder)
        if name in ("", ".", "..") or os.path.islink(folder):  # noqa: PTH114 (fast)
            return os.path.realpath(folder)
        return os.path.join(resolve(above or "."), name)  # noqa: PTH118 (fast)

    return resolve


def _walk_folder(
    folder: str, above: tuple[str, ...] = (), resolve: Callable[[str], str] | None = None
) -> Iterator[str]:
    """Yield the files of known suffixes below a folder; `above` are its parents' real paths."""
    resolve = resolve or make_resolver()
    real = resolve(folder)
    if real in above:  # a link to a parent
        return
    # A directory entry knows whether it is a folder, and its path begins like that of `folder`.
    try:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except OSError as error:
        reason = error.strerror
    else:
        reason = None
    if reason is not None:
        raise DataError(f"the folder {folder} cannot be read: {reason}")
    if kind := find_local_lake(folder, [entry.name for entry in entries]):
        raise DataError(f"{folder} is {describe_lake(kind)}")
    for entry in entries:
        if entry.name.startswith(IGNORED_PREFIXES):
            continue
        if _is_folder(entry):
            yield from _walk_folder(entry.path, (*above, real), resolve)
        elif entry.name.endswith(SUFFIXES):
            yield entry.path
        elif is_stray(entry.name):
            raise DataError(describe_stray(entry.path))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether a directory entry is a folder or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, for instance
        return False


def list_stored_files(url: str, options: Options) -> list[Location]:
    """List the files of a path or glob in a store, by the same rules as for local paths.

    Args:
        url: The URL of the file, folder or glob.
        options: How the store is reached.

    Returns:
        The files, sorted by their URLs, each with its state if the listing gives it.

    Raises:
        DataError: The URL matches no file, or the store cannot be listed. The message quotes
            nothing from the store's client, whose errors may contain credentials.
    """
    displayed = redact_url(url)
    if "::" in url:
        raise DataError(f"{displayed} combines several file systems (::). Give a plain URL.")
    try:
        return guard_secrets(lambda: _list_locations(url, options))
    except DataError as error:
        fault = f"{displayed}{error}"
    except ImportError:
        package = _find_package(url.partition("://")[0])
        fault = f"{displayed} cannot be opened: {package}. Install it, or use a local copy."
    except FileNotFoundError:
        fault = f"{displayed}: the file or folder does not exist. Check the URL."
    except UnansweredError:
        fault = (
            f"{displayed}: the store did not answer or refused the request. Check the URL and "
            "storage_options."
        )
    except AccessError as error:
        fault = f"{displayed} {error}"
    except StoreError as error:
        why = f"cannot be listed ({error.raised}). Check the URL and storage_options."
        fault = f"{displayed} {why if error.raised else error}"
    raise DataError(fault)


def _find_package(scheme: str) -> str:
    """Return a hint on which package a URL scheme needs."""
    if scheme.lower() in OBJECT_SCHEMES:
        return 'pip install "fitplug[stores]" brings the packages for it'
    return find_install_hint(scheme)


def _list_locations(url: str, options: Options) -> list[Location]:
    """List the files. The text of a DataError continues a sentence after the URL."""
    store, path = open_store(url, options)
    files = _list_states(store, path, is_folder=url.endswith("/"))
    if not files:
        what = "matches" if glob.has_magic(path) else "holds"
        raise DataError(f" {what} no {SUFFIX_LIST} file. Check the URL.")
    return [Location(store.make_url(name), options, files[name]) for name in sorted(files)]


def _list_states(store: Store, path: str, *, is_folder: bool) -> States:
    """List the files of a path or pattern in a store."""
    if not is_folder:
        with suppress(FileNotFoundError):
            return {path: store.read_state(path)}
    is_pattern = glob.has_magic(path)
    if not store.has_listings:
        if is_pattern or is_folder:
            raise StoreError("cannot be listed over HTTP. Name each file by its URL.")
        raise FileNotFoundError
    if is_pattern:
        return _list_matches(store, path, only_folders=is_folder)
    inside = store.list_states(path)
    if not inside:
        raise FileNotFoundError
    return _select_in_folder(inside, path)


def _list_matches(store: Store, pattern: str, *, only_folders: bool) -> States:
    """List the files that match a pattern, and the files in folders that match it."""
    fixed = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
    wanted = tuple(pattern[len(fixed) :].strip("/").split("/"))
    folders: dict[str, States] = {}
    files = {}
    for file, state in store.list_states(fixed).items():
        below = _find_below(file, fixed)
        if _is_hidden(below):
            continue
        names = tuple(below.split("/"))
        matched = next((n for n in range(len(names)) if _matches(names[:n], wanted)), None)
        if matched is not None:  # a folder stands for all of its content
            folder = "/".join((fixed, *names[:matched]))
            folders.setdefault(folder, {})[file] = state
        elif only_folders or not _matches(names, wanted):
            continue
        elif file.endswith(SUFFIXES) or names_suffix(pattern, file):
            files[file] = state
        elif is_stray(file):
            raise DataError(f": {describe_stray(file)}")
    for folder, inside in folders.items():
        files |= _select_in_folder(inside, folder)
    return files


def _select_in_folder(inside: States, folder: str) -> States:
    """Select the files of known suffixes from all files in a folder, at any depth."""
    below = {file: _find_below(file, folder) for file in inside}
    if kind := find_stored_lake(below.values()):
        raise DataError(f": the folder is {describe_lake(kind)}")
    read = {file: state for file, state in inside.items() if not _is_hidden(below[file])}
    for file in read:
        if is_stray(file):
            raise DataError(f": {describe_stray(below[file])}")
    return {file: state for file, state in read.items() if file.endswith(SUFFIXES)}


def _find_below(file: str, folder: str) -> str:
    """Return the path of a file relative to a folder."""
    return file.removeprefix(folder).strip("/")


def _is_hidden(path: str) -> bool:
    """Return whether any name in a path begins with "_" or "."."""
    return any(is_ignored(name) for name in path.split("/"))


def _matches(names: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether a path matches a pattern name by name; `**` matches any number of names."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_matches(names[skipped:], pattern[1:]) for skipped in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])
