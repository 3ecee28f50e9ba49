"""Tables of lakes with deleted rows, which the writers of Python do not write: deletion vectors of
Delta, and position deletes, equality deletes and deletion vectors of Iceberg.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.typedef import Record
from pyroaring import BitMap64

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def encode_z85(content: bytes) -> str:
    text = ""
    for (word,) in struct.iter_unpack(">I", content):
        digits = ""
        for _ in range(5):
            digits, word = _Z85[word % 85] + digits, word // 85
        text += digits
    return text


def make_vector(positions: Sequence[int]) -> bytes:
    """A deletion vector of these positions, as CRoaring writes it."""
    bitmap = BitMap64(positions)
    return struct.pack("<I", 1681511377) + bitmap.serialize()


def frame_vector(vector: bytes) -> bytes:
    """The vector between its length and its checksum, as files hold it."""
    return struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))


# Delta


def commit_delta(root: Path, *actions: dict[str, Any]) -> int:
    """Commit actions as the next version of a table."""
    log = root / "_delta_log"
    version = 1 + max(int(path.stem) for path in log.glob("*.json"))
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020d}.json").write_text(lines)
    return version


def list_added(root: Path) -> list[dict[str, Any]]:
    """The actions that added files, of all commits."""
    commits = sorted((root / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for path in commits for line in path.read_text().splitlines()]
    return [action["add"] for action in actions if "add" in action]


def describe_feature(*features: str) -> dict[str, Any]:
    """The action that says what a reader must know."""
    names = list(features)
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": names,
            "writerFeatures": names,
        }
    }


def delete_delta_rows(
    root: Path, add: dict[str, Any], positions: Sequence[int], storage: str
) -> int:
    """Commit a deletion vector of a file, stored inline ("i"), beside it ("u") or by path ("p")."""
    vector = make_vector(positions)
    descriptor = {"storageType": storage, "sizeInBytes": len(vector), "cardinality": len(positions)}
    if storage == "i":
        padded = vector + b"\0" * (-len(vector) % 4)
        descriptor |= {"pathOrInlineDv": encode_z85(padded)}
    else:
        name = uuid.uuid4()
        path = root / "ab" / f"deletion_vector_{name}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\x01" + b"other bytes" + frame_vector(vector) + b"more")
        shown = f"ab{encode_z85(name.bytes)}" if storage == "u" else path.as_uri()
        descriptor |= {"pathOrInlineDv": shown, "offset": 12}
    return commit_delta(
        root,
        describe_feature("deletionVectors"),
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": descriptor}},
    )


# Iceberg


@contextmanager
def make_catalog(warehouse: str, **properties: str) -> Iterator[InMemoryCatalog]:
    catalog = InMemoryCatalog("test", warehouse=warehouse, **properties)
    try:
        catalog.create_namespace("n")
        yield catalog
    finally:
        catalog.engine.dispose()  # its connections to SQLite are never closed otherwise


class _DeleteManifestWriter(ManifestWriterV2):
    """A writer of manifests of deletes, with the fields that version 3 adds for bitmaps."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self) -> Any:
        schema = self._with_partition(3)
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=schema,
            record_schema=schema,
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def describe_delete(path: Path, kind: str, rows: int, **more: Any) -> DataFile:
    """An entry for a file of deletes; kind is "positions", "values" or "bitmap"."""
    content = DataFileContent.EQUALITY_DELETES if kind == "values" else None
    more = {"partition": Record(), **more}
    return DataFile.from_args(
        _table_format_version=3,
        content=content or DataFileContent.POSITION_DELETES,
        file_path=path.as_uri(),
        file_format=FileFormat.PUFFIN if kind == "bitmap" else FileFormat.PARQUET,
        record_count=rows,
        file_size_in_bytes=path.stat().st_size,
        **more,
    )


def commit_iceberg_deletes(table: Any, folder: Path, *deletes: DataFile) -> Path:
    """Write the metadata of a table with one more commit, which adds files of deletes.

    The catalog does not know of it. Returns the path of the metadata.
    """
    number = table.metadata.last_sequence_number + 1
    identity = 10**6 + number
    output = table.io.new_output((folder / f"deletes-{number}.avro").as_uri())
    spec = table.spec()
    with _DeleteManifestWriter(spec, table.schema(), output, identity, "deflate") as writer:
        for delete in deletes:
            writer.add_entry(
                ManifestEntry.from_args(
                    _table_format_version=3,
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=identity,
                    sequence_number=None,
                    data_file=delete,
                )
            )
    manifests = table.current_snapshot().manifests(table.io)
    listed = table.io.new_output((folder / f"list-{number}.avro").as_uri())
    with write_manifest_list(2, listed, identity, None, number, "deflate") as every:
        every.add_manifests([*manifests, writer.to_manifest_file()])
    metadata = json.loads(table.metadata.model_dump_json(by_alias=True))
    metadata["snapshots"].append(
        {
            "snapshot-id": identity,
            "sequence-number": number,
            "timestamp-ms": metadata["last-updated-ms"] + number,
            "manifest-list": listed.location,
            "summary": {"operation": "delete"},
            "schema-id": metadata["current-schema-id"],
        }
    )
    metadata |= {"current-snapshot-id": identity, "last-sequence-number": number}
    metadata["refs"] = {"main": {"snapshot-id": identity, "type": "branch"}}
    path = folder / f"{number:05d}.metadata.json"
    path.write_text(json.dumps(metadata))
    return path


def write_puffin(path: Path, deleted: Mapping[str, Sequence[int]]) -> Path:
    """Write a file of deletion vectors, by the files whose rows they delete."""
    content, blobs = b"PFA1", []
    for file, positions in deleted.items():
        framed = frame_vector(make_vector(positions))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(framed),
                "properties": {"referenced-data-file": file, "cardinality": str(len(positions))},
            }
        )
        content += framed
    footer = json.dumps({"blobs": blobs}).encode()
    size = struct.pack("<I", len(footer))
    path.write_bytes(content + b"PFA1" + footer + size + b"\0\0\0\0" + b"PFA1")
    return path


def write_positions(path: Path, deleted: Sequence[tuple[str, int]]) -> Path:
    """Write a file of position deletes."""
    ids = [pa.field("file_path", pa.string(), False), pa.field("pos", pa.int64(), False)]
    numbers = (2147483546, 2147483545)
    schema = pa.schema(
        [
            one.with_metadata({"PARQUET:field_id": str(number)})
            for one, number in zip(ids, numbers, strict=True)
        ]
    )
    files, positions = zip(*sorted(deleted), strict=True)
    pq.write_table(pa.table([files, positions], schema=schema), path, row_group_size=7)
    return path
