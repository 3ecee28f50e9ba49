"""Convolutions of long arrays, of floats with proven errors and of integers exactly.

Floats are convolved by fast Fourier transforms. A transform of N = 2^k numbers by an algorithm of
powers of two has an error of at most k eta / (1 - k eta) times the norm of its result, with eta
below 7 u (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2). A convolution has
three of them and a product in between, so no entry is off by more than 22 k u |a| |b|. Three times
as much is allowed for here, since SciPy has transforms of real numbers and of higher radices, whose
errors are smaller, if anything.

Integers are convolved by number-theoretic transforms: no floats, so nothing rounds. Residues modulo
a prime p = c 2^k + 1 have roots of unity of the orders 2^0 to 2^k, and so a Fourier transform with
the convolution theorem. A convolution whose entries are below a bound in size is recovered from its
residues modulo primes whose product is more than twice the bound (Chinese remainder theorem). The
privacy of chains rests on this: see docs/theory/chains.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import fft

from fitplug.numeric.arrays import AnyArray, FloatArray, IntArray
from fitplug.numeric.rounding import UNIT_ROUNDOFF, find_largest_entry, upper_norm

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
    """Bound the error of an entry of a convolution of n numbers, relative to |a| |b|."""
    k = find_transform_length(n).bit_length()
    return _FACTOR * k * UNIT_ROUNDOFF


def convolve_with_bound(a: FloatArray, b: FloatArray) -> tuple[FloatArray, float]:
    """Compute the first n entries of a convolution of arrays (n,), and a bound on their errors."""
    error = upper_convolution_error(len(a)) * float(upper_norm(a)) * float(upper_norm(b))
    return convolve(a, b), error


def find_transform_length(n: int) -> int:
    """Find the power of two that holds the convolution of two arrays of n numbers."""
    return 2 ** (2 * n - 1).bit_length() if n > 1 else 2


Residues: TypeAlias = npt.NDArray[np.uint64]

_PRIMES = ((2113929217, 5), (2013265921, 31), (1811939329, 13), (998244353, 3), (754974721, 11))
"""Primes below 2^31 that are 1 modulo 2^23, and a primitive root of each."""

_LARGEST = math.prod(p for p, _ in _PRIMES) // 2
"""Sizes of entries below this are recovered from the residues modulo all primes."""

_LONGEST = 2**23
"""The longest transform."""

_DIGIT = 2**60
"""Factors that are too large for the product of all primes are split into digits below this."""


def convolve_exactly(a: IntArray, b: AnyArray) -> AnyArray:
    """Compute the first n entries of the convolution of integers, without rounding or overflow.

    Args:
        a: Shape (n,), int64.
        b: Shape (..., n), int64 or Python integers.

    Returns:
        sum_i a_(j - i) b_i for each j, shape (..., n): int64 if no entry can leave its range, else
        Python integers.

    Raises:
        ValueError: If n exceeds 2^22, or the sum of the sizes of a's entries 2^92.
    """
    if not b.size:
        return b
    total = sum(abs(x) for x in a.tolist())
    if total * _DIGIT >= _LARGEST:
        raise ValueError("the factors of a convolution are too large")
    bound = total * find_largest_entry(b)
    if bound >= _LARGEST:
        high, low = np.asarray(b // _DIGIT), np.asarray(b % _DIGIT)
        parts = [convolve_exactly(a, part).astype(object) for part in (high, low)]
        return np.asarray(parts[0] * _DIGIT + parts[1])
    count, product = 1, _PRIMES[0][0]
    while product <= 2 * bound:
        product *= _PRIMES[count][0]
        count += 1
    n = len(a)
    length = 1 << (2 * n - 2).bit_length() if n > 1 else 1
    if length > _LONGEST:
        raise ValueError(f"a convolution of {n} numbers needs a longer transform")
    residues = []
    for p, root in _PRIMES[:count]:
        mine, theirs = (_pad((x % p).astype(np.uint64), length) for x in (a, b))
        _transform(mine, p, root)
        _transform(theirs, p, root)
        theirs = _reduce(theirs * mine, p)
        _transform_back(theirs, p, root)
        # The bound is added, so that no entry is negative.
        shifted = theirs[..., :n] + np.uint64(bound % p)
        residues.append(np.minimum(shifted, shifted - np.uint64(p)))
    return _recover(residues, bound)


def _recover(residues: list[Residues], bound: int) -> AnyArray:
    """Recover numbers from their residues, by Garner's mixed digits, less the bound."""
    kind = np.int64 if bound < 2**62 else object
    numbers = residues[0].astype(kind)
    digits, product = [residues[0]], _PRIMES[0][0]
    for i in range(1, len(residues)):
        p = _PRIMES[i][0]
        # The value of the digits so far, modulo p.
        value, factor = np.zeros_like(residues[0]), 1
        for digit, (earlier, _) in zip(digits, _PRIMES, strict=False):
            value = _reduce(value + _reduce(digit, p) * np.uint64(factor), p)
            factor = factor * earlier % p
        missing = _reduce(residues[i] + np.uint64(p) - value, p)
        digit = _reduce(missing * np.uint64(pow(product, -1, p)), p)
        # Digits whose place is beyond 2^64 wrap, and the sum, which fits, is undone by that.
        place = product if kind is object else (product + 2**63) % 2**64 - 2**63
        numbers = numbers + digit.astype(kind) * place
        digits.append(digit)
        product *= p
    return np.asarray(numbers - bound)


def _pad(x: Residues, length: int) -> Residues:
    """Append zeros along the last axis."""
    padded = np.zeros((*x.shape[:-1], length), dtype=np.uint64)
    padded[..., : x.shape[-1]] = x
    return padded


def _reduce(x: Residues, p: int) -> Residues:
    """Reduce numbers below 2^64 modulo p."""
    quotient = x // np.uint64(p)
    return np.asarray(x - quotient * np.uint64(p))


def _transform(x: Residues, p: int, root: int) -> None:
    """Transform along the last axis in place; the result is in bit-reversed order."""
    length = x.shape[-1]
    half = length // 2
    while half:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        difference = a + (np.uint64(p) - b)
        total = a + b
        pairs[..., 0, :] = np.minimum(total, total - np.uint64(p))
        pairs[..., 1, :] = _reduce(difference * _find_powers(p, root, half), p)
        half //= 2


def _transform_back(x: Residues, p: int, root: int) -> None:
    """Undo `_transform` in place, from bit-reversed order."""
    length = x.shape[-1]
    half = 1
    while half < length:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        a = pairs[..., 0, :].copy()
        b = _reduce(pairs[..., 1, :] * _find_powers(p, pow(root, -1, p), half), p)
        total, difference = a + b, a + (np.uint64(p) - b)
        pairs[..., 0, :] = np.minimum(total, total - np.uint64(p))
        pairs[..., 1, :] = np.minimum(difference, difference - np.uint64(p))
        half *= 2
    x[...] = _reduce(x * np.uint64(pow(length, -1, p)), p)


@lru_cache(maxsize=256)
def _find_powers(p: int, root: int, half: int) -> Residues:
    """Find the powers of a root of unity of the order 2 half, shape (half,)."""
    w = pow(root, (p - 1) // (2 * half), p)
    powers = np.ones(1, dtype=np.uint64)
    while len(powers) < half:
        step = np.uint64(pow(w, len(powers), p))
        powers = np.concatenate([powers, _reduce(powers * step, p)])
    powers.setflags(write=False)
    return powers
