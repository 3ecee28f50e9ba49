"""The subsets of a workload: those of each group's attributes that blocks are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.domain import get_shape
from fitplug.errors import WorkloadError
from fitplug.families.base.structure import list_names
from fitplug.families.base.subsets import Subsets, find_subsets, pad_sets
from fitplug.numeric import to_positions
from fitplug.workload import Workload

MAX_PAIRS = 50_000_000
"""The most pairs of a query group and a block to which its variances depend."""

MAX_TABLE = 14
"""The most attributes k of one query group along which blocks are divided. The design takes time
quadratic in the 2^k margins of the group's table."""


def find_workload_subsets(
    workload: Workload, symmetric: Sequence[str], split: Sequence[str] | None = None
) -> Subsets:
    """Find the subsets of the groups' sets A_t of the attributes that blocks are made of.

    Args:
        workload: The workload.
        symmetric: The symmetric attributes.
        split: The attributes that blocks are made of; None for the symmetric ones.
    """
    attributes = symmetric if split is None else split
    position = {name: i for i, name in enumerate(attributes)}
    groups, domain = workload.groups, workload.domain
    # An attribute with one cell has no contrasts.
    members = [
        position[f.attribute]
        if f.kind != "total"
        and f.attribute in position
        and (f.attribute not in symmetric or domain[f.attribute].size > 1)
        else -1
        for f in groups.factors
    ]
    counts, used = groups.gather_sets(np.array(members, dtype=np.int64))
    if set(symmetric).issuperset(attributes):
        zero = [f.kind == "matrix" and not f.matrix().any() for f in groups.factors]
        asks_nothing = groups.find_any(np.array(zero, dtype=bool))
        used = used[~np.repeat(asks_nothing, to_positions(counts))]
        counts = np.where(asks_nothing, 0, counts)
    largest = int(np.argmax(counts))
    if counts[largest] > MAX_TABLE:
        group = groups[largest]
        name = repr(group.name) if len(group.name) < 60 else list_names(group.attributes)
        raise WorkloadError(
            f"query {name} has {counts[largest]} attributes; the limit is {MAX_TABLE}. Use fewer "
            "attributes together."
        )
    pairs = int((2**counts).sum())
    if pairs > MAX_PAIRS:
        raise WorkloadError(
            f"the tables together have {pairs:,} subsets of attributes; the limit is "
            f"{MAX_PAIRS:,}. Use tables with fewer attributes."
        )
    sets = pad_sets(counts, used)
    return find_subsets(get_shape(domain, tuple(attributes)), sets)
