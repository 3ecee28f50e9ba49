"""Measure rules: what counting does to the values of measures, and what no margin covers."""

from __future__ import annotations

from collections.abc import Collection

from fitplug.domain.domain import Domain

_NOT_COVERED = (
    "The bounds are public, and fitplug read none of them from the rows. What clamping and "
    "rounding change in sums and means cannot be certified: no std, interval or certificate covers "
    "it."
)


def describe_measures(domain: Domain, names: Collection[str]) -> tuple[str, ...]:
    """Describe in sentences what becomes of the values of measures.

    Args:
        domain: The domain.
        names: Names of attributes, of which some may be measures.

    Returns:
        A sentence for each measure, and what no margin of error covers; empty without measures.
    """
    own = [name for name in domain.ordered(tuple(names)) if domain[name].rule]
    if not own:
        return ()
    return *(f"A value of the measure {name} {domain[name].rule}." for name in own), _NOT_COVERED
