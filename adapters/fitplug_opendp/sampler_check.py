"""The test of OpenDP's sampler that every release makes before it charges anything.

The sampler adds noise to known answers. The noise is compared with the exact discrete Gaussian
distribution: its mean and its mean square; the number of draws below thresholds, between them and
in both tails; the residues of draws for small moduli and their single bits; products of adjacent
draws, and of draws of different calls; and how often the most frequent value was drawn.
Each comparison gives a p-value that is proven, not asymptotic (see
`fitplug_opendp.discrete_gaussian`). The test fails if one of its m p-values is below 1e-9 / m, so
the probability that it fails for a correct sampler is at most 1e-9.

It detects a standard deviation that is off by 10%, a mean that is off by a tenth of the standard
deviation, noise that is always even or a multiple of another small number, a clip at 2.5 standard
deviations, and noise that is 0, constant or drawn twice. It cannot detect smaller differences, or a
sampler that fails only later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

import numpy as np

from fitplug.errors import SamplerError
from fitplug.numeric import FloatArray
from fitplug_opendp.discrete_gaussian import (
    DiscreteGaussian,
    upper_binomial_p_value,
    upper_mean_p_value,
    upper_multiplicity_p_value,
    upper_product_p_value,
    upper_variance_p_value,
)
from fitplug_opendp.gaussian import IntVector, make_sampler

PValue: TypeAlias = tuple[str, float]
"""A comparison in words, and a bound on the probability of its result for a correct sampler."""

FALSE_ALARM = 1e-9
"""The bound on the probability that the test fails for a correct sampler."""

_CALLS = 6
_CALL_SIZE = 2**10  # 6,144 draws in all, which take OpenDP less than a tenth of a second
_THRESHOLDS = np.arange(-10, 11) / 4
_TAILS = np.array([1.0, 1.5, 2.0, 2.5, 3.0])
_MODULI = (2, 3, 4, 5, 7, 8, 16)
_FIRST_BIT = 4  # the moduli include the bits below


def check_sampler(noise_std: float) -> None:
    """Test OpenDP's sampler at a plan's standard deviation of the noise.

    OpenDP's feature "contrib" must be switched on.

    Args:
        noise_std: The standard deviation s of the noise, at least 1.

    Raises:
        SamplerError: The sampler does not draw the distribution that privacy is proven for.
    """
    answers = _make_known_answers()
    sample = make_sampler(answers.size, noise_std, _CALL_SIZE)
    judge_noise(sample(answers, None) - answers, noise_std)


def check_sampler_once(noise_std: float) -> None:
    """Test OpenDP's sampler once per process for noise of about this standard deviation.

    OpenDP searches for a scale by making hundreds of measurements, so the test is made at the
    nearest power of two.
    """
    _check_power_of_two(max(0, round(math.log2(noise_std))))


@lru_cache(maxsize=64)
def _check_power_of_two(exponent: int) -> None:
    check_sampler(2.0**exponent)


def judge_noise(noise: IntVector, noise_std: float, false_alarm: float = FALSE_ALARM) -> None:
    """Compare draws of noise with the exact discrete Gaussian distribution.

    Args:
        noise: The draws, from several calls of equal size.
        noise_std: The standard deviation s that they should have, at least 1.
        false_alarm: The bound on the probability that correct noise is refused.

    Raises:
        SamplerError: The draws do not have that distribution.
    """
    p_values = list(_compare(noise, noise_std))
    what, least = min(p_values, key=lambda p_value: p_value[1])
    if least * len(p_values) <= false_alarm:
        raise SamplerError(
            f"OpenDP's sampler fails a test of its noise (standard deviation {noise_std:.6g}): "
            f"p-value at most {least:.1e} for {what}. Install another version of OpenDP."
        )


def _make_known_answers() -> IntVector:
    """Make the answers to which noise is added: zeros, and numbers of every size and sign."""
    steps = np.arange(_CALL_SIZE, dtype=np.int64) - _CALL_SIZE // 2
    calls = [np.zeros(_CALL_SIZE, dtype=np.int64)] * (_CALLS - 2)
    return np.concatenate([*calls, steps, steps * 2**52])


def _compare(noise: IntVector, std: float) -> Iterator[PValue]:
    """Yield all p-values. Their number depends only on `std`."""
    scaled = noise / std
    yield "the mean of its draws", upper_mean_p_value(float(scaled.mean()), noise.size)
    mean_square = float((scaled**2).mean())
    yield "the squares of its draws", upper_variance_p_value(mean_square, noise.size, std)
    yield from _compare_products(scaled)
    exact = DiscreteGaussian(std)
    yield from _compare_sizes(noise, exact)
    yield from _compare_residues(noise, exact)
    _, counts = np.unique(noise, return_counts=True)
    repeats = upper_multiplicity_p_value(int(counts.max()), noise.size, std)
    yield "the repeats of one number among its draws", repeats


def _compare_products(scaled: FloatArray) -> Iterator[PValue]:
    """Yield p-values that detect dependent draws."""
    half = scaled.size // 2
    pairs = {
        "neighbouring draws": (scaled[0::2], scaled[1::2]),
        "every second pair of neighbouring draws": (scaled[1:-1:2], scaled[2::2]),
        "the first and the last half of the draws": (scaled[:half], scaled[half:]),
    }
    calls = scaled.reshape(_CALLS, -1)
    for i, j in combinations(range(_CALLS), 2):
        pairs[f"the calls {i + 1} and {j + 1}"] = (calls[i], calls[j])
    for what, (first, second) in pairs.items():
        yield (
            f"the products of {what}",
            upper_product_p_value(float(np.mean(first * second)), first.size),
        )


def _compare_sizes(noise: IntVector, exact: DiscreteGaussian) -> Iterator[PValue]:
    """Yield p-values of the numbers of draws below thresholds, between them and in the tails."""
    draws, margin = noise.size, exact.margin
    thresholds = np.floor(_THRESHOLDS * exact.std).astype(np.int64)
    below = np.searchsorted(np.sort(noise), thresholds, side="right")
    chances = exact.compute_cumulative(thresholds)
    for q, count, chance in zip(_THRESHOLDS, below, chances, strict=True):
        p_value = upper_binomial_p_value(int(count), draws, float(chance), margin)
        yield f"the draws below {q:g} standard deviations", p_value
    between = zip(_THRESHOLDS[1:], np.diff(below), np.diff(chances), strict=True)
    for q, count, chance in between:
        p_value = upper_binomial_p_value(int(count), draws, float(chance), 2 * margin)
        yield f"the draws between {q - 0.25:g} and {q:g} standard deviations", p_value
    limits = np.floor(_TAILS * exact.std).astype(np.int64)
    beyond = 2 * exact.compute_cumulative(-limits - 1)
    for q, limit, chance in zip(_TAILS, limits, beyond, strict=True):
        count = int(((noise > limit) | (noise < -limit)).sum())
        p_value = upper_binomial_p_value(count, draws, float(chance), 2 * margin)
        yield f"the draws beyond {q:g} standard deviations on both sides", p_value


def _compare_residues(noise: IntVector, exact: DiscreteGaussian) -> Iterator[PValue]:
    """Yield p-values of the residues of the draws for small moduli, and of their bits."""
    draws, margin = noise.size, exact.margin
    for modulus in _MODULI:
        counts = np.bincount(noise % modulus, minlength=modulus)
        chances = exact.compute_residues(modulus)
        for residue, (count, chance) in enumerate(zip(counts, chances, strict=True)):
            p_value = upper_binomial_p_value(int(count), draws, float(chance), margin)
            yield f"the draws that are {residue} modulo {modulus}", p_value
    bit = _FIRST_BIT
    while 2 ** (bit + 2) <= exact.std:
        # By Poisson's formula the probability of each bit is 1/2 within exp(-8 pi^2) = 5e-35.
        count = int(((noise >> bit) & 1).sum())
        yield f"bits {bit} of the draws", upper_binomial_p_value(count, draws, 0.5, margin)
        bit += 1
