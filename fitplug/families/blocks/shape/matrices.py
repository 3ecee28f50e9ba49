"""Blocks that are matrices: each Sigma_A is over all cells of the dense attributes.

Without symmetric attributes there is one block, the dense problem. Without dense attributes there
is one dense cell and all rows of a block are alike: each block is a number, and there may be a
million blocks. Units with several records per person, in different periods or cells, have a
separate structure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from fitplug.domain import get_shape, suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.structure import ONCE_PER_UNUSED, Structure, list_names
from fitplug.neighbours import PersonRecords, RecordSets, list_single_records
from fitplug.numeric import FloatArray, IntArray, frozen_property, to_positions
from fitplug.workload import AddRemove, Unit, allows_any_rows, check_coefficients

MAX_ENTRIES = 150_000_000
"""The most coefficients of all blocks, 1.2 GB. The design takes a few times as much memory."""


@dataclass(frozen=True, eq=False)
class BlockQueries:
    """The queries to which a block contributes variance_multiple_j N_j Sigma_A N_j' per row j.

    Attributes:
        rows: The structure's rows, shape (r,).
        variance_multiples: w_A prod_{a in A_t - A} n_a^-2 of each row's group t, shape (r,).
        matrix: N over the dense cells, shape (r, D).
        profile_multiple: w_A, the factor of the block's profile.
    """

    rows: IntArray
    variance_multiples: FloatArray
    matrix: FloatArray
    profile_multiple: float


@dataclass(frozen=True, eq=False)
class MatrixStructure(Structure):
    """Blocks over the symmetric attributes' subsets, each a matrix over the dense cells."""

    def __str__(self) -> str:
        if self.dense and not self.symmetric:
            return f"{self.cells:,} distinguished cells, one block"
        blocks = f"{len(self.symmetric)} symmetric attributes ({list_names(self.symmetric)}): "
        blocks += f"{len(self.blocks):,} blocks"
        if not self.dense:
            return f"{blocks} of one number"
        return f"{blocks} over the {self.cells:,} cells of {', '.join(self.dense)}"

    @property
    def entries(self) -> int:
        """The coefficients of all blocks together, as a Python integer of any size."""
        used, rows = self.subsets.group_attributes.counts, self.row_counts
        return int(self.cells * sum((2 ** used.astype(object) * rows).tolist()))

    def check_size(self) -> None:
        if (entries := self.entries) > MAX_ENTRIES:
            raise WorkloadError(
                f"the queries on {', '.join(self.dense)} need {entries:,} coefficients; the limit "
                f"is {MAX_ENTRIES:,}. Use {suggest_fewer_cells(self.workload.domain, self.dense)}."
            )

    @frozen_property
    def group_matrices(self) -> tuple[FloatArray, ...]:
        """N_t of each group, shape (r, D).

        Raises:
            WorkloadError: If all coefficients are zero, or some are out of range.
        """
        groups = range(len(self.workload.groups))
        matrices = tuple(self.build_rows(g, self.dense) for g in groups)
        check_coefficients(matrices)
        return matrices

    def build_group_matrix(self, group: int) -> FloatArray:
        return self.group_matrices[group]

    @property
    def has_numbers(self) -> bool:
        """Whether blocks are numbers, so that many share a block set."""
        return not self.dense

    def build_block_matrix(self, block: int) -> FloatArray:
        if self.has_numbers:
            return np.ones((1, 1))
        groups, _ = self.subsets.find_groups(block)
        return np.concatenate([self.group_matrices[g] for g in groups])

    def find_rows(self, block: int, group: int) -> slice:
        if self.has_numbers:
            return slice(0, 1)
        groups, _ = self.subsets.find_groups(block)
        lengths = np.diff(self.row_starts)[groups]
        at = int(np.flatnonzero(groups == group)[0])
        end = int(lengths[: at + 1].sum())
        return slice(end - int(lengths[at]), end)

    def gather_queries(self, block: int) -> BlockQueries:
        """Gather the queries to which a block contributes."""
        groups, multiples = self.subsets.find_groups(block)
        matrix = self.build_block_matrix(block)
        return BlockQueries(
            rows=self.find_block_rows(block),
            variance_multiples=np.repeat(multiples, np.diff(self.row_starts)[groups]),
            matrix=matrix,
            profile_multiple=float(self.subsets.profile_multiples[block]),
        )

    def gather_all_queries(self) -> Iterator[BlockQueries]:
        """Gather the queries of each block, one block after another."""
        return map(self.gather_queries, range(len(self.blocks)))

    @frozen_property
    def incidence(self) -> csr_array:
        """The sparse matrix (rows, b) of variance multiples, for blocks that are numbers."""
        shape = (self.rows, len(self.blocks))
        groups, blocks = self.subsets.pairs
        return csr_array((self.subsets.variance_multiples, (groups, blocks)), shape=shape)


