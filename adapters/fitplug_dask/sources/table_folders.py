"""Table folders: how the metadata files of a lake's table are read, on disk or in a store."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fitplug.errors import DataError
from fitplug_dask.sources.locations import (
    Location,
    Options,
    is_url,
    open_file_system,
    redact_url,
    strip_local_scheme,
)
from fitplug_dask.sources.table_entries import Deletion

T = TypeVar("T")

_READERS = 16


def make_location(path: str, options: Options | None) -> Location:
    """Return where a file of a table lies: a URL, or a local path, also one with a scheme."""
    if is_url(path):
        return Location(path, options or {})
    if path.startswith("file:") and not path.startswith("file://"):
        path = path.removeprefix("file:")
    return Location(str(Path(strip_local_scheme(path)).absolute()))


def join_path(root: str, path: str) -> str:
    """Return the path of a file of a table, whose metadata may say it relative to the table."""
    if is_url(path) or path.startswith(("/", "file:")):
        return path
    return f"{root.rstrip('/')}/{path}"


def list_names(folder: str, options: Options | None) -> list[str]:
    """List the names in a folder, sorted; none if there is no such folder.

    Raises:
        DataError: The folder cannot be listed.
    """

    def list_folder() -> list[str]:
        if not is_url(folder):
            local = Path(make_location(folder, None).path)
            return [entry.name for entry in local.iterdir()]
        system, path = open_file_system(folder, options or {})
        system.invalidate_cache()
        return [posixpath.basename(name) for name in system.ls(path, detail=False)]

    try:
        return sorted(list_folder())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except Exception:  # what a store's client says may hold credentials
        pass
    raise DataError(f"{redact_url(folder)} cannot be listed; check the path and storage_options")


def read_bytes(path: str, options: Options | None) -> bytes:
    """Return the content of a file.

    Raises:
        DataError: It cannot be read.
    """
    try:
        with make_location(path, options).open(sequential=True) as file:
            content: bytes = file.read()
            return content
    except Exception:  # what a store's client says may hold credentials
        pass
    raise DataError(
        f"{redact_url(path)} cannot be read, which the table needs; check the table, "
        "and storage_options if it is in a store"
    )


def stamp_deletions(deletions: Sequence[Deletion]) -> list[Deletion]:
    """Return the deletions with the present states of the files that tell them.

    Raises:
        DataError: One of the files cannot be found.
    """
    places = {one.location.path: one.location for one in deletions if one.location is not None}

    def read_state(path: str) -> tuple[int, str] | None:
        try:
            return places[path].read_state()
        except Exception:  # what a store's client says may hold credentials
            return None

    states = dict(zip(places, run_concurrently(read_state, list(places)), strict=True))
    for path, state in states.items():
        if state is None:
            raise DataError(
                f"{redact_url(path)} cannot be found, which tells deleted rows of the table; "
                "check the table"
            )
    stamped = []
    for one in deletions:
        state = states[one.location.path] if one.location is not None else None
        stamped.append(replace(one, size=state[0], stamp=state[1]) if state else one)
    return stamped


def run_concurrently(act: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    """Return what `act` returns for each path, in their order."""
    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(act, paths))
