"""Weights and filters of rows in memory, against plain Python and DuckDB."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug.counts.records import (
    MOST_WEIGHT,
    WEIGHT,
    check_weight,
    describe_rows,
    make_filters,
)
from fitplug.domain import get_codec, get_shape
from fitplug.domain.encoder import OUTSIDE
from fitplug.errors import DataError, DomainError, InputError, TablesError

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 3)})
TABLES = [("sex", "age"), ("age",), ()]
DAYS = [datetime.date(2020, 2, 28) + datetime.timedelta(days=n) for n in range(4)]
VALUES: dict[str, list[Any]] = {
    "sex": ["1", "2", "3", None],
    "age": [0, 1, 3, 4, -1, None],
    "level": ["040", "050", "40", "", None],
    "code": [1, 2, 10**12, None],
    "flag": [True, False, None],
    "day": [*DAYS, None],
}
TYPES = {
    "sex": pa.string(),
    "age": pa.int8(),
    "level": pa.string(),
    "code": pa.int64(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "pop": pa.int64(),
}
WEIGHTS = st.one_of(st.none(), st.integers(-3, 9), st.sampled_from([2**40, 2**41, -(2**63)]))
FILTERS: dict[str, list[Any]] = {
    "sex": ["1", "3"],
    "level": ["040", "050"],
    "code": [2, 10**12, 7],
    "flag": [True, False],
    "day": [DAYS[0], DAYS[2]],
}


@st.composite
def filters(draw: st.DrawFn) -> dict[str, Any]:
    named = draw(st.sets(st.sampled_from(sorted(FILTERS)), max_size=2))
    return {
        name: draw(
            st.one_of(
                st.sampled_from(FILTERS[name]),
                st.lists(st.sampled_from(FILTERS[name]), min_size=1, unique=True),
            )
        )
        for name in named
    }


@st.composite
def records(draw: st.DrawFn) -> dict[str, list[Any]]:
    rows = draw(st.integers(0, 30))
    columns = {
        name: draw(st.lists(st.sampled_from(values), min_size=rows, max_size=rows))
        for name, values in VALUES.items()
    }
    return columns | {"pop": draw(st.lists(WEIGHTS, min_size=rows, max_size=rows))}


def listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def brute_force(
    columns: dict[str, list[Any]], where: dict[str, Any], weighted: bool
) -> dict[tuple[str, ...], Any]:
    counts = {names: np.zeros(get_shape(DOMAIN, names), dtype=np.int64) for names in TABLES}
    for row in range(len(columns["pop"])):
        cells = (
            {"sex": ["1", "2"].index(columns["sex"][row]) if columns["sex"][row] in "12" else None}
            if columns["sex"][row] is not None
            else {"sex": None}
        )
        age = columns["age"][row]
        cells["age"] = age if age is not None and 0 <= age <= 3 else None
        if None in cells.values():
            continue
        if any(columns[name][row] not in listed(given) for name, given in where.items()):
            continue
        weight = columns["pop"][row] or 0
        for names in TABLES:
            at = tuple(cells[name] for name in names)
            counts[names][at] += min(max(weight, 0), 2**40) if weighted else 1
    return counts


def by_duckdb(relation: str, where: dict[str, Any], weighted: bool, held: Any = None) -> Any:
    """The joint table of sex and age; sums in DuckDB's 128-bit integers."""
    literal = {str: "'{}'", int: "{}", bool: "{}", datetime.date: "DATE '{}'"}
    kept = [
        f'"{name}" IN ({", ".join(literal[type(v)].format(v) for v in listed(given))})'
        for name, given in where.items()
    ]
    counted = f"sum(least(greatest(pop, 0), {2**40}))" if weighted else "count(*)"
    conditions = " AND ".join(["sex IN ('1', '2')", "age BETWEEN 0 AND 3", *kept])
    counts = np.zeros((2, 4), dtype=np.int64)
    with duckdb.connect() as connection:
        if held is not None:
            connection.register(relation, held)
        found = connection.sql(
            f"SELECT {counted}, sex, age FROM {relation} WHERE {conditions} GROUP BY ALL"
        ).fetchall()
    for number, sex, age in found:
        counts[int(sex) - 1, age] += int(number or 0)
    return counts


def arrow(columns: dict[str, list[Any]]) -> pa.Table:
    return pa.table({name: pa.array(columns[name], kind) for name, kind in TYPES.items()})


