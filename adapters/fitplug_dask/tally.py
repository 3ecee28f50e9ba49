"""Tally: the counters of one share, and how the rows of a batch reach them.

The attributes are cut into atoms, each inside some joint tables and apart from the others. Every
atom's cell is found once per row, as a sum of terms, one per attribute; a joint table's cell is
then that of its atoms, first to last, as digits are of a number. Filters are terms of an atom too:
0 for the values that they let through, and else so negative that the row is outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import Filters
from fitplug.domain import Attribute
from fitplug_dask import loops
from fitplug_dask.coders import Coder
from fitplug_dask.layout import atoms
from fitplug_dask.weights import Weigher

_BLOCK_ROWS = 2**16
"""Rows counted at a time: fewer cost more calls, more leave the cache."""

LARGEST_SUM = 2**58
"""Records that are added up at most: those of eight such sums, and of a block more, fit in int64.
Tables refuse to hold as many.
"""


class Tally:
    """Counts (cells,) of each joint table, and the memory they are made in.

    attributes: those counted, by name; joints: attribute sets, as `layout.joint_tables` orders
    them; rows: most that will be counted; weight: the column that says how many records a row
    stands for, if not one; filters: of the rows that are counted.

    records: those that weighted rows stand for. Beyond LARGEST_SUM no more are counted, and the
    counts mean nothing.
    """

    def __init__(
        self,
        attributes: Mapping[str, Attribute],
        joints: Sequence[Sequence[str]],
        rows: int,
        weight: str | None = None,
        filters: Filters = MappingProxyType({}),
    ) -> None:
        # No cell can hold more than all rows; narrow counters stay in the cache twice as long.
        kind = np.uint32 if rows < 2**32 and weight is None else np.int64
        # The total alone has no attributes, but rows are filtered by an atom.
        cut = atoms(joints) or ([()] if filters else [])
        self._atoms = [
            _Atom({name: attributes[name] for name in atom}, filters if i == 0 else {})
            for i, atom in enumerate(cut)
        ]
        self._digits = [[a for a in self._atoms if set(a.names) <= set(j)] for j in joints]
        self.counters = [
            np.zeros(math.prod(atom.size for atom in digits), dtype=kind) for digits in self._digits
        ]
        # Of a single table, the rows outside the domain are those outside the table.
        self._alone = weight is None and len(self._atoms) == 1 and all(self._digits)
        self._combined = np.empty(_BLOCK_ROWS, dtype=np.int64)
        self._weigher = None if weight is None else Weigher(weight, _BLOCK_ROWS)
        self.records = 0

    def batch(self, batch: Any, columns: Sequence[str], keys: Mapping[str, int]) -> None:
        """Counts rows of an Arrow batch (n,), those that are in the domain on every attribute.

        columns: attributes it holds, and those of weights and filters; keys: codes, none negative,
        of the other attributes, which all rows share.
        """
        arrays = {name: batch.column(name) for name in columns}
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            rows = min(_BLOCK_ROWS, batch.num_rows - start)
            block = {name: array.slice(start, rows) for name, array in arrays.items()}
            self._block(rows, block, keys)

    def same(self, rows: int, keys: Mapping[str, int]) -> None:
        """Counts `rows` rows that are told apart by no column."""
        for digits, counter in zip(self._digits, self.counters, strict=True):
            cell = 0
            for atom in digits:
                cell = cell * atom.size + atom.shared(keys)
            counter[cell] += rows

    def _block(self, rows: int, columns: Mapping[str, Any], keys: Mapping[str, int]) -> None:
        if self.records > LARGEST_SUM:
            return
        doubtful = [atom for atom in self._atoms if atom.locate(rows, columns, keys)]
        weights = None if self._weigher is None else self._weigher.weigh(columns)
        if doubtful and not self._alone:
            kept = self._drop_outside(doubtful)
            rows = rows if kept is None else len(kept)
            weights = weights if kept is None or weights is None else weights[kept]
        if weights is not None:
            self.records += int(weights.sum())
        for digits, counter in zip(self._digits, self.counters, strict=True):
            if not digits:
                counter[0] += rows if weights is None else weights.sum()
                continue
            cells = digits[0].cells
            for atom in digits[1:-1]:
                cells = np.multiply(cells, atom.size, out=self._combined[:rows])
                cells += atom.cells
            last = digits[-1]
            if weights is not None and len(digits) == 1:
                loops.add_weights(counter, cells, weights)
            elif weights is not None:
                loops.add_weights_of_pairs(counter, cells, last.size, last.cells, weights)
            elif len(digits) == 1:
                loops.increment(counter, cells)
            else:
                loops.increment_pairs(counter, cells, last.size, last.cells)

    def _drop_outside(self, doubtful: Sequence[_Atom]) -> npt.NDArray[np.intp] | None:
        """Keep the cells of rows that are in the domain on every attribute; which rows are, or
        None if all are.
        """
        inside = np.logical_and.reduce([atom.cells >= 0 for atom in doubtful])
        if inside.all():
            return None
        kept = np.flatnonzero(inside)
        for atom in self._atoms:
            atom.cells = atom.cells[kept]
        return kept


class _Atom:
    """Attributes whose cell is found at once. cells: (n,) of the block's rows, negative where a
    row is outside the domain on any of them or does not pass the filters.
    """

    def __init__(self, attributes: Mapping[str, Attribute], filters: Filters) -> None:
        self.names = tuple(attributes)
        self.size = math.prod(attribute.size for attribute in attributes.values())
        self.cells = self._own = np.empty(_BLOCK_ROWS, dtype=np.int64)
        self._strides: dict[str, int] = {}
        self._coders: dict[str, Coder] = {}
        stride = self.size
        for name, attribute in attributes.items():
            stride //= attribute.size
            self._strides[name] = stride
            # As much as all other terms together, and one more, are above 0.
            self._coders[name] = Coder(attribute, stride, -self.size)
        self._filters = {name: Coder(wanted, 0, -self.size) for name, wanted in filters.items()}

    def shared(self, keys: Mapping[str, int]) -> int:
        """What the attributes that all rows share add to the cell."""
        return sum(keys[name] * self._strides[name] for name in self.names if name in keys)

    def locate(self, rows: int, columns: Mapping[str, Any], keys: Mapping[str, int]) -> bool:
        """Finds the cells of a block's rows: whether any may be negative."""
        lookups = [
            coder.lookup(columns[name])
            for coders in (self._coders, self._filters)
            for name, coder in coders.items()
            if name in columns
        ]
        self.cells = self._own[:rows]
        # A negative cell stays so: one `outside` outweighs all that is added.
        loops.locate(lookups, self.shared(keys), self.cells)
        return any(lookup.doubtful for lookup in lookups)
