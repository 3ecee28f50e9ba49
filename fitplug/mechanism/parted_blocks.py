"""Block sets in parts: their exact answers and their estimates, from pieces.

Matrices act on one attribute each. So where a block is cut along attribute c, a slab, which has
few cells of c and all of the others, is multiplied by the matrices of the others, and a part, which
has all of c and few columns of the others, by the matrix of c. Estimates go the same way back. What
a part or a slab has completely is summed or spread along c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import TablesError
from fitplug.mechanism.answers import estimate_residuals, measure_block
from fitplug.mechanism.basis import Reading
from fitplug.mechanism.block_parts import BlockParts, PlacedBlock
from fitplug.mechanism.estimates import arrange_as_group, find_references
from fitplug.mechanism.integer_limits import SATURATION
from fitplug.mechanism.packed_integers import choose_sum_type, pack_integers, unpack_integers
from fitplug.mechanism.parted_strategy import PartedStrategy, Pieces, check_pieces, sum_margin
from fitplug.mechanism.strategy import Strategy
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    make_room,
    multiply_exactly,
)


class PartedBlocks(PartedStrategy):
    """The parts of a strategy of block sets.

    Args:
        strategy: The strategy.
        tables: The attributes whose counts give the answers of all blocks.
        most: The most cells of a slab, answers of a part and estimates of an output.
    """

    def __init__(self, strategy: Strategy, tables: Sequence[tuple[str, ...]], most: int) -> None:
        self.strategy = strategy
        self._cut = BlockParts(strategy, tables, most)
        self.slabs = self._cut.slabs
        self.outputs = self._cut.outputs
        self.sizes = np.array([self._count_answers(p) for p in range(len(self._cut.parts))])

    def list_slabs(self, part: int) -> Sequence[int]:
        one = self._cut.parts[part]
        tables = {t for k in range(one.first, one.last) for t, _ in self._cut.readings[k]}
        return [s for t in sorted(tables) for s in self._cut.tables[t].slabs]

    def list_parts(self, output: int) -> Sequence[int]:
        workload, subsets = self.strategy.structure.workload, self.strategy.structure.subsets
        blocks = subsets.find_blocks(workload.position(self.outputs[output].group))
        parts = [self._cut.parts_of_block[self._cut.position[block]] for block in blocks]
        return sorted({p for own in parts for p in own})

    def place(self, part: int) -> slice | IntArray:
        return self._cut.list_indices(part)

    def split_counts(self, slab: int, counts: IntArray) -> Mapping[int, IntArray]:
        return Pieces(
            self._cut.parts_of_table[self._cut.table_of_slab[slab]],
            _CountSplit(self.strategy, self._cut, slab, counts).make_piece,
        )

    def answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        check_pieces(pieces, self.list_slabs(part), f"part {part} of the answers")
        gathered = _CountGathering(self.strategy, self._cut, part, pieces)
        one = self._cut.parts[part]
        if one.columns is not None:
            return self._answer_columns(self._cut.blocks[one.first], gathered.sum_block(one.first))
        return np.concatenate(
            [
                measure_block(self.strategy, own.block_set, own.i, gathered.sum_block(k))
                for k, own in enumerate(self._cut.blocks[one.first : one.last], one.first)
            ]
        )

    def split_answers(self, part: int, noisy: IntArray) -> Mapping[int, FloatArray]:
        if noisy.shape != (self.sizes[part],):
            raise TablesError(
                f"part {part} has {self.sizes[part]} answers, but {noisy.size} were given; "
                "they are of another plan or part"
            )
        split = _AnswerSplit(self.strategy, self._cut, part, noisy)
        return Pieces(split.list_outputs(), split.make_piece)

    def estimate(self, output: int, pieces: Mapping[int, FloatArray]) -> FloatArray:
        check_pieces(pieces, self.list_parts(output), f"output {output} of the estimates")
        return _Estimation(self.strategy, self._cut, output, pieces).estimate()

    def _count_answers(self, part: int) -> int:
        """Count the answers of a part."""
        one = self._cut.parts[part]
        own, last = self._cut.blocks[one.first], self._cut.blocks[one.last - 1]
        if one.columns is None:
            return last.start + last.size - own.start
        rows = own.shape[_find_axis(self._cut, own)]
        return rows * (one.columns[1] - one.columns[0]) * own.shape[-1]

    def _answer_columns(self, own: PlacedBlock, x: AnyArray) -> IntArray:
        """Compute the answers of columns (n_c, columns, n) of a block, clamped."""
        matrix = self.strategy.attribute_matrices[own.own[_find_axis(self._cut, own)]]
        y = matrix.apply(make_room(x, matrix.growth), 0)
        y = multiply_exactly(y.reshape(-1, y.shape[-1]), own.block_set.M[own.i].T)
        return np.asarray(np.clip(y, -SATURATION, SATURATION).ravel(), dtype=np.int64)


def _find_axis(cut: BlockParts, own: PlacedBlock) -> int:
    """Find the axis of a block's largest attribute."""
    largest = cut.find_cut(own.own)
    assert largest is not None
    return own.own.index(largest)


