"""Limits of the integers and of the noise that a plan may have."""

from __future__ import annotations

MAX_ENTRY = 2**52
"""Bound on the entries of a plan's integer matrices, which floats then hold exactly."""

LEAST_NOISE, LARGEST_NOISE = 1.0, 2.0**55
"""Least and most noise (std) of a plan. With less, answers are next to exact; with more, they might
not stay within 64 bits, 128 standard deviations away."""

SATURATION = 2**62
"""Answers of strategies are clamped here: see `IntegerStrategy.max_records`. The clamp costs no
privacy, and so nothing that is done depends on whether the exact answers reach it."""

FEWEST_RECORDS = 10**9 // 2
"""A plan whose integers hold fewer records, in whichever cells they lie, is refused."""
