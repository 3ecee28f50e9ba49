"""Selections: which people a group is asked about, and the rows of the group that count them.

A selection names people, not rows: conditions on attributes, each a set of the attribute's cells.
The rows of the group are added and subtracted so as to count exactly these people. Which rows are
used does not matter: estimates depend only on who is counted, since all come from one
reconstruction. Rows that cannot make up the set are refused. Values are in the order of the
domain, those of categories too; a node of a hierarchy is all that lies in it.

Two exceptions, as rows may not describe people: an attribute that is not mentioned and has one
row, such as a single range, keeps that row; and rows of a matrix are selected by their labels, or
by their numbers if they have none, and added. Labelled rows that share people are not added.

Sets of cells are runs, sorted and apart, so that a selection takes time and memory for the values
it names and for the rows that count them, not for all cells.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from fitplug.domain import Bins, Hierarchy, Members
from fitplug.errors import WorkloadError, quote, suggest_nearest
from fitplug.expressions.cell_runs import Runs, complement, intersection, union
from fitplug.numeric import FloatArray, IntArray
from fitplug.workload import Factor, QueryGroup, Workload

Edges: TypeAlias = dict[int, list[tuple[int, int, int]]]

ORDERS = ("<", "<=", ">", ">=")
COMPARISONS = ("=", "!=", *ORDERS)
_SHOWN = 4
_BARE = re.compile(r"[\w.]+|-\d+(\.\d+)?")
"""Values and names that need no quotes in an expression."""


def write_value(text: str) -> str:
    """A value, a label or a name as an expression has it: in quotes where it needs them."""
    bare = _BARE.fullmatch(text) and text not in ("or", "in")
    return text if bare else quote(text)


@dataclass(frozen=True)
class Condition:
    """An attribute, one of COMPARISONS, and the values as written; "=" with several is any."""

    attribute: str
    comparison: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        values = [write_value(value) for value in self.values[:_SHOWN]]
        attribute = write_value(self.attribute)
        if len(self.values) == 1:
            return f"{attribute} {self.comparison} {values[0]}"
        more = len(self.values) - _SHOWN
        values += [f"and {more} more"] if more > 0 else []
        return f"{attribute} in [{', '.join(values)}]"


@dataclass(frozen=True)
class Clause:
    """What is asked of one attribute: any of several options, each of conditions that hold
    together.
    """

    attribute: str
    options: tuple[tuple[Condition, ...], ...]

    def __str__(self) -> str:
        options = [", ".join(map(str, option)) for option in self.options[:_SHOWN]]
        more = len(self.options) - _SHOWN
        return " or ".join([*options, *([f"{more} more"] if more > 0 else [])])


@dataclass(frozen=True, eq=False)
class SparseCoefficients:
    """What some of a group's answers weigh in a sum: their places (n,) in C order of the group's
    shape, ascending, and the weights (n,) of these; the others weigh nothing.
    """

    places: IntArray
    weights: FloatArray

    def dense(self, shape: tuple[int, ...]) -> FloatArray:
        """The weights of all of the group's answers, of its shape."""
        found = np.zeros(shape)
        found.ravel()[self.places] = self.weights
        return found


def add_coefficients(parts: Sequence[SparseCoefficients]) -> SparseCoefficients:
    """The sum of several weights of one group."""
    places = np.concatenate([part.places for part in parts])
    weights = np.concatenate([part.weights for part in parts])
    apart, at = np.unique(places, return_inverse=True)
    if len(apart) == len(places):
        order = np.argsort(places, kind="stable")
        return SparseCoefficients(places[order], weights[order])
    added = np.zeros(len(apart))
    np.add.at(added, at.ravel(), weights)
    return SparseCoefficients(apart, added)


