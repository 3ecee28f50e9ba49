"""Formats: what kind of file a name means, and which names mean no file of rows."""

from __future__ import annotations

from enum import Enum


class Format(Enum):
    """How the rows of a file are stored; the value is its name in messages."""

    PARQUET = "Parquet"
    ARROW = "Arrow"
    CSV = "CSV"
    CSV_GZ = "gzipped CSV"


TEXTS = (Format.CSV, Format.CSV_GZ)
"""Formats whose columns have no type: their text is typed by the domain."""

_OF_SUFFIX = {
    ".parquet": Format.PARQUET,
    ".parq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".arrows": Format.ARROW,
    ".csv": Format.CSV,
    ".csv.gz": Format.CSV_GZ,
}

SUFFIXES = tuple(_OF_SUFFIX)
SUFFIX_TEXT = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"

PASSED_OVER = ("_", ".")
"""How names of files and folders begin that hold no rows."""

DELTA = "is a Delta table, whose files also hold rows deleted from it; export it as plain Parquet"


def format_of(path: str) -> Format:
    """The format by the suffix; files without a known one are taken for Parquet."""
    for suffix, known in _OF_SUFFIX.items():
        if path.endswith(suffix):
            return known
    return Format.PARQUET
