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
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fitplug.errors import WorkloadError
from fitplug.factors import Factor
from fitplug.workload import QueryGroup, Workload

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]

MAX_PAIRS = 50_000_000
"""Most pairs of a group and a block that it has a part in."""

MAX_TABLE = 14
"""Most symmetric attributes of one table: it takes time that is quadratic in its 2^k margins."""

MAX_ENTRIES = 150_000_000
"""Most coefficients of all blocks together, 1.2 GB; the design takes a few times that."""

MAX_ANSWERS = 2**32
"""Most answers of a group, 34 GB when they are released."""


@dataclass(frozen=True, eq=False)
class Piece:
    """What a block answers: row j of the structure takes share_j N_j Sigma_A N_j' of variance.

    rows: of the structure, shape (r,). shares: w_A prod n_a^-2, shape (r,). matrix: N, (r, D).
    weight: w_A.
    """

    rows: Indices
    shares: Array
    matrix: Array
    weight: float


def dense_piece(W: Array) -> Piece:
    """The one block of a workload without symmetric attributes."""
    return Piece(np.arange(len(W)), np.ones(len(W)), W, 1.0)


@dataclass(frozen=True, eq=False)
class Structure:
    """The symmetry of a workload.

    symmetric, dense: its attributes, each in the domain's order.
    identity: per group A_t, as indices into `symmetric`.
    blocks: the subsets A, shape (b, most), indices into `symmetric`, padded with -1.
    pairs: the groups t and the blocks A in A_t, shape (2, n), in the order of the blocks.
    shares: of each pair, w_A prod_{a in A_t - A} n_a^-2, shape (n,).
    """

    workload: Workload
    symmetric: tuple[str, ...]
    dense: tuple[str, ...]
    identity: tuple[tuple[int, ...], ...]
    blocks: Indices
    pairs: Indices
    shares: Array

    def __str__(self) -> str:
        if not self.symmetric:
            return f"{self.cells} cells told apart, one block"
        free = f"{len(self.symmetric)} symmetric attributes ({listed(self.symmetric)})"
        if self.scalar:
            return f"{free}: {len(self.blocks)} blocks of one number"
        told = f"{self.cells} cells of {', '.join(self.dense)}"
        return f"{free}: {len(self.blocks)} blocks over the {told}"

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """n_a of the symmetric attributes."""
        return self.workload.domain.shape_of(self.symmetric)

    @cached_property
    def cells(self) -> int:
        """D, the cells of the dense attributes together."""
        return math.prod(self.workload.domain.shape_of(self.dense))

    @cached_property
    def weights(self) -> Array:
        """w_A, shape (b,)."""
        factor = np.append(1 - 1 / np.array(self.sizes, dtype=np.float64), 1.0)
        return np.asarray(factor[self.blocks].prod(axis=1))

    @cached_property
    def starts(self) -> Indices:
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
        """Whether every Sigma_A is a number."""
        return not self.dense

    @cached_property
    def matrices(self) -> tuple[Array, ...]:
        """N_t of each group, shape (r, D). Raises WorkloadError for coefficients out of range."""
        groups = range(len(self.identity))
        found = tuple(self.workload.rows(self._collapsed(g), self.dense) for g in groups)
        check_coefficients(found)
        return found

    @cached_property
    def ends(self) -> Indices:
        """Where the pairs of each block end."""
        return np.cumsum(np.bincount(self.pairs[1], minlength=len(self.blocks)))

    def groups_of(self, block: int) -> tuple[Indices, Array]:
        """The groups that a block has a part in, and their shares."""
        mine = slice(self.ends[block - 1] if block else 0, self.ends[block])
        return self.pairs[0, mine], self.shares[mine]

    @cached_property
    def _by_group(self) -> tuple[Indices, Indices]:
        order = np.argsort(self.pairs[0], kind="stable")
        return order, np.searchsorted(self.pairs[0, order], np.arange(len(self.identity) + 1))

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

    @cached_property
    def incidence(self) -> csr_array:
        """Of scalar blocks: the shares, shape (rows, b)."""
        shape = (self.rows, len(self.blocks))
        return csr_array((self.shares, (self.pairs[0], self.pairs[1])), shape=shape)

    @cached_property
    def targets(self) -> Array:
        """c, shape (rows,): the largest variance allowed for each row."""
        return np.concatenate([targets.ravel() for _, targets in self._parts])

    @cached_property
    def repeats(self) -> Array:
        """How many queries each row stands for, shape (rows,)."""
        counts = [math.prod(self.sizes[a] for a in own) for own in self.identity]
        return np.repeat(np.array(counts, dtype=np.float64), np.diff(self.starts))

    def split(self, values: npt.NDArray[Any]) -> Mapping[str, npt.NDArray[Any]]:
        """Values (rows,) by group, each broadcast to the group's shape; read-only."""
        parts = {}
        for group, start, end in zip(
            self.workload.groups, self.starts, self.starts[1:], strict=False
        ):
            shape = [1 if f.attribute in self.symmetric else f.rows for f in group.factors]
            parts[group.name] = np.broadcast_to(values[start:end].reshape(shape), group.shape)
        return MappingProxyType(parts)

    def members(self, blocks: Sequence[int] | Indices) -> list[tuple[int, ...]]:
        """The subsets A of some blocks, as indices into `symmetric`."""
        chosen = self.blocks[np.asarray(blocks, dtype=np.int64)]
        return [tuple(a for a in own if a >= 0) for own in chosen.tolist()]

    def attributes_of(self, block: int) -> tuple[str, ...]:
        """The symmetric attributes that a block is of."""
        (own,) = self.members([block])
        return tuple(self.symmetric[a] for a in own)

    def group_of(self, row: int) -> int:
        """The group that a row is of."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def dense_attributes(self, group: int) -> tuple[str, ...]:
        """The dense attributes that a group uses, in the domain's order."""
        used = self.workload.groups[group].attributes
        return tuple(name for name in self.dense if name in used)

    def rows_over(self, group: int, attributes: Sequence[str]) -> Array:
        """What a group asks of the cells of some dense attributes that hold all it uses."""
        return self.workload.rows(self._collapsed(group), attributes)

    @cached_property
    def _parts(self) -> list[tuple[tuple[Factor, ...], Array]]:
        """Of each group, what it asks of the dense attributes, and the targets at one cell of the
        symmetric ones.
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


def check_coefficients(matrices: Sequence[Array]) -> None:
    """Raise WorkloadError unless some coefficient is not zero, and those are of sane size."""
    sizes = np.abs(np.concatenate([matrix[matrix != 0] for matrix in matrices]))
    if not sizes.size:
        raise WorkloadError("every query is zero; ask at least one with a non-zero coefficient")
    if not 1e-30 <= sizes.min() <= sizes.max() <= 1e30:
        raise WorkloadError("coefficients other than zero must lie between 1e-30 and 1e30 in size")


def structure(workload: Workload, varying: Sequence[str] = ()) -> Structure:
    """The symmetry of a workload; attributes in `varying` are kept dense.

    Raises WorkloadError if it has too many answers, blocks or coefficients.
    """
    dense = set(varying)
    for group in workload.groups:
        if group.size > MAX_ANSWERS:
            raise WorkloadError(
                f"query {group.name!r} has {group.size} answers, of {', '.join(group.attributes)}; "
                f"up to {MAX_ANSWERS} can be released: use fewer attributes together, or coarser "
                "bins"
            )
        for axis, factor in enumerate(group.factors):
            if factor.kind == "total" or factor.attribute in dense:
                continue
            if factor.kind != "identity" or _varies(group.variances, axis):
                dense.add(factor.attribute)
    symmetric = tuple(name for name in workload.attributes if name not in dense)
    position = {name: i for i, name in enumerate(symmetric)}
    identity = tuple(
        tuple(
            sorted(
                position[name]
                for name in group.attributes
                # The one cell of an attribute without others has no contrasts.
                if name in position and workload.domain[name].size > 1
            )
        )
        if all(f.kind != "matrix" or f.matrix().any() for f in group.factors)
        else ()  # it asks nothing
        for group in workload.groups
    )
    largest = max(range(len(identity)), key=lambda g: len(identity[g]))
    if len(identity[largest]) > MAX_TABLE:
        group = workload.groups[largest]
        name = repr(group.name) if len(group.name) < 60 else listed(group.attributes)
        raise WorkloadError(
            f"query {name} is a table of "
            f"{len(identity[largest])} attributes; up to {MAX_TABLE} can be designed for, ask "
            "tables of fewer attributes together"
        )
    pairs = sum(2 ** len(own) for own in identity)
    if pairs > MAX_PAIRS:
        raise WorkloadError(
            f"the workload's tables hold {pairs} tables of fewer attributes, and up to {MAX_PAIRS} "
            "can be designed for; ask fewer tables, or of fewer attributes"
        )
    sizes = np.array(workload.domain.shape_of(symmetric), dtype=np.float64)
    blocks, members, shares = _blocks(identity, sizes)
    found = Structure(
        workload=workload,
        symmetric=symmetric,
        dense=tuple(name for name in workload.attributes if name in dense),
        identity=identity,
        blocks=blocks,
        pairs=members,
        shares=shares,
    )
    # Before anything of this size is made, and in Python integers: the product may be any size.
    entries = found.cells * sum(
        2 ** len(own) * rows for own, rows in zip(identity, found.row_counts, strict=True)
    )
    if entries > MAX_ENTRIES:
        raise WorkloadError(
            f"the attributes {', '.join(found.dense)} are asked for in ways, or with targets, "
            f"that tell their cells apart, which takes {entries} coefficients together; up to "
            f"{MAX_ENTRIES} can be held: use fewer of them together, or coarser bins"
        )
    return found


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names for people, the first few of many."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _varies(targets: Array, axis: int) -> bool:
    # Targets are views that repeat what was asked, however many queries share it.
    once = targets[tuple(slice(None if step else 1) for step in targets.strides)]
    return bool((once != once.take([0], axis)).any())


def _blocks(identity: Sequence[tuple[int, ...]], sizes: Array) -> tuple[Indices, Indices, Array]:
    """All subsets of the tables' attributes, the pairs of both, and the pairs' shares."""
    most = max(map(len, identity))
    lengths = np.array([len(own) for own in identity])
    factor, rest = np.append(1 - 1 / sizes, 1.0), np.append(sizes**-2.0, 1.0)
    groups: list[Indices] = []
    members: list[Indices] = []
    shares: list[Array] = []
    for k in range(most + 1):
        of_length = np.flatnonzero(lengths == k)
        own = np.array([identity[int(g)] for g in of_length], dtype=np.int64)
        own = own.reshape(len(of_length), k)
        for chosen in range(2**k if len(of_length) else 0):
            held = np.array([chosen >> a & 1 for a in range(k)], dtype=bool)
            subset = np.full((len(of_length), most), -1)
            subset[:, : held.sum()] = own[:, held]
            groups.append(of_length)
            members.append(subset)
            shares.append(factor[own[:, held]].prod(axis=1) * rest[own[:, ~held]].prod(axis=1))
    subsets = np.concatenate(members)
    blocks, block_of = _unique_rows(subsets, len(sizes))
    order = np.argsort(block_of, kind="stable")
    pairs = np.stack([np.concatenate(groups)[order], block_of[order]])
    return blocks, pairs, np.concatenate(shares)[order]


def _unique_rows(subsets: Indices, attributes: int) -> tuple[Indices, Indices]:
    """The different rows (b, most), the smaller sets first, and which of them each row is."""
    most = subsets.shape[1]
    if (attributes + 1.0) ** most < 2**62:  # one number says it all
        key = np.zeros(len(subsets), dtype=np.int64)
        for column in subsets.T:
            key = key * (attributes + 1) + (column + 1)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(subsets, axis=0, return_index=True, return_inverse=True)
    blocks = subsets[first]
    order = np.argsort((blocks >= 0).sum(axis=1), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return blocks[order], rank[inverse.ravel()]
