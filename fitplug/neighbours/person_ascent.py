"""Costly persons by ascent: records are exchanged one by one until no exchange adds to the cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.neighbours.person_records import PersonRecords, RecordSets
from fitplug.neighbours.record_products import RecordProducts

_SWEEPS = 20
"""The most times that each record is tried anew."""

Record = tuple[int, tuple[int, ...]]
"""A dense cell, and a label for each symmetric attribute."""


def pack_records(person: PersonRecords, found: Sequence[Sequence[Record]]) -> RecordSets:
    """Pack differences that are given as records."""
    cells = np.full((len(found), person.most), -1, dtype=np.int64)
    labels = np.zeros((len(found), person.most, len(person.sizes)), dtype=np.int64)
    for v, records in enumerate(found):
        for r, (cell, own) in enumerate(records):
            cells[v, r], labels[v, r] = cell, own
    return RecordSets(cells, labels)


def list_starts(products: RecordProducts, most: int) -> list[list[Record]]:
    """List differences to begin a search from: single records, and one record of each period."""
    person = products.person
    unlabelled = (0,) * len(person.sizes)
    own = np.diagonal(products.same)
    costliest: list[int] = np.argsort(-own, kind="stable")[:most].tolist()
    starts: list[list[Record]] = [[(cell, unlabelled)] for cell in costliest]
    by_period = [
        np.flatnonzero(person.periods == t)[np.argmax(own[person.periods == t])]
        for t in range(person.period_count)
    ]
    kept = sorted(by_period, key=lambda cell: -float(own[cell]))[: person.most]
    starts.append([(int(cell), unlabelled) for cell in kept])
    different = [tuple(min(r, n - 1) for n in person.sizes) for r in range(len(kept))]
    starts.append([(int(cell), label) for cell, label in zip(kept, different, strict=True)])
    return starts


def ascend(products: RecordProducts, start: Sequence[Record]) -> list[Record]:
    """Take out one record after another, and put in the best one, until that changes nothing."""
    person, records = products.person, list(start)
    for _ in range(_SWEEPS):
        before = sorted(records)
        for record in [*before, None]:
            if record is not None:
                records.remove(record)
            while len(records) < person.most:
                gain, best = _find_best_record(products, records)
                if best is None or gain <= 0:
                    break
                records.append(best)
        if sorted(records) == before:
            break
    return records or [_find_best_record(products, [])[1] or start[0]]


def _find_best_record(
    products: RecordProducts, records: Sequence[Record]
) -> tuple[float, Record | None]:
    """Find the record in another period that adds the most, and how much it adds."""
    person = products.person
    cells = np.array([cell for cell, _ in records], dtype=np.int64)
    taken = np.zeros(person.period_count, dtype=bool)
    taken[person.periods[cells]] = True
    free = ~taken[person.periods]
    if not free.any():
        return -np.inf, None
    m = len(person.sizes)
    labels = _list_labels(person, [label for _, label in records])
    own = np.array([label for _, label in records], dtype=np.int64).reshape(len(records), m)
    tried = np.array(labels, dtype=np.int64).reshape(len(labels), m)
    numbers = (tried[:, None] != own) @ (1 << np.arange(m, dtype=np.int64))
    gains = np.diagonal(products.same) + 2 * products.products[numbers, cells].sum(axis=1)
    gains[:, ~free] = -np.inf
    best, at = divmod(int(np.argmax(gains)), len(free))
    return float(gains[best, at]), (at, labels[best])


def _list_labels(person: PersonRecords, labels: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """List labels for a further record: those of another record, some or all of them new."""
    m, labels = len(person.sizes), list(dict.fromkeys(labels))
    unused = [
        next((n for n in range(size) if all(label[a] != n for label in labels)), 0)
        for a, size in enumerate(person.sizes)
    ]
    found = [tuple(unused), *labels]
    for label in labels:
        found += [(*label[:a], unused[a], *label[a + 1 :]) for a in range(m)]
        found += [tuple(label[b] if a == b else unused[b] for b in range(m)) for a in range(m)]
    return list(dict.fromkeys(found))
