"""Delta log: which files and deletion vectors a version of a Delta table consists of.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fitplug.errors import DataError
from fitplug_dask.sources.locations import Options, redact_url
from fitplug_dask.sources.table_folders import list_names, read_bytes, run_concurrently

LOG_FOLDER = "_delta_log"

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.parquet")
_JSON_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.[0-9a-f-]{36}\.json")
_CHECKPOINT_COLUMNS = ("protocol", "metaData", "add", "sidecar")

_MOST_READER_VERSION = 3
_KNOWN_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""What a reader must know of this is done here and in `delta_tables`. Widened types need nothing,
as each file is read by its own types, and no checkpoint is removed here.
"""


class FileKey(NamedTuple):
    """What identifies a file of a table: the same path may come with another deletion vector."""

    path: str
    vector: str


@dataclass
class DeltaState:
    """A version of a table.

    Attributes:
        metadata: The action that describes the columns.
        protocol: The action that says what a reader must know.
        files: The actions that add the files which are not removed.
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    files: dict[FileKey, dict[str, Any]] = field(default_factory=dict)

    def apply(self, actions: Iterator[Mapping[str, Any]]) -> None:
        """Apply the actions of one commit or checkpoint."""
        for action in actions:
            if action.get("metaData"):
                self.metadata = action["metaData"]
            if action.get("protocol"):
                self.protocol = action["protocol"]
            if action.get("remove"):
                self.files.pop(_identify(action["remove"]), None)
            if action.get("add"):
                self.files[_identify(action["add"])] = action["add"]


def replay_log(root: str, version: int | None, options: Options | None) -> tuple[int, DeltaState]:
    """Replay the log of a table.

    Args:
        root: The table's folder.
        version: The version; None for the latest.
        options: Keywords of the file system that the folder's URL names.

    Returns:
        The version, and the table in it.

    Raises:
        DataError: There is no such table or version, the log is damaged, or a reader must know
            more than is known here.
    """
    folder = f"{root.rstrip('/')}/{LOG_FOLDER}"
    shown = redact_url(root)
    names = list_names(folder, options)
    commits = {int(found[1]): name for name in names if (found := _COMMIT.fullmatch(name))}
    checkpoints = _find_checkpoints(names)
    if not commits and not checkpoints:
        raise DataError(f"{shown} is no Delta table: it has no {LOG_FOLDER}; check the path")
    latest = max([*commits, *checkpoints])
    wanted = latest if version is None else version
    start = max((number for number in checkpoints if number <= wanted), default=-1)
    needed = range(start + 1, wanted + 1)
    if wanted > latest or any(number not in commits for number in needed):
        raise DataError(
            f"{shown} has no version {wanted}, or its log is incomplete; the latest version is "
            f"{latest}"
        )
    state = DeltaState()
    try:
        for name in checkpoints.get(start, ()):
            state.apply(_read_checkpoint(folder, name, options))
        paths = [f"{folder}/{commits[number]}" for number in needed]
        for content in run_concurrently(lambda path: read_bytes(path, options), paths):
            state.apply(_read_json(content))
        _check_protocol(shown, state.protocol)
        return wanted, state
    except DataError:
        raise
    except Exception:  # a damaged file; what its reader says may quote values
        pass
    raise DataError(f"the log of the Delta table {shown} is damaged; check the table")


def _find_checkpoints(names: Sequence[str]) -> dict[int, list[str]]:
    """Return the files of one complete checkpoint of each version that has one."""
    parts: dict[tuple[int, int], list[str]] = {}
    found: dict[int, list[str]] = {}
    for name in names:
        if match := _JSON_CHECKPOINT.fullmatch(name):
            found[int(match[1])] = [name]
        if match := _CHECKPOINT.fullmatch(name):
            if match[3] is None:
                found[int(match[1])] = [name]
            else:
                parts.setdefault((int(match[1]), int(match[3])), []).append(name)
    for (version, count), held in parts.items():
        if len(held) == count:
            found.setdefault(version, held)
    return found


def _read_checkpoint(
    folder: str, name: str, options: Options | None
) -> Iterator[Mapping[str, Any]]:
    """Yield the actions of one file of a checkpoint, and of the files that it names."""
    content = read_bytes(f"{folder}/{name}", options)
    actions = _read_json(content) if name.endswith(".json") else _read_parquet(content)
    for action in actions:
        if action.get("sidecar"):
            path = action["sidecar"]["path"]
            full = path if "/" in path else f"{folder}/_sidecars/{path}"
            yield from _read_parquet(read_bytes(full, options))
        else:
            # The files removed earlier are listed too; they are not among those added.
            yield {key: value for key, value in action.items() if key != "remove"}


def _read_parquet(content: bytes) -> Iterator[Mapping[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as parquet:
        columns = [name for name in _CHECKPOINT_COLUMNS if name in parquet.schema_arrow.names]
        for batch in parquet.iter_batches(columns=columns):
            converters = {field.name: _make_converter(field.type) for field in batch.schema}
            for row in batch.to_pylist():
                yield {name: converters[name](value) for name, value in row.items()}


def _make_converter(kind: Any) -> Callable[[Any], Any]:
    """Make a function that converts maps of Arrow, which are lists of pairs, to dictionaries.

    It does so in values of one type, and in the values that they hold. PyArrow does this itself
    from version 20 on. What a type asks for is found once, and not for each value.
    """
    import pyarrow.types as pt

    if pt.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        of_field = {field.name: _make_converter(field.type) for field in fields}
        return lambda value: (
            None if value is None else {name: own(value[name]) for name, own in of_field.items()}
        )
    if pt.is_map(kind):
        of_item = _make_converter(kind.item_type)
        return lambda value: None if value is None else _make_dictionary(value, of_item)
    if pt.is_list(kind) or pt.is_large_list(kind):
        of_value = _make_converter(kind.value_type)
        return lambda value: None if value is None else [of_value(held) for held in value]
    return lambda value: value


def _make_dictionary(
    pairs: Sequence[tuple[Any, Any]], convert: Callable[[Any], Any]
) -> dict[Any, Any]:
    found = {key: convert(held) for key, held in pairs}
    if len(found) != len(pairs):
        raise ValueError("a map has a key twice")
    return found


def _read_json(content: bytes) -> Iterator[Mapping[str, Any]]:
    for line in content.splitlines():
        if line.strip():
            yield json.loads(line)


def _identify(action: Mapping[str, Any]) -> FileKey:
    vector = action.get("deletionVector")
    if not vector:
        return FileKey(action["path"], "")
    parts = (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))
    return FileKey(action["path"], "/".join(map(str, parts)))


def _check_protocol(shown: str, protocol: Mapping[str, Any]) -> None:
    """Raise DataError if a reader must know more than is known here."""
    version = protocol["minReaderVersion"]
    unknown = sorted(set(protocol.get("readerFeatures") or ()) - _KNOWN_FEATURES)
    if version > _MOST_READER_VERSION:
        unknown.append(f"reader version {version}")
    if unknown:
        raise DataError(
            f"the Delta table {shown} uses {', '.join(unknown)}, which is not supported; "
            "write a copy of it as plain Parquet"
        )
