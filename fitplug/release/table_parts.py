"""Tables in parts: a data set of Parquet files for each group, which reads as one table.

A part has the answers of a group whose index along one axis is in a range. Its columns and metadata
are those of the group's whole table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fitplug.errors import InputError
from fitplug.families import Output
from fitplug.files import (
    ArrowTable,
    Place,
    decode_parquet,
    encode_parquet,
    hash_content,
    import_library,
)
from fitplug.numeric import AnyArray, FloatArray
from fitplug.release.answer_parts import read_checked
from fitplug.release.file_names import name_files
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.tables import (
    RESULT_COLUMNS,
    Intervals,
    check_names,
    choose_intervals,
    make_metadata,
)
from fitplug.release.versions import list_core_versions
from fitplug.workload import QueryGroup

REPEATED = ("std", "moe", "confidence")
"""The columns of numbers whose values repeat often."""


class TableSlice(NamedTuple):
    """Which answers of a group a part of its table has.

    Attributes:
        group: The name of the group.
        number: The number of the part within its group, from 0.
        axis: The axis of the group's shape that is cut.
        start: The first index along this axis.
        stop: The index after the last one.
    """

    group: str
    number: int
    axis: int
    start: int
    stop: int

    def find_shape(self, group: QueryGroup) -> tuple[int, ...]:
        """Return the shape of the part's answers."""
        rows = self.stop - self.start
        return tuple(rows if k == self.axis else n for k, n in enumerate(group.shape))

    def take(self, values: AnyArray) -> AnyArray:
        """Return the part's values, of an array of the group's shape."""
        if not values.ndim:
            return values
        return values[(slice(None),) * self.axis + (slice(self.start, self.stop),)]


@dataclass(frozen=True)
class TablePart:
    """A part of a table that is durable.

    Attributes:
        slice: Which answers it has.
        bytes: The size of its file.
        digest: The SHA-256 of the file, in hex.
    """

    slice: TableSlice
    bytes: int
    digest: str


@dataclass(frozen=True)
class TableBlock:
    """The estimates of a part of a table, read when they are needed.

    Attributes:
        folder: The folder of the group's data set.
        part: The part.
        shape: The shape of its answers.
    """

    folder: Place
    part: TablePart
    shape: tuple[int, ...]

    @property
    def axis(self) -> int:
        """The axis that is cut."""
        return self.part.slice.axis

    @property
    def start(self) -> int:
        """The first index along the axis."""
        return self.part.slice.start

    @property
    def stop(self) -> int:
        """The index after the last one."""
        return self.part.slice.stop

    def read(self) -> FloatArray:
        """Read the estimates, of the part's shape, and check the digest of the file.

        Raises:
            InputError: The file is missing, damaged or was edited.
            OSError: The file cannot be read.
        """
        found = read_table_part(self.folder, self.part, ["estimate"])
        return np.asarray(found["estimate"].to_numpy(), dtype=np.float64).reshape(self.shape)


def name_table_folder(release: NoisyAnswers, group: str) -> str:
    """Return the name of the folder of a group's data set."""
    return f"{name_files(release.plan.workload)[group]}.parquet"


def name_table_part(number: int) -> str:
    """Return the file name of a part of a table."""
    return f"part-{number:05}.parquet"


def cut_table(group: QueryGroup, most: int) -> Iterator[TableSlice]:
    """Cut a table along one axis into parts of at most so many rows, where that is possible.

    The first axis is taken if it has enough rows, so that the parts keep the order of the rows.
    """
    shape = group.shape or (1,)
    wanted = math.ceil(group.size / most)
    axis = 0 if shape[0] >= wanted else int(np.argmax(shape))
    rows = max(1, min(shape[axis], most * shape[axis] // max(group.size, 1)))
    for number, start in enumerate(range(0, shape[axis], rows)):
        yield TableSlice(group.name, number, axis, start, min(start + rows, shape[axis]))


def number_outputs(outputs: Sequence[Output]) -> tuple[TableSlice, ...]:
    """Return the slice of a table that each output of a strategy in parts is, in their order."""
    numbers: dict[str, int] = {}
    slices = []
    for output in outputs:
        number = numbers.setdefault(output.group, 0)
        numbers[output.group] += 1
        if output.axis is None:
            rows = output.shape[0] if output.shape else 1
            slices.append(TableSlice(output.group, number, 0, 0, rows))
        else:
            slices.append(TableSlice(output.group, number, output.axis, output.start, output.stop))
    return tuple(slices)


def write_table_part(
    folder: Place,
    release: NoisyAnswers,
    chosen: TableSlice,
    estimates: FloatArray,
    *,
    answers_digest: str,
    confidence: float,
) -> TablePart:
    """Write a part of a group's table. The same part is written with the same bytes.

    Args:
        folder: The folder of the release, or its staging area.
        release: The release; its answers are not used.
        chosen: Which answers the part has.
        estimates: Their estimates, of the part's shape.
        answers_digest: The digest of the answers, by `write_manifest`.
        confidence: The confidence of the intervals of groups whose target has none.

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
    own = folder.join(name_table_folder(release, group.name))
    own.replace(name_table_part(chosen.number), content)
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
            f"{folder}/{name}: the table is damaged; get the folder again from whoever released it"
        ) from None


def describe_table(
    release: NoisyAnswers, group: QueryGroup, intervals: Intervals, answers_digest: str
) -> dict[str, str]:
    """Make the metadata of a group's table in a folder."""
    versions = {f"fitplug.version.{name}": text for name, text in list_core_versions().items()}
    metadata = make_metadata(release, group, intervals)
    return metadata | {"fitplug.answers_digest": answers_digest} | versions


def make_table_part(
    release: NoisyAnswers,
    chosen: TableSlice,
    estimates: FloatArray,
    intervals: Intervals,
    metadata: dict[str, str],
) -> ArrowTable:
    """Make the Arrow table of a part, whose columns are those of the group's table.

    Columns of labels are dictionaries: a number for each row, and each label once.
    """
    group = release.plan.workload[chosen.group]
    shape = chosen.find_shape(group)
    check_names(group)
    columns: dict[str, Any] = {}
    for axis, factor in enumerate(group.factors):
        ends = (chosen.start, chosen.stop) if axis == chosen.axis else (0, group.shape[axis])
        columns[factor.attribute] = _repeat_labels(
            factor.labels_between(release.plan.domain[factor.attribute], *ends), shape, axis
        )
    estimate = np.asarray(estimates, dtype=np.float64).reshape(shape).ravel()
    std = np.sqrt(chosen.take(release.variances[group.name])).ravel()
    moe = intervals.compute_moe(group, std)
    confidence = np.full(len(estimate), intervals.confidence)
    results = (estimate, std, moe, estimate - moe, estimate + moe, confidence)
    columns |= dict(zip(RESULT_COLUMNS, results, strict=True))
    return import_library("pyarrow").table(columns).replace_schema_metadata(metadata)


def _repeat_labels(labels: list[Any], shape: tuple[int, ...], axis: int) -> Any:
    """Make an Arrow column that has the labels of an axis for all answers of a shape."""
    arrow = import_library("pyarrow")
    values = arrow.array(np.array(labels))
    lengths = [-1 if k == axis else 1 for k in range(len(shape))]
    numbers = np.arange(len(labels), dtype=np.int32).reshape(lengths)
    numbers = np.broadcast_to(numbers, shape).ravel()
    return arrow.DictionaryArray.from_arrays(arrow.array(numbers), values)
