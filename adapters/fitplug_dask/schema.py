"""Schema: the columns that data has, by name and type, for people to write a domain from."""

from __future__ import annotations

from collections.abc import Mapping

from fitplug.counts import are_names
from fitplug.errors import DataError
from fitplug_dask.counting import check_extras
from fitplug_dask.places import Options
from fitplug_dask.sources import Source, find

FOLDER = "folder"
TEXT = "text"
"""Of CSV: typed by the domain alone."""


def columns(
    source: Source, *, header: bool = False, storage_options: Options | None = None
) -> Mapping[str, str]:
    """The columns of the first file, and the keys of the folders it lies in, by name.

    header: that the first line of a CSV file names its columns, whatever it looks like. Where it
    is left False, a line with a number, a date, an empty value or one that is there twice, as
    records have them, is refused and not quoted.

    A type is "strings", "integers", "floats", "booleans", "dates", "folder", "text" (of CSV), or
    that of Arrow for columns that cannot be counted. Reads no row. Raises DataError.
    """
    check_extras()
    from fitplug_dask.codes import kind
    from fitplug_dask.formats import TEXTS
    from fitplug_dask.snapshot import header_of

    first = find(source, storage_options)[0]
    _, read = header_of(first)
    schema = read.schema
    if first.format in TEXTS and len(names := schema.names) == 1:
        for mark, called in ((";", "semicolons"), ("\t", "tabs")):
            if mark in names[0]:
                raise DataError(
                    f"{first.path} seems to have {called} between its values; write it with commas"
                )
    if first.format in TEXTS and not header and not are_names(schema.names):
        raise DataError(
            f"the first line of {first.path} holds numbers, dates, empty or repeated values, so it "
            "seems to be a record and not the names of the columns; write these in front of it, or "
            "say --header (in Python header=True) if it is the header"
        )
    found = {
        name: TEXT if first.format in TEXTS else kind(held) or str(held)
        for name, held in zip(schema.names, schema.types, strict=True)
    }
    return found | {key.name: FOLDER for key in first.keys}
