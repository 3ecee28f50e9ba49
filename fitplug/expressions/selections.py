"""Selections: which people an expression counts, and which rows of a query group count them.

A selection names people, not rows: it has conditions on attributes, and each condition is a set of
the attribute's cells. The rows of the group are added and subtracted so that they count exactly
these people; if they cannot, the selection is refused. It does not matter which rows are used,
because all estimates come from one reconstruction and depend only on who is counted
(docs/theory/post-processing.md). Values, including categories, are ordered as in the domain. A
node of a hierarchy stands for all leaves in it.

There are two exceptions, because some rows do not describe people. If an attribute has only one
row, such as a single range, and the selection does not mention the attribute, that row is used. The
rows of a matrix are selected by their labels, or by their numbers if they have no labels, and are
added; labelled rows that share people are refused.

Sets of cells are stored as runs, so a selection takes time and memory in proportion to the values
that it names and the rows that count them, not to all cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from fitplug.domain import ValueLookup
from fitplug.errors import WorkloadError, quote, suggest_nearest
from fitplug.expressions.coefficients import (
    Box,
    CumulativeBox,
    Runs,
    SparseCoefficients,
    add_coefficients,
    complement,
    intersection,
    union,
)
from fitplug.expressions.paths import Edges, Step, build_edges, find_path, search_paths
from fitplug.expressions.tokens import MOST_SHOWN, ORDERS, Clause, Condition, write_value
from fitplug.numeric import IntArray
from fitplug.workload import Factor, QueryGroup, Workload


class Selector:
    """Turns selections of a workload's groups into coefficients of their answers.

    The cells that values name are looked up once and cached.

    Attributes:
        workload: The workload.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._values: dict[str, ValueLookup] = {}
        self._lookups: dict[tuple[str, str], _RowLookup] = {}

    def find_values(self, attribute: str) -> ValueLookup:
        """Return the lookup of the values and nodes of an attribute.

        Raises:
            DomainError: The domain has no such attribute.
        """
        if attribute not in self._values:
            self._values[attribute] = ValueLookup(self.workload.domain[attribute])
        return self._values[attribute]

    def select(
        self, name: str, clauses: Sequence[Clause], within: Mapping[str, Runs] | None = None
    ) -> Box:
        """Find coefficients of a group's answers that count the people of a selection.

        Args:
            name: The name of the group.
            clauses: Clauses that all hold for these people.
            within: Cells, by attribute, to which these people must also belong. Attributes that
                the group does not distinguish are ignored.

        Raises:
            WorkloadError: The selection is not well formed, or the group's rows cannot count it.
        """
        asked = self._split_by_factor(name, clauses, within or {})
        return Box(tuple(_select_rows(name, *of_factor) for of_factor in asked))

    def select_cumulative(
        self, name: str, clauses: Sequence[Clause], within: Mapping[str, Runs], attribute: str
    ) -> CumulativeBox:
        """Find coefficients that count the people of a selection up to each cell of an attribute.

        Args:
            name, clauses, within: As for `select`.
            attribute: The attribute. The group has rows on it that are not a matrix, and `within`
                has cells of it.

        Raises:
            WorkloadError: As for `select`, except that rows need not count up to all cells.
        """
        asked = self._split_by_factor(name, clauses, within)
        axis = [factor.attribute for factor in self.workload[name].factors].index(attribute)
        lookup = asked[axis][0]
        runs = [(run, _list_steps(lookup, *run)) for run in _choose_cells(*asked[axis])]
        rows = np.array([step.row for _, steps in runs for step in steps], dtype=np.int64)
        coefficients = [
            SparseCoefficients(rows, np.ones(len(rows))) if k == axis else _select_rows(name, *one)
            for k, one in enumerate(asked)
        ]
        return CumulativeBox(tuple(coefficients), axis=axis, cells=lookup.factor.size, runs=runs)

    def _split_by_factor(
        self, name: str, clauses: Sequence[Clause], within: Mapping[str, Runs]
    ) -> list[tuple[_RowLookup, list[Clause], Runs | None]]:
        """Return the lookup of each factor of a group, and its clauses and cells in `within`."""
        group = self.workload[name]
        attributes = [f.attribute for f in group.factors]
        for clause in clauses:
            if clause.attribute not in attributes:
                raise WorkloadError(
                    f"{name!r} has no attribute {clause.attribute!r}. "
                    f"{suggest_nearest(clause.attribute, attributes)}"
                )
        return [
            (
                self._find_lookup(group, factor),
                [clause for clause in clauses if clause.attribute == factor.attribute],
                within.get(factor.attribute) if factor.attribute in group.attributes else None,
            )
            for factor in group.factors
        ]

    def _find_lookup(self, group: QueryGroup, factor: Factor) -> _RowLookup:
        """Return the lookup of a factor, which is made once."""
        key = group.name, factor.attribute
        if key not in self._lookups:
            self._lookups[key] = _RowLookup(self.find_values(factor.attribute), factor)
        return self._lookups[key]


