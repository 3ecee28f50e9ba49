"""The check of a source of rows and of its counting function: against a plain count in Python."""

from __future__ import annotations

import datetime
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from fitplug.adapters import count as count_rows
from fitplug.counts import Tables, read_source
from fitplug.domain import (
    Bins,
    Categories,
    CodePrefix,
    Dates,
    Domain,
    Hierarchy,
    Integers,
    Measure,
    get_shape,
)
from fitplug.errors import DataError
from fitplug.testing.plans import require
from fitplug.workload import AddRemove, allows_any_rows

MakeSource: TypeAlias = Callable[[Mapping[str, list[Any]], Mapping[str, type]], Any]
"""From the values of columns and their types to what `fitplug.count` takes."""

_CANARY = "Zanzibarquux"
"""A text that no message may contain."""

_VALUES: Mapping[str, tuple[Any, Sequence[tuple[Any, int | None]]]] = {
    "sex": (Categories(["1", "2"]), [("1", 0), ("2", 1), ("3", None), ("1 ", None), (None, None)]),
    "race": (
        Categories(["01", "é", "a,b"], other="rest"),
        [("01", 0), ("é", 1), ("a,b", 2), ("É", 3), ('say "x"', 3), ("1", 3), (None, 3)],
    ),
    "state": (
        CodePrefix(["00", "02"], 2),
        [("00", 0), ("0099", 0), ("02x", 1), ("0", None), ("1", None), (None, None)],
    ),
    "place": (
        Hierarchy(["county", "tract"], [("a", "a1"), ("a", "a2"), ("b", "b1")]),
        [("a1", 0), ("a2", 1), ("b1", 2), ("b", None), (None, None)],
    ),
    "age": (
        Integers(-3, 20),
        [(-3, 0), (0, 3), (20, 23), (21, None), (-4, None), (2**31, None), (None, None)],
    ),
    "far": (
        Categories([-(10**12), 0, 10**12], other="elsewhere"),
        [(-(10**12), 0), (0, 1), (10**12, 2), (7, 3), (2**53 - 1, 3), (None, 3)],
    ),
    "citizen": (Categories([True, False]), [(True, 0), (False, 1), (None, None)]),
    "income": (
        Bins([-10, 0, 0.5, 100]),
        [
            *((-10.0, 0), (-0.25, 0), (0.0, 1), (0.5, 2), (99.75, 2), (100.0, None)),
            *((-10.5, None), (1e300, None), (math.nan, None), (None, None)),
        ],
    ),
    "born": (
        Dates("2000-01-01", "2000-12-31", by="month"),
        [
            *((datetime.date(2000, 1, 1), 0), (datetime.date(2000, 2, 29), 1)),
            *((datetime.date(2000, 12, 31), 11), (datetime.date(2001, 1, 1), None), (None, None)),
        ],
    ),
}
"""An attribute of each kind, with values of rows and their cells."""

_TYPES: Mapping[str, type] = {
    "age": int,
    "far": int,
    "citizen": bool,
    "income": float,
    "born": datetime.date,
}


@dataclass(frozen=True)
class _Rows:
    """Rows, and how they are counted.

    Attributes:
        domain: The attributes that are counted.
        tables: The attribute sets.
        columns: The values of each column.
        cells: The cells of the columns of attributes, None for values that have none.
        options: What the `Source` has besides its path.
        unit: The limit on the rows of persons.
    """

    domain: Domain
    tables: Sequence[tuple[str, ...]]
    columns: Mapping[str, list[Any]]
    cells: Mapping[str, list[int | None]]
    options: Mapping[str, Any] = field(default_factory=dict)
    unit: AddRemove | None = None

    @property
    def types(self) -> dict[str, type]:
        return {name: _TYPES.get(name, str) for name in self.columns}


def _draw_rows(names: Sequence[str], number: int, seed: int, inside: float = 0.9) -> _Rows:
    """Draw rows with values of attributes, most of which have cells; the first have all values."""
    generator = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {}
    cells: dict[str, list[int | None]] = {}
    for name in names:
        values = _VALUES[name][1]
        with_cells = [pair for pair in values if pair[1] is not None]
        drawn = [
            (with_cells if u < inside else values)[int(k * 10**9) % len(with_cells)]
            for u, k in generator.random((number, 2))
        ]
        drawn[: len(values)] = values[:number]
        columns[name], cells[name] = map(list, zip(*drawn, strict=True)) if drawn else ([], [])
    domain = Domain({name: _VALUES[name][0] for name in names})
    return _Rows(domain, [tuple(names)], columns, cells)


