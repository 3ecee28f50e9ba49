"""Tables of a release for other libraries: a row for each query, in Arrow, pandas or Polars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from fitplug.domain import Domain
from fitplug.errors import WorkloadError
from fitplug.files import ArrowTable, Columns, import_library
from fitplug.numeric import AnyArray
from fitplug.release.margins import compute_moe
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.workload import DEFAULT_CONFIDENCE, ONE_RECORD, QueryGroup, check_confidence

if TYPE_CHECKING:
    import pandas
    import polars

PandasFrame: TypeAlias = "pandas.DataFrame"

PolarsFrame: TypeAlias = "polars.DataFrame"

MEASURES = ("estimate", "std", "moe", "lower", "upper")
"""The columns of numbers, all in records or all in the units of a sum; moe, lower and upper are
those of an interval.
"""

RESULT_COLUMNS = (*MEASURES, "confidence")
"""The columns after those of the attributes.

The confidence is that of the row's interval, or of the intervals of all rows together where they
are simultaneous, as the metadata say.
"""

POPULATION = "fitplug.population"
"""The key of the metadata that says which records a table is about."""


class Intervals(NamedTuple):
    """The kind of intervals that a table has.

    Attributes:
        confidence: The probability that an interval covers the exact answer.
        simultaneous: Whether that is the probability that all intervals of the group cover theirs.
    """

    confidence: float
    simultaneous: bool

    def __str__(self) -> str:
        together = "simultaneous " if self.simultaneous else ""
        return f"{together}intervals at {100 * self.confidence:g} %"

    def compute_moe(self, group: QueryGroup, stds: AnyArray) -> AnyArray:
        """Compute the margins of error of a group's answers from their standard deviations."""
        return compute_moe(self.confidence, stds, group.size if self.simultaneous else 1)


def choose_intervals(
    group: QueryGroup,
    confidence: float | None,
    simultaneous: bool | None = None,
    default: float = DEFAULT_CONFIDENCE,
) -> Intervals:
    """Choose the intervals of a group's table.

    Args:
        group: The group.
        confidence: The confidence; if None, that of the group's target.
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
                f"attribute {factor.attribute!r} has the name of a result column; rename it"
            )


def label_rows(domain: Domain, group: QueryGroup) -> Columns:
    """Make a column (group.size,) for each attribute, which says what each row counts.

    Raises:
        WorkloadError: An attribute has the name of a result column.
    """
    check_names(group)
    labels: Columns = {}
    for axis, factor in enumerate(group.factors):
        own = np.array(factor.labels(domain[factor.attribute]))
        shape = [-1 if i == axis else 1 for i in range(len(group.shape))]
        labels[factor.attribute] = np.broadcast_to(own.reshape(shape), group.shape).ravel()
    return labels


def make_columns(release: NoisyAnswers, group: QueryGroup, intervals: Intervals) -> Columns:
    """Make the columns (group.size,) of a group's table: its attributes, then RESULT_COLUMNS."""
    labels = label_rows(release.plan.domain, group)
    estimate = release.estimates[group.name].ravel()
    std = np.sqrt(release.variances[group.name].ravel())
    moe = intervals.compute_moe(group, std)
    confidence = np.full(group.size, intervals.confidence)
    results = (estimate, std, moe, estimate - moe, estimate + moe, confidence)
    return labels | dict(zip(RESULT_COLUMNS, results, strict=True))


def make_metadata(release: NoisyAnswers, group: QueryGroup, intervals: Intervals) -> dict[str, str]:
    """Make the metadata of a group's table, by keys that begin with "fitplug."."""
    metadata = {
        "fitplug.group": group.name,
        "fitplug.confidence": repr(intervals.confidence),
        "fitplug.simultaneous": str(intervals.simultaneous).lower(),
        "fitplug.plan_digest": release.plan_digest,
        "fitplug.rho": repr(release.rho),
        "fitplug.contributions": str(release.most_records),
        "fitplug.units": f"{', '.join(MEASURES)}: {group.quantity}",
    }
    if release.plan.unit != ONE_RECORD:
        # rho is for one person in this unit, and not for a record added or removed.
        metadata["fitplug.unit"] = json.dumps(release.plan.unit.to_spec())
    if release.limited is not None:
        metadata |= {"fitplug.limited": release.limited, POPULATION: release.population}
    return metadata


def read_intervals(metadata: Mapping[str, str]) -> Intervals:
    """Read the kind of intervals from the metadata of a table.

    Raises:
        Exception: The metadata are damaged; errors of any kind are possible.
    """
    return Intervals(
        float(metadata["fitplug.confidence"]), metadata["fitplug.simultaneous"] == "true"
    )


def make_arrow(columns: Columns, metadata: Mapping[str, str]) -> ArrowTable:
    """Make an Arrow table with metadata.

    Raises:
        ImportError: pyarrow is not installed.
    """
    return import_library("pyarrow").table(columns).replace_schema_metadata(dict(metadata))


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
