"""Files in a store: the files that a URL of fsspec means, as the store lists them now."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from typing import Any

from fitplug.errors import DataError
from fitplug_dask._compat import find_install_hint
from fitplug_dask.sources.folder_contents import (
    describe_lake,
    describe_stray,
    find_stored_lake,
    is_stray,
    names_suffix,
)
from fitplug_dask.sources.formats import IGNORED_PREFIXES, SUFFIX_LIST, SUFFIXES
from fitplug_dask.sources.locations import Options, open_file_system, redact_url


def list_stored_files(url: str, options: Options) -> list[str]:
    """List the files that a file, a folder or a glob in a store means.

    The rules are those for local paths. The listing of the store is read anew, not from a cache.

    Args:
        url: The URL of the file, folder or glob.
        options: Keywords of the file system.

    Returns:
        The URLs of the files, sorted.

    Raises:
        DataError: The URL means no file, or the store cannot be listed. The message holds nothing
            that the store's client says, as that may hold credentials.
    """
    displayed = redact_url(url)
    if "::" in url:
        raise DataError(f"{displayed} chains file systems; give a plain URL")
    fault, system, path = None, None, ""
    try:
        system, path = open_file_system(url, options)
        system.invalidate_cache()
        paths = _list_paths(system, path)
    except DataError as error:
        fault = f"{displayed}: {error}"
    except ImportError:
        hint = find_install_hint(url.partition("://")[0])
        fault = f"{displayed} cannot be opened: {hint}; install it, or use a local copy"
    except PermissionError:
        fault = f"{displayed} may not be read; check the credentials in storage_options"
    except Exception as error:
        fault = (
            f"{displayed} cannot be listed ({type(error).__name__}); "
            "check the URL and storage_options"
        )
    if fault:
        raise DataError(fault)
    assert system is not None
    if not paths:
        what = "matches" if glob.has_magic(path) else "holds"
        raise DataError(f"{displayed} {what} no {SUFFIX_LIST} file; check the URL")
    return [system.unstrip_protocol(path) for path in paths]


def _list_paths(system: Any, path: str) -> list[str]:
    """List the paths of the files that a path or a pattern in a file system means."""
    entry = _classify_entry(system, path)
    if entry == "directory":
        return _list_folder(system, path)
    if entry is not None:
        return [path]
    if not glob.has_magic(path):
        raise DataError("there is no such file or folder; check the URL")
    fixed = re.split(r"[*?\[]", path)[0].rpartition("/")[0] + "/"
    matches = {
        match: info["type"] == "directory"
        for match, info in system.glob(path, detail=True).items()
        if not _is_ignored(match, fixed)
    }
    folders = [match for match, is_folder in matches.items() if is_folder]
    files = [match for match, is_folder in matches.items() if not is_folder]
    paths = {m for m in files if m.endswith(SUFFIXES) or names_suffix(path, m)}
    for match in files:
        if match not in paths and is_stray(match):
            raise DataError(describe_stray(match))
    for folder in folders:
        paths.update(_list_folder(system, folder))
    return sorted(paths)


def _classify_entry(system: Any, path: str) -> str | None:
    """Return the type of what lies at a path, or None if nothing lies there.

    `isdir` is not used: over HTTP it downloads entire files to look for links in them.
    """
    try:
        entry: str = system.info(path)["type"]
    except FileNotFoundError:
        return None
    return "directory" if path.endswith("/") else entry


def _list_folder(system: Any, folder: str) -> list[str]:
    """List the files of known suffixes at any depth below a folder."""
    paths: Iterable[str] = system.find(folder)
    root = folder.rstrip("/") + "/"
    inside = [path.removeprefix(root) for path in paths]
    if kind := find_stored_lake(inside):
        raise DataError(f"the folder is {describe_lake(kind)}")
    for path in inside:
        if is_stray(path) and not _is_ignored(path, ""):
            raise DataError(describe_stray(path))
    return sorted(
        root + path for path in inside if path.endswith(SUFFIXES) and not _is_ignored(path, "")
    )


def _is_ignored(path: str, fixed: str) -> bool:
    """Return whether a name on the path, below the fixed folder, begins with "_" or "."."""
    return any(name.startswith(IGNORED_PREFIXES) for name in path.removeprefix(fixed).split("/"))