class _CountSplit:
    """The pieces of a slab."""

    def __init__(self, strategy: Strategy, cut: BlockParts, slab: int, counts: IntArray) -> None:
        self._strategy, self._cut, self._slab = strategy, cut, slab
        self._table = cut.table_of_slab[slab]
        own = cut.slabs[slab]
        shape = list(strategy.structure.workload.domain.shape_of(own.names))
        if own.attribute is not None:
            shape[own.names.index(own.attribute)] = own.stop - own.start
        if counts.shape != tuple(shape):
            raise TablesError(
                f"the counts of slab {slab} have the shape {counts.shape}, and not {tuple(shape)}"
            )
        self._counts = make_room(counts, counts.size)
        self._latest: tuple[int, list[AnyArray]] = (-1, [])

    def make_piece(self, part: int) -> IntArray:
        """Make the piece of a part."""
        one = self._cut.parts[part]
        if one.columns is not None:
            first, last = one.columns
            columns = self._multiply_columns(one.first)
            return pack_integers([found[:, first:last] for found in columns])
        found = []
        for k in range(one.first, one.last):
            for t, reading in self._cut.readings[k]:
                if t == self._table:
                    found.append(self._multiply(k, reading))
        return pack_integers(found)

    def _multiply(self, k: int, reading: Reading) -> AnyArray:
        """Multiply rows of a block's basis by the slab's counts, (cells, rows)."""
        structure = self._strategy.structure
        names = self._cut.tables[self._table].names
        kept = [structure.block_attributes[a] for a in self._cut.blocks[k].own] + [*reading.dense]
        return reading.multiply(sum_margin(self._counts, names, kept))

    def _multiply_columns(self, k: int) -> list[AnyArray]:
        """Multiply by all matrices of a block but that of its largest attribute.

        Returns:
            For each reading from the table, (cells of the largest attribute, columns, rows).
        """
        if self._latest[0] == k:
            return self._latest[1]
        own = self._cut.blocks[k]
        axis, table = _find_axis(self._cut, own), self._cut.tables[self._table]
        found = []
        for t, reading in self._cut.readings[k]:
            if t != self._table:
                continue
            sizes = [self._strategy.structure.sizes[a] for a in own.own]
            if table.cut == own.own[axis]:
                start, stop = table.ranges[self._slab - table.first]
                sizes[axis] = stop - start
            y = self._multiply(k, reading).reshape(*sizes, len(reading.rows))
            for other, a in enumerate(own.own):
                if other != axis:
                    matrix = self._strategy.attribute_matrices[a]
                    y = matrix.apply(make_room(y, matrix.growth), other)
            found.append(np.moveaxis(y, axis, 0).reshape(sizes[axis], -1, len(reading.rows)))
        self._latest = k, found
        return found


