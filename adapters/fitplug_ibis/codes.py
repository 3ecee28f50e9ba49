"""Codes: expressions that compute the cell of a value with comparisons that every database has.

A value is compared with the ends of runs of values, by bisection. Arithmetic is used only where a
comparison has shown that it cannot fail, so that no value of a row causes an error. Long lists of
values become a table that is joined.

Numbers are compared as 64-bit floats, as in files. Every constant is written as a fraction of
integers that such floats represent exactly, because databases read decimals in different ways.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from fitplug.counts import MOST_WEIGHT, WEIGHT
from fitplug.domain import (
    EPOCH,
    OUTSIDE,
    Bins,
    CategoriesCodec,
    Codec,
    CodePrefix,
    DatesCodec,
    Encoder,
    MeasureCodec,
)
from fitplug.errors import DataError
from fitplug.numeric import IntArray
from fitplug_ibis.columns import Column

Expression: TypeAlias = Any
"""An expression of Ibis, whose types type checkers do not know."""

MOST_BRANCHES = 2**9
"""The most runs of values that are compared; more are joined."""

_MOST_TEXTS = 64
_LARGEST_INTEGER = 2**62


@dataclass(frozen=True)
class Lookup:
    """A list of values to be joined.

    Attributes:
        value: The expression of the values of rows.
        keys: The values that have codes.
        codes: The code of each.
    """

    value: Expression
    keys: Sequence[Any]
    codes: Sequence[int]


@dataclass(frozen=True)
class Run:
    """Consecutive integers, or days, whose codes are equal or consecutive.

    Attributes:
        first: The first of them.
        last: The last of them.
        code: The code of the first; None if none of them has one.
        step: By how much the code grows with each: 0 or 1.
    """

    first: int
    last: int
    code: int | None
    step: int


def select_codes(
    table: Expression, wanted: Mapping[str, tuple[Encoder, Column]], kept: Sequence[str]
) -> Expression:
    """Select codes for columns of a table, and some of the columns themselves.

    Args:
        table: A table of Ibis.
        wanted: For the name of each new column, what encodes it, and the column whose values are
            read. The new column is int64, null where a value has no code.
        kept: The names of the columns of the table that are kept.
    """
    import ibis
    import pyarrow as pa

    written = {name: _write_code(encoder, column) for name, (encoder, column) in wanted.items()}
    values = {n: one.value if isinstance(one, Lookup) else one for n, one in written.items()}
    joined = table.mutate(**values)
    codes: dict[str, Expression] = {}
    # One chain of joins: databases limit how deep a statement may be nested.
    for name, lookup in written.items():
        if isinstance(lookup, Lookup):
            key, code = f"{name}_key", f"{name}_code"
            listed = ibis.memtable(
                pa.table({key: lookup.keys, code: pa.array(lookup.codes, pa.int64())})
            )
            joined = joined.left_join(listed, joined[name] == listed[key])
    for name, (encoder, _) in wanted.items():
        code = joined[f"{name}_code" if isinstance(written[name], Lookup) else name]
        if encoder.null_code != OUTSIDE:
            code = code.fill_null(encoder.null_code)
        codes[name] = code.cast("int64")
    return joined.select(*kept, **codes)


def _write_code(encoder: Encoder, column: Column) -> Expression | Lookup:
    """Write the code of a value, null where it has none."""
    import ibis

    if column.kind == "null":
        return ibis.null("int64")
    if encoder is WEIGHT:
        most = ibis.literal(MOST_WEIGHT, "int64")
        whole = _write_integer(column)
        return ibis.cases(
            (column.value >= MOST_WEIGHT, most), (column.value > 0, whole), else_=0
        ).fill_null(0)
    if isinstance(encoder, MeasureCodec):
        return _encode_measure(encoder, column)
    assert isinstance(encoder, Codec)
    if isinstance(encoder.attribute, Bins):
        edges = list(map(_write_float, encoder.attribute.edges))
        cells = list(map(_write_code_of, range(len(edges) - 1)))
        return _bisect(column.value.cast("float64"), edges, cells)
    encode: dict[type, Callable[[Any, Column], Expression | Lookup]] = {
        str: _encode_text,
        bool: _encode_booleans,
        int: _encode_integers,
        datetime.date: _encode_days,
    }
    return encode[encoder.value_type](encoder, column)


def _write_code_of(cell: int | None) -> Expression:
    import ibis

    return ibis.null("int64") if cell is None else ibis.literal(cell, "int64")


def _write_float(number: float | Fraction) -> Expression:
    """Write a float as a fraction of integers that floats represent exactly."""
    import ibis

    exact = Fraction(float(number))
    above, below = exact.numerator, exact.denominator
    if max(abs(above), below) > _LARGEST_INTEGER:
        return ibis.literal(float(number), "float64")
    shown = ibis.literal(above, "int64").cast("float64")
    return shown if below == 1 else shown / ibis.literal(below, "int64").cast("float64")


def _bisect(value: Expression, edges: Sequence[Any], leaves: Sequence[Expression]) -> Expression:
    """Choose the leaf of a value; null below the first edge, and from the last edge on.

    Args:
        value: The value; null and NaN have no leaf.
        edges: The first value of each leaf, and the end of the last, (leaves + 1,).
        leaves: The expressions, each of which need hold between its edges only.
    """
    import ibis

    def choose(start: int, stop: int) -> Expression:
        if stop - start == 1:
            return leaves[start]
        middle = (start + stop) // 2
        return ibis.ifelse(value < edges[middle], choose(start, middle), choose(middle, stop))

    inside = (value >= edges[0]) & (value < edges[-1])
    return ibis.cases((inside, choose(0, len(leaves))))


def _encode_text(codec: CategoriesCodec, column: Column) -> Expression | Lookup:
    """Compare texts byte by byte: the appended text avoids types that ignore case or blanks."""
    text = column.value.concat("")
    if isinstance(codec.attribute, CodePrefix):
        text = text.substr(0, codec.attribute.length)
    return _find(text, codec.values, range(len(codec.values)))


def _find(value: Expression, keys: Sequence[Any], codes: Sequence[int]) -> Expression | Lookup:
    """Compare a value with a short list, or join a long one."""
    if not keys:
        return _write_code_of(None)
    if len(keys) > _MOST_TEXTS:
        return Lookup(value, list(keys), list(codes))
    return value.cases(*((key, _write_code_of(c)) for key, c in zip(keys, codes, strict=True)))


def _encode_booleans(codec: CategoriesCodec, column: Column) -> Expression:
    import ibis

    cells = {value: cell for cell, value in enumerate(codec.values)}
    yes, no = (_write_code_of(cells.get(value)) for value in (True, False))
    return ibis.cases((column.value, yes), (~column.value, no))


def _write_integer(column: Column) -> Expression:
    """Write the value as an integer; null for a fraction. Its size must be below 2**62."""
    import ibis

    number = column.value.cast("int64")
    return number if column.is_integer else ibis.cases((column.value == number, number))


def _encode_integers(codec: Codec, column: Column) -> Expression | Lookup:
    """Compare with runs of integers; fractions have no code."""
    import ibis

    values = codec.values
    if isinstance(values, range):
        runs = [Run(values[0], values[-1], 0, 1)]
    else:
        keys = np.array(values, dtype=np.int64)
        order = np.argsort(keys)
        runs = find_runs(keys[order], order, 1)
    if not runs:
        return _write_code_of(None)
    value, number = column.value, _write_integer(column)
    inside = (value >= runs[0].first) & (value <= runs[-1].last)
    if len(runs) > MOST_BRANCHES:
        return Lookup(ibis.cases((inside, number)), list(values), list(range(len(values))))
    edges = [*(run.first for run in runs), runs[-1].last + 1]
    leaves = [_write_leaf(run, lambda first: number - first) for run in runs]
    return ibis.cases((inside, _bisect(number, edges, leaves)))


def find_runs(keys: IntArray, codes: IntArray, step: int) -> list[Run]:
    """Divide increasing integers (n,) with codes (n,) into runs; gaps are runs without a code.

    Args:
        keys: The integers.
        codes: Their codes.
        step: By how much codes grow within a run.
    """
    is_outside = codes == OUTSIDE
    breaks = (np.diff(keys) != 1) | (np.diff(codes) != step) | np.diff(is_outside)
    breaks = np.flatnonzero(breaks) + 1
    starts = [0, *breaks.tolist()] if len(keys) else []
    runs: list[Run] = []
    for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
        first, last = int(keys[start]), int(keys[stop - 1])
        if runs and first > runs[-1].last + 1:
            runs.append(Run(runs[-1].last + 1, first - 1, None, 0))
        code = int(codes[start])
        runs.append(Run(first, last, None if code == OUTSIDE else code, step))
    return runs


def _write_leaf(run: Run, write_distance: Callable[[Any], Expression]) -> Expression:
    """Write the code of a value inside a run."""
    if run.code is None or run.step == 0 or run.first == run.last:
        return _write_code_of(run.code)
    return write_distance(run.first) + run.code


def _write_day(day: int) -> datetime.date:
    return datetime.date.fromordinal(day + EPOCH)


def _encode_days(codec: DatesCodec, column: Column) -> Expression | Lookup:
    """Compare days with runs of days; a time counts as its day."""
    first, last = codec.days
    keys = np.arange(first, last + 1)
    # Days are outside or in a cell; `other` is for days that are not in this range.
    codes = np.where((found := codec.codes_of_days(keys)) == codec.null_code, OUTSIDE, found)
    if column.is_sqlite:
        return _find_written_day(column, keys[codes != OUTSIDE], codes[codes != OUTSIDE])
    runs = min((find_runs(keys, codes, step) for step in (0, 1)), key=len)
    day = column.value.date() if column.dtype.is_timestamp() else column.value
    if len(runs) > MOST_BRANCHES:
        return Lookup(day, list(map(_write_day, keys.tolist())), codes.tolist())
    edges = [*(_write_day(run.first) for run in runs), _write_day(last + 1)]
    leaves = [
        _write_leaf(run, lambda start: day.delta(_write_day(start), unit="day")) for run in runs
    ]
    return _bisect(day, edges, leaves)


def _find_written_day(column: Column, days: IntArray, codes: IntArray) -> Expression | Lookup:
    """Compare SQLite's text for dates and times, 2020-12-31 or 2020-12-31 23:59:59."""
    import ibis

    shown = column.value.cast("string").substr(0, 10)
    is_time = column.value.strftime("%Y-%m-%d").notnull()
    written = [_write_day(day).isoformat() for day in days.tolist()]
    return _find(ibis.cases((is_time, shown)), written, codes.tolist())


