"""SipHash of many messages, and of persons: the authors' vectors and a second implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from fitplug_dask import compiled_loops as loops
from fitplug_dask.persons.packing import PersonHasher, halve_key, siphash128
from tests.helpers import numpy_loops
from tests.helpers.siphash import scalar_siphash128

# The first of the authors' own vectors, and three longer ones: key 0..15, message 0..length-1.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    63: "5150d1772f50834a503e069a973fbd7c",
}


def hash_each_way(key: bytes, rows: Any) -> list[Any]:
    """Hash messages (n, length) by the compiled loops and by NumPy, of one length and of any."""
    first, second = halve_key(key)
    hashed = [siphash128(key, rows)]
    n, length = rows.shape
    for built in (loops, numpy_loops):
        for _ in range(2):
            hashed.append(np.empty((n, 2), dtype=np.uint64))
        built.hash_messages(first, second, rows, hashed[-2])
        offsets = np.arange(n + 1, dtype=np.int64) * length
        built.hash_stretches(first, second, rows.reshape(-1), offsets, hashed[-1])
    return hashed


@pytest.mark.parametrize("length", VECTORS)
def test_siphash_of_the_authors_vectors(length: int) -> None:
    message, key = bytes(range(length)), bytes(range(16))
    both = np.tile(np.frombuffer(message, dtype=np.uint8), (2, 1))
    for row in np.concatenate(hash_each_way(key, both)):
        assert row.astype("<u8").tobytes().hex() == VECTORS[length]
    first, second = scalar_siphash128(key, message)
    assert (first.to_bytes(8, "little") + second.to_bytes(8, "little")).hex() == VECTORS[length]


@given(st.binary(min_size=16, max_size=16), st.lists(st.binary(min_size=9, max_size=9), min_size=1))
def test_siphash_of_many_messages(key: bytes, messages: list[bytes]) -> None:
    rows = np.frombuffer(b"".join(messages), dtype=np.uint8).reshape(-1, 9)
    expected = [scalar_siphash128(key, message) for message in messages]
    for hashed in hash_each_way(key, rows):
        assert [tuple(map(int, row)) for row in hashed] == expected


@given(st.lists(st.one_of(st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_integers_are_hashed_by_nine_bytes(values: list[int]) -> None:
    key = bytes(range(16))
    expected = [scalar_siphash128(key, v.to_bytes(9, "little", signed=True)) for v in values]
    for built in (loops, numpy_loops):
        tags = np.empty((len(values), 2), dtype=np.uint64)
        built.hash_integers(*halve_key(key), np.array(values, dtype=np.int64), tags)
        assert [tuple(map(int, row)) for row in tags] == expected


@pytest.mark.parametrize("offsets", [[0, 3, 2], [-1, 2, 3], [0, 2, 5], [9, 9, 9]])
def test_stretches_beyond_the_content_are_refused(offsets: list[int]) -> None:
    for built in (loops, numpy_loops):
        with pytest.raises(IndexError, match="beyond the content"):
            built.hash_stretches(
                1, 2, np.zeros(4, np.uint8), np.array(offsets), np.zeros((2, 2), np.uint64)
            )


def test_arrays_that_are_slices_and_dictionaries_with_nulls() -> None:
    hasher = PersonHasher(bytes(16), 1)
    texts = ["zero", "a", None, "bc", "", "a"]
    plain = pa.array(texts)
    tags, known = hasher.hash_persons([plain])
    assert known.tolist() == [bool(text) for text in texts]  # nobody is empty text
    assert (tags[1] == tags[5]).all()
    assert len({tuple(t) for t in tags[known].tolist()}) == 3
    sliced, _ = hasher.hash_persons([plain.slice(1, 3)])
    np.testing.assert_array_equal(sliced, tags[1:4])
    entries = pa.array(["a", None, "zero"])
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int8()), entries)
    from_entries, held = hasher.hash_persons([coded])
    assert held.tolist() == [True, False, False, True]
    np.testing.assert_array_equal(from_entries[[0, 3]], tags[[1, 0]])
    other = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["bc"]))
    np.testing.assert_array_equal(hasher.hash_persons([other])[0], tags[3:4])
    none = pa.DictionaryArray.from_arrays(pa.nulls(2, pa.int8()), pa.array([], pa.string()))
    assert hasher.hash_persons([none])[1].tolist() == [False, False]
    uuids = pa.array([b"0123456789abcdef", None], pa.binary(16))
    assert hasher.hash_persons([uuids])[1].tolist() == [True, False]


def test_integers_of_any_width_are_told_apart_by_value() -> None:
    hasher = PersonHasher(bytes(16), 1)
    wide, _ = hasher.hash_persons([pa.array([-1, 7, -(2**63), None], pa.int64())])
    narrow, _ = hasher.hash_persons([pa.array([-1, 7], pa.int8())])
    unsigned, known = hasher.hash_persons([pa.array([2**64 - 1, 7, 2**63, None], pa.uint64())])
    np.testing.assert_array_equal(wide[:2], narrow)
    np.testing.assert_array_equal(wide[1], unsigned[1])
    assert known.tolist() == [True, True, True, False]
    assert len({tuple(t) for t in [*wide[:3].tolist(), *unsigned[:3].tolist()]}) == 5
