"""What the Gaussian curve loses where the noise is discrete: Theorem 4 of docs/theory/privacy.md.

Answers with discrete Gaussian noise of sigma on Z^k are almost what one gets from continuous
Gaussian noise of sigma_1 < sigma by a step that knows nothing of the data. So the curve holds for
them with a rho that is larger by the factor sigma^2 / sigma_1^2, and with ratios of probabilities
that are 1 for all purposes. Several releases, chosen one after the other, obey the curve of their
total.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from fitplug.errors import InputError
from fitplug.numeric import read_python_number

_LOG_RATIO = 1e-18
"""The log of the ratio of probabilities that one release may cost."""

_SAFE = 1e-12
"""A relative step to the safe side, larger than the error of a few floating-point operations."""


@dataclass(frozen=True)
class CurveLoss:
    """What releases lose against continuous Gaussian noise of the same rho.

    Attributes:
        stretch: The rho of the continuous noise over that of the releases, rounded up, at least 1;
            infinite where the noise is too small for the theorem.
        log_ratio: log R of (Z9), rounded up, at least 0.
    """

    stretch: float = 1.0
    log_ratio: float = 0.0

    def join(self, other: CurveLoss) -> CurveLoss:
        """Return the loss of two releases, or sets of them, whose rho add up."""
        ratio = self.log_ratio + other.log_ratio
        if self.log_ratio and other.log_ratio:
            ratio = math.nextafter(ratio, math.inf)
        return CurveLoss(max(self.stretch, other.stretch), ratio)

    def exceeds(self, other: CurveLoss) -> bool:
        """Return whether this loss is not covered by another one."""
        return self.stretch > other.stretch or self.log_ratio > other.log_ratio

    def limit_rho(self, total: Fraction) -> Fraction:
        """Return the rho that releases with this loss may spend of a budget in epsilon and delta.

        The releases may be chosen one after the other: the rho of the continuous noise and the
        ratio R are then the same in every course of events, as Theorem 6 asks.

        Args:
            total: The rho of the budget on the curve, which leaves room for `USUAL`.

        Returns:
            The total, lowered so far that this stretch fits; 0 if the ratio does not.
        """
        if self.log_ratio > USUAL.log_ratio or self.stretch == math.inf:
            return Fraction(0)
        if self.stretch <= USUAL.stretch:
            return total
        return total * Fraction(USUAL.stretch) / Fraction(self.stretch)


CONTINUOUS = CurveLoss()
"""No loss: continuous Gaussian noise."""

USUAL = CurveLoss(1 + 1e-9, 1e-12)
"""The loss that budgets given as epsilon and delta leave room for, so that one plan and many
releases may spend them alike. It is that of up to a million releases with sigma above 70,000;
designs choose sigma of some millions.
"""


@dataclass(frozen=True)
class DiscreteNoise:
    """Independent discrete Gaussian noise on integer answers.

    Attributes:
        noise_std: sigma of the noise on each answer, in the steps of the integers: 1 where noise of
            0.5 is added to multiples of 0.5.
        answers: k, the number of integer answers, or more.

    Raises:
        InputError: sigma is not a finite number above 0, or k not an integer from 1 to 2^63 - 1.

    Example:
        >>> fp.DiscreteNoise(1000.0, 50).loss.stretch < 1 + 4e-6
        True
    """

    noise_std: float
    answers: int

    def __post_init__(self) -> None:
        std, answers = read_python_number(self.noise_std), read_python_number(self.answers)
        is_count = type(answers) is int and 1 <= answers < 2**63
        if std is None or not 0 < std <= sys.float_info.max or not is_count:
            raise InputError(
                f"noise_std = {self.noise_std!r} must be a finite number above 0, and answers = "
                f"{self.answers!r} must be an integer from 1 to 2^63 - 1"
            )
        # A ledger hashes both, and reads them back as these types.
        object.__setattr__(self, "noise_std", float(std))
        object.__setattr__(self, "answers", answers)

    @cached_property
    def loss(self) -> CurveLoss:
        """What the curve loses for this noise.

        The stretch is sigma^2 / (sigma^2 - s^2) with the least s for which R of k answers is at
        most exp(1e-18): s is 1.5 for one answer and 2.0 for 10^15.
        """
        # (1 + eta) / (1 - eta) is below exp(2.1 eta), and eta below 2.01 q: (Z10).
        log_q = math.log(_LOG_RATIO / 4.3) - math.log(self.answers)
        smoothing = -log_q / (2 * math.pi**2) * (1 + _SAFE)
        rest = self.noise_std * self.noise_std * (1 - _SAFE) - smoothing
        if rest <= 0:
            return CurveLoss(math.inf, _LOG_RATIO)
        return CurveLoss((1 + smoothing / rest) * (1 + _SAFE), _LOG_RATIO)
