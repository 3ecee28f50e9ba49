"""Numbers and arrays: exact numbers, outward rounding, positions, frozen arrays, BLAS."""

from fitplug.numeric.arguments import is_positive_integer, read_array
from fitplug.numeric.arrays import AnyArray, BoolArray, FloatArray, IndexArray, IntArray
from fitplug.numeric.blas import guard_linear_algebra
from fitplug.numeric.convolution import (
    convolve,
    convolve_with_bound,
    correlate,
    upper_convolution_error,
)
from fitplug.numeric.exact import (
    ceil_written,
    find_largest_entry,
    floor_written,
    make_room,
    multiply_exactly,
    multiply_numbers,
    read_exact_number,
    read_python_number,
)
from fitplug.numeric.frozen import freeze, frozen_property
from fitplug.numeric.number_transform import convolve_exactly
from fitplug.numeric.positions import to_positions
from fitplug.numeric.rounding import (
    UNIT_ROUNDOFF,
    ceil_float,
    ceil_sqrt,
    floor_float,
    gamma,
    invert_each_with_residual,
    invert_with_residual,
    multiply_with_bound,
    upper_inverse_norm,
    upper_norm,
    upper_solution_norms,
)

__all__ = [
    "UNIT_ROUNDOFF",
    "AnyArray",
    "BoolArray",
    "FloatArray",
    "IndexArray",
    "IntArray",
    "ceil_float",
    "ceil_sqrt",
    "ceil_written",
    "convolve",
    "convolve_exactly",
    "convolve_with_bound",
    "correlate",
    "find_largest_entry",
    "floor_float",
    "floor_written",
    "freeze",
    "frozen_property",
    "gamma",
    "guard_linear_algebra",
    "invert_each_with_residual",
    "invert_with_residual",
    "is_positive_integer",
    "make_room",
    "multiply_exactly",
    "multiply_numbers",
    "multiply_with_bound",
    "read_array",
    "read_exact_number",
    "read_python_number",
    "to_positions",
    "upper_convolution_error",
    "upper_inverse_norm",
    "upper_norm",
    "upper_solution_norms",
]
