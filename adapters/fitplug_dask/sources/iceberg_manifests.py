"""Iceberg manifests: the files of data and of deletes that a snapshot consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fitplug_dask.sources.avro import read_avro
from fitplug_dask.sources.locations import Options
from fitplug_dask.sources.table_folders import read_bytes, run_concurrently

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
"""What a file holds, as manifests number it."""

_ADDED, _DELETED = 1, 2  # the status of an entry


class IcebergFile(NamedTuple):
    """One file of a snapshot.

    Attributes:
        path: The path or URL.
        content: DATA, POSITION_DELETES or EQUALITY_DELETES.
        format: "parquet", "puffin" or another, in small letters.
        size: The bytes of the file.
        records: The rows of the file; of a bitmap, the rows that it deletes.
        sequence: The number of the commit that added it. Deletes work on older files.
        spec: The number of its partition spec.
        partition: The values of the fields of the spec.
        equality_ids: The numbers of the columns by which an equality delete compares.
        blob: Where a bitmap begins in its file, and its bytes.
        referenced: The path of the data file that deletes work on, if it is a single one.
        is_encrypted: Whether the file is encrypted.
    """

    path: str
    content: int
    format: str
    size: int
    records: int
    sequence: int
    spec: int
    partition: tuple[Any, ...]
    equality_ids: tuple[int, ...]
    blob: tuple[int, int] | None
    referenced: str | None
    is_encrypted: bool


def read_manifests(
    snapshot: Mapping[str, Any], options: Options | None
) -> tuple[list[IcebergFile], list[IcebergFile]]:
    """Read the manifests of a snapshot.

    Returns:
        The files of data, and the files of deletes.

    Raises:
        DataError: A manifest cannot be read.
        Exception: A manifest is damaged.
    """
    if "manifest-list" in snapshot:
        listed = list(read_avro(read_bytes(snapshot["manifest-list"], options)))
    else:  # as early writers of version 1 did
        listed = [{"manifest_path": path} for path in snapshot["manifests"]]
    paths = [manifest["manifest_path"] for manifest in listed]
    contents = run_concurrently(lambda path: read_bytes(path, options), paths)
    files = [
        file
        for manifest, content in zip(listed, contents, strict=True)
        for file in _read_manifest(manifest, content)
    ]
    data = [file for file in files if file.content == DATA]
    return data, [file for file in files if file.content != DATA]


def _read_manifest(manifest: Mapping[str, Any], content: bytes) -> Iterator[IcebergFile]:
    """Yield the files of one manifest that are not removed."""
    for entry in read_avro(content):
        if entry["status"] == _DELETED:
            continue
        sequence = entry.get("sequence_number")
        if sequence is None:  # what the commit added takes the commit's number
            if entry["status"] != _ADDED and manifest.get("sequence_number", 0):
                raise ValueError("an entry of a manifest lacks its sequence number")
            sequence = manifest.get("sequence_number") or 0
        held = entry["data_file"]
        start, length = held.get("content_offset"), held.get("content_size_in_bytes")
        yield IcebergFile(
            path=held["file_path"],
            content=held.get("content") or DATA,
            format=held["file_format"].lower(),
            size=held["file_size_in_bytes"],
            records=held["record_count"],
            sequence=sequence,
            spec=manifest.get("partition_spec_id") or 0,
            partition=tuple(held["partition"].values()),
            equality_ids=tuple(held.get("equality_ids") or ()),
            blob=None if start is None or length is None else (start, length),
            referenced=held.get("referenced_data_file"),
            is_encrypted=held.get("key_metadata") is not None,
        )