def _count_plainly(rows: _Rows, numbers: Sequence[int]) -> dict[tuple[str, ...], Any]:
    """Count rows one by one, each so many times; those without a cell on any attribute are out."""
    used = [name for name in rows.domain.names if any(name in table for table in rows.tables)]
    counted = {
        table: np.zeros(get_shape(rows.domain, table), dtype=np.int64) for table in rows.tables
    }
    for row, number in enumerate(numbers):
        cells = {name: rows.cells[name][row] for name in used}
        if None not in cells.values():
            for table in rows.tables:
                counted[table][tuple(cells[name] for name in table)] += number
    return counted


def _check_plain(make: MakeSource, count: Any, rows: _Rows, numbers: Sequence[int]) -> None:
    counted = _count(make, count, rows)
    for table, expected in _count_plainly(rows, numbers).items():
        require(table in counted, f"the table {table} is missing")
        require(counted[table].dtype == np.int64, f"the table {table} is not of int64")
        is_same = np.array_equal(counted[table], expected)
        require(is_same, f"the table {table} differs from a plain count")


def _count(make: MakeSource, count: Any, rows: _Rows) -> Tables:
    source = replace(read_source(make(rows.columns, rows.types)), **rows.options)
    limited = {} if rows.unit is None else {"unit": rows.unit}
    counted: Tables = count(source, (rows.domain, rows.tables), **limited)
    require(counted.unit == rows.unit, "the tables have a different limit on rows per person")
    return counted


def _check_each(make: MakeSource, count: Any) -> None:
    for name in _VALUES:
        rows = _draw_rows([name], 60, seed=1, inside=0.5)
        _check_plain(make, count, rows, [1] * 60)


def _check_together(make: MakeSource, count: Any) -> None:
    rows = _draw_rows([*_VALUES], 400, seed=2, inside=0.97)
    tables = [("sex", "race"), ("age", "citizen"), ("born",), (), ("state", "far"), ("place",)]
    _check_plain(make, count, replace(rows, tables=tables), [1] * 400)


def _check_sizes(make: MakeSource, count: Any) -> None:
    for number in (0, 1, 30_000):
        _check_plain(make, count, _draw_rows(["age", "sex"], number, seed=3), [1] * number)


def _check_names(make: MakeSource, count: Any) -> None:
    rows, names = _draw_rows(["age", "sex"], 50, seed=4), ("x.y z", 'say "ä"')
    renamed = dict(zip(names, rows.domain.names, strict=True))
    domain = Domain({new: rows.domain[old] for new, old in renamed.items()})
    columns, cells = (
        {new: by[old] for new, old in renamed.items()} for by in (rows.columns, rows.cells)
    )
    # A type is of the name that the column has here.
    source = make(columns, {new: rows.types[old] for new, old in renamed.items()})
    again = _Rows(domain, [names], columns, cells)
    _check_plain(lambda *_: source, count, again, [1] * 50)


def _check_weights(make: MakeSource, count: Any) -> None:
    rows = _draw_rows(["age", "sex"], 200, seed=5)
    weights = [(None, -3, 0, 1, 2, 40)[k % 6] for k in range(200)]
    weighted = replace(rows, columns={**rows.columns, "n": weights}, options={"weight": "n"})
    _check_plain(
        lambda columns, types: make(columns, {**types, "n": int}),
        count,
        weighted,
        [max(0, n or 0) for n in weights],
    )


def _check_filters(make: MakeSource, count: Any) -> None:
    rows = _draw_rows(["age", "sex", "state"], 300, seed=6)
    for name, chosen in (("state", ["00", "02x"]), ("age", [0, 21]), ("sex", "2")):
        matching = chosen if isinstance(chosen, list) else [chosen]
        numbers = [int(value in matching) for value in rows.columns[name]]
        filtered = replace(rows, tables=[("sex",)], options={"where": {name: chosen}})
        _check_plain(make, count, filtered, numbers)


def _check_measures(make: MakeSource, count: Any) -> None:
    domain = Domain({"sex": ["1", "2"], "pay": Measure(0, 10, unit=1)})
    pay = [0, 3, 10, 12, -5, None, 7, 7]
    sexes: list[Any] = ["1", "2", "1", "2", "1", "2", "9", "2"]
    columns: dict[str, list[Any]] = {"sex": sexes, "pay": pay}
    rows = _Rows(domain, [("sex", "pay")], columns, {})
    counted = _count(lambda c, types: make(c, {**types, "pay": int}), count, rows)
    expected = np.array([[10 + 0 + 10, 0 + 10 + 0], [7 + 0 + 3, 3 + 10 + 7]])
    is_same = np.array_equal(counted["sex", "pay"], expected)
    require(is_same, "shares of a measure are not (10 - value, value) of its clamped values")


