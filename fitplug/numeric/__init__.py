"""Numbers and arrays: exact numbers, outward rounding, positions, frozen arrays, BLAS."""

from fitplug.numeric.arrays import (
    AnyArray as AnyArray,
    BoolArray as BoolArray,
    FloatArray as FloatArray,
    IndexArray as IndexArray,
    IntArray as IntArray,
    freeze as freeze,
    frozen_property as frozen_property,
    guard_linear_algebra as guard_linear_algebra,
    is_positive_integer as is_positive_integer,
    read_array as read_array,
    to_positions as to_positions,
)
from fitplug.numeric.convolution import (
    convolve as convolve,
    convolve_exactly as convolve_exactly,
    convolve_with_bound as convolve_with_bound,
    correlate as correlate,
    upper_convolution_error as upper_convolution_error,
)
from fitplug.numeric.rounding import (
    UNIT_ROUNDOFF as UNIT_ROUNDOFF,
    ExactNumber as ExactNumber,
    ceil_float as ceil_float,
    ceil_sqrt as ceil_sqrt,
    ceil_written as ceil_written,
    find_largest_entry as find_largest_entry,
    floor_float as floor_float,
    floor_written as floor_written,
    gamma as gamma,
    invert_each_with_residual as invert_each_with_residual,
    invert_with_residual as invert_with_residual,
    make_room as make_room,
    multiply_exactly as multiply_exactly,
    multiply_numbers as multiply_numbers,
    multiply_with_bound as multiply_with_bound,
    read_exact_number as read_exact_number,
    read_python_number as read_python_number,
    upper_inverse_norm as upper_inverse_norm,
    upper_norm as upper_norm,
    upper_solution_norms as upper_solution_norms,
)
