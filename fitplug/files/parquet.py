"""Parquet files, and the libraries for tables, each of which is imported when it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fitplug.numeric import AnyArray

if TYPE_CHECKING:
    import pyarrow

ArrowTable: TypeAlias = "pyarrow.Table"

ParquetFile: TypeAlias = Any
"""`pyarrow.parquet.ParquetFile`."""

Columns: TypeAlias = dict[str, AnyArray]

_EXTRAS = {"pyarrow": "arrow", "fsspec": "dask", "obstore": "stores", "boto3": "stores"}
"""The extras whose name is not the library's."""


def write_parquet(path: Path, table: ArrowTable) -> None:
    """Write a Parquet file.

    Raises:
        OSError: The file cannot be written.
        ImportError: pyarrow is not installed.
    """
    import_library("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path)


def encode_parquet(table: ArrowTable, dictionaries: Sequence[str]) -> bytes:
    """Encode an Arrow table as a Parquet file; the same table gives the same bytes.

    Types of Arrow alone are not kept: dictionary columns are read back as plain columns.

    Args:
        table: The table.
        dictionaries: The columns whose values repeat often.

    Raises:
        ImportError: pyarrow is not installed.
    """
    import_library("pyarrow")
    import pyarrow.parquet

    file = pyarrow.BufferOutputStream()
    with pyarrow.parquet.ParquetWriter(
        file,
        table.schema,
        use_dictionary=list(dictionaries),
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(table)
        # Without Arrow's own schema, its metadata are not written by themselves.
        writer.add_key_value_metadata(table.schema.metadata or {})
    return bytes(file.getvalue())


def decode_parquet(content: bytes, columns: Sequence[str] | None = None) -> ArrowTable:
    """Decode a Parquet file in memory, or some of its columns, with the metadata of its footer.

    Raises:
        Exception: The file is damaged; the error comes from pyarrow, or a ValueError.
        ImportError: pyarrow is not installed.
    """
    with open_parquet(content) as file:
        table = file.read(columns=columns, use_threads=False)
        rows, pairs = file.metadata.num_rows, file.metadata.metadata
    if table.num_rows != rows:
        raise ValueError("the number of rows differs from the number in the file's metadata")
    return table.replace_schema_metadata(pairs or {})


def open_parquet(content: bytes) -> ParquetFile:
    """Open a Parquet file in memory, to be read by pyarrow.

    Raises:
        Exception: The file is damaged; the error comes from pyarrow.
        ImportError: pyarrow is not installed.
    """
    import_library("pyarrow")
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(
        pyarrow.BufferReader(content), page_checksum_verification=True
    )


def check_arrow() -> None:
    """Check that pyarrow is installed, which folders of tables need.

    Raises:
        ImportError: It is not.
    """
    import_library("pyarrow")


def import_library(name: str, extra: str | None = None) -> Any:
    """Import a library, or a module of one, that comes with an extra.

    Args:
        name: The module, such as "pyarrow".
        extra: The extra of fitplug; if None, the one for this library.

    Raises:
        ImportError: It is not installed; the message names the extra that it comes with.
    """
    try:
        return import_module(name)
    except ImportError:
        library = name.partition(".")[0]
        raise ImportError(
            f"{library} is not installed. Install it with: pip install "
            f'"fitplug[{extra or _EXTRAS.get(library, library)}]"'
        ) from None
