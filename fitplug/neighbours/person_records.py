"""The records of a person with several of them, and what they change in the blocks of Sigma.

In two units of privacy a person has up to k records, and no two of them in one period: a month, or
whatever attribute `once_per` names. Where the records are distinct, each cell is such a period. A
difference v is then a choice of at most k periods, of a dense cell in each of them, and of the cell
of the symmetric attributes that each record is in. By symmetry only this matters: which of the
records are in one cell of a symmetric attribute, and which are in different cells. Numbers called
labels say this: records with equal labels are in one cell.

For block A of a structure the difference v counts as a matrix over the dense cells,

    M_A(v) = sum over pairs (r, s) of records of  c_A(r, s) e_r e_s'
    c_A(r, s) = prod_{a in A} (1 - 1/n_a if the labels of r and s are equal, else - 1/n_a)

so that v' Sigma^-1 v = sum_A tr(M_A(v) Sigma_A^-1) (docs/theory/persons.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.numeric import BoolArray, FloatArray, IndexArray, IntArray


@dataclass(frozen=True, eq=False)
class PersonRecords:
    """Which records one person may have.

    Attributes:
        most: k, the most records, which is at most the number of periods.
        periods: The period of each dense cell, from 0, shape (D,).
        sizes: n_a of each of the structure's `block_attributes`; 1 if no block has it.
    """

    most: int
    periods: IndexArray
    sizes: tuple[int, ...]

    @property
    def period_count(self) -> int:
        """The number of periods."""
        return int(self.periods.max()) + 1

    @property
    def has_one_cell_each(self) -> bool:
        """Whether each period is one dense cell."""
        return self.period_count == len(self.periods)

    @property
    def differing_sets(self) -> IntArray:
        """The sets of symmetric attributes in which two records can differ, but the empty one.

        They are numbered as in `RecordSets.compare_records`.
        """
        varying = [1 << a for a, size in enumerate(self.sizes) if size > 1]
        found = [0]
        for bit in varying:
            found += [number + bit for number in found]
        return np.array(found[1:], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class RecordSets:
    """Differences v that are named by the records that they are made of.

    Attributes:
        cells: The dense cells of each one's records, shape (v, k), padded with -1 at the end.
        labels: Their labels for each symmetric attribute, from 0, shape (v, k, attributes). Labels
            of padding are 0.
    """

    cells: IntArray
    labels: IntArray

    def __len__(self) -> int:
        return len(self.cells)

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
            sizes: n_a of all symmetric attributes; infinite if different labels have nothing in
                common.
        """
        kept = self.cells >= 0
        factors = (kept[:, :, None] & kept[:, None]).astype(np.float64)
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
        """Sort the records of each set by cell, and number labels as they first occur."""
        given = self.cells >= 0
        order = np.argsort(np.where(given, self.cells, np.iinfo(np.int64).max), axis=1)
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
        if fits:
            # Padding is given periods of its own.
            periods = np.where(cells < 0, -1 - np.arange(k), person.periods[cells])
            fits = bool((np.diff(np.sort(periods, axis=1), axis=1) > 0).all())
        if not fits:
            raise ValueError("the differences are not sets of records that one person may have")


def list_single_records(person: PersonRecords) -> RecordSets:
    """List the differences of one record, one for each dense cell."""
    d = len(person.periods)
    cells = np.full((d, person.most), -1, dtype=np.int64)
    cells[:, 0] = np.arange(d)
    return RecordSets(cells, np.zeros((d, person.most, len(person.sizes)), dtype=np.int64))
