"""Exact tables of a Polars LazyFrame, as an OpenDP transformation."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import Tables, are_names, hint
from fitplug.domain import NAMES, Attribute, Categories, Dates, Prefix
from fitplug.errors import DataError, nearest
from fitplug.plan import Plan
from fitplug_opendp.advice import check_space
from fitplug_opendp.gaussian import opendp
from fitplug_opendp.spaces import tables_domain

_FRAME = "FrameDistance<SymmetricDistance>"


def make_tables(input_domain: Any, input_metric: Any, plan: Plan) -> Any:
    """Make a Transformation that counts a Polars LazyFrame: out come the `fitplug.Tables` that the
    plan needs, in `tables_domain(plan)` under symmetric_distance().

    A record that is outside the domain, or null, on an attribute of the workload without a cell
    for other values is in no table. A record more or less is one in the tables, or none; the map
    is that: of bounds it is the least product of per_group and num_groups. A frame that cannot be
    computed fails, with an error that says nothing of it: give data that is read and checked.

    Needs OpenDP's features "contrib" and "honest-but-curious", which it never enables itself.

    :param input_domain: lazyframe_domain with a column for each attribute the workload uses.
    :param input_metric: symmetric_distance(), change_one_distance(), or the frame_distance of
        symmetric_distance() with Bounds, as make_stable_lazyframe gives after truncation.
    :param plan: from `fitplug.design`.
    :raises ValueError: for any other domain or metric.
    """
    dp = opendp()
    dp.assert_features("contrib", "honest-but-curious")
    check_space(input_domain, input_metric)
    from opendp.domains import _lazyframe_from_domain
    from opendp.mod import LazyFrameDomain

    if not isinstance(input_domain, LazyFrameDomain):
        raise ValueError(f"make_tables needs a lazyframe_domain, not {input_domain}")
    _check_metric(dp, input_metric)
    empty = _lazyframe_from_domain(input_domain)
    schema = dict(empty.collect_schema())
    for name in plan.workload.attributes:
        _check_column(name, plan.domain[name], schema)
    if str(input_metric.type) != _FRAME:
        # OpenDP's own casts: one record changed is one removed and one added.
        bounded = dp.t.make_stable_lazyframe(input_domain, input_metric, empty, MO=_FRAME)
        return bounded >> then_tables(plan)
    return dp.t.make_user_transformation(
        input_domain,
        input_metric,
        tables_domain(plan),
        dp.symmetric_distance(),
        lambda frame: _counted(plan, schema, frame),
        _records,
    )


def then_tables(plan: Plan) -> Any:
    """Partial constructor of `make_tables`, for `>>` after a transformation or space.

    :param plan: from `fitplug.design`.
    """
    opendp()
    from opendp.mod import _PartialConstructor

    return _PartialConstructor(
        lambda input_domain, input_metric: make_tables(input_domain, input_metric, plan)
    )


def _check_metric(dp: Any, metric: Any) -> None:
    known = (
        dp.symmetric_distance(),
        dp.change_one_distance(),
        dp.frame_distance(dp.symmetric_distance()),
    )
    if metric not in known:
        raise ValueError(
            f"a LazyFrame is counted under {', '.join(map(str, known))}, not {metric}; "
            "where people are told apart by an identifier, bound the records of each first, by "
            f'truncate_per_group in make_stable_lazyframe(..., MO="{_FRAME}")'
        )


def _check_column(name: str, attribute: Attribute, schema: Mapping[str, Any]) -> None:
    import polars as pl

    if name not in schema:
        # A frame that was made of a table without a header is named by a person's values.
        told = nearest(name, schema) if are_names(list(schema)) else hint(name, schema)
        raise ValueError(f"the input domain has no column {name!r}; {told}")
    dtype, wanted = schema[name], attribute.value_type
    fits = {
        str: dtype in (pl.String, pl.Categorical, pl.Enum),
        int: dtype.is_integer(),
        bool: dtype == pl.Boolean,
        float: dtype.is_integer() or dtype.is_float(),
        # The day of a time depends on the zone, so times of a zone name none.
        datetime.date: dtype in (pl.Date, pl.String)
        or (isinstance(dtype, pl.Datetime) and dtype.time_zone is None),
    }
    if not fits[wanted]:
        raise ValueError(
            f"column {name!r} holds {dtype}, but the plan's domain expects {NAMES[wanted]}"
        )


def _records(bounds: Sequence[Any]) -> int:
    """The most records that differ, where all of these bounds hold."""
    found = []
    for bound in bounds:
        groups = bound.num_groups if bound.by else 1
        if bound.per_group is not None and groups is not None:
            found.append(bound.per_group * groups)
    if not found:
        raise ValueError(
            "no Bound limits the records of one person; give one with per_group, and with "
            "num_groups if it has by"
        )
    return min(found)


def _counted(plan: Plan, schema: Mapping[str, Any], frame: Any) -> Tables:
    """Tables of the records. Raises DataError, which says nothing of what Polars said: that names
    values.
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
            "the LazyFrame cannot be read or has not the columns of the measurement's input "
            "domain; collect it first and check it against the domain"
        )
    codes = {name: _codes(plan.domain[name], data[name]) for name in names}
    return Tables.from_codes(
        plan.domain, codes, plan.tables, data.height if names else int(data.item())
    )


def _codes(attribute: Attribute, column: Any) -> npt.NDArray[np.int64]:
    """Cells (n,) of a series (n,), -1 where there is none."""
    import polars as pl

    if isinstance(attribute, Categories) and attribute.value_type is str:
        # To the category's index, or to null if there is no such category.
        if not attribute.values:
            return np.full(len(column), attribute.null_code, dtype=np.int64)
        known = pl.Enum(list(attribute.values))
        texts = column.cast(pl.String)
        if isinstance(attribute, Prefix):
            texts = texts.str.head(attribute.length)
        indices = texts.cast(known, strict=False).to_physical()
        found: npt.NDArray[np.int64] = (
            indices.cast(pl.Int64).fill_null(attribute.null_code).to_numpy()
        )
        return found
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
