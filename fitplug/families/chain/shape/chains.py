"""Chains: prefixes of one ordered attribute that is too long for a matrix over its cells.

Let s_j be the count of the attribute's cells 0..j. The prefixes and the single cells are the states
and the steps of a chain: the quadratic form of all queries is tridiagonal in s. The other
attributes are symmetric, and there is a block for each of their subsets A, over the chain's n
cells. A block has the covariance (A'A)^-1 with nested triangles A over these cells. If chains are
too long for that, all blocks share A = R T M up to a factor, with diagonal R and M and a Toeplitz
matrix T (docs/theory/chains.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fitplug.domain import suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.periods import PeriodStructure
from fitplug.families.base.structure import Structure, list_names
from fitplug.families.base.subsets import Subsets, pad_sets
from fitplug.families.base.workload_subsets import find_workload_subsets
from fitplug.families.blocks.shape.matrices import PersonStructure
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property, to_positions
from fitplug.workload import ONE_RECORD, Factor, Workload

MAX_CHAIN = 2**21
"""The most cells of a chain: the design takes some minutes, and the proofs half a minute."""

MAX_BLOCK_CELLS = 2**23
"""The most cells of all blocks of a chain together."""


@dataclass(frozen=True, eq=False)
class ChainRows:
    """A query group's rows along a chain.

    Attributes:
        first: The first cell of each row, shape (r,).
        cells: The last cell of each prefix, and each single cell, shape (r,).
    """

    first: IntArray
    cells: IntArray

    @property
    def is_prefix(self) -> BoolArray:
        """Whether each row is a prefix or else a single cell, shape (r,)."""
        return self.first == 0


@dataclass(frozen=True, eq=False)
class ChainStructure(Structure):
    """Blocks over the subsets of the symmetric attributes, each a chain of n cells."""

    def __str__(self) -> str:
        chain = f"{self.n:,} cells of {self.chain} in a chain"
        if not self.symmetric:
            return f"{chain}, one block"
        free = f"{len(self.symmetric)} symmetric attributes ({list_names(self.symmetric)})"
        return f"{free}: {len(self.noisy_blocks):,} blocks over {chain}"

    @property
    def chain(self) -> str:
        """The attribute whose cells are the chain."""
        (name,) = self.asymmetric
        return name

    @property
    def n(self) -> int:
        """The number of cells of the chain."""
        return self.sizes[self.chain_position]

    @property
    def chain_position(self) -> int:
        """The index of the chain in `block_attributes`."""
        return self.block_attributes.index(self.chain)

    @property
    def block_attributes(self) -> tuple[str, ...]:
        return self.workload.attributes

    @property
    def dense(self) -> tuple[str, ...]:
        return ()

    @property
    def names_in_files(self) -> Mapping[str, tuple[str, ...]]:
        return {"dense": (), "ordered": (), "chain": self.asymmetric}

    @property
    def holds_optimum(self) -> bool:
        return False

    @property
    def remedy(self) -> str:
        return (
            "for so many cells fitplug finds only a nearly optimal plan; for the optimum, "
            f"use {suggest_fewer_cells(self.workload.domain, self.asymmetric)}"
        )

    def check_size(self) -> None:
        names = self.asymmetric
        blocks = len(self.noisy_blocks)
        if self.n > MAX_CHAIN or self.n * blocks > MAX_BLOCK_CELLS:
            raise WorkloadError(
                f"{self.chain} has {self.n:,} cells in each of {blocks:,} combinations with other "
                f"attributes; the limit is {min(MAX_CHAIN, MAX_BLOCK_CELLS // max(blocks, 1)):,}. "
                f"Use {suggest_fewer_cells(self.workload.domain, names)}."
            )

    def build_block_matrix(self, block: int) -> FloatArray:
        return np.ones((1, 1))

    def find_rows(self, block: int, group: int) -> slice:
        return slice(0, 1)

    def find_factors(self, group: int) -> dict[int, Factor | None]:
        """Find a group's factor for each attribute in A_t; the chain's is "total" if summed out."""
        names = self.workload.groups[group].attributes
        if self.chain in names:
            return super().find_factors(group)
        return {
            a: Factor(self.chain, "total", self.n) if a == self.chain_position else None
            for a in self.subsets.group_attributes[group]
        }

    @frozen_property
    def chain_rows(self) -> tuple[ChainRows, ...]:
        """Each group's rows along the chain, in the order of the structure's rows."""
        chain_rows = []
        for g in range(len(self.workload.groups)):
            factor = self.find_factors(g)[self.chain_position]
            assert factor is not None
            first, last = factor.intervals().T
            chain_rows.append(ChainRows(first, last))
        return tuple(chain_rows)

    def gather_weights(self, block: int, row_weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum the weights of a block's prefixes and single cells over its groups.

        Args:
            block: The block.
            row_weights: Weights of the structure's rows, shape (rows,).

        Returns:
            The sums of the rows' weights times w_A prod_{a in A_t - A} n_a^-2, shape (n,) each.
        """
        prefixes, cells = np.zeros(self.n), np.zeros(self.n)
        groups, multiples = self.subsets.find_groups(block)
        starts = self.row_starts
        for g, multiple in zip(groups.tolist(), multiples.tolist(), strict=True):
            rows, weights = self.chain_rows[g], row_weights[starts[g] : starts[g + 1]] * multiple
            for total, mine in ((prefixes, rows.is_prefix), (cells, ~rows.is_prefix)):
                total += np.bincount(to_positions(rows.cells[mine]), weights[mine], self.n)
        return prefixes, cells

    @frozen_property
    def multiples_of_blocks(self) -> FloatArray:
        """w_A = prod_{a in A} (1 - 1/n_a) over the symmetric attributes of each block, (b,)."""
        factor = np.append(1 - 1 / np.array(self.sizes, dtype=np.float64), 1.0)
        factor[self.chain_position] = 1.0
        return np.asarray(factor[self.blocks].prod(axis=1))

    @frozen_property
    def grounded(self) -> BoolArray:
        """Whether the totals of the chain are public in each noisy block, shape (blocks,)."""
        return np.zeros(len(self.noisy_blocks), dtype=bool)

    @property
    def measured_cells(self) -> list[int]:
        """The number of cells that each noisy block measures."""
        return [self.n - is_grounded for is_grounded in self.grounded.tolist()]


