"""Columns of A: the answers of a release's path to a histogram of one record in one cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fitplug.counts import AttributeSet, Tables
from fitplug.domain import count_shares, get_shape
from fitplug.errors import PlanError
from fitplug.families import build_dense_strategy
from fitplug.numeric import IntArray, to_positions
from fitplug.plan import Plan

_MOST_ENTRIES = 2**23
"""The most entries of A, or of some columns of it, in memory: 64 MB."""

_MOST_WORK = 2**26
"""About the most numbers to read and compute for all columns of a sample."""

_TABLE_WORK = 5_000
"""The overhead of reading a table, as a number of numbers."""

_FEWEST_CELLS, _MOST_CELLS = 4, 512
"""The least and the largest number of sampled cells."""

_FAMILY = 8
"""The size of a family: a sampled cell with cells that differ from it in one attribute."""

_CERTAIN_BITS = 80
"""A matrix that differs from the path is missed with a probability of at most 2 to minus this."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of the matrix A that a release measures.

    Attributes:
        names: The attributes that queries use.
        cells: The cells (c, attributes) of the columns, as an index for each attribute.
        matrix: The answers (n, c) to one record in each cell; zero rows may be left out.
        totals: The public totals (t, c) of one record in each cell.
        is_all: Whether these are the columns of all cells.
    """

    names: tuple[str, ...]
    cells: IntArray
    matrix: IntArray
    totals: IntArray
    is_all: bool


@dataclass(frozen=True, eq=False)
class AnswerPath:
    """How a release computes its exact answers.

    Attributes:
        plan: The plan.
        tables: The attribute sets of the exact counts that it reads.
        answer_in_chunks: A function that computes the answers from such counts, one chunk after
            another, each with its place in the strategy's order. Public totals follow the answers.
    """

    plan: Plan
    tables: tuple[AttributeSet, ...]
    answer_in_chunks: Callable[[Tables], Iterable[tuple[slice | IntArray, IntArray]]]

    @classmethod
    def in_memory(cls, plan: Plan) -> AnswerPath:
        """Return the path of releases in memory."""
        return cls(
            plan,
            plan.tables,
            lambda tables: [(slice(None), plan.strategy.answer_exactly(tables.marginal))],
        )

    @property
    def work(self) -> int:
        """About how many numbers are read and computed for one histogram."""
        read = sum(
            math.prod(get_shape(self.plan.domain, names)) + _TABLE_WORK for names in self.tables
        )
        return self.plan.strategy.size + read

    def make_generator(self) -> np.random.Generator:
        """Make the random generator of a check, which is always the same for the same plan."""
        return np.random.default_rng(int(self.plan.digest[:16], 16))

    def answer_records(self, cells: IntArray, counts: IntArray | None = None) -> IntArray:
        """Answer the histogram of some records.

        Args:
            cells: The cell of each record (r, attributes), at a bound of each measure.
            counts: The multiplicity of each record (r,); one each if None.
        """
        answers = np.zeros(self.plan.strategy.released_size, dtype=np.int64)
        for place, chunk in self.answer_in_chunks(self.make_tables(cells, counts)):
            answers[place] = chunk
        return answers

    def make_tables(self, cells: IntArray, counts: IntArray | None = None) -> Tables:
        """Make the tables of records; the arguments are those of `answer_records`."""
        domain, names = self.plan.domain, self.plan.workload.attributes
        numbers = np.ones(len(cells), dtype=np.int64) if counts is None else counts
        tables = {}
        for attributes in self.tables:
            table = np.zeros(get_shape(domain, attributes), dtype=np.int64)
            at = tuple(to_positions(cells[:, names.index(name)]) for name in attributes)
            np.add.at(table, at, numbers if at else numbers.sum())
            shares = count_shares(domain, attributes)
            tables[attributes] = table if shares == 1 else table * shares
        return Tables(domain, tables, copy=False)


def read_columns(path: AnswerPath) -> Columns:
    """Read all columns of a small A, or the columns of some cells of a large one.

    Raises:
        PlanError: The path does not compute the A that the strategy writes out.
    """
    entries = path.plan.workload.cell_count * max(path.plan.strategy.size, 1)
    return _write_out(path) if entries <= _MOST_ENTRIES else _sample(path)


def _write_out(path: AnswerPath) -> Columns:
    """Write A out, and compare it with the path at random histograms (Freivalds)."""
    plan, generator = path.plan, path.make_generator()
    cells = _list_cells(plan.workload.shape)
    matrix = _find_integers(plan)
    totals = _write_out_totals(plan, cells)
    # With so few records per cell, no answer is clamped.
    most = max(2, min(plan.strategy.max_records, 2**50) // len(cells))
    for _ in range(math.ceil(_CERTAIN_BITS / math.log2(most))):
        counts = generator.integers(0, most, len(cells))
        answers = path.answer_records(cells, counts)
        expected = np.concatenate([matrix @ counts, totals @ counts])
        if not np.array_equal(answers, expected):
            raise make_plan_error(plan, "gives other answers than its integer coefficients give")
    return Columns(plan.workload.attributes, cells, matrix, totals, True)


def make_plan_error(plan: Plan, what: str) -> PlanError:
    """Make the error for a plan that must not be released, which only a bug can cause."""
    return PlanError(
        f"plan {plan.digest[:12]} {what}; nothing was charged or released. Please report this bug."
    )


def _list_cells(shape: tuple[int, ...]) -> IntArray:
    """List all cells (c, attributes) of an array of this shape, in C order."""
    if not shape:
        return np.zeros((1, 0), dtype=np.int64)
    return np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=-1)


def _find_integers(plan: Plan) -> IntArray:
    """Write A out as integers (n, cells)."""
    strategy = plan.strategy
    if not strategy.size:
        return np.zeros((0, plan.workload.cell_count), dtype=np.int64)
    return build_dense_strategy(strategy).astype(np.int64)


def _write_out_totals(plan: Plan, cells: IntArray) -> IntArray:
    """Write out the public totals of one record in each cell (c, attributes), (t, c), in shares."""
    public = plan.strategy.structure.public_attributes
    if public is None:
        return np.zeros((0, len(cells)), dtype=np.int64)
    at = [plan.workload.attributes.index(name) for name in public]
    sizes = get_shape(plan.domain, public)
    region = np.zeros(len(cells), dtype=np.int64)
    for a, n in zip(at, sizes, strict=True):
        region = region * n + cells[:, a]
    totals = np.zeros((math.prod(sizes), len(cells)), dtype=np.int64)
    totals[region, np.arange(len(cells))] = plan.strategy.structure.shares
    return totals


def _sample(path: AnswerPath) -> Columns:
    """Answer one record in each of some cells by the path."""
    plan = path.plan
    number = int(np.clip(_MOST_WORK // path.work, _FEWEST_CELLS, _MOST_CELLS))
    cells = choose_cells(plan, number, path.make_generator())
    is_used = np.zeros(plan.strategy.released_size, dtype=np.bool_)
    answered: list[tuple[IntArray, IntArray]] = []
    for cell in cells:
        answers = path.answer_records(cell[None])
        used = np.flatnonzero(answers)
        is_used[used] = True
        answered.append((used, answers[used]))
        if int(is_used.sum()) * len(answered) > _MOST_ENTRIES and len(answered) >= _FEWEST_CELLS:
            break
    rows = np.flatnonzero(is_used)
    matrix = np.zeros((len(rows), len(answered)), dtype=np.int64)
    for c, (used, values) in enumerate(answered):
        matrix[np.searchsorted(rows, used), c] = values
    is_total = rows >= plan.strategy.size
    names = plan.workload.attributes
    return Columns(names, cells[: len(answered)], matrix[~is_total], matrix[is_total], False)


def choose_cells(plan: Plan, number: int, generator: np.random.Generator) -> IntArray:
    """Choose different cells (c, attributes): the costliest, and families of random ones."""
    names, shape = plan.workload.attributes, np.array(plan.workload.shape, dtype=np.int64)
    costliest = np.zeros(len(shape), dtype=np.int64)
    profile = plan.profile()
    axes = plan.domain.names
    if profile.ndim != len(axes):
        axes = plan.strategy.structure.profile_attributes
    at = dict(zip(axes, np.unravel_index(int(profile.argmax()), profile.shape), strict=True))
    for a, name in enumerate(names):
        costliest[a] = at.get(name, 0)
    public = getattr(plan.unit, "within", ())
    movable = [a for a, name in enumerate(names) if name not in public and shape[a] > 1]
    chosen: list[IntArray] = []
    bases = [costliest, shape - 1, 0 * shape]
    while len(chosen) < number:
        base = bases.pop(0) if bases else generator.integers(0, shape)
        chosen.append(base)
        for _ in range(_FAMILY - 1 if movable else 0):
            other = base.copy()
            a = movable[int(generator.integers(len(movable)))]
            other[a] = (base[a] + generator.integers(1, shape[a])) % shape[a]
            chosen.append(other)
    cells = np.array(chosen[:number], dtype=np.int64)
    _, first = np.unique(cells, axis=0, return_index=True)
    return cells[np.sort(first)]