class _CountGathering:
    """The counts of a part's blocks, from the pieces of all slabs."""

    def __init__(
        self, strategy: Strategy, cut: BlockParts, part: int, pieces: Mapping[int, IntArray]
    ) -> None:
        self._strategy, self._cut, self._part = strategy, cut, cut.parts[part]
        self._pieces = {slab: unpack_integers(piece) for slab, piece in pieces.items()}
        self._kind = choose_sum_type([*self._pieces.values()])
        self._ends = dict.fromkeys(pieces, 0)

    def sum_block(self, k: int) -> AnyArray:
        """Sum what the pieces hold of the next block, in the order of the blocks.

        Returns:
            B x: an axis for each attribute of the block, and one of n. For a range of columns, what
            the other attributes' matrices measure: axes of the largest attribute, columns and n.
        """
        own, columns = self._cut.blocks[k], self._part.columns
        sizes = [self._strategy.structure.sizes[a] for a in own.own]
        cut = self._cut.find_cut(own.own)
        axis = -1 if cut is None else own.own.index(cut)
        if columns is not None:
            sizes, axis = [sizes[axis], columns[1] - columns[0]], 0
        total: AnyArray = np.zeros((*sizes, own.shape[-1]), dtype=self._kind)
        for t, reading in self._cut.readings[k]:
            table = self._cut.tables[t]
            for slab, (start, stop) in zip(table.slabs, table.ranges, strict=True):
                shape, place = [*sizes, len(reading.rows)], [slice(None)] * len(sizes)
                if table.cut is not None and table.cut == cut:
                    shape[axis], place[axis] = stop - start, slice(start, stop)
                piece = self._take(slab, math.prod(shape)).reshape(shape)
                target = total[tuple(place)]
                if len(reading.rows) == own.shape[-1]:
                    target += piece
                else:
                    target[..., reading.rows] += piece
        return total

    def _take(self, slab: int, size: int) -> AnyArray:
        """Take the next numbers of a slab's piece."""
        start = self._ends[slab]
        self._ends[slab] = start + size
        return self._pieces[slab][start : start + size]


class _AnswerSplit:
    """The pieces of a part's noisy answers."""

    def __init__(self, strategy: Strategy, cut: BlockParts, part: int, noisy: IntArray) -> None:
        self._strategy, self._cut, self._noisy = strategy, cut, noisy
        self._part = cut.parts[part]
        self._residuals: dict[int, FloatArray] = {}
        self._of_group: tuple[int, dict[int, FloatArray]] = (-1, {})

    def list_outputs(self) -> list[int]:
        """List the outputs that need the part, ascending."""
        subsets = self._strategy.structure.subsets
        groups: set[int] = set()
        for own in self._cut.blocks[self._part.first : self._part.last]:
            groups.update(subsets.find_groups(own.block)[0].tolist())
        return [o for g in sorted(groups) for o in self._cut.outputs_of_group[g]]

    def make_piece(self, output: int) -> FloatArray:
        """Make the piece of an output."""
        structure = self._strategy.structure
        one = self._cut.outputs[output]
        g = structure.workload.position(one.group)
        blocks = (self._cut.position[block] for block in structure.subsets.find_blocks(g))
        cut = self._cut.find_group_cut(g)
        found = []
        for k in sorted(blocks):
            if self._part.first <= k < self._part.last:
                values, axis = self._read_block(k, g, cut)
                if axis is not None:
                    at = (slice(None),) * axis
                    values = values[(*at, slice(one.start, one.stop))]
                found.append(values.ravel())
        return np.concatenate(found)

    def _read_block(self, k: int, g: int, cut: int | None) -> tuple[FloatArray, int | None]:
        """Read what a group needs of a block, and the axis of the group's range of it."""
        own = self._cut.blocks[k]
        if self._part.columns is not None:
            largest = own.own[_find_axis(self._cut, own)]
            return self._apply_factor(k, g, largest, 0), 0 if cut == largest else None
        if cut is None or cut not in own.own:
            return self._estimate_residuals(k), None
        axis = own.own.index(cut)
        return self._apply_factor(k, g, cut, axis), axis

    def _apply_factor(self, k: int, g: int, attribute: int, axis: int) -> FloatArray:
        """Multiply a block's residuals by a group's factor of an attribute."""
        if self._of_group[0] != g:
            self._of_group = g, {}
        latest = self._of_group[1]
        if k not in latest:
            factor = self._strategy.structure.find_factors(g)[attribute]
            found = self._estimate_residuals(k)
            latest[k] = found if factor is None else factor.apply(found, axis)
        return latest[k]

    def _estimate_residuals(self, k: int) -> FloatArray:
        """Estimate B x of a block less what its margins say; of columns, along one attribute."""
        if k not in self._residuals:
            own = self._cut.blocks[k]
            if self._part.columns is None:
                start = own.start - self._cut.blocks[self._part.first].start
                answers = self._noisy[start : start + own.size].reshape(own.shape)
                found = estimate_residuals(self._strategy, own.block_set, own.i, answers)
            else:
                found = self._invert_columns(own)
            self._residuals[k] = found
        return self._residuals[k]

    def _invert_columns(self, own: PlacedBlock) -> FloatArray:
        """Invert M and the largest attribute's matrix on columns, (cells, columns, n)."""
        axis, n = _find_axis(self._cut, own), own.shape[-1]
        M = own.block_set.M[own.i].astype(np.float64)
        flat = solve_triangular(M, self._noisy.reshape(-1, n).astype(np.float64).T).T
        shaped = np.asarray(flat.reshape(own.shape[axis], -1, n))
        return self._strategy.attribute_matrices[own.own[axis]].invert(shaped, 0)


