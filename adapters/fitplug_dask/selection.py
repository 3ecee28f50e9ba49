"""Selection: at most k rows of each person, chosen by a keyed hash of the person's rows alone.

That a person with at most k rows costs k^2 rho rests on this: one person more or less changes the
tables by at most k rows. It holds because which rows of a person are kept depends on that person's
rows alone, not on other persons' rows, their order, or how files and tasks are cut. So every row
gets a priority that is a pseudo-random function of its person and its cells, and the k lowest are
kept; rows of equal priority are equal in all that is counted, so it does not matter which of them.
Each of a person's cells is as likely as another to come first, however many rows it has. Rows
outside the domain are in no table and do not compete; nor do rows without a person, and rows that
a filter leaves out: which these are depends on each row alone.

A person stands here as a hash of 128 bits under a secret key. Two persons with the same hash would
share k rows, and the removal of one would let in rows of the other: up to 2 k rows change. The
chance that any two of n persons do is n^2 / 2^129, below 2^-60 for all people alive, which is why
it is not a hash of 64 bits. The key keeps whoever chooses identifiers from choosing such a pair.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.domain import OUTSIDE
from fitplug.errors import BudgetError
from fitplug.ledger import check_contributions
from fitplug_dask.coders import Coder
from fitplug_dask.kernel import NO_MEMORY, Fault, Job, Partial, read_share
from fitplug_dask.loops import locate
from fitplug_dask.persons import Hasher
from fitplug_dask.shares import Share
from fitplug_dask.siphash import KEY_BYTES, Words, siphash128

Indices: TypeAlias = npt.NDArray[np.intp]

_COMPACTED_ROWS = 2**20
_WORD = 2**63


@dataclass(frozen=True, repr=False)
class Selection:
    """person: the column that identifies persons. contributions: most rows kept of each.

    tag_key, priority_key: 16 secret bytes each.
    """

    person: str
    contributions: int
    tag_key: bytes
    priority_key: bytes

    def __repr__(self) -> str:
        return f"Selection({self.contributions} rows a {self.person!r}; key secret)"

    @classmethod
    def of(cls, person: str | None, contributions: int | None, key: bytes | None) -> Selection:
        """What the keywords of `count` ask; a key is drawn if none is given.

        Raises BudgetError for a number of rows that is none, or one part without the other;
        TypeError for a key that is not at least 16 bytes.
        """
        if not isinstance(person, str) or not person:
            raise BudgetError(
                "rows are limited by person; name the column that identifies persons: "
                'person="..." with contributions=k'
            )
        if contributions is None:
            raise BudgetError(
                f"person = {person!r} needs contributions=k: the most rows to keep of each person"
            )
        check_contributions(contributions)
        if key is not None and (not isinstance(key, bytes) or len(key) < KEY_BYTES):
            raise TypeError(f"key must be at least {KEY_BYTES} secret bytes")
        secret = hashlib.sha256(secrets.token_bytes(32) if key is None else key).digest()
        return cls(person, contributions, secret[:KEY_BYTES], secret[KEY_BYTES:])

    def priorities(self, rows: Rows) -> Words:
        """What the rows (n,) are ordered by, lowest first, among those of their person."""
        content = np.hstack([rows.tags, rows.words]).astype("<u8", copy=False)
        hashes = siphash128(self.priority_key, content.view(np.uint8))
        return hashes[:, 0]

    def kept(self, rows: Rows) -> Indices:
        """Which of some rows are kept, if these are all rows of their persons.

        Of rows that are only some of a person's, all those that the person keeps are among them.
        """
        order = np.argsort(rows.tags[:, 0])
        starts = _starts(rows.tags[order, 0])
        long = np.diff(np.append(starts, len(order))) > self.contributions
        crowded = np.repeat(long, np.diff(np.append(starts, len(order))))
        some = order[crowded]
        among = rows.take(some)
        # The words too: rows of equal priority are then equal, even if a hash is met twice.
        keys = (*among.words.T, self.priorities(among), among.tags[:, 1], among.tags[:, 0])
        ranked = np.lexsort(keys)
        first = _starts(among.tags[ranked])
        rank = np.arange(len(ranked)) - np.repeat(first, np.diff(np.append(first, len(ranked))))
        return np.concatenate([order[~crowded], some[ranked[rank < self.contributions]]])


class Rows(NamedTuple):
    """Rows in the domain: persons as hashes, tags (n, 2), and cells, words (n, w) by `Packing`."""

    tags: Words
    words: Words

    def __repr__(self) -> str:
        return "Rows(confidential)"

    def take(self, at: Any) -> Rows:
        return Rows(self.tags[at], self.words[at])


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows of all parts, of which there must be one at least."""
    if len(parts) == 1:
        return parts[0]
    return Rows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class Packing:
    """How a row's cells of all attributes are packed into as few 64-bit words as hold them."""

    def __init__(self, job: Job) -> None:
        self._sizes = {name: attribute.size for name, attribute in job.attributes.items()}
        self.words: list[list[str]] = []
        room = 0
        for name, size in self._sizes.items():
            room //= size
            if not room:
                self.words.append([])
                room = _WORD // size
            self.words[-1].append(name)

    @property
    def row_bytes(self) -> int:
        return 16 + 8 * len(self.words)

    def pack(self, codes: Mapping[str, Any], rows: int) -> Words:
        """Words (n, w) of codes (n,), or of one code for all rows."""
        words = np.zeros((rows, len(self.words)), dtype=np.uint64)
        for w, names in enumerate(self.words):
            cell = np.zeros(rows, dtype=np.int64)
            for name in names:
                cell *= self._sizes[name]
                cell += codes[name]
            words[:, w] = cell
        return words

    def unpack(self, words: Words) -> dict[str, npt.NDArray[np.int64]]:
        """The codes (n,) of each attribute."""
        codes: dict[str, npt.NDArray[np.int64]] = {}
        for w, names in enumerate(self.words):
            cell = words[:, w].astype(np.int64)
            for name in reversed(names):
                cell, codes[name] = np.divmod(cell, self._sizes[name])
        return codes


