"""[data] of a spec: the source that it describes, of files, a lake or a database."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fitplug.counts import DatabaseTable, DeltaTable, IcebergTable, Source
from fitplug_cli.spec.errors import SpecError
from fitplug_cli.spec.sections import DataSection


def build_source(folder: Path, data: DataSection, columns: Mapping[str, str]) -> Source:
    """Build the source that [data] describes; its path is relative to the spec's folder.

    `columns` has the columns of attributes that have another name in the data.

    Brackets and stars are a glob in [data] path, but not in the name of the spec's folder.

    Raises:
        FitplugError: A key has a wrong value.
    """
    _check_location(data)
    path = data.local_path
    if data.connection is not None:
        location: Any = DatabaseTable(_locate_database(folder, data), str(data.table))
    elif path is None:
        location = data.path
    elif glob.has_magic(path):
        location = str(Path(glob.escape(str(folder))) / path)
    else:
        location = str(folder / path)
    if data.version is not None and data.table not in _LAKES:
        raise SpecError("'version' needs 'table' = \"delta\" or \"iceberg\"")
    if data.path is not None and data.table is not None:
        location = _LAKES[data.table](location, data.version)
    return Source(
        location,
        where=data.where,
        weight=data.weight,
        person=data.person,
        zone=data.zone,
        missing={name: None if value == "" else value for name, value in data.missing.items()},
        columns=columns,
        storage_options=data.storage_options,
    )


_LAKES = {"delta": DeltaTable, "iceberg": IcebergTable}

_LOCAL_DATABASE = re.compile(r"(duckdb|sqlite)://(?!/|$)(.+)")


def _locate_database(folder: Path, data: DataSection) -> str:
    """Return the connection of [data]; the file of a database is relative to the spec's folder."""
    match = _LOCAL_DATABASE.fullmatch(str(data.connection))
    return f"{match[1]}://{(folder / match[2]).absolute()}" if match else str(data.connection)


def _check_location(data: DataSection) -> None:
    """Raise SpecError unless [data] names files, a lake, or a table of a database."""
    if data.connection is not None:
        given = data.path and "path", data.version is not None and "version"
        if data.table is None:
            raise SpecError("'connection' needs 'table', the name of a table in the database")
        for name in (*given, data.cluster and "cluster"):
            if name:
                raise SpecError(
                    f"{name!r} and 'connection' cannot be combined. Remove one of them."
                )
    elif data.path is None:
        raise SpecError("the data are missing. Add 'path', or 'connection' and 'table'.")
    elif data.table not in (None, *_LAKES):
        raise SpecError(
            f"'table' must be \"delta\" or \"iceberg\" without 'connection', not {data.table!r}"
        )
