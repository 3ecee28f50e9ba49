"""Strategies of siblings: the unfolded workload's, over the tables of the workload itself.

An unfolded table's counts of records below other parents are never used, so each block reads only
the cells below its own parents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.domain import get_shape
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.mechanism import (
    BlockCovariance,
    BlockWeights,
    MeasuredBlock,
    Product,
    Products,
    StrategyCost,
)
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import PART
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.strategy.differences import PairStrategy
from fitplug.families.blocks.strategy.matrices import MatrixStrategy
from fitplug.families.siblings.shape import SiblingStructure
from fitplug.families.siblings.strategy.parts import SiblingParts, list_read_blocks
from fitplug.numeric import AnyArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class SiblingStrategy(IntegerStrategy[SiblingStructure]):
    """The strategies of `SiblingStructure`.

    Attributes:
        unfolded: The strategy of the unfolded workload, whose claims are not used.
    """

    unfolded: MatrixStrategy[Any]

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        return self.unfolded.compute_record_cost(claimed)

    def upper_record_variances(self) -> FloatArray:
        return self.unfolded.upper_record_variances()[self.structure.unfolded_rows]

    def describe_blocks(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        return self.unfolded.describe_blocks()

    @classmethod
    def read_blocks(
        cls, structure: Structure, header: Mapping[str, Any], arrays: Mapping[str, AnyArray]
    ) -> dict[str, Any]:
        assert isinstance(structure, SiblingStructure)
        unfolded, empty = structure.unfolded, np.zeros(0)
        blocks = MatrixStrategy.read_blocks(unfolded, header, arrays)
        contrasts = make_contrasts(unfolded)
        kind: Any = PairStrategy if isinstance(unfolded, PairStructure) else MatrixStrategy
        return {"unfolded": kind(unfolded, contrasts, 0, empty, empty, 0, **blocks)}

    def check_blocks(self) -> None:
        self.unfolded.check_form()

    @property
    def widths(self) -> Sequence[tuple[IntArray, int]]:
        return self.unfolded.widths

    @property
    def size(self) -> int:
        return self.unfolded.size

    @property
    def column_height(self) -> int:
        return self.unfolded.column_height

    def list_block_tables(self) -> list[tuple[str, ...]]:
        order = self.structure.workload.domain.ordered
        blocks = list_read_blocks(self.structure, self.unfolded)
        names = (order(reading.names) for block in blocks for reading in block.readings)
        return list(dict.fromkeys(names))

    def cut(self, most: int = PART) -> PartedStrategy:
        return SiblingParts(self.structure, self.unfolded, self.list_tables(), most)

    def weigh_arrays(
        self, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> Iterator[BlockWeights]:
        yield from self.unfolded.weigh_arrays([self._unfold_arrays(one) for one in combinations])

    def weigh_products(self, combinations: Sequence[Products]) -> Iterator[BlockWeights]:
        yield from self.unfolded.weigh_products(
            [self._unfold_products(one) for one in combinations]
        )

    def _unfold_arrays(self, given: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """Divide coefficients of groups among their parts."""
        structure, groups = self.structure, self.structure.unfolded.workload.groups
        return {
            groups.names[part.group]: values[part.place].reshape(groups[part.group].shape)
            for name, values in given.items()
            for part in structure.parts[structure.workload.groups.find_position(name)]
            if values[part.place].any()
        }

    def _unfold_products(self, given: Products) -> dict[str, list[Product]]:
        """Divide products of groups among their parts."""
        structure, one = self.structure, (np.zeros(1, dtype=np.int64), np.ones(1))
        unfolded: dict[str, list[Product]] = {}
        for name, products in given.items():
            for part in structure.parts[structure.workload.groups.find_position(name)]:
                for product in products:
                    factors = []
                    for axis, (at, values) in enumerate(product.factors):
                        place = part.place[axis]
                        inside = (at >= place.start) & (at < place.stop)
                        below = at[inside] - place.start, values[inside]
                        is_parent = axis in part.parents and place.stop - place.start > 1
                        factors += [one, below] if is_parent else [below]
                    if all(len(at) for at, _ in factors):
                        names = structure.unfolded.workload.groups.names
                        weighted = Product(product.weight, tuple(factors))
                        unfolded.setdefault(names[part.group], []).append(weighted)
        return unfolded

    @property
    def cell_attributes(self) -> tuple[str, ...]:
        return self.structure.asymmetric

    def list_measured(self) -> Iterator[MeasuredBlock]:
        for block, rows in self.unfolded.list_measured():
            number, children = self._find_children(block)
            yield number, self._spread(rows, children)

    def list_covariances(self, noise_std: float) -> Iterator[BlockCovariance]:
        for block, basis, covariance in self.unfolded.list_covariances(noise_std):
            number, children = self._find_children(block)
            independent = {}
            for name, (a, parent, A) in reversed(children.items()):
                # All rows but one are independent, or the matrix has only these.
                independent[name] = a, parent, A[: A.shape[1] - 1]
                inverse = self.unfolded.attribute_matrices[a].invert(np.eye(len(A)), 0)
                estimates = independent[name][2] @ inverse
                covariance = np.asarray(np.kron(estimates @ estimates.T, covariance))
            yield number, self._spread(basis, independent), covariance

    def _find_children(self, block: int) -> tuple[int, dict[str, tuple[int, int, IntArray]]]:
        """Find the symmetric attributes' block to which an unfolded block belongs, and its
        children.

        Returns:
            The block of the structure; and by hierarchy, the children's attribute, their parent,
            and the integer matrix that measures them, shape (rows, k).
        """
        structure, matrices = self.structure, self.unfolded.attribute_matrices
        (subset,) = structure.unfolded.subsets.list_attributes([block])
        children: dict[str, tuple[int, int, IntArray]] = {}
        symmetric = []
        for a in subset:
            name, parent = structure.find_parent(a)
            if parent is None:
                symmetric.append(a)
                continue
            k = structure.unfolded.sizes[a]
            children[name] = a, parent, matrices[a].apply(np.eye(k, dtype=np.int64), 0)
        blocks = structure.subsets.list_attributes(np.arange(len(structure.blocks)))
        return blocks.index(tuple(symmetric)), children

    def _spread(
        self, rows: AnyArray, children: Mapping[str, tuple[int, int, IntArray]]
    ) -> AnyArray:
        """Expand rows (n, D) over parents' cells, times rows of children, to rows over all
        cells."""
        structure = self.structure
        unfolded = structure.unfolded
        cells = rows.reshape(1, len(rows), *get_shape(unfolded.workload.domain, unfolded.dense))
        for axis, name in enumerate(structure.dense, 2):
            if name not in structure.by_name:
                continue
            one = structure.by_name[name]
            cells = cells.take(one.leaf_parents, axis)
            if name in children:
                _, parent, A = children[name]
                below = np.flatnonzero(one.leaf_parents == parent)
                H = np.zeros((len(A), len(one.nodes)), dtype=A.dtype)
                H[:, below] = A[:, one.nodes[below] - one.starts[parent]]
                shape = [1] * (cells.ndim + 1)
                shape[1], shape[axis + 1] = H.shape
                cells = cells[:, None] * H.reshape(shape)
                cells = cells.reshape(-1, *cells.shape[2:])
        return cells.reshape(len(cells) * len(rows), -1)
