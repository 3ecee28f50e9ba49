"""No value of a LazyFrame decides whether there is a result, and a row is counted by its own value.

A row that makes the count fail would be told of by the failure. `docs/proofs/make_tables.tex` needs
that no row does, in its lemma of the codes.
"""

from __future__ import annotations

import datetime

import numpy as np
import opendp.prelude as dp
import pytest

import fitplug as fp
import fitplug_opendp as fpo
from fitplug.domain import get_codec
from tests.helpers.opendp_spaces import features  # noqa: F401

pl = pytest.importorskip("polars")

INTEGERS = {f"{sign}Int{bits}": (sign, bits) for sign in ("", "U") for bits in (32, 64)}
FLOATS = [0.0, -0.0, 1.5, 5e-324, 1e308, -1e308, float("inf"), -float("inf"), float("nan")]
TEXTS = ["", "1", " 1", "1\0", "\0", "٣", "1e400", "nan", "2020-02-30", "2020-01-02", "9" * 5000]
TIMES = [0, -1, 1, 2**62, -(2**62), 2**63 - 1, -(2**63) + 1, 1_577_923_200_000]


def integers(sign, bits):
    low, high = (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return [low, high, low + 1, 0, 1, 2, high // 2]


def columns():
    """Columns of every type that OpenDP has, with the ends of its range, and null."""
    for name, kind in INTEGERS.items():
        yield name, pl.Series([*integers(*kind), None], dtype=getattr(pl, name))
    for name in ("Float32", "Float64"):
        yield name, pl.Series([*FLOATS, None], dtype=pl.Float64).cast(getattr(pl, name))
    yield "Boolean", pl.Series([True, False, None])
    yield "String", pl.Series([*TEXTS, None])
    yield "Date", pl.Series([0, 18_263, 2**31 - 1, -(2**31), None], dtype=pl.Int32).cast(pl.Date)
    for unit in ("ms", "us", "ns"):
        yield f"times in {unit}", pl.Series([*TIMES, None]).cast(pl.Datetime(unit))


COLUMNS = dict(columns())
NUMBERS = [*INTEGERS, "Float32", "Float64"]
DATES = ["Date", "String", *(name for name in COLUMNS if name.startswith("times"))]
ATTRIBUTES = {
    "numbers": (fp.Integers(0, 2), [*INTEGERS]),
    "categories of numbers": (fp.Categories([1, 2], other="other"), [*INTEGERS]),
    "bins": (fp.Bins([0, 1, 2.5]), NUMBERS),
    "a measure": (fp.Measure(-1, 1, unit=0.5, other="none"), NUMBERS),
    "truth": (fp.Categories([True, False], other="null"), ["Boolean"]),
    "labels": (fp.Categories(["1", "x"], other="other"), ["String"]),
    "prefixes": (fp.CodePrefix(["10", "20"], 2, other="other"), ["String"]),
    "dates": (fp.Dates("2020-01-01", "2020-01-03"), DATES),
    "a measure of dates": (fp.Measure("2020-01-01", "2020-01-03", other="none"), DATES),
}
CASES = [(name, column) for name, (_, fitting) in ATTRIBUTES.items() for column in fitting]


def make_counting(attribute, column):
    frame = pl.LazyFrame({"x": column})
    asked = "sum" if get_codec(attribute).quantities else "identity"
    workload = fp.Workload(fp.Domain({"x": attribute}), [fp.queries({"x": asked}, std=1e3)])
    plan = fp.design(workload, tolerance=0.1)
    space = dp.domain_of(frame, infer=True), dp.symmetric_distance()
    return fpo.make_tables(*space, plan)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_each_row_is_counted_by_its_own_value(name, kind):
    attribute, column = ATTRIBUTES[name][0], COLUMNS[kind]
    counting = make_counting(attribute, column)
    together = counting(pl.LazyFrame({"x": column}))["x",]
    single = [counting(pl.LazyFrame({"x": column[i : i + 1]}))["x",] for i in range(len(column))]
    np.testing.assert_array_equal(together, np.sum(single, axis=0))
    assert {int(one.sum()) for one in single} <= {0, get_codec(attribute).shares}
    chunks = pl.concat([column, column], rechunk=False)[3 : len(column) + 2]
    rows = [*single[3:], *single[:2]]
    np.testing.assert_array_equal(counting(pl.LazyFrame({"x": chunks}))["x",], np.sum(rows, axis=0))
    if get_codec(attribute).null_code >= 0:
        assert all(int(one.sum()) == get_codec(attribute).shares for one in single)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_time_is_counted_on_its_day(unit):
    """Against Python's own calendar, at the borders of days before and after 1970."""
    attribute = fp.Dates("1969-12-30", "1970-01-03")
    moments = [
        datetime.datetime(1970, 1, 1) + datetime.timedelta(days=day, milliseconds=step)
        for day in range(-3, 5)
        for step in (-1, 0, 1)
    ]
    column = pl.Series(moments).cast(pl.Datetime(unit))
    expected = [sum(m.date() == datetime.date(1969, 12, 30) + datetime.timedelta(days=i)
                    for m in moments) for i in range(5)]  # fmt: skip
    counted = make_counting(attribute, column)(pl.LazyFrame({"x": column}))["x",]
    assert counted.tolist() == expected
