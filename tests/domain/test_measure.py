"""Measures: codes against exact rationals, and what shares of records add up to."""

from __future__ import annotations

import datetime
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.domain import domain as domains, get_codec
from fitplug.errors import DataError

UNITS = (1, 5, 100, 0.1, 0.25, 0.01, 2.5)


@st.composite
def measures(draw):
    """Measures with bounds of either sign, whose units are integers or decimals."""
    unit = draw(st.sampled_from(UNITS))
    first = draw(st.integers(-500, 500))
    count = draw(st.integers(1, 2000))
    exact = Fraction(repr(unit))
    low, high = exact * first, exact * (first + count)
    ends = [int(e) if e.denominator == 1 else float(e) for e in (low, high)]
    other = draw(st.sampled_from([None, "no value"]))
    return fp.Measure(*ends, unit=unit, other=other), low, high, exact, count


@given(measures(), st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20))
def test_codes_are_the_nearest_multiples_of_the_unit(given_measure, values):
    measure, low, high, unit, count = given_measure
    assert get_codec(measure).shares == count
    codes = get_codec(measure).codes(np.array(values))
    for value, code in zip(values, codes.tolist(), strict=True):
        wanted = (min(max(Fraction(value), low), high) - low) / unit
        # Only where two multiples are equally near, up to rounding of floats, may it be either.
        assert abs(wanted - code) <= Fraction(1, 2) + Fraction(1, 10**9)
        assert 0 <= code <= count
    assert get_codec(measure).codes([float(low), float(high)]).tolist() == [0, count]
    assert get_codec(measure).codes([float(low) - 1e9, float(high) + 1e300]).tolist() == [0, count]
    ordered = get_codec(measure).codes(np.sort(values))
    assert (np.diff(ordered) >= 0).all()


@given(measures())
def test_shares_give_the_value_of_every_code(given_measure):
    """The answer of "sum" for one record is its value, and that of "count" is one."""
    measure, low, high, unit, count = given_measure
    codes = np.arange(count + 1)
    shares = get_codec(measure).count_shares(codes)
    assert shares.min() == 0
    assert (shares.sum(axis=1) == count).all()
    for code, row in zip(codes.tolist(), shares.tolist(), strict=True):
        assert (low * row[0] + high * row[1]) / count == low + unit * code
    if measure.other is not None:
        empty = get_codec(measure).count_shares(np.array([get_codec(measure).null_code]))
        assert empty.tolist() == [[0, 0, count]]
        assert get_codec(measure).quantities["count"].tolist() == [1, 1, 0]
    assert get_codec(measure).quantities["sum"].tolist() == [float(low), float(high)] + [0.0] * (
        measure.other is not None
    )


@given(measures(), st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=20))
def test_columns_of_every_type_have_the_same_codes(given_measure, values):
    measure, *_ = given_measure
    floats = get_codec(measure).codes(np.array(values, dtype=np.float64))
    for column in (
        np.array(values, dtype=np.int64),
        np.array(values, dtype=np.int32),
        np.array(values, dtype=object),
    ):
        np.testing.assert_array_equal(get_codec(measure).codes(column), floats)


def test_halves_are_rounded_upwards():
    assert get_codec(fp.Measure(0, 10, unit=2)).codes([1, 3, 4.99, 5, 9, 11]).tolist() == [
        1,
        2,
        2,
        3,
        5,
        5,
    ]
    assert get_codec(fp.Measure(-3, 3)).codes([-2.5, -0.5, 0.5]).tolist() == [1, 3, 4]
    assert get_codec(fp.Measure(0, 1, unit=0.25)).codes([0.125, 0.37, 0.375]).tolist() == [1, 1, 2]


def test_no_value_is_outside_or_has_a_cell():
    column = np.array([1, None, float("nan"), 3], dtype=object)
    assert get_codec(fp.Measure(0, 4)).codes(column).tolist() == [1, -1, -1, 3]
    assert get_codec(fp.Measure(0, 4, other="none")).codes(column).tolist() == [1, 5, 5, 3]
    assert get_codec(fp.Measure(0, 4)).codes([]).tolist() == []


def test_largest_numbers_do_not_wrap():
    measure = fp.Measure(-(2**53) + 1, -(2**53) + 5)
    assert get_codec(measure).codes(np.array([2**63 - 1, -(2**63)])).tolist() == [4, 0]
    assert get_codec(measure).codes(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [4]
    assert get_codec(measure).codes(np.array([10**40, -(10**40)], dtype=object)).tolist() == [4, 0]
    assert get_codec(measure).codes(np.array([np.inf, -np.inf])).tolist() == [4, 0]
    widest = fp.Measure(0, 2**25)
    assert get_codec(widest).shares == 2**25
    assert get_codec(widest).codes(np.array([2**25, 2**26, 1])).tolist() == [2**25, 2**25, 1]


def test_days_are_their_number():
    measure = fp.Measure("2020-01-01", datetime.date(2020, 1, 31))
    assert get_codec(measure).shares == 30
    days = np.array(["2019-05-05", "2020-01-03", "2021-01-01", "NaT"], dtype="datetime64[D]")
    assert get_codec(measure).codes(days).tolist() == [0, 2, 30, -1]
    assert get_codec(measure).codes(
        np.array([datetime.date(2020, 1, 4), None], object)
    ).tolist() == [3, -1]
    assert get_codec(measure).quantities["sum"].tolist() == [18262.0, 18292.0]
    weeks = fp.Measure("2020-01-01", "2020-01-29", unit=7)
    assert get_codec(weeks).shares == 4
    assert get_codec(weeks).value_type is datetime.date


@pytest.mark.parametrize(
    "measure",
    [
        fp.Measure(0, 200_000, unit=100),
        fp.Measure(-1.5, 2.5, unit=0.5, other="none"),
        fp.Measure("2020-01-01", "2020-01-31"),
    ],
    ids=str,
)
def test_specs_are_read_back(measure):
    assert domains.make_attribute(get_codec(measure).spec()) == measure
    assert [get_codec(measure).find_cell(label) for label in measure.labels] == list(
        range(measure.size)
    )
    assert get_codec(measure).find_end(measure.labels[0]) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((1, 1), "must be below its upper bound"),
        ((2, 1), "must be below its upper bound"),
        (("2020-01-02", "2020-01-01"), "must be below its upper bound"),
        ((0, 10, 3), r"multiple of the unit 3, at most 33,554,432"),
        ((0, 1, 0.3), "multiple of the unit 0.3, at most"),
        ((0, 2**25 + 1), "at most 33,554,432"),
        ((0, float("inf")), "must be a number between"),
        ((0, float("nan")), "must be a number between"),
        ((0, 2**53), r"a number between -2\*\*53 and 2\*\*53"),
        ((True, 2), "must be a number between"),
        ((0, "2020-01-01"), "two numbers, or two dates"),
        (("a", "b"), "two numbers, or two dates"),
        ((0, 10, 0), "unit must be a positive number .* not 0"),
        ((0, 10, -1), "positive number"),
        ((0, 10, float("nan")), "positive number"),
        ((0, 10, True), "positive number"),
        ((0, 10, 1, "10"), "= '10' is also a listed value"),
        ((0, 10, 1, 5), "must be a string"),
    ],
)
def test_refused(arguments, says):
    with pytest.raises(fp.DomainError, match=says):
        fp.Measure(*arguments)


@pytest.mark.parametrize(
    "column", [np.array(["1", "2"]), np.array(["1"], object), np.array([True], object)]
)
def test_columns_of_other_types_are_refused(column):
    with pytest.raises(DataError):
        get_codec(fp.Measure(0, 10)).codes(column)
