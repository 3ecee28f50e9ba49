"""Arrow arrays at every offset: their buffers, and what compaction makes of them, against lists."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_shape
from fitplug.errors import FitplugError
from fitplug_dask.encoding import array_memory
from fitplug_dask.encoding.array_memory import (
    compact_batch,
    view_numbers,
    view_stretches,
    view_validity,
)
from fitplug_dask.kernel.counters import JointCounters
from fitplug_dask.workers import CheckError
from tests.helpers.counting import DOMAIN, TABLES, naive_cell, random_values

OFFSETS = [0, 1, 3, 7, 8, 9, 63, 64, 65]
ROWS = 100

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal32(7, 2), pa.decimal64(15, 2), pa.decimal128(30, 2)]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(6)]
DICTIONARIES = [
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.string_view()),
    pa.dictionary(pa.int32(), pa.int64()),
]


def fill(kind: Any, nulls: bool) -> tuple[list[Any], Any]:
    """Values of a type, as a list and as an array."""
    if isinstance(kind, pa.DictionaryType):
        # The entries are a slice, too.
        values, entries = fill(kind.value_type, nulls=False)
        indices = [None if nulls and i % 5 == 2 else i * 7 % 50 for i in range(len(values))]
        array = pa.DictionaryArray.from_arrays(
            pa.array(indices, kind.index_type), entries.slice(4, 50)
        )
        return [None if i is None else values[4 + i] for i in indices], array
    steps = range(max(OFFSETS) + ROWS + 5)
    values = [i * 37 % 113 for i in steps]
    if kind in TEXTS:
        values = ["é" * (v % 4) + str(v) for v in values]
    elif kind in BYTES:
        values = [b"%06d" % v if kind == pa.binary(6) else b"\xff" * (v % 9) for v in values]
    elif kind in DECIMALS:
        values = [Decimal(v - 50).scaleb(-2) for v in values]
    elif kind == pa.bool_():
        values = [v % 3 == 0 for v in values]
    elif kind == pa.date32():
        values = [datetime.date(2020, 1, 1) + datetime.timedelta(days=v) for v in values]
    if nulls:
        values = [None if i % 5 == 2 else v for i, v in enumerate(values)]
    if kind in FLOATS:
        plain = np.array([0 if v is None else v for v in values], kind.to_pandas_dtype())
        return values, pa.array(plain, kind, mask=np.array([v is None for v in values]))
    return values, pa.array(values, kind)


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS, *BYTES, *TEXTS], ids=str)
def test_buffers_hold_the_values_of_slices(kind: Any) -> None:
    for nulls, offset in itertools.product((False, True), OFFSETS):
        check_buffers(kind, offset, *fill(kind, nulls))


def check_buffers(kind: Any, offset: int, values: list[Any], array: Any) -> None:
    wanted = values[offset : offset + ROWS]
    # Both ways of cutting that a count has: a slice, and a slice of what was compacted.
    for one in (compact(array.slice(offset, ROWS)), compact(array).slice(offset, ROWS)):
        bits, start = view_validity(one)
        there = np.ones(ROWS, dtype=bool)
        if bits is not None:
            there = np.unpackbits(bits, bitorder="little")[start : start + ROWS].astype(bool)
        assert there.tolist() == [v is not None for v in wanted]
        if kind in INTEGERS or kind in FLOATS:
            read = view_numbers(one).tolist()
        else:
            content, places = view_stretches(one)
            texts = [bytes(content[a:b]) for a, b in itertools.pairwise(places)]
            read = [t.decode() if kind in TEXTS else t for t in texts]
        assert [v if t else None for v, t in zip(read, there, strict=True)] == wanted


def compact(array: Any) -> Any:
    return compact_batch(pa.record_batch({"x": array})).column(0)


ALL = [*INTEGERS, *FLOATS, *DECIMALS, *TEXTS, *BYTES, *DICTIONARIES, pa.bool_(), pa.date32()]


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_compaction_moves_values_to_the_start(kind: Any) -> None:
    for nulls, offset in itertools.product((False, True), OFFSETS):
        check_compaction(kind, offset, *fill(kind, nulls))


def check_compaction(kind: Any, offset: int, values: list[Any], array: Any) -> None:
    one = compact(array.slice(offset, ROWS))
    wanted = values[offset : offset + ROWS]
    one.validate(full=True)
    assert one.offset == 0
    held = one
    if isinstance(kind, pa.DictionaryType):
        held = one.dictionary
        assert one.indices.offset == held.offset == 0
    assert held.type not in (pa.string_view(), pa.binary_view())
    assert one.to_pylist() == wanted
    assert compact(one) is not None


def test_what_is_compact_is_not_copied() -> None:
    kinds = [
        kind for kind in ALL if kind not in (*DICTIONARIES, pa.string_view(), pa.binary_view())
    ]
    arrays = [fill(kind, nulls=True)[1] for kind in kinds]
    arrays.append(pa.array(["a", "b"] * (len(arrays[0]) // 2)).dictionary_encode())
    arrays = [array.slice(0, 80) for array in arrays]
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
    assert compact_batch(batch) is batch
    mixed = pa.record_batch({"plain": arrays[0], "slice": arrays[0].slice(0, 80), "cut": arrays[1]})
    assert compact_batch(mixed) is mixed
    cut = pa.record_batch({"plain": arrays[0].slice(0, 70), "cut": arrays[1].slice(10, 70)})
    moved = compact_batch(cut)
    places = [[b and b.address for b in one.column(0).buffers()] for one in (cut, moved)]
    assert places[0] == places[1]


def test_dictionaries_in_dictionaries_and_uuids_are_resolved() -> None:
    inner = pa.array([None, "x", "y", "z", None]).dictionary_encode().slice(1)
    outer = pa.DictionaryArray.from_arrays(pa.array([None, 0, 3, 2, 1, 0], pa.int8()), inner)
    for offset in (0, 2):
        one = compact(outer.slice(offset))
        assert one.to_pylist() == [None, "x", None, "z", "y", "x"][offset:]
        assert one.dictionary.type == pa.string()
    raw = [bytes([i]) * 16 for i in range(5)]
    uuids = pa.array(raw, pa.uuid())
    for offset in (0, 2):
        one = compact(uuids.slice(offset))
        assert one.type == pa.binary(16)
        assert one.to_pylist() == raw[offset:]


def test_arrays_of_other_kinds_are_refused_and_nothing_is_quoted() -> None:
    secret = pa.array(["secret 735"] * 9)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([9], pa.int32()), secret.slice(0, 1))
    others = [secret.dictionary_encode(), secret.cast(pa.string_view()), runs, pa.array([[735]])]
    for read in (view_numbers, view_stretches):
        for array in [*others, pa.array([True])]:
            with pytest.raises(CheckError, match="in a way that fitplug cannot read") as caught:
                read(array)
            assert "735" not in str(caught.value)
    with pytest.raises(CheckError, match="in a way that fitplug cannot read"):
        view_numbers(secret)
    assert issubclass(CheckError, FitplugError)


def test_a_count_that_cannot_read_memory_names_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shorten(kind: Any) -> Any:
        return np.dtype(np.int64)  # wider than what is there

    monkeypatch.setattr(array_memory, "find_number_type", shorten)
    ages = pa.table({"age": pa.array([1, 2, 3] * 10, pa.int8())})
    with pytest.raises(FitplugError, match="in a way that fitplug cannot read") as caught:
        fpd.count(ages, (DOMAIN, [("age",)]))
    assert caught.value.__context__ is None
    assert "damaged" not in str(caught.value)


STORED: dict[str, list[Any]] = {
    "sex": [*TEXTS, pa.binary_view(), pa.dictionary(pa.int8(), pa.string_view())],
    "race": [pa.string_view(), pa.binary(), pa.dictionary(pa.uint8(), pa.large_string())],
    "age": [pa.int8(), pa.int32(), pa.float64(), pa.decimal128(12, 0), pa.decimal32(5, 1)],
    "code": [pa.uint8(), pa.uint64(), pa.dictionary(pa.int8(), pa.int16()), pa.decimal64(9, 0)],
    "far": [pa.int64(), pa.float64(), pa.decimal128(38, 4)],
    "citizen": [pa.bool_()],
    "income": [pa.float64()],
}


@pytest.mark.usefixtures("either_loops")
@pytest.mark.parametrize("offset", [1, 8, 65])
@pytest.mark.parametrize("choice", range(5))
def test_slices_of_tables_count_as_their_rows_one_by_one(choice: int, offset: int) -> None:
    values = random_values(np.random.default_rng(choice), 500)
    table = pa.table({n: store(values[n], k[choice % len(k)]) for n, k in STORED.items()})
    expected = {t: np.zeros(get_shape(DOMAIN, t), dtype=np.int64) for t in TABLES}
    used = [name for name in DOMAIN.names if any(name in t for t in TABLES)]
    for row in range(offset, 500):
        cells = {name: naive_cell(DOMAIN[name], values[name][row]) for name in used}
        if -1 not in cells.values():
            for t in TABLES:
                expected[t][tuple(cells[name] for name in t)] += 1
    assert expected[()] > 50
    for source in (table.slice(offset), pa.concat_tables([table[offset:90], table[90:]])):
        counted = fpd.count(source, (DOMAIN, TABLES))
        for t in TABLES:
            np.testing.assert_array_equal(counted[t], expected[t])


def store(values: list[Any], kind: Any) -> Any:
    """An array of the values; not every version of Arrow makes dictionaries in one step."""
    if isinstance(kind, pa.DictionaryType):
        coded = pa.array(values).dictionary_encode()
        indices, entries = coded.indices.cast(kind.index_type), coded.dictionary
        return pa.DictionaryArray.from_arrays(indices, entries.cast(kind.value_type))
    if pa.types.is_decimal(kind):
        values = [None if v is None else Decimal(v) for v in values]
    return pa.array(values, kind)


@pytest.mark.parametrize("kind", [*TEXTS, *BYTES[:3], *DICTIONARIES[:2]], ids=str)
def test_a_key_that_is_repeated_is_compared_in_every_type(tmp_path: Path, kind: Any) -> None:
    sexes = ["1", "2", None, "1", "2"] * 9
    table = pa.table({"sex": store(sexes, kind), "age": [i % 20 for i in range(45)]})
    folder = tmp_path / "sex=2"
    folder.mkdir()
    feather.write_feather(table, folder / "a.arrow", "uncompressed")
    counted = fpd.count(tmp_path, (DOMAIN, [("sex",)]))
    assert counted["sex",].tolist() == [0, sexes.count("2")]


@pytest.mark.usefixtures("either_loops")
@pytest.mark.parametrize("kind", [pa.int16(), pa.uint64(), pa.float16(), pa.float32()], ids=str)
def test_measures_of_slices_are_those_of_the_rows(kind: Any) -> None:
    measure = fp.Measure(0, 100, unit=1, other="none")
    values, array = fill(kind, nulls=True)
    for offset in OFFSETS:
        counters = JointCounters({"x": measure}, [("x",)], ROWS)
        counters.take_batch(pa.record_batch({"x": array.slice(offset, ROWS)}), ["x"], {})
        expected = [0, 0, 0]
        for value in values[offset : offset + ROWS]:
            near = None if value is None else min(value, 100)
            own = [0, 0, 100] if near is None else [100 - near, near, 0]
            expected = [a + b for a, b in zip(expected, own, strict=True)]
        assert counters.counters[0].tolist() == expected
