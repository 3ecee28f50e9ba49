"""Files in a store: the files that a URL of fsspec means, as the store lists them now."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from fitplug.errors import DataError
from fitplug_dask._compat import find_install_hint
from fitplug_dask.sources.file_names import (
    IGNORED_PREFIXES,
    SUFFIX_LIST,
    SUFFIXES,
    describe_lake,
    describe_stray,
    find_stored_lake,
    is_stray,
    names_suffix,
)
from fitplug_dask.sources.locations import (
    Location,
    Options,
    State,
    describe_state,
    open_file_system,
    redact_url,
)
from fitplug_dask.sources.range_requests import find_strong_tag
from fitplug_dask.sources.store_errors import (
    AccessError,
    StoreError,
    TransientError,
    classify_error,
    retry,
)

Info: TypeAlias = Mapping[str, Any]
"""What a file system of fsspec says of a file or folder."""


def list_stored_files(url: str, options: Options) -> list[Location]:
    """List the files that a file, a folder or a glob in a store means.

    The rules are those for local paths. The listing of the store is read anew, not from a cache.

    Args:
        url: The URL of the file, folder or glob.
        options: Keywords of the file system.

    Returns:
        The files, sorted by their URLs, each with the state that the listing told of it.

    Raises:
        DataError: The URL means no file, or the store cannot be listed. The message holds nothing
            that the store's client says, as that may hold credentials.
    """
    displayed = redact_url(url)
    if "::" in url:
        raise DataError(f"{displayed} chains file systems; give a plain URL")
    try:
        return retry(lambda: _list_locations(url, options))
    except DataError as error:
        fault = f"{displayed}{error}"
    except ImportError:
        hint = find_install_hint(url.partition("://")[0])
        fault = f"{displayed} cannot be opened: {hint}; install it, or use a local copy"
    except FileNotFoundError:
        fault = f"{displayed}: there is no such file or folder; check the URL"
    except TransientError:
        fault = (
            f"{displayed} cannot be listed now: its store failed to answer or broke off, again "
            "and again; check the URL, or try again later"
        )
    except AccessError as error:
        fault = f"{displayed} {error}"
    except StoreError as error:
        named = f" ({error.raised})" if error.raised else ""
        fault = f"{displayed} cannot be listed{named}; check the URL and storage_options"
    raise DataError(fault)


def _list_locations(url: str, options: Options) -> list[Location]:
    """List the files once. What a DataError says follows the URL."""
    system, path = open_file_system(url, options)
    system.invalidate_cache()
    listed = _list_paths(system, path)
    if not listed:
        what = "matches" if glob.has_magic(path) else "holds"
        raise DataError(f" {what} no {SUFFIX_LIST} file; check the URL")
    return [
        Location(system.unstrip_protocol(held), options, _find_state(system, held, listed[held]))
        for held in sorted(listed)
    ]


def _find_state(system: Any, path: str, info: Info) -> State | None:
    """Return the state of a file, if the listing told its size and what requests can name."""
    if info.get("size") is None or find_strong_tag(system, info) is None:
        return None
    return describe_state(system, path, info)


def _list_paths(system: Any, path: str) -> dict[str, Info]:
    """List the files that a path or a pattern in a file system means: what it says, by path."""
    found = _find_entry(system, path)
    if found is not None and (path.endswith("/") or found["type"] == "directory"):
        return _list_folder(system, path)
    if found is not None:
        return {path: found}
    if not glob.has_magic(path):
        raise FileNotFoundError
    fixed = re.split(r"[*?\[]", path)[0].rpartition("/")[0] + "/"
    matches: dict[str, Info] = {
        match: info
        for match, info in system.glob(path, detail=True).items()
        if not _is_ignored(match, fixed)
    }
    paths = {}
    for match, info in matches.items():
        if info["type"] == "directory":
            paths.update(_list_folder(system, match))
        elif match.endswith(SUFFIXES) or names_suffix(path, match):
            paths[match] = info
        elif is_stray(match):
            raise DataError(f": {describe_stray(match)}")
    return paths


def _find_entry(system: Any, path: str) -> Info | None:
    """Return what a file system says of what lies at a path, or None if nothing lies there.

    `isdir` is not used: over HTTP it downloads entire files to look for links in them.
    """
    try:
        entry: Info = system.info(path)
    except FileNotFoundError as error:
        if isinstance(classify_error(error), FileNotFoundError):
            return None
        raise
    return entry


def _list_folder(system: Any, folder: str) -> dict[str, Info]:
    """List the files of known suffixes at any depth below a folder."""
    root = folder.rstrip("/") + "/"
    inside: dict[str, Info] = {
        path.removeprefix(root): info for path, info in system.find(folder, detail=True).items()
    }
    if kind := find_stored_lake(inside):
        raise DataError(f": the folder is {describe_lake(kind)}")
    for path in inside:
        if is_stray(path) and not _is_ignored(path, ""):
            raise DataError(f": {describe_stray(path)}")
    return {
        root + path: info
        for path, info in inside.items()
        if path.endswith(SUFFIXES) and not _is_ignored(path, "")
    }


def _is_ignored(path: str, fixed: str) -> bool:
    """Return whether a name on the path, below the fixed folder, begins with "_" or "."."""
    return any(name.startswith(IGNORED_PREFIXES) for name in path.removeprefix(fixed).split("/"))
