"""Tables of a release for other libraries: a row for each query, in Arrow, pandas or Polars."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fitplug.domain import Domain, label_values, name_label_column
from fitplug.errors import WorkloadError
from fitplug.families import Output
from fitplug.files import ArrowTable, Columns, import_library
from fitplug.numeric import AnyArray, FloatArray
from fitplug.releases.coverage import list_coverage
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.workload import (
    DEFAULT_CONFIDENCE,
    Factor,
    QueryGroup,
    check_confidence,
    find_quantile,
)

if TYPE_CHECKING:
    import pandas
    import polars

PandasFrame: TypeAlias = "pandas.DataFrame"

PolarsFrame: TypeAlias = "polars.DataFrame"

MEASURES = ("estimate", "std", "moe", "lower", "upper")
"""The columns of numbers, all in rows or all in the unit of a sum; moe, lower and upper describe an
interval.
"""

RESULT_COLUMNS = (*MEASURES, "confidence")
"""The columns after those of the attributes.

The confidence belongs to the row's interval; if the metadata mark the intervals as simultaneous, it
belongs to the intervals of all rows together.
"""

POPULATION = "fitplug.population"
"""The metadata key of the text that describes which rows a table counts."""


VERSION = "fitplug.version."
"""The prefix of the metadata keys for the versions of the software that made a table."""


class Intervals(NamedTuple):
    """The kind of intervals that a table has.

    Attributes:
        confidence: The probability that an interval covers the exact answer.
        simultaneous: Whether it is the probability that all intervals of the group cover at once.
    """

    confidence: float
    simultaneous: bool

    def __str__(self) -> str:
        together = "simultaneous " if self.simultaneous else ""
        return f"{together}intervals at {100 * self.confidence:g}%"

    def compute_moe(self, group: QueryGroup, stds: AnyArray) -> AnyArray:
        """Compute the margins of error of a group's answers from their standard deviations."""
        together = group.size if self.simultaneous else 1
        return np.asarray(find_quantile(self.confidence, together) * stds)


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
        """Take the part's values out of an array of the group's shape."""
        if not values.ndim:
            return values
        return values[(slice(None),) * self.axis + (slice(self.start, self.stop),)]


