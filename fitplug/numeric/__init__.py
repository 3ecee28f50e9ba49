"""Numbers and arrays: exact numbers, outward rounding, frozen arrays, BLAS on one thread."""

from fitplug.numeric.arguments import is_positive_integer, read_array
from fitplug.numeric.arrays import AnyArray, BoolArray, FloatArray, IndexArray, IntArray
from fitplug.numeric.blas import linear_algebra
from fitplug.numeric.exact import exact_number, exact_product, largest, python_number
from fitplug.numeric.frozen import freeze, frozen_property
from fitplug.numeric.rounding import (
    UNIT,
    ceil_float,
    ceil_sqrt,
    floor_float,
    gamma,
    inverse_norm_above,
    inverse_norms_above,
    inverse_with_residual,
    norm_above,
    product_with_bound,
)

__all__ = [
    "UNIT",
    "AnyArray",
    "BoolArray",
    "FloatArray",
    "IndexArray",
    "IntArray",
    "ceil_float",
    "ceil_sqrt",
    "exact_number",
    "exact_product",
    "floor_float",
    "freeze",
    "frozen_property",
    "gamma",
    "inverse_norm_above",
    "inverse_norms_above",
    "inverse_with_residual",
    "is_positive_integer",
    "largest",
    "linear_algebra",
    "norm_above",
    "product_with_bound",
    "python_number",
    "read_array",
]
