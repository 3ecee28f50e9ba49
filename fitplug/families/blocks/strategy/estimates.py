"""Estimates of block sets in parts: from noisy answers through pieces to outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.domain import get_shape
from fitplug.families.base.block_sets import BlockSetIntegers
from fitplug.families.base.estimates import arrange_as_group, find_references
from fitplug.families.base.pieces import Latest, Output
from fitplug.families.blocks.strategy.cuts import BlockCut, BlockPart, PlacedBlock
from fitplug.numeric import AnyArray, FloatArray, IntArray


class BlockAnswerSplit:
    """The pieces of a part's noisy answers."""

    def __init__(self, cut: BlockCut, part: int, noisy: IntArray) -> None:
        self._strategy, self._cut, self._noisy = cut.strategy, cut, noisy
        self._part = cut.parts[part]
        self._estimates = Latest()
        self._of_group: tuple[int, dict[int, FloatArray]] = (-1, {})

    def list_outputs(self) -> list[int]:
        """List the outputs that need the part, ascending."""
        subsets = self._strategy.structure.subsets
        groups: set[int] = set()
        for block in self._cut.blocks[self._part.first : self._part.last]:
            groups.update(subsets.find_groups(block.block)[0].tolist())
        return [o for g in sorted(groups) for o in self._cut.outputs_of_group[g]]

    def make_piece(self, output: int) -> FloatArray:
        """Make the piece of an output."""
        structure = self._strategy.structure
        cut_output = self._cut.outputs[output]
        g = structure.workload.groups.find_position(cut_output.group)
        ranges = []
        for k in self._cut.list_positions(g):
            if self._part.first <= k < self._part.last:
                values, axis = self._read_block(k, g)
                ranges.append(take_range(values, axis, cut_output).ravel())
        return np.concatenate(ranges)

    def _read_block(self, k: int, g: int) -> tuple[FloatArray, int | None]:
        """Compute the values of a block that a group needs, and the axis that outputs cut."""
        block = self._cut.blocks[k]
        applied = self._cut.find_applied(block.block, g)
        if applied is None:
            return self._estimate_block(k), None
        axis = block.attributes.index(applied) if self._part.columns is None else 0
        values = self._apply_factor(k, g, applied, axis)
        return values, axis if applied == self._cut.group_cuts[g] else None

    def _apply_factor(self, k: int, g: int, attribute: int, axis: int) -> FloatArray:
        """Multiply a block's estimates by a group's factor of an attribute."""
        if self._of_group[0] != g:
            self._of_group = g, {}
        latest = self._of_group[1]
        if k not in latest:
            factor = self._strategy.structure.find_factors(g)[attribute]
            estimates = self._estimate_block(k)
            latest[k] = estimates if factor is None else factor.apply(estimates, axis)
        return latest[k]

    def _estimate_block(self, k: int) -> FloatArray:
        """Estimate B x of a block apart from its margins; for columns, along one attribute only."""
        block = self._cut.blocks[k]
        if self._part.columns is not None:
            return self._estimates.remember(k, lambda: self._invert_columns(block))
        start = block.start - self._cut.blocks[self._part.first].start
        answers = self._noisy[start : start + block.size].reshape(block.shape)
        estimate = partial(self._strategy.estimate_block, block.block_set, block.i, answers)
        return self._estimates.remember(k, estimate)

    def _invert_columns(self, block: PlacedBlock) -> FloatArray:
        """Invert M and the largest attribute's matrix on columns, (cells, columns, n)."""
        axis, n = self._cut.find_axis(block), block.shape[-1]
        before, after = self._part.shape
        noisy = self._noisy.reshape(before, block.shape[axis], after * n).swapaxes(0, 1)
        M = block.block_set.M[block.i].astype(np.float64)
        flat = solve_triangular(M, noisy.reshape(-1, n).astype(np.float64).T).T
        shaped = np.asarray(flat.reshape(block.shape[axis], -1, n))
        multiples = spread_column_multiples(self._cut, block, self._part)
        if multiples is not None:
            shaped = shaped / multiples[..., None]
        return self._strategy.find_matrix(block.attributes[axis], block.block).invert(shaped, 0)


