"""Pieces of answers of block sets: from the noisy answers of parts to the estimates of outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.families.base.answers import estimate_residuals
from fitplug.families.base.estimates import arrange_as_group, find_references
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.blocks.estimates.cuts import BlockPart, BlockParts, PlacedBlock
from fitplug.numeric import FloatArray, IntArray


class BlockAnswerSplit:
    """The pieces of a part's noisy answers."""

    def __init__(
        self, strategy: IntegerStrategy, cut: BlockParts, part: int, noisy: IntArray
    ) -> None:
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
            largest = own.own[self._cut.find_axis(own)]
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
        axis, n = self._cut.find_axis(own), own.shape[-1]
        before, after = self._part.shape
        noisy = self._noisy.reshape(before, own.shape[axis], after * n).swapaxes(0, 1)
        M = own.block_set.M[own.i].astype(np.float64)
        flat = solve_triangular(M, noisy.reshape(-1, n).astype(np.float64).T).T
        shaped = np.asarray(flat.reshape(own.shape[axis], -1, n))
        multiples = spread_column_multiples(self._strategy, self._cut, own, self._part)
        if multiples is not None:
            shaped = shaped / multiples[..., None]
        return self._strategy.attribute_matrices[own.own[axis]].invert(shaped, 0)


def spread_column_multiples(
    strategy: IntegerStrategy, cut: BlockParts, own: PlacedBlock, part: BlockPart
) -> IntArray | None:
    """Spread a block's multiples over the rows and columns of a part of it, (rows, columns)."""
    multiples = strategy.spread_multiples(own.block)
    if multiples is None or part.columns is None:
        return None
    axis = cut.find_axis(own)
    by_column = np.moveaxis(multiples, axis, 0).reshape(own.shape[axis], -1)
    return by_column[:, slice(*part.columns)]


class BlockEstimation:
    """The estimates of an output, from the pieces of all parts."""

    def __init__(
        self,
        strategy: IntegerStrategy,
        cut: BlockParts,
        output: int,
        pieces: Mapping[int, FloatArray],
    ) -> None:
        self._strategy, self._cut, self._pieces = strategy, cut, pieces
        self._structure = strategy.structure
        self._output = cut.outputs[output]
        self._group = self._structure.workload.position(self._output.group)
        self._factors = self._structure.find_factors(self._group)
        self._ends = dict.fromkeys(pieces, 0)
        self._group_cut = cut.find_group_cut(self._group)

    def estimate(self) -> FloatArray:
        """Add up what the blocks say; see `fitplug.families.base.estimates`."""
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
        axis = self._cut.find_axis(own)
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
