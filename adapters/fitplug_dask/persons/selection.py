"""Selection: at most k rows of each person, chosen by a keyed hash of the person's rows alone.

A person with at most k rows costs k^2 rho of privacy because one person more or less changes the
tables by at most k rows. For this, the kept rows of a person may depend only on that person's rows,
and not on other persons' rows, on the order of rows, or on how files are cut into partitions. So
every row gets a priority that is a pseudo-random function of its person and its cells, and the k
rows of lowest priority are kept. Rows of equal priority are counted in the same cells, so any of
them may be kept. Each cell of a person is equally likely to come first, however many rows the
person has there.

A unit of privacy may also require that all records of a person are in different cells, either over
all counted attributes or of one of them. The rows of a person in one cell are then a group. Only
the row of lowest priority remains of each group, and k of the remaining rows are kept.

Rows outside the domain are not counted and do not compete. Nor do rows without a person, and rows
that do not pass the filters. All this depends on each row alone.

A person is represented by a 128-bit hash under a secret key. Two persons with the same hash would
share k rows, and without one of them, rows of the other would take their place: up to 2 k rows
would change. The probability that any two of n persons have the same hash is n^2 / 2^129, below
2^-60 for all people alive; 64 bits would not suffice. The key prevents anybody who can choose
identifiers from choosing such a pair.

After each selection, the limits are checked on the kept rows. Since the privacy guarantee rests on
them, this check shares no code with the loops that select.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.counts import name_person
from fitplug.domain import OUTSIDE, get_codec
from fitplug.workload import AddRemove
from fitplug_dask import compiled_loops as loops
from fitplug_dask.encoding import CodeReader, ColumnEncoder
from fitplug_dask.kernel import FolderCodes, Job, take_codes
from fitplug_dask.persons.packing import (
    KEY_BYTES,
    Field,
    Packing,
    PersonHasher,
    Rows,
    Words,
    concatenate_rows,
    halve_key,
)
from fitplug_dask.workers import CheckError

_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class RecordGroups:
    """How the rows of a person form groups: by their cell over all attributes, or of one attribute.

    Attributes:
        field: The place of the attribute in the packed words, if the groups are its cells (one of
            which may be the cell of all other values); None for cells over all counted attributes.
    """

    field: Field | None = None

    def identify_groups(self, words: Words) -> Words:
        """Map packed words (n, w) to numbers (n, g) that are equal for rows of one group."""
        return words if self.field is None else self.field.read(words)[:, None]


def select_one_of_each_group(key: bytes, rows: Rows, groups: RecordGroups) -> npt.NDArray[np.int64]:
    """Select the row of lowest priority in each group of each person.

    Rows are ordered as in `loops.select_rows`. This is essential: the k rows of lowest priority
    among those selected here are then the same, whether all rows are processed at once or parts of
    them first. For if the best row of a group is missing from a part, a worse row represents the
    group there, and displaces no row that the best one would not.

    Args:
        key: The key of priorities, 16 bytes.
        rows: Rows of some persons.
        groups: The groups of rows.

    Returns:
        The positions of the rows, in no particular order.
    """
    identities = groups.identify_groups(rows.words)
    is_crowded = _find_repeated(rows.tags[:, 0], identities)
    candidates = np.flatnonzero(is_crowded)
    among, identities = rows.take(candidates), identities[candidates]
    messages = np.hstack([among.tags, among.words]).astype("<u8", copy=False)
    priorities = np.empty((len(candidates), 2), dtype=np.uint64)
    loops.hash_messages(*halve_key(key), messages.view(np.uint8), priorities)
    persons_groups = np.hstack([among.tags, identities])
    ranked = np.lexsort((*among.words.T, priorities[:, 0], *persons_groups.T))
    ordered = persons_groups[ranked]
    is_first = np.ones(len(ranked), dtype=bool)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return np.concatenate([np.flatnonzero(~is_crowded), candidates[ranked[is_first]]])


def mix_words(tags: npt.NDArray[np.uint64], identities: Words) -> npt.NDArray[np.uint64]:
    """Mix the hash of each row's person (n,) and its group (n, g) into one number (n,)."""
    mixed = tags.copy()
    for column in identities.T:
        mixed ^= column
        mixed *= _ODD
        mixed ^= mixed >> np.uint64(32)
    return mixed


def _find_repeated(tags: npt.NDArray[np.uint64], identities: Words) -> npt.NDArray[np.bool_]:
    """Find rows that may share their person and group with another row.

    All such rows are found, and possibly a few others, because 64 bits stand for the person and the
    group here.

    Args:
        tags: The first half (n,) of the hash of each row's person.
        identities: The group of each row (n, g).
    """
    mixed = mix_words(tags, identities)
    order = np.argsort(mixed)
    ordered = mixed[order]
    is_as_before = np.zeros(len(order) + 1, dtype=bool)
    is_as_before[1:-1] = ordered[1:] == ordered[:-1]
    repeated = np.empty(len(order), dtype=bool)
    repeated[order] = is_as_before[1:] | is_as_before[:-1]
    return repeated


