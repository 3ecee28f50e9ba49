"""Arrays: the types of arrays that annotations use."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
"""Floating-point numbers of 64 bits."""

IntArray: TypeAlias = npt.NDArray[np.int64]
"""Integers of 64 bits."""

BoolArray: TypeAlias = npt.NDArray[np.bool_]
"""Truth values."""

IndexArray: TypeAlias = npt.NDArray[np.intp]
"""Positions in another array, as NumPy and LAPACK return them."""

AnyArray: TypeAlias = npt.NDArray[Any]
"""Numbers whose type differs from call to call, such as int64 or Python integers."""
