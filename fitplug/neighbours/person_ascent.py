"""Costly persons by ascent: records are exchanged one by one until no exchange adds to the cost.

No proof depends on its success. All persons of a search ascend together.
"""

from __future__ import annotations

import numpy as np

from fitplug.neighbours.persons import PersonRecords, RecordProducts, RecordSets
from fitplug.numeric import FloatArray, IntArray

_SWEEPS = 20
"""The most times that each record is exchanged."""

_CHUNK = 1_000_000
"""About the most gains of records that are computed at once."""


def list_costliest_records(products: RecordProducts, most: int) -> RecordSets:
    """List single records in different cells, the costliest first."""
    order = np.argsort(-np.diagonal(products.same), kind="stable")
    return _pack_cells(products.person, order[:most, None])


def list_starts(products: RecordProducts, most: int) -> RecordSets:
    """List the differences from which a search starts: single records, and a record per place."""
    person, squares = products.person, np.diagonal(products.same)
    order = np.argsort(-squares, kind="stable")
    _, first = np.unique(person.places[order], return_index=True)
    whole = _pack_cells(person, order[np.sort(first)[None, : person.most]])
    different = np.minimum(np.arange(person.most)[:, None], np.array(person.sizes) - 1)
    starts = list_costliest_records(products, most).append(whole)
    starts = starts.append(RecordSets(whole.cells, different[None].astype(np.int64)))
    return starts.take(~starts.find_conflicts(person))


def _pack_cells(person: PersonRecords, cells: IntArray) -> RecordSets:
    """Pack persons whose records have equal labels, from their cells (v, at most k)."""
    padded = np.pad(cells, ((0, 0), (0, person.most - cells.shape[1])), constant_values=-1)
    return RecordSets(padded, np.zeros((*padded.shape, len(person.sizes)), dtype=np.int64))


def ascend(
    products: RecordProducts,
    starts: RecordSets,
    *,
    keeps_first: bool = False,
    favour: FloatArray | None = None,
) -> RecordSets:
    """Replace one record after another by the best one, until that changes nothing.

    Args:
        products: The products of records, as floats.
        starts: The initial records of each of v persons.
        keeps_first: Whether the first record of each person is never replaced.
        favour: A number that is added to the cost of a record in each cell, shape (v, D). Persons
            who favour different cells end with different records of about equal cost.
    """
    width = products.products.shape[1] * (1 + len(products.person.sizes) * starts.cells.shape[1])
    size, ends = max(1, _CHUNK // width), []
    for start in range(0, len(starts), size):
        part = np.arange(start, min(start + size, len(starts)))
        favoured = None if favour is None else favour[part]
        ends.append(_ascend_together(products, starts.take(part), keeps_first, favoured))
    return RecordSets(
        np.concatenate([end.cells for end in ends]), np.concatenate([end.labels for end in ends])
    ).normalise()


def _ascend_together(
    products: RecordProducts, starts: RecordSets, keeps_first: bool, favour: FloatArray | None
) -> RecordSets:
    """Ascend from some persons, whose records may be in any order."""
    cells, labels = starts.cells.copy(), starts.labels.copy()
    moving = np.arange(len(cells))
    for _ in range(_SWEEPS):
        before = RecordSets(cells[moving], labels[moving])
        # The first record is replaced last, after others have joined it.
        for r in range(cells.shape[1] - 1, int(keeps_first) - 1, -1):
            cells[moving, r], labels[moving, r] = -1, 0
            rest = RecordSets(cells[moving], labels[moving])
            favoured = None if favour is None else favour[moving]
            gains, cell, label = _find_best_records(products, rest, favoured)
            is_better = gains > 0
            cells[moving[is_better], r] = cell[is_better]
            labels[moving[is_better], r] = label[is_better]
        changed = (cells[moving] != before.cells).any(axis=1)
        changed |= (labels[moving] != before.labels).any(axis=(1, 2))
        moving = moving[changed]
        if not len(moving):
            break
    # Where no query counts the cells, no record adds to the cost.
    is_empty = (cells < 0).all(axis=1)
    cells[is_empty, 0] = starts.cells[is_empty, 0]
    return RecordSets(cells, labels)


def _find_best_records(
    products: RecordProducts, sets: RecordSets, favour: FloatArray | None
) -> tuple[FloatArray, IntArray, IntArray]:
    """Find the record in another period that adds the most to each person.

    Returns:
        The gain in cost, shape (v,), -inf if no period is left; the record's cell, shape (v,), and
        its labels, shape (v, attributes).
    """
    person, cells = products.person, sets.cells
    v, m = len(cells), len(person.sizes)
    tried = _list_labels(person, sets)
    gains = np.repeat(np.diagonal(products.same)[None, None], tried.shape[1], axis=1)
    gains = gains + (0.0 if favour is None else favour[:, None]) + np.zeros((v, 1, 1))
    bits = 1 << np.arange(m, dtype=np.int64)
    for r in range(cells.shape[1]):
        given = np.flatnonzero(cells[:, r] >= 0)
        numbers = (tried[given] != sets.labels[given, r, None]) @ bits
        gains[given] += 2 * products.products[numbers, cells[given, r, None]]
        cell, every = cells[given, r, None, None], np.arange(len(person.periods))
        conflicts = person.are_in_one_period(cell, every, numbers[..., None])
        gains[given] -= np.where(conflicts, np.inf, 0)
    gains = gains.reshape(v, -1)
    best = gains.argmax(axis=1)
    label, cell = np.divmod(best, len(person.periods))
    at = np.arange(v)
    return gains[at, best], cell, tried[at, label]


def _list_labels(person: PersonRecords, sets: RecordSets) -> IntArray:
    """List labels for a further record: another record's labels, with some or all of them new.

    Returns:
        Shape (v, labels, attributes), possibly with repetitions.
    """
    k, m = sets.labels.shape[1:]
    is_given = sets.cells >= 0
    given = np.where(is_given[..., None], sets.labels, k)
    is_used = (given[:, :, None, :] == np.arange(k)[:, None]).any(axis=1)
    # The first label that no record has; label 0, if all are used.
    unused = np.where(is_used.all(axis=1), k, is_used.argmin(axis=1))
    unused = np.where(unused < np.array(person.sizes), unused, 0)[:, None]
    known = np.where(is_given[..., None], sets.labels, unused)
    listed = [unused, known]
    always = [a == person.always_differing for a in range(m)]
    if m > 1:
        for a in range(m):
            is_changed = (np.arange(m) == a) | always
            listed += [np.where(is_changed, unused, known)]
            listed += [np.where(is_changed & ~np.array(always), known, unused)]
    tried = np.concatenate(listed, axis=1)
    radix = (k + 1) ** np.arange(m, dtype=np.int64)
    codes, last = np.sort(tried @ radix, axis=1), np.iinfo(np.int64).max
    codes[:, 1:][codes[:, 1:] == codes[:, :-1]] = last
    codes = np.sort(codes, axis=1)[:, : int((codes < last).sum(axis=1).max())]
    codes = np.where(codes < last, codes, codes[:, :1])
    return np.asarray(codes[..., None] // radix % (k + 1))
