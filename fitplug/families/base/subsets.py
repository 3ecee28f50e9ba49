"""Subsets: the sets A of attributes that have a block of Sigma, and the groups that use them.

Group t uses the set A_t of the attributes that blocks are made of. Its answers are sums over the
blocks of all subsets A of A_t (docs/theory/symmetry.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.numeric import AnyArray, FloatArray, IndexArray, IntArray, frozen_property


@dataclass(frozen=True, eq=False, repr=False)
class AttributeSets:
    """One set of attributes per group. There may be a million groups.

    Attributes:
        padded: The attributes of each set, ascending and padded with -1, shape (g, most).
    """

    padded: IntArray

    def __len__(self) -> int:
        return len(self.padded)

    def __getitem__(self, index: int) -> tuple[int, ...]:
        return tuple(a for a in self.padded[index].tolist() if a >= 0)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (tuple(a for a in row if a >= 0) for row in self.padded.tolist())

    @frozen_property
    def counts(self) -> IntArray:
        """The size of each set, shape (g,)."""
        return np.asarray((self.padded >= 0).sum(axis=1, dtype=np.int64))

    def multiply(self, numbers: Sequence[int]) -> IntArray:
        """Multiply, per set, one integer for each of its attributes; products are below 2^63."""
        return _multiply_columns(np.array([*numbers, 1], dtype=np.int64), self.padded)


def pad_sets(counts: IntArray, members: IntArray) -> AttributeSets:
    """Pad sets of attributes.

    Args:
        counts: The size of each set, shape (g,).
        members: The attributes of one set after another, ascending within each.

    Returns:
        The sets.
    """
    padded = np.full((len(counts), int(counts.max())), -1, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < counts[:, None]] = members
    return AttributeSets(padded)


@dataclass(frozen=True, eq=False)
class Subsets:
    """All subsets A of the groups' sets A_t: one block each.

    Attributes:
        sizes: n_a of each attribute that blocks are made of.
        group_attributes: Per group A_t, as ascending indices of these attributes.
        blocks: The subsets A, shape (b, most), smaller sets first, as indices of attributes, padded
            with -1.
        pairs: The n pairs of a group t and a block A within A_t, shape (2, n), ordered by block.
        variance_multiples: w_A prod_{a in A_t - A} n_a^-2 of each pair, with w_A = prod_{a in A} (1
            - 1/n_a), shape (n,).
        by_count: Per number k of attributes, the groups with |A_t| = k, shape (g,), and the blocks
            of all their subsets, shape (g, 2^k): bit i of the second index is the i-th attribute of
            A_t.
    """

    sizes: tuple[int, ...]
    group_attributes: AttributeSets
    blocks: IntArray
    pairs: IndexArray
    variance_multiples: FloatArray
    by_count: tuple[tuple[IndexArray, IndexArray], ...]

    @frozen_property
    def profile_multiples(self) -> FloatArray:
        """w_A = prod_{a in A} (1 - 1/n_a) of each block, shape (b,)."""
        factor = np.append(1 - 1 / np.array(self.sizes, dtype=np.float64), 1.0)
        return _multiply_columns(factor, self.blocks)

    def find_groups(self, block: int) -> tuple[IndexArray, FloatArray]:
        """Find the groups to which a block contributes, and the pairs' variance multiples."""
        mine = slice(self._pair_ends[block - 1] if block else 0, self._pair_ends[block])
        return self.pairs[0, mine], self.variance_multiples[mine]

    def find_blocks(self, group: int) -> list[int]:
        """Find the blocks that contribute to a group: the subsets of A_t."""
        order, ends = self._pairs_by_group
        blocks: list[int] = self.pairs[1, order[ends[group] : ends[group + 1]]].tolist()
        return blocks

    def list_attributes(self, blocks: Sequence[int] | IntArray) -> list[tuple[int, ...]]:
        """List the attributes of some blocks, as indices."""
        chosen = self.blocks[np.asarray(blocks, dtype=np.int64)]
        return [tuple(a for a in row if a >= 0) for row in chosen.tolist()]

    def select_largest(self, blocks: IntArray) -> IntArray:
        """Select the blocks that are not another of them without one of its attributes.

        Args:
            blocks: Shape (b,).

        Returns:
            The selected blocks, in their order. If all blocks are given, none is within another.
        """
        rows = self.blocks[blocks]
        counts = (rows >= 0).sum(axis=1)
        smaller = [
            np.delete(np.pad(rows[counts > i], ((0, 0), (0, 1)), constant_values=-1), i, axis=1)
            for i in range(rows.shape[1])
        ]
        _, place = _find_unique_rows(np.concatenate([rows, *smaller]), len(self.sizes))
        is_within = np.zeros(int(place.max()) + 1, dtype=bool)
        is_within[place[len(rows) :]] = True
        return blocks[~is_within[place[: len(rows)]]]

    def multiply(self, numbers: Sequence[int], blocks: IntArray) -> AnyArray:
        """Multiply, per block, one number for each of its attributes.

        Args:
            numbers: One integer for each attribute that blocks are made of.
            blocks: Shape (b,).

        Returns:
            prod_{a in A} numbers[a] of each block, Python integers, shape (b,).
        """
        fits = max([1, *map(abs, numbers)]) ** self.blocks.shape[1] < 2**63
        factors = np.array([*numbers, 1], dtype=np.int64 if fits else object)
        return _multiply_columns(factors, self.blocks[blocks]).astype(object)

    @frozen_property
    def _pair_ends(self) -> IndexArray:
        """The end of each block's pairs, shape (b,)."""
        return np.cumsum(np.bincount(self.pairs[1], minlength=len(self.blocks)))

    @frozen_property
    def _pairs_by_group(self) -> tuple[IndexArray, IndexArray]:
        """The order of the pairs by group, and each group's first position, shape (groups + 1,)."""
        order = np.argsort(self.pairs[0], kind="stable")
        groups = np.arange(len(self.group_attributes) + 1)
        return order, np.searchsorted(self.pairs[0, order], groups)


