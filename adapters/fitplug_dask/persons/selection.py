"""Selection: at most k rows of each person, chosen by a keyed hash of the person's rows alone.

The privacy cost k^2 rho of a person with at most k rows rests on this: one person more or less
changes the tables by at most k rows. It holds because which rows of a person are kept depends on
that person's rows alone. It does not depend on other persons' rows, on their order, or on how
files are cut into partitions. So every row gets a priority that is a pseudo-random function of its
person and its cells, and the k rows of lowest priority are kept. Rows of equal priority are equal
in all that is counted, so any of them may be kept. Each of a person's cells is as likely as
another to come first, however many rows it has.

A unit of privacy may say more: that each record of a person is in another cell, over all attributes
or of one. Of the rows of a person in one cell the row of lowest priority then stands for all, and k
of those that are left are kept.

Rows outside the domain are in no table and do not compete. Nor do rows without a person, and rows
that do not pass the filters: which these are depends on each row alone.

A person is represented by a hash of 128 bits under a secret key. Two persons with the same hash
would share k rows, and the removal of one would let in rows of the other: up to 2 k rows change.
The chance that any two of n persons have the same hash is n^2 / 2^129, below 2^-60 for all people
alive, which is why it is not a hash of 64 bits. The key prevents that somebody who chooses
identifiers chooses such a pair.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import BudgetError
from fitplug.privacy import check_contributions
from fitplug_dask import loops
from fitplug_dask.persons.packing import Rows
from fitplug_dask.persons.postconditions import check_rows, check_selection
from fitplug_dask.persons.record_groups import RecordGroups, select_one_of_each_group
from fitplug_dask.persons.siphash import KEY_BYTES, halve_key

Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Selection:
    """Which rows of each person are counted.

    Attributes:
        person: The column that identifies persons.
        contributions: The most rows kept of each person.
        tag_key: 16 secret bytes, the key of the hashes of persons.
        priority_key: 16 secret bytes, the key of the priorities of rows.
        groups: The rows of a person of which at most one is kept; None if there is no such limit.
    """

    person: str
    contributions: int
    tag_key: bytes
    priority_key: bytes
    groups: RecordGroups | None = None

    def __repr__(self) -> str:
        return f"Selection({self.contributions} rows a {self.person!r}; key secret)"

    @classmethod
    def create(
        cls,
        person: str | None,
        contributions: int | None,
        key: bytes | None,
        groups: RecordGroups | None = None,
    ) -> Selection:
        """Create the selection that the keywords of `count` ask for.

        Args:
            person: The column that identifies persons.
            contributions: The most rows kept of each person.
            key: At least 16 secret bytes; drawn if None.
            groups: The rows of a person of which at most one is kept.

        Raises:
            BudgetError: The person or the contributions are missing, or the contributions are no
                number of rows.
            TypeError: The key is not at least 16 bytes.
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
        return cls(person, contributions, secret[:KEY_BYTES], secret[KEY_BYTES:], groups)

    def select_rows(self, rows: Rows) -> Positions:
        """Select the rows that are kept.

        Args:
            rows: All rows of some persons. If they are only some of a person's rows, all of them
                that the person keeps are selected, and perhaps more.

        Returns:
            The positions of the rows.

        Raises:
            CheckError: What was selected breaks a limit, or the rows lack hashes of persons.
        """
        check_rows(rows)
        if self.groups is None:
            kept = self._select_lowest(rows)
        else:
            alone = select_one_of_each_group(self.priority_key, rows, self.groups)
            kept = alone[self._select_lowest(rows.take(alone))]
        check_selection(rows, kept, self.contributions, self.groups)
        return kept

    def _select_lowest(self, rows: Rows) -> Positions:
        """Select the k rows of lowest priority of each person."""
        kept = np.empty(len(rows.tags), dtype=np.int64)
        key = halve_key(self.priority_key)
        limit = min(self.contributions, len(kept))
        found = loops.select_rows(*key, rows.tags, rows.words, limit, kept)
        return kept[:found]
