"""Numbers at the ends of every type lie in the cells that Python's exact numbers say."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_codec

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
ATTRIBUTES = {
    "low": fp.Integers(-(2**62) + 1, -(2**62) + 3),
    "small": fp.Integers(-1, 2),
    "high": fp.Integers(2**62 - 3, 2**62 - 1),
    "codes": fp.Categories([-1, 0, 1, 2**31, 2**62 - 1, -(2**62) + 1], other="rest"),
    "bins": fp.Bins([-(2**53) + 1, -1, 0, 0.1, 1, 2**53 - 1]),
    "measure": fp.Measure(-1, 2, unit=0.5, other="none"),
}


def find_shares(attribute: Any, value: Any) -> np.ndarray[Any, Any]:
    """The shares of a record in each cell, in exact numbers."""
    shares = np.zeros(attribute.size, dtype=np.int64)
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    if isinstance(attribute, fp.Measure):
        if missing:
            shares[2] = get_codec(attribute).shares
            return shares
        clamped = Fraction(min(max(value, -1), 2)) if abs(value) != math.inf else None
        near = Fraction(2 if value > 0 else -1) if clamped is None else clamped
        above = math.floor((near + 1) / Fraction(1, 2) + Fraction(1, 2))
        shares[:2] = [get_codec(attribute).shares - above, above]
        return shares
    if isinstance(attribute, fp.Bins):
        edges = attribute.edges
        found = [] if missing else [i for i in range(5) if edges[i] <= value < edges[i + 1]]
    elif isinstance(attribute, fp.Integers):
        inside = not missing and attribute.low <= value <= attribute.high and value == int(value)
        found = [int(value) - attribute.low] if inside else []
    else:
        listed = [] if missing else [i for i, v in enumerate(attribute.values) if v == value]
        found = listed or [attribute.size - 1]
    shares[found] = 1
    return shares


def draw(type_: str) -> list[Any]:
    """The ends of a type, and what lies beside the ends and the edges of the attributes."""
    if type_ in FLOATS:
        found = np.array([math.inf, -math.inf, math.nan, 0.1, 0.5, -0.0, 2.0**53, -1.0, 1.25, 2])
        info = np.finfo(type_)
        ends = np.array([info.max, info.min, info.tiny, -info.tiny])
        with np.errstate(over="ignore"):
            return np.concatenate([found, ends]).astype(type_).tolist()
    info = np.iinfo(type_)
    near = [0, 1, 2, 3, -1, -2, 2**31, 2**53, 2**53 - 1, 2**62 - 1, 2**62, -(2**62) + 1, 2**63]
    return [v for v in {*near, info.min, info.max, info.min + 1} if info.min <= v <= info.max]


def frames(values: list[Any], type_: str) -> list[Any]:
    """What holds these values in memory, with and without null."""
    array = np.array(values, dtype=type_)
    nulls = pa.array([*values, None], pa.from_numpy_dtype(type_), from_pandas=False)
    held: list[Any] = [array, pa.array(array), nulls, pa.chunked_array([nulls]), pd.Series(array)]
    held.append(pd.Series(nulls, dtype=pd.ArrowDtype(nulls.type)))
    if type_ != "float16":
        held += [pl.Series(array), pl.from_arrow(nulls)]
    if type_ in INTEGERS:
        held += [values, [*values, None], np.array([*values, None], dtype=object)[:-1]]
        held.append(pd.Series([*values, None], dtype=type_.replace("i", "I").replace("u", "U")))
    return held


@pytest.mark.parametrize("type_", INTEGERS + FLOATS)
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_memory_and_files(type_: str, name: str) -> None:
    attribute = ATTRIBUTES[name]
    values = draw(type_)
    expected = np.sum([find_shares(attribute, v) for v in values], axis=0)
    of_null = find_shares(attribute, None)
    wanted = (fp.Domain({"x": attribute}), [("x",)])
    held = frames(values, type_)
    for one in held:
        counted = fp.Tables.from_records(wanted[0], {"x": one}, wanted[1])["x",]
        with_null = len(one) > len(values)
        np.testing.assert_array_equal(counted, expected + of_null * with_null, str(type(one)))
    for one in (pa.array(np.array(values, type_)), held[2]):
        for column in (one, one.dictionary_encode(), one[1:]):
            first = find_shares(attribute, values[0]) if len(column) < len(one) else 0
            counted = fpd.count(pa.table({"x": column}), wanted)["x",]
            with_null = len(one) > len(values)
            np.testing.assert_array_equal(counted, expected + of_null * with_null - first)


@pytest.mark.parametrize("attribute", [fp.Integers(0, 2), fp.Categories(["1", "x"], other="rest")])
@pytest.mark.parametrize("values", [["1", 2], [True, 2], ["x", 1.5], [1, True], ["1", False]])
def test_lists_of_several_types_are_refused(attribute: Any, values: list[Any]) -> None:
    """NumPy would make the text "2" of a number beside text, and 1 of True beside numbers."""
    with pytest.raises(fp.DataError, match="expects"):
        fp.Tables.from_records(fp.Domain({"x": attribute}), {"x": values}, [("x",)])


def test_decimals_are_no_integers_in_silence() -> None:
    domain = fp.Domain({"x": fp.Integers(0, 9)})
    with pytest.raises(fp.DataError, match="has Decimal"):
        fp.Tables.from_records(domain, {"x": [Decimal(5)]}, [("x",)])
