"""Reconstruction: every group's estimates from the noisy answers of the blocks it is made of.

The estimates of group t are a sum over the blocks A in A_t: L M^-1 times A's answers, without what
their margins say, spread over the cells of the attributes in A_t - A in proportion to their
references u. Blocks have independent noise, so the variance of any linear combination is a sum over
them too. Nothing of the size of the domain is formed (docs/theory/integer-mechanism.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import TablesError
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import Latest
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure, list_names
from fitplug.numeric import AnyArray, FloatArray, IntArray, upper_solution_norms
from fitplug.workload import Factor, QueryGroup

BlockRows: TypeAlias = tuple[dict[int, FloatArray], dict[int, FloatArray]]
"""Of each block that a combination uses, its rows in the block's basis, and bounds on their errors.
"""

_MOST_SPLIT = 2**24
"""The most answers of parts that are split at a time, but for the latest part."""


class Estimates(Mapping[str, AnyArray]):
    """Unbiased estimates by group, each computed when it is read; the latest are remembered.

    Args:
        parted: The strategy, of which each group is one output.
        answers: The noisy answers, and then the public totals, shape (released_size,).

    Raises:
        TablesError: If the answers are of another plan.
    """

    def __init__(self, parted: PartedStrategy, answers: IntArray) -> None:
        released_size = parted.strategy.released_size
        if answers.shape != (released_size,):
            raise TablesError(
                f"the plan measures {released_size} answers, but {answers.size} were "
                "given; they are of another plan"
            )
        self._parted, self._answers = parted, answers
        self._workload = parted.strategy.structure.workload
        self._latest = Latest()
        self._splits: dict[int, Mapping[int, AnyArray]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._workload.positions

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Estimates({list_names(self._workload.names)})"

    def __iter__(self) -> Iterator[str]:
        return iter(self._workload.names)

    def __len__(self) -> int:
        return len(self._workload.names)

    def __getitem__(self, name: str) -> FloatArray:
        g = self._workload.position(name)
        return self._latest.remember(("group", g), lambda: self._estimate_group(g))

    def _estimate_group(self, g: int) -> FloatArray:
        """Estimate the answers of a group, in its shape."""
        pieces = {part: self._split(part)[g] for part in self._parted.list_parts(g)}
        return self._parted.estimate(g, pieces, self._latest)

    def _split(self, part: int) -> Mapping[int, AnyArray]:
        """Split the answers of a part by the groups."""
        if part not in self._splits:
            sizes = self._parted.sizes
            while sizes[[part, *self._splits]].sum() > _MOST_SPLIT and self._splits:
                self._splits.pop(next(iter(self._splits)))
            own = self._answers[self._parted.place(part)]
            self._splits[part] = self._parted.split_answers(part, own)
        return self._splits[part]


def find_references(
    strategy: IntegerStrategy, factors: Mapping[int, Factor | None]
) -> dict[int, FloatArray]:
    """Find in which proportions a total is spread along each attribute.

    Args:
        strategy: The strategy.
        factors: What a group asks of each attribute; see `Structure.find_factors`.

    Returns:
        By attribute F u, shape (rows,), or the one number that all cells have.
    """
    return {
        a: np.full(1, 1 / strategy.structure.sizes[a])
        if factor is None
        else factor.apply(strategy.attribute_matrices[a].compute_reference(), 0)
        for a, factor in factors.items()
    }


def upper_block_stds(
    strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
) -> FloatArray:
    """Bound the stds; see `fitplug.families.base.strategies.upper_combined_stds`."""
    return upper_row_stds(strategy, [_find_block_rows(strategy, one) for one in combinations])


def upper_row_stds(strategy: IntegerStrategy, several: Sequence[BlockRows]) -> FloatArray:
    """Bound the stds of combinations given by their rows in the blocks' bases, shape (k,)."""
    parts: dict[int, list[int]] = {}
    for k, (rows, _) in enumerate(several):
        for block in rows:
            if block in strategy.positions:  # public totals have no noise
                parts.setdefault(block, []).append(k)
    squares = np.zeros(len(several))
    for block, those in parts.items():
        together = np.concatenate([several[k][0][block] for k in those])
        errors = np.concatenate([several[k][1][block] for k in those])
        norms = upper_solution_norms(together, strategy.build_block_matrix(block), L_error=errors)
        squares[those] += (norms * norms).reshape(len(those), -1).sum(axis=1)
    return np.asarray(np.sqrt(squares) * (1 + 1e-12))


def compute_block_covariance(
    strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
) -> FloatArray:
    """Compute the covariance; see `compute_combined_covariance`."""
    return compute_row_covariance(
        strategy, [_find_block_rows(strategy, one) for one in combinations]
    )


