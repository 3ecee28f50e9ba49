"""Iceberg tables: the files of a snapshot, with their renamed columns and deleted rows.

The package `pyiceberg` reads the metadata and the manifests, and finds each file's delete files.
https://iceberg.apache.org/spec/
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import IcebergTable
from fitplug.errors import DataError
from fitplug.files import redact_url
from fitplug_dask.sources.locations import Location, locate
from fitplug_dask.sources.source_files import (
    Format,
    SourceFile,
    StoredColumn,
    TableEntry,
    check_is_lake,
    pack_rows,
    spell_value,
)
from fitplug_dask.sources.stores import Options

_SPELLED_TYPES = ("boolean", "int", "long", "string")
_READERS = 16
_FRAME_BYTES, _VECTOR_MAGIC = 4, b"\xd1\xd3\x39\x64"
_COPY = "which fitplug does not support. Write a copy of the table as plain Parquet."

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _TableFile:
    """A file of a table, in the form that pyiceberg expects. It is opened like files of rows."""

    location: str
    place: Location

    def open(self, seekable: bool = True) -> Any:
        return self.place.open(sequential=True)


class _TableFiles:
    """The files of a table, in the form that pyiceberg expects."""

    def __init__(self, options: Options | None) -> None:
        self.properties: Mapping[str, str] = {}
        self._options = options

    def new_input(self, location: str) -> _TableFile:
        return _TableFile(location, locate(location, self._options))


def find_iceberg_files(table: IcebergTable | Any, options: Options | None) -> list[SourceFile]:
    """Find the files of a snapshot of an Iceberg table.

    Args:
        table: The table by its path, or a Table or DataScan of pyiceberg.
        options: How the stores of URLs are reached.

    Raises:
        DataError: There is no such table or snapshot, it cannot be read as its metadata require, or
            `pyiceberg` is missing.
    """
    if isinstance(table, IcebergTable):
        path = _find_metadata(str(table.path), options)
        shown = redact_url(path)
        scan = _open(shown, path, table.snapshot_id, options)
    else:
        scan = table.scan() if hasattr(table, "scan") else table
        shown = redact_url(scan.table_metadata.location)
    fault = "cannot be read, or its metadata are damaged. Check the table."
    try:
        return _read_files(shown, scan, options)
    except DataError:
        raise
    except Exception as error:  # the package's message may quote values
        if "equality deletes" in str(error):
            fault = f"has equality deletes, {_COPY}"
    raise DataError(f"the Iceberg table {shown} {fault}")


def _open(shown: str, path: str, snapshot_id: int | None, options: Options | None) -> Any:
    """Return the scan of a table, given the path of its metadata file."""
    fault = f"the Iceberg table {shown} cannot be read, or is damaged. Check the path."
    try:
        from pyiceberg.serializers import FromInputFile
        from pyiceberg.table import DataScan

        files: Any = _TableFiles(options)
        metadata = FromInputFile.table_metadata(files.new_input(path))
        return DataScan(table_metadata=metadata, io=files, snapshot_id=snapshot_id)
    except ImportError:
        fault = (
            f"the Iceberg table {shown} needs the package pyiceberg. Install it with: pip install "
            '"fitplug[iceberg]"'
        )
    except Exception:  # the message of the package or of a store's client may hold credentials
        pass
    raise DataError(fault)


def _find_metadata(given: str, options: Options | None) -> str:
    """Return the path of the metadata file."""
    if given.endswith(".json"):
        return given
    check_is_lake(given, "iceberg")
    folder = f"{given.rstrip('/')}/metadata"
    hint = ""
    try:
        with locate(f"{folder}/version-hint.text", options).open(sequential=True) as file:
            hint = file.read().decode("ascii").strip()
    except Exception:  # the message of a store's client may hold credentials
        pass
    if not hint:
        raise DataError(
            f"the current version of the Iceberg table {redact_url(given)} is unknown. Name the "
            "metadata file (*.metadata.json) of this version."
        )
    name = hint if hint.endswith(".json") else f"{'v' * hint.isdecimal()}{hint}.metadata.json"
    return f"{folder}/{name}"


def _read_files(shown: str, scan: Any, options: Options | None) -> list[SourceFile]:
    """Return the files of a scan."""
    from pyiceberg.expressions import AlwaysTrue

    metadata = scan.table_metadata
    if scan.snapshot_id is not None and metadata.snapshot_by_id(scan.snapshot_id) is None:
        raise DataError(
            f"the Iceberg table {shown} has no snapshot {scan.snapshot_id}. Check the ID."
        )
    if scan.row_filter != AlwaysTrue() or scan.limit is not None:
        raise DataError(
            f"the scan of the Iceberg table {shown} has a filter or a limit. Scan the whole table, "
            "and filter with where=."
        )
    tasks = list(scan.plan_files())
    for file in (one for task in tasks for one in (task.file, *task.delete_files)):
        _check_file(shown, file)
    deletes = {one.file_path: one for task in tasks for one in task.delete_files}
    with ThreadPoolExecutor(_READERS) as readers:
        read = readers.map(lambda one: _read_deletes(scan.io, one), deletes.values())
        positions = dict(zip(deletes, read, strict=True))
    fields = scan.projection().fields
    columns = _list_columns(metadata, fields)
    plain = {field.field_id for field in fields if str(field.field_type) in _SPELLED_TYPES}
    files = []
    for task in tasks:
        file = task.file
        deletions = [positions[one.file_path].get(file.file_path) for one in task.delete_files]
        filled = _share_partition(columns, plain, file, metadata.specs()[file.spec_id].fields)
        deleted = _join_positions([one for one in deletions if one is not None], file.record_count)
        entry = TableEntry(filled, deleted, file.file_size_in_bytes)
        location = locate(file.file_path, options)
        files.append(SourceFile(redact_url(file.file_path), (), location, Format.PARQUET, entry))
    return sorted(files, key=lambda file: file.location.path)


def _check_file(shown: str, file: Any) -> None:
    """Raise DataError if a file has an unsupported format or is encrypted."""
    kind = str(getattr(file.file_format, "value", file.file_format)).lower()
    is_vector = kind == "puffin" and file.content != 0
    fault = None
    if kind != "parquet" and not is_vector:
        fault = f"has {kind} files"
    elif file.key_metadata is not None:
        fault = "has encrypted files"
    if fault:
        raise DataError(f"the Iceberg table {shown} {fault}, {_COPY}")


def _list_columns(metadata: Any, fields: Sequence[Any]) -> dict[str, StoredColumn]:
    """Return the columns of a schema, by name."""
    mapping = metadata.name_mapping()
    names = {one.field_id: tuple(one.names) for one in (mapping.root if mapping else ())}
    default = "is missing in this file and has a default, which fitplug does not support"
    return {
        field.name: StoredColumn(
            names.get(field.field_id, ()),
            field.field_id,
            absent=None if field.initial_default is None else default,
        )
        for field in fields
    }


def _share_partition(
    columns: Mapping[str, StoredColumn], plain: set[int], file: Any, spec: Sequence[Any]
) -> dict[str, StoredColumn]:
    """Return the columns, with the values from the partition for columns that the file may lack.

    Args:
        columns: The columns of the table, by name.
        plain: The numbers of the columns whose partition values can be written as text.
        file: The data file.
        spec: The fields of its partition spec.
    """
    shared = {
        field.source_id: file.partition[number]
        for number, field in enumerate(spec)
        if str(field.transform) == "identity"
    }
    filled = {}
    for name, column in columns.items():
        filled[name] = column
        if column.field_id in shared and column.field_id in plain:
            filled[name] = column._replace(shared=(spell_value(shared[column.field_id]),))
        elif column.field_id in shared:
            filled[name] = column._replace(
                absent=(
                    "is missing in this file, and only its partition gives the value, which "
                    "fitplug does not support"
                )
            )
    return filled


def _join_positions(deletions: Sequence[Positions], rows: int) -> bytes | None:
    """Return the packed deleted rows of a file with `rows` rows; None if there are none."""
    positions = np.concatenate(deletions) if deletions else np.zeros(0, dtype=np.int64)
    if not len(positions):
        return None
    if positions.min() < 0 or positions.max() >= rows:
        raise ValueError("the deletions name a row beyond the end of its file")
    deleted = np.zeros(positions.max() + 1, dtype=bool)
    deleted[positions] = True
    return pack_rows(deleted)


def _read_deletes(files: Any, delete: Any) -> dict[str, Positions]:
    """Return the positions of deleted rows in one delete file, by their data files."""
    with files.new_input(delete.file_path).open() as file:
        content: bytes = file.read()
    if len(content) != delete.file_size_in_bytes:
        raise ValueError("the deletion file does not have the size that its table records")
    if content[:4] == b"PFA1":
        return read_vectors(content)
    return read_positions(content, delete.record_count)


def read_vectors(content: bytes) -> dict[str, Positions]:
    """Read the deletion vectors of a Puffin file, by their data files.

    Unlike pyiceberg, this checks the checksums.

    Raises:
        Exception: The file is damaged.
    """
    from pyiceberg.table.puffin import PuffinFile
    from pyroaring import BitMap64

    vectors: dict[str, Positions] = {}
    for blob in PuffinFile(content).footer.blobs:
        if blob.type != "deletion-vector-v1":
            continue
        framed = content[blob.offset : blob.offset + blob.length]
        vector, checksum = framed[_FRAME_BYTES:-_FRAME_BYTES], framed[-_FRAME_BYTES:]
        if int.from_bytes(framed[:_FRAME_BYTES], "big") != len(vector):
            raise ValueError("the deletion vector has the wrong length")
        if int.from_bytes(checksum, "big") != zlib.crc32(vector) or vector[:4] != _VECTOR_MAGIC:
            raise ValueError("the deletion vector has the wrong checksum")
        positions = np.asarray(BitMap64.deserialize(vector[4:]).to_array()).astype(np.int64)
        if len(positions) != int(blob.properties["cardinality"]):
            raise ValueError("the deletion vector has the wrong number of rows")
        vectors[blob.properties["referenced-data-file"]] = positions
    return vectors


def read_positions(content: bytes, rows: int) -> dict[str, Positions]:
    """Read the positions in a Parquet file of position deletes, by their data files.

    Args:
        content: The file.
        rows: The number of rows that it must have.

    Raises:
        Exception: The file is damaged.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True) as parquet:
        table = parquet.read(["file_path", "pos"], use_threads=False)
    if len(table) != rows or table["file_path"].null_count or table["pos"].null_count:
        raise ValueError("the deletion file does not have the rows that its table records")
    grouped = table.group_by("file_path", use_threads=False).aggregate([("pos", "list")])
    lists = (each.values.to_numpy().astype(np.int64) for each in grouped["pos_list"])
    return dict(zip(grouped["file_path"].to_pylist(), lists, strict=True))
