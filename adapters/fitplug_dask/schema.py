"""Schema: the columns that data has, by name and type, for people to write a domain from."""

from __future__ import annotations

from collections.abc import Mapping

from fitplug.errors import DataError
from fitplug_dask.counting import check_extras
from fitplug_dask.places import Options
from fitplug_dask.sources import Source, find

FOLDER = "folder"
TEXT = "text"
"""Of CSV: typed by the domain alone."""


def columns(source: Source, *, storage_options: Options | None = None) -> Mapping[str, str]:
    """The columns of the first file, and the keys of the folders it lies in, by name.

    A type is "strings", "integers", "floats", "booleans", "dates", "folder", "text" (of CSV), or
    that of Arrow for columns that cannot be counted. Reads no row. Raises DataError.
    """
    check_extras()
    from fitplug_dask.codes import kind
    from fitplug_dask.formats import TEXTS
    from fitplug_dask.snapshot import header_of

    first = find(source, storage_options)[0]
    _, header = header_of(first)
    if first.format in TEXTS and len(names := header.schema.names) == 1:
        for mark, called in ((";", "semicolons"), ("\t", "tabs")):
            if mark in names[0]:
                raise DataError(
                    f"{first.path} seems to have {called} between its values; write it with commas"
                )
    found = {
        name: TEXT if first.format in TEXTS else kind(held) or str(held)
        for name, held in zip(header.schema.names, header.schema.types, strict=True)
    }
    return found | {key.name: FOLDER for key in first.keys}
