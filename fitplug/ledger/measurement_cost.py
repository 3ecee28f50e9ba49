"""The cost of an OpenDP measurement, by its own privacy map; of nothing that looks like one.

The core does not import OpenDP. Where nobody has imported it, nothing can be a measurement of it.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from fitplug.errors import InputError
from fitplug.numeric import read_python_number


def measured_rho(measurement: Any, d_in: Any) -> float:
    """rho of zCDP of an OpenDP measurement at the input distance d_in: a number, or a tuple of them
    where its metric has such, of Python or NumPy.

    Objects are told by their exact classes, and asked through these, so that no subclass,
    attribute or comparison of their own has a say. Raises InputError for anything else, for another
    measure than zero-concentrated divergence, and if there is no cost at d_in.
    """
    opendp, measures = sys.modules.get("opendp.mod"), sys.modules.get("opendp.measures")
    if opendp is None or measures is None or type(measurement) is not opendp.Measurement:
        raise InputError(
            f"{type(measurement).__name__} is no OpenDP measurement: give one, such as what "
            "make_gaussian returns"
        )
    own = opendp.Measurement
    if not measurement:
        raise InputError("this OpenDP measurement is empty: give what a constructor returns")
    measure = own.output_measure.fget(measurement)
    zcdp = measures.zero_concentrated_divergence()
    # Once both are of this very class, their comparison is OpenDP's own.
    if type(measure) is not opendp.Measure or measure != zcdp:
        raise InputError(
            f"the measurement's output measure is {measure}, and the ledger is kept in "
            "zero-concentrated divergence: use a measurement of that, with Gaussian noise, or "
            "convert it with make_pureDP_to_zCDP"
        )
    distance = _distance(d_in)
    try:
        rho = own.map(measurement, distance)
    except Exception as error:  # OpenDP's own, which the core does not know
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"the measurement has no cost at d_in = {distance!r}: {why}") from None
    if type(rho) is not float or not 0 < rho < math.inf:
        raise InputError(
            f"the measurement costs rho = {rho!r} at d_in = {distance!r}, which is no finite "
            "number above 0: give the distance that one person's records make"
        )
    return rho


def _distance(d_in: Any) -> Any:
    """d_in in Python's own numbers. Raises InputError."""
    parts = d_in if type(d_in) is tuple else (d_in,)
    numbers = tuple(map(read_python_number, parts))
    for part, number in zip(parts, numbers, strict=True):
        if number is None or (type(number) is float and not math.isfinite(number)):
            given = repr(number) if number is not None else f"of type {type(part).__name__}"
            raise InputError(
                f"d_in is {given}: give the distance that one person's records make, as a finite "
                "number, or a tuple of them where the metric has such"
            )
    return numbers if type(d_in) is tuple else numbers[0]
