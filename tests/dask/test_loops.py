"""The loops that every row passes, compiled and in NumPy, against counting in plain Python."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug.domain import get_codec
from fitplug_dask import compiled_loops
from fitplug_dask.encoding.column_encoder import Lookup
from tests.helpers import numpy_loops

BOTH = [numpy_loops, compiled_loops]

every_implementation = pytest.mark.parametrize("built", BOTH, ids=["numpy", "compiled"])
KINDS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32]
COUNTS = [np.uint32, np.int64]


MISSING = """
import sys
sys.modules["fitplug_dask.compiled_loops"] = None
from fitplug_dask.request import check_libraries
check_libraries()
"""


def test_compiled_loops_that_are_missing_are_one_clear_error() -> None:
    ran = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "the compiled loops of fitplug_dask are missing" in ran.stderr
    assert "During handling" not in ran.stderr


@st.composite
def columns(draw: st.DrawFn, rows: int) -> Lookup:
    kind = draw(st.sampled_from(KINDS))
    ends = np.iinfo(kind)
    near = st.integers(max(-10, int(ends.min)), 30)
    value = st.one_of(near, st.integers(int(ends.min), int(ends.max)))
    values = np.array(draw(st.lists(value, min_size=rows, max_size=rows)), dtype=kind)
    values.setflags(write=False)  # as Arrow's memory is
    low = draw(st.one_of(near, st.integers(-(2**62) + 1, 2**62 - 1)))
    terms = np.array(draw(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20)))
    strict = draw(st.booleans())
    if draw(st.booleans()):
        return Lookup(values, low, terms, strict, doubtful=True)
    start = draw(st.integers(0, 9))
    bits = draw(st.lists(st.booleans(), min_size=start + rows, max_size=start + rows + 9))
    return Lookup(
        values,
        low,
        terms,
        strict,
        True,
        np.packbits(np.array(bits, dtype=np.bool_), bitorder="little"),
        start,
    )


@every_implementation
@given(data=st.data(), rows=st.integers(0, 20))
def test_cells_are_sums_of_the_terms_of_all_columns(
    built: ModuleType, data: Any, rows: int
) -> None:
    asked = data.draw(st.lists(columns(rows), max_size=4))
    shared = data.draw(st.integers(-9, 9))
    cells, expected, lost = np.full(rows, 17), [shared] * rows, False
    for values, low, terms, strict, _, valid, start in asked:
        count = len(terms) - (valid is not None)
        at = []
        for i, value in enumerate(values.tolist(), start):
            if valid is not None and not valid[i // 8] >> i % 8 & 1:
                at.append(count)
                continue
            lost |= strict and not 0 <= value - low < count
            at.append(min(max(value - low, 0), max(count - 1, 0)))
        expected = [cell + int(terms[k]) for cell, k in zip(expected, at, strict=True)]
    if lost:
        with pytest.raises(IndexError):
            built.locate(asked, shared, cells)
    else:
        built.locate(asked, shared, cells)
        assert cells.tolist() == expected


@every_implementation
@pytest.mark.parametrize("rows", [1, 2047, 2048, 2049, 70_000])
@pytest.mark.parametrize("kind", KINDS)
def test_long_columns_are_located_to_their_end(built: ModuleType, rows: int, kind: Any) -> None:
    values = np.random.default_rng(rows).integers(0, 100, (2, rows)).astype(kind)
    terms = np.arange(100)
    cells = np.empty(rows, dtype=np.int64)
    asked = [Lookup(v, 0, terms * s, True, True) for v, s in zip(values, (1, 100), strict=True)]
    built.locate(asked, 5, cells)
    np.testing.assert_array_equal(cells, values[0] + 100 * values[1].astype(np.int64) + 5)


@every_implementation
@pytest.mark.parametrize("kind", COUNTS)
@given(cells=st.lists(st.integers(-3, 9), max_size=60))
def test_cells_are_counted_and_negative_ones_left_out(
    built: ModuleType, kind: Any, cells: list[int]
) -> None:
    counter = np.zeros(10, dtype=kind)
    built.increment(counter, np.array(cells, dtype=np.int64))
    assert counter.tolist() == [cells.count(cell) for cell in range(10)]


@every_implementation
@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 70_000])
@pytest.mark.parametrize("rows", [0, 1, 23, 25, 70_001])
def test_rows_are_counted_in_few_cells_and_in_many(
    built: ModuleType, rows: int, size: int, kind: Any
) -> None:
    cells = np.random.default_rng(rows + size).integers(-size // 2, size, rows)
    counter = np.full(size, 7, dtype=kind)
    built.increment(counter, cells)
    expected = 7 + np.bincount(cells[cells >= 0], minlength=size)
    np.testing.assert_array_equal(counter, expected)


@every_implementation
@pytest.mark.parametrize("kind", COUNTS)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=60))
def test_pairs_of_digits_are_counted(
    built: ModuleType, kind: Any, pairs: list[tuple[int, int]]
) -> None:
    counter = np.zeros(20, dtype=kind)
    high, low = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
    built.increment_pairs(counter, high, 5, low)
    assert counter.tolist() == [pairs.count(divmod(cell, 5)) for cell in range(20)]


@every_implementation
@given(
    rows=st.lists(st.tuples(st.integers(-2, 9), st.integers(-1, 8), st.integers(0, 99))),
    size=st.sampled_from([2, 3]),
    weighted=st.booleans(),
)
def test_records_are_divided_between_the_cells_of_a_measure(
    built: ModuleType, rows: list[tuple[int, int, int]], size: int, weighted: bool
) -> None:
    shares = 10 - size  # so that the codes are up to 8 with a third cell, and 8 without
    counter, expected, counted = np.zeros(10 * size, dtype=np.int64), [0] * (10 * size), 0
    for cell, code, weight in rows:
        if cell < 0 or code < 0:
            continue
        counted += 1
        own = [shares - code, code, 0] if code <= shares else [0, 0, shares]
        for i in range(size):
            expected[size * cell + i] += own[i] * (weight if weighted else 1)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
    weights = columns[2] if weighted else None
    assert built.add_shares(counter, columns[0], columns[1], shares, size, weights) == counted
    assert counter.tolist() == expected


@every_implementation
@settings(deadline=None)
@given(
    numbers=st.lists(
        st.one_of(st.integers(-20, 300), st.floats(-20, 300), st.floats()), max_size=40
    ),
    kind=st.sampled_from([*KINDS, np.float32, np.float64]),
    measure=st.sampled_from(
        [
            fp.Measure(0, 255),
            fp.Measure(-7, 201, unit=2),
            fp.Measure(0, 100, unit=10, other="none"),
            fp.Measure(-0.5, 9.5, unit=0.1),
            fp.Measure(0, 2**52, unit=2**40),
        ]
    ),
    start=st.integers(0, 9),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_numbers_are_encoded_as_measures_say(
    built: ModuleType,
    numbers: list[float],
    kind: Any,
    measure: fp.Measure,
    start: int,
    masked: bool,
    seed: int,
) -> None:
    if np.dtype(kind).kind != "f":
        ends = np.iinfo(kind)
        finite = [n for n in numbers if np.isfinite(n)]
        numbers = [min(max(int(n), int(ends.min)), int(ends.max)) for n in finite]
    with np.errstate(over="ignore"):
        values = np.array(numbers, dtype=kind)
    there = np.random.default_rng(seed).random(len(values)) < 0.7
    bits = np.packbits(np.append(np.ones(start, bool), there), bitorder="little")
    codes = np.full(len(values), -9)
    first, last, unit = map(float, get_codec(measure).scale)
    null = get_codec(measure).null_code
    valid = bits if masked else None
    built.encode_numbers(
        values, valid, start, first, last, unit, get_codec(measure).shares, null, codes
    )
    expected = get_codec(measure).codes_of_numbers(values)
    if masked:
        expected = np.where(there, expected, null)
    np.testing.assert_array_equal(codes, expected)


@every_implementation
@pytest.mark.parametrize(("cell", "code", "size"), [(5, 0, 2), (0, 8, 2), (0, 9, 3), (2**62, 0, 2)])
def test_shares_beyond_the_table_are_noticed(
    built: ModuleType, cell: int, code: int, size: int
) -> None:
    counter = np.zeros(5 * size, dtype=np.int64)
    with pytest.raises(IndexError):
        built.add_shares(counter, np.array([cell]), np.array([code]), 7, size, None)
    with pytest.raises(ValueError, match="each row"):
        built.add_shares(counter, np.array([0]), np.array([0, 1]), 7, size, None)


@every_implementation
@given(rows=st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 2**40)), max_size=60))
def test_weights_are_added_to_their_cells(built: ModuleType, rows: list[tuple[int, int]]) -> None:
    counter = np.full(10, 2**58)
    cells, weights = np.array(rows, dtype=np.int64).reshape(-1, 2).T.copy()
    weights.setflags(write=False)
    built.add_weights(counter, cells, weights)
    expected = [2**58 + sum(w for at, w in rows if at == cell) for cell in range(10)]
    assert counter.tolist() == expected


@every_implementation
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2**40)), max_size=60
    )
)
def test_weights_are_added_to_cells_of_two_digits(
    built: ModuleType, rows: list[tuple[int, int, int]]
) -> None:
    counter = np.zeros(20, dtype=np.int64)
    high, low, weights = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
    built.add_weights_of_pairs(counter, high, 5, low, weights)
    expected = [sum(w for a, b, w in rows if (a, b) == divmod(cell, 5)) for cell in range(20)]
    assert counter.tolist() == expected


@every_implementation
def test_weights_without_a_row_or_a_cell_are_refused(built: ModuleType) -> None:
    counter, one, two = np.zeros(12, dtype=np.int64), np.ones(1, np.int64), np.ones(2, np.int64)
    with pytest.raises(ValueError, match="a weight"):
        built.add_weights(counter, two, one)
    with pytest.raises(ValueError, match="a weight"):
        built.add_weights_of_pairs(counter, two, 5, two, one)
    assert not counter.any()
    for cell in (10, 2**31, 2**62, 2**63 - 1):
        with pytest.raises(IndexError):
            built.add_weights(counter[1:11], np.array([3, cell]), two)
        with pytest.raises(IndexError):
            built.add_weights_of_pairs(counter[1:11], np.array([0, 1]), 10, np.array([3, 0]), two)
    for digits in ((-1, 3), (1, -3), (-1, -1), (0, -1)):
        high, low = (np.array([digit]) for digit in digits)
        with pytest.raises(IndexError):
            built.add_weights_of_pairs(counter, high, 5, low, one)
    assert set(np.flatnonzero(counter).tolist()) <= {4}


@every_implementation
@pytest.mark.parametrize("cell", [10, 2**31, 2**62, 2**63 - 1])
def test_no_cell_beyond_the_counter_is_touched(built: ModuleType, cell: int) -> None:
    for size in (10, 3000):
        counter = np.zeros(size + 2, dtype=np.uint32)
        with pytest.raises(IndexError):
            built.increment(counter[1:-1], np.array([3, max(cell, size)]))
        assert set(np.flatnonzero(counter).tolist()) <= {4}
    counter = np.zeros(12, dtype=np.uint32)
    with pytest.raises(IndexError):
        built.increment_pairs(counter[1:11], np.array([0, 1]), 10, np.array([3, 0]))
    assert set(np.flatnonzero(counter).tolist()) <= {4}


@every_implementation
@pytest.mark.parametrize("digits", [(-1, 3), (1, -3), (-1, -1), (0, -1)])
def test_a_negative_digit_is_no_digit(built: ModuleType, digits: tuple[int, int]) -> None:
    counter = np.zeros(20, dtype=np.int64)
    high, low = (np.array([digit]) for digit in digits)
    with pytest.raises(IndexError):
        built.increment_pairs(counter, high, 5, low)
    assert not counter.any()


@every_implementation
def test_arrays_that_do_not_fit_are_refused(built: ModuleType) -> None:
    def numbers(n: int) -> Any:
        return np.zeros(n, dtype=np.int64)

    def located(values: Any, terms: int, cells: int) -> None:
        built.locate([Lookup(values, 0, numbers(terms), False, False)], 0, numbers(cells))

    for values, terms, cells in [(3, 1, 2), (2, 1, 3), (1, 1, 2), (2, 0, 2)]:
        with pytest.raises(ValueError, match="there must be a term"):
            located(numbers(values), terms, cells)
    for bits, start in [(1, 7), (1, -1), (0, 0)]:
        lookup = Lookup(numbers(2), 0, numbers(2), False, False, np.zeros(bits, np.uint8), start)
        with pytest.raises(ValueError, match="must have a bit"):
            built.locate([lookup], 0, numbers(2))
    located(numbers(2), 1, 0)  # without rows nothing is looked at
    for high, low in ((2, 1), (1, 2)):
        with pytest.raises(ValueError, match="both digits"):
            built.increment_pairs(numbers(4), numbers(high), 2, numbers(low))
        with pytest.raises(ValueError, match="both digits"):
            built.add_weights_of_pairs(numbers(4), numbers(high), 2, numbers(low), numbers(high))
    valid = np.full(1, 255, dtype=np.uint8)
    for start in (-1, 1):
        with pytest.raises(ValueError, match="each value must have a code"):
            built.encode_numbers(numbers(8), valid, start, 0.0, 1.0, 1.0, 1, -1, numbers(8))
    for wrong in (np.float64, np.uint64, np.bool_, ">i4"):
        with pytest.raises(TypeError, match="must be integers"):
            located(np.zeros(2, dtype=wrong), 1, 2)
    if built is not numpy_loops:
        with pytest.raises(ValueError, match="contiguous"):
            located(np.zeros(4, dtype=np.int32)[::2], 1, 2)
