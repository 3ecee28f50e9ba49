"""Counts of a period: what is taken of the tables of one period, and the answers from all of them.

They are exact and confidential. Only the cells of the period are read from the tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.counts import AttributeSet, Tables
from fitplug.errors import TablesError
from fitplug.families import date_answers
from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug.release import Limited
from fitplug.sensitivity import AnswerPath
from fitplug.workload import AddRemove, select_largest_sets
from fitplug_opendp.count_checks import check_limit, list_outside_attributes


@dataclass(frozen=True, repr=False, eq=False)
class PeriodCounts:
    """The exact counts of one period, and what is known of how they were made.

    Attributes:
        counts: The cells of the period, of one table after another, int64 of one axis.
        limited: Whether counts made so for each period enforce the limit on the records of a person
            in all periods together.
        rows: How rows were weighted and filtered, in public words.
        outside: Attributes that the plan does not use and by whose values records were left out.
    """

    counts: IntArray
    limited: Limited
    rows: str | None
    outside: tuple[str, ...]

    def __repr__(self) -> str:
        return "PeriodCounts()"

    def encode(self) -> bytes:
        """Write everything as bytes, whose number does not depend on how large counts are."""
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


def list_period_tables(plan: Plan, periods: str) -> tuple[AttributeSet, ...]:
    """List the attribute sets to count: those of the plan, each by period."""
    ordered = plan.domain.ordered
    return select_largest_sets(
        dict.fromkeys(ordered(tuple({*names, periods})) for names in plan.tables)
    )


def take_period(
    plan: Plan, periods: str, index: int, tables: Tables, contributions: int
) -> PeriodCounts:
    """Take the counts of one period from tables, which may hold other periods too.

    Args:
        plan: The plan.
        periods: The attribute whose cells are the periods.
        index: The index of the period.
        tables: Exact counts that hold at least `list_period_tables`.
        contributions: The number of records of one person that the series is charged for.

    Raises:
        TablesError: The tables are not what the plan needs, or may hold more of a person.
    """
    wanted = list_period_tables(plan, periods)
    for name in {name for names in wanted for name in names}:
        if name not in tables.domain or tables.domain[name] != plan.domain[name]:
            raise TablesError(
                f"the tables do not match the plan: their attribute {name!r} is missing or has "
                "other cells; count them again with the plan"
            )
    check_limit(plan, tables, contributions)
    held = [set(names) for names in tables]
    if missing := [names for names in wanted if not any(set(names) <= own for own in held)]:
        raise TablesError(
            f"the table {missing[0]} is needed; a series needs each table of its plan by "
            f"{periods}: count (plan.domain, series.tables)"
        )
    return PeriodCounts(
        counts=_take_cells(plan, periods, index, tables),
        limited=_find_limit(plan, periods, tables, contributions),
        rows=tables.rows,
        outside=list_outside_attributes(plan, tables),
    )


def _take_cells(plan: Plan, periods: str, index: int, tables: Tables) -> IntArray:
    """Take the cells of one period from each table, one table after another."""
    wanted = list_period_tables(plan, periods)
    parts = [tables.marginal(names).take(index, names.index(periods)).ravel() for names in wanted]
    return np.concatenate(parts).astype(np.int64)


def answer_by_period(plan: Plan, periods: str) -> AnswerPath:
    """Return the path by which a series computes its answers, period by period."""
    dates = date_answers(plan.strategy, periods)

    def answer(tables: Tables) -> Iterator[tuple[IntArray, IntArray]]:
        counts: list[IntArray] = []
        for index in range(plan.domain[periods].size):
            counts.append(_take_cells(plan, periods, index, tables))
            yield np.flatnonzero(dates == index), answer_newest(plan, periods, counts)

    return AnswerPath(plan, list_period_tables(plan, periods), answer)


def answer_newest(plan: Plan, periods: str, counts: Sequence[IntArray]) -> IntArray:
    """Compute the exact answers that are drawn in the newest of some periods.

    Args:
        plan: The plan, which is causal along the attribute.
        periods: The attribute whose cells are the periods.
        counts: The cells of each period so far, from the first on, as `PeriodCounts` has them.

    Returns:
        The exact answers, which are confidential. Those are the plan's own answers that need this
        period and none after it.
    """
    domain = plan.domain
    tables: dict[AttributeSet, IntArray] = {}
    start = 0
    for names in list_period_tables(plan, periods):
        axis, shape = names.index(periods), domain.shape_of(names)
        table = np.zeros(shape, dtype=np.int64)
        size = math.prod(shape) // shape[axis]
        for index, own in enumerate(counts):
            at = (slice(None),) * axis + (index,)
            table[at] = own[start : start + size].reshape(table[at].shape)
        tables[names] = table
        start += size
    exact = plan.strategy.answer_exactly(Tables(domain, tables, copy=False).marginal)
    return exact[date_answers(plan.strategy, periods) == len(counts) - 1]


def _find_limit(plan: Plan, periods: str, tables: Tables, contributions: int) -> Limited:
    """Say whether counts like these, of each period, enforce the limit on a person's records.

    The records of a person are limited in each count by itself. So the limits of all periods
    together must be no more than the unit of privacy allows.
    """
    most, unit = tables.contributions, plan.unit
    if most is None or not isinstance(unit, AddRemove):
        return "declared"
    if unit.is_of_records:
        unit = AddRemove(contributions)
    if unit.once_per not in (None, periods):
        return "declared"
    in_period = 1 if tables.once_per == periods else most
    return "enforced" if in_period * plan.domain[periods].size <= unit.records else "declared"
