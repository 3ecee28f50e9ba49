"""Structures: which queries are identical by symmetry, and the blocks of Sigma that remain.

An attribute that every group uses as "identity" or sums out, with targets that do not vary along
it, is symmetric: permuting its cells changes nothing, so by convexity the optimal Sigma is block
diagonal over the subsets A of the symmetric attributes:

    Sigma = (+)_A  Pi_A (x) Sigma_A        Pi_A = (x)_{a in A} (I - J/n_a) (x)_{a not in A} (J/n_a)

with one Sigma_A on the cells D of the other, dense attributes. Group t, identity on A_t and N_t on
the dense cells, then has variances, with Sigma_A scaled so that attributes outside A_t drop out,

    sum over A in A_t of  w_A prod_{a in A_t - A} n_a^-2  N_t Sigma_A N_t'

with w_A = prod_{a in A} (1 - 1/n_a), and cell i the profile sum_A w_A (Sigma_A^-1)_ii
(docs/theory/symmetry.md). Five families follow, one package each:

    blocks   each Sigma_A is a matrix over the dense cells, or a number if all are symmetric
    tree     one attribute is a hierarchy, and each Sigma_A is over its nodes
    product  the product of the other attributes is too large to write down, so they are divided
             into blocks as well, which restricts Sigma to the product family
    chain    one attribute is long, and asked for by its prefixes and cells alone, so each Sigma_A
             is a covariance along this chain
    siblings hierarchies whose finest nodes are alike are unfolded, and have blocks

A new structure is a subclass of `Structure`, which `analyse_structure` chooses, with one line in
`fitplug.families.registry` and one in `fitplug.families.designs`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial

import numpy as np

from fitplug.domain import count_shares, get_shape, suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.subsets import Subsets
from fitplug.numeric import (
    AnyArray,
    BoolArray,
    FloatArray,
    IndexArray,
    IntArray,
    freeze,
    frozen_property,
    to_positions,
)
from fitplug.workload import (
    ArraysByGroup,
    Factor,
    QueryGroup,
    Unit,
    Workload,
    build_rows,
    count_changes,
    select_public,
)

TWO_CHANGES = "Design for fp.AddRemove(records=2)."
"""The remedy where neighbours replace a record and the workload is too large."""

ONCE_PER_UNUSED = "no query uses {!r}, the attribute of once_per. Remove the setting 'once_per'."


@dataclass(frozen=True, eq=False)
class Structure(ABC):
    """The structure of a workload: its symmetric attributes, its rows and its blocks.

    Rows are the queries that symmetry distinguishes: a row stands for all queries that differ only
    in the cells of symmetric attributes.

    Attributes:
        workload: The workload.
        unit: Which data sets are neighbours.
        symmetric: The attributes whose cells may be permuted freely, in the domain's order.
        subsets: The sets A of attributes that have a block of Sigma.
    """

    workload: Workload
    unit: Unit
    symmetric: tuple[str, ...]
    subsets: Subsets

    @abstractmethod
    def __str__(self) -> str:
        """Describe the structure to people, in half a sentence."""

    @cached_property
    def asymmetric(self) -> tuple[str, ...]:
        """The workload's other attributes, in the domain's order."""
        return tuple(name for name in self.workload.attributes if name not in self.symmetric)

    @property
    def block_attributes(self) -> tuple[str, ...]:
        """The attributes whose subsets have blocks, in the domain's order."""
        return self.symmetric

    @property
    def dense(self) -> tuple[str, ...]:
        """The attributes over whose product of cells every block is, in the domain's order."""
        return self.asymmetric

    @abstractmethod
    def check_size(self) -> None:
        """Check, before anything is built, that the structure is small enough for a design.

        Raises:
            WorkloadError: If it is too large; the message says which queries or cells to reduce.
        """

    @abstractmethod
    def build_block_matrix(self, block: int) -> FloatArray:
        """Build N, shape (r, D): the block's queries over the dense cells."""

    @abstractmethod
    def find_rows(self, block: int, group: int) -> slice:
        """Find the range of a group's rows in the block's matrix."""

    @property
    def holds_optimum(self) -> bool:
        """Whether the structure's covariances include an optimum of the workload."""
        return True

    @property
    def remedy(self) -> str:
        """How to change the workload, if they do not, so that they include one."""
        if self.holds_optimum:
            return ""
        return f"for the optimum, use {suggest_fewer_cells(self.workload.domain, self.asymmetric)}"

    @property
    def names_in_files(self) -> Mapping[str, tuple[str, ...]]:
        """The entries of a plan file's header, by key, that identify the structure."""
        return {"dense": self.dense, "ordered": ()}

    @property
    def arrays_in_files(self) -> Mapping[str, IntArray]:
        """The structure's arrays in a plan file, by name."""
        return {}

    @property
    def sizes(self) -> tuple[int, ...]:
        """n_a of `block_attributes`."""
        return self.subsets.sizes

    @property
    def blocks(self) -> IntArray:
        """The subsets A, shape (b, most), as indices of `block_attributes`, padded with -1."""
        return self.subsets.blocks

    @cached_property
    def cells(self) -> int:
        """D, the cells of the dense attributes together."""
        return math.prod(get_shape(self.workload.domain, self.dense))

    @property
    def differences(self) -> int:
        """|V|, the number of differences between neighbours that have dual weights.

        Each difference stands for `changes` of its kind.
        """
        return self.cells

    @property
    def profile_size(self) -> int:
        """The number of cells whose privacy profiles may differ."""
        return self.differences

    @property
    def public_attributes(self) -> tuple[str, ...] | None:
        """The attributes whose joint totals the unit makes public; None if nothing is public.

        They are attributes that queries use, in the domain's order.
        """
        return select_public(self.unit, self.workload.attributes)

    @property
    def public_size(self) -> int:
        """The number of public totals."""
        names = self.public_attributes
        return 0 if names is None else math.prod(get_shape(self.workload.domain, names))

    @frozen_property
    def free(self) -> IntArray:
        """The attributes along which a replaced record may move, as indices of
        `block_attributes`."""
        public, names = self.public_attributes or (), self.block_attributes
        free = [a for a, n in enumerate(self.sizes) if names[a] not in public and n > 1]
        return np.array(free, dtype=np.int64)

    @frozen_property
    def regions(self) -> IntArray:
        """The region of each dense cell, by the attributes that the unit keeps, shape (D,)."""
        domain, public = self.workload.domain, self.public_attributes or ()
        names = [name for name in self.dense if name in public]
        numbers = np.arange(math.prod(get_shape(domain, names)), dtype=np.int64)
        numbers = numbers.reshape(get_shape(domain, names))
        axes = tuple(slice(None) if name in public else None for name in self.dense)
        return np.broadcast_to(numbers[axes], get_shape(domain, self.dense)).reshape(self.cells)

    @frozen_property
    def is_public(self) -> BoolArray:
        """Whether each block is within the attributes that the unit keeps, shape (b,)."""
        return np.asarray(~np.isin(self.blocks, self.free).any(axis=1))

    @property
    def noisy_blocks(self) -> IntArray:
        """The blocks measured with noise, ascending; public totals answer the others."""
        return np.arange(len(self.blocks), dtype=np.int64)

    @cached_property
    def noisy_set(self) -> frozenset[int]:
        """The blocks measured with noise."""
        return frozenset(self.noisy_blocks.tolist())

    def find_public(self, block: int, group: int) -> FloatArray | None:
        """Find a group's coefficients of the public totals in a block of a block set.

        Returns:
            Coefficients of the totals by region of the dense cells, shape (r, regions); None if
            public totals do not determine any part of the block. Without dense cells there is one
            region, and its total answers the block.
        """
        return None if block in self.noisy_set else np.ones((1, 1))

    @property
    def changes(self) -> int:
        """The multiple of one record's difference by which neighbours differ: k for k records."""
        return count_changes(self.unit)

    def compare_records(self, records: int) -> Fraction:
        """Compute Delta for a person with `records` rows anywhere, divided by the unit's Delta."""
        return Fraction(records, self.changes)

    @cached_property
    def shares(self) -> int:
        """The number of shares that the mechanism counts of each record: 1 without measures.

        A record is divided between cells of each measure that queries use. Queries and covariance
        are in records; the mechanism reads shares, and adds noise to shares.
        """
        return count_shares(self.workload.domain, self.workload.attributes)

    @property
    def profile_attributes(self) -> tuple[str, ...]:
        """The attributes along which privacy profiles may differ, in the domain's order."""
        return self.dense

    def make_public_error(self) -> WorkloadError:
        """Make the error for workloads whose queries are all answered by public totals."""
        return WorkloadError(
            f"all queries ask for totals that the unit of privacy ({self.unit}) makes public. Add "
            "other queries."
        )

    def arrange_by_cell(self, values: FloatArray) -> FloatArray:
        """Arrange values of the profile's cells by the domain's cells.

        Args:
            values: Shape (profile_size,).

        Returns:
            An array with an axis of all cells for each of `profile_attributes`.
        """
        return np.asarray(values.reshape(get_shape(self.workload.domain, self.dense)))

    def take_least(self, values: FloatArray) -> FloatArray:
        """Take the least value of the cells that each cell of the profile stands for.

        Args:
            values: An array with an axis of all cells for each of `profile_attributes`.

        Returns:
            Shape (profile_size,).
        """
        return values.ravel()

    @frozen_property
    def row_starts(self) -> IndexArray:
        """The first row of each group, and the number of all rows, shape (groups + 1,)."""
        return to_positions(np.append(0, np.cumsum(self.row_counts, dtype=np.int64)))

    @frozen_property
    def row_counts(self) -> IntArray:
        """The number of rows of each group, shape (groups,)."""
        groups, symmetric = self.workload.groups, set(self.symmetric)
        rows = [1 if f.attribute in symmetric else f.rows for f in groups.factors]
        return np.asarray(groups.multiply(np.array(rows, dtype=np.int64)))

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return int(self.row_starts[-1])

    @frozen_property
    def targets(self) -> FloatArray:
        """c, shape (rows,): the largest variance allowed for each row."""
        groups, starts = self.workload.groups, self.row_starts
        targets = np.repeat(groups.first_variances, np.diff(starts))
        for g in groups.with_arrays.tolist():
            collapsed = _collapse(groups[g], self.asymmetric)
            targets[starts[g] : starts[g + 1]] = collapsed.variances.ravel()
        return targets

    @frozen_property
    def repeats(self) -> FloatArray:
        """The number of queries that each row stands for, shape (rows,)."""
        symmetric = set(self.symmetric)
        counts = self.subsets.group_attributes.multiply(
            [
                n if name in symmetric else 1
                for name, n in zip(self.block_attributes, self.sizes, strict=True)
            ]
        )
        return np.repeat(counts.astype(np.float64), np.diff(self.row_starts))

    def group_values(self, values: AnyArray) -> Mapping[str, AnyArray]:
        """Arrange values of rows by group.

        Args:
            values: Shape (rows,).

        Returns:
            By group name, a read-only view broadcast to the group's shape.
        """
        return ArraysByGroup(self.workload, partial(self._arrange_group, freeze(values)))

    def _arrange_group(self, values: AnyArray, g: int) -> AnyArray:
        """Select a group's values from those of all rows, and arrange them in its shape."""
        group, symmetric = self.workload.groups[g], set(self.symmetric)
        shape = [1 if f.attribute in symmetric else f.rows for f in group.factors]
        rows = values[self.row_starts[g] : self.row_starts[g + 1]]
        return np.broadcast_to(rows.reshape(shape), group.shape)

    def name_attributes(self, block: int) -> tuple[str, ...]:
        """Name the attributes of a block's subset A."""
        (subset,) = self.subsets.list_attributes([block])
        return tuple(self.block_attributes[a] for a in subset)

    def find_block_rows(self, block: int) -> IndexArray:
        """Find the structure's rows to whose answers a block contributes, shape (r,)."""
        groups, _ = self.subsets.find_groups(block)
        starts = self.row_starts
        return np.concatenate([np.arange(starts[g], starts[g + 1]) for g in groups])

    def find_group(self, row: int) -> int:
        """Find the group to which a row belongs."""
        return int(np.searchsorted(self.row_starts, row, side="right")) - 1

    def find_factors(self, group: int) -> dict[int, Factor | None]:
        """Find a group's factor for each attribute in A_t.

        Returns:
            By index of `block_attributes`: the factor, or None for a symmetric attribute, where it
            is the identity.
        """
        factors = {f.attribute: f for f in self.workload.groups[group].factors}
        names = [(a, self.block_attributes[a]) for a in self.subsets.group_attributes[group]]
        return {a: None if name in self.symmetric else factors[name] for a, name in names}

    def list_dense(self, group: int) -> tuple[str, ...]:
        """List the dense attributes that a group uses, in the domain's order."""
        used = self.workload.groups[group].attributes
        return tuple(name for name in self.dense if name in used)

    def list_row_axes(self, group: int) -> list[str]:
        """List a group's asymmetric attributes, in the order of its rows."""
        factors = self.workload.groups[group].factors
        return [f.attribute for f in factors if f.attribute not in self.symmetric]

    def build_rows(self, group: int, attributes: Sequence[str]) -> FloatArray:
        """Build a group's rows over dense attributes that include all that it uses."""
        collapsed = _collapse(self.workload.groups[group], self.dense)
        return build_rows(self.workload, collapsed, attributes)

    def build_measured_rows(self, block: int, group: int) -> FloatArray:
        """Build the rows of a group as a block with a basis of queries measures them.

        Returns:
            Coefficients over the cells of the dense attributes that the group uses.
        """
        return self.build_rows(group, self.list_dense(group))

    def build_group_matrix(self, group: int) -> FloatArray:
        """Build N_t, shape (r, D): a group's rows over the dense cells."""
        return self.build_rows(group, self.dense)


def _collapse(group: QueryGroup, attributes: Sequence[str]) -> QueryGroup:
    """Restrict a group to some attributes, with its targets at the first cell of the others."""
    factors = tuple(f for f in group.factors if f.attribute in attributes)
    at = tuple(slice(None) if f.attribute in attributes else 0 for f in group.factors)
    return replace(group, factors=factors, variances=np.asarray(group.variances[at]))


_MOST_NAMES = 8
"""The most names shown in a message."""


def list_names(names: Sequence[str]) -> str:
    """List names in a message, only the first few if there are many."""
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"
