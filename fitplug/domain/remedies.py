"""Remedies: how attributes are made smaller, in words that fit what they are."""

from __future__ import annotations

from collections.abc import Sequence

from fitplug.domain.bins import Bins
from fitplug.domain.dates import Dates
from fitplug.domain.domain import Domain
from fitplug.domain.hierarchy import Hierarchy
from fitplug.domain.integers import Integers
from fitplug.domain.kinds import Attribute
from fitplug.domain.prefix import Prefix

_MOST = 4
_COARSER = {"day": "month", "month": "year"}


def fewer_cells(domain: Domain, names: Sequence[str]) -> str:
    """How each of these attributes gets fewer cells: "coarser bins of AGE, or a tree GEOID that
    ends at county"; the largest few of many.
    """
    largest = sorted(names, key=lambda name: -domain[name].size)[:_MOST]
    binned = [name for name in largest if isinstance(domain[name], Integers | Bins)]
    told = [f"coarser bins of {', '.join(binned)}"] if binned else []
    told += [_of_one(name, domain[name]) for name in largest if name not in binned]
    return ", or ".join(told) or "fewer attributes"


def _of_one(name: str, attribute: Attribute) -> str:
    if isinstance(attribute, Hierarchy):
        if len(attribute.levels) > 1:
            return f"a tree {name} that ends at {attribute.levels[-2]}"
        return f"fewer leaves of {name}"
    if isinstance(attribute, Dates):
        coarser = _COARSER.get(attribute.by)
        return f"{name} by {coarser}" if coarser else f"fewer years of {name}"
    if isinstance(attribute, Prefix):
        if attribute.length > 1:
            return f"shorter prefixes of {name}"
        return f"fewer prefixes of {name}"
    return f"fewer categories of {name}"