def spread_column_multiples(cut: BlockCut, block: PlacedBlock, part: BlockPart) -> IntArray | None:
    """Spread a block's factors for grades over a part of its columns, (rows, columns)."""
    multiples = cut.strategy.spread_multiples(block.block)
    if multiples is None or part.columns is None:
        return None
    axis = cut.find_axis(block)
    by_column = np.moveaxis(multiples, axis, 0).reshape(block.shape[axis], -1)
    return by_column[:, slice(*part.columns)]


class BlockTotalsSplit:
    """The pieces of the public totals: for each block that they answer, without its margins."""

    def __init__(self, cut: BlockCut, totals: IntArray) -> None:
        self._strategy, self._cut = cut.strategy, cut
        self._public = cut.strategy.structure.public_attributes or ()
        domain = cut.strategy.structure.workload.domain
        self._totals = totals.reshape(get_shape(domain, self._public))
        self._sums = Latest()

    def make_piece(self, output: int) -> FloatArray:
        """Make the piece of an output."""
        structure = self._strategy.structure
        cut_output = self._cut.outputs[output]
        g = structure.workload.groups.find_position(cut_output.group)
        ranges = [np.zeros(0)]
        for block in self._cut.list_public(g):
            values = self._sums.remember(
                block, partial(sum_totals, self._strategy, self._totals, self._public, block)
            )
            applied, axis = self._cut.find_applied(block, g), None
            if applied is not None:
                axis = structure.subsets.list_attributes([block])[0].index(applied)
                factor = structure.find_factors(g)[applied]
                values = values if factor is None else factor.apply(values, axis)
            is_cut = applied == self._cut.group_cuts[g]
            ranges.append(take_range(values, axis if is_cut else None, cut_output).ravel())
        return np.concatenate(ranges)


def sum_totals(
    strategy: BlockSetIntegers[Any], totals: AnyArray, public: Sequence[str], block: int
) -> FloatArray:
    """Sum the public totals to a block's attributes, apart from the block's margins.

    Args:
        strategy: The strategy.
        totals: The public totals, with an axis for each of `public`.
        public: Their attributes.
        block: A block that they answer, wholly or partly.

    Returns:
        An axis for each attribute of the block, and a last one for the regions.
    """
    structure = strategy.structure
    values, names = totals.astype(np.float64), structure.name_attributes(block)
    summed = [n for n in public if n in structure.block_attributes and n not in names]
    values = values.sum(axis=tuple(public.index(name) for name in summed))
    left = [name for name in public if name not in summed]
    values = np.moveaxis(values, [left.index(name) for name in names], range(len(names)))
    for axis, name in enumerate(names):
        matrix = strategy.attribute_matrices[structure.block_attributes.index(name)]
        spread = matrix.compute_reference().reshape(-1, *(1,) * (values.ndim - axis - 1))
        values = values - values.sum(axis=axis, keepdims=True) * spread
    return np.asarray(values.reshape(*values.shape[: len(names)], -1))


def take_range(values: FloatArray, axis: int | None, output: Output) -> FloatArray:
    """Take an output's range along an axis; everything if there is no axis."""
    if axis is None:
        return values
    return values[(slice(None),) * axis + (slice(output.start, output.stop),)]


