"""Convolutions of long arrays by fast Fourier transforms, with proven errors.

A transform of N = 2^k numbers by an algorithm of powers of two has an error of at most
k eta / (1 - k eta) times the norm of its result, with eta below 7 u (Higham, Accuracy and Stability
of Numerical Algorithms, theorem 24.2). A convolution has three of them and a product in between, so
no entry is off by more than 22 k u |a| |b|. Three times as much is allowed for here, since SciPy
has transforms of real numbers and of higher radices, whose errors are smaller, if anything.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import fft

from fitplug.numeric.arrays import AnyArray, FloatArray, IntArray
from fitplug.numeric.exact import find_largest_entry
from fitplug.numeric.rounding import UNIT_ROUNDOFF, bound_norm

_FACTOR = 64
"""A convolution by transforms of 2^k numbers has an error of at most _FACTOR k u |a| |b|."""


def convolve(a: FloatArray, b: FloatArray) -> FloatArray:
    """Compute the first n entries of the convolution of two arrays.

    Args:
        a: Shape (n,).
        b: Shape (..., n).

    Returns:
        sum_i a_(j - i) b_i for each j, shape (..., n); each entry is off by at most
        `bound_convolution_error(n)` times the norms of both.
    """
    n = a.shape[-1]
    length = find_transform_length(n)
    spectrum = fft.rfft(a, length) * fft.rfft(b, length)
    return np.asarray(fft.irfft(spectrum, length)[..., :n])


def correlate(a: FloatArray, b: FloatArray) -> FloatArray:
    """Compute sum_j a_(j - i) b_j for each i, of arrays (n,) and (..., n), as `convolve` does."""
    return np.asarray(convolve(a, b[..., ::-1])[..., ::-1])


def bound_convolution_error(n: int) -> float:
    """Bound the error of an entry of a convolution of n numbers, as a part of |a| |b|."""
    k = find_transform_length(n).bit_length()
    return _FACTOR * k * UNIT_ROUNDOFF


def convolve_with_bound(a: FloatArray, b: FloatArray) -> tuple[FloatArray, float]:
    """Compute the first n entries of a convolution of arrays (n,), and a bound on their errors."""
    error = bound_convolution_error(len(a)) * float(bound_norm(a)) * float(bound_norm(b))
    return convolve(a, b), error


def find_transform_length(n: int) -> int:
    """Find the power of two that holds the convolution of two arrays of n numbers."""
    return 2 ** (2 * n - 1).bit_length() if n > 1 else 2


def convolve_exactly(a: IntArray, b: AnyArray) -> AnyArray:
    """Compute the first n entries of the convolution of integers, without rounding or overflow.

    Both are split into digits so short that the errors of their convolutions are below 1/4.

    Args:
        a: Shape (n,), int64.
        b: Shape (..., n), int64 or Python integers.

    Returns:
        sum_i a_(j - i) b_i for each j, shape (..., n): int64 if no entry can leave its range, else
        Python integers.
    """
    n = len(a)
    if not b.size:
        return b
    most = find_largest_entry(a), find_largest_entry(b)
    # The sum in floats is less than 1 % off.
    fits = 1.01 * float(np.abs(a.astype(np.float64)).sum()) * most[1] < 2**63
    kind = np.int64 if fits else object
    # The norm of n digits below 2^bits is at most 2^bits n^1/2.
    bits = math.floor(math.log2(0.25 / (bound_convolution_error(n) * n)) / 2)
    length = find_transform_length(n)
    mine = [fft.rfft(digit, length) for digit in _split_digits(a, most[0], bits)]
    theirs = [fft.rfft(digit, length) for digit in _split_digits(b, most[1], bits)]
    total = np.zeros(b.shape, dtype=kind)
    for i, left in enumerate(mine):
        for j, right in enumerate(theirs):
            part = np.rint(fft.irfft(left * right, length)[..., :n]).astype(np.int64)
            total += part.astype(kind) * 2 ** (bits * (i + j))
    return total


def _split_digits(values: AnyArray, largest: int, bits: int) -> list[FloatArray]:
    """Split integers into digits with their signs, of some bits each, the lowest first."""
    sign = np.where(values < 0, -1, 1)
    # Python integers stay what they are; the least int64 has no absolute value of its own.
    sizes: AnyArray = abs(values.astype(object)) if largest >= 2**63 else abs(values)
    digits = []
    for place in range(0, max(largest.bit_length(), 1), bits):
        digit = (sizes >> place) & (2**bits - 1)
        digits.append(digit.astype(np.float64) * sign)
    return digits
