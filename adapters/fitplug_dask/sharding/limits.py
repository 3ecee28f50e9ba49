"""Limits: slabs that fit in the memory of a task, whatever the size of their tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fitplug.counts import AttributeSet
from fitplug.domain import Domain
from fitplug.errors import TablesError
from fitplug.families import Slab

_CELL_BYTES = 24
"""What a cell takes while its slab is counted: its count, a copy in another order, and a piece."""


def choose_slab_cells(memory: int, threads: int) -> int:
    """Return the most cells of a slab.

    Args:
        memory: The bytes that the tasks of one process may take together.
        threads: The number of threads of that process.
    """
    return max(1, memory // (_CELL_BYTES * threads))


def cut_slabs(domain: Domain, tables: Sequence[AttributeSet], most_cells: int) -> list[Slab]:
    """Cut tables into slabs, each along the attribute with the most cells.

    Args:
        domain: The domain.
        tables: The attribute sets of the tables.
        most_cells: The most cells of a slab.

    Raises:
        TablesError: One cell of that attribute has more cells of the table than that.
    """
    slabs = []
    for names in tables:
        cells = math.prod(domain[name].size for name in names)
        if cells <= most_cells:
            slabs.append(Slab(tuple(names), None, 0, 0))
            continue
        cut = max(names, key=lambda name: domain[name].size)
        size = domain[cut].size
        width = most_cells // (cells // size)
        if not width:
            raise TablesError(
                f"table {tuple(names)} has {cells // size:,} cells for each of {cut!r}, and a task "
                f"may hold {most_cells:,}; use coarser attributes, or workers with more memory"
            )
        slabs += [
            Slab(tuple(names), cut, start, min(start + width, size))
            for start in range(0, size, width)
        ]
    return slabs