def cut_table(group: QueryGroup, most: int) -> Iterator[TableSlice]:
    """Cut a table along one axis into parts of at most `most` rows, where that is possible.

    The first axis is cut if it is long enough, so that the parts keep the order of the rows.
    """
    shape = group.shape or (1,)
    wanted = math.ceil(group.size / most)
    axis = 0 if shape[0] >= wanted else int(np.argmax(shape))
    rows = max(1, min(shape[axis], most * shape[axis] // max(group.size, 1)))
    for number, start in enumerate(range(0, shape[axis], rows)):
        yield TableSlice(group.name, number, axis, start, min(start + rows, shape[axis]))


def number_outputs(outputs: Sequence[Output]) -> tuple[TableSlice, ...]:
    """Return the slice of a table for each output of a strategy in parts, in order."""
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


def choose_intervals(
    group: QueryGroup,
    confidence: float | None,
    simultaneous: bool | None = None,
    default: float = DEFAULT_CONFIDENCE,
) -> Intervals:
    """Choose the intervals of a group's table.

    Args:
        group: The group.
        confidence: The confidence; if None, the group's target sets it.
        simultaneous: Whether the intervals are simultaneous; if None, as in the group's target.
        default: The confidence if the target has none.

    Raises:
        WorkloadError: The confidence is out of range.
    """
    chosen = group.target.confidence or default if confidence is None else confidence
    check_confidence(chosen)
    return Intervals(chosen, group.target.simultaneous if simultaneous is None else simultaneous)


def fits_table(group: QueryGroup) -> bool:
    """Return whether no attribute of a group has the name of a result column."""
    return not any(factor.attribute in RESULT_COLUMNS for factor in group.factors)


def check_names(group: QueryGroup) -> None:
    """Raise WorkloadError if an attribute of a group has the name of a result column."""
    for factor in group.factors:
        if factor.attribute in RESULT_COLUMNS:
            raise WorkloadError(
                f"attribute {factor.attribute!r} has the same name as a column of the results. "
                "Rename the attribute."
            )


def label_rows(domain: Domain, group: QueryGroup) -> Columns:
    """Make the columns (group.size,) that name what each row counts: values and their labels.

    Raises:
        WorkloadError: An attribute has the name of a result column.
    """
    check_names(group)
    columns: Columns = {}
    for axis, factor in enumerate(group.factors):
        shape = [-1 if i == axis else 1 for i in range(len(group.shape))]
        for name, rows in _name_rows(domain, factor, 0, factor.rows).items():
            along = np.array(rows).reshape(shape)
            columns[name] = np.broadcast_to(along, group.shape).ravel()
    return columns


def _name_rows(domain: Domain, factor: Factor, start: int, stop: int) -> dict[str, list[Any]]:
    """Make the columns that name what some rows of a factor count: values and their labels."""
    name = factor.attribute
    values = factor.labels_between(domain[name], start, stop)
    labels = label_values(domain, name, factor.kind, values)
    return {name: values} | ({} if labels is None else {name_label_column(name): labels})


def make_columns(release: NoisyAnswers, group: QueryGroup, intervals: Intervals) -> Columns:
    """Make the columns (group.size,) of a group's table: its attributes, then RESULT_COLUMNS."""
    labels = label_rows(release.plan.domain, group)
    estimate = release.estimates[group.name].ravel()
    std = np.sqrt(release.variances[group.name].ravel())
    return labels | _make_results(group, intervals, estimate, std)


def _make_results(
    group: QueryGroup, intervals: Intervals, estimate: AnyArray, std: AnyArray
) -> Columns:
    """Make RESULT_COLUMNS of some answers of a group, each of shape (n,)."""
    moe = intervals.compute_moe(group, std)
    confidence = np.full(len(estimate), intervals.confidence)
    results = (estimate, std, moe, estimate - moe, estimate + moe, confidence)
    return dict(zip(RESULT_COLUMNS, results, strict=True))


def make_table_part(
    release: NoisyAnswers,
    chosen: TableSlice,
    estimates: FloatArray,
    intervals: Intervals,
    metadata: dict[str, str],
) -> ArrowTable:
    """Make the Arrow table of a part, with the columns of the group's table."""
    group = release.plan.workload[chosen.group]
    estimate = np.asarray(estimates, dtype=np.float64).ravel()
    std = np.sqrt(chosen.take(release.variances[group.name])).ravel()
    columns = label_part(release, chosen) | _make_results(group, intervals, estimate, std)
    return make_arrow(columns, metadata)


def label_part(release: NoisyAnswers, chosen: TableSlice) -> dict[str, Any]:
    """Make the columns of a part that name what each row counts.

    They are Arrow dictionaries: a number for each row, and each label once.

    Raises:
        WorkloadError: An attribute has the name of a result column.
    """
    group = release.plan.workload[chosen.group]
    check_names(group)
    columns: dict[str, Any] = {}
    for axis, factor in enumerate(group.factors):
        ends = (chosen.start, chosen.stop) if axis == chosen.axis else (0, group.shape[axis])
        for name, rows in _name_rows(release.plan.domain, factor, *ends).items():
            columns[name] = _repeat_labels(rows, chosen.find_shape(group), axis)
    return columns


def _repeat_labels(labels: list[Any], shape: tuple[int, ...], axis: int) -> Any:
    """Make an Arrow column that has the labels of an axis for all answers of a shape."""
    arrow = import_library("pyarrow")
    values = arrow.array(np.array(labels))
    lengths = [-1 if k == axis else 1 for k in range(len(shape))]
    numbers = np.arange(len(labels), dtype=np.int32).reshape(lengths)
    numbers = np.broadcast_to(numbers, shape).ravel()
    return arrow.DictionaryArray.from_arrays(arrow.array(numbers), values)


def make_metadata(release: NoisyAnswers, group: QueryGroup, intervals: Intervals) -> dict[str, str]:
    """Make the metadata of a group's table, by keys that begin with "fitplug."."""
    metadata = {
        "fitplug.group": group.name,
        "fitplug.confidence": repr(intervals.confidence),
        "fitplug.simultaneous": str(intervals.simultaneous).lower(),
        "fitplug.plan_digest": release.plan.digest,
        "fitplug.rho": repr(release.rho),
        "fitplug.unit": json.dumps(release.plan.unit.to_spec()),
        "fitplug.units": f"{', '.join(MEASURES)}: {group.quantity}",
    }
    if coverage := list_coverage(release):
        metadata["fitplug.coverage"] = json.dumps(coverage)
    if release.limited is not None:
        metadata |= {"fitplug.limited": release.limited, POPULATION: release.population}
    return metadata


def read_intervals(table: ArrowTable) -> Intervals:
    """Read the kind of intervals from the metadata of a table.

    Raises:
        Exception: The metadata are damaged; errors of any kind are possible.
    """
    said = table.schema.metadata
    return Intervals(float(said[b"fitplug.confidence"]), said[b"fitplug.simultaneous"] == b"true")


def make_arrow(columns: Columns, metadata: Mapping[str, str]) -> ArrowTable:
    """Make an Arrow table with metadata.

    Raises:
        ImportError: pyarrow is not installed.
    """
    return import_library("pyarrow").table(columns).replace_schema_metadata(dict(metadata))


def have_equal_metadata(written: ArrowTable, expected: ArrowTable) -> bool:
    """Return whether a table that was read has the expected metadata.

    Another version of fitplug may word sentences differently, so only the facts are compared.
    """
    said = written.schema.metadata or {}
    return all(
        said.get(key) == value
        for key, value in expected.schema.metadata.items()
        if key != POPULATION.encode() and not key.startswith(VERSION.encode())
    )


def are_equal_tables(written: ArrowTable, expected: ArrowTable) -> bool:
    """Return whether a table that was read equals the expected one.

    Numbers may differ by what another machine rounds differently in sums.
    """
    if not have_equal_metadata(written, expected):
        return False
    if written.column_names != expected.column_names or len(written) != len(expected):
        return False
    std = expected["std"].to_numpy()
    for name in expected.column_names:
        read, column = written[name], expected[name]
        if name in MEASURES:
            read, column = read.to_numpy(), column.to_numpy()
            if read.dtype != column.dtype:
                return False
            if not (np.abs(read - column) <= 1e-6 * (std + np.abs(column) * 1e-6)).all():
                return False
        elif not read.equals(column.cast(getattr(column.type, "value_type", column.type))):
            return False
    return True


def make_pandas(columns: Columns, metadata: Mapping[str, str]) -> PandasFrame:
    """Make a pandas DataFrame, with the metadata as `attrs`.

    Raises:
        ImportError: pandas is not installed.
    """
    frame = import_library("pandas").DataFrame(columns)
    frame.attrs.update(metadata)
    return frame


def make_polars(columns: Columns) -> PolarsFrame:
    """Make a Polars DataFrame, which holds no metadata.

    Raises:
        ImportError: Polars is not installed.
    """
    return import_library("polars").DataFrame(
        {name: column.tolist() if column.dtype.kind == "U" else column
         for name, column in columns.items()}
    )  # fmt: skip
