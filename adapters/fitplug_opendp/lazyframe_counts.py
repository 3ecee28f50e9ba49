"""Exact counts of a Polars LazyFrame."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import Tables
from fitplug.domain import Attribute, find_days
from fitplug.errors import DataError
from fitplug.plan import Plan


def count_frame(plan: Plan, schema: Mapping[str, Any], frame: Any) -> Tables:
    """Count the records of a LazyFrame, or their shares, into the tables that the plan needs.

    Args:
        plan: The plan.
        schema: The Polars types that the columns must have, by name.
        frame: The LazyFrame. It is collected, for the columns that the plan uses.

    Returns:
        The exact counts.

    Raises:
        DataError: The frame cannot be computed, or a column has another type. The error repeats
            nothing of what Polars says, as Polars names values.
    """
    import polars as pl

    names = plan.workload.attributes
    try:
        columns = frame.select(pl.col(names)) if names else frame.select(records=pl.len())
        data = columns.collect()
    except (Exception, pl.exceptions.PanicException):
        data = None
    if data is None or any(data.schema[name] != schema[name] for name in names):
        raise DataError(
            "the LazyFrame cannot be read, or it does not have the columns of the measurement's "
            "input domain; collect it first and check it against the domain"
        )
    codes = {name: encode_column(plan.domain[name], data[name]) for name in names}
    return Tables.from_codes(
        plan.domain, codes, plan.tables, data.height if names else int(data.item())
    )


def encode_column(attribute: Attribute, column: Any) -> npt.NDArray[np.int64]:
    """Find the code of each value of a Polars series.

    Args:
        attribute: The attribute, whose codes are numbered from 0.
        column: A series (n,) of a type that the attribute accepts.

    Returns:
        The codes (n,), -1 for values that have none.
    """
    import polars as pl

    if attribute.value_type is str or column.dtype == pl.String:
        return _encode_texts(attribute, column.cast(pl.String))
    missing = column.is_null().to_numpy()
    if attribute.value_type is datetime.date:
        filled, are_days = _find_days(column)
        missing = missing | ~are_days
    else:
        filled = column.fill_null(False if column.dtype == pl.Boolean else 0).to_numpy()
    return np.where(missing, attribute.null_code, attribute.codes_of_numbers(filled))


def _find_days(column: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Find the days since 1970-01-01 of a Polars series of dates, or of times without a zone.

    Returns:
        The days (n,), and whether each is one (n,), which nulls need not be asked.

    Polars casts times to dates with a panic, which ends the process, if one time is too far away
    for a date. One row would decide whether there is a release, so its cast is not used.
    """
    ticks = column.to_physical().fill_null(0).to_numpy().astype(np.int64)
    return find_days(ticks, getattr(column.dtype, "time_unit", "D"))


def _encode_texts(attribute: Attribute, texts: Any) -> npt.NDArray[np.int64]:
    """Find the cells (n,) of a series (n,) of text; each different text is looked up once."""
    import polars as pl

    different = texts.drop_nulls().unique()
    codes = attribute.codes(np.array([*different.to_list(), None], dtype=object))
    # The cast to an Enum gives the index of each text among the different ones.
    indices = texts.cast(pl.Enum(different)).to_physical().cast(pl.Int64)
    found: npt.NDArray[np.int64] = codes[indices.fill_null(len(different)).to_numpy()]
    return found
