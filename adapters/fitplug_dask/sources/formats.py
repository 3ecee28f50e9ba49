"""File formats: which format a file name means, and which names hold no rows."""

from __future__ import annotations

from enum import Enum


class Format(Enum):
    """How the rows of a file are stored; the value is the name of the format in messages."""

    PARQUET = "Parquet"
    ARROW = "Arrow"
    CSV = "CSV"
    CSV_GZ = "gzipped CSV"
    STREAM = "stream"
    FRAGMENT = "data set fragment"
    DELAYED = "Dask partition"


TEXT_FORMATS = (Format.CSV, Format.CSV_GZ)
"""Formats whose columns have no type. The domain says how their text is read."""

HELD_FORMATS = (Format.STREAM, Format.FRAGMENT, Format.DELAYED)
"""Formats of what other libraries read, so that no path of a file is opened here."""

_FORMAT_OF_SUFFIX = {
    ".parquet": Format.PARQUET,
    ".parq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".arrows": Format.ARROW,
    ".csv": Format.CSV,
    ".csv.gz": Format.CSV_GZ,
}

SUFFIXES = tuple(_FORMAT_OF_SUFFIX)
SUFFIX_LIST = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
"""The suffixes as messages list them."""

IGNORED_PREFIXES = ("_", ".")
"""Files and folders whose names begin with these hold no rows."""


def infer_format(path: str) -> Format:
    """Return the format that the suffix of a file name means.

    Files without a known suffix are read as Parquet.
    """
    for suffix, known in _FORMAT_OF_SUFFIX.items():
        if path.lower().endswith(suffix):
            return known
    return Format.PARQUET
