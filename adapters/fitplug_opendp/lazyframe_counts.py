"""Exact counts of a Polars LazyFrame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import Tables
from fitplug.domain import Attribute, Categories, Dates, Prefix
from fitplug.errors import DataError
from fitplug.plan import Plan


def count_frame(plan: Plan, schema: Mapping[str, Any], frame: Any) -> Tables:
    """Count the records of a LazyFrame into the tables that the plan needs.

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
    """Find the cell of each value of a Polars series.

    Args:
        attribute: The attribute, whose cells are numbered from 0.
        column: A series (n,) of a type that the attribute accepts.

    Returns:
        The cells (n,), -1 for values that have none.
    """
    import polars as pl

    if isinstance(attribute, Categories) and attribute.value_type is str:
        # The cast to an Enum gives the index of the category, or null if there is no such category.
        if not attribute.values:
            return np.full(len(column), attribute.null_code, dtype=np.int64)
        known = pl.Enum(list(attribute.values))
        texts = column.cast(pl.String)
        if isinstance(attribute, Prefix):
            texts = texts.str.head(attribute.length)
        indices = texts.cast(known, strict=False).to_physical()
        codes: npt.NDArray[np.int64] = (
            indices.cast(pl.Int64).fill_null(attribute.null_code).to_numpy()
        )
        return codes
    if isinstance(attribute, Dates):
        if column.dtype == pl.String:
            return attribute.codes(np.array(column.to_list(), dtype=object))
        none = attribute.days[0] - 1
        return attribute.codes_of_days(
            column.cast(pl.Date).to_physical().cast(pl.Int64).fill_null(none).to_numpy()
        )
    missing = column.is_null().to_numpy()
    filled = column.fill_null(False if column.dtype == pl.Boolean else 0).to_numpy()
    return np.where(missing, attribute.null_code, attribute.codes(filled))