_MOST_BITS = 20
"""The most bits of the numbers by which rows are counted; the counts then take 8 MB."""


def check_rows(rows: Rows) -> None:
    """Check that every row has the hash of a person and packed words.

    Raises:
        CheckError: The numbers of hashes and rows differ.
    """
    if rows.tags.ndim != 2 or rows.words.ndim != 2 or rows.tags.shape != (len(rows.words), 2):
        _refuse("the numbers of rows and of person hashes differ")


def check_selection(
    rows: Rows, selected: npt.NDArray[np.int64], limit: int, groups: RecordGroups | None
) -> None:
    """Check that the selected rows are within the limits.

    They are counted by the first bits of the hashes of their persons. Only rows in counts above the
    limit are sorted and compared.

    Args:
        rows: The rows (n,) to select from.
        selected: The positions (m,) of the selected rows.
        limit: The most rows of a person.
        groups: The groups of a person's rows that may have at most one selected row; None if there
            is no such limit.

    Raises:
        CheckError: A position does not exist or is repeated, or a person has more rows than the
            limit, or more than one row of a group.
    """
    check_rows(rows)
    is_selected = np.zeros(len(rows.tags), dtype=bool)
    if len(selected) and (selected.min() < 0 or selected.max() >= len(is_selected)):
        _refuse("a chosen row does not exist")
    is_selected[selected] = True
    if np.count_nonzero(is_selected) != len(selected):
        _refuse("a row was chosen twice")
    tags = rows.tags.compress(is_selected, axis=0)  # several times as fast as an index
    if _repeats(tags[:, 0], [tags], limit):
        _refuse("more rows of a person than the limit were chosen")
    if groups is not None:
        identities = groups.identify_groups(rows.words.compress(is_selected, axis=0))
        if _repeats(mix_words(tags[:, 0], identities), [tags, identities], 1):
            _refuse("two rows of a person in one cell were chosen")


def _repeats(numbers: npt.NDArray[np.uint64], keys: Sequence[Words], limit: int) -> bool:
    """Return whether any key occurs more often than the limit.

    Args:
        numbers: A number (m,) for each key, equal for equal keys, whose first bits are evenly
            distributed.
        keys: The keys, in arrays (m, w).
        limit: How often a key may occur.
    """
    if limit >= len(numbers):
        return False
    bits = min(len(numbers).bit_length() + 2, _MOST_BITS)
    bucket = (numbers >> np.uint64(64 - bits)).astype(np.int64)
    crowded = np.flatnonzero(np.bincount(bucket).take(bucket) > limit)
    ordered = np.sort(numbers[crowded])
    if not (ordered[limit:] == ordered[:-limit]).any():
        return False
    among = np.hstack([columns[crowded] for columns in keys])
    among = among[np.lexsort(among.T)]
    return bool((among[limit:] == among[:-limit]).all(axis=1).any())


def _refuse(what: str) -> NoReturn:
    raise CheckError(
        f"the limit on rows per person failed a check: {what}. Install fitplug and NumPy again."
    )


Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Selection:
    """How to select the rows of each person that are counted.

    Attributes:
        person: The columns that identify persons.
        records: The most rows kept of each person.
        tag_key: 16 secret bytes, the key of the hashes of persons.
        priority_key: 16 secret bytes, the key of the priorities of rows.
        groups: The groups of a person's rows of which at most one row is kept; None if there is no
            such limit.
    """

    person: tuple[str, ...]
    records: int
    tag_key: bytes
    priority_key: bytes
    groups: RecordGroups | None = None

    def __repr__(self) -> str:
        return f"Selection({self.records} rows per {name_person(self.person)}; key secret)"

    @classmethod
    def create(
        cls,
        person: Sequence[str],
        records: int,
        key: bytes | None,
        groups: RecordGroups | None = None,
    ) -> Selection:
        """Create the selection for the arguments of `count`.

        Args:
            person: The columns that identify persons, at least one.
            records: The most rows kept of each person.
            key: At least 16 secret bytes; drawn at random if None.
            groups: The groups of a person's rows of which at most one row is kept.

        Raises:
            TypeError: The key is not at least 16 bytes.
        """
        if key is not None and (not isinstance(key, bytes) or len(key) < KEY_BYTES):
            raise TypeError(f"person_key must be at least {KEY_BYTES} bytes")
        secret = hashlib.sha256(secrets.token_bytes(32) if key is None else key).digest()
        return cls(tuple(person), records, secret[:KEY_BYTES], secret[KEY_BYTES:], groups)

    def select_rows(self, rows: Rows) -> Positions:
        """Select the rows that are kept.

        Args:
            rows: All rows of some persons. If only some rows of a person are given, those that the
                person keeps are selected, and possibly others.

        Returns:
            The positions of the rows.

        Raises:
            CheckError: The selected rows break a limit, or rows lack the hash of a person.
        """
        check_rows(rows)
        if self.groups is None:
            selected = self._select_lowest(rows)
        else:
            alone = select_one_of_each_group(self.priority_key, rows, self.groups)
            selected = alone[self._select_lowest(rows.take(alone))]
        check_selection(rows, selected, self.records, self.groups)
        return selected

    def _select_lowest(self, rows: Rows) -> Positions:
        """Select the k rows of lowest priority of each person."""
        selected = np.empty(len(rows.tags), dtype=np.int64)
        key = halve_key(self.priority_key)
        limit = min(self.records, len(selected))
        count = loops.select_rows(*key, rows.tags, rows.words, limit, selected)
        return selected[:count]


