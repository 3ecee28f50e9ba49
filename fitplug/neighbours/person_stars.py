"""Stars: the cost of a record with half of its products with other later records.

See `fitplug.neighbours.person_search` and docs/theory/persons.md, Lemma N2.
"""

from __future__ import annotations

import functools

import numpy as np

from fitplug.neighbours.persons import RecordProducts
from fitplug.numeric import AnyArray, IntArray

_LARGEST = 2**61
"""More than any product."""


class Stars:
    """The stars of records in places that are decided one after another.

    Attributes:
        diagonal: The product of a record in each dense cell with itself, shape (D,).
        largest: The largest products of two different records, shape (D, D).
        cells: The dense cells of each place, in the order in which places are decided.
        later: The cells of the later places, by the number of decided places.
        work: About the number of sums computed so far.
    """

    def __init__(self, products: RecordProducts) -> None:
        person = products.person
        self.work, self._room = 0, person.room
        places, T = person.places, person.place_count
        self.diagonal = np.diagonal(products.same)
        self.largest = products.largest
        # The largest product of each cell's record with another record in each place.
        partners = [self.largest[:, places == t].max(axis=1) for t in range(T)]
        self._partners = np.stack(partners, axis=1)
        if self._room == 1:
            self._partners[np.arange(len(places)), places] = -_LARGEST
        stars = self.diagonal + np.maximum(self._partners, 0).sum(axis=1)
        # Places with large stars come first, so that bounds fall sooner.
        self._order = sorted(range(T), key=lambda t: -int(stars[places == t].max()))
        self.cells = [np.flatnonzero(places == t) for t in self._order]
        joined, ends = np.concatenate(self.cells), np.cumsum([0, *map(len, self.cells)])
        # By the number of decided places: the cells of the others, and where each place begins.
        self.later = [joined[end:] for end in ends]
        self._starts = [ends[n:-1] - ends[n] for n in range(T + 1)]
        self._alone = functools.cache(self._compute_alone)

    def sum_largest(self, crossing: IntArray, places: int, most: int) -> IntArray:
        """Sum the largest stars of later records.

        Args:
            crossing: Twice the products of records in the later cells with given records, shape
                (..., cells).
            places: The number of decided places.
            most: The most later records.
        """
        best = np.zeros(crossing.shape[:-1], dtype=np.int64)
        starts = self._starts[places]
        for least, last in _divide_counts(min(most, len(starts) * self._room)):
            stars = crossing + self._alone(places, least, last)
            stars = np.maximum(np.maximum.reduceat(stars, starts, axis=-1), 0)
            best = np.maximum(best, _sum_largest(stars, last, self._room))
        return best

    def _compute_alone(self, places: int, least: int, most: int) -> IntArray:
        """Compute the stars of the later cells without given records.

        Args:
            places: The number of decided places.
            least: The least number of later records.
            most: The largest number of later records.

        Returns:
            Shape (cells,).
        """
        later = self.later[places]
        partners = self._partners[later][:, self._order[places:]]
        self.work += 8 * partners.size
        partners = take_partners(partners, self._room, most - 1)
        # The largest products come first, and negative ones are wanted only as far as needed.
        wanted = np.clip((partners > 0).sum(axis=1), least - 1, most - 1)
        sums = np.cumsum(partners, axis=1)
        sums = np.concatenate([np.zeros((len(later), 1), dtype=np.int64), sums], axis=1)
        return np.asarray(self.diagonal[later] + sums[np.arange(len(later)), wanted])


def take_partners(partners: AnyArray, room: int, most: int) -> AnyArray:
    """Take the largest products of each record with others, in descending order.

    Args:
        partners: The largest product of a record with another one in each place, shape (rows,
            places). If places have room for several records, row i belongs to the i-th place.
        room: The most records in a place.
        most: The number of others.

    Returns:
        Shape (rows, at most `most`).
    """
    if room > 1:
        n = len(partners)
        in_place = np.diagonal(partners)[:, None]
        partners = partners[~np.eye(n, dtype=bool)].reshape(n, n - 1)
        partners = np.sort(partners, axis=1)[:, ::-1][:, :most]
        partners = np.repeat(np.concatenate([partners, in_place], axis=1), room, axis=1)[:, :-1]
    return np.sort(partners, axis=1)[:, ::-1][:, :most]


def _sum_largest(values: IntArray, most: int, room: int) -> IntArray:
    """Sum the `most` largest of values (..., places), each of which counts up to `room` times."""
    count = -(-most // room)
    times = np.full(count, room)
    times[-1] = most - room * (count - 1)
    if most < values.shape[-1] * room:
        values = -np.partition(-values, count - 1, axis=-1)[..., :count]
    return np.asarray(values @ times)


def _divide_counts(most: int) -> list[tuple[int, int]]:
    """Divide the numbers from 1 to `most` into ranges; ranges of smaller numbers are longer."""
    ranges, last = [], most
    while last > 0:
        first = max(1, last - (most - last))
        ranges.append((first, last))
        last = first - 1
    return ranges
