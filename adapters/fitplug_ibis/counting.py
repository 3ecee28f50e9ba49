"""Counting: one statement groups the rows by cell in the database, and returns only counts.

One statement counts all tables, so that they come from one state of the database and, if rows of
persons are chosen at random, from one choice. Each row is joined with the numbers of the tables,
and grouped by its cell in each of them.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fitplug.counts import (
    AttributeSet,
    OutsideCounts,
    Source,
    Tables,
    check_request,
    choose_joint_tables,
    describe_source_rows,
    is_measure,
    list_tables,
    read_source,
    sum_to_tables,
)
from fitplug.display import Progress
from fitplug.domain import Domain, get_codec, get_shape
from fitplug.errors import DataError, InputError, TablesError
from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug.workload import Unit
from fitplug_ibis.connections import open_table
from fitplug_ibis.rows import CodedRows, code_rows

_LOG = logging.getLogger(__name__)

_MOST_CELLS = 2**27
_MOST_SUM = 2.0**60
"""Larger than all counts that tables may have, but within 64-bit integers."""
_LONGEST_UNION = 100

_FAILED = "the database did not count the table. See the log of the database for the reason."


@dataclass(frozen=True)
class Part:
    """A cell in which a row counts.

    Attributes:
        cell: The expression of the row's cell; null if it has none.
        shares: The expression of the row's shares there; None for 1.
    """

    cell: Any
    shares: Any = None


def count(
    source: Source | Any,
    plan: Any,
    *,
    client: Any = None,
    person_key: bytes | None = None,
    unit: Unit | None = None,
    progress: Progress = None,
) -> Tables:
    """Count the exact tables that a plan needs in a database; see `fitplug.count`.

    Raises:
        InputError: `client`, `person_key`, or an option that is only for files is given.
        DataError: The database fails, or a column is missing or has a type that cannot be read.
    """
    source = read_source(source)
    _check_options(source, client=client, person_key=person_key)
    domain, names = list_tables(plan)
    used = domain.ordered(tuple({name for table in names for name in table}))
    attributes = {name: domain[name] for name in used}
    limit = check_request(plan, source, attributes, unit)
    coverage = plan.coverage if isinstance(plan, Plan) else None
    joints = choose_joint_tables(domain, names)
    outside = () if coverage is None else coverage.names
    start = time.perf_counter()
    with open_table(source) as table:
        is_sqlite = _find_backend(table) == "sqlite"
        rows = code_rows(table, source, attributes, is_sqlite=is_sqlite)
        if limit is not None:
            rows = rows.select_inside().select_persons(limit)
        elif not outside:
            rows = rows.select_inside()
        counts = _count_cells(domain, joints, outside, rows)
    _LOG.info("counted %d tables in a database in %.1f s", len(names), time.perf_counter() - start)
    sizes = [math.prod(get_shape(domain, joint)) for joint in joints]
    ends = np.cumsum([0, *sizes])
    counted = {
        joint: counts[low:high] for joint, low, high in zip(joints, ends, ends[1:], strict=False)
    }
    in_no_table = None
    if outside:
        *numbers, most = counts[ends[-1] :].tolist()
        in_no_table = OutsideCounts(outside, tuple(numbers), most)
    return Tables(
        domain,
        sum_to_tables(domain, counted, names),
        unit=limit,
        person=source.person,
        rows=describe_source_rows(source),
        outside=in_no_table,
        copy=False,
    )


def _check_options(source: Source, **options: Any) -> None:
    """Raise InputError for options that have no meaning in a database."""
    given = options | {
        "zone": source.zone,
        "missing": source.missing,
        "storage_options": source.storage_options,
    }
    for name, value in given.items():
        if value:
            raise InputError(
                f"{name!r} is for files, but these rows are in a database. Remove {name!r}."
            )


def _find_backend(table: Any) -> str:
    """Return the name of the backend of an Ibis table.

    Raises:
        DataError: The table is an expression without a database, or of another kind.
    """
    import ibis

    if not isinstance(table, ibis.expr.types.Table):
        raise DataError(
            f"an Ibis {type(table).__name__} is not a table. Give a table, or a table expression."
        )
    try:
        return str(table.get_backend().name)
    except ibis.common.exceptions.IbisError:
        pass
    raise DataError("the Ibis table must belong to exactly one database")


def _count_cells(
    domain: Domain, joints: Sequence[AttributeSet], outside: Sequence[str], rows: CodedRows
) -> IntArray:
    """Count rows in the cells of all joint tables, one after another, and then outside.

    Returns:
        The counts of the cells; then for each attribute of `outside` the number of records whose
        value is in no cell, and the number of records with such a value of any of them.

    Raises:
        TablesError: The cells are too many for this process, or the counts too large.
        DataError: The database fails.
    """
    from ibis.common.exceptions import OperationNotDefinedError

    sizes = [math.prod(get_shape(domain, joint)) for joint in joints]
    if sum(sizes) > _MOST_CELLS:
        raise TablesError(
            f"the tables have {sum(sizes):,} cells, but a database counts at most {_MOST_CELLS:,}. "
            "Count Parquet files."
        )
    statement = _write_statement(domain, joints, outside, rows)
    result, why = None, _FAILED
    try:
        result = statement.to_pyarrow()
    except OperationNotDefinedError:  # raised before the database is queried
        why = "Ibis cannot write this count for the database. Count Parquet files instead."
    except Exception:  # its message may quote values
        pass
    if result is None:
        raise DataError(why)
    cells, numbers = (result[name].to_numpy() for name in ("cell", "number"))
    if "size" in result.column_names and float(result["size"].to_numpy().sum()) > _MOST_SUM:
        raise TablesError("the weights of the rows add up to more than 2^60. Count fewer rows.")
    counts = np.zeros(sum(sizes) + (len(outside) + 1 if outside else 0), dtype=np.int64)
    if len(cells) and not 0 <= cells.min() <= cells.max() < len(counts):
        raise DataError(_FAILED)
    np.add.at(counts, cells.astype(np.int64), numbers.astype(np.int64))
    return counts


def _write_parts(
    domain: Domain, joints: Sequence[AttributeSet], outside: Sequence[str], rows: CodedRows
) -> list[Part]:
    """Write the cells in which a row counts, and its shares there."""
    import ibis

    table = rows.rows
    weight = None if rows.weight is None else table[rows.weight]
    code_of = {name: table[column] for name, column in rows.code_of.items()}
    is_outside = {name: code_of[name].isnull() for name in outside}
    none = [~one for one in is_outside.values()]
    parts: list[Part] = []
    offset = 0
    for joint in joints:
        shape = get_shape(domain, joint)
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        measures = [i for i, name in enumerate(joint) if is_measure(domain[name])]
        cell: Any = ibis.literal(offset, "int64")
        for i, name in enumerate(joint):
            if i not in measures:
                cell = cell + code_of[name] * ibis.literal(strides[i], "int64")
        if none:
            cell = ibis.cases((ibis.and_(*none), cell))
        for corner in np.ndindex(*(shape[i] for i in measures)):
            shares, place = weight, cell
            for i, at in zip(measures, corner, strict=True):
                one = _write_shares(domain, joint[i], code_of[joint[i]], at)
                shares = one if shares is None else shares * one
                place = place + at * strides[i]
            parts.append(Part(place, shares))
        offset += math.prod(shape)
    if outside:
        for n, given in enumerate((*is_outside.values(), ibis.or_(*is_outside.values()))):
            parts.append(Part(ibis.cases((given, ibis.literal(offset + n, "int64"))), weight))
    return parts


def _write_shares(domain: Domain, name: str, code: Any, cell: int) -> Any:
    """Write a record's shares in a cell of a measure, as `count_shares` computes them."""
    import ibis

    shares = get_codec(domain[name]).shares
    valued = code <= shares
    if cell == 2:
        return ibis.ifelse(valued, 0, shares).cast("int64")
    above = code if cell == 1 else shares - code
    return ibis.ifelse(valued, above, 0).cast("int64")


