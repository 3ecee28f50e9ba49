"""Tables for other libraries: one row per query, in Arrow, pandas or Polars, and Parquet files.

The one module of the core that imports these libraries, each only when it is asked for.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.domain import Domain
from fitplug.errors import WorkloadError
from fitplug.footers import Footer, read_footer
from fitplug.population import Limited
from fitplug.targets import DEFAULT_CONFIDENCE, check_confidence, quantile
from fitplug.workload import QueryGroup

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from fitplug.release import Release

ArrowTable: TypeAlias = "pyarrow.Table"
ParquetFile: TypeAlias = Any
"""`pyarrow.parquet.ParquetFile`."""
PandasFrame: TypeAlias = "pandas.DataFrame"
PolarsFrame: TypeAlias = "polars.DataFrame"
Column: TypeAlias = npt.NDArray[Any]
Columns: TypeAlias = dict[str, Column]

MEASURES = ("estimate", "std", "moe", "lower", "upper")
"""Of an answer, all in records; moe, lower and upper are of an interval."""

RESULT_COLUMNS = (*MEASURES, "confidence")
"""After the attributes' columns; the confidence is that of the row's interval, or of all rows'
together where they are simultaneous, as the metadata say.
"""

UNITS = f"{', '.join(MEASURES)}: records"
POPULATION = "fitplug.population"
"""The entry of the metadata that says which records a table is about."""

_EXTRAS = {"pyarrow": "arrow", "pandas": "pandas", "polars": "polars"}


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


def columns(release: Release, group: QueryGroup, of: Spread) -> Columns:
    """The columns of a group's table: attributes, then RESULT_COLUMNS; each (group.size,)."""
    table = labels(release.plan.domain, group)
    estimate = release.estimates[group.name].ravel()
    std = np.sqrt(release.variances[group.name].ravel())
    moe = quantile(of.confidence, group.size if of.simultaneous else 1) * std
    confidence = np.full(group.size, of.confidence)
    results = (estimate, std, moe, estimate - moe, estimate + moe, confidence)
    return table | dict(zip(RESULT_COLUMNS, results, strict=True))


def metadata(release: Release, group: QueryGroup, of: Spread) -> dict[str, str]:
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


def _population(release: Release, limited: Limited) -> dict[str, str]:
    return {"fitplug.limited": limited, POPULATION: release.population}


def arrow(table: Columns, said: Mapping[str, str]) -> ArrowTable:
    """An Arrow table with metadata. Raises ImportError without pyarrow."""
    return _library("pyarrow").table(table).replace_schema_metadata(dict(said))


def pandas_frame(table: Columns, said: Mapping[str, str]) -> PandasFrame:
    """A pandas DataFrame, with the metadata in its `attrs`. Raises ImportError without pandas."""
    frame = _library("pandas").DataFrame(table)
    frame.attrs.update(said)
    return frame


def polars_frame(table: Columns) -> PolarsFrame:
    """A Polars DataFrame, which holds no metadata. Raises ImportError without Polars."""
    return _library("polars").DataFrame(
        {name: column.tolist() if column.dtype.kind == "U" else column
         for name, column in table.items()}
    )  # fmt: skip


def write_parquet(path: Path, table: ArrowTable) -> None:
    """Write a Parquet file. Raises OSError, and ImportError without pyarrow."""
    _library("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path)


def read_parquet(path: Path) -> tuple[Columns, dict[str, str]]:
    """Columns and metadata of a Parquet file. Raises whatever pyarrow does on damage."""
    # The file's own bytes are read first: Parquet would map a damaged one, or read half of it.
    file, footer = open_parquet(path.read_bytes())
    with file:
        table = file.read(use_threads=False)
    said = {key.decode(): value.decode() for key, value in footer.said.items()}
    return {name: table[name].to_numpy() for name in table.column_names}, said


def open_parquet(held: bytes) -> tuple[ParquetFile, Footer]:
    """A Parquet file in memory, to be read, and its own footer. Raises whatever pyarrow does on
    damage, and ImportError without it.

    Arrow may end the process on a footer that is damaged: it gets one written anew.
    """
    _library("pyarrow")
    import pyarrow.parquet

    footer = read_footer(io.BytesIO(held))
    metadata = pyarrow.parquet.read_metadata(pyarrow.BufferReader(footer.for_arrow))
    return pyarrow.parquet.ParquetFile(pyarrow.BufferReader(held), metadata=metadata), footer


def check_arrow() -> None:
    """Raise ImportError without pyarrow, which folders of tables need."""
    _library("pyarrow")


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(
            f'{name} is not installed; it comes with: pip install "fitplug[{_EXTRAS[name]}]"'
        ) from None
