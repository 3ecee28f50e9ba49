"""Checks of the size of a workload's coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray
from fitplug.workload import QueryGroup

LEAST_COEFFICIENT, LARGEST_COEFFICIENT = 1e-30, 1e30
"""Sizes that coefficients other than zero must lie between."""

_ALL_ZERO = "every query is zero; ask at least one with a non-zero coefficient"
_OUT_OF_RANGE = "coefficients other than zero must lie between 1e-30 and 1e30 in size"


def check_coefficients(matrices: Sequence[FloatArray]) -> None:
    """Check that some coefficient is not zero, and that those are of sane size.

    Raises:
        WorkloadError: Otherwise.
    """
    sizes = np.abs(np.concatenate([matrix[matrix != 0] for matrix in matrices]))
    if not sizes.size:
        raise WorkloadError(_ALL_ZERO)
    if not LEAST_COEFFICIENT <= sizes.min() <= sizes.max() <= LARGEST_COEFFICIENT:
        raise WorkloadError(_OUT_OF_RANGE)


def check_products(groups: Sequence[QueryGroup]) -> None:
    """Check coefficients as above in groups that are never written down.

    The products of some of a group's factors must have sane sizes too.

    Raises:
        WorkloadError: Otherwise.
    """
    asks_something = False
    for group in groups:
        least, most, is_zero = 1.0, 1.0, False
        for factor in group.factors:
            if factor.array is not None:
                sizes = np.abs(factor.array[factor.array != 0])
                is_zero |= not sizes.size
                least *= min(float(sizes.min(initial=1.0)), 1.0)
                most *= max(float(sizes.max(initial=1.0)), 1.0)
        if not LEAST_COEFFICIENT <= least <= most <= LARGEST_COEFFICIENT:
            raise WorkloadError(_OUT_OF_RANGE)
        asks_something |= not is_zero
    if not asks_something:
        raise WorkloadError(_ALL_ZERO)
