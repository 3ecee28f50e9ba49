"""The product family: several asymmetric attributes whose product is too large.

Every attribute a of n cells has a reference u_a (1'u_a = 1) and covariances C_ak on its contrasts
(C_ak 1 = 0) with precisions Y_ak (Y_ak u_a = 0), one for each of its grades k = 1 to K_a. For the
subsets A of the groups' attributes, and the tuples k of grades of the attributes in A,

    profile(i) = sum_A sum_k z_k^-1 prod_{a in A} eta_ak(i_a)                   eta = diag Y
    variance(S, j)
        = sum_{A in S} sum_k z_k prod_{a in A} gamma_ak(j_a) prod_{a in S - A} mu_a(j_a)^2

with gamma = w'C_ak w and mu = w'u_a of a factor's row w. Nothing has the size of the product: with
K_a = 1 the largest profile is at the largest eta_a. A symmetric attribute has u = 1/n, K = 1 and C
= I - J/n. Other covariances may be better, by at most the certified gap
(docs/theory/product-family.md).

Where neighbours replace a record, the family serves workloads with too many cells to consider all
pairs. Public totals answer the blocks within the attributes that the unit keeps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fitplug.domain import suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.periods import PeriodStructure
from fitplug.families.base.structure import TWO_CHANGES, Structure, list_names
from fitplug.families.base.tree_shape import TreeShape, find_tree_levels
from fitplug.families.base.workload_subsets import find_workload_subsets
from fitplug.families.blocks.shape.moves import list_sets, select_members
from fitplug.families.product.shape.batches import BatchedGroups, batch_groups
from fitplug.families.product.shape.grades import (
    AttributeGrades,
    find_grades,
    find_tree,
    leave_undivided,
)
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property, to_positions
from fitplug.workload import ONE_RECORD

MAX_ROWS = 20_000_000
"""The most rows of a structure of the product family."""

MAX_FACTORS = 1e10
"""The largest sum of r n min(r, n) over the factors (r, n) of asymmetric attributes: about a minute
for singular values."""


@dataclass(frozen=True, eq=False)
class ProductStructure(Structure):
    """Blocks over the subsets of all attributes, each a number z_k for each tuple k of grades.

    Attributes:
        graded: Whether attributes may have several grades.
    """

    graded: bool = True

    def __str__(self) -> str:
        split = f"{len(self.asymmetric)} attributes split ({list_names(self.asymmetric)})"
        return f"{split}: the best of the product family, {len(self.blocks):,} blocks"

    @property
    def block_attributes(self) -> tuple[str, ...]:
        return self.workload.attributes

    @property
    def dense(self) -> tuple[str, ...]:
        return ()

    @property
    def names_in_files(self) -> Mapping[str, tuple[str, ...]]:
        return {"dense": (), "ordered": self.asymmetric}

    @property
    def holds_optimum(self) -> bool:
        return False

    @property
    def remedy(self) -> str:
        names = self.asymmetric
        fewer = "" if len(names) == 1 else f"ask for fewer of {list_names(names)} together, or "
        return f"for the optimum, {fewer}use {suggest_fewer_cells(self.workload.domain, names)}"

    def check_size(self) -> None:
        domain, names = self.workload.domain, self.asymmetric
        if self.rows > MAX_ROWS:
            raise WorkloadError(
                f"the workload has {self.rows:,} queries on {', '.join(names)}; the limit is "
                f"{MAX_ROWS:,}. Use {suggest_fewer_cells(domain, names)}."
            )
        if (work := self._estimate_work()) > MAX_FACTORS:
            raise WorkloadError(
                f"the design for {', '.join(names)} would take {work:.1e} operations per "
                f"iteration; the limit is {MAX_FACTORS:.0e}. Use "
                f"{suggest_fewer_cells(domain, names)}."
            )

    def build_block_matrix(self, block: int) -> FloatArray:
        return np.ones((1, 1))

    def find_rows(self, block: int, group: int) -> slice:
        return slice(0, 1)

    @frozen_property
    def batched(self) -> BatchedGroups:
        """The groups, in batches whose tables have equal shapes."""
        undivided = (leave_undivided(self.subsets),) * len(self.block_attributes)
        return batch_groups(self, find_grades(self) if self.graded else undivided)

    def _estimate_work(self) -> float:
        """Estimate the operations for the singular values of all distinct factors."""
        work: dict[tuple[object, ...], float] = {}
        trees = {name for name in self.asymmetric if find_tree_levels(self.workload, name)}
        for factor in self.workload.groups.factors:
            if factor.attribute in self.asymmetric and factor.attribute not in trees:
                given = factor.cells if factor.array is None else factor.array
                n, r = float(factor.size), float(factor.rows)
                key = (factor.attribute, factor.kind, id(given) if given is not None else None)
                work[key] = r * n * min(r, n)
        return sum(work.values())


@dataclass(frozen=True, eq=False)
class ProductPersonStructure(PeriodStructure, ProductStructure):
    """The product family of each period, for persons with at most one record in each."""

    def __str__(self) -> str:
        return f"{super().__str__()}; persons with up to {self.periods.most:,} rows"

    def reduce(self, ratio: float = 1.0) -> ProductStructure:
        workload, name = self.periods.reduce(self.workload, ratio), self.periods.name
        symmetric = tuple(one for one in self.symmetric if one != name)
        subsets = find_workload_subsets(workload, symmetric, workload.attributes)
        return ProductStructure(workload, ONE_RECORD, symmetric, subsets, self.graded)

    @frozen_property
    def batched(self) -> BatchedGroups:
        # Partners have the same variants.
        reduced = self.reduced
        of_names = dict(zip(reduced.block_attributes, reduced.batched.grades, strict=True))
        undivided = leave_undivided(self.subsets)
        grades = tuple(
            replace(of_names[name], variants=of_names[name].variants[self.reduced_blocks])
            if name in of_names
            else undivided
            for name in self.block_attributes
        )
        return batch_groups(self, grades)

    @frozen_property
    def reduced_scales(self) -> IntArray:
        """The scale of `reduced` of each scale, shape (count,)."""
        reduced = self.reduced
        starts = reduced.batched.scales.starts
        return np.concatenate(
            [np.arange(starts[block], starts[block + 1]) for block in self.reduced_blocks]
        )

    @frozen_property
    def partner_scales(self) -> IntArray:
        """The scale of the partner of each scale, as `Periods.partners`, shape (count,)."""
        starts, partners = self.batched.scales.starts, self.periods.partners.tolist()
        return np.concatenate(
            [
                np.arange(starts[partner], starts[partner + 1])
                if partner >= 0
                else np.full(starts[block + 1] - starts[block], partner)
                for block, partner in enumerate(partners)
            ]
        )


MOST_PAIRS, MOST_PAIR_ROWS, MOST_ATTRIBUTES = 2_000_000_000, 2_000_000, 12
"""The most pairs of cells that are tried, the most such pairs over all attributes but one, and the
most attributes."""

MOST_PARENTS = 2000
"""The most nodes of a hierarchy above the finest level that queries use."""

_MOST_LISTED = 5
"""The most attributes for which all moves have individual weights."""


@dataclass(frozen=True, eq=False)
class ProductPairStructure(ProductStructure):
    """Blocks over the subsets of all attributes, where neighbours replace a record."""

    @frozen_property
    def batched(self) -> BatchedGroups:
        return batch_groups(self, find_pair_grades(self), apart=True)

    @frozen_property
    def grade_labels(self) -> tuple[IntArray, ...]:
        """For each attribute, its grade in each scale, 0 for its total, shape (count,)."""
        scales = self.batched.scales
        return tuple(scales.label(a) for a in range(len(self.block_attributes)))

    @frozen_property
    def noisy_scales(self) -> BoolArray:
        """Whether each scale belongs to a block measured with noise, shape (count,)."""
        counts = np.diff(self.batched.scales.starts)
        is_noisy = np.isin(np.arange(len(self.blocks)), self.noisy_blocks)
        return np.repeat(is_noisy, to_positions(counts))

    @frozen_property
    def pair_order(self) -> tuple[int, ...]:
        """The attributes, sorted by the number of pairs of values that may differ in cost."""
        return tuple(sorted(range(len(self.sizes)), key=lambda a: (self._count_pairs(a), a)))

    @property
    def fits_all_pairs(self) -> bool:
        """Whether the costs of all pairs of cells can be computed."""
        if len(self.sizes) > MOST_ATTRIBUTES:
            return False
        *others, last = self.pair_order
        rows = math.prod(map(self._count_pairs, others))
        # For the last attribute, one order of each pair is enough.
        columns = min(self._count_pairs(last), self._count_pairs(last) // 2 + self.sizes[last])
        return rows <= MOST_PAIR_ROWS and rows * columns <= MOST_PAIRS

    def _count_pairs(self, attribute: int) -> int:
        """Count the pairs of values of an attribute that may differ in cost."""
        n, is_free = self.sizes[attribute], attribute in self.free
        if self.block_attributes[attribute] in self.symmetric:
            return 1 + (is_free and n > 1)
        if tree := self.trees[attribute]:
            return len(tree.pairs) if is_free else len(tree.first[max(tree.steps - 1, 0)])
        return n**2 if is_free else n

    @frozen_property
    def trees(self) -> tuple[TreeShape | None, ...]:
        """The tree of each attribute that is a hierarchy, with one root; None for others."""
        return tuple(find_tree(self, name, most=1) for name in self.block_attributes)

    @frozen_property
    def free(self) -> IntArray:
        """The attributes along which a record may move, as indices of `block_attributes`."""
        public = self.public_attributes or ()
        free = [a for a, name in enumerate(self.block_attributes) if name not in public]
        return np.array(free, dtype=np.int64)

    @frozen_property
    def noisy_blocks(self) -> IntArray:
        return np.asarray(np.flatnonzero(~self.is_public), dtype=np.int64)

    @frozen_property
    def moves(self) -> BoolArray:
        """The moves of a record with individual weights, shape (t, attributes)."""
        return self._list_moves()[0]

    @frozen_property
    def near(self) -> BoolArray:
        """Along which attributes each move stays below the parent of a leaf, like `moves`."""
        return self._list_moves()[1]

    def _list_moves(self) -> tuple[BoolArray, BoolArray]:
        """List `moves` and `near`.

        If attributes are few, these are all moves; otherwise those along all attributes, all but
        one, and one. Along trees they may be near or not.
        """
        places = [a for a in self.free.tolist() if self.sizes[a] > 1]
        m = len(places)
        counts = range(m, 0, -1) if m <= _MOST_LISTED else (m, m - 1, 1)
        sets = [moved for k in counts for moved in itertools.combinations(places, k)]
        listed = []
        for moved in sets:
            ways = [(1, 2) if self.trees[a] else (1,) for a in moved]
            for way in itertools.product(*ways):
                move = np.zeros(len(self.sizes), dtype=np.int64)
                move[list(moved)] = way
                listed.append(move)
        ways_of_moves = np.array(listed)
        return ways_of_moves > 0, ways_of_moves == 2

    @frozen_property
    def sets(self) -> tuple[IntArray, IntArray]:
        """The distinct sets of attributes in `free` of the noisy blocks, and each block's set.

        Shapes (t, most), as indices of `free` padded with their number, and (noisy blocks,).
        """
        blocks = self.blocks[self.noisy_blocks]
        return list_sets(select_members(blocks, self.free, len(self.sizes)))

    def check_size(self) -> None:
        super().check_size()
        parents = [len(tree.first[max(tree.steps - 1, 0)]) for tree in self.trees if tree]
        if max(parents, default=0) > MOST_PARENTS:
            raise WorkloadError(
                f"queries divide {max(parents):,} nodes of a hierarchy; the limit of ReplaceOne is "
                f"{MOST_PARENTS:,}. {TWO_CHANGES}"
            )
        if not len(self.noisy_blocks):
            raise self.make_public_error()


def find_pair_grades(structure: ProductPairStructure) -> tuple[AttributeGrades, ...]:
    """Find the grades of each attribute, with a separate variant for each block.

    Attributes are not divided if pairs of cells are too many to try all of them.
    """
    if not structure.fits_all_pairs:
        return (leave_undivided(structure.subsets),) * len(structure.sizes)
    return find_grades(structure, by_block=True)
