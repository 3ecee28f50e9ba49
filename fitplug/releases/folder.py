"""Release folders: the noisy answers and the tables in parts, usually one, and the plan.

    release.json            what the release is, and the digests of the files below
    plan.npz                the plan
    answers/                part-00000.npy ... and manifest.json with the digest of each
    tables.json             the digests of the parts of all tables
    <group>.parquet/        part-00000.parquet ...: one table, as a data set
    display.json            if asked for, display tables (`display_parts`)

Anyone who holds the folder can compute every estimate, variance and covariance again from the plan
and the answers, without the data. release.json is written last: with it, the folder is a release.
Each file's digest is checked when the file is read.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fitplug.errors import InputError
from fitplug.families import PART
from fitplug.files import (
    LocalPlace,
    Place,
    fill_new_folder,
    hash_content,
    open_place,
)
from fitplug.plan import Plan
from fitplug.releases.answer_parts import ANSWER_PARTS, PartedAnswers, name_part, read_checked
from fitplug.releases.display_parts import (
    DISPLAY,
    DisplayParts,
    DisplayRequest,
    read_display,
    write_display,
)
from fitplug.releases.manifest import MANIFEST, PLAN, read_manifest, write_answers
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.table_parts import (
    TABLES,
    PartedTables,
    TablePart,
    decode_tables,
    encode_tables,
    name_table_part,
    write_table_part,
)
from fitplug.releases.tables import cut_table

AnyRelease = TypeVar("AnyRelease", bound=NoisyAnswers, contravariant=True)

RECORD = "release.json"
SERIES_RECORD = "series.json"  # of a series, whose periods are released one by one

_KIND, _FORMAT = "release of fitplug", 1
ANSWERS_MANIFEST = f"{ANSWER_PARTS}/{MANIFEST}"


class MoreFiles(Protocol[AnyRelease]):
    """The files that a caller adds to the folder of a release."""

    @property
    def display(self) -> DisplayRequest | None:
        """The display tables to write; None for none."""

    def estimate_size(self, plan: Plan) -> int:
        """Estimate the bytes of these files from the plan alone."""

    def describe(self, release: AnyRelease) -> Mapping[str, Any]:
        """Return further entries of release.json."""

    def add_files(self, folder: Place, release: AnyRelease) -> None:
        """Write more files into the folder, which holds everything else but release.json."""


def write_folder(
    release: NoisyAnswers,
    location: str | PathLike[str],
    confidence: float,
    most: int = PART,
    display: DisplayRequest | None = None,
) -> None:
    """Write a new release folder, which appears complete or not at all.

    Args:
        release: The noisy answers.
        location: The folder, which must be new or empty; a path or a URL of a store.
        confidence: The confidence of the intervals, for groups whose target has no confidence.
        most: The largest number of answers of a part, and about the largest number of rows of a
            part of a table.
        display: The display tables to write; None for none.

    Raises:
        WorkloadError: No display tables match the totals.
        InputError: The folder is not empty, or is in a store that cannot hold a release.
        ImportError: pyarrow is not installed.
        OSError: The folder cannot be written.
    """
    place = open_place(location)
    if isinstance(place, LocalPlace):
        with fill_new_folder(place.path) as partial:
            _write_all(release, LocalPlace(partial), confidence, most, display)
    elif place.list_sizes() or read_digest(place) is not None:
        raise InputError(f"{place} already exists. Name a folder that is new or empty.")
    else:
        _write_all(release, place, confidence, most, display)


def _write_all(
    release: NoisyAnswers,
    folder: Place,
    confidence: float,
    most: int,
    display: DisplayRequest | None,
) -> None:
    """Write all files of a release into an empty folder."""
    _, digest = write_answers(folder, release, most)
    tables = write_tables(folder, release, digest, confidence, most)
    complete_folder(folder, release, digest, tables, confidence=confidence, display=display)


def write_tables(
    folder: Place,
    release: NoisyAnswers,
    answers_digest: str,
    confidence: float,
    most: int = PART,
) -> list[TablePart]:
    """Write the tables of all groups into a folder.

    Args:
        folder: The folder.
        release: The noisy answers.
        answers_digest: Their digest.
        confidence: The confidence of the intervals, for groups whose target has no confidence.
        most: About the largest number of rows of a part.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: The folder cannot be written.
    """
    return [
        write_table_part(
            folder,
            release,
            chosen,
            chosen.take(release.estimates[group.name]),
            answers_digest=answers_digest,
            confidence=confidence,
        )
        for group in release.plan.workload.groups
        for chosen in cut_table(group, most)
    ]


def complete_folder(
    folder: Place,
    release: AnyRelease,
    answers_digest: str,
    tables: Sequence[TablePart],
    *,
    confidence: float,
    display: DisplayRequest | None = None,
    files: MoreFiles[AnyRelease] | None = None,
) -> None:
    """Complete a folder that has all parts: from then on it is a release.

    Args:
        folder: The folder of the release, or its staging area, with all parts and the manifest of
            the answers.
        release: The release, with the answers of `write_manifest`.
        answers_digest: The digest of the answers, by `write_manifest`.
        tables: All parts of all tables.
        confidence: The confidence of the intervals, for groups whose target has no confidence.
        display: The display tables to write if `files` is None; None for none.
        files: What the caller adds to the folder.

    Raises:
        WorkloadError: No display tables match the totals.
        InputError: Parts of the tables are missing, or the folder has other answers.
        OSError: The folder cannot be written.
    """
    manifest = read_checked(folder.join(ANSWER_PARTS), MANIFEST, answers_digest)
    content = encode_tables(release, tables, answers_digest, confidence)
    plan = _encode_plan(release.plan)
    folder.replace(PLAN, plan)
    folder.replace(TABLES, content)
    record: Mapping[str, Any] = {}
    contents = {ANSWERS_MANIFEST: manifest, TABLES: content, PLAN: plan}
    display = display if files is None else files.display
    written = decode_tables(folder, release.plan.workload, content)
    readable = replace(release, tables=written)  # estimates in parts are read from there
    if display is not None:
        contents[DISPLAY] = write_display(folder, readable, display, answers_digest, confidence)
    if files is not None:
        files.add_files(folder, readable)
        record = files.describe(readable)
    header = dict(record) | {
        "kind": _KIND,
        "format": _FORMAT,
        "plan_digest": release.plan.digest,
        "answers_digest": answers_digest,
        "files": {name: hash_content(one) for name, one in contents.items()},
    }
    folder.replace(RECORD, json.dumps(header, indent=2, ensure_ascii=True).encode() + b"\n")


def read_folder(location: str | PathLike[str] | Place) -> tuple[dict[str, Any], str]:
    """Open a release. Its answers and tables are read when they are needed.

    Args:
        location: The folder, as a path, a URL of a store or a place.

    Returns:
        The fields of the release by the names of `Release`'s attributes, and the digest of the
        answers.

    Raises:
        InputError: The folder is incomplete, damaged or was edited.
        PlanError: The plan is damaged.
        OSError: The folder cannot be read.
    """
    folder = location if isinstance(location, Place) else open_place(location)
    answers, tables, fields = open_folder(folder)
    return fields | {"answers": answers, "tables": tables}, tables.answers_digest


def read_digest(location: str | PathLike[str] | Place) -> str | None:
    """Read the digest of the answers of a complete release; None if there is none."""
    folder = location if isinstance(location, Place) else open_place(location)
    with suppress(InputError, OSError):
        digest = str(_read_record(folder)["answers_digest"])
        read_checked(folder.join(ANSWER_PARTS), MANIFEST, digest)
        return digest
    return None


def open_display(location: str | PathLike[str] | Place) -> DisplayParts | None:
    """Open the display tables of a release folder; None if it has none.

    Raises:
        InputError: The folder is incomplete, or the manifest of the display tables is damaged.
    """
    folder = location if isinstance(location, Place) else open_place(location)
    digest = _read_record(folder)["files"].get(DISPLAY)
    return read_display(folder, None if digest is None else str(digest))


def check_files(folder: Place, answers: PartedAnswers, tables: PartedTables) -> None:
    """Check that the files of all parts are there with their sizes, without reading them.

    Raises:
        InputError: A file is missing, or has another size.
        OSError: The folder cannot be listed.
    """
    expected = {name_part(part.number): part.bytes for part in answers.parts}
    _check_sizes(folder.join(ANSWER_PARTS), expected)
    for name, parts in tables.parts.items():
        expected = {name_table_part(part.slice.number): part.bytes for part in parts}
        _check_sizes(tables.find_folder(name), expected)


def _check_sizes(folder: Place, expected: Mapping[str, int]) -> None:
    """Check the sizes of files in a folder. Raises InputError."""
    sizes = folder.list_sizes()
    for name, size in expected.items():
        if name not in sizes:
            raise InputError(
                f"{folder}/{name} is missing. Get the folder again from its publisher."
            )
        if sizes[name] != size:
            raise InputError(
                f"{folder}/{name} has {sizes[name]} bytes instead of {size}. Get the folder again "
                "from its publisher."
            )


def open_folder(folder: Place) -> tuple[PartedAnswers, PartedTables, dict[str, Any]]:
    """Open a complete folder: its answers, its tables, and the other fields of the release."""
    record = _read_record(folder)
    files = record["files"]
    try:
        digests = {name: str(files[name]) for name in (PLAN, TABLES, ANSWERS_MANIFEST)}
    except (KeyError, TypeError):
        raise InputError(
            f"{folder}/{RECORD} is damaged. Get the folder again from its publisher."
        ) from None
    with _read_plan(folder, digests[PLAN]) as path:
        plan = Plan.load(path)
    read_checked(folder.join(ANSWER_PARTS), MANIFEST, digests[ANSWERS_MANIFEST])
    fields, digest = read_manifest(folder, plan)
    content = read_checked(folder, TABLES, digests[TABLES])
    tables = decode_tables(folder, plan.workload, content)
    if not record["answers_digest"] == tables.answers_digest == digest == digests[ANSWERS_MANIFEST]:
        raise InputError(
            f"{folder}/{RECORD} and {ANSWERS_MANIFEST} belong to different releases. Use the files "
            "of one folder."
        )
    answers: PartedAnswers = fields.pop("answers")
    return answers, tables, fields


def _read_record(folder: Place) -> dict[str, Any]:
    """Read release.json. Raises InputError if it is missing or damaged."""
    try:
        content = folder.read(RECORD)
    except (FileNotFoundError, NotADirectoryError):
        if isinstance(folder, LocalPlace) and not folder.path.is_dir():
            is_file = folder.path.exists()
            fault = " is a file" if is_file else ": this release folder does not exist"
            raise InputError(f"{folder}{fault}. Name the folder of a release.") from None
        if isinstance(folder, LocalPlace) and (folder.path / SERIES_RECORD).exists():
            raise InputError(
                f"{folder} is a series, not a release. Use `fitplug show`, or fp.open_series in "
                "Python."
            ) from None
        raise InputError(f"{folder} is not a complete release: {RECORD} is missing.") from None
    try:
        record = json.loads(content)
        kind, version, _, _ = (record[k] for k in ("kind", "format", "files", "answers_digest"))
    except Exception:  # JSON and types each raise their own kinds on damage
        raise InputError(
            f"{folder}/{RECORD} is damaged. Get the folder again from its publisher."
        ) from None
    if (kind, version) != (_KIND, _FORMAT):
        raise InputError(
            f"{folder}/{RECORD}: the release has format {version!r}, but this fitplug reads format "
            f"{_FORMAT}. Use the version of fitplug that wrote the release."
        )
    assert isinstance(record, dict)
    return record


@contextmanager
def _read_plan(folder: Place, digest: str) -> Iterator[Path]:
    """Give the plan of a folder as a local file."""
    content = read_checked(folder, PLAN, digest)
    if isinstance(folder, LocalPlace):
        yield folder.path / PLAN
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / PLAN
        path.write_bytes(content)
        yield path


def _encode_plan(plan: Plan) -> bytes:
    """Encode a plan as its file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / PLAN
        plan.save(path)
        return path.read_bytes()
