"""Tables of a release for other libraries: one row per query, in Arrow, pandas or Polars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from fitplug.domain import Domain
from fitplug.errors import WorkloadError
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.population import Limited
from fitplug.workload import DEFAULT_CONFIDENCE, QueryGroup, check_confidence, quantile

if TYPE_CHECKING:
    import pandas
    import polars
from fitplug.files import ArrowTable, Columns, import_library

PandasFrame: TypeAlias = "pandas.DataFrame"

PolarsFrame: TypeAlias = "polars.DataFrame"

MEASURES = ("estimate", "std", "moe", "lower", "upper")
"""Of an answer, all in records; moe, lower and upper are of an interval."""

RESULT_COLUMNS = (*MEASURES, "confidence")
"""After the attributes' columns; the confidence is that of the row's interval, or of all rows'
together where they are simultaneous, as the metadata say.
"""

UNITS = f"{', '.join(MEASURES)}: records"

POPULATION = "fitplug.population"
"""The entry of the metadata that says which records a table is about."""


class Spread(NamedTuple):
    """Of which intervals a table has: confidence, and of each answer or of all together."""

    confidence: float
    simultaneous: bool

    def __str__(self) -> str:
        together = "simultaneous " if self.simultaneous else ""
        return f"{together}intervals at {100 * self.confidence:g} %"


def spread(
    group: QueryGroup,
    confidence: float | None,
    simultaneous: bool | None = None,
    default: float = DEFAULT_CONFIDENCE,
) -> Spread:
    """What was asked, and where nothing was, what the group's target says. Raises WorkloadError."""
    chosen = group.target.confidence or default if confidence is None else confidence
    check_confidence(chosen)
    return Spread(chosen, group.target.simultaneous if simultaneous is None else simultaneous)


def has_table(group: QueryGroup) -> bool:
    """Whether none of its attributes has the name of a result."""
    return not any(factor.attribute in RESULT_COLUMNS for factor in group.factors)


def labels(domain: Domain, group: QueryGroup) -> Columns:
    """A column (group.size,) per attribute that says what each row counts. Raises WorkloadError
    for an attribute with the name of a result.
    """
    columns: Columns = {}
    for axis, factor in enumerate(group.factors):
        if factor.attribute in RESULT_COLUMNS:
            raise WorkloadError(
                f"attribute {factor.attribute!r} has the name of a result column; rename it"
            )
        own = np.array(factor.labels(domain[factor.attribute]))
        shape = [-1 if i == axis else 1 for i in range(len(group.shape))]
        columns[factor.attribute] = np.broadcast_to(own.reshape(shape), group.shape).ravel()
    return columns


def columns(release: NoisyAnswers, group: QueryGroup, of: Spread) -> Columns:
    """The columns of a group's table: attributes, then RESULT_COLUMNS; each (group.size,)."""
    table = labels(release.plan.domain, group)
    estimate = release.estimates[group.name].ravel()
    std = np.sqrt(release.variances[group.name].ravel())
    moe = quantile(of.confidence, group.size if of.simultaneous else 1) * std
    confidence = np.full(group.size, of.confidence)
    results = (estimate, std, moe, estimate - moe, estimate + moe, confidence)
    return table | dict(zip(RESULT_COLUMNS, results, strict=True))


def metadata(release: NoisyAnswers, group: QueryGroup, of: Spread) -> dict[str, str]:
    """What a table says of itself."""
    return {
        "fitplug.group": group.name,
        "fitplug.confidence": repr(of.confidence),
        "fitplug.simultaneous": str(of.simultaneous).lower(),
        "fitplug.plan_digest": release.plan_digest,
        "fitplug.rho": repr(release.rho),
        "fitplug.contributions": str(release.contributions),
        "fitplug.units": UNITS,
    } | ({} if release.limited is None else _population(release, release.limited))


def _population(release: NoisyAnswers, limited: Limited) -> dict[str, str]:
    return {"fitplug.limited": limited, POPULATION: release.population}


def arrow(table: Columns, said: Mapping[str, str]) -> ArrowTable:
    """An Arrow table with metadata. Raises ImportError without pyarrow."""
    return import_library("pyarrow").table(table).replace_schema_metadata(dict(said))


def pandas_frame(table: Columns, said: Mapping[str, str]) -> PandasFrame:
    """A pandas DataFrame, with the metadata in its `attrs`. Raises ImportError without pandas."""
    frame = import_library("pandas").DataFrame(table)
    frame.attrs.update(said)
    return frame


def polars_frame(table: Columns) -> PolarsFrame:
    """A Polars DataFrame, which holds no metadata. Raises ImportError without Polars."""
    return import_library("polars").DataFrame(
        {name: column.tolist() if column.dtype.kind == "U" else column
         for name, column in table.items()}
    )  # fmt: skip
