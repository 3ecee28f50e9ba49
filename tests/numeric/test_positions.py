"""Positions are converted without a copy, or refused."""

from __future__ import annotations

import numpy as np
import pytest

from fitplug.numeric import to_positions

ONLY_64_BITS = pytest.mark.skipif(np.intp(0).itemsize < 8, reason="an address has 32 bits")


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.intp])
def test_positions_are_the_same_numbers(kind):
    found = to_positions(np.array([[3, -1], [0, 2]], dtype=kind))
    assert found.dtype == np.intp
    assert found.tolist() == [[3, -1], [0, 2]]


@ONLY_64_BITS
def test_positions_are_not_copied_where_an_address_has_64_bits():
    numbers = np.arange(5, dtype=np.int64)
    assert np.shares_memory(to_positions(numbers), numbers)
    numbers.setflags(write=False)
    assert not to_positions(numbers).flags.writeable


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**32, 2**62])
def test_positions_that_an_array_cannot_have_are_refused(monkeypatch, number):
    monkeypatch.setattr(np, "intp", np.int32)  # as in a browser
    with pytest.raises(OverflowError, match="need a 64-bit machine"):
        to_positions(np.array([0, number], dtype=np.int64))


def test_positions_of_32_bits_reach_their_ends(monkeypatch):
    monkeypatch.setattr(np, "intp", np.int32)
    found = to_positions(np.array([-(2**31), 2**31 - 1], dtype=np.int64))
    assert found.dtype == np.int32
    assert found.tolist() == [-(2**31), 2**31 - 1]
    assert to_positions(np.zeros(0, dtype=np.int64)).dtype == np.int32
