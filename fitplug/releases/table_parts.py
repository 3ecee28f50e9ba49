"""Tables in parts: a data set of Parquet files for each group, which reads as one table.

A part has the answers of a group whose index along one axis is in a range. It has the columns and
the metadata of the group's whole table. A manifest lists the digest of each part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from fitplug.errors import InputError
from fitplug.files import (
    ArrowTable,
    Place,
    decode_parquet,
    encode_parquet,
    hash_content,
)
from fitplug.numeric import AnyArray, FloatArray, freeze
from fitplug.releases.answer_parts import read_checked
from fitplug.releases.manifest import list_core_versions, name_files, read_manifest_header
from fitplug.releases.noisy_answers import EstimatesPart, NoisyAnswers
from fitplug.releases.tables import (
    RESULT_COLUMNS,
    VERSION,
    Intervals,
    TableSlice,
    choose_intervals,
    make_metadata,
    make_table_part,
)
from fitplug.workload import ArraysByGroup, QueryGroup, Workload

TABLES = "tables.json"
"""The file name of the manifest."""

REPEATED = ("std", "moe", "confidence")
"""The columns of numbers whose values repeat often."""

_KIND, _FORMAT = "tables of fitplug", 1


@dataclass(frozen=True)
class TablePart:
    """A durable part of a table.

    Attributes:
        slice: The answers that it has.
        bytes: The size of its file.
        digest: The SHA-256 of the file, in hex.
    """

    slice: TableSlice
    bytes: int
    digest: str


def name_table_folder(release: NoisyAnswers, group: str) -> str:
    """Return the name of the folder of a group's data set."""
    return f"{name_files(release.plan.workload)[group]}.parquet"


def name_table_part(number: int) -> str:
    """Return the file name of a part of a table."""
    return f"part-{number:05}.parquet"


def write_table_part(
    folder: Place,
    release: NoisyAnswers,
    chosen: TableSlice,
    estimates: FloatArray,
    *,
    answers_digest: str,
    confidence: float,
) -> TablePart:
    """Write a part of a group's table. The same part always has the same bytes.

    Args:
        folder: The folder of the release, or its staging area.
        release: The release; its answers are not used.
        chosen: Which answers the part has.
        estimates: Their estimates, of the part's shape.
        answers_digest: The digest of the answers, by `write_manifest`.
        confidence: The confidence of the intervals, for groups whose target has no confidence.

    Returns:
        The part, which is durable.

    Raises:
        OSError: The file cannot be written.
        ImportError: pyarrow is not installed.
        WorkloadError: An attribute has the name of a result column.
    """
    group = release.plan.workload[chosen.group]
    intervals = choose_intervals(group, None, default=confidence)
    metadata = describe_table(release, group, intervals, answers_digest)
    table = make_table_part(release, chosen, estimates, intervals, metadata)
    repeated = [name for name in table.column_names if name not in RESULT_COLUMNS]
    content = encode_parquet(table, [*repeated, *REPEATED])
    data_set = folder.join(name_table_folder(release, group.name))
    data_set.replace(name_table_part(chosen.number), content)
    return TablePart(chosen, len(content), hash_content(content))


def read_table_part(folder: Place, part: TablePart, columns: list[str] | None = None) -> ArrowTable:
    """Read a part of a table, and check its digest.

    Args:
        folder: The folder of the group's data set.
        part: The part.
        columns: The columns to read; None for all.

    Raises:
        InputError: The file is missing, damaged or was edited.
        OSError: The file cannot be read.
        ImportError: pyarrow is not installed.
    """
    name = name_table_part(part.slice.number)
    content = read_checked(folder, name, part.digest)
    try:
        return decode_parquet(content, columns)
    except ImportError:
        raise
    except Exception:  # pyarrow raises many kinds on damage
        raise InputError(
            f"{folder}/{name}: the table is damaged. Get the folder again from its publisher."
        ) from None


def describe_table(
    release: NoisyAnswers, group: QueryGroup, intervals: Intervals, answers_digest: str
) -> dict[str, str]:
    """Make the metadata of a group's table in a folder."""
    versions = {f"{VERSION}{name}": text for name, text in list_core_versions().items()}
    metadata = make_metadata(release, group, intervals)
    return metadata | {"fitplug.answers_digest": answers_digest} | versions


