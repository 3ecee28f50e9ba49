"""Reconstruction: every group's estimates from the noisy answers of the blocks it is made of.

The estimates of group t are a sum over the blocks A in A_t: L M^-1 times A's answers, without what
their margins say, spread over the cells of the attributes in A_t - A in proportion to their
references u. Blocks have independent noise, so the variance of any linear combination is a sum over
them too. Nothing of the size of the domain is formed (docs/theory/integer-mechanism.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.families.base.block_sets import BlockSetIntegers
from fitplug.families.base.mechanism import AnswerWeights, BlockWeights
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.numeric import FloatArray, gamma, upper_solution_norms
from fitplug.workload import Factor, QueryGroup

BlockRows: TypeAlias = tuple[dict[int, FloatArray], dict[int, FloatArray]]
"""Of each block that a combination uses, its rows in the block's basis, and bounds on their errors.
"""


def find_references(
    strategy: IntegerStrategy[Structure], factors: Mapping[int, Factor | None]
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


def weigh_rows(
    strategy: BlockSetIntegers[Structure], several: Sequence[BlockRows]
) -> Iterator[BlockWeights]:
    """Weigh the answers in combinations given by their rows in the blocks' bases."""
    users: dict[int, list[int]] = {}
    for k, (rows, _) in enumerate(several):
        for block in rows:
            if block in strategy.positions:  # public totals have no noise
                users.setdefault(block, []).append(k)
    for block, those in users.items():
        M = strategy.build_block_matrix(block)
        parts = [several[k][0][block] for k in those]
        errors = np.concatenate([several[k][1][block] for k in those])
        norms = upper_solution_norms(np.concatenate(parts), M, L_error=errors)
        squares = (norms * norms).reshape(len(those), -1).sum(axis=1)
        yield those, [AnswerWeights(squares, partial(_solve_rows, M, parts))]


def _solve_rows(M: FloatArray, several: Sequence[FloatArray]) -> FloatArray:
    """Compute the weights of a block's answers in combinations with the rows (r, n), (k, r n)."""
    return np.stack([solve_triangular(M, rows.T, trans="T").ravel() for rows in several])


def find_block_rows(
    strategy: BlockSetIntegers[Structure], coefficients: Mapping[str, FloatArray]
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
            (subset,) = structure.subsets.list_attributes([block])
            part, part_error = weights, 0.0
            for axis, a in reversed(list(enumerate(factors))):
                if a in subset:
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
            multiples = strategy.spread_multiples(block, adjoint=True)
            if multiples is not None and multiples.size:
                flat = flat / multiples.reshape(-1, 1)
                part_error = part_error / int(multiples.min()) * (1 + gamma(8))
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
    sizes = [lengths.get(name, 1) for name in attributes]
    arranged = values.transpose([given.index(name) for name in names])
    repeated = tuple(i for i, n in enumerate(shape) if n < arranged.shape[i])
    return arranged.sum(axis=repeated, keepdims=True).reshape(*sizes, -1)


def _find_axes(structure: Structure, group: QueryGroup, g: int) -> tuple[list[str], list[int]]:
    """Find the names and sizes of the axes: those of A_t that it has, then those of the rows."""
    used = {f.attribute for f in group.factors}
    attributes = [
        a for a in structure.subsets.group_attributes[g] if structure.block_attributes[a] in used
    ]
    split = [structure.block_attributes[a] for a in attributes]
    # Symmetric attributes that are not in A_t have one cell, or queries of nothing.
    given = [*structure.list_row_axes(g), *(f.attribute for f in group.factors)]
    rest = [name for name in dict.fromkeys(given) if name not in split]
    symmetric = structure.symmetric
    rows = {f.attribute: f.rows for f in group.factors if f.attribute not in symmetric}
    sizes = [structure.sizes[a] for a in attributes]
    lengths = [rows.get(name, size) for name, size in zip(split, sizes, strict=True)]
    return [*split, *rest], [*lengths, *(rows.get(name, 1) for name in rest)]
