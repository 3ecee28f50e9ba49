"""Layout: which tables are counted jointly, and how the wanted ones are summed out of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fitplug.domain import Domain
from fitplug.tables import Counts, Names

MERGED_CELLS = 2**16
"""Largest joint table made by merging smaller ones: 512 KB of counters stay in a core's cache."""


def joint_tables(domain: Domain, wanted: Iterable[Names]) -> tuple[Names, ...]:
    """Attribute sets, in the domain's order, such that each wanted table is a marginal of one.

    Small tables are merged, first fit: one increment per record then serves all of them.
    """

    def cells(names: Iterable[str]) -> int:
        return math.prod(domain.shape_of(tuple(names)))

    joints: list[set[str]] = []
    for names in sorted(wanted, key=lambda names: (-cells(names), names)):
        if any(joint.issuperset(names) for joint in joints):
            continue
        for joint in joints:
            if cells(joint.union(names)) <= MERGED_CELLS:
                joint.update(names)
                break
        else:
            joints.append(set(names))
    return tuple(domain.ordered(tuple(joint)) for joint in joints)


def marginals(
    domain: Domain, counted: Mapping[Names, Counts], wanted: Sequence[Names]
) -> dict[Names, Counts]:
    """Each wanted table, summed out of the first joint table that holds it."""
    tables: dict[Names, Counts] = {}
    for names in wanted:
        held = next(joint for joint in counted if set(names) <= set(joint))
        out = tuple(axis for axis, name in enumerate(held) if name not in names)
        cells = counted[held].reshape(domain.shape_of(held))
        tables[names] = np.asarray(cells.sum(axis=out, dtype=np.int64))
    return tables
