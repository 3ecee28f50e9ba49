"""Convolutions: exact for integers of any size, and within the proven error for floats."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fitplug.numeric import convolve, convolve_exactly, convolve_with_bound, correlate


def multiply_slowly(a: list[int], b: list[int]) -> list[int]:
    return [sum(a[j - i] * b[i] for i in range(j + 1)) for j in range(len(a))]


@pytest.mark.parametrize("n", [1, 2, 3, 64, 257])
@pytest.mark.parametrize("bits", [3, 20, 61, 100])
def test_integers_are_convolved_exactly(n: int, bits: int) -> None:
    rng = np.random.default_rng(n)
    a = rng.integers(-(2**17), 2**17, n)
    b = [int(x) << max(bits - 20, 0) for x in rng.integers(-(2**20), 2**20, n)]
    given = np.array(b, dtype=np.int64 if bits < 62 else object)
    assert convolve_exactly(a, given).tolist() == multiply_slowly(a.tolist(), b)


def test_the_least_integer_has_no_absolute_value_of_its_own() -> None:
    a, b = np.array([1, -1, 3]), np.array([-(2**63), 2**63 - 1, 5])
    assert convolve_exactly(a, b).tolist() == multiply_slowly(a.tolist(), b.tolist())


def test_integers_are_convolved_exactly_where_transforms_are_long() -> None:
    # All digits are as large as they can be, and the sum at the end has a closed form.
    n = 2**17
    a, b = np.full(n, 2**16 - 1), np.full((2, n), 2**24 - 1)
    expected = (2**16 - 1) * (2**24 - 1) * np.arange(1, n + 1, dtype=object)
    assert (convolve_exactly(a, b) == expected).all()


def test_floats_are_within_the_bound() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=200), rng.normal(size=200) * 10.0 ** rng.integers(-6, 6, 200)
    found, bound = convolve_with_bound(a, b)
    exact = [
        sum(Fraction(x) * Fraction(y) for x, y in zip(a[: j + 1][::-1], b[: j + 1], strict=True))
        for j in range(200)
    ]
    errors = [abs(float(x - Fraction(y))) for x, y in zip(exact, found.tolist(), strict=True)]
    assert 0 < max(errors) <= bound < 1e-6


def test_a_correlation_is_the_adjoint() -> None:
    rng = np.random.default_rng(4)
    a, b, c = rng.normal(size=(3, 50))
    assert convolve(a, b) @ c == pytest.approx(b @ correlate(a, c))
