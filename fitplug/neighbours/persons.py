"""The records of a person with several records, and what a strategy measures of them.

In two units of privacy a person has up to k records, at most one of them per period: a month, or
whatever attribute `once_per` names. Where the records must be distinct, each cell is a period. A
difference v is then a choice of at most k records, each with a dense cell and a cell of each
symmetric attribute. By symmetry, only this matters: which of the records share a cell of a
symmetric attribute, and which do not. Labels encode it: records with equal labels share a cell.
Records in different periods have dense cells of different periods, or different labels of a
symmetric attribute that distinguishes periods.

In block A of a structure, the difference v is a matrix over the dense cells,

    M_A(v) = sum over pairs (r, s) of records of  c_A(r, s) e_r e_s'
    c_A(r, s) = prod_{a in A} (1 - 1/n_a if the labels of r and s are equal, else - 1/n_a)

so that v' Sigma^-1 v = sum_A tr(M_A(v) Sigma_A^-1) (docs/theory/persons.md). The cost of v is also
the sum, over all pairs of its records, of the inner products of the two records' measurements. Two
records in given dense cells have one product for each set of symmetric attributes in which they
differ. The same code takes floats, for the optimizer, and Python integers, for exact costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitplug.errors import BAD_PROOF
from fitplug.numeric import AnyArray, BoolArray, FloatArray, IndexArray, IntArray

_ODD = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], dtype=np.uint64)
_HALF = np.uint64(32)
"""Constants that mix the bits of numbers, so that sums of them are rarely equal."""


@dataclass(frozen=True, eq=False)
class PersonRecords:
    """Which records one person may have.

    Attributes:
        most: k, the most records, which is at most the number of periods.
        periods: The period of each dense cell, or as much of it as dense cells determine, from 0,
            shape (D,).
        sizes: n_a of each of the structure's `block_attributes`; 1 if nothing depends on it.
        apart: The set of symmetric attributes, numbered as in `RecordSets.compare_records`, whose
            cells distinguish periods too.
    """

    most: int
    periods: IndexArray
    sizes: tuple[int, ...]
    apart: int = 0

    @property
    def period_count(self) -> int:
        """The number of periods that the dense cells distinguish."""
        return int(self.periods.max()) + 1

    @property
    def places(self) -> IndexArray:
        """The place of each dense cell, from 0, shape (D,).

        A place is a period, or a dense cell if symmetric attributes distinguish periods too. It
        holds up to `room` records of a person.
        """
        return np.arange(len(self.periods)) if self.apart else self.periods

    @property
    def room(self) -> int:
        """The most records of a person in one place."""
        sizes = (n for a, n in enumerate(self.sizes) if self.apart >> a & 1)
        return min(self.most, math.prod(sizes))

    @property
    def place_count(self) -> int:
        """The number of places."""
        return len(self.periods) if self.apart else self.period_count

    @property
    def has_one_cell_each(self) -> bool:
        """Whether each place is one dense cell."""
        return self.place_count == len(self.periods)

    @property
    def always_differing(self) -> int | None:
        """The only symmetric attribute in which all records of a person must differ, or None."""
        is_one = self.period_count == 1 and self.apart.bit_count() == 1
        return self.apart.bit_length() - 1 if is_one else None

    def are_in_one_period(
        self, first: IntArray, second: IntArray, differing: IntArray
    ) -> BoolArray:
        """Return whether records in two dense cells, differing in a set of attributes, conflict."""
        is_same = self.periods[first] == self.periods[second]
        return np.asarray(is_same & (differing & self.apart == 0))

    @property
    def differing_sets(self) -> IntArray:
        """The nonempty sets of symmetric attributes in which two records can differ.

        They are numbered as in `RecordSets.compare_records`.
        """
        varying = [1 << a for a, size in enumerate(self.sizes) if size > 1]
        sets = [0]
        for bit in varying:
            sets += [number + bit for number in sets]
        return np.array(sets[1:], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class RecordSets:
    """Differences v, each given by its records.

    Attributes:
        cells: The dense cells of each difference's records, shape (v, k), padded with -1 at the
            end.
        labels: Their labels for each symmetric attribute, from 0, shape (v, k, attributes). Labels
            of padding are 0.
    """

    cells: IntArray
    labels: IntArray

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        """The arrays of a plan file, by name."""
        return {"records.cells": self.cells, "records.labels": self.labels}

    def find_differing(self) -> BoolArray:
        """Find in which symmetric attributes two records differ, shape (v, k, k, attributes)."""
        return np.asarray(self.labels[:, :, None] != self.labels[:, None])

    def compare_records(self) -> IntArray:
        """Number the set of symmetric attributes in which two records differ.

        Returns:
            Shape (v, k, k): the sum of 2^a over these attributes.
        """
        bits = 1 << np.arange(self.labels.shape[2], dtype=np.int64)
        return np.asarray(self.find_differing() @ bits)

    def multiply_labels(self, attributes: Sequence[int], sizes: Sequence[float]) -> FloatArray:
        """Compute c_A of all pairs of records, shape (v, k, k); zero where a record is padding.

        Args:
            attributes: A.
            sizes: n_a of all symmetric attributes; infinite if records with different labels have
                the product zero.
        """
        is_given = self.cells >= 0
        factors = (is_given[:, :, None] & is_given[:, None]).astype(np.float64)
        differing = self.find_differing()
        for a in attributes:
            factors *= np.where(differing[..., a], 0.0, 1.0) - 1 / sizes[a]
        return factors

    def append(self, others: RecordSets) -> RecordSets:
        """Append other sets."""
        return RecordSets(
            np.concatenate([self.cells, others.cells]),
            np.concatenate([self.labels, others.labels]),
        )

    def take(self, index: IntArray | BoolArray) -> RecordSets:
        """Take some of the sets."""
        return RecordSets(self.cells[index], self.labels[index])

    def normalise(self) -> RecordSets:
        """Sort the records of each set by cell, and number labels in order of first occurrence.

        Records in one cell are sorted by the labels that they share with the others.
        """
        given, differing = self.cells >= 0, self.compare_records().astype(np.uint64)
        shared = (differing * _ODD[0] + self.cells[:, None].astype(np.uint64)) * _ODD[1]
        mixed = np.where(given[:, None], (shared >> _HALF) ** np.uint64(2), np.uint64(0))
        order = np.argsort(mixed.sum(axis=2), axis=1, kind="stable")
        cells = np.take_along_axis(
            np.where(given, self.cells, np.iinfo(np.int64).max), order, axis=1
        )
        order = np.take_along_axis(order, np.argsort(cells, axis=1, kind="stable"), axis=1)
        cells = np.take_along_axis(self.cells, order, axis=1)
        labels = np.take_along_axis(self.labels, order[..., None], axis=1)
        is_equal = (labels[:, :, None] == labels[:, None]) & (cells >= 0)[:, None, :, None]
        first = is_equal.argmax(axis=2)  # the first record with the same label
        is_first = first == np.arange(cells.shape[1])[:, None]
        numbers = np.take_along_axis(np.cumsum(is_first, axis=1) - 1, first, axis=1)
        return RecordSets(cells, np.where((cells >= 0)[..., None], numbers, 0))

    def leave_out(self, known: RecordSets | None = None) -> RecordSets:
        """Leave out sets that are known, or that occur earlier."""
        joined = self if known is None else known.append(self)
        keys = np.concatenate([joined.cells, joined.labels.reshape(len(joined), -1)], axis=1)
        _, first = np.unique(keys, axis=0, return_index=True)
        return joined.take(np.sort(first[first >= len(joined) - len(self)]))

    def check_form(self, person: PersonRecords) -> None:
        """Check that a person may have these records.

        Raises:
            ValueError: If a shape, a type or a number is out of range, or two records of one set
                are in one period, or a set is empty.
        """
        cells, labels, k, m = self.cells, self.labels, person.most, len(person.sizes)
        fits = cells.dtype == np.int64 and cells.ndim == 2 and cells.shape[1] == k
        fits = fits and labels.dtype == np.int64 and labels.shape == (*cells.shape, m)
        fits = fits and bool(len(cells)) and bool((cells[:, 0] >= 0).all())
        fits = fits and -1 <= int(cells.min()) <= int(cells.max()) < len(person.periods)
        fits = fits and bool((labels >= 0).all()) and bool((labels < [*person.sizes]).all())
        if not fits or self.find_conflicts(person).any():
            raise ValueError(BAD_PROOF)

    def find_conflicts(self, person: PersonRecords) -> BoolArray:
        """Find which sets have two records in one period, shape (v,)."""
        first, second = np.triu_indices(self.cells.shape[1], 1)
        one, other = self.cells[:, first], self.cells[:, second]
        differing = self.compare_records()[:, first, second]
        conflicts = person.are_in_one_period(one, other, differing) & (one >= 0) & (other >= 0)
        return np.asarray(conflicts.any(axis=1))


def list_single_records(person: PersonRecords) -> RecordSets:
    """List the differences of one record, one for each dense cell."""
    d = len(person.periods)
    cells = np.full((d, person.most), -1, dtype=np.int64)
    cells[:, 0] = np.arange(d)
    return RecordSets(cells, np.zeros((d, person.most, len(person.sizes)), dtype=np.int64))


@dataclass(frozen=True, eq=False)
class RecordProducts:
    """The inner products of all pairs of records.

    Attributes:
        person: Which records a person may have.
        products: Shape (2^m, D, D): the products of records in two dense cells that differ in a set
            of the m symmetric attributes, which is numbered as in `RecordSets.compare_records`.
    """

    person: PersonRecords
    products: AnyArray

    @property
    def same(self) -> AnyArray:
        """The products of records that differ in no symmetric attribute, shape (D, D)."""
        return np.asarray(self.products[0])

    @property
    def largest(self) -> AnyArray:
        """The largest products of two different records of a person, shape (D, D).

        Where dense cells alone distinguish periods, products within a period are meaningless.
        """
        person = self.person
        sets = np.append(0, person.differing_sets)
        largest = np.maximum.reduce(self.products[sets])
        if person.apart:
            apart = np.maximum.reduce(self.products[sets[sets & person.apart > 0]])
            largest = np.where(person.periods[:, None] == person.periods, apart, largest)
        return np.asarray(largest)

    @property
    def crosses(self) -> bool:
        """Whether two different records of a person have products other than zero."""
        at, sets = np.arange(len(self.person.periods)), np.arange(len(self.products))
        conflicts = self.person.are_in_one_period(at[:, None], at, sets[:, None, None])
        return bool((self.products.astype(bool) & ~conflicts).any())

    def to_floats(self) -> RecordProducts:
        """Convert the products to floats."""
        return replace(self, products=self.products.astype(np.float64))

    def compute_costs(self, sets: RecordSets) -> AnyArray:
        """Compute the cost |A v|^2 of differences, shape (v,)."""
        cells = sets.cells
        is_given = (cells >= 0)[:, :, None] & (cells >= 0)[:, None]
        products = self.products[sets.compare_records(), cells[:, :, None], cells[:, None]]
        return np.asarray(np.where(is_given, products, 0).sum(axis=(1, 2)))


def build_record_products(
    person: PersonRecords,
    parts: Iterable[tuple[Sequence[int], AnyArray]],
    equal: Sequence[int | float],
    other: Sequence[int | float],
) -> RecordProducts:
    """Build the products of all pairs of records from those of the blocks.

    Args:
        person: Which records a person may have.
        parts: The attributes A of each block, and the products of its columns, shape (D, D).
        equal: The factor of each symmetric attribute for two records that are equal in it: 1 - 1/n
            times a number.
        other: The factor for two records that differ in it: - 1/n times the same number.
    """
    m, d = len(person.sizes), len(person.periods)
    total: AnyArray | None = None
    for attributes, gram in parts:
        if total is None:
            total = np.zeros((2**m, d, d), dtype=gram.dtype)
        for differing in range(2**m):
            factor: int | float = 1
            for a in attributes:
                factor = factor * (other[a] if differing >> a & 1 else equal[a])
            total[differing] += factor * gram
    assert total is not None
    return RecordProducts(person, total)
