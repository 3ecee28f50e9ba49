"""Units of privacy as the text that a ledger's file holds."""

from __future__ import annotations

import json

from fitplug.workload import BoundUnit, read_bound_unit


def encode_unit(unit: BoundUnit) -> str:
    """Write a unit with its cells as JSON, in one way only."""
    return json.dumps(unit.to_spec(), sort_keys=True)


def decode_unit(text: str) -> BoundUnit:
    """Read a unit from its text.

    Raises:
        ValueError: The text is not what `encode_unit` writes.
        TypeError: The value is no text.
    """
    unit = read_bound_unit(json.loads(text))
    if encode_unit(unit) != text:
        raise ValueError("not the text of a unit")
    return unit