def compute_row_covariance(strategy: IntegerStrategy, several: Sequence[BlockRows]) -> FloatArray:
    """Compute the covariance of combinations given by their rows in the blocks' bases, (k, k)."""
    parts: dict[int, list[tuple[int, FloatArray]]] = {}
    for j, (in_blocks, _) in enumerate(several):
        for block, rows in in_blocks.items():
            if block in strategy.positions:
                parts.setdefault(block, []).append((j, rows))
    covariance = np.zeros((len(several), len(several)))
    for block, held in parts.items():
        M = strategy.build_block_matrix(block)
        # The weights of the block's answers in each combination. All answers have independent
        # noise, within a block and between blocks.
        weights = [solve_triangular(M, rows.T, trans="T").ravel() for _, rows in held]
        at = [j for j, _ in held]
        covariance[np.ix_(at, at)] += np.stack(weights) @ np.stack(weights).T
    above = upper_row_stds(strategy, several) ** 2
    covariance[np.diag_indices_from(covariance)] = np.maximum(np.diag(covariance), above)
    return covariance


def _find_block_rows(
    strategy: IntegerStrategy, coefficients: Mapping[str, FloatArray]
) -> BlockRows:
    """Find the rows of a combination in the bases of the blocks that it uses."""
    structure = strategy.structure
    number = structure.workload.positions
    rows: dict[int, FloatArray] = {}
    errors: dict[int, FloatArray] = {}
    for name, given in coefficients.items():
        g = number[name]
        weights = arrange_as_block(structure, g, given)
        factors = structure.find_factors(g)
        for axis, factor in enumerate(factors.values()):
            weights = weights if factor is None else factor.adjoint(weights, axis)
        for block in structure.subsets.find_blocks(g):
            (own,) = structure.subsets.list_attributes([block])
            part, part_error = weights, 0.0
            for axis, a in reversed(list(enumerate(factors))):
                if a in own:
                    matrix = strategy.find_matrix(a, block)
                    # No adjoint makes an entry's error more than twice as large.
                    part_error = 2 * part_error + matrix.upper_adjoint_error(part, axis)
                    part = matrix.adjoint(part, axis)
                else:
                    # tensordot puts the axis in order first: matmul strides through it, slowly.
                    reference = strategy.attribute_matrices[a].compute_reference()
                    part = np.tensordot(part, reference, (axis, 0))
            L, L_error = strategy.represent(block, g)
            flat = part.reshape(-1, part.shape[-1])
            rows[block] = rows.get(block, 0.0) + flat @ L
            errors[block] = errors.get(block, 0.0) + np.abs(flat) @ L_error + part_error
    return rows, errors


def arrange_as_group(
    structure: Structure,
    g: int,
    values: FloatArray,
    axis: int | None = None,
    output: tuple[int, ...] | None = None,
) -> FloatArray:
    """Bring values, with axes for the attributes of A_t and the rows, to the group's shape.

    Args:
        structure: The structure.
        g: The group's index in the workload.
        values: The values.
        axis: The axis of the group's shape of which the values have a range; None for all.
        output: The group's shape, with the length of that range.
    """
    group = structure.workload.groups[g]
    output = group.shape if output is None else output
    names, shape = _find_axes(structure, group, g)
    order = [names.index(f.attribute) for f in group.factors]
    if axis is not None:
        shape[order[axis]] = output[axis]
    return np.array(np.broadcast_to(values.reshape(shape).transpose(order), output))


def arrange_as_block(structure: Structure, g: int, values: FloatArray) -> FloatArray:
    """Bring values of the group's shape to those axes, summed where cells are identical."""
    group = structure.workload.groups[g]
    names, shape = _find_axes(structure, group, g)
    given = [f.attribute for f in group.factors]
    lengths = dict(zip(names, shape, strict=True))
    # An attribute that the group sums out, and that has a part in all blocks, has one row.
    attributes = (structure.block_attributes[a] for a in structure.subsets.group_attributes[g])
    own = [lengths.get(name, 1) for name in attributes]
    arranged = values.transpose([given.index(name) for name in names])
    repeated = tuple(i for i, n in enumerate(shape) if n < arranged.shape[i])
    return arranged.sum(axis=repeated, keepdims=True).reshape(*own, -1)


def _find_axes(structure: Structure, group: QueryGroup, g: int) -> tuple[list[str], list[int]]:
    """Find the names and sizes of the axes: those of A_t that it has, then those of the rows."""
    used = {f.attribute for f in group.factors}
    attributes = [
        a for a in structure.subsets.group_attributes[g] if structure.block_attributes[a] in used
    ]
    own = [structure.block_attributes[a] for a in attributes]
    # Symmetric attributes that are not in A_t have one cell, or queries of nothing.
    given = [*structure.list_row_axes(g), *(f.attribute for f in group.factors)]
    rest = [name for name in dict.fromkeys(given) if name not in own]
    symmetric = structure.symmetric
    rows = {f.attribute: f.rows for f in group.factors if f.attribute not in symmetric}
    sizes = [structure.sizes[a] for a in attributes]
    lengths = [rows.get(name, size) for name, size in zip(own, sizes, strict=True)]
    return [*own, *rest], [*lengths, *(rows.get(name, 1) for name in rest)]
