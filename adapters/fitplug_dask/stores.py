"""Stores: the files that a URL of fsspec means, as the store lists them now, not from a cache."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from typing import Any

from fitplug.errors import DataError
from fitplug_dask.formats import DELTA, PASSED_OVER, SUFFIX_TEXT, SUFFIXES
from fitplug_dask.places import Options, file_system, shown


def files_at(url: str, options: Options) -> list[str]:
    """URLs of the files that a file, folder or glob in a store means, sorted.

    The same rules as for local paths. Raises DataError, without what the store's client says, as
    that may hold credentials.
    """
    from fsspec.registry import known_implementations

    told = shown(url)
    if "::" in url:
        raise DataError(f"{told} chains file systems; give a plain URL")
    fault, system, path = None, None, ""
    try:
        system, path = file_system(url, options)
        system.invalidate_cache()
        paths = _paths(system, path)
    except DataError as error:
        fault = f"{told}: {error}"
    except ImportError:
        scheme = url.partition("://")[0]
        why = known_implementations.get(scheme, {}).get("err", "a package of fsspec is missing")
        fault = f"{told} cannot be opened: {why}; install it, or use a local copy"
    except PermissionError:
        fault = f"{told} may not be read; check the credentials in storage_options"
    except Exception as error:
        fault = (
            f"{told} cannot be listed ({type(error).__name__}); check the URL and storage_options"
        )
    if fault:
        raise DataError(fault)
    assert system is not None
    if not paths:
        what = "matches" if glob.has_magic(path) else "holds"
        raise DataError(f"{told} {what} no {SUFFIX_TEXT} file; check the URL")
    return [system.unstrip_protocol(path) for path in paths]


def _paths(system: Any, path: str) -> list[str]:
    kind = _kind(system, path)
    if kind == "directory":
        return _below(system, path)
    if kind is not None:
        return [path]
    if not glob.has_magic(path):
        raise DataError("there is no such file or folder; check the URL")
    fixed = re.split(r"[*?\[]", path)[0].rpartition("/")[0] + "/"
    matches = {
        match: info["type"] == "directory"
        for match, info in system.glob(path, detail=True).items()
        if not _passed_over(match, fixed)
    }
    folders = [match for match, is_folder in matches.items() if is_folder]
    found = [match for match, is_folder in matches.items() if not is_folder]
    paths = {match for match in found if match.endswith(SUFFIXES)}
    for folder in folders:
        paths.update(_below(system, folder))
    return sorted(paths)


def _kind(system: Any, path: str) -> str | None:
    """What lies there, if anything. Not by `isdir`: over HTTP that reads whole files for links."""
    try:
        kind: str = system.info(path)["type"]
    except FileNotFoundError:
        return None
    return "directory" if path.endswith("/") else kind


def _below(system: Any, folder: str) -> list[str]:
    paths: Iterable[str] = system.find(folder)
    root = folder.rstrip("/") + "/"
    inside = [path.removeprefix(root) for path in paths]
    if any("_delta_log" in path.split("/")[:-1] for path in inside):
        raise DataError(f"the folder {DELTA}")
    return sorted(
        root + path for path in inside if path.endswith(SUFFIXES) and not _passed_over(path, "")
    )


def _passed_over(path: str, fixed: str) -> bool:
    return any(part.startswith(PASSED_OVER) for part in path.removeprefix(fixed).split("/"))
