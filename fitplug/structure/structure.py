"""Symmetry: the attributes that may be permuted freely, and the blocks of Sigma that they leave.

An attribute that every group uses as "identity" or sums out, with targets that do not vary along
it, is symmetric: permuting its cells changes nothing, so by convexity the optimal Sigma is block
diagonal over the subsets A of the symmetric attributes,

    Sigma = (+)_A  Pi_A (x) Sigma_A        Pi_A = (x)_{a in A} (I - J/n_a) (x)_{a not in A} (J/n_a)

with one Sigma_A on the cells D of the other, dense attributes. Group t, identity on A_t and N_t on
the dense cells, then has variances, with Sigma_A scaled so that attributes outside A_t drop out,

    sum over A in A_t of  w_A prod_{a in A_t - A} n_a^-2  N_t Sigma_A N_t'

with w_A = prod_{a in A} (1 - 1/n_a), and cell i the profile sum_A w_A (Sigma_A^-1)_ii. Without
symmetric attributes that is the dense problem; without dense ones every Sigma_A is a number.

Where the product of the other attributes is too large to write down, they are split in two as well:
a reference u_a and a covariance C_a take the place of J/n_a^2 and I - J/n_a. That restricts Sigma,
to the residual family of `batches`; the gap that it leaves is certified like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from scipy.sparse import csr_array

from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray, FloatArray, IntArray, freeze, frozen_property
from fitplug.workload import Factor, QueryGroup, Workload


@dataclass(frozen=True, eq=False)
class Piece:
    """What a block answers: row j of the structure takes share_j N_j Sigma_A N_j' of variance.

    rows: of the structure, shape (r,). shares: w_A prod n_a^-2, shape (r,). matrix: N, (r, D).
    weight: w_A.
    """

    rows: IntArray
    shares: FloatArray
    matrix: FloatArray
    weight: float


def dense_piece(W: FloatArray) -> Piece:
    """The one block of a workload without symmetric attributes."""
    return Piece(np.arange(len(W)), np.ones(len(W)), W, 1.0)


@dataclass(frozen=True, eq=False)
class Structure:
    """The symmetry of a workload.

    split, dense: its attributes, each in the domain's order; split are those with blocks.
    ordered: those of `split` that are not symmetric. If there are any, no attribute is dense, and
        Sigma is of the residual family.
    used: per group A_t, as indices into `split`.
    blocks: the subsets A, shape (b, most), indices into `split`, padded with -1.
    pairs: the groups t and the blocks A in A_t, shape (2, n), in the order of the blocks.
    shares: of each pair, w_A prod_{a in A_t - A} n_a^-2, shape (n,).
    subsets: per number k of attributes, the groups with |A_t| = k, shape (g,), and the blocks of
        all their subsets, shape (g, 2^k): bit i of the second index is the i-th attribute of A_t.
    """

    workload: Workload
    split: tuple[str, ...]
    dense: tuple[str, ...]
    ordered: tuple[str, ...]
    used: tuple[tuple[int, ...], ...]
    blocks: IntArray
    pairs: IntArray
    shares: FloatArray
    subsets: tuple[tuple[IntArray, IntArray], ...]

    def __str__(self) -> str:
        if self.ordered:
            apart = f"{len(self.ordered)} attributes split apart ({listed(self.ordered)})"
            return f"{apart}: the best of the residual family, {len(self.blocks):,} blocks"
        if not self.symmetric:
            return f"{self.cells:,} cells told apart, one block"
        free = f"{len(self.symmetric)} symmetric attributes ({listed(self.symmetric)})"
        if self.scalar:
            return f"{free}: {len(self.blocks):,} blocks of one number"
        told = f"{self.cells:,} cells of {', '.join(self.dense)}"
        return f"{free}: {len(self.blocks):,} blocks over the {told}"

    @property
    def symmetric(self) -> tuple[str, ...]:
        """The attributes that may be permuted freely."""
        return tuple(name for name in self.split if name not in self.ordered)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """n_a of the attributes in `split`."""
        return self.workload.domain.shape_of(self.split)

    @cached_property
    def cells(self) -> int:
        """D, the cells of the dense attributes together."""
        return math.prod(self.workload.domain.shape_of(self.dense))

    @frozen_property
    def weights(self) -> FloatArray:
        """w_A, shape (b,)."""
        factor = np.append(1 - 1 / np.array(self.sizes, dtype=np.float64), 1.0)
        return np.asarray(factor[self.blocks].prod(axis=1))

    @frozen_property
    def starts(self) -> IntArray:
        """Where each group's rows begin, and how many there are in all, shape (groups + 1,).

        Queries that symmetry makes alike are one row.
        """
        return np.concatenate([[0], np.cumsum(self.row_counts, dtype=np.int64)])

    @cached_property
    def row_counts(self) -> list[int]:
        """How many rows each group has, whatever their number."""
        return [math.prod([f.rows for f in kept]) for kept, _ in self._parts]

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    @property
    def scalar(self) -> bool:
        """Whether every block is a number."""
        return not self.dense

    @frozen_property
    def matrices(self) -> tuple[FloatArray, ...]:
        """N_t of each group, shape (r, D). Raises WorkloadError for coefficients out of range."""
        groups = range(len(self.used))
        found = tuple(self.workload.rows(self._collapsed(g), self.dense) for g in groups)
        check_coefficients(found)
        return found

    @frozen_property
    def ends(self) -> IntArray:
        """Where the pairs of each block end."""
        return np.cumsum(np.bincount(self.pairs[1], minlength=len(self.blocks)))

    def groups_of(self, block: int) -> tuple[IntArray, FloatArray]:
        """The groups that a block has a part in, and their shares."""
        mine = slice(self.ends[block - 1] if block else 0, self.ends[block])
        return self.pairs[0, mine], self.shares[mine]

    @frozen_property
    def _by_group(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.pairs[0], kind="stable")
        return order, np.searchsorted(self.pairs[0, order], np.arange(len(self.used) + 1))

    def blocks_of(self, group: int) -> list[int]:
        """The blocks that have a part in a group: the subsets of its table."""
        order, ends = self._by_group
        return self.pairs[1, order[ends[group] : ends[group + 1]]].tolist()

    def rows_in(self, block: int, group: int) -> slice:
        """Where a group's rows are in the piece of a block."""
        groups, _ = self.groups_of(block)
        lengths = np.diff(self.starts)[groups]
        at = int(np.flatnonzero(groups == group)[0])
        end = int(lengths[: at + 1].sum())
        return slice(end - int(lengths[at]), end)

    def piece(self, block: int) -> Piece:
        groups, shares = self.groups_of(block)
        lengths = np.diff(self.starts)[groups]
        return Piece(
            rows=np.concatenate([np.arange(self.starts[g], self.starts[g + 1]) for g in groups]),
            shares=np.repeat(shares, lengths),
            matrix=np.concatenate([self.matrices[g] for g in groups]),
            weight=float(self.weights[block]),
        )

    def pieces(self) -> Iterator[Piece]:
        """All blocks; not for scalar ones, of which there may be a million."""
        for block in range(len(self.blocks)):
            yield self.piece(block)

    @frozen_property
    def incidence(self) -> csr_array:
        """Of scalar blocks: the shares, shape (rows, b)."""
        shape = (self.rows, len(self.blocks))
        return csr_array((self.shares, (self.pairs[0], self.pairs[1])), shape=shape)

    @frozen_property
    def targets(self) -> FloatArray:
        """c, shape (rows,): the largest variance allowed for each row."""
        return np.concatenate([targets.ravel() for _, targets in self._parts])

    @frozen_property
    def repeats(self) -> FloatArray:
        """How many queries each row stands for, shape (rows,)."""
        alike = set(self.symmetric)
        counts = [
            math.prod(self.sizes[a] for a in own if self.split[a] in alike) for own in self.used
        ]
        return np.repeat(np.array(counts, dtype=np.float64), np.diff(self.starts))

    def by_group(self, values: AnyArray) -> Mapping[str, AnyArray]:
        """Values (rows,) by group, each broadcast to the group's shape; read-only."""
        parts, alike = {}, set(self.symmetric)
        for group, start, end in zip(
            self.workload.groups, self.starts, self.starts[1:], strict=False
        ):
            shape = [1 if f.attribute in alike else f.rows for f in group.factors]
            parts[group.name] = np.broadcast_to(values[start:end].reshape(shape), group.shape)
        return freeze(MappingProxyType(parts))

    def members(self, blocks: Sequence[int] | IntArray) -> list[tuple[int, ...]]:
        """The subsets A of some blocks, as indices into `split`."""
        chosen = self.blocks[np.asarray(blocks, dtype=np.int64)]
        return [tuple(a for a in own if a >= 0) for own in chosen.tolist()]

    def attributes_of(self, block: int) -> tuple[str, ...]:
        """The attributes that a block is of."""
        (own,) = self.members([block])
        return tuple(self.split[a] for a in own)

    def group_of(self, row: int) -> int:
        """The group that a row is of."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def dense_attributes(self, group: int) -> tuple[str, ...]:
        """The dense attributes that a group uses, in the domain's order."""
        used = self.workload.groups[group].attributes
        return tuple(name for name in self.dense if name in used)

    def rows_over(self, group: int, attributes: Sequence[str]) -> FloatArray:
        """What a group asks of the cells of some dense attributes that hold all it uses."""
        return self.workload.rows(self._collapsed(group), attributes)

    @frozen_property
    def _parts(self) -> list[tuple[tuple[Factor, ...], FloatArray]]:
        """Of each group, what it asks of the attributes that are not symmetric, and the targets at
        one cell of those that are.
        """
        symmetric, parts = set(self.symmetric), []
        for group in self.workload.groups:
            kept = tuple(f for f in group.factors if f.attribute not in symmetric)
            at = tuple(0 if f.attribute in symmetric else slice(None) for f in group.factors)
            parts.append((kept, np.asarray(group.variances[at])))
        return parts

    def _collapsed(self, group: int) -> QueryGroup:
        """The group's part on the dense attributes."""
        kept, targets = self._parts[group]
        return replace(self.workload.groups[group], factors=kept, variances=targets)


