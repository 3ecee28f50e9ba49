"""Release folders that somebody edits, and whose digests are made to agree with the edits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fitplug.files import hash_content


def forge_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what the manifest says of the answers."""
    manifest = folder / "answers" / "manifest.json"
    header = json.loads(manifest.read_text())
    change(header)
    manifest.write_text(json.dumps(header))
    digest = hash_content(manifest.read_bytes())
    _change_record(folder, {"answers/manifest.json": digest}, answers_digest=digest)


def forge_table(folder: Path, group: str, table: pa.Table) -> None:
    """Replace the only part of a group's table."""
    path = find_table(folder, group)
    pq.write_table(table, path)
    tables = json.loads((folder / "tables.json").read_text())
    (said,) = (one for one in tables["groups"] if one["name"] == group)
    said["parts"][0][2:] = [path.stat().st_size, hash_content(path.read_bytes())]
    (folder / "tables.json").write_text(json.dumps(tables))
    _change_record(folder, {"tables.json": hash_content((folder / "tables.json").read_bytes())})


def find_table(folder: Path, group: str) -> Path:
    """Find the file of a table of one part."""
    return folder / f"{group}.parquet" / "part-00000.parquet"


def _change_record(folder: Path, digests: dict[str, str], **fields: str) -> None:
    record = folder / "release.json"
    said = json.loads(record.read_text()) | fields
    said["files"] |= digests
    record.write_text(json.dumps(said))
