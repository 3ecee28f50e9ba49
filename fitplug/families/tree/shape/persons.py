"""Trees for a person with several records, at most one in each cell of an attribute.

The cells of the unit's attribute are the periods. If every query counts each period or their sum,
with equal targets, the attribute is symmetric; otherwise its cells are dense cells.

The differences of such persons are too many to list. With symmetric periods, a few *kinds* of
persons stand for them, whose records are drawn at random (docs/theory/persons.md). A person of a
kind has k' records in random periods. The first record is in a random cell of the tree, drawn with
weights p. The others share its dense cell, its node at a depth of the tree, and its cells of some
symmetric attributes. Everything else is drawn independently. For block A, with the records below
one node of depth d, such a person has the moment

    P_A = w_A k' (diag(p) + s (k' - 1) C_d)     s = 1, or -1 / (T - 1) if A has the periods

where C_d is the sum over the nodes v of depth d of p_v p_v' over the mass of p_v, or 0 if A has
another attribute that the records do not share.

With periods as dense cells, differences v over the dense cells are named, as for blocks that are
matrices (`fitplug.neighbours.RecordSets`), with one more label for each record: records with equal
labels are in one leaf, and each of these leaves is drawn independently with weights p. At the root,
block A has the moment M_A(v); in its measurements of lower nodes apart from their parents, records
in different leaves have nothing in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.domain import get_shape
from fitplug.errors import WorkloadError
from fitplug.families.base.structure import ONCE_PER_UNUSED
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.neighbours import PersonRecords, RecordSets, list_single_records
from fitplug.numeric import FloatArray, IndexArray, IntArray, frozen_property
from fitplug.workload import AddRemove

MOST_DIFFERING = 6
"""The most symmetric attributes besides the periods; nodes have products for each set of them."""

_FEW = 2
"""Up to this many symmetric attributes, records may share any set of them; else all or none."""


@dataclass(frozen=True)
class PersonKind:
    """Persons whose records are drawn at random; see the module's docstring.

    Attributes:
        records: k', the number of records.
        depth: The depth of the node that the records share.
        shared: The symmetric attributes, as indices, in which the records share a cell.
    """

    records: int
    depth: int
    shared: frozenset[int]


@dataclass(frozen=True, eq=False)
class PersonTreeStructure(TreeStructure):
    """Blocks over the leaves of a tree, for persons with several records.

    Attributes:
        named: If periods are dense cells, the differences over these with dual weights; None for
            those of single records.
    """

    named: RecordSets | None = None

    def __str__(self) -> str:
        return f"{super().__str__()}; persons with up to {self.most_records:,} rows"

    @cached_property
    def period_attribute(self) -> str:
        """The attribute of the periods: a person has at most one record in each of its cells."""
        if not isinstance(self.unit, AddRemove) or self.unit.once_per is None:
            raise WorkloadError(
                f"the unit of privacy ({self.unit}) must have the setting 'once_per'"
            )
        return self.unit.once_per

    @cached_property
    def period_count(self) -> int:
        """T, the number of periods."""
        return self.workload.domain[self.period_attribute].size

    @cached_property
    def most_records(self) -> int:
        """k, the most records of a person, at most the number of periods."""
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
        """The symmetric attributes, except the periods, in which two records can differ."""
        measured = {a for attributes in self.block_sets for a in attributes}
        return tuple(sorted(a for a in measured if a != self.period_index and self.sizes[a] > 1))

    @cached_property
    def kinds(self) -> tuple[PersonKind, ...]:
        """The kinds of persons with dual weights; none if periods are dense."""
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
        """The records that a person may have, if periods are dense cells; leaves come last."""
        in_blocks = {a for attributes in self.block_sets for a in attributes}
        sizes = [n if a in in_blocks else 1 for a, n in enumerate(self.sizes)]
        # Leaves are drawn independently, so records may have more labels than there are leaves.
        leaves = max(self.workload.domain[self.tree_attribute].size, self.most_records)
        return PersonRecords(self.most_records, self.periods, (*sizes, leaves))

    @cached_property
    def sets(self) -> RecordSets | None:
        """The differences over the dense cells with dual weights; None if there are kinds."""
        if self.period_index is not None:
            return None
        return list_single_records(self.person) if self.named is None else self.named

    @property
    def differences(self) -> int:
        """The number of weights: of the distinguished cells, and then of the kinds.

        If periods are dense cells, they are those of the leaves, and then of the differences over
        the dense cells.
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
        """Compute the factor a_d of each kind of persons relative to one record.

        Args:
            block: The block, of attributes A.

        Returns:
            a_d for the measurements of nodes of depth d apart from their parents, shape (kinds,
            depths). It is k' (1 + s (k' - 1)) if the records share this node, and otherwise k'.
            Each number has three roundings.
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
                "Remove the setting 'once_per'."
            )
        if self.period_attribute not in self.workload.attributes:
            raise WorkloadError(ONCE_PER_UNUSED.format(self.period_attribute))
        if len(self.differing) > MOST_DIFFERING:
            raise WorkloadError(
                f"the setting 'once_per' allows at most {MOST_DIFFERING} other attributes that are "
                f"only 'identity' or 'total', not {len(self.differing)}. Remove 'once_per'."
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
