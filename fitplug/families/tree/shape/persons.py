"""Trees for a person with several records, at most one in each cell of an attribute.

The cells of the unit's attribute are the periods. If every query asks for each period or for their
sum, with equal targets, the attribute is symmetric; else its cells are dense cells.

The differences of such persons are too many to list. Where periods are symmetric, a few *kinds* of
persons stand for them, whose records are drawn at random (docs/theory/persons.md). A person of a
kind has k' records in random periods. The first is in a random cell of the tree, by the weights p.
The others share its dense cell, its node at a depth of the tree, and its cells of some symmetric
attributes. Everything else of them is drawn independently. For block A, with the records that are
below one node of depth d, such a person counts as

    P_A = w_A k' (diag(p) + s (k' - 1) C_d)     s = 1, or -1 / (T - 1) if A has the periods

where C_d is the sum of p_v p_v' over the mass of p_v for the nodes v of depth d, and 0 if A has
another attribute that the records do not share.

Where periods are dense cells, differences v over the dense cells are named, as they are where
blocks are matrices (`fitplug.neighbours.RecordSets`), with one more label for each record: records
with equal ones are in one leaf, and each of these leaves is drawn by the weights p, independently.
Block A counts them at the root as M_A(v) does, and what it measures of nodes below apart from their
parents is as if records in different leaves had nothing in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.domain import get_shape
from fitplug.errors import WorkloadError
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.neighbours import PersonRecords, RecordSets, list_single_records
from fitplug.numeric import FloatArray, IndexArray, IntArray, frozen_property
from fitplug.workload import AddRemove

MOST_DIFFERING = 6
"""The most symmetric attributes besides the periods: nodes have products for each set of them."""

_FEW = 2
"""With no more symmetric attributes, records may share any set of them; else all or none."""


@dataclass(frozen=True)
class PersonKind:
    """Persons whose records are drawn at random; see the module.

    Attributes:
        records: k', the number of records.
        depth: The depth of the node that the records have in common.
        shared: The symmetric attributes, as indices, of which they have one cell in common.
    """

    records: int
    depth: int
    shared: frozenset[int]


@dataclass(frozen=True, eq=False)
class PersonTreeStructure(TreeStructure):
    """Blocks over the leaves of a tree, and the records that a person may have there.

    Attributes:
        named: Where periods are dense cells, the differences over these that have dual weights;
            None for those of single records.
    """

    named: RecordSets | None = None

    def __str__(self) -> str:
        return f"{super().__str__()}; persons with up to {self.most_records:,} rows"

    @cached_property
    def period_attribute(self) -> str:
        """The attribute in each of whose cells a person has at most one record."""
        if not isinstance(self.unit, AddRemove) or self.unit.once_per is None:
            raise WorkloadError(f"the unit of privacy ({self.unit}) has no periods. Give once_per.")
        return self.unit.once_per

    @cached_property
    def period_count(self) -> int:
        """T, the number of periods."""
        return self.workload.domain[self.period_attribute].size

    @cached_property
    def most_records(self) -> int:
        """k, the most records of a person, which is at most the number of periods."""
        if not isinstance(self.unit, AddRemove):
            raise WorkloadError(f"the unit of privacy ({self.unit}) does not limit rows per person")
        return min(self.unit.records, self.period_count)

    @cached_property
    def period_index(self) -> int | None:
        """The index of the periods among the symmetric attributes; None if they are dense."""
        names = self.symmetric
        return names.index(self.period_attribute) if self.period_attribute in names else None

    @frozen_property
    def periods(self) -> IndexArray:
        """The period of each dense cell, shape (D,); 0 for all if periods are symmetric."""
        if self.period_index is not None:
            return np.zeros(self.cells, dtype=np.intp)
        shape = get_shape(self.workload.domain, self.dense)
        return np.indices(shape, dtype=np.intp)[self.dense.index(self.period_attribute)].ravel()

    @cached_property
    def differing(self) -> tuple[int, ...]:
        """The symmetric attributes but the periods in which two records can differ."""
        measured = {a for attributes in self.block_sets for a in attributes}
        return tuple(sorted(a for a in measured if a != self.period_index and self.sizes[a] > 1))

    @cached_property
    def kinds(self) -> tuple[PersonKind, ...]:
        """The kinds of persons that have dual weights; none if periods are dense."""
        if self.period_index is None:
            return ()
        k = self.most_records
        kinds = [PersonKind(1, 0, frozenset(self.differing))]
        last = int(self.tree.depths.max())
        depths = sorted({0, last}) if self.cells > 1 else range(last + 1)
        sizes: Sequence[int] = sorted({0, len(self.differing)})
        if len(self.differing) <= _FEW:
            sizes = range(len(self.differing) + 1)
        for records in sorted({-(-k * part // 4) for part in (1, 2, 3, 4)} - {1}):
            for size, depth in itertools.product(sizes, depths):
                for shared in itertools.combinations(self.differing, size):
                    kinds.append(PersonKind(records, depth, frozenset(shared)))
        return tuple(kinds)

    @frozen_property
    def person(self) -> PersonRecords:
        """Which records a person may have, where periods are dense cells; leaves come last."""
        in_blocks = {a for attributes in self.block_sets for a in attributes}
        sizes = [n if a in in_blocks else 1 for a, n in enumerate(self.sizes)]
        # Leaves are drawn independently, so records may have more labels than there are leaves.
        leaves = max(self.workload.domain[self.tree_attribute].size, self.most_records)
        return PersonRecords(self.most_records, self.periods, (*sizes, leaves))

    @cached_property
    def sets(self) -> RecordSets | None:
        """The differences over the dense cells that have dual weights; None if there are kinds."""
        if self.period_index is not None:
            return None
        return list_single_records(self.person) if self.named is None else self.named

    @property
    def differences(self) -> int:
        """The number of weights: those of the cells told apart, and then those of the kinds.

        Where periods are dense cells, they are those of the leaves, and then those of the
        differences over the dense cells.
        """
        if self.sets is None:
            return self.profile_size + len(self.kinds)
        return len(self.tree.leaves) + len(self.sets)

    @property
    def arrays_in_files(self) -> Mapping[str, IntArray]:
        if self.sets is None:
            return {}
        return {"records.cells": self.sets.cells, "records.labels": self.sets.labels}

    @property
    def profile_size(self) -> int:
        return len(self.tree.leaves) * self.cells

    def weigh_kinds(self, block: int) -> FloatArray:
        """Compute by how much persons of each kind raise what a node measures, as one record does.

        Args:
            block: The block, of attributes A.

        Returns:
            Shape (kinds, depths): a_d for what is measured of nodes of depth d, apart from their
            parents. It is k' (1 + s (k' - 1)) where their records have this node in common, and
            k' elsewhere. Each number has three roundings.
        """
        attributes = set(self.block_sets[block])
        crosses = self.period_index in attributes
        T, scales = self.period_count, np.empty((len(self.kinds), int(self.tree.depths.max()) + 1))
        for number, kind in enumerate(self.kinds):
            k = kind.records
            scales[number] = k
            if k > 1 and attributes - {self.period_index} <= kind.shared:
                together = k * ((T - k) / (T - 1)) if crosses else float(k * k)
                scales[number, : kind.depth + 1] = together
        return scales

    def check_size(self) -> None:
        if self.period_attribute == self.tree_attribute:
            raise WorkloadError(
                f"once_per = {self.tree_attribute!r} does not work for a hierarchy of this size. "
                "Use records alone."
            )
        if self.period_attribute not in self.workload.attributes:
            raise WorkloadError(
                f"no query distinguishes the values of {self.period_attribute!r}, so once_per "
                "saves nothing. Use records alone."
            )
        if len(self.differing) > MOST_DIFFERING:
            raise WorkloadError(
                f"{len(self.differing)} attributes besides the periods are asked for only as "
                f"identity or total; once_per allows up to {MOST_DIFFERING}. Use fewer attributes, "
                "or records alone."
            )
        super().check_size()

    @cached_property
    def block_sets(self) -> list[tuple[int, ...]]:
        """The attributes A of each block."""
        return [
            tuple(attributes)
            for attributes in self.subsets.list_attributes(
                np.arange(len(self.blocks), dtype=np.int64)
            )
        ]