@dataclass(frozen=True)
class Part:
    """Which persons one round is about: the hashes of `round`, of so many, in so many buckets."""

    round: int
    rounds: int
    buckets: int

    def bucket(self, tags: Words) -> npt.NDArray[np.int64]:
        """The bucket of each person in this round; outside 0..buckets-1 are other rounds."""
        cuts = np.uint64(self.rounds * self.buckets)
        cut = ((tags[:, 0] >> np.uint64(32)) * cuts) >> np.uint64(32)
        return cut.astype(np.int64) - self.round * self.buckets


@dataclass(frozen=True, repr=False)
class Split:
    """The rows of one share that a round is about, by bucket. Confidential, also as a repr."""

    buckets: tuple[Rows, ...]

    def __repr__(self) -> str:
        return "Split(rows confidential)"


def split_share(job: Job, selection: Selection, part: Part, share: Share) -> Split | Fault:
    """The rows of one share that may be kept, of the persons that this round is about."""
    try:
        collector = _Collector(job, selection, part)
        if fault := read_share(collector, share):
            return fault
        rows = collector.rows()
        bucket = part.bucket(rows.tags)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(part.buckets + 1))
        # Copies, so that a bucket that is sent on or done with holds no memory of the others.
        return Split(tuple(rows.take(order[a:b]) for a, b in itertools.pairwise(ends)))
    except MemoryError:
        return NO_MEMORY


def bucket_of(split: Split | Fault, bucket: int) -> Rows | Fault:
    """The rows of one bucket of a share."""
    return split if isinstance(split, Fault) else split.buckets[bucket]


def count_bucket(job: Job, selection: Selection, *parts: Rows | Fault) -> Partial | Fault:
    """The joint tables of the rows kept of a bucket's persons, whose rows in the shares these
    are.
    """
    held = []
    for part in parts:
        if isinstance(part, Fault):
            return part
        held.append(part)
    try:
        rows = joined(held)
        words = rows.words[selection.kept(rows)]
        codes = Packing(job).unpack(words)
        counters = []
        for joint in job.joints:
            counter = np.zeros(job.cells(joint), dtype=np.int64)
            cells = np.zeros(len(words), dtype=np.int64)
            for name in joint:
                cells *= job.attributes[name].size
                cells += codes[name]
            np.add.at(counter, cells, np.int64(1))
            counters.append(counter)
    except MemoryError:
        return NO_MEMORY
    return Partial(tuple(counters))


