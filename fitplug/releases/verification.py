"""The verification of a release: every digest, and every table against the answers.

Estimates are recomputed from the parts of the answers in bounded memory. Pieces of answers are
gathered in temporary files. All of it is public.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fitplug.errors import InputError
from fitplug.families import PartedStrategy
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.releases.answer_parts import PartedAnswers
from fitplug.releases.folder import check_files
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.table_parts import (
    PartedTables,
    TablePart,
    describe_table,
    name_table_part,
    read_table_part,
)
from fitplug.releases.tables import (
    TableSlice,
    are_equal_tables,
    make_table_part,
    number_outputs,
)


def is_of_one_part(release: NoisyAnswers) -> bool:
    """Return whether the answers in a folder have only one part, and each table too."""
    answers, tables = release.answers, release.tables
    if not isinstance(answers, PartedAnswers) or not isinstance(tables, PartedTables):
        return False
    return len(answers.parts) == 1 and all(len(parts) == 1 for parts in tables.parts.values())


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
    parted = release.plan.strategy.cut()
    with tempfile.TemporaryDirectory() as folder:
        computed = compute_estimates(parted, answers, list(by_slice), Path(folder))
        for cut, estimates in computed:
            _verify_table_part(release, tables, by_slice[cut], estimates)


def _choose(rng: np.random.Generator, count: int, sample: int | None) -> list[int]:
    """Choose `sample` of `count` parts at random, in order; all without a sample."""
    if sample is None or sample >= count:
        return list(range(count))
    chosen: list[int] = np.sort(rng.choice(count, sample, replace=False)).tolist()
    return chosen


def _verify_table_part(
    release: NoisyAnswers, tables: PartedTables, part: TablePart, estimates: FloatArray
) -> None:
    """Check a part of a table against estimates that were computed from the answers.

    Raises:
        InputError: The part is missing, damaged or was edited, or has other numbers.
        OSError: The part cannot be read.
    """
    name = part.slice.group
    group, intervals = release.plan.workload[name], tables.intervals[name]
    folder = tables.find_folder(name)
    written = read_table_part(folder, part)
    metadata = describe_table(release, group, intervals, tables.answers_digest)
    expected = make_table_part(release, part.slice, estimates, intervals, metadata)
    if not are_equal_tables(written, expected):
        raise InputError(
            f"{folder}/{name_table_part(part.slice.number)}: the table does not match the answers. "
            "Get the folder again from its publisher."
        )


def compute_estimates(
    parted: PartedStrategy,
    answers: PartedAnswers,
    slices: Sequence[TableSlice],
    folder: Path,
) -> Iterator[tuple[TableSlice, FloatArray]]:
    """Compute the estimates of slices of tables.

    Args:
        parted: The plan's strategy in parts.
        answers: The noisy answers.
        slices: The slices, which may be cut differently from the strategy's outputs.
        folder: An empty folder for temporary files.

    Yields:
        Each slice, and its estimates in the slice's shape.
    """
    groups = parted.structure.workload
    outputs = number_outputs(parted.outputs)
    needed: dict[TableSlice, list[int]] = {}
    of_group: dict[str, list[int]] = {}
    for number, output in enumerate(outputs):
        of_group.setdefault(output.group, []).append(number)
    for cut in slices:
        needed[cut] = [k for k in of_group[cut.group] if _overlap(outputs[k], cut)]
    pieces = _gather(parted, answers, set().union(*needed.values()), folder)
    latest: tuple[int, FloatArray] | None = None
    for cut in slices:
        values = np.zeros(cut.find_shape(groups[cut.group]))
        for k in needed[cut]:
            if latest is None or latest[0] != k:
                latest = k, parted.estimate(k, _read_pieces(folder / str(k), pieces[k]))
            _copy_overlap(outputs[k], latest[1], cut, values)
        yield cut, values


def _overlap(output: TableSlice, wanted: TableSlice) -> bool:
    """Return whether two slices of a group have answers in common."""
    if output.axis != wanted.axis:
        return True
    return output.start < wanted.stop and wanted.start < output.stop


def _copy_overlap(
    output: TableSlice, estimates: FloatArray, wanted: TableSlice, values: FloatArray
) -> None:
    """Copy the estimates of an output that are in a slice."""
    if not values.ndim:
        values[...] = estimates.reshape(())
        return
    source: list[slice] = [slice(None)] * values.ndim
    target: list[slice] = [slice(None)] * values.ndim
    if output.axis == wanted.axis:
        first, end = max(output.start, wanted.start), min(output.stop, wanted.stop)
        source[output.axis] = slice(first - output.start, end - output.start)
        target[output.axis] = slice(first - wanted.start, end - wanted.start)
    else:
        source[wanted.axis] = slice(wanted.start, wanted.stop)
        target[output.axis] = slice(output.start, output.stop)
    values[tuple(target)] = estimates[tuple(source)]


PieceTypes = list[tuple[int, "np.dtype[np.generic]", int]]
"""The part, the type and the length of each piece of an output, in order."""


def _gather(
    parted: PartedStrategy, answers: PartedAnswers, outputs: set[int], folder: Path
) -> Mapping[int, PieceTypes]:
    """Write the pieces of each output to its own file, part after part."""
    types: dict[int, PieceTypes] = {output: [] for output in outputs}
    for part in sorted({part for output in outputs for part in parted.list_parts(output)}):
        split = parted.split_answers(part, _read_part(parted, answers, part))
        for output in sorted(outputs.intersection(split)):
            piece = np.ascontiguousarray(split[output])
            with (folder / str(output)).open("ab") as file:
                file.write(piece.data)
            types[output].append((part, piece.dtype, len(piece)))
    return types


def _read_part(parted: PartedStrategy, answers: PartedAnswers, part: int) -> IntArray:
    """Read the answers of a part of the strategy, whatever the parts of the folder are."""
    place = parted.place(part)
    if isinstance(place, slice):
        return np.asarray(answers[place])
    if part < len(answers.parts) and answers.parts[part].size == len(place):
        numbers = [stride.list_numbers() for stride in answers.parts[part].place]
        if np.array_equal(np.concatenate(numbers) if numbers else place, place):
            return answers.read_part(part)
    return np.asarray(answers[place])


def _read_pieces(path: Path, types: PieceTypes) -> dict[int, AnyArray]:
    """Read the pieces of an output."""
    pieces: dict[int, AnyArray] = {}
    content = path.read_bytes() if types else b""
    at = 0
    for part, dtype, length in types:
        pieces[part] = np.frombuffer(content, dtype=dtype, count=length, offset=at)
        at += length * dtype.itemsize
    return pieces
