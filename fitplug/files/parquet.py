"""Parquet files and the libraries of tables, each imported only when it is asked for."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fitplug.files.parquet_footer import Footer, read_footer
from fitplug.numeric import AnyArray

if TYPE_CHECKING:
    import pyarrow

ArrowTable: TypeAlias = "pyarrow.Table"

ParquetFile: TypeAlias = Any
"""`pyarrow.parquet.ParquetFile`."""

Column: TypeAlias = AnyArray

Columns: TypeAlias = dict[str, Column]

_EXTRAS = {"pyarrow": "arrow", "pandas": "pandas", "polars": "polars"}


def write_parquet(path: Path, table: ArrowTable) -> None:
    """Write a Parquet file. Raises OSError, and ImportError without pyarrow."""
    import_library("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path)


def read_parquet(path: Path) -> tuple[Columns, dict[str, str]]:
    """Columns and metadata of a Parquet file. Raises whatever pyarrow does on damage."""
    # The file's own bytes are read first: Parquet would map a damaged one, or read half of it.
    file, footer = open_parquet(path.read_bytes())
    with file:
        table = file.read(use_threads=False)
    said = {key.decode(): value.decode() for key, value in footer.said.items()}
    return {name: table[name].to_numpy() for name in table.column_names}, said


def open_parquet(held: bytes) -> tuple[ParquetFile, Footer]:
    """A Parquet file in memory, to be read, and its own footer. Raises whatever pyarrow does on
    damage, and ImportError without it.

    Arrow may end the process on a footer that is damaged: it gets one written anew.
    """
    import_library("pyarrow")
    import pyarrow.parquet

    footer = read_footer(io.BytesIO(held))
    metadata = pyarrow.parquet.read_metadata(pyarrow.BufferReader(footer.for_arrow))
    return pyarrow.parquet.ParquetFile(pyarrow.BufferReader(held), metadata=metadata), footer


def check_arrow() -> None:
    """Raise ImportError without pyarrow, which folders of tables need."""
    import_library("pyarrow")


def import_library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(
            f'{name} is not installed; it comes with: pip install "fitplug[{_EXTRAS[name]}]"'
        ) from None
