"""The OpenDP transformation from a Polars LazyFrame to exact tables."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import Tables, can_name_columns, suggest_column
from fitplug.domain import (
    TYPE_NAMES,
    Attribute,
    Codec,
    find_days,
    get_codec,
    list_names_without_other,
)
from fitplug.errors import DataError, suggest_nearest
from fitplug.plan import Plan
from fitplug.workload import ReplaceOne
from fitplug_opendp._compat import import_opendp, make_empty_frame, make_partial_constructor
from fitplug_opendp.count_checks import check_space
from fitplug_opendp.input_domains import check_metric_of_tables, tables_domain


def upper_records(bounds: Sequence[Any]) -> int:
    """Return the largest number of rows that differ if all of these Bounds hold.

    If at most g groups by some columns differ, and at most p rows in each group, at most g p rows
    differ. The two limits may be in different Bounds, because each step of truncation adds one.

    Args:
        bounds: OpenDP's Bounds.

    Raises:
        ValueError: The number of rows is not limited.
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    per_group: dict[Any, list[int]] = defaultdict(list)
    for number, bound in enumerate(bounds):
        key = _identify_columns(bound.by, number)
        if not bound.by:
            groups[key].append(1)
        elif bound.num_groups is not None:
            groups[key].append(bound.num_groups)
        if bound.per_group is not None:
            per_group[key].append(bound.per_group)
    products = [min(groups[key]) * min(per_group[key]) for key in groups.keys() & per_group.keys()]
    if not products:
        raise ValueError(
            "no Bound limits the rows per person. Give a Bound with per_group= and, for by=, "
            "num_groups=."
        )
    return min(products)


def _identify_columns(by: Sequence[Any], number: int) -> Any:
    """Return a key of the groups of a Bound: its columns, or its number if `by` has expressions.

    Two expressions may print the same and group rows differently; two columns cannot.
    """
    if all(expression.meta.is_column() for expression in by):
        return frozenset(expression.meta.output_name() for expression in by)
    return number


def count_frame(plan: Plan, schema: Mapping[str, Any], frame: Any) -> Tables:
    """Count the rows of a LazyFrame, or their shares, into the tables that the plan needs.

    Args:
        plan: The plan.
        schema: The Polars types that the columns must have, by name.
        frame: The LazyFrame. It is collected, for the columns that the plan uses.

    Returns:
        The exact counts.

    Raises:
        DataError: The frame cannot be computed, or a column has another type. The error repeats
            nothing from Polars' errors, which name values.
    """
    import polars as pl

    names = plan.workload.attributes
    try:
        columns = frame.select(pl.col(names)) if names else frame.select(records=pl.len())
        data = columns.collect()
    except (Exception, pl.exceptions.PanicException):
        data = None
    if data is None or any(data.schema[name] != schema[name] for name in names):
        raise DataError("cannot read the LazyFrame. Collect it first and check its columns.")
    codes = {name: encode_column(get_codec(plan.domain[name]), data[name]) for name in names}
    return Tables.from_codes(
        plan.domain, codes, plan.tables, data.height if names else int(data.item())
    )


def encode_column(codec: Codec, column: Any) -> npt.NDArray[np.int64]:
    """Find the code of each value of a Polars series.

    Args:
        codec: The codec of an attribute.
        column: A series (n,) of a type that the attribute accepts.

    Returns:
        The codes (n,), -1 for values without one.
    """
    import polars as pl

    if codec.value_type is str or column.dtype == pl.String:
        return _encode_texts(codec, column.cast(pl.String))
    missing = column.is_null().to_numpy()
    if codec.value_type is datetime.date:
        filled, are_days = _find_days(column)
        missing = missing | ~are_days
    else:
        filled = column.fill_null(False if column.dtype == pl.Boolean else 0).to_numpy()
    return np.where(missing, codec.null_code, codec.codes_of_numbers(filled))


