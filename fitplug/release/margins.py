"""Margins of error: half the widths of intervals, from quantiles of the Gaussian distribution."""

from __future__ import annotations

import numpy as np

from fitplug.numeric import AnyArray
from fitplug.workload import check_confidence, quantile


def compute_moe(confidence: float, stds: float | AnyArray, together: int = 1) -> AnyArray:
    """Compute margins of error.

    Args:
        confidence: The probability that an interval covers the exact answer.
        stds: The standard deviations of the estimates.
        together: The number of intervals that cover their exact answers all at once with this
            probability; 1 for intervals one at a time.

    Returns:
        The margins of error, of the shape of the standard deviations.

    Raises:
        WorkloadError: The confidence is out of range.
    """
    return np.asarray(find_quantile(confidence, together) * stds)


def find_quantile(confidence: float, together: int = 1) -> float:
    """Return how many standard deviations a margin of error has; see `compute_moe`.

    Raises:
        WorkloadError: The confidence is out of range.
    """
    check_confidence(confidence)
    return float(quantile(confidence, together))