class _Estimation:
    """The estimates of an output, from the pieces of all parts."""

    def __init__(
        self, strategy: Strategy, cut: BlockParts, output: int, pieces: Mapping[int, FloatArray]
    ) -> None:
        self._strategy, self._cut, self._pieces = strategy, cut, pieces
        self._structure = strategy.structure
        self._output = cut.outputs[output]
        self._group = self._structure.workload.position(self._output.group)
        self._factors = self._structure.find_factors(self._group)
        self._ends = dict.fromkeys(pieces, 0)
        self._group_cut = cut.find_group_cut(self._group)

    def estimate(self) -> FloatArray:
        """Add up what the blocks say; see `fitplug.mechanism.estimates`."""
        strategy, structure, g = self._strategy, self._structure, self._group
        references = find_references(strategy, self._factors)
        cut, kept = self._group_cut, slice(self._output.start, self._output.stop)
        if cut is not None and len(references[cut]) > 1:
            references[cut] = references[cut][kept]
        blocks = structure.subsets.find_blocks(g)
        # Pieces hold their blocks in the order of positions.
        found = {
            own: self._gather(own) for own in sorted(blocks, key=self._cut.position.__getitem__)
        }
        total: FloatArray | float = 0.0
        for block in blocks:
            part, applied = found.pop(block)
            (own,) = structure.subsets.list_attributes([block])
            part = part @ strategy.represent(block, g)[0].T
            for axis, (a, factor) in enumerate(self._factors.items()):
                if a not in own:
                    later = (1,) * (part.ndim - axis)
                    part = np.expand_dims(part, axis) * references[a].reshape(-1, *later)
                elif factor is not None and a != applied:
                    part = factor.apply(part, axis)
            total = total + part
        return arrange_as_group(
            structure, g, np.asarray(total), self._output.axis, self._output.shape
        )

    def _gather(self, block: int) -> tuple[FloatArray, int | None]:
        """Gather a block's residuals, and the attribute whose factor they are multiplied by."""
        k = self._cut.position[block]
        own, parts = self._cut.blocks[k], self._cut.parts_of_block[k]
        cells = [self._structure.sizes[a] for a in own.own]
        n, cut, output = own.shape[-1], self._group_cut, self._output
        if self._cut.parts[parts[0]].columns is None:
            if cut is None or cut not in own.own:
                return self._take(parts[0], (*cells, n)), None
            cells[own.own.index(cut)] = output.stop - output.start
            return self._take(parts[0], (*cells, n)), cut
        axis = _find_axis(self._cut, own)
        largest = own.own[axis]
        factor = self._factors[largest]
        rows = cells[axis] if factor is None else factor.rows
        rows = output.stop - output.start if cut == largest else rows
        columns = [self._cut.parts[p].columns for p in parts]
        found = np.concatenate(
            [
                self._take(p, (rows, pair[1] - pair[0], n))
                for p, pair in zip(parts, columns, strict=True)
                if pair is not None
            ],
            axis=1,
        )
        measured = [own.shape[i] for i in range(len(own.own)) if i != axis]
        found = np.moveaxis(found.reshape(rows, *measured, n), 0, axis)
        for other, a in enumerate(own.own):
            if other != axis:
                found = self._strategy.attribute_matrices[a].invert(found, other)
        return found, largest

    def _take(self, part: int, shape: Sequence[int]) -> FloatArray:
        """Take the next numbers of a part's piece."""
        start = self._ends[part]
        self._ends[part] = start + math.prod(shape)
        return np.asarray(self._pieces[part][start : self._ends[part]].reshape(shape))
