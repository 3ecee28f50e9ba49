"""Counts of periods: extracting and sealing the exact counts of one period, and answers from them.

Exact counts are confidential. Only the cells of the period are read from the tables. Later periods
need the cells of all earlier ones, so these are sealed in the hidden folder of the series,
encrypted with AES-GCM. The key is derived from a nonce, and the nonce from the secret of the key
file, which lies elsewhere. Anyone with the counts and the key file can subtract the exact answers
from the released ones, which reveals everything. Both are removed when the last period is drawn or
the series is closed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.counts import AttributeSet, Tables
from fitplug.domain import get_shape
from fitplug.errors import InputError, TablesError
from fitplug.families import date_answers
from fitplug.files import LocalPlace
from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug.releases import Limited
from fitplug.sensitivity import AnswerPath
from fitplug.workload import AddRemove, select_largest_sets
from fitplug_dask.encryption import decrypt_long, encrypt_long
from fitplug_opendp.count_checks import (
    CountedRows,
    check_attributes,
    check_limit,
    list_outside_attributes,
)
from fitplug_opendp.executor import ExactCounts

_CELL_BYTES, _DISPLAY_BYTES = 8, 40
_FILES_BYTES = 2**15
"""The bytes of the manifests and the table metadata of a period."""


@dataclass(frozen=True, repr=False, eq=False)
class PeriodCounts:
    """The exact counts of one period, and how they were made.

    Attributes:
        counts: The cells of the period, one table after another, as a one-dimensional int64 array.
        limited: Whether, if each period is counted like this, the limit on the records of a person
            in all periods together is enforced.
        rows: A public description of how rows were weighted and filtered.
        outside: Attributes that the plan does not use, but because of whose values records were
            left out.
    """

    counts: IntArray
    limited: Limited
    rows: str | None
    outside: tuple[str, ...]

    def __repr__(self) -> str:
        return "PeriodCounts()"

    def encode(self) -> bytes:
        """Encode everything as bytes whose number does not depend on the size of the counts."""
        said = {"limited": self.limited, "rows": self.rows, "outside": list(self.outside)}
        header = json.dumps(said).encode()
        content = np.ascontiguousarray(self.counts, dtype="<i8").tobytes()
        return len(header).to_bytes(8, "little") + header + content

    @classmethod
    def decode(cls, content: bytes) -> PeriodCounts:
        """Read what `encode` wrote."""
        length = int.from_bytes(content[:8], "little")
        said = json.loads(content[8 : 8 + length])
        counts = np.frombuffer(content, "<i8", offset=8 + length).astype(np.int64)
        return cls(counts, said["limited"], said["rows"], tuple(said["outside"]))


@dataclass(frozen=True, repr=False, eq=False)
class CountsSoFar(ExactCounts):
    """The exact counts of all periods so far, of which the newest is to be drawn.

    Attributes:
        plan: The plan, which is causal along the attribute.
        attribute: The attribute whose cells are the periods.
        periods: The counts of each period, from the first on.
        newest_seal: The seal of the counts of the newest period.
    """

    plan: Plan
    attribute: str
    periods: Sequence[PeriodCounts]
    newest_seal: str

    @property
    def rows(self) -> CountedRows:  # type: ignore[override]
        return CountedRows(self.periods[-1].rows, self.periods[-1].limited)

    @property
    def published_seal(self) -> str | None:
        return self.newest_seal

    def check(self, plan: Plan) -> None:
        """Do nothing: the counts of each period were checked before they were sealed."""

    def list_outside_attributes(self, plan: Plan) -> tuple[str, ...]:
        return self.periods[-1].outside

    def answer(self) -> IntArray:
        """Compute the exact answers to be drawn in the newest period; they are confidential."""
        return answer_newest(self.plan, self.attribute, [one.counts for one in self.periods])


def list_period_tables(plan: Plan, periods: str) -> tuple[AttributeSet, ...]:
    """List the attribute sets to count: those of the plan, each by period."""
    ordered = plan.domain.ordered
    return select_largest_sets(
        dict.fromkeys(ordered(tuple({*names, periods})) for names in plan.tables)
    )


def estimate_more_files(plan: Plan, periods: str, *, display: bool) -> int:
    """Estimate the extra bytes of a series compared with a release at once.

    These are the exact counts and the staged answers of all periods, which stay until the last
    period is drawn, display tables, and small files for each period.
    """
    shown = _DISPLAY_BYTES * plan.workload.query_count * display
    cells = sum(
        math.prod(get_shape(plan.domain, names)) for names in list_period_tables(plan, periods)
    )
    small = _FILES_BYTES * plan.domain[periods].size * (1 + display)
    return _CELL_BYTES * (cells + plan.strategy.size) + shown + small


def take_period(plan: Plan, periods: str, index: int, tables: Tables) -> PeriodCounts:
    """Take the counts of one period from tables, which may include other periods.

    Args:
        plan: The plan.
        periods: The attribute whose cells are the periods.
        index: The index of the period.
        tables: Exact counts that include at least `list_period_tables`.

    Raises:
        TablesError: The tables do not match the plan, or may include more records of a person than
            its unit allows.
    """
    wanted = list_period_tables(plan, periods)
    check_attributes(plan, tables, {name for names in wanted for name in names})
    check_limit(plan, tables)
    counted = [set(names) for names in tables]
    if missing := [
        names for names in wanted if not any(set(names) <= others for others in counted)
    ]:
        raise TablesError(
            f"the table {missing[0]} is missing. Count again with (plan.domain, series.tables) in "
            "place of the plan."
        )
    return PeriodCounts(
        counts=_take_cells(plan, periods, index, tables),
        limited=_find_limit(plan, periods, tables),
        rows=tables.rows,
        outside=list_outside_attributes(plan, tables),
    )


def _take_cells(plan: Plan, periods: str, index: int, tables: Tables) -> IntArray:
    """Take the cells of one period from each table, one table after another."""
    wanted = list_period_tables(plan, periods)
    parts = [tables.marginal(names).take(index, names.index(periods)).ravel() for names in wanted]
    return np.concatenate(parts).astype(np.int64)


def answer_by_period(plan: Plan, periods: str) -> AnswerPath:
    """Return the answer path of a series, which computes the answers period by period."""
    dates = date_answers(plan.strategy, periods)

    def answer(tables: Tables) -> Iterator[tuple[IntArray, IntArray]]:
        counts: list[IntArray] = []
        for index in range(plan.domain[periods].size):
            counts.append(_take_cells(plan, periods, index, tables))
            yield np.flatnonzero(dates == index), answer_newest(plan, periods, counts)

    return AnswerPath(plan, list_period_tables(plan, periods), answer)


def answer_newest(plan: Plan, periods: str, counts: Sequence[IntArray]) -> IntArray:
    """Compute the exact answers to be drawn in the newest period.

    Args:
        plan: The plan, which is causal along the attribute.
        periods: The attribute whose cells are the periods.
        counts: The cells of each period so far, from the first on, as in `PeriodCounts`.

    Returns:
        The plan's exact answers that need this period and no later one. They are confidential.
    """
    domain = plan.domain
    tables: dict[AttributeSet, IntArray] = {}
    start = 0
    for names in list_period_tables(plan, periods):
        axis, shape = names.index(periods), get_shape(domain, names)
        table = np.zeros(shape, dtype=np.int64)
        size = math.prod(shape) // shape[axis]
        for index, of_period in enumerate(counts):
            at = (slice(None),) * axis + (index,)
            table[at] = of_period[start : start + size].reshape(table[at].shape)
        tables[names] = table
        start += size
    exact = plan.strategy.answer_exactly(Tables(domain, tables, copy=False).marginal)
    return exact[date_answers(plan.strategy, periods) == len(counts) - 1]


def _find_limit(plan: Plan, periods: str, tables: Tables) -> Limited:
    """Return whether counting each period like this enforces the limit on a person's records.

    Each count limits the records of a person separately. So the sum of the limits over all periods
    must be at most what the unit of privacy allows.
    """
    enforced, unit = tables.unit, plan.unit
    if enforced is None or not isinstance(unit, AddRemove):
        return "declared"
    if unit.once_per not in (None, periods):
        return "declared"
    in_period = 1 if enforced.once_per == periods else enforced.records
    return "enforced" if in_period * plan.domain[periods].size <= unit.records else "declared"


@dataclass(frozen=True, repr=False)
class SealedCounts:
    """The encrypted counts of a series.

    Attributes:
        place: The hidden folder that holds them.
        nonce: The nonce that hides the counts in their seals, and from which their key is derived.
        series: The digest of the series.
    """

    place: LocalPlace
    nonce: bytes
    series: str

    def __repr__(self) -> str:
        return "SealedCounts()"

    def keep(self, index: int, counts: PeriodCounts) -> PeriodCounts:
        """Store the counts of a period durably unless some are stored; return the stored ones.

        Raises:
            OSError: They cannot be written.
            InputError: The stored counts are damaged.
        """
        content = encrypt_long(self._key, counts.encode(), self._name_context(index))
        self.place.create(name_counts(index), content)
        return self.read(index)

    def has(self, index: int) -> bool:
        """Return whether the counts of a period are stored."""
        return name_counts(index) in self.place.list_sizes()

    def read(self, index: int) -> PeriodCounts:
        """Read the counts of a period.

        Raises:
            InputError: They are missing or damaged, or belong to another period or series.
            OSError: They cannot be read.
        """
        try:
            encrypted = self.place.read(name_counts(index))
            return PeriodCounts.decode(
                decrypt_long(self._key, encrypted, self._name_context(index))
            )
        except (FileNotFoundError, ValueError):
            raise InputError(
                f"{self.place}: the encrypted counts of period {index + 1} are missing or damaged. "
                "Restore this folder."
            ) from None

    def seal(self, index: int, counts: PeriodCounts) -> str:
        """Compute the seal of the counts of a period, in hex. It reveals nothing about them."""
        said = f"the seal of period {index} of {self.series}:".encode()
        return hmac.new(self.nonce, said + counts.encode(), hashlib.sha256).hexdigest()

    @property
    def _key(self) -> bytes:
        said = f"the key of the counts of {self.series}".encode()
        return hmac.new(self.nonce, said, hashlib.sha256).digest()

    def _name_context(self, index: int) -> bytes:
        return f"period {index} of {self.series}".encode()


def name_counts(index: int) -> str:
    """Name the file of the sealed counts of a period in the hidden folder."""
    return f"counts-{index + 1:05}"