FRAMES = {
    "lists": lambda table: {n: np.array([*v, None], object)[:-1] for n, v in table.items()},
    "Arrow": arrow,
    "pandas": lambda columns: arrow(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "Polars": lambda columns: pl.from_arrow(arrow(columns)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FRAMES)
@settings(max_examples=20)
@given(columns=records(), where=filters(), weighted=st.booleans())
def test_equals_brute_force_and_duckdb(
    kind: str, columns: dict[str, list[Any]], where: dict[str, Any], weighted: bool
) -> None:
    frame = FRAMES[kind](columns)
    weights = "pop" if weighted else None
    counted = fp.Tables.from_records(DOMAIN, frame, TABLES, weights=weights, where=where)
    expected = brute_force(columns, where, weighted)
    for names in TABLES:
        assert counted[names].dtype == np.int64
        np.testing.assert_array_equal(counted[names], expected[names])
    found = by_duckdb("people", where, weighted, arrow(columns))
    np.testing.assert_array_equal(counted["sex", "age"], found)


def test_weights_are_given_as_an_array_or_by_name() -> None:
    columns = {"sex": ["1", "2", "1"], "pop": np.array([3, 4, 5], dtype=np.uint8)}
    by_name = fp.Tables.from_records(DOMAIN, columns, [("sex",)], weights="pop")
    assert by_name["sex"].tolist() == [8, 4]
    assert by_name.rows == "each row counts pop times"
    for weights in ([3, 4, 5], columns["pop"], pa.array([3, 4, 5]), pd.Series([3, 4, 5])):
        given = fp.Tables.from_records(DOMAIN, columns, [("sex",)], weights=weights)
        assert given["sex"].tolist() == [8, 4]
    assert fp.Tables.from_records(DOMAIN, {}, [()], weights=[3, 4])[()] == 7
    alone = fp.Tables.from_records(DOMAIN, columns, [()], weights="pop", where={"sex": "1"})
    assert alone[()] == 8
    assert fp.Tables.from_records(DOMAIN, columns, [()]).rows is None


def test_one_record_more_in_a_row_adds_one_at_most() -> None:
    ends = [-(2**63), -1, 0, 1, MOST_WEIGHT - 1, MOST_WEIGHT, MOST_WEIGHT + 1, 2**63 - 2]
    for weight in ends:
        before, after = WEIGHT.codes(np.array([weight, weight + 1])).tolist()
        assert 0 <= after - before <= 1
    unsigned = np.array([0, 2**40, 2**63, 2**64 - 1], dtype=np.uint64)
    assert WEIGHT.codes(unsigned).tolist() == [0, 2**40, 2**40, 2**40]
    for kind in (np.int8, np.uint8, np.int16, np.uint32):
        most = int(np.iinfo(kind).max)
        assert WEIGHT.codes(np.array([most], dtype=kind)).tolist() == [most]


def test_sums_beyond_what_tables_hold_are_refused_and_never_wrap() -> None:
    columns = {"sex": ["1"] * 2**13, "pop": [2**40] * 2**13}
    most = fp.Tables.from_records(DOMAIN, columns, [("sex",)], weights="pop")
    assert most["sex"].tolist() == [2**53, 0]
    columns = {"sex": ["1"] * 2**20, "pop": np.full(2**20, 2**62)}
    for rows in (2**13 + 1, 2**20):
        some = {name: values[:rows] for name, values in columns.items()}
        with pytest.raises(TablesError, match=r"more than 2\*\*53"):
            fp.Tables.from_records(DOMAIN, some, [("sex",)], weights="pop")


CANARY = 7351735173


@pytest.mark.parametrize(
    "weights",
    [
        [1.0, float(CANARY)],
        [CANARY, CANARY + 0.5],
        [str(CANARY), "1"],
        [True, False],
        np.array([CANARY, True], dtype=object),
        np.array([1, 2], dtype="M8[s]"),
        [[CANARY, 1], [2, 3]],
        [[CANARY], [2, 3]],
        np.array([np.array([CANARY, 1]), None], dtype=object),
    ],
    ids=repr,
)
def test_what_are_no_weights(weights: Any) -> None:
    for asked, columns in ((weights, {}), ("pop", {"pop": weights})):
        with pytest.raises(DataError, match="weights must be") as caught:
            fp.Tables.from_records(DOMAIN, {"sex": ["1", "2"], **columns}, [()], weights=asked)
        assert str(CANARY) not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"weights": "people"}, DataError, "unknown column 'people'"),
        ({"weights": [1, 2, 3]}, DataError, "different lengths"),
        ({"weights": "sex"}, DomainError, "cannot be both the weight and an attribute"),
        (
            {"weights": "pop", "where": {"pop": 1}},
            DomainError,
            "the filter 'where' cannot use the weight column 'pop'",
        ),
        ({"where": {"levle": "040"}}, DataError, "unknown column 'levle'"),
        (
            {"where": {"level": 40}},
            DataError,
            "hold integers, as the filter 'where' expects",
        ),
        (
            {"where": {"pop": "1"}},
            DataError,
            "hold strings, as the filter 'where' expects",
        ),
        (
            {"where": {"nested": 1}},
            DataError,
            "hold integers, as the filter 'where' expects",
        ),
        (
            {"where": {"nested": "1"}},
            DataError,
            "hold strings, as the filter 'where' expects",
        ),
        ({"where": {"level": []}}, DomainError, "lists no value of 'level'"),
        ({"where": {"level": ["040", 50]}}, DomainError, "must be all strings, all integers"),
        ({"where": {"level": 1.5}}, DomainError, "must be all strings, all integers"),
        ({"where": {"level": None}}, DomainError, "must be all strings, all integers"),
        ({"where": {"level": ["040", "040"]}}, DomainError, "where: 'level': .* listed twice"),
        ({"where": {"pop": 2**70}}, DomainError, "where: 'pop': .* between -2\\*\\*62 and"),
        ({"where": ["level"]}, DomainError, "'where' must map column names to values"),
        ({"where": {"": "x"}}, DomainError, "'where' must map column names to values"),
    ],
)
def test_what_is_refused(options: Any, error: Any, says: str) -> None:
    columns: dict[str, Any] = {"sex": ["1", "2"], "level": ["040", "050"], "pop": [1, 2]}
    columns["nested"] = [[1, 2], [3, 4]]
    with pytest.raises(error, match=says):
        fp.Tables.from_records(DOMAIN, columns, [("sex",)], **options)