MOST_PERSON_CELLS = 2**18
"""The most cells of all blocks of a chain together where persons have several records."""


@dataclass(frozen=True, eq=False)
class ChainPersonStructure(PeriodStructure, ChainStructure):
    """A chain in each period, for persons with at most one record in each."""

    def __str__(self) -> str:
        return f"{super().__str__()}; persons with up to {self.periods.most:,} rows"

    def reduce(self, ratio: float = 1.0) -> ChainStructure:
        workload = self.periods.reduce(self.workload, ratio)
        symmetric = tuple(name for name in self.symmetric if name != self.periods.name)
        subsets = add_chain(find_workload_subsets(workload, symmetric), workload, self.chain)
        return ChainStructure(workload, ONE_RECORD, symmetric, subsets)

    def check_size(self) -> None:
        super().check_size()
        blocks = len(self.blocks)
        if self.n * blocks > MOST_PERSON_CELLS:
            raise WorkloadError(
                f"{self.chain} has {self.n:,} cells in each of {blocks:,} combinations with other "
                f"attributes; the limit of 'once_per' is {MOST_PERSON_CELLS // blocks:,}. Use "
                f"{suggest_fewer_cells(self.workload.domain, self.asymmetric)}."
            )


def is_chain(
    workload: Workload, name: str, *, takes_cells: bool = True, takes_ranges: bool = False
) -> bool:
    """Tell whether queries use an attribute by prefixes, and else only by its total and, if it
    `takes_cells`, by cells, or if it `takes_ranges`, by any listed ranges."""
    asks_prefix = False
    for group in workload.groups:
        for factor in group.factors:
            if factor.attribute != name or factor.kind == "total":
                continue
            if factor.kind == "identity":
                if not takes_cells:
                    return False
                continue
            if factor.array is not None or factor.kind == "all_ranges":
                return False
            if factor.cells is not None:
                first, last = factor.cells.T
                is_prefix = first == 0
                if not (takes_ranges | is_prefix | (takes_cells & (first == last))).all():
                    return False
                asks_prefix |= bool((is_prefix & (first < last)).any())
            asks_prefix |= factor.kind == "prefix"
    return asks_prefix


def add_chain(subsets: Subsets, workload: Workload, name: str) -> Subsets:
    """Add a chain to each set of symmetric attributes.

    Args:
        subsets: The subsets of the groups' symmetric attributes, in the domain's order.
        workload: The workload.
        name: The attribute of the chain.

    Returns:
        The same blocks with the chain added to each, and attributes as indices of all attributes of
        the workload.
    """
    names = workload.attributes
    at, n = names.index(name), workload.domain[name].size
    moved = [[a + (a >= at) for a in attributes] for attributes in subsets.group_attributes]
    with_chain = [np.array(sorted([*attributes, at]), dtype=np.int64) for attributes in moved]
    blocks = np.where(subsets.blocks >= at, subsets.blocks + 1, subsets.blocks)
    most = blocks.shape[1] + 1
    joined = [sorted([*(a for a in block if a >= 0), at]) for block in blocks.tolist()]
    padded = [block + [-1] * (most - len(block)) for block in joined]
    return replace(
        subsets,
        sizes=(*subsets.sizes[:at], n, *subsets.sizes[at:]),
        group_attributes=pad_sets(
            np.array([len(attributes) for attributes in with_chain], dtype=np.int64),
            np.concatenate(with_chain),
        ),
        blocks=np.array(padded, dtype=np.int64).reshape(len(blocks), most),
        by_count=(),
    )


def build_person_chain(persons: PersonStructure) -> ChainPersonStructure | None:
    """Build a chain in each period instead of matrices; None if there are no equal periods."""
    workload, names = persons.workload, persons.asymmetric
    if not (persons.has_periods and len(names) == 1 and is_chain(workload, names[0])):
        return None
    subsets = add_chain(persons.subsets, workload, names[0])
    return ChainPersonStructure(workload, persons.unit, persons.symmetric, subsets)