MAX_SYMMETRIC = 10
"""The most symmetric attributes: each set of differing ones has its products of records."""

MAX_PRODUCTS = 4_000_000
"""The most inner products of pairs of records, from which a strategy's cost is computed."""


@dataclass(frozen=True, eq=False)
class PersonStructure(MatrixStructure):
    """Blocks over the dense cells, for persons with several records.

    Attributes:
        named: The differences that have dual weights; None for those of single records.
    """

    named: RecordSets | None = None

    def __str__(self) -> str:
        return f"{super().__str__()}; persons with up to {self.person.most:,} rows"

    @property
    def has_numbers(self) -> bool:
        return False

    @frozen_property
    def person(self) -> PersonRecords:
        """The records that a person may have."""
        return find_person_records(self, self.unit)

    @cached_property
    def sets(self) -> RecordSets:
        """The differences that have dual weights."""
        return list_single_records(self.person) if self.named is None else self.named

    @property
    def differences(self) -> int:
        return len(self.sets)

    @property
    def profile_size(self) -> int:
        return self.cells

    @property
    def remedy(self) -> str:
        return (
            "a person's rows can be in too many combinations of cells to try them all, so the cost "
            "is an upper limit; use fewer periods, or fewer attributes in one query"
        )

    @property
    def arrays_in_files(self) -> Mapping[str, IntArray]:
        return self.sets.arrays_in_file

    @property
    def has_periods(self) -> bool:
        """Whether persons have at most one record in each of several equal periods."""
        assert isinstance(self.unit, AddRemove)
        name = self.unit.once_per
        return name in self.symmetric and self.workload.domain[name].size > 1

    @property
    def has_room(self) -> bool:
        """Whether the products of all pairs of records are few enough."""
        return self._products <= MAX_PRODUCTS

    @property
    def _products(self) -> int:
        """The number of products of pairs of records."""
        return 2 ** len(self.sizes) * self.cells**2

    def check_size(self) -> None:
        super().check_size()
        # The unit's own errors come first: some occur with few cells, too.
        _ = self.person
        if not self.has_room:
            raise WorkloadError(
                f"two rows of a person can differ in {self._products:,} ways; the limit is "
                f"{MAX_PRODUCTS:,}. Use {suggest_fewer_cells(self.workload.domain, self.dense)}."
            )


def find_person_records(structure: Structure, unit: Unit) -> PersonRecords:
    """Find the records that a unit of privacy lets a person have.

    Args:
        structure: A structure of blocks that are matrices.
        unit: A unit with `once_per` or `distinct`.

    Returns:
        The records.

    Raises:
        WorkloadError: If the structure cannot have this unit; the message gives the remedy.
    """
    if not isinstance(unit, AddRemove) or allows_any_rows(unit):
        raise WorkloadError(
            f"the unit of privacy ({unit}) must have the setting 'once_per' or 'distinct'"
        )
    domain, dense = structure.workload.domain, structure.dense
    if unit.once_per is not None:
        if unit.once_per not in structure.workload.attributes:
            raise WorkloadError(ONCE_PER_UNUSED.format(unit.once_per))
        separating: tuple[str, ...] = (unit.once_per,)
    else:
        unasked = [name for name in domain.names if name not in structure.workload.attributes]
        if any(domain[name].size > 1 for name in unasked):
            raise WorkloadError(
                "the setting 'distinct' needs queries on every attribute, but no query uses "
                f"{', '.join(unasked)}. Remove unused attributes from the domain."
            )
        separating = domain.names
    if len(structure.sizes) > MAX_SYMMETRIC:
        given = "distinct" if unit.distinct else "once_per"
        raise WorkloadError(
            f"the setting {given!r} allows at most {MAX_SYMMETRIC} attributes that are only "
            f"'identity' or 'total', not {len(structure.sizes)}. Remove {given!r}."
        )
    shape = get_shape(domain, dense)
    used = {a for attributes in structure.subsets.blocks.tolist() for a in attributes}
    is_apart = [
        n > 1 and structure.block_attributes[a] in separating for a, n in enumerate(structure.sizes)
    ]
    sizes = tuple(n if a in used or is_apart[a] else 1 for a, n in enumerate(structure.sizes))
    kept = tuple(n if name in separating else 1 for name, n in zip(dense, shape, strict=True))
    periods = np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), shape).ravel()
    most = math.prod((*kept, *(n for n, apart in zip(sizes, is_apart, strict=True) if apart)))
    number = sum(1 << a for a, apart in enumerate(is_apart) if apart)
    return PersonRecords(min(unit.records, most), to_positions(periods), sizes, number)