def test_persons_and_weights_do_not_go_together() -> None:
    with pytest.raises(InputError, match="cannot be combined"):
        check_weight("pop", {}, (), "id")
    with pytest.raises(DomainError, match="must be the name of a column"):
        check_weight("", {}, ())


def test_the_words_tell_filters_apart_and_not_their_order() -> None:
    asked: list[Any] = [
        None,
        {"a": "1"},
        {"a": 1},
        {"a": True},
        {"a": ["1", "2"]},
        {"a": '1" or "2'},
        {"a": datetime.date(2020, 1, 1)},
        {"a": "2020-01-01"},
        {"b": "1"},
        {"a": "1", "b": "1"},
        {'a is "1" and b': "1"},
    ]
    said = [
        describe_rows(w, make_filters(where)) for w in (None, "a pop", "pop") for where in asked
    ]
    assert len(set(said)) == len(said)
    assert said[0] is None
    assert said[3 * len(asked) - 2].endswith('only rows where a is "1" and b is "1" are counted')
    for names in itertools.permutations("xyz"):
        where = {name: set(names) for name in names}
        assert make_filters(where) == make_filters({name: ["x", "y", "z"] for name in "xyz"})
    many = make_filters({"a": [str(n) for n in range(1000, 3000)]})
    assert describe_rows(None, many, 3) == (
        'only rows where a is "1000", "1001", "1002" or one of 1,997 more are counted'
    )
    assert str(get_codec(many["a"]).codes(["1999", "x"]).tolist()) == f"[999, {OUTSIDE}]"


def test_dates_are_kept_day_by_day() -> None:
    (wanted,) = make_filters({"day": [DAYS[3], DAYS[1]]}).values()
    assert [int(code) >= 0 for code in get_codec(wanted).codes(DAYS)] == [False, True, False, True]
    assert [int(c) >= 0 for c in get_codec(wanted).codes(["2020-02-29", "2020-03-01", None])] == [
        True,
        False,
        False,
    ]
    assert wanted != make_filters({"day": [DAYS[1], DAYS[2], DAYS[3]]})["day"]


def test_a_seal_is_of_how_rows_were_understood() -> None:
    columns = {"sex": ["1", "2"], "pop": [1, 1]}
    plain = fp.Tables.from_records(DOMAIN, columns, [("sex",)])
    weighted = fp.Tables.from_records(DOMAIN, columns, [("sex",)], weights="pop")
    assert plain["sex"].tolist() == weighted["sex"].tolist()
    again = [
        fp.Tables(DOMAIN, dict(tables), rows=rows, outside=plain.outside, nonce=plain.nonce).seal
        for tables, rows in ((plain, None), (weighted, weighted.rows), (weighted, None))
    ]
    assert again[0] == again[2] == plain.seal
    assert again[1] != plain.seal