def _write_statement(
    domain: Domain, joints: Sequence[AttributeSet], outside: Sequence[str], rows: CodedRows
) -> Any:
    """Write the statement that returns the number of records, or of their shares, by cell."""
    import ibis

    parts = _write_parts(domain, joints, outside, rows)
    if len(parts) > 1:
        joined = rows.rows.cross_join(_write_numbers(len(parts)))
        parts = _write_parts(domain, joints, outside, replace(rows, rows=joined))
        number = joined.fitplug_part
        cell, shares = (
            number.cases(*((n, one) for n, one in enumerate(given)))
            for given in ([part.cell for part in parts], [_count_one(part) for part in parts])
        )
    else:
        joined = rows.rows
        cell, shares = parts[0].cell, _count_one(parts[0])
    if all(part.shares is None for part in parts):
        cells = joined.select(cell=cell)
        return cells.filter(cells.cell.notnull()).group_by("cell").agg(number=ibis._.count())
    cells = joined.select(cell=cell, shares=shares)
    return (
        cells.filter(cells.cell.notnull())
        .group_by("cell")
        .agg(
            number=ibis._.shares.sum().cast("int64"),
            size=ibis._.shares.cast("float64").sum(),  # floats cannot overflow here
        )
    )


def _count_one(part: Part) -> Any:
    import ibis

    return ibis.literal(1, "int64") if part.shares is None else part.shares


def _write_numbers(count: int) -> Any:
    """Write a table of the numbers from 0 to count - 1 as a union, so that nothing is stored.

    Databases limit the length of a union, so that more numbers are a product of two tables.
    """
    import ibis

    if count <= _LONGEST_UNION:
        rows = [ibis.literal(n, "int64").name("fitplug_part").as_table() for n in range(count)]
        return ibis.union(*rows) if count > 1 else rows[0]
    high = _write_numbers(-(-count // _LONGEST_UNION)).rename(fitplug_high="fitplug_part")
    pairs = high.cross_join(_write_numbers(_LONGEST_UNION))
    part = pairs.fitplug_high * _LONGEST_UNION + pairs.fitplug_part
    numbers = pairs.select(fitplug_part=part)
    return numbers.filter(numbers.fitplug_part < count)