class BlockEstimation:
    """The estimates of an output, from the pieces of all parts."""

    def __init__(self, cut: BlockCut, output: int, pieces: Mapping[int, FloatArray]) -> None:
        self._strategy, self._cut, self._pieces = cut.strategy, cut, pieces
        self._structure = cut.strategy.structure
        self._output = cut.outputs[output]
        self._group = self._structure.workload.groups.find_position(self._output.group)
        self._factors = self._structure.find_factors(self._group)
        self._ends = dict.fromkeys(pieces, 0)
        self._group_cut = cut.group_cuts[self._group]
        blocks = self._structure.subsets.find_blocks(self._group)
        attributes = self._structure.subsets.list_attributes(blocks)
        self._attributes = dict(zip(blocks, attributes, strict=True))

    def estimate(self) -> FloatArray:
        """Add up the blocks' contributions; see `fitplug.families.base.estimates`."""
        g = self._group
        references = find_references(self._strategy, self._factors)
        cut, chosen = self._group_cut, slice(self._output.start, self._output.stop)
        if cut is not None and len(references[cut]) > 1:
            references[cut] = references[cut][chosen]
        m = len(self._factors)
        spread = {
            a: reference.reshape(-1, *(1,) * (m - axis))
            for axis, (a, reference) in enumerate(references.items())
        }
        # Pieces have their blocks in the order of positions; the totals' piece, in the group's.
        blocks = (self._cut.blocks[k].block for k in self._cut.list_positions(g))
        noisy = {block: self._gather(block) for block in blocks}
        known = {block: self._gather_totals(block) for block in self._cut.list_public(g)}
        total: FloatArray | float = 0.0
        for block, attributes in self._attributes.items():
            part = self._estimate_rows(block, noisy.pop(block, None), known.pop(block, None))
            applied = self._cut.find_applied(block, g)
            if len(attributes) < m:
                part = part[tuple(slice(None) if a in attributes else None for a in spread)]
            for axis, (a, factor) in enumerate(self._factors.items()):
                if a not in attributes:
                    part = part * spread[a]
                elif factor is not None and a != applied:
                    part = factor.apply(part, axis)
            total = total + part
        return arrange_as_group(
            self._structure, g, np.asarray(total), self._output.axis, self._output.shape
        )

    def _estimate_rows(
        self, block: int, noisy: FloatArray | None, known: FloatArray | None
    ) -> FloatArray:
        """Estimate a block's contribution to the rows of the group, before it is spread.

        Args:
            block: The block.
            noisy: The block's estimates, if it is measured.
            known: The block's public totals, if it has any.

        Returns:
            An axis for each attribute of the block, and a last one for the rows.
        """
        public = self._structure.find_public(block, self._group)
        if noisy is None:
            assert known is not None
            assert public is not None
            return np.asarray(known @ public.T)
        estimates = noisy @ self._strategy.represent(block, self._group)[0].T
        if known is None or public is None:
            return np.asarray(estimates)
        return np.asarray(known @ public.T + estimates)

    def _find_rows(self, block: int) -> list[int]:
        """Find the length of a block's pieces along each of its attributes."""
        attributes = self._attributes[block]
        rows = [self._structure.sizes[a] for a in attributes]
        applied = self._cut.find_applied(block, self._group)
        if applied is not None:
            factor, axis = self._factors[applied], attributes.index(applied)
            rows[axis] = rows[axis] if factor is None else factor.rows
            if applied == self._group_cut:
                rows[axis] = self._output.stop - self._output.start
        return rows

    def _gather_totals(self, block: int) -> FloatArray:
        """Gather a block's public totals, apart from its margins."""
        public = self._structure.find_public(block, self._group)
        assert public is not None
        return self._take(len(self._cut.parts), (*self._find_rows(block), public.shape[1]))

    def _gather(self, block: int) -> FloatArray:
        """Gather a block's estimates from its parts."""
        k = self._cut.position[block]
        placed, parts = self._cut.blocks[k], self._cut.parts_of_block[k]
        cells, n = self._find_rows(block), placed.shape[-1]
        if self._cut.parts[parts[0]].columns is None:
            return self._take(parts[0], (*cells, n))
        axis = self._cut.find_axis(placed)
        rows = cells[axis]
        columns = [self._cut.parts[p].columns for p in parts]
        estimates = np.concatenate(
            [
                self._take(p, (rows, pair[1] - pair[0], n))
                for p, pair in zip(parts, columns, strict=True)
                if pair is not None
            ],
            axis=1,
        )
        measured = [placed.shape[i] for i in range(len(placed.attributes)) if i != axis]
        estimates = np.moveaxis(estimates.reshape(rows, *measured, n), 0, axis)
        for other, a in enumerate(placed.attributes):
            if other != axis:
                estimates = self._strategy.find_matrix(a, block).invert(estimates, other)
        return estimates

    def _take(self, part: int, shape: Sequence[int]) -> FloatArray:
        """Take the next numbers of a part's piece."""
        start = self._ends[part]
        self._ends[part] = start + math.prod(shape)
        return np.asarray(self._pieces[part][start : self._ends[part]].reshape(shape))
