"""The check before the charge: neighbouring histograms are answered, and their answers compared.

The cost of a release is proven from the integers of its strategy, by different code for each
structure and unit of privacy. This check uses none of that code. It takes the path that computes
the answers of the release, gives it histograms that differ as neighbours in the unit do, and
compares the squared distances of the answers with the sensitivity that the plan is charged for:

* If A is small enough to write out, it is compared with the path, and then all differences between
  neighbours are measured: all single records, all pairs of replaced records, and all persons with
  several records if these are few.
* Otherwise the path answers some hundreds of cells: the costliest cell by the plan's own profile,
  and random cells, each with cells that differ from it in one attribute. The differences between
  these are measured.
* For very large plans two records are measured, because each takes as long as all answers of a
  release.

The answers of coverage are compared for records outside the domain, which A has no column for.

If there are too many persons with several records, costly ones are searched record by record from
the costliest columns. A search or a sample can miss a difference that costs too much, but what it
measures is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug.sensitivity.columns import AnswerPath, choose_cells, make_plan_error, read_columns
from fitplug.sensitivity.differences import measure_differences, sum_squares
from fitplug.workload import ReplaceOne, allows_any_rows

_UNPROTECTED = "does not protect its unit of privacy"
_TOTALS = f"{_UNPROTECTED}: two neighbouring data sets have different public totals"

_LARGE_WORK = 2**24
"""A path that reads and computes more numbers than this answers only two records."""

_OTHERS = 100
"""The number of records that neighbours have in common when the path answers them."""


@dataclass(frozen=True)
class SensitivityCheck:
    """The result of a check of a plan's sensitivity.

    Attributes:
        cells: The number of cells, of those that queries use, whose answers were computed.
        neighbours: The number of differences between neighbours that were measured.
        is_complete: Whether these are all differences in the plan's unit of privacy.
        largest_squared: The largest squared distance |A v|^2 that was found, exact.
    """

    cells: int
    neighbours: int
    is_complete: bool
    largest_squared: int

    def __str__(self) -> str:
        which = "all" if self.is_complete else "a sample of"
        return f"{which} {self.neighbours:,} differences between neighbours"


def check_sensitivity(path: AnswerPath) -> SensitivityCheck:
    """Check that the answers of neighbouring data sets are within a plan's sensitivity.

    The same path always gives the same result.

    Args:
        path: The plan, and the computation of its exact answers.

    Returns:
        The differences that were measured.

    Raises:
        PlanError: The answers of two neighbouring data sets differ by more than the plan claims.
    """
    check = _check_large(path) if path.work > _LARGE_WORK else _check_columns(path)
    most = path.plan.strategy.sensitivity_squared
    outside_squared = _measure_coverage(path.plan)
    check = replace(check, largest_squared=max(check.largest_squared, outside_squared))
    if check.largest_squared > most:
        times = float(Fraction(check.largest_squared, most)) if most else math.inf
        what = f"{_UNPROTECTED}: two neighbouring data sets cost {times:.6g} times the stated rho"
        raise make_plan_error(path.plan, what)
    return check


def _measure_coverage(plan: Plan) -> int:
    """Measure exactly how far records outside the domain move the answers of coverage, squared.

    The records have values outside one attribute, or outside the first few attributes.
    """
    coverage, squares = plan.coverage, [0]
    if coverage is None:
        return 0
    d, k = len(coverage.names), plan.unit.records
    patterns = [np.arange(d) == a for a in range(d)] + [np.arange(d) <= a for a in range(d)]
    # Other records are present, because the answers must be linear.
    before = coverage.answer_exactly([1] * d, 1)
    for pattern in patterns:
        after = coverage.answer_exactly((1 + k * pattern).tolist(), 1 + k)
        squares += sum_squares((after - before)[:, None])
    return int(max(squares))


def _check_columns(path: AnswerPath) -> SensitivityCheck:
    """Measure differences between columns of A, and the costliest also by the path itself."""
    columns = read_columns(path)
    measured = measure_differences(columns, path.plan.unit)
    if measured.has_public_change:
        raise make_plan_error(path.plan, _TOTALS)
    # The path answers the costliest again with other records present, because it must be linear.
    shape = path.plan.workload.shape
    others = path.make_generator().integers(0, shape, (_OTHERS, len(shape)))
    squares = [measured.largest_squared]
    for difference in measured.costliest:
        added, removed = (
            np.concatenate([others, columns.cells[[c for c, sign in difference if sign == which]]])
            for which in (1, -1)
        )
        squares.append(_measure_difference(path, added, removed) * measured.repeats**2)
    return SensitivityCheck(len(columns.cells), measured.count, measured.is_complete, max(squares))


def _check_large(path: AnswerPath) -> SensitivityCheck:
    """Measure two records, or the replacement of one by the other, chunk by chunk."""
    plan = path.plan
    cells = choose_cells(plan, 2, path.make_generator())
    first, second = cells[:1], cells[-1:]
    if isinstance(plan.unit, ReplaceOne):
        return SensitivityCheck(len(cells), 1, False, _measure_difference(path, first, second))
    repeats = plan.unit.records if allows_any_rows(plan.unit) else 1
    squares = [_measure_difference(path, cell, cells[:0]) for cell in (first, second)]
    return SensitivityCheck(len(cells), len(cells), False, max(squares) * repeats**2)


def _measure_difference(path: AnswerPath, added: IntArray, removed: IntArray) -> int:
    """Measure |A v|^2 of two histograms by the path, exact.

    Args:
        path: The path.
        added: The cells (r, attributes) of the records of one histogram.
        removed: The cells of the records of the other, possibly none.

    Raises:
        PlanError: The public totals differ.
    """
    size, squared = path.plan.strategy.size, 0
    for chunks in zip(
        *(
            path.answer_in_chunks(path.make_tables(records))
            for records in (added, removed)
            if len(records)
        ),
        strict=True,
    ):
        # Answers are at most 2^62.
        place, change = chunks[0][0], chunks[0][1] - (chunks[1][1] if len(chunks) > 1 else 0)
        if isinstance(place, slice):
            place = np.arange(len(change)) + (place.start or 0)
        squared += sum_squares(change[place < size, None])[0]
        if len(chunks) > 1 and change[place >= size].any():
            raise make_plan_error(path.plan, _TOTALS)
    return squared