def _encode_measure(codec: MeasureCodec, column: Column) -> Expression:
    """Write the distance of a value from the lower bound, in units, as `MeasureCodec` does.

    Raises:
        DataError: SQLite would have to compute the days between dates.
    """
    import ibis

    first, last, unit = codec.scale
    is_whole = first.denominator == last.denominator == unit.denominator == 1
    value, bounds = column.value, [first, last]
    ends: list[Any]
    shares = _write_code_of(codec.shares)
    if codec.value_type is datetime.date:
        if column.is_sqlite:
            raise DataError(
                f"column {column.name!r} is a measure of dates, which fitplug cannot count in "
                "SQLite. Count Parquet files."
            )
        value = value.date() if column.dtype.is_timestamp() else value
        ends = [_write_day(int(bound)) for bound in bounds]
        near = _divide_integer(value.delta(ends[0], unit="day"), unit)
        is_value = (value >= datetime.date.min) & (value <= datetime.date.max)
    elif column.is_integer and is_whole:
        ends = [int(bound) for bound in bounds]
        near = _divide_integer(value.cast("int64") - ends[0], unit)
        is_value = value.notnull()
    else:
        value = value.cast("float64")
        ends = [_write_float(bound) for bound in bounds]
        near = ((value - ends[0]) / _write_float(unit) + _write_float(0.5)).floor().cast("int64")
        is_value = value.notnull() if column.is_sqlite else value.notnull() & ~value.isnan()
    inside = ibis.cases(
        (value <= ends[0], _write_code_of(0)), (value >= ends[1], shares), else_=near
    )
    return ibis.cases((is_value, inside))


def _divide_integer(above: Expression, unit: Fraction) -> Expression:
    """Divide a distance by the unit, and round to the nearest integer, halves upwards."""
    import ibis

    if unit == 1:
        return above
    size = int(unit)
    rest = above % size
    # The quotient is an integer below 2**26, which floats represent. Adding 1/2 makes `floor` safe.
    whole = ((above - rest).cast("float64") / _write_float(size) + _write_float(0.5)).floor()
    return whole.cast("int64") + ibis.ifelse(2 * rest >= size, 1, 0)
