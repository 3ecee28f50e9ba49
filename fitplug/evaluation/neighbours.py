"""The privacy cost of a strategy matrix: the largest |A v| over the differences of neighbours."""

from __future__ import annotations

import math

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families import name_cell
from fitplug.numeric import FloatArray, IndexArray
from fitplug.workload import AddRemove, ReplaceOne, Unit, Workload

_MOST_DISTANCES = 4_000_000
"""The most squared distances between columns that are held at a time."""


def check_unit_of_evaluation(unit: Unit) -> None:
    """Raise WorkloadError for units whose cost is not simply that of columns or pairs of them."""
    if isinstance(unit, AddRemove) and not unit.is_of_records:
        raise WorkloadError(
            f"the cost of a strategy of one's own for {unit} is not evaluated; evaluate it for "
            "AddRemove(records=...) or ReplaceOne(...)"
        )


def find_public_regions(workload: Workload, unit: Unit) -> IndexArray | None:
    """Find which cells have a public total together.

    Args:
        workload: The queries.
        unit: The unit of privacy.

    Returns:
        The region of each cell, shape (d,), numbered from 0; None if no totals are public.
    """
    if not isinstance(unit, ReplaceOne):
        return None
    sizes = [n if name in unit.within else 1 for name, n in _list_sizes(workload)]
    regions = np.arange(math.prod(sizes)).reshape(sizes)
    return np.asarray(np.broadcast_to(regions, workload.shape).ravel(), dtype=np.intp)


def remove_public_totals(rows: FloatArray, regions: IndexArray | None) -> FloatArray:
    """Subtract from each row its mean in each region, which the public totals answer exactly.

    Args:
        rows: Shape (n, d).
        regions: See `find_public_regions`.
    """
    if regions is None:
        return rows
    sizes = np.bincount(regions)
    order = np.argsort(regions, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    means = np.add.reduceat(rows[:, order], starts, axis=1) / sizes
    return np.asarray(rows - means[:, regions])


def find_costliest_neighbours(
    A: FloatArray, workload: Workload, unit: Unit
) -> tuple[float, tuple[int, ...]]:
    """Find the difference of neighbours that costs most.

    Args:
        A: The strategy matrix, shape (p, d).
        workload: Its attributes' cells are the columns.
        unit: Records added or removed anywhere, or one record replaced.

    Returns:
        The largest |A v|, and the cell or the two cells at which it is attained.
    """
    squares = np.einsum("ij,ij->j", A, A)
    if isinstance(unit, AddRemove):
        cell = int(squares.argmax())
        return unit.records * math.sqrt(squares[cell]), (cell,)
    regions = find_public_regions(workload, unit)
    if regions is None:
        raise WorkloadError(f"the cost of a strategy of one's own for {unit} is not evaluated")
    most, pair = 0.0, (0, 0)
    for region in range(int(regions.max()) + 1):
        cells = np.flatnonzero(regions == region)
        # Distances do not change when all columns are moved, and fewer digits cancel then.
        columns = A[:, cells] - A[:, cells].mean(axis=1, keepdims=True)
        lengths = np.einsum("ij,ij->j", columns, columns)
        step = max(1, _MOST_DISTANCES // len(cells))
        for start in range(0, len(cells), step):
            part = slice(start, start + step)
            squared = lengths[part, None] + lengths - 2.0 * (columns[:, part].T @ columns)
            first, second = np.unravel_index(int(squared.argmax()), squared.shape)
            i, j = start + int(first), int(second)
            # The pair is measured once more, as no digits cancel in the difference of two columns.
            distance = float(np.linalg.norm(columns[:, i] - columns[:, j]))
            if distance > most:
                most, pair = distance, (int(cells[i]), int(cells[j]))
    return most, pair


def describe_neighbours(workload: Workload, cells: tuple[int, ...]) -> str:
    """Say which cell, or which two cells, neighbours differ in."""
    if not workload.attributes:
        return "the total"
    places = (
        name_cell(workload.domain, workload.attributes, np.unravel_index(cell, workload.shape))
        for cell in cells
    )
    return " and ".join(places)


def _list_sizes(workload: Workload) -> list[tuple[str, int]]:
    return list(zip(workload.attributes, workload.shape, strict=True))
