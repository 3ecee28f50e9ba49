"""Rows outside the domain: how many there are, by attribute. Confidential: never printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.counts.consistency import Counts
from fitplug.domain import OUTSIDE, Domain, list_names_without_other
from fitplug.errors import TablesError
from fitplug.numeric import BoolArray


@dataclass(frozen=True, repr=False)
class OutsideCounts:
    """Exact numbers of the rows outside the domain. They are confidential.

    Attributes:
        names: The attributes that leave rows out, in the domain's order.
        by_attribute: For each of them, the number of rows whose value is in no cell. A row
            may count in several of these numbers.
        in_no_table: The number of rows that count in at least one of them.

    Raises:
        TablesError: The numbers cannot be of any rows.
    """

    names: tuple[str, ...]
    by_attribute: tuple[int, ...]
    in_no_table: int

    def __post_init__(self) -> None:
        counts, most = self.by_attribute, self.in_no_table
        fits = len(counts) == len(self.names) and all(type(n) is int for n in (*counts, most))
        fits = fits and min((most, *counts)) >= 0
        if not fits or not max(counts, default=0) <= most <= sum(counts):
            raise TablesError("the numbers of rows outside the tables are invalid. Count again.")

    def __repr__(self) -> str:
        return f"OutsideCounts({', '.join(map(repr, self.names))}; counts confidential)"

    @classmethod
    def from_codes(
        cls,
        domain: Domain,
        codes: Mapping[str, Counts],
        used: Sequence[str],
        weights: Counts | None = None,
    ) -> OutsideCounts:
        """Count the rows outside the domain.

        Args:
            domain: The domain of the counts.
            codes: The codes (n,) of the rows on each attribute, -1 for values in no cell.
            used: The attributes that any table uses.
            weights: The number of records (n,) that each row stands for; None for one each.
        """
        names = list_names_without_other(domain, used)
        if not names:
            return cls((), (), 0)
        outside = [codes[name] == OUTSIDE for name in names]
        *counts, most = (_add_up(one, weights) for one in (*outside, np.any(outside, axis=0)))
        return cls(names, tuple(counts), most)


def _add_up(rows: BoolArray, weights: Counts | None) -> int:
    """Add up the weights of some rows (n,) exactly, in halves, because int64 could wrap."""
    if weights is None:
        return int(rows.sum())
    chosen = weights[rows]
    return int((chosen % 2**31).sum()) + (int((chosen >> 31).sum()) << 31)
