"""Schema: the columns of the data, by name and type, for people who write a domain from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fitplug.counts import Source, can_name_columns
from fitplug.errors import DataError
from fitplug_dask.request import check_libraries
from fitplug_dask.sources import TEXT_FORMATS, find_files

FOLDER = "folder"
"""The type of the keys of folders."""

TEXT = "text"
"""The type of the columns of CSV files, which the domain alone types."""


def list_columns(source: Source | Any, *, header: bool = False) -> Mapping[str, str]:
    """List the columns of the first file, and the keys of the folders it lies in. Read no row.

    Args:
        source: The files, as a `fitplug.Source` or its path.
        header: Whether the first line of a CSV file names its columns, whatever it looks like.
            If False, a first line with a number, a date, an empty value or a repeated one, as
            records have them, is refused and not quoted.

    Returns:
        By name, the type: "strings", "integers", "floats", "booleans", "dates", "folder", "text"
        (of CSV), or that of Arrow for columns that cannot be counted.

    Raises:
        DataError: There is no file, or its header cannot be read.
    """
    check_libraries()
    from fitplug_dask.encoding import classify_type
    from fitplug_dask.files import read_source_header

    files = find_files(Source.of(source))
    if not files:
        raise DataError("the table has no files, so nothing says which columns it has")
    first = files[0]
    _, file_header = read_source_header(first)
    schema = file_header.schema
    if first.format in TEXT_FORMATS and len(names := schema.names) == 1:
        for separator, called in ((";", "semicolons"), ("\t", "tabs")):
            if separator in names[0]:
                raise DataError(
                    f"{first.path} seems to have {called} between its values; write it with commas"
                )
    names = list(schema.names)
    if first.format in TEXT_FORMATS and names[:1] == [""]:
        del names[0]  # the numbers of the rows, as R and pandas write them
    if first.format in TEXT_FORMATS and not header and not can_name_columns(names):
        raise DataError(
            f"the first line of {first.path} holds numbers, dates, empty or repeated values, so it "
            "seems to be a record and not the names of the columns; write these in front of it, or "
            "say --header (in Python header=True) if it is the header"
        )
    columns = {
        name: TEXT if first.format in TEXT_FORMATS else classify_type(arrow_type) or str(arrow_type)
        for name, arrow_type in zip(schema.names, schema.types, strict=True)
        if name in names
    }
    return columns | {key.name: FOLDER for key in first.keys}
