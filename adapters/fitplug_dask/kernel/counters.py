"""Counters: the joint tables of one partition, and how the rows of a batch are counted in them.

The attributes are split into atoms: groups of attributes such that each joint table contains an
atom entirely or not at all. The cell of each atom is computed once per row, as a sum of terms, one
for each attribute. The cell of a joint table is then a number whose digits are the cells of its
atoms, first to last. Filters are terms of an atom, too: 0 for values that pass, and for all other
values so negative that the row is outside the table.

Measures are in no atom. The record of a row is divided between the cells of the measures: its
shares are added to these cells, at the place that the atoms of the row determine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.counts import WEIGHT, Counts, Filters, is_measure, split_into_atoms
from fitplug.domain import Attribute, Codes, get_codec
from fitplug_dask import compiled_loops as loops
from fitplug_dask.encoding import CodeReader, ColumnEncoder
from fitplug_dask.kernel.partitions import LARGEST_SUM

FolderCodes: TypeAlias = Mapping[str, int | Codes]
"""By attribute, the code that all rows share, or the codes (n,) of rows from several folders."""


def take_codes(shared: FolderCodes, rows: Any) -> FolderCodes:
    """Return the codes of some of the rows; `rows` is an index of a NumPy array."""
    return {name: one if isinstance(one, int) else one[rows] for name, one in shared.items()}


BLOCK_ROWS = 2**17
"""The rows counted at once: fewer would mean more calls, and more would not fit into the cache."""


def cut_blocks(
    batch: Any, columns: Sequence[str], shared: FolderCodes
) -> Iterator[tuple[int, dict[str, Any], FolderCodes]]:
    """Cut an Arrow batch into blocks.

    Yields:
        The number n of rows of a block, at most BLOCK_ROWS; its columns, Arrow arrays (n,) by name;
        and the codes of its rows for the other attributes.
    """
    for start in range(0, batch.num_rows, BLOCK_ROWS):
        block = batch if batch.num_rows <= BLOCK_ROWS else batch.slice(start, BLOCK_ROWS)
        arrays = {name: block.column(name) for name in columns}
        yield block.num_rows, arrays, take_codes(shared, slice(start, start + BLOCK_ROWS))


class MeasureReader:
    """Reads the codes of rows for the measures that are counted."""

    def __init__(self, measures: Mapping[str, Attribute], rows: int) -> None:
        """Allocate the memory of one block.

        Args:
            measures: The measures by name.
            rows: The most rows of a block.
        """
        self._readers = {name: CodeReader(get_codec(one), rows) for name, one in measures.items()}

    def read(self, rows: int, columns: Mapping[str, Any], shared: FolderCodes) -> dict[str, Codes]:
        """Return the codes (rows,) of a block's rows for each measure; -1 if outside the domain.

        The next call overwrites them.

        Args:
            rows: The number of rows.
            columns: Arrow arrays (rows,) by name.
            shared: The codes of the other attributes.
        """
        return {
            name: reader.read(columns[name])
            if name in columns
            else np.full(rows, shared[name], dtype=np.int64)
            for name, reader in self._readers.items()
        }


class Axis(NamedTuple):
    """A measure as an axis of a table, and the codes of rows for it.

    Attributes:
        measure: The measure.
        stride: The difference in cell numbers between neighbouring cells of the measure.
        codes: The codes (n,) of the rows, none negative.
    """

    measure: Attribute
    stride: int
    codes: Codes


def divide_records(
    cells: Counts, axes: Sequence[Axis], weights: Counts
) -> Iterator[tuple[Counts, Counts]]:
    """Divide the records of rows between the cells of measures.

    The caller ensures that no product exceeds int64.

    Args:
        cells: The cells (n,) that the rows have with the first cell of every measure.
        axes: The measures.
        weights: The number of records (n,) of each row.

    Yields:
        For each combination of the measures' cells, the cells (n,) of the rows and their shares
        (n,) there.
    """
    if not axes:
        yield cells, weights
        return
    measure, stride, codes = axes[0]
    for cell, shares in enumerate(get_codec(measure).count_shares(codes).T):
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
        counter: The shares in all cells, which are increased.
        cells: The cells (n,) of the rows for the other attributes.
        measures: The measures, at least one.
        codes: The codes (n,) of the rows for each measure. With one measure, rows with a negative
            cell or code are left out; with several, no cell or code may be negative.
        weights: The number of records (n,) of each row; None if it is one.

    Returns:
        The number of counted rows.
    """
    *outer, last = measures
    units = get_codec(last).shares
    if not outer:
        return loops.add_shares(counter, cells, codes[0], units, last.size, weights)
    axes, stride = [], 1
    for measure, digits in zip(outer[::-1], codes[-2::-1], strict=True):
        axes.append(Axis(measure, stride, digits))
        stride *= measure.size
    records = np.ones(len(cells), dtype=np.int64) if weights is None else weights
    for corner, shares in divide_records(cells * stride, axes, records):
        loops.add_shares(counter, corner, codes[-1], units, last.size, shares)
    return len(cells)