def _select_rows(
    name: str, lookup: _RowLookup, clauses: list[Clause], region: Runs | None
) -> SparseCoefficients:
    """Find coefficients of a factor's rows that count the people in all clauses and the region.

    Raises:
        WorkloadError: The rows cannot count them; the message names the group.
    """
    try:
        return _find_coefficients(lookup, clauses, region)
    except WorkloadError as error:
        raise WorkloadError(f"{name!r}: {error}") from None


def _find_coefficients(
    lookup: _RowLookup, clauses: list[Clause], region: Runs | None
) -> SparseCoefficients:
    """Find the coefficients of `_select_rows`; its errors do not name the group."""
    factor = lookup.factor
    if not clauses and region is None and factor.rows == 1:
        return SparseCoefficients(np.zeros(1, dtype=np.int64), np.ones(1))
    if factor.array is not None:
        if region is not None:
            raise WorkloadError(
                f"matrix queries of {factor.attribute} cannot be divided by region. Use a group "
                f"that lists the values of {factor.attribute}."
            )
        return _select_matrix_rows(lookup, clauses)
    chosen = _choose_cells(lookup, clauses, region)
    if not chosen:
        raise WorkloadError(f"{_describe(factor, clauses, region)} selects no rows")
    coefficients = _count_runs(lookup, chosen)
    if coefficients is None:
        labels = [write_value(label) for label in list(lookup.rows)[:MOST_SHOWN]]
        more = ", ..." if factor.rows > len(labels) else ""
        raise WorkloadError(
            f"cannot count {_describe(factor, clauses, region)}. Select whole groups "
            f"of {factor.attribute}: {', '.join(labels)}{more}{lookup.describe_left_out()}."
        )
    return coefficients


def _choose_cells(lookup: _RowLookup, clauses: list[Clause], region: Runs | None) -> Runs:
    """Find the cells in all clauses and the region."""
    chosen: Runs = [(0, lookup.factor.size)]
    for clause in clauses:
        chosen = intersection(chosen, lookup.find_cells(clause))
    return chosen if region is None else intersection(chosen, region)


def _describe(factor: Factor, clauses: list[Clause], region: Runs | None) -> str:
    """Describe the people that clauses on one attribute select, for messages."""
    described = ", ".join(map(str, clauses)) or f"all of {factor.attribute}"
    return described if region is None else f"{described} in the region"