def find_subsets(sizes: tuple[int, ...], group_attributes: AttributeSets) -> Subsets:
    """Find all subsets of the sets A_t of the groups.

    Args:
        sizes: n_a of the attributes that blocks are made of.
        group_attributes: Per group A_t, as ascending indices of these attributes.

    Returns:
        The subsets, found with array operations, since there may be millions of pairs.
    """
    n = np.array(sizes, dtype=np.float64)
    lengths, most = group_attributes.counts, group_attributes.padded.shape[1]
    within, rest = 1 - 1 / n, n**-2.0
    pairs = int((2**lengths).sum())
    subsets = np.full((most, pairs), -1, dtype=np.min_scalar_type(-len(sizes) - 1))
    groups = np.empty(pairs, dtype=np.intp)
    multiples = np.empty(pairs)
    by_length = [(k, np.flatnonzero(lengths == k)) for k in range(most + 1)]
    end = 0
    for k, of_length in by_length:
        attributes = group_attributes.padded[of_length, :k]
        for chosen in range(2**k if len(of_length) else 0):
            here, end = slice(end, end + len(of_length)), end + len(of_length)
            inside = [a for a in range(k) if chosen >> a & 1]
            for column, a in enumerate(inside):
                subsets[column, here] = attributes[:, a]
            outside = [a for a in range(k) if a not in inside]
            groups[here] = of_length
            multiples[here] = _multiply_columns(within, attributes[:, inside])
            multiples[here] *= _multiply_columns(rest, attributes[:, outside])
    blocks, block_of = _find_unique_rows(subsets.T, len(sizes))
    order = np.argsort(block_of, kind="stable")
    ends = np.cumsum([len(g) * 2**k for k, g in by_length])[:-1]
    return Subsets(
        sizes=sizes,
        group_attributes=group_attributes,
        blocks=blocks,
        pairs=np.stack([groups[order], block_of[order]]),
        variance_multiples=multiples[order],
        by_count=tuple(
            (g, ids.reshape(2**k, len(g)).T)
            for (k, g), ids in zip(by_length, np.split(block_of, ends), strict=True)
        ),
    )


def _multiply_columns(numbers: AnyArray, rows: IntArray) -> AnyArray:
    """Multiply, per row, one number for each entry. Rows are many and short.

    Args:
        numbers: The numbers, indexed by the entries.
        rows: Shape (r, k).

    Returns:
        The products, shape (r,).
    """
    products = np.ones(len(rows), dtype=numbers.dtype)
    for column in rows.T:
        products *= numbers[column]
    return products


def _find_unique_rows(subsets: IntArray, attributes: int) -> tuple[IntArray, IndexArray]:
    """Find the distinct rows (b, most), smaller sets first, and the index of each row's equal."""
    most = subsets.shape[1]
    if (attributes + 1.0) ** most < 2**62:  # one integer can hold a row
        key = np.zeros(len(subsets), dtype=np.int64)
        for column in subsets.T:
            key = key * (attributes + 1) + (column + 1)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(subsets, axis=0, return_index=True, return_inverse=True)
    blocks = subsets[first].astype(np.int64)
    order = np.argsort((blocks >= 0).sum(axis=1), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return blocks[order], rank[inverse.ravel()]
