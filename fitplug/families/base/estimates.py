"""Reconstruction: every group's estimates from the noisy answers of its blocks.

The estimates of group t are a sum over the blocks A in A_t: L M^-1 times A's answers, which hold no
margin, spread over the cells of the attributes in A_t - A in proportion to their references u.
Blocks have independent noise, so the variance of any linear combination is a sum over them too.
Nothing of the size of the domain is formed (docs/theory/integer-mechanism.md).

**Combinations of large groups** have coefficients that are sums of products along the axes. Each
such product is a box. The weights of a block's answers are products too: one vector along each
attribute, computed from the box's factor there. Along each attribute that blocks are made of, the
vectors of all boxes span few directions. Norms and inner products do not change when the vectors
are replaced by their coordinates in an orthonormal basis of these. So a combination needs arrays as
long as the number of directions, never the number of cells.

Each vector along an axis carries a bound on its error from the adjoint and the change of basis.
These bounds enter the standard deviations' as errors of rows (`upper_solution_norms`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import WorkloadError
from fitplug.families.base.attribute_matrices import AttributeMatrix, spread_table
from fitplug.families.base.block_sets import BlockSetIntegers
from fitplug.families.base.mechanism import AnswerWeights, BlockWeights, Products
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.numeric import FloatArray, IntArray, gamma, upper_norm, upper_solution_norms
from fitplug.workload import Factor, QueryGroup

BlockRows: TypeAlias = tuple[dict[int, FloatArray], dict[int, FloatArray]]
"""By block that a combination uses: its rows in the block's basis, and bounds on their errors."""


def find_references(
    strategy: IntegerStrategy[Structure], factors: Mapping[int, Factor | None]
) -> dict[int, FloatArray]:
    """Find the proportions in which a total is spread along each attribute.

    Args:
        strategy: The strategy.
        factors: A group's factors, by attribute; see `Structure.find_factors`.

    Returns:
        By attribute, F u, shape (rows,), or the one number that all cells share, shape (1,).
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
    """Find the answers' weights in combinations given by their rows in the blocks' bases."""
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
    """Compute a block's answer weights, shape (k, r n), in k combinations with rows (r, n)."""
    return np.stack([solve_triangular(M, rows.T, trans="T").ravel() for rows in several])


def find_block_rows(
    strategy: BlockSetIntegers[Structure], coefficients: Mapping[str, FloatArray]
) -> BlockRows:
    """Find a combination's rows in the bases of the blocks that it uses."""
    structure = strategy.structure
    number = structure.workload.groups.positions
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
                    # tensordot first makes the axis contiguous; matmul would stride through it
                    # slowly.
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
        axis: The axis of the group's shape along which the values are a range; None for all.
        output: The group's shape with the range's length along that axis.
    """
    group = structure.workload.groups[g]
    output = group.shape if output is None else output
    names, shape = _find_axes(structure, group, g)
    order = [names.index(f.attribute) for f in group.factors]
    if axis is not None:
        shape[order[axis]] = output[axis]
    return np.array(np.broadcast_to(values.reshape(shape).transpose(order), output))


def arrange_as_block(structure: Structure, g: int, values: FloatArray) -> FloatArray:
    """Bring values of the group's shape to the axes of A_t and the rows; sum identical cells."""
    group = structure.workload.groups[g]
    names, shape = _find_axes(structure, group, g)
    given = [f.attribute for f in group.factors]
    lengths = dict(zip(names, shape, strict=True))
    # An attribute that the group sums out, but that is in all blocks, has one row.
    attributes = (structure.block_attributes[a] for a in structure.subsets.group_attributes[g])
    sizes = [lengths.get(name, 1) for name in attributes]
    arranged = values.transpose([given.index(name) for name in names])
    repeated = tuple(i for i, n in enumerate(shape) if n < arranged.shape[i])
    return arranged.sum(axis=repeated, keepdims=True).reshape(*sizes, -1)


def _find_axes(structure: Structure, group: QueryGroup, g: int) -> tuple[list[str], list[int]]:
    """Find the names and sizes of a group's axes: first those in A_t, then those of the rows."""
    used = {f.attribute for f in group.factors}
    attributes = [
        a for a in structure.subsets.group_attributes[g] if structure.block_attributes[a] in used
    ]
    split = [structure.block_attributes[a] for a in attributes]
    # Symmetric attributes outside A_t have one cell, or belong to groups that ask nothing.
    given = [*structure.list_row_axes(g), *(f.attribute for f in group.factors)]
    rest = [name for name in dict.fromkeys(given) if name not in split]
    symmetric = structure.symmetric
    rows = {f.attribute: f.rows for f in group.factors if f.attribute not in symmetric}
    sizes = [structure.sizes[a] for a in attributes]
    lengths = [rows.get(name, size) for name, size in zip(split, sizes, strict=True)]
    return [*split, *rest], [*lengths, *(rows.get(name, 1) for name in rest)]


