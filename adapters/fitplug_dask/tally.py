"""Tally: the counters of one share, and how the rows of a batch reach them.

The attributes are cut into atoms, each inside some joint tables and apart from the others. Every
atom's cell is found once per row, as a sum of terms, one per attribute; a joint table's cell is
then that of its atoms, first to last, as digits are of a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fitplug.domain import Attribute
from fitplug_dask import loops
from fitplug_dask.coders import Coder
from fitplug_dask.layout import atoms

_BLOCK_ROWS = 2**16
"""Rows counted at a time: fewer cost more calls, more leave the cache."""


class Tally:
    """Counts (cells,) of each joint table, and the memory they are made in.

    attributes: those counted, by name; joints: attribute sets, as `layout.joint_tables` orders
    them; rows: most that will be counted.
    """

    def __init__(
        self, attributes: Mapping[str, Attribute], joints: Sequence[Sequence[str]], rows: int
    ) -> None:
        # No cell can hold more than all rows; narrow counters stay in the cache twice as long.
        kind = np.uint32 if rows < 2**32 else np.int64
        self._atoms = [_Atom({name: attributes[name] for name in atom}) for atom in atoms(joints)]
        self._digits = [[a for a in self._atoms if set(a.names) <= set(j)] for j in joints]
        self.counters = [
            np.zeros(math.prod(atom.size for atom in digits), dtype=kind) for digits in self._digits
        ]
        # Of a single table, the rows outside the domain are those outside the table.
        self._alone = len(self._atoms) == 1 and all(self._digits)
        self._combined = np.empty(_BLOCK_ROWS, dtype=np.int64)

    def batch(self, batch: Any, columns: Sequence[str], keys: Mapping[str, int]) -> None:
        """Counts rows of an Arrow batch (n,), those that are in the domain on every attribute.

        columns: attributes it holds; keys: codes, none negative, of the others, which all rows
        share.
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
        doubtful = [atom for atom in self._atoms if atom.locate(rows, columns, keys)]
        if doubtful and not self._alone:
            rows = self._drop_outside(rows, doubtful)
        for digits, counter in zip(self._digits, self.counters, strict=True):
            if not digits:
                counter[0] += rows
                continue
            cells = digits[0].cells
            for atom in digits[1:-1]:
                cells = np.multiply(cells, atom.size, out=self._combined[:rows])
                cells += atom.cells
            if len(digits) == 1:
                loops.increment(counter, cells)
            else:
                loops.increment_pairs(counter, cells, digits[-1].size, digits[-1].cells)

    def _drop_outside(self, rows: int, doubtful: Sequence[_Atom]) -> int:
        """Keep the cells of rows that are in the domain on every attribute; how many rows are."""
        inside = np.logical_and.reduce([atom.cells >= 0 for atom in doubtful])
        if inside.all():
            return rows
        kept = np.flatnonzero(inside)
        for atom in self._atoms:
            atom.cells = atom.cells[kept]
        return len(kept)


class _Atom:
    """Attributes whose cell is found at once. cells: (n,) of the block's rows, negative where a
    row is outside the domain on any of them.
    """

    def __init__(self, attributes: Mapping[str, Attribute]) -> None:
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

    def shared(self, keys: Mapping[str, int]) -> int:
        """What the attributes that all rows share add to the cell."""
        return sum(keys[name] * self._strides[name] for name in self.names if name in keys)

    def locate(self, rows: int, columns: Mapping[str, Any], keys: Mapping[str, int]) -> bool:
        """Finds the cells of a block's rows: whether any may be negative."""
        lookups = [
            self._coders[name].lookup(columns[name]) for name in self.names if name in columns
        ]
        self.cells = self._own[:rows]
        # A negative cell stays so: one `outside` outweighs all that is added.
        loops.locate(lookups, self.shared(keys), self.cells)
        return any(lookup.doubtful for lookup in lookups)