def _count_runs(lookup: _RowLookup, runs: Runs) -> SparseCoefficients | None:
    """Find coefficients of rows that count some runs of cells, or None if there are none."""
    factor = lookup.factor
    if factor.kind == "identity":
        positions = np.concatenate([np.arange(*run, dtype=np.int64) for run in runs])
        return SparseCoefficients(positions, np.ones(len(positions)))
    rows: list[int] = []
    signs: list[int] = []
    for first, end in runs:
        if end > factor.ordered and factor.kind in ("prefix", "all_ranges"):
            return None
        if factor.kind == "prefix":
            rows += [end - 1] if not first else [end - 1, first - 1]
            signs += [1] if not first else [1, -1]
        elif factor.kind == "all_ranges":
            rows.append(first * factor.ordered - first * (first - 1) // 2 + end - 1 - first)
            signs.append(1)
        else:
            path = find_path(lookup.edges, first, end)
            if path is None:
                return None
            rows += [step.row for step in path]
            signs += [step.sign for step in path]
    return add_coefficients(
        [SparseCoefficients(np.array(rows, dtype=np.int64), np.array(signs, dtype=np.float64))]
    )


def _list_steps(lookup: _RowLookup, first: int, end: int) -> list[Step]:
    """List the steps from a boundary to the later boundaries up to `end`; see `CumulativeBox`."""
    factor = lookup.factor
    if factor.kind == "identity":
        return [Step(cell, cell + 1, cell, 1) for cell in range(first, end)]
    ends = range(first + 1, min(end, factor.ordered) + 1)
    if factor.kind == "prefix":
        back = [Step(first, 0, first - 1, -1)] if first and ends else []
        return [*back, *(Step(0, stop, stop - 1, 1) for stop in ends)]
    if factor.kind == "all_ranges":
        row = first * factor.ordered - first * (first - 1) // 2 - 1 - first
        return [Step(first, stop, row + stop, 1) for stop in ends]
    return [*search_paths(lookup.edges, first).values()]


def _select_matrix_rows(lookup: _RowLookup, clauses: list[Clause]) -> SparseCoefficients:
    """Select rows of a matrix by their labels or numbers."""
    factor, name = lookup.factor, lookup.factor.attribute
    labels = list(lookup.rows)
    by = "number" if factor.names is None else "label"
    if not clauses:
        raise WorkloadError(
            f"the rows of {name} come from a matrix. Select rows by {by}, for example "
            f"{write_value(name)} = {write_value(labels[0])}."
        )
    chosen = set(range(factor.rows))
    for clause in clauses:
        in_clause: set[int] = set()
        for option in clause.options:
            in_option = set(range(factor.rows))
            for condition in option:
                in_option &= _find_named_rows(lookup, condition, by)
            in_clause |= in_option
        chosen &= in_clause
    if not chosen:
        raise WorkloadError(f"{', '.join(map(str, clauses))} selects no row")
    rows = np.array(sorted(chosen), dtype=np.int64)
    if factor.names is not None and (np.count_nonzero(factor.matrix()[rows], axis=0) > 1).any():
        raise WorkloadError(
            f"{', '.join(map(str, clauses))}: these conditions select some of the same rows. "
            "To sum their counts anyway, join them with +."
        )
    return SparseCoefficients(rows, np.ones(len(rows)))


def _find_named_rows(lookup: _RowLookup, condition: Condition, by: str) -> set[int]:
    """Find the rows of a matrix that a condition names by their "label" or "number"."""
    factor = lookup.factor
    if condition.comparison != "=":
        raise WorkloadError(
            f"{condition}: rows of a matrix can only be selected with "
            f"{write_value(factor.attribute)} = {by}"
        )
    for value in condition.values:
        if value in lookup.rows:
            continue
        if by == "label":
            raise WorkloadError(
                f"{factor.attribute} has no row {quote(value)}. "
                f"{suggest_nearest(value, lookup.rows)}"
            )
        raise WorkloadError(
            f"{condition}: there is no row {write_value(value)}. The rows are 0 to "
            f"{factor.rows - 1}."
        )
    return {lookup.rows[value] for value in condition.values}


class _RowLookup:
    """Finds the cells and the rows of a factor that a user's values name."""

    def __init__(self, values: ValueLookup, factor: Factor) -> None:
        self.factor = factor
        self._values, self._codec = values, values.codec

    @cached_property
    def rows(self) -> dict[str, int]:
        """The positions of the rows, by their labels."""
        labels = map(str, self.factor.labels(self._codec.attribute))
        return {label: row for row, label in enumerate(labels)}

    @cached_property
    def edges(self) -> Edges:
        """The rows as edges between the boundaries of cells."""
        return build_edges(self._intervals)

    @cached_property
    def _intervals(self) -> IntArray:
        """The first and last cells of the rows, shape (rows, 2)."""
        return self.factor.intervals()

    def describe_left_out(self) -> str:
        """Say that no row counts null and other values, if the queries leave them out."""
        if self._codec.other is None:
            return ""
        if self.factor.kind in ("prefix", "all_ranges"):
            leaves_out = self.factor.left_out > 0
        else:
            leaves_out = not (self._intervals[:, 1] == self.factor.size - 1).any()
        return f" (none counts {write_value(str(self._codec.other))})" if leaves_out else ""

    def find_cells(self, clause: Clause) -> Runs:
        """Find the cells for which a clause holds."""
        in_clause: Runs = []
        for option in clause.options:
            in_option: Runs = [(0, self.factor.size)]
            for condition in option:
                in_option = intersection(in_option, self._find_condition_cells(condition))
            in_clause += in_option
        return union(in_clause)

    def _find_condition_cells(self, condition: Condition) -> Runs:
        """Find the cells for which a condition holds."""
        if condition.comparison in ORDERS:
            return self._find_ordered_cells(condition)
        chosen = union(self._find_interval(value) for value in condition.values)
        return chosen if condition.comparison == "=" else complement(chosen, self.factor.size)

    def _find_ordered_cells(self, condition: Condition) -> Runs:
        """Find the cells below or above a value."""
        codec, name = self._codec, self.factor.attribute
        (value,), comparison = condition.values, condition.comparison
        if codec.levels:
            raise WorkloadError(
                f"{condition}: the nodes of {name} have no order. Use = or in [...]."
            )
        if codec.is_other(value):
            raise WorkloadError(f"{condition}: {value!r} has no order. Use = or !=.")
        at = self._values.find_end(value)
        if at is None:
            raise WorkloadError(
                f"{condition}: {self._values.describe_unknown(value, name, end=True)}"
            )
        if codec.is_half_open and comparison in ("<=", ">"):
            use = {"<=": "<", ">": ">="}[comparison]
            raise WorkloadError(
                f"{condition}: bins are half open, [from, to). Use {write_value(name)} {use} "
                f"{write_value(value)}."
            )
        stop = codec.value_count  # the cell of all other values is neither above nor below
        holds = {"<": (0, at), "<=": (0, at + 1), ">": (at + 1, stop), ">=": (at, stop)}
        return union([holds[comparison]])

    def _find_interval(self, value: str) -> tuple[int, int]:
        """Find the cells of a value of the attribute, a node, or a row by its label."""
        intervals: set[tuple[int, int]] = set()
        if value in self.rows:
            first, last = self._intervals[self.rows[value]].tolist()
            intervals.add((first, last))
        # Codes may repeat on several levels: the rows' own level comes first, then the coarsest.
        if not self._codec.levels:
            intervals |= self._values.find(value)
        elif not intervals:
            intervals.update(self._values.nodes.get(value, [])[:1])
        if not intervals:
            raise WorkloadError(self._values.describe_unknown(value, self.factor.attribute))
        if len(intervals) > 1:
            raise WorkloadError(
                f"{self.factor.attribute} = {value!r} names both a value and a row with other "
                "values. Rename the row."
            )
        first, last = intervals.pop()
        return first, last + 1