class _Collector:
    """Takes the batches of a share; holds the rows that may be kept."""

    def __init__(self, job: Job, selection: Selection, part: Part) -> None:
        self._job, self._selection, self._part = job, selection, part
        self._packing = Packing(job)
        self._hasher = Hasher(selection.tag_key)
        self._coders: dict[str, Coder] = {}
        self._codes: dict[str, Any] = {}
        self._filters: dict[str, Coder] = {}
        self._passing = np.empty(0, dtype=np.int64)
        self._room = 0
        self._parts: list[Rows] = []
        self._held = self._compacted = 0

    def batch(self, batch: Any, columns: Sequence[str], keys: Mapping[str, int]) -> None:
        """Takes the rows of an Arrow batch; `keys` are codes that all of them share."""
        self._make_room(batch.num_rows)
        person = self._selection.person
        codes: dict[str, Any] = {}
        for name in columns:
            if name in self._coders:
                codes[name] = self._codes[name][: batch.num_rows]
                locate([self._coders[name].lookup(batch.column(name))], 0, codes[name])
        if OUTSIDE in keys.values():
            return
        passing = self._passing[: batch.num_rows]
        filters = [(name, coder) for name, coder in self._filters.items() if name in columns]
        locate([coder.lookup(batch.column(name)) for name, coder in filters], 0, passing)
        tags, wanted = self._hasher.tags(batch.column(person))
        bucket = self._part.bucket(tags)
        wanted = wanted & (bucket >= 0) & (bucket < self._part.buckets)
        for column in codes.values():
            wanted &= column != OUTSIDE
        wanted &= passing >= 0
        at = np.flatnonzero(wanted)
        read = {name: column[at] for name, column in codes.items()}
        self._parts.append(Rows(tags[at], self._packing.pack({**read, **keys}, len(at))))
        self._held += len(at)
        # Seldom enough to cost little, often enough that persons of very many rows, such as those
        # behind a placeholder, take no more memory than others.
        if self._held > max(_COMPACTED_ROWS, 2 * self._compacted):
            rows = self.rows()
            self._parts = [rows.take(self._selection.kept(rows))]
            self._held = self._compacted = len(self._parts[0].tags)

    def same(self, rows: int, keys: Mapping[str, int]) -> None:
        raise AssertionError("rows of persons are told apart by a column")

    def rows(self) -> Rows:
        if not self._parts:
            none = np.zeros((0, len(self._packing.words)), dtype=np.uint64)
            return Rows(np.zeros((0, 2), dtype=np.uint64), none)
        return joined(self._parts)

    def _make_room(self, rows: int) -> None:
        if rows > self._room:
            self._room = rows
            attributes = self._job.attributes.items()
            self._coders = {name: Coder(a, 1, OUTSIDE) for name, a in attributes}
            self._codes = {name: np.empty(rows, dtype=np.int64) for name in self._job.attributes}
            wanted = self._job.filters.items()
            self._filters = {name: Coder(a, 0, OUTSIDE) for name, a in wanted}
            self._passing = np.empty(rows, dtype=np.int64)


def rounds_needed(job: Job, rows: int, memory: int) -> int:
    """Rounds in which `rows` rows are shuffled, such that one takes at most `memory` bytes.

    A row is held once as its share's part, once as its bucket's, and once while that is sorted.
    """
    return max(1, math.ceil(rows * (3 * Packing(job).row_bytes + 32) / memory))


def _starts(values: npt.NDArray[Any]) -> Indices:
    """Where runs of equal values (n,) or rows (n, m) begin."""
    if not len(values):
        return np.zeros(0, dtype=np.intp)
    changed = values[1:] != values[:-1]
    if changed.ndim == 2:
        changed = changed.any(axis=1)
    return np.append(0, np.flatnonzero(changed) + 1)