def _find_days(column: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Find the days since 1970-01-01 of a Polars series of dates, or of times without a zone.

    Returns:
        The days (n,), and whether each time has a day (n,); both are arbitrary for nulls.

    Polars' cast from times to dates panics, which ends the process, if one time is beyond all
    dates. One row would then decide whether there is a release, so that cast is not used.
    """
    ticks = column.to_physical().fill_null(0).to_numpy().astype(np.int64)
    return find_days(ticks, getattr(column.dtype, "time_unit", "D"))


def _encode_texts(codec: Codec, texts: Any) -> npt.NDArray[np.int64]:
    """Find the cells (n,) of a series (n,) of texts; each different text is looked up once."""
    import polars as pl

    different = texts.drop_nulls().unique()
    codes = codec.codes(np.array([*different.to_list(), None], dtype=object))
    # The cast to an Enum gives the index of each text among the different ones.
    indices = texts.cast(pl.Enum(different)).to_physical().cast(pl.Int64)
    cells: npt.NDArray[np.int64] = codes[indices.fill_null(len(different)).to_numpy()]
    return cells


_FRAME_METRIC = "FrameDistance<SymmetricDistance>"


def make_tables(input_domain: Any, input_metric: Any, plan: Plan) -> Any:
    """Make a Transformation that counts a Polars LazyFrame into the tables that the plan needs.

    If a row has null or a value outside the domain in any attribute without a cell `other`, the row
    is left out of all tables. Adding or removing one row changes the tables by at most one row
    (with measures, by the shares of one row). This is the bound in the stability map. If the metric
    has Bounds, the map uses the smallest product of per_group and num_groups over all Bounds by the
    same columns. If a frame cannot be computed, the error does not explain why, because this might
    reveal data. So read and check the data first.

    OpenDP's features "contrib" and "honest-but-curious" must be enabled first.

    Args:
        input_domain: A lazyframe_domain that has a column for each attribute in the workload.
        input_metric: symmetric_distance(), change_one_distance(), or the frame_distance of
            symmetric_distance() with Bounds, as make_stable_lazyframe gives after truncation.
        plan: The plan, from `fitplug.design`.

    Returns:
        A Transformation into `tables_domain(plan)` under symmetric_distance(). For a plan of
        `fp.ReplaceOne()`, the input and the output metric are change_one_distance().

    Raises:
        ValueError: The domain or the metric does not fit the plan; or rows may be replaced, and an
            attribute has no cell for values outside the domain.
    """
    dp = import_opendp()
    dp.assert_features("contrib", "honest-but-curious")
    check_space(input_domain, input_metric)
    from opendp.mod import LazyFrameDomain

    if not isinstance(input_domain, LazyFrameDomain):
        raise ValueError(f"make_tables needs a lazyframe_domain, not {input_domain}")
    _check_metric(dp, input_metric)
    empty = make_empty_frame(input_domain)
    schema = dict(empty.collect_schema())
    for name in plan.workload.attributes:
        _check_column(name, plan.domain[name], schema)
    if isinstance(plan.unit, ReplaceOne):
        _check_replacements(plan, input_metric)
        return dp.t.make_user_transformation(
            input_domain,
            input_metric,
            tables_domain(plan),
            input_metric,
            lambda frame: count_frame(plan, schema, frame),
            lambda d_in: d_in,
        )
    if str(input_metric.type) != _FRAME_METRIC:
        # OpenDP casts the metric itself: one changed row is one removed row and one added row.
        bounded = dp.t.make_stable_lazyframe(input_domain, input_metric, empty, MO=_FRAME_METRIC)
        return bounded >> then_tables(plan)
    return dp.t.make_user_transformation(
        input_domain,
        input_metric,
        tables_domain(plan),
        dp.symmetric_distance(),
        lambda frame: count_frame(plan, schema, frame),
        upper_records,
    )


def then_tables(plan: Plan) -> Any:
    """Make a partial constructor: `make_tables` without the input domain and metric.

    Args:
        plan: The plan, from `fitplug.design`.

    Returns:
        An object for the right side of `>>`, after a transformation or a pair (domain, metric).
    """
    import_opendp()
    return make_partial_constructor(
        lambda input_domain, input_metric: make_tables(input_domain, input_metric, plan)
    )


def _check_metric(dp: Any, metric: Any) -> None:
    """Raise ValueError unless rows of a LazyFrame can be counted under this metric."""
    known = (
        dp.symmetric_distance(),
        dp.change_one_distance(),
        dp.frame_distance(dp.symmetric_distance()),
    )
    if metric not in known:
        raise ValueError(
            f"a LazyFrame needs one of the metrics {', '.join(map(str, known))}, not {metric}. For "
            "a metric of persons, use truncate_per_group first."
        )


def _check_replacements(plan: Plan, metric: Any) -> None:
    """Raise ValueError unless replacing a row leaves the number of counted rows unchanged."""
    check_metric_of_tables(plan.unit, metric)
    strict = list_names_without_other(plan.domain, plan.workload.attributes)
    if strict:
        raise ValueError(
            f"the unit of privacy {plan.unit} needs other= in the attribute {strict[0]!r}"
        )


def _check_column(name: str, attribute: Attribute, schema: Mapping[str, Any]) -> None:
    """Raise ValueError unless the schema has a column of the attribute's type."""
    import polars as pl

    if name not in schema:
        # If a table was read without a header, its columns are named by a person's values.
        suggestion = (
            suggest_nearest(name, schema)
            if can_name_columns(list(schema))
            else suggest_column(name, schema)
        )
        raise ValueError(f"the input domain has no column {name!r}. {suggestion}")
    dtype, wanted = schema[name], get_codec(attribute).value_type
    fits = {
        str: dtype in (pl.String, pl.Categorical, pl.Enum),
        int: dtype.is_integer(),
        bool: dtype == pl.Boolean,
        float: dtype.is_integer() or dtype.is_float(),
        # The day of a time with a zone depends on the zone, so such times are refused.
        datetime.date: dtype in (pl.Date, pl.String)
        or (isinstance(dtype, pl.Datetime) and dtype.time_zone is None),
    }
    if not fits[wanted]:
        raise ValueError(
            f"column {name!r} has the type {dtype}, but the plan's domain needs "
            f"{TYPE_NAMES[wanted]}"
        )
