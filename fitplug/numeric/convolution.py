"""Convolutions of long arrays of floats by fast Fourier transforms, with proven errors.

A transform of N = 2^k numbers by an algorithm of powers of two has an error of at most
k eta / (1 - k eta) times the norm of its result, with eta below 7 u (Higham, Accuracy and Stability
of Numerical Algorithms, theorem 24.2). A convolution has three of them and a product in between, so
no entry is off by more than 22 k u |a| |b|. Three times as much is allowed for here, since SciPy
has transforms of real numbers and of higher radices, whose errors are smaller, if anything.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from fitplug.numeric.arrays import FloatArray
from fitplug.numeric.rounding import UNIT_ROUNDOFF, upper_norm

_FACTOR = 64
"""A convolution by transforms of 2^k numbers has an error of at most _FACTOR k u |a| |b|."""


def convolve(a: FloatArray, b: FloatArray) -> FloatArray:
    """Compute the first n entries of the convolution of two arrays.

    Args:
        a: Shape (n,).
        b: Shape (..., n).

    Returns:
        sum_i a_(j - i) b_i for each j, shape (..., n); each entry is off by at most
        `upper_convolution_error(n)` times the norms of both.
    """
    n = a.shape[-1]
    length = find_transform_length(n)
    spectrum = fft.rfft(a, length) * fft.rfft(b, length)
    return np.asarray(fft.irfft(spectrum, length)[..., :n])


def correlate(a: FloatArray, b: FloatArray) -> FloatArray:
    """Compute sum_j a_(j - i) b_j for each i, of arrays (n,) and (..., n), as `convolve` does."""
    return np.asarray(convolve(a, b[..., ::-1])[..., ::-1])


def upper_convolution_error(n: int) -> float:
    """Bound the error of an entry of a convolution of n numbers, as a part of |a| |b|."""
    k = find_transform_length(n).bit_length()
    return _FACTOR * k * UNIT_ROUNDOFF


def convolve_with_bound(a: FloatArray, b: FloatArray) -> tuple[FloatArray, float]:
    """Compute the first n entries of a convolution of arrays (n,), and a bound on their errors."""
    error = upper_convolution_error(len(a)) * float(upper_norm(a)) * float(upper_norm(b))
    return convolve(a, b), error


def find_transform_length(n: int) -> int:
    """Find the power of two that holds the convolution of two arrays of n numbers."""
    return 2 ** (2 * n - 1).bit_length() if n > 1 else 2