def find_record_groups(limit: AddRemove, job: Job) -> RecordGroups | None:
    """Find the groups of a person's records of which at most one is kept.

    Args:
        limit: The limit on the records of a person, which `check_request` has checked.
        job: What to count.

    Returns:
        The groups of records; None if only their number is limited.
    """
    if limit.distinct:
        return RecordGroups()
    if limit.once_per is None:
        return None
    return RecordGroups(Packing(job).find_field(limit.once_per))


_COMPACTED_ROWS = 2**21


class RowCollector:
    """Takes the batches of a partition, and collects the rows that may be kept."""

    def __init__(self, job: Job, selection: Selection) -> None:
        """Start without rows."""
        self._job, self._selection = job, selection
        self._packing = Packing(job)
        self._hasher = PersonHasher(selection.tag_key, len(selection.person))
        self._readers: dict[str, CodeReader] = {}
        self._filters: dict[str, ColumnEncoder] = {}
        self._passing: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._room = 0
        self._groups: list[Rows] = []
        self._collected = self._compacted = 0

    def take_batch(self, batch: Any, columns: Sequence[str], shared: FolderCodes) -> None:
        """Take the rows of an Arrow batch; `shared` are the codes from their folders."""
        self._make_room(batch.num_rows)
        codes: dict[str, Any] = {}
        for name in columns:
            if name in self._readers:
                codes[name] = self._readers[name].read(batch.column(name))
        passing = self._passing[: batch.num_rows]
        filters = [(name, encoder) for name, encoder in self._filters.items() if name in columns]
        lookups = [encoder.make_lookup(batch.column(name)) for name, encoder in filters]
        loops.locate(lookups, 0, passing)
        persons = [batch.column(name) for name in self._selection.person]
        tags, wanted = self._hasher.hash_persons(persons)
        for column in codes.values():
            wanted = wanted & (column != OUTSIDE)
        wanted = wanted & (passing >= 0)
        if wanted.all():
            rows = batch.num_rows
        else:
            positions = np.flatnonzero(wanted)
            rows, tags = len(positions), tags[positions]
            codes = {name: column[positions] for name, column in codes.items()}
            shared = take_codes(shared, positions)
        self._groups.append(Rows(tags, self._packing.pack({**codes, **shared}, rows)))
        self._collected += rows
        # This is rare enough to cost little, and frequent enough that a person with very many rows,
        # such as a placeholder for many people, takes no more memory than others.
        if self._collected > max(_COMPACTED_ROWS, 2 * self._compacted):
            collected = self.collect()
            self._groups = [collected.take(self._selection.select_rows(collected))]
            self._collected = self._compacted = len(self._groups[0].tags)

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Refuse rows without columns: rows of persons have at least the person column."""
        raise AssertionError("rows of persons need a column that identifies persons")

    def collect(self) -> Rows:
        """Return all rows that were taken and may be kept."""
        if not self._groups:
            none = np.zeros((0, len(self._packing.words)), dtype=np.uint64)
            return Rows(np.zeros((0, 2), dtype=np.uint64), none)
        return concatenate_rows(self._groups)

    def _make_room(self, rows: int) -> None:
        """Allocate the memory of batches of up to `rows` rows."""
        if rows > self._room:
            self._room = rows
            attributes = self._job.attributes.items()
            self._readers = {name: CodeReader(get_codec(a), rows) for name, a in attributes}
            wanted = self._job.filters.items()
            self._filters = {name: ColumnEncoder(get_codec(a), 0, OUTSIDE) for name, a in wanted}
            self._passing = np.empty(rows, dtype=np.int64)
