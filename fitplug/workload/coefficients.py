"""Checks of the size of a workload's coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray
from fitplug.workload.query_groups import QueryGroups

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


def check_products(groups: QueryGroups) -> None:
    """Check coefficients as above in groups that are never written down.

    The products of some of a group's factors must have sane sizes too.

    Raises:
        WorkloadError: Otherwise.
    """
    arrays = [np.ones(1) if f.array is None else f.array for f in groups.factors]
    sizes = [np.abs(array[array != 0]) for array in arrays]
    with np.errstate(over="ignore", under="ignore"):
        least = groups.multiply(np.array([own.min(initial=1.0) for own in sizes]))
        most = groups.multiply(np.array([own.max(initial=1.0) for own in sizes]))
    if not LEAST_COEFFICIENT <= least.min() <= most.max() <= LARGEST_COEFFICIENT:
        raise WorkloadError(_OUT_OF_RANGE)
    if groups.find_any(np.array([not own.size for own in sizes], dtype=bool)).all():
        raise WorkloadError(_ALL_ZERO)
