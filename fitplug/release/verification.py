"""The verification of a release in parts: every digest, and every table against the answers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from fitplug.errors import InputError
from fitplug.families import cut_strategy
from fitplug.files import ArrowTable
from fitplug.numeric import FloatArray
from fitplug.release.computed_estimates import compute_estimates
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.parted_answers import PartedAnswers
from fitplug.release.parted_folder import check_files
from fitplug.release.parted_tables import PartedTables
from fitplug.release.table_parts import (
    TablePart,
    describe_table,
    make_table_part,
    name_table_part,
    read_table_part,
)
from fitplug.release.tables import MEASURES, POPULATION

_VERSION = "fitplug.version."


def verify_parts(release: NoisyAnswers, sample: int | None = None, seed: int = 0) -> None:
    """Check parts of a release: see `Release.verify`."""
    answers, tables = release.answers, release.tables
    if not isinstance(answers, PartedAnswers) or not isinstance(tables, PartedTables):
        return
    check_files(answers.folder, answers, tables)
    listed = [part for parts in tables.parts.values() for part in parts]
    rng = np.random.default_rng(seed)
    for number in _choose(rng, len(answers.parts), sample):
        answers.read_part(number)
    chosen = [listed[k] for k in _choose(rng, len(listed), sample)]
    by_slice = {part.slice: part for part in chosen}
    parted = cut_strategy(release.plan.strategy)
    with tempfile.TemporaryDirectory() as folder:
        computed = compute_estimates(parted, answers, list(by_slice), Path(folder))
        for own, estimates in computed:
            _verify_table_part(release, tables, by_slice[own], estimates)


def _choose(rng: np.random.Generator, count: int, sample: int | None) -> list[int]:
    """Choose some of so many parts, in order; all of them without a sample."""
    if sample is None or sample >= count:
        return list(range(count))
    chosen: list[int] = np.sort(rng.choice(count, sample, replace=False)).tolist()
    return chosen


def _verify_table_part(
    release: NoisyAnswers, tables: PartedTables, part: TablePart, estimates: FloatArray
) -> None:
    """Check a part of a table against estimates that were computed from the answers.

    Raises:
        InputError: The part is missing, damaged or was edited, or says something else.
        OSError: The part cannot be read.
    """
    name = part.slice.group
    group, intervals = release.plan.workload[name], tables.intervals[name]
    folder = tables.find_folder(name)
    found = read_table_part(folder, part)
    metadata = describe_table(release, group, intervals, tables.answers_digest)
    expected = make_table_part(release, part.slice, estimates, intervals, metadata)
    said = {key.decode(): value.decode() for key, value in found.schema.metadata.items()}
    # Other versions may use other sentences. What they are made from is compared.
    compared = {
        key: value
        for key, value in metadata.items()
        if key != POPULATION and not key.startswith(_VERSION)
    }
    agrees = all(said.get(key) == value for key, value in compared.items())
    if not agrees or not _are_equal(found, expected):
        raise InputError(
            f"{folder}/{name_table_part(part.slice.number)}: the table does not say what the "
            "answers do; it was edited, or is of another release"
        )


def _are_equal(found: ArrowTable, expected: ArrowTable) -> bool:
    """Return whether tables are equal, up to how another machine rounds sums."""
    if found.column_names != expected.column_names or len(found) != len(expected):
        return False
    std = expected["std"].to_numpy()
    for name in expected.column_names:
        own, column = found[name], expected[name]
        if name in MEASURES:
            own, column = own.to_numpy(), column.to_numpy()
            if own.dtype != column.dtype:
                return False
            if not (np.abs(own - column) <= 1e-6 * (std + np.abs(column) * 1e-6)).all():
                return False
        elif not own.equals(column.cast(own.type)):
            return False
    return True