class JointCounters:
    """The counts of each joint table, and the buffers for finding cells.

    Attributes:
        counters: The counts (cells,) of each joint table, of records or of their shares.
        is_full: Whether the rows stand for more records than can be counted. Then no more rows are
            counted, and the counts are invalid.
    """

    def __init__(
        self,
        attributes: Mapping[str, Attribute],
        joints: Sequence[Sequence[str]],
        rows: int,
        weight: str | None = None,
        filters: Filters = MappingProxyType({}),
    ) -> None:
        """Allocate the counters.

        Args:
            attributes: The attributes that are counted, by name.
            joints: The attribute sets, as `choose_joint_tables` orders them.
            rows: The most rows that will be counted.
            weight: The column with the number of records of each row; None if it is always one.
            filters: The values that rows must have to be counted.
        """
        self._attributes = attributes
        self._measures = [
            [name for name in joint if is_measure(attributes[name])] for joint in joints
        ]
        divided = [[n for n in joint if not is_measure(attributes[n])] for joint in joints]
        # The table of the total has no attributes, but an atom is needed to filter rows.
        atoms = split_into_atoms(divided) or ([()] if filters else [])
        self._atoms = [
            Atom({name: attributes[name] for name in atom}, filters if i == 0 else {})
            for i, atom in enumerate(atoms)
        ]
        self._digits = [[a for a in self._atoms if set(a.names) <= set(j)] for j in joints]
        self.counters: list[npt.NDArray[Any]] = [
            np.zeros(
                math.prod(attributes[name].size for name in joint),
                # No cell can exceed the number of rows, and twice as many narrow counters fit into
                # the cache.
                dtype=np.uint32 if rows < 2**32 and weight is None and not measures else np.int64,
            )
            for joint, measures in zip(joints, self._measures, strict=True)
        ]
        used = dict.fromkeys(name for measures in self._measures for name in measures)
        # With a single table, the rows outside the domain are just the rows outside the table.
        self._single_table = weight is None and len(self._atoms) == 1 and all(self._digits)
        self._single_table &= not used or (len(joints) == 1 and len(used) == 1)
        self._combined = np.empty(BLOCK_ROWS, dtype=np.int64)
        self._zeros = np.zeros(BLOCK_ROWS if used else 0, dtype=np.int64)
        self._measure_reader = MeasureReader({n: attributes[n] for n in used}, BLOCK_ROWS)
        self._weight, self._weight_reader = weight, CodeReader(WEIGHT, BLOCK_ROWS)
        shares = [
            math.prod(get_codec(attributes[name]).shares for name in joint) for joint in joints
        ]
        self._most_records = LARGEST_SUM // max(shares, default=1)
        self._records = 0

    @property
    def is_full(self) -> bool:
        return self._records > self._most_records

    def take_batch(self, batch: Any, columns: Sequence[str], shared: FolderCodes) -> None:
        """Count the rows of an Arrow batch (n,) that are in the domain on every attribute.

        Args:
            batch: The batch.
            columns: The columns of the batch: those of attributes, weights and filters.
            shared: The codes of the other attributes, none negative.
        """
        for block in cut_blocks(batch, columns, shared):
            self._count_block(*block)

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Count `rows` rows that share the codes of all attributes."""
        self._records += rows
        if self.is_full:
            return
        codes = self._measure_reader.read(1, {}, shared)
        for i, (digits, counter) in enumerate(zip(self._digits, self.counters, strict=True)):
            cell = 0
            for atom in digits:
                cell = cell * atom.size + int(atom.sum_shared_terms(shared))
            if self._measures[i]:
                self._add_shares(i, np.array([cell]), codes, np.array([rows]))
            else:
                counter[cell] += rows

    def _count_block(self, rows: int, columns: Mapping[str, Any], shared: FolderCodes) -> None:
        """Count the rows of a block in all joint tables."""
        if self.is_full:
            return
        doubtful = [atom for atom in self._atoms if atom.find_cells(rows, columns, shared)]
        codes = self._measure_reader.read(rows, columns, shared)
        weights = None if self._weight is None else self._weight_reader.read(columns[self._weight])
        if not self._single_table:
            inside = self._find_inside(doubtful, codes)
            if inside is not None:
                rows, codes = len(inside), {name: column[inside] for name, column in codes.items()}
                weights = None if weights is None else weights[inside]
            self._records += rows if weights is None else int(weights.sum())
            if self.is_full:
                return
        for i, (digits, counter) in enumerate(zip(self._digits, self.counters, strict=True)):
            if not digits and not self._measures[i]:
                counter[0] += rows if weights is None else weights.sum()
                continue
            cells = digits[0].cells if digits else self._zeros[:rows]
            # If measures follow, the last digit is combined here as well.
            for atom in digits[1:] if self._measures[i] else digits[1:-1]:
                cells = np.multiply(cells, atom.size, out=self._combined[:rows])
                cells += atom.cells
            if self._measures[i]:
                counted = self._add_shares(i, cells, codes, weights)
                self._records += counted if self._single_table else 0
                continue
            last = digits[-1]
            if weights is not None and len(digits) == 1:
                loops.add_weights(counter, cells, weights)
            elif weights is not None:
                loops.add_weights_of_pairs(counter, cells, last.size, last.cells, weights)
            elif len(digits) == 1:
                loops.increment(counter, cells)
            else:
                loops.increment_pairs(counter, cells, last.size, last.cells)

    def _add_shares(
        self, joint: int, cells: Counts, codes: Mapping[str, Codes], weights: Counts | None
    ) -> int:
        """Add the shares of rows to a joint table, and return the number of the rows."""
        names = self._measures[joint]
        measures = [self._attributes[name] for name in names]
        measure_codes = [codes[name] for name in names]
        return add_shares(self.counters[joint], cells, measures, measure_codes, weights)

    def _find_inside(
        self, doubtful: Sequence[Atom], codes: Mapping[str, Codes]
    ) -> npt.NDArray[np.intp] | None:
        """Find the rows inside the domain on all attributes, and drop the cells of all other rows.

        Returns:
            The positions of the remaining rows; None if all rows remain.
        """
        conditions = [atom.cells >= 0 for atom in doubtful]
        conditions += [column >= 0 for column in codes.values() if column.min(initial=0) < 0]
        if not conditions:
            return None
        inside = np.logical_and.reduce(conditions)
        if inside.all():
            return None
        positions = np.flatnonzero(inside)
        for atom in self._atoms:
            atom.cells = atom.cells[positions]
        return positions


class Atom:
    """A group of attributes that joint tables contain entirely or not at all.

    Attributes:
        names: The names of the attributes.
        size: The number of cells.
        cells: The cells (n,) of a block's rows, with the first cell of each measure. Negative where
            a row is outside the domain on another attribute or does not pass the filters.
    """

    def __init__(self, attributes: Mapping[str, Attribute], filters: Filters) -> None:
        self.names = tuple(attributes)
        self.size = math.prod(attribute.size for attribute in attributes.values())
        self.cells = self._buffer = np.empty(BLOCK_ROWS, dtype=np.int64)
        self._strides: dict[str, int] = {}
        self._encoders: dict[str, ColumnEncoder] = {}
        stride = self.size
        for name, attribute in attributes.items():
            stride //= attribute.size
            self._strides[name] = stride
            if is_measure(attribute):
                continue
            # The other terms sum to less than the size, so the cell is negative.
            self._encoders[name] = ColumnEncoder(get_codec(attribute), stride, -self.size)
        self._filters = {
            name: ColumnEncoder(get_codec(wanted), 0, -self.size)
            for name, wanted in filters.items()
        }

    def sum_shared_terms(self, shared: FolderCodes) -> int | Codes:
        """Return the sum of the terms of folder codes, one number for all rows or one each (n,)."""
        return sum(shared[n] * self._strides[n] for n in self._encoders if n in shared)

    def find_cells(self, rows: int, columns: Mapping[str, Any], shared: FolderCodes) -> bool:
        """Find the cells of a block's rows, and return whether any may be negative."""
        lookups = [
            encoder.make_lookup(columns[name])
            for encoders in (self._encoders, self._filters)
            for name, encoder in encoders.items()
            if name in columns
        ]
        self.cells = self._buffer[:rows]
        # A cell with a term `outside` is negative, whatever the other terms are.
        common = self.sum_shared_terms(shared)
        if isinstance(common, int):
            loops.locate(lookups, common, self.cells)
        else:
            loops.locate(lookups, 0, self.cells)
            self.cells += common
        return any(lookup.doubtful for lookup in lookups)
