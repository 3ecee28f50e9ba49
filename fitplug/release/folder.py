"""Release folders: a Parquet table for each group, the plan, and the noisy answers themselves.

Anyone who holds the folder can compute every estimate, variance and covariance again from the plan
and the answers, without the data. Both files carry digests of their content, and the tables are
compared with them when the folder is read.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from fitplug.errors import InputError
from fitplug.files import (
    ArrowTable,
    Columns,
    fill_new_folder,
    read_parquet,
    write_parquet,
)
from fitplug.plan import Plan
from fitplug.release.answers_file import read_answers, read_answers_digest, write_answers
from fitplug.release.file_names import ANSWERS, PLAN, name_files
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.tables import (
    POPULATION,
    choose_intervals,
    make_arrow,
    make_columns,
    make_metadata,
    read_intervals,
)
from fitplug.release.versions import list_core_versions

AnyRelease = TypeVar("AnyRelease", bound=NoisyAnswers, contravariant=True)


class TableFiles(Protocol[AnyRelease]):
    """More files for a release folder: beside each table, and when all tables are there."""

    def add_table(self, folder: Path, name: str, table: ArrowTable) -> None:
        """Add files for a table, given with its file name without the ending."""

    def add_rest(self, folder: Path, release: AnyRelease) -> None:
        """Add files to a folder that holds everything else."""


def write_folder(release: NoisyAnswers, directory: str | PathLike[str], confidence: float) -> None:
    """Write a new release folder, which appears complete or not at all.

    Args:
        release: The noisy answers.
        directory: The folder, which must be new or empty.
        confidence: The confidence of the intervals of groups whose target has none.

    Raises:
        InputError: The folder is not empty.
        ImportError: pyarrow is not installed.
        OSError: The folder cannot be written.
    """
    with fill_new_folder(directory) as folder:
        digest = write_answers(release, folder / ANSWERS)
        complete_folder(release, folder, digest, confidence)


def complete_folder(
    release: AnyRelease,
    folder: Path,
    digest: str,
    confidence: float,
    files: TableFiles[AnyRelease] | None = None,
) -> None:
    """Write all other files into a folder that holds the noisy answers.

    Args:
        release: The noisy answers.
        folder: The folder.
        digest: The digest of the answers in the folder.
        confidence: The confidence of the intervals of groups whose target has none.
        files: Adds more files.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: The folder cannot be written.
    """
    release.plan.save(folder / PLAN)
    names = name_files(release.plan.workload)
    for group in release.plan.workload.groups:
        intervals = choose_intervals(group, None, default=confidence)
        metadata = make_metadata(release, group, intervals) | {"fitplug.answers_digest": digest}
        metadata |= {f"fitplug.version.{name}": text for name, text in list_core_versions().items()}
        table = make_arrow(make_columns(release, group, intervals), metadata)
        write_parquet(folder / f"{names[group.name]}.parquet", table)
        if files is not None:
            files.add_table(folder, names[group.name], table)
    if files is not None:
        files.add_rest(folder, release)


def read_folder(directory: str | PathLike[str]) -> tuple[dict[str, Any], str]:
    """Read the noisy answers of a release folder.

    Returns:
        The fields of the release by the names of `Release`'s attributes, and the digest of the
        answers.

    Raises:
        InputError: The folder is incomplete, damaged or was edited.
        PlanError: The plan is damaged.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such release folder; name the folder of one")
    for name in (PLAN, ANSWERS):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder}: {name} is missing; a release is read from its whole folder"
            )
    return read_answers(folder / ANSWERS, Plan.load(folder / PLAN))


def read_folder_digest(directory: Path) -> str | None:
    """Read the digest of the answers in a release folder; None if it is no folder of a release."""
    return read_answers_digest(directory / ANSWERS)


def check_tables(release: NoisyAnswers, directory: str | PathLike[str], digest: str) -> None:
    """Raise InputError unless every table in a folder agrees with the release.

    Args:
        release: The noisy answers of the folder.
        directory: The folder.
        digest: The digest of the answers, which each table must have.
    """
    folder = Path(directory)
    names = name_files(release.plan.workload)
    for group in release.plan.workload.groups:
        path = folder / f"{names[group.name]}.parquet"
        if not path.is_file():
            raise InputError(f"{path} is missing; a release is read from its whole folder")
        try:
            columns, metadata = read_parquet(path)
            intervals = read_intervals(metadata)
            expected = make_metadata(release, group, intervals) | {"fitplug.answers_digest": digest}
        except ImportError:
            raise
        except Exception:  # pyarrow raises many kinds on damage
            raise InputError(
                f"{path}: the table is damaged; get the folder again from whoever released it"
            ) from None
        # Other versions may use other sentences. What they are made from is compared.
        expected.pop(POPULATION, None)
        agrees = all(metadata.get(key) == value for key, value in expected.items())
        if not agrees or not are_equal_tables(columns, make_columns(release, group, intervals)):
            raise InputError(
                f"{path}: the table does not say what {ANSWERS} does; it was edited, or is of "
                "another release"
            )


def are_equal_tables(found: Columns, expected: Columns) -> bool:
    """Return whether tables are equal, up to how another machine rounds sums."""
    if list(found) != list(expected):
        return False
    for name, column in expected.items():
        own = found[name]
        if own.shape != column.shape:
            return False
        if column.dtype.kind != "f":
            if own.tolist() != column.tolist():
                return False
        elif (
            own.dtype != column.dtype
            or not (np.abs(own - column) <= 1e-6 * (expected["std"] + np.abs(column) * 1e-6)).all()
        ):
            return False
    return True
