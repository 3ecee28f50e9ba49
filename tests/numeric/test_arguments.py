"""What users give as arrays and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fitplug.numeric import is_positive_integer, read_array


def test_arrays_are_kept_and_lists_become_arrays() -> None:
    array = np.arange(3)
    assert read_array(array) is array
    np.testing.assert_array_equal(read_array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]))
    assert read_array(2.5).shape == ()


class Stubborn:
    """Refuses to become an array."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError


@pytest.mark.parametrize("given", [[[1], [2, 3]], Stubborn(), None, {"a": 1}])
def test_what_is_no_array_of_numbers_has_objects(given: Any) -> None:
    assert read_array(given).dtype == object


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, np.int64(1)])
def test_positive_integers_are_those_of_python(value: Any) -> None:
    assert not is_positive_integer(value)
    assert is_positive_integer(1)
    assert is_positive_integer(10**30)
