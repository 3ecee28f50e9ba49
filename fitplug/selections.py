"""Selections: which people a group is asked about, and the rows of the group that count them.

A selection names people, not rows: conditions on attributes, each a set of the attribute's cells.
The rows of the group are added and subtracted so as to count exactly these people. Which rows are
used does not matter: estimates depend only on who is counted, since all come from one
reconstruction. Rows that cannot make up the set are refused. Values are in the order of the
domain, those of categories too; a node of a hierarchy is all that lies in it.

Two exceptions, as rows may not describe people: an attribute that is not mentioned and has one
row, such as a single range, keeps that row; and rows of a matrix are selected by their number, and
added.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.domain import Attribute, Bins, Domain, Integers
from fitplug.errors import WorkloadError, nearest
from fitplug.factors import Factor
from fitplug.hierarchy import Hierarchy
from fitplug.workload import QueryGroup

Array: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

Edges: TypeAlias = dict[int, list[tuple[int, int, int]]]

ORDERS = ("<", "<=", ">", ">=")
COMPARISONS = ("=", "!=", *ORDERS)


@dataclass(frozen=True)
class Condition:
    """An attribute, one of COMPARISONS, and the values as written; "=" with several is any."""

    attribute: str
    comparison: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        values = [value if value.isprintable() else repr(value) for value in self.values]
        if len(values) == 1:
            return f"{self.attribute} {self.comparison} {values[0]}"
        return f"{self.attribute} in [{', '.join(values)}]"


def coefficients(domain: Domain, group: QueryGroup, conditions: Sequence[Condition]) -> Array:
    """What each of the group's answers counts in the number of people selected, of the group's
    shape. Conditions on one attribute hold together. Raises WorkloadError.
    """
    for condition in conditions:
        asked = [f.attribute for f in group.factors]
        if condition.attribute not in asked:
            raise WorkloadError(
                f"{group.name!r} does not tell {condition.attribute!r} apart; "
                f"{nearest(condition.attribute, asked)}"
            )
    parts = []
    for factor in group.factors:
        own = [c for c in conditions if c.attribute == factor.attribute]
        try:
            parts.append(_row_weights(domain[factor.attribute], factor, own))
        except WorkloadError as error:
            raise WorkloadError(f"{group.name!r}: {error}") from None
    return np.asarray(reduce(np.multiply.outer, parts, np.ones(())))


def _row_weights(attribute: Attribute, factor: Factor, conditions: list[Condition]) -> Array:
    if not conditions and factor.rows == 1:
        return np.ones(1)
    if factor.kind == "matrix":
        return _numbered(factor, conditions)
    values, chosen = _Values(attribute, factor), np.ones(factor.size, dtype=bool)
    for condition in conditions:
        chosen &= values.cells(condition)
    said = ", ".join(map(str, conditions)) or f"all of {factor.attribute}"
    if not chosen.any():
        raise WorkloadError(f"{said} selects nobody")
    steps = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    weights = _counting(factor, steps.reshape(-1, 2).tolist())
    if weights is None:
        labels = list(values.rows)[:4]
        more = ", ..." if factor.rows > len(labels) else ""
        raise WorkloadError(
            f"its rows of {factor.attribute} cannot count {said}; select what they add up to: "
            f"{', '.join(labels)}{more}"
        )
    return weights


def _counting(factor: Factor, runs: list[list[int]]) -> Array | None:
    """What the rows (rows,) weigh in the count of runs of cells, each first and beyond the last;
    None if they cannot count one of them.
    """
    weights = np.zeros(factor.rows)
    edges = None if factor.kind in ("identity", "prefix", "all_ranges") else _edges(factor)
    for first, end in runs:
        if edges is not None:
            path = _path(edges, first, end)
            if path is None:
                return None
            for row, sign in path:
                weights[row] += sign
        elif factor.kind == "identity":
            weights[first:end] += 1
        elif factor.kind == "prefix":
            weights[end - 1] += 1
            weights[first - 1] -= bool(first)
        else:
            weights[first * factor.size - first * (first - 1) // 2 + end - 1 - first] += 1
    return weights


def _edges(factor: Factor) -> Edges:
    """A row of the cells a..b as an edge between a and b + 1; taken backwards it is subtracted."""
    edges: Edges = {}
    for row, (a, b) in enumerate(factor.intervals().tolist()):
        edges.setdefault(a, []).append((b + 1, row, 1))
        edges.setdefault(b + 1, []).append((a, row, -1))
    return edges


def _path(edges: Edges, first: int, end: int) -> list[tuple[int, int]] | None:
    """The rows and signs of a shortest path, the fewest rows that count first..end - 1."""
    came: dict[int, tuple[int, int, int]] = {first: (first, -1, 0)}
    waiting = deque([first])
    while waiting and end not in came:
        here = waiting.popleft()
        for there, row, sign in edges.get(here, ()):
            if there not in came:
                came[there] = here, row, sign
                waiting.append(there)
    if end not in came:
        return None
    path, at = [], end
    while at != first:
        at, row, sign = came[at]
        path.append((row, sign))
    return path


def _numbered(factor: Factor, conditions: list[Condition]) -> Array:
    """Rows of a matrix, by their numbers."""
    name, numbers = factor.attribute, [str(row) for row in range(factor.rows)]
    if not conditions:
        raise WorkloadError(
            f"its {factor.rows} rows of {name} are those of a matrix; select some by number, "
            f"{name} = 0"
        )
    chosen = np.ones(factor.rows, dtype=bool)
    for condition in conditions:
        if condition.comparison != "=":
            raise WorkloadError(f"{condition}: rows of a matrix are selected by {name} = number")
        for value in condition.values:
            if value not in numbers:
                raise WorkloadError(
                    f"{condition}: there is no row {value}; they are 0 to {factor.rows - 1}"
                )
        chosen &= np.isin(numbers, condition.values)
    if not chosen.any():
        raise WorkloadError(f"{', '.join(map(str, conditions))} selects no row")
    return chosen.astype(np.float64)


class _Values:
    """What the values of an attribute, as written, mean to the rows of a factor."""

    def __init__(self, attribute: Attribute, factor: Factor) -> None:
        self._attribute, self._factor = attribute, factor

    @cached_property
    def rows(self) -> dict[str, int]:
        """The rows by their labels."""
        labels = map(str, self._factor.labels(self._attribute))
        return {label: row for row, label in enumerate(labels)}

    @cached_property
    def _own(self) -> dict[str, int]:
        """The cells of categories and bins by their labels."""
        return {label: cell for cell, label in enumerate(self._attribute.labels)}

    @cached_property
    def _nodes(self) -> dict[str, tuple[int, int]]:
        """First and last cell of the nodes of a hierarchy; of two codes alike, the coarser's."""
        found: dict[str, tuple[int, int]] = {}
        if isinstance(self._attribute, Hierarchy):
            for level in self._attribute.levels:
                ends = self._attribute.intervals(level).tolist()
                for label, (first, last) in zip(
                    self._attribute.labels_at(level), ends, strict=True
                ):
                    found.setdefault(label, (first, last))
        return found

    @cached_property
    def _intervals(self) -> npt.NDArray[np.int64]:
        return self._factor.intervals()

    def cells(self, condition: Condition) -> Mask:
        """The cells (size,) that a condition holds for."""
        if condition.comparison in ORDERS:
            return self._ordered(condition)
        chosen = np.zeros(self._factor.size, dtype=bool)
        for value in condition.values:
            first, last = self._interval(value)
            chosen[first : last + 1] = True
        return chosen if condition.comparison == "=" else ~chosen

    def _ordered(self, condition: Condition) -> Mask:
        attribute, name = self._attribute, self._factor.attribute
        (value,), comparison = condition.values, condition.comparison
        if isinstance(attribute, Hierarchy):
            raise WorkloadError(
                f"{condition}: the nodes of {name} have no order; use = or in [...]"
            )
        at = self._position(value)
        if at is None:
            raise WorkloadError(f"{condition}: {self._unknown(value, ordered=True)}")
        if isinstance(attribute, Bins) and comparison in ("<=", ">"):
            use = {"<=": "<", ">": ">="}[comparison]
            raise WorkloadError(
                f"{condition}: bins are half open, [from, to); use {name} {use} {value}"
            )
        cell = np.arange(self._factor.size)
        holds = {"<": cell < at, "<=": cell <= at, ">": cell > at, ">=": cell >= at}
        return np.asarray(holds[comparison])

    def _interval(self, value: str) -> tuple[int, int]:
        """First and last cell of a row by its label, a value of the attribute, or a node."""
        found: list[tuple[int, int]] = []
        if value in self.rows:
            first, last = self._intervals[self.rows[value]].tolist()
            found.append((first, last))
        if isinstance(self._attribute, Hierarchy):
            # Codes may repeat from level to level: the level of the rows comes first.
            if not found and value in self._nodes:
                found.append(self._nodes[value])
        else:
            bins = isinstance(self._attribute, Bins)
            at = self._own.get(value) if bins else self._position(value)
            found += [] if at is None else [(at, at)]
        if not found:
            raise WorkloadError(self._unknown(value))
        if len(set(found)) > 1:
            raise WorkloadError(
                f"{self._factor.attribute} = {value!r} is both a value and a row of several; "
                "rename the value"
            )
        return found[0]

    def _position(self, value: str) -> int | None:
        """The cell of a value as written; of bins, the one that starts at this edge."""
        attribute = self._attribute
        if isinstance(attribute, Integers):
            return attribute.position(int(value)) if re.fullmatch(r"-?\d{1,20}", value) else None
        if isinstance(attribute, Bins):
            try:
                return attribute.position(float(value))
            except ValueError:
                return None
        return self._own.get(value)

    def _unknown(self, value: str, *, ordered: bool = False) -> str:
        attribute, name = self._attribute, self._factor.attribute
        if isinstance(attribute, Integers):
            return f"{value!r} is no value of {name}; they are {attribute.low} to {attribute.high}"
        labels = list(self._nodes if isinstance(attribute, Hierarchy) else self._own)
        if isinstance(attribute, Bins) and ordered:
            labels = [f"{edge:g}" for edge in attribute.edges]
        hint = nearest(value, labels)
        if hint.startswith("known") and len(labels) > 8:
            hint = f"known: {', '.join(map(repr, labels[:8]))} and {len(labels) - 8} more"
        return f"{value!r} is no value of {name}; {hint}"
