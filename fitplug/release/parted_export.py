"""The export of a release whose answers are in memory as a folder in parts."""

from __future__ import annotations

from os import PathLike

import numpy as np

from fitplug.errors import InputError
from fitplug.files import LocalPlace, Place, make_partial_folder, open_place
from fitplug.release.answer_parts import AnswersPart, Stride, write_answers_part
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.parted_answers import write_manifest
from fitplug.release.parted_folder import (
    complete_parted_folder,
    publish_parted_folder,
    read_parted_digest,
)
from fitplug.release.table_parts import TablePart, cut_table, write_table_part

MOST_ROWS = 2**20
"""The largest number of answers of a part, and about that of the rows of a part of a table."""


def write_parted_folder(
    release: NoisyAnswers,
    location: str | PathLike[str],
    confidence: float,
    most: int = MOST_ROWS,
) -> None:
    """Write a new release folder in parts, which appears complete or not at all.

    Args:
        release: The noisy answers.
        location: The folder, which must be new or empty; a path or a URL of fsspec.
        confidence: The confidence of the intervals of groups whose target has none.
        most: The largest number of answers of a part.

    Raises:
        InputError: The folder is not empty, or is in a store that cannot hold a release.
        ImportError: pyarrow is not installed.
        OSError: The folder cannot be written.
    """
    place = open_place(location)
    if not isinstance(place, LocalPlace):
        if read_parted_digest(place) is not None or place.list_sizes():
            raise InputError(f"{place} is there already; name a folder that is new or empty")
        _write_parts(release, place, confidence, most)
        return
    directory = place.path
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory} is there already; name a folder that is new or empty")
    with make_partial_folder(directory) as staging:
        _write_parts(release, LocalPlace(staging), confidence, most)
        publish_parted_folder(staging, directory)


def _write_parts(release: NoisyAnswers, folder: Place, confidence: float, most: int) -> None:
    """Write all files of a release into an empty folder."""
    size = release.plan.strategy.released_size
    parts = []
    for number, start in enumerate(range(0, size, most)):
        values = np.asarray(release.answers[start : start + most])
        written = write_answers_part(folder, number, values)
        place = (Stride(start, (len(values),), (1,)),)
        if not written.is_mine:
            raise InputError(f"{folder} is there already; name a folder that is new or empty")
        parts.append(AnswersPart(number, place, written.bytes, written.digest))
    _, digest = write_manifest(folder, release, parts)
    tables: list[TablePart] = []
    for group in release.plan.workload.groups:
        estimates = release.estimates[group.name]
        for chosen in cut_table(group, most):
            tables.append(
                write_table_part(
                    folder,
                    release,
                    chosen,
                    chosen.take(estimates),
                    answers_digest=digest,
                    confidence=confidence,
                )
            )
    complete_parted_folder(folder, release, digest, tables, confidence=confidence)