class Selector:
    """What selections of a workload's groups count. Keeps what values mean to its groups."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._members: dict[str, Members] = {}
        self._values: dict[tuple[str, str], _Values] = {}

    def members(self, attribute: str) -> Members:
        """What values of an attribute name. Raises DomainError for one that is not there."""
        if attribute not in self._members:
            self._members[attribute] = Members(self.workload.domain[attribute])
        return self._members[attribute]

    def weights(
        self, name: str, clauses: Sequence[Clause], within: Mapping[str, Runs] | None = None
    ) -> SparseCoefficients:
        """What each of a group's answers counts in the number of people selected. Clauses hold
        together.

        within: cells of attributes that people must be in besides; groups that do not tell an
        attribute apart leave it out. Raises WorkloadError.
        """
        group = self.workload[name]
        asked = [f.attribute for f in group.factors]
        for clause in clauses:
            if clause.attribute not in asked:
                raise WorkloadError(
                    f"{name!r} does not tell {clause.attribute!r} apart; "
                    f"{suggest_nearest(clause.attribute, asked)}"
                )
        regions = {a: cells for a, cells in (within or {}).items() if a in group.attributes}
        parts = []
        for factor in group.factors:
            own = [clause for clause in clauses if clause.attribute == factor.attribute]
            values = self._values_of(group, factor)
            try:
                parts.append(_row_weights(values, own, regions.get(factor.attribute)))
            except WorkloadError as error:
                raise WorkloadError(f"{name!r}: {error}") from None
        return _product(parts, group.shape)

    def _values_of(self, group: QueryGroup, factor: Factor) -> _Values:
        key = group.name, factor.attribute
        if key not in self._values:
            self._values[key] = _Values(self.members(factor.attribute), factor)
        return self._values[key]


def _product(parts: Sequence[SparseCoefficients], shape: tuple[int, ...]) -> SparseCoefficients:
    """The weights of a group's answers from those of each factor's rows."""
    places, weights = np.zeros(1, dtype=np.int64), np.ones(1)
    for part, rows in zip(parts, shape, strict=True):
        places = np.add.outer(places * rows, part.places).ravel()
        weights = np.multiply.outer(weights, part.weights).ravel()
    return SparseCoefficients(places, weights)


def _row_weights(values: _Values, clauses: list[Clause], region: Runs | None) -> SparseCoefficients:
    factor = values.factor
    if not clauses and region is None and factor.rows == 1:
        return SparseCoefficients(np.zeros(1, dtype=np.int64), np.ones(1))
    if factor.kind == "matrix":
        if region is not None:
            raise WorkloadError(
                f"its rows of {factor.attribute} are those of a matrix, which no region takes part "
                "of; ask a group that lists the values"
            )
        return _rows_of_matrix(values, clauses)
    chosen: Runs = [(0, factor.size)]
    for clause in clauses:
        chosen = intersection(chosen, values.cells(clause))
    if region is not None:
        chosen = intersection(chosen, region)
    if not chosen:
        raise WorkloadError(f"{_said(factor, clauses, region)} selects nobody")
    weights = _counting(values, chosen)
    if weights is None:
        labels = [write_value(label) for label in list(values.rows)[:_SHOWN]]
        more = ", ..." if factor.rows > len(labels) else ""
        raise WorkloadError(
            f"its rows of {factor.attribute} cannot count {_said(factor, clauses, region)}; select "
            f"what they add up to: {', '.join(labels)}{more}"
        )
    return weights


def _said(factor: Factor, clauses: list[Clause], region: Runs | None) -> str:
    said = ", ".join(map(str, clauses)) or f"all of {factor.attribute}"
    return said if region is None else f"{said} in the region"


def _counting(values: _Values, runs: Runs) -> SparseCoefficients | None:
    """What the rows weigh in the count of runs of cells; None if they cannot count one of them."""
    factor = values.factor
    if factor.kind == "identity":
        places = np.concatenate([np.arange(*run) for run in runs])
        return SparseCoefficients(places, np.ones(len(places)))
    rows: list[int] = []
    signs: list[int] = []
    for first, end in runs:
        if factor.kind == "prefix":
            rows += [end - 1] if not first else [end - 1, first - 1]
            signs += [1] if not first else [1, -1]
        elif factor.kind == "all_ranges":
            rows.append(first * factor.size - first * (first - 1) // 2 + end - 1 - first)
            signs.append(1)
        else:
            path = _path(values.edges, first, end)
            if path is None:
                return None
            rows += [row for row, _ in path]
            signs += [sign for _, sign in path]
    return add_coefficients(
        [SparseCoefficients(np.array(rows, dtype=np.int64), np.array(signs, dtype=np.float64))]
    )


def _edges(intervals: IntArray) -> Edges:
    """A row of the cells a..b as an edge between a and b + 1; taken backwards it is subtracted."""
    edges: Edges = {}
    for row, (a, b) in enumerate(intervals.tolist()):
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


def _rows_of_matrix(values: _Values, clauses: list[Clause]) -> SparseCoefficients:
    """Rows of a matrix, by their labels or numbers."""
    factor, name = values.factor, values.factor.attribute
    labels = list(values.rows)
    by = "number" if factor.names is None else "label"
    if not clauses:
        raise WorkloadError(
            f"its {factor.rows} rows of {name} are those of a matrix; select some by {by}, "
            f"{write_value(name)} = {write_value(labels[0])}"
        )
    chosen = set(range(factor.rows))
    for clause in clauses:
        found: set[int] = set()
        for option in clause.options:
            kept = set(range(factor.rows))
            for condition in option:
                kept &= _rows_named(values, condition, by)
            found |= kept
        chosen &= found
    if not chosen:
        raise WorkloadError(f"{', '.join(map(str, clauses))} selects no row")
    rows = np.array(sorted(chosen), dtype=np.int64)
    if factor.names is not None and (np.count_nonzero(factor.matrix()[rows], axis=0) > 1).any():
        raise WorkloadError(
            f"{', '.join(map(str, clauses))}: these rows share people, who would count more than "
            "once; add the rows you mean by +"
        )
    return SparseCoefficients(rows, np.ones(len(rows)))


def _rows_named(values: _Values, condition: Condition, by: str) -> set[int]:
    factor = values.factor
    if condition.comparison != "=":
        raise WorkloadError(
            f"{condition}: rows of a matrix are selected by {write_value(factor.attribute)} = {by}"
        )
    for value in condition.values:
        if value in values.rows:
            continue
        if by == "label":
            raise WorkloadError(
                f"there is no row {quote(value)} of {factor.attribute}; "
                f"{suggest_nearest(value, values.rows)}"
            )
        raise WorkloadError(
            f"{condition}: there is no row {write_value(value)}; they are 0 to {factor.rows - 1}"
        )
    return {values.rows[value] for value in condition.values}


class _Values:
    """What the values of an attribute, as written, mean to the rows of a factor."""

    def __init__(self, members: Members, factor: Factor) -> None:
        self.factor = factor
        self._members, self._attribute = members, members.attribute

    @cached_property
    def rows(self) -> dict[str, int]:
        """The rows by their labels."""
        labels = map(str, self.factor.labels(self._attribute))
        return {label: row for row, label in enumerate(labels)}

    @cached_property
    def edges(self) -> Edges:
        """The rows as edges between cells."""
        return _edges(self._intervals)

    @cached_property
    def _intervals(self) -> IntArray:
        return self.factor.intervals()

    def cells(self, clause: Clause) -> Runs:
        """The cells that a clause holds for."""
        found: Runs = []
        for option in clause.options:
            kept: Runs = [(0, self.factor.size)]
            for condition in option:
                kept = intersection(kept, self._holds(condition))
            found += kept
        return union(found)

    def _holds(self, condition: Condition) -> Runs:
        if condition.comparison in ORDERS:
            return self._ordered(condition)
        chosen = union(self._interval(value) for value in condition.values)
        return chosen if condition.comparison == "=" else complement(chosen, self.factor.size)

    def _ordered(self, condition: Condition) -> Runs:
        attribute, name = self._attribute, self.factor.attribute
        (value,), comparison = condition.values, condition.comparison
        if isinstance(attribute, Hierarchy):
            raise WorkloadError(
                f"{condition}: the nodes of {name} have no order; use = or in [...]"
            )
        at = self._members.position(value)
        if at is None:
            raise WorkloadError(f"{condition}: {self._members.unknown(value, name, edges=True)}")
        if isinstance(attribute, Bins) and comparison in ("<=", ">"):
            use = {"<=": "<", ">": ">="}[comparison]
            raise WorkloadError(
                f"{condition}: bins are half open, [from, to); use "
                f"{write_value(name)} {use} {write_value(value)}"
            )
        size = self.factor.size
        holds = {"<": (0, at), "<=": (0, at + 1), ">": (at + 1, size), ">=": (at, size)}
        return union([holds[comparison]])

    def _interval(self, value: str) -> tuple[int, int]:
        """The run of cells of a row by its label, a value of the attribute, or a node."""
        found: set[tuple[int, int]] = set()
        if value in self.rows:
            first, last = self._intervals[self.rows[value]].tolist()
            found.add((first, last))
        # Codes may repeat from level to level: the level of the rows comes first, then the coarser.
        if not isinstance(self._attribute, Hierarchy):
            found |= self._members.find(value)
        elif not found:
            found.update(self._members.nodes.get(value, [])[:1])
        if not found:
            raise WorkloadError(self._members.unknown(value, self.factor.attribute))
        if len(found) > 1:
            raise WorkloadError(
                f"{self.factor.attribute} = {value!r} is both a value and a row of several; "
                "rename the value"
            )
        first, last = found.pop()
        return first, last + 1