class PartedTables:
    """The tables of a release in parts.

    Attributes:
        answers_digest: The digest of the answers that the tables were made from.
        parts: The parts of each group's table, in order.
        intervals: The kind of intervals of each group's table.
    """

    def __init__(
        self,
        folder: Place,
        workload: Workload,
        answers_digest: str,
        parts: Mapping[str, Sequence[TablePart]],
        intervals: Mapping[str, Intervals],
    ) -> None:
        self.answers_digest = answers_digest
        self.parts = parts
        self.intervals = intervals
        self._folder, self._workload = folder, workload
        self._files = name_files(workload)

    @cached_property
    def estimates(self) -> Mapping[str, AnyArray]:
        """The estimates by group, each read on access and not cached."""
        return ArraysByGroup(self._workload, self._read_estimates)

    def _read_estimates(self, g: int) -> FloatArray:
        """Read the estimates of the group at a position."""
        group = self._workload.groups[g]
        estimates = np.empty(group.shape)
        for part in self.list_parts(group.name):
            estimates[part.index(estimates.ndim)] = part.read()
        return freeze(estimates)

    def find_folder(self, name: str) -> Place:
        """Return the folder of a group's data set."""
        return self._folder.join(f"{self._files[name]}.parquet")

    def list_parts(self, name: str) -> Sequence[EstimatesPart]:
        """List the parts of a group's estimates; reading one checks the digest of its file."""
        group, folder = self._workload[name], self.find_folder(name)

        def read(part: TablePart) -> FloatArray:
            column = read_table_part(folder, part, ["estimate"])["estimate"].to_numpy()
            return np.asarray(column, dtype=np.float64).reshape(part.slice.find_shape(group))

        return [
            EstimatesPart(part.slice.axis, part.slice.start, part.slice.stop, partial(read, part))
            for part in self.parts[name]
        ]

    def iterate(self, name: str) -> Iterator[ArrowTable]:
        """Read the parts of a group's table one after another.

        Raises:
            InputError: A part is missing, damaged or was edited.
            OSError: A part cannot be read.
            KeyError: There is no such group.
        """
        folder = self.find_folder(name)
        for part in self.parts[name]:
            yield read_table_part(folder, part)


def encode_tables(
    release: NoisyAnswers, parts: Sequence[TablePart], answers_digest: str, confidence: float
) -> bytes:
    """Encode the manifest of all tables.

    Raises:
        InputError: The parts do not have each answer of each group once.
    """
    by_group: dict[str, list[TablePart]] = {name: [] for name in release.plan.workload.names}
    for part in sorted(parts, key=lambda part: part.slice.number):
        by_group[part.slice.group].append(part)
    groups = []
    for group in release.plan.workload.groups:
        table = by_group[group.name]
        check_parts(group, table)
        kind = choose_intervals(group, None, default=confidence)
        groups.append(
            {
                "name": group.name,
                "axis": table[0].slice.axis,
                **kind._asdict(),
                "parts": [[p.slice.start, p.slice.stop, p.bytes, p.digest] for p in table],
            }
        )
    header = {
        "kind": _KIND,
        "format": _FORMAT,
        "answers_digest": answers_digest,
        "groups": groups,
    }
    return json.dumps(header, ensure_ascii=True).encode()


def decode_tables(folder: Place, workload: Workload, content: bytes) -> PartedTables:
    """Decode the manifest of all tables of a folder.

    Raises:
        InputError: It is damaged, of another format, or does not fit the workload.
    """
    name = f"{folder}/{TABLES}"
    header = read_manifest_header(name, content, _KIND, _FORMAT)
    try:
        parts = {one["name"]: parse_parts(one) for one in header["groups"]}
        intervals = {
            one["name"]: Intervals(float(one["confidence"]), bool(one["simultaneous"]))
            for one in header["groups"]
        }
        for group in workload.groups:
            check_parts(group, parts[group.name])
        return PartedTables(folder, workload, str(header["answers_digest"]), parts, intervals)
    except Exception:  # entries that are missing or of another type raise many kinds of errors
        raise InputError(
            f"{name} does not fit the plan. Get the folder again from its publisher."
        ) from None


def parse_parts(described: Mapping[str, Any]) -> list[TablePart]:
    """Read a manifest's description of the parts of a group."""
    return [
        TablePart(
            TableSlice(described["name"], number, int(described["axis"]), int(start), int(stop)),
            int(size),
            str(digest),
        )
        for number, (start, stop, size, digest) in enumerate(described["parts"])
    ]


def check_parts(group: QueryGroup, parts: Sequence[TablePart]) -> None:
    """Raise InputError unless parts have each answer of a group once, in order."""
    shape = group.shape or (1,)
    axis = parts[0].slice.axis if parts else 0
    ends = [0, *(part.slice.stop for part in parts)]
    fits = 0 <= axis < len(shape) and ends[-1] == shape[axis]
    for number, (part, start) in enumerate(zip(parts, ends, strict=False)):
        cut = part.slice
        fits = fits and (cut.number, cut.axis, cut.start) == (number, axis, start)
        fits = fits and cut.start < cut.stop
    if not fits:
        raise InputError(f"the parts of {group.name!r} do not contain each answer exactly once")
