"""Stars: what a record and a half of its products with other later records can cost together.

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
        later: The cells of the later places, by the number of places that are decided.
        work: The sums that were computed, about.
    """

    def __init__(self, products: RecordProducts) -> None:
        person = products.person
        self.work, self._room = 0, person.room
        places, T = person.places, person.place_count
        self.diagonal = np.diagonal(products.same)
        self.largest = products.largest
        # The largest products with a different record of each place.
        partners = [self.largest[:, places == t].max(axis=1) for t in range(T)]
        self._partners = np.stack(partners, axis=1)
        if self._room == 1:
            self._partners[np.arange(len(places)), places] = -_LARGEST
        stars = self.diagonal + np.maximum(self._partners, 0).sum(axis=1)
        # Places of large stars come first: bounds fall sooner.
        self._order = sorted(range(T), key=lambda t: -int(stars[places == t].max()))
        self.cells = [np.flatnonzero(places == t) for t in self._order]
        joined, ends = np.concatenate(self.cells), np.cumsum([0, *map(len, self.cells)])
        # By the number of places that are decided: the cells of the others, and where each begins.
        self.later = [joined[end:] for end in ends]
        self._starts = [ends[n:-1] - ends[n] for n in range(T + 1)]
        self._alone = functools.cache(self._compute_alone)

    def sum_largest(self, crossing: IntArray, places: int, most: int) -> IntArray:
        """Sum the largest stars of later records.

        Args:
            crossing: What records in the later cells add with given ones, shape (..., cells).
            places: How many places are decided.
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
            places: How many places are decided.
            least: The least number of later records.
            most: The most of them.

        Returns:
            Shape (cells,).
        """
        later = self.later[places]
        partners = self._partners[later][:, self._order[places:]]
        self.work += 8 * partners.size
        partners = take_partners(partners, self._room, most - 1)
        # The largest products come first, and all but the negative ones are wanted.
        wanted = np.clip((partners > 0).sum(axis=1), least - 1, most - 1)
        sums = np.cumsum(partners, axis=1)
        sums = np.concatenate([np.zeros((len(later), 1), dtype=np.int64), sums], axis=1)
        return np.asarray(self.diagonal[later] + sums[np.arange(len(later)), wanted])


def take_partners(partners: AnyArray, room: int, most: int) -> AnyArray:
    """Take the largest products of each record with others, in their order.

    Args:
        partners: The largest product of a record with a different one of each place, shape (rows,
            places). If places have room for several, row i is about the i-th of these places.
        room: The most records in a place.
        most: How many others are taken.

    Returns:
        Shape (rows, at most `most`).
    """
    if room > 1:
        n = len(partners)
        own = np.diagonal(partners)[:, None]
        partners = partners[~np.eye(n, dtype=bool)].reshape(n, n - 1)
        partners = np.sort(partners, axis=1)[:, ::-1][:, :most]
        partners = np.repeat(np.concatenate([partners, own], axis=1), room, axis=1)[:, :-1]
    return np.sort(partners, axis=1)[:, ::-1][:, :most]


def _sum_largest(values: IntArray, most: int, room: int) -> IntArray:
    """Sum the `most` largest of values (..., places), each of which is there `room` times."""
    count = -(-most // room)
    times = np.full(count, room)
    times[-1] = most - room * (count - 1)
    if most < values.shape[-1] * room:
        values = -np.partition(-values, count - 1, axis=-1)[..., :count]
    return np.asarray(values @ times)


def _divide_counts(most: int) -> list[tuple[int, int]]:
    """Divide the numbers from 1 to `most` into ranges, which are longer if they are smaller."""
    ranges, last = [], most
    while last > 0:
        first = max(1, last - (most - last))
        ranges.append((first, last))
        last = first - 1
    return ranges