def _check_persons(make: MakeSource, count: Any) -> None:
    """Each person is a cell, so that the rows that are counted of each are seen."""
    generator = np.random.default_rng(7)
    persons = [f"p{k}" for k in range(60)]
    who = [persons[k] for k in generator.integers(0, 60, 300)] + ["stranger"] * 5 + [None] * 5
    months = generator.integers(1, 5, len(who)).tolist()
    domain = Domain({"who": Categories(persons), "month": Integers(1, 3)})
    rows_of_months = Counter(zip(who, months, strict=True))
    for unit in (
        AddRemove(),
        AddRemove(records=3),
        AddRemove(records=2, distinct=True),
        AddRemove(records=2, once_per="month"),
    ):
        columns: dict[str, list[Any]] = {"who": who, "month": months, "id": list(who)}
        rows = _Rows(domain, [("who", "month")], columns, {}, {"person": "id"}, unit)
        counted = _count(lambda c, t: make(c, {**t, "month": int}), count, rows)["who", "month"]
        for k, person in enumerate(persons):
            inside = [rows_of_months[person, month] for month in (1, 2, 3)]
            most = [n if allows_any_rows(unit) else min(n, 1) for n in inside]
            counts = counted[k].tolist()
            is_within = all(n <= limit for n, limit in zip(counts, most, strict=True))
            require(is_within, f"{unit}: more rows of a person in one cell than allowed")
            wanted = min(unit.records, sum(most))
            require(sum(counts) == wanted, f"{unit}: {sum(counts)} rows of a person, not {wanted}")


def _check_errors(make: MakeSource, count: Any) -> None:
    """Wrong columns are refused, or their values are outside; no message quotes a row."""
    age = Domain({"age": Integers(0, 5)})
    texts: dict[str, list[Any]] = {"age": [_CANARY, f"{_CANARY}2"], "name": [_CANARY] * 2}
    for domain, columns, is_missing in (
        (age, texts, False),
        (age, {"name": texts["name"]}, True),
        (Domain({"born": _VALUES["born"][0]}), {"born": texts["age"]}, False),
    ):
        rows = _Rows(domain, [domain.names], columns, {})
        try:
            counted = _count(lambda c, _: make(c, dict.fromkeys(c, str)), count, rows)
        except DataError as error:
            chain = itertools.chain([error], _list_causes(error))
            is_silent = not any(_CANARY in str(one) for one in chain)
            require(is_silent, "an error quotes a value of a row")
            continue
        require(not is_missing, "a missing column raises no DataError")
        require(not counted[domain.names].any(), "texts that are not values are counted")


def _list_causes(error: BaseException) -> list[BaseException]:
    """List what a traceback shows besides an error."""
    causes: list[BaseException] = []
    above = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while above is not None:
        causes.append(above)
        above = above.__cause__ or above.__context__
    return causes


_CASES: Mapping[str, Callable[[MakeSource, Any], None]] = {
    "each kind of attribute": _check_each,
    "tables together": _check_together,
    "no, one and many rows": _check_sizes,
    "names of columns": _check_names,
    "weights": _check_weights,
    "filters": _check_filters,
    "measures": _check_measures,
    "persons": _check_persons,
    "errors": _check_errors,
}


def list_source_cases() -> tuple[str, ...]:
    """List the cases of `check_source`.

    Example:
        >>> "weights" in fitplug.testing.list_source_cases()
        True
    """
    return tuple(_CASES)


def check_source(
    make_source: MakeSource,
    case: str | None = None,
    *,
    count: Callable[..., Tables] = count_rows,
) -> None:
    """Check that counting a source of rows gives the same tables as a plain count.

    Args:
        make_source: `make_source(columns, types)` puts rows where your source reads them, and
            returns what `fitplug.count` takes. `columns` has the values of each column, including
            None; `types` has the type of each column: str, int, float, bool or datetime.date.
        case: One of `list_source_cases()`; None for all of them.
        count: The function that counts, with the arguments `(source, wanted, unit=...)` of
            `fitplug.count`.

    Raises:
        AssertionError: A table differs, or an error quotes a row; the message names the case.

    Example:
        >>> def make_frame(columns, types):
        ...     return polars.DataFrame(columns, schema=types)
        >>> fitplug.testing.check_source(make_frame, "weights")
    """
    for name in _CASES if case is None else (case,):
        try:
            _CASES[name](make_source, count)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