def check_coefficients(matrices: Sequence[FloatArray]) -> None:
    """Raise WorkloadError unless some coefficient is not zero, and those are of sane size."""
    sizes = np.abs(np.concatenate([matrix[matrix != 0] for matrix in matrices]))
    if not sizes.size:
        raise WorkloadError("every query is zero; ask at least one with a non-zero coefficient")
    if not 1e-30 <= sizes.min() <= sizes.max() <= 1e30:
        raise WorkloadError("coefficients other than zero must lie between 1e-30 and 1e30 in size")


def check_products(groups: Sequence[QueryGroup]) -> None:
    """`check_coefficients` of groups that are never written down, and of the products of some of
    their factors too.
    """
    asked = False
    for group in groups:
        least, most, nothing = 1.0, 1.0, False
        for factor in group.factors:
            if factor.array is not None:
                sizes = np.abs(factor.array[factor.array != 0])
                nothing |= not sizes.size
                least *= min(float(sizes.min(initial=1.0)), 1.0)
                most *= max(float(sizes.max(initial=1.0)), 1.0)
        if not 1e-30 <= least <= most <= 1e30:
            raise WorkloadError(
                "coefficients other than zero must lie between 1e-30 and 1e30 in size"
            )
        asked |= not nothing
    if not asked:
        raise WorkloadError("every query is zero; ask at least one with a non-zero coefficient")


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names for people, the first few of many."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
