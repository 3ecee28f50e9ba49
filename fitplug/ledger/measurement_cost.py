"""The cost of an OpenDP measurement, by its own privacy map.

The core does not import OpenDP. If nobody has imported it, nothing can be an OpenDP measurement.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

from fitplug.errors import InputError
from fitplug.numeric import read_python_number


def evaluate_rho(measurement: Any, d_in: Any) -> Fraction:
    """Evaluate the privacy map of an OpenDP measurement at an input distance.

    Classes are compared exactly, and methods are called through these classes, so that no subclass,
    attribute or comparison of the caller's can interfere.

    Args:
        measurement: An OpenDP measurement whose output measure is zero-concentrated divergence.
        d_in: The distance that one person's records can cause: a number of Python or NumPy, or a
            tuple of them if the input metric has tuples.

    Returns:
        rho of zCDP: the float that the map computes, exactly.

    Raises:
        InputError: This is not such a measurement, or it has no cost at `d_in`.
    """
    opendp, measures = sys.modules.get("opendp.mod"), sys.modules.get("opendp.measures")
    if opendp is None or measures is None or type(measurement) is not opendp.Measurement:
        raise InputError(
            f"the measurement must be an OpenDP measurement, not {type(measurement).__name__}"
        )
    measurement_class = opendp.Measurement
    if not measurement:
        raise InputError(
            "the OpenDP measurement is empty. Pass a measurement that a constructor returned."
        )
    measure = measurement_class.output_measure.fget(measurement)
    zcdp = measures.zero_concentrated_divergence()
    # Both have exactly this class, so the comparison is OpenDP's own.
    if type(measure) is not opendp.Measure or measure != zcdp:
        raise InputError(
            "the measurement's output measure must be zero-concentrated divergence, not "
            f"{measure}. Use a measurement with Gaussian noise."
        )
    distance = _convert_distance(d_in)
    try:
        rho = measurement_class.map(measurement, distance)
    except Exception as error:  # the core does not know the classes of OpenDP's errors
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"the measurement has no cost at d_in = {distance!r}: {why}") from None
    if type(rho) is not float or not 0 < rho < math.inf:
        raise InputError(
            f"the measurement's rho at d_in = {distance!r} must be a finite number above 0, not "
            f"{rho!r}"
        )
    # The decimal that Python prints may be below the map's bound.
    return Fraction(rho)


def _convert_distance(d_in: Any) -> Any:
    """Convert an input distance to Python's own numbers.

    Raises:
        InputError: It is neither a finite number nor a tuple of finite numbers.
    """
    distances = d_in if type(d_in) is tuple else (d_in,)
    numbers = tuple(map(read_python_number, distances))
    for distance, number in zip(distances, numbers, strict=True):
        if number is None or (type(number) is float and not math.isfinite(number)):
            given = repr(number) if number is not None else type(distance).__name__
            raise InputError(
                f"d_in must be a finite number or a tuple of finite numbers, not {given}"
            )
    return numbers if type(d_in) is tuple else numbers[0]
