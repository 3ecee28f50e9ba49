"""Remedies: which attributes get fewer cells, and how, in words that fit what they are."""

from __future__ import annotations

from collections.abc import Sequence

from fitplug.domain.domain import Domain

_MOST_NAMED = 4


def suggest_fewer_cells(domain: Domain, names: Sequence[str]) -> str:
    """Say how attributes get fewer cells, such as "coarser bins of AGE, or a tree GEOID that ends
    at county".

    Args:
        domain: The domain that has the attributes.
        names: Attributes that have too many cells together. Only the largest few are named.

    Returns:
        A list of noun phrases. Attributes with the same remedy share one.
    """
    largest = sorted(names, key=lambda name: -domain[name].size)[:_MOST_NAMED]
    # Ordered attributes come first: to merge neighbouring values costs the least detail.
    by_remedy: dict[str, list[str]] = {}
    for name in sorted(largest, key=lambda name: not domain[name].is_ordered):
        by_remedy.setdefault(domain[name].remedy("them"), []).append(name)
    phrases = [domain[same[0]].remedy(", ".join(same)) for same in by_remedy.values()]
    return ", or ".join(phrases) or "fewer attributes"