_MOST_DIRECTIONS = 2**14
"""The largest product of the numbers of directions along the axes of a block."""


class Coordinates(NamedTuple):
    """The coordinates of the vectors of some boxes along an axis.

    Attributes:
        values: Shape (boxes, directions).
        errors: Bounds on the norms of the errors of the vectors, shape (boxes,).
        grades: The grade of each direction's rows, shape (directions,).
    """

    values: FloatArray
    errors: FloatArray
    grades: IntArray


class Boxes:
    """The boxes of some combinations, and their coordinates along each attribute.

    Args:
        strategy: The strategy.
        combinations: The combinations. All their boxes get coordinates in the same directions.
    """

    def __init__(
        self, strategy: IntegerStrategy[Structure], combinations: Sequence[Products]
    ) -> None:
        self._strategy = strategy
        structure = strategy.structure
        positions = structure.workload.groups.positions
        listed = [
            (k, positions[name], product)
            for k, one in enumerate(combinations)
            for name, products in one.items()
            for product in products
            if product.weight
        ]
        self.combination = [k for k, _, _ in listed]
        self.group = [g for _, g, _ in listed]
        self.weight = [product.weight for _, _, product in listed]
        self._factors = [
            {
                factor.attribute: interval
                for factor, interval in zip(
                    structure.workload.groups[g].factors, product.factors, strict=True
                )
            }
            for _, g, product in listed
        ]
        self._measured: dict[tuple[int, int, tuple[int, ...]], Coordinates] = {}
        self._dense: dict[tuple[int, int], FloatArray] = {}

    def find_users(self, groups: Sequence[int]) -> list[int]:
        """Return the numbers of the boxes of some groups."""
        asked = set(groups)
        return [j for j, g in enumerate(self.group) if g in asked]

    def find_coordinates(
        self,
        block: int,
        attributes: Sequence[int],
        boxes: Sequence[int],
        multiples: IntArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Find the coordinates of boxes in the rows of a block.

        Args:
            block: The block.
            attributes: The attributes that the block is made of.
            boxes: The numbers of the boxes.
            multiples: The block's factors for the answers of each tuple of grades.

        Returns:
            The coordinates (boxes, directions), and bounds on the norms of their errors, (boxes,).

        Raises:
            WorkloadError: If there are too many directions.
        """
        values, norms = np.ones((len(boxes), 1)), np.ones(len(boxes))
        bounds = np.ones(len(boxes))
        measured = [self._measure(a, block, boxes) for a in attributes]
        for along in measured:
            if values.shape[1] * along.values.shape[1] > _MOST_DIRECTIONS:
                raise WorkloadError(
                    f"the expression adds up too many selections ({len(boxes)}) for an exact std. "
                    "Split the expression."
                )
            values = (values[:, :, None] * along.values[:, None, :]).reshape(len(boxes), -1)
            norm = upper_norm(along.values, axis=1)
            norms, bounds = norms * norm, bounds * (norm + along.errors)
        # The product of perturbed vectors minus the vectors' product, and the products' rounding.
        errors = bounds * (1 + gamma(8)) - norms + bounds * gamma(8 * (len(attributes) + 2))
        if multiples is not None:
            errors = errors / int(multiples.min()) * (1 + gamma(8))
            values = values / spread_table(multiples, [one.grades for one in measured]).ravel()
        return values, np.maximum(errors, 0.0)

    def list_rest(self, box: int, subset: Sequence[int]) -> tuple[IntArray, FloatArray]:
        """List a box's coefficients over the rows of its group, without the blocks' axes.

        Args:
            box: The number of the box.
            subset: The attributes that the block is made of. The group's other attributes
                contribute the shares in their references.

        Returns:
            Positions among the group's rows, in the order of the structure's matrices, and values.
        """
        structure = self._strategy.structure
        g, factors = self.group[box], self._factors[box]
        positions, values = np.zeros(1, dtype=np.int64), np.full(1, self.weight[box])
        rows = {f.attribute: f.rows for f in structure.workload.groups[g].factors}
        attributes = structure.subsets.group_attributes[g]
        for a in attributes:
            if a not in subset:
                matrix = self._strategy.attribute_matrices[a]
                values = values * float(self._spread(a, box) @ matrix.compute_reference())
        split = {structure.block_attributes[a] for a in attributes}
        axes = structure.list_row_axes(g)
        for name in dict.fromkeys([*axes, *factors]):
            if name in split:
                continue
            at, coefficients = factors[name]
            if name in structure.symmetric:  # its rows are identical
                values = values * coefficients.sum()
                continue
            positions = np.add.outer(positions * rows[name], at).ravel()
            values = np.multiply.outer(values, coefficients).ravel()
        return positions, values

    def _measure(self, attribute: int, block: int, boxes: Sequence[int]) -> Coordinates:
        """Compute E' w of the vectors w of boxes along an attribute that a block is made of."""
        matrix = self._strategy.find_matrix(attribute, block)
        key = attribute, id(matrix), tuple(boxes)
        if key not in self._measured:
            coordinates = _find_coordinates(matrix, [self._spread(attribute, j) for j in boxes])
            self._measured[key] = coordinates
        return self._measured[key]

    def _spread(self, attribute: int, box: int) -> FloatArray:
        """Return the coefficients of a box over the cells of an attribute, shape (n,)."""
        key = attribute, box
        if key not in self._dense:
            structure = self._strategy.structure
            factor = structure.find_factors(self.group[box])[attribute]
            name = structure.block_attributes[attribute]
            if name in self._factors[box]:
                at, coefficients = self._factors[box][name]
                rows = structure.sizes[attribute] if factor is None else factor.rows
                vector = np.zeros(rows)
                vector[at] = coefficients
            else:  # the group sums it out
                vector = np.ones(1)
            self._dense[key] = vector if factor is None else factor.adjoint(vector, 0)
        return self._dense[key]


def find_boxed_rows(
    strategy: BlockSetIntegers[Structure], combinations: Sequence[Products]
) -> list[BlockRows]:
    """Find the rows of combinations in the bases of the blocks that they use.

    A block's rows are along the same directions in all combinations. Its last row carries what
    errors may add in all other directions.
    """
    boxes = Boxes(strategy, combinations)
    structure = strategy.structure
    rows_and_errors: list[BlockRows] = [({}, {}) for _ in combinations]
    used = dict.fromkeys(
        block for g in dict.fromkeys(boxes.group) for block in structure.subsets.find_blocks(g)
    )
    for block in used:
        users = boxes.find_users(structure.subsets.find_groups(block)[0].tolist())
        (subset,) = structure.subsets.list_attributes([block])
        coordinates, off = boxes.find_coordinates(
            block, subset, users, strategy.find_multiples(block)
        )
        for j, coordinate, error in zip(users, coordinates, off.tolist(), strict=True):
            rows, errors = rows_and_errors[boxes.combination[j]]
            L, L_error = strategy.represent(block, boxes.group[j])
            positions, values = boxes.list_rest(j, subset)
            vector = values @ L[positions]
            vector_error = np.abs(values) @ L_error[positions]
            vector_error += gamma(len(values) + 16) * (np.abs(values) @ upper_norm(L[positions], 1))
            size = float(np.sqrt(vector @ vector)) * (1 + gamma(len(vector) + 8)) + vector_error
            if block not in rows:
                rows[block] = np.zeros((len(coordinate) + 1, len(vector)))
                errors[block] = np.zeros(len(coordinate) + 1)
            rows[block][:-1] += np.outer(coordinate, vector)
            # For each row, and once more for all directions without a row together.
            direction_error = vector_error + gamma(len(users) + 4) * size
            errors[block][:-1] += np.abs(coordinate) * direction_error
            errors[block] += error * size * (1 + gamma(16))
    return rows_and_errors


def _find_coordinates(matrix: AttributeMatrix, vectors: Sequence[FloatArray]) -> Coordinates:
    """Find the coordinates of the vectors E' w in an orthonormal basis of their span."""
    stacked = np.stack(vectors)
    distinct, inverse = np.unique(stacked, axis=0, return_inverse=True)
    inverse = inverse.ravel()
    adjoint = matrix.adjoint(distinct, 1)
    norms = upper_norm(adjoint, axis=1)
    k, n = adjoint.shape
    grades = np.zeros(n, dtype=np.int64) if matrix.grades is None else matrix.grades.adjoint
    largest = upper_norm(distinct, axis=1) * _upper_adjoint_norm(matrix)
    errors = gamma(distinct.shape[1] + 64) * np.maximum(norms, largest)
    errors = errors + math.sqrt(n) * np.array(
        [matrix.upper_adjoint_error(row, 0) for row in distinct]
    )
    if k < n:
        # Householder's method: each computed column is exact up to an error of this size relative
        # to the column's norm (Higham, Accuracy and Stability, theorem 19.4).
        labels, sizes = np.unique(grades, return_counts=True)
        parts = [
            np.asarray(np.linalg.qr(adjoint[:, grades == label].T, mode="r")).T
            if k < size
            else adjoint[:, grades == label]
            for label, size in zip(labels.tolist(), sizes.tolist(), strict=True)
        ]
        adjoint = np.concatenate(parts, axis=1)
        grades = np.repeat(labels, [part.shape[1] for part in parts])
        errors = errors + 8 * k * gamma(n * k + 64) * norms
    return Coordinates(adjoint[inverse], errors[inverse], grades)


def _upper_adjoint_norm(matrix: AttributeMatrix) -> float:
    """Bound the norm of E for a symmetric attribute; 0 for others, where it is not known.

    If a vector's entries are nearly equal, the rounding of its contrasts scales with the vector.
    """
    if not matrix.is_symmetric:
        return 0.0
    precision = matrix.column_square / (1 - 1 / matrix.n) if matrix.n > 1 else 1.0
    return 1.0 / math.sqrt(precision) * (1 + gamma(16))
