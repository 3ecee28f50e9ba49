"""Shares: how the records of rows are divided between the cells of measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fitplug.counts import Counts
from fitplug.domain import Attribute, Codes
from fitplug_dask import loops
from fitplug_dask.encoding import CodeReader


class MeasureReader:
    """Reads the codes of rows on the measures that are counted."""

    def __init__(self, measures: Mapping[str, Attribute], rows: int) -> None:
        """Allocate the memory of one block.

        Args:
            measures: The measures by name.
            rows: The most rows of a block.
        """
        self._readers = {name: CodeReader(one, rows) for name, one in measures.items()}

    def read(
        self, rows: int, columns: Mapping[str, Any], shared: Mapping[str, int]
    ) -> dict[str, Codes]:
        """Return the codes (rows,) of the rows of a block on each measure, valid until the next
        call; -1 for rows outside the domain.

        Args:
            rows: The number of rows.
            columns: Arrow arrays (rows,) by name.
            shared: The codes of the other attributes, which all rows share.
        """
        return {
            name: reader.read(columns[name])
            if name in columns
            else np.full(rows, shared[name], dtype=np.int64)
            for name, reader in self._readers.items()
        }


class Axis(NamedTuple):
    """A measure among the axes of a table, and the codes of rows on it.

    Attributes:
        measure: The measure.
        stride: By how much the number of a cell grows from one of its cells to the next.
        codes: The codes (n,) of the rows, none negative.
    """

    measure: Attribute
    stride: int
    codes: Codes


def divide_records(
    cells: Counts, axes: Sequence[Axis], weights: Counts
) -> Iterator[tuple[Counts, Counts]]:
    """Divide the records of rows between the cells of measures.

    The caller ensures that no product exceeds what int64 holds.

    Args:
        cells: The cells (n,) of the rows, if those of the measures are their first.
        axes: The measures.
        weights: The number of records (n,) of each row.

    Yields:
        For each combination of the measures' cells, the cells (n,) of the rows and the shares (n,)
        that they have there.
    """
    if not axes:
        yield cells, weights
        return
    measure, stride, codes = axes[0]
    for cell, shares in enumerate(measure.count_shares(codes).T):
        yield from divide_records(cells + cell * stride, axes[1:], weights * shares)


def add_shares(
    counter: Counts,
    cells: Counts,
    measures: Sequence[Attribute],
    codes: Sequence[Codes],
    weights: Counts | None,
) -> int:
    """Add the shares of rows to a joint table whose last attributes are measures.

    Args:
        counter: The shares of all cells, which are increased.
        cells: The cells (n,) of the rows on the other attributes.
        measures: The measures, at least one.
        codes: The codes (n,) of the rows on each. Rows with a negative cell or code are left out if
            there is one measure; with several there are none.
        weights: The number of records (n,) of each row; None if it is one.

    Returns:
        The number of rows that were counted.
    """
    *outer, last = measures
    if not outer:
        return loops.add_shares(counter, cells, codes[0], last.shares, last.size, weights)
    axes, stride = [], 1
    for measure, own in zip(outer[::-1], codes[-2::-1], strict=True):
        axes.append(Axis(measure, stride, own))
        stride *= measure.size
    records = np.ones(len(cells), dtype=np.int64) if weights is None else weights
    for corner, shares in divide_records(cells * stride, axes, records):
        loops.add_shares(counter, corner, codes[-1], last.shares, last.size, shares)
    return len(cells)
