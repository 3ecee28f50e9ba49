"""`evaluate`: a strategy's variances and privacy cost compared with the certified optimum.

The cost is the largest |A v| over the differences v between neighbours.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import qr, svd

from fitplug.errors import WorkloadError, check_type
from fitplug.evaluation.evaluation import Evaluation, Strategy
from fitplug.families import MAX_ENTRIES, name_cell
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, IndexArray, guard_linear_algebra
from fitplug.plan import Plan, design
from fitplug.workload import ONE_RECORD, AddRemove, ReplaceOne, Unit, Workload, allows_any_rows

_MOST_DISTANCES = 4_000_000
"""The most squared distances between columns that are held at a time."""

_UNANSWERED = 1e-8
"""A query is not a combination of the strategy's rows if more than this part of it is left over."""


def evaluate(
    workload: Workload,
    strategy: Strategy | Any,
    *,
    unit: Unit = ONE_RECORD,
    plan: Plan | None = None,
) -> Evaluation:
    """Compare a strategy with the certified optimum.

    The strategy's noise is scaled so that every target is met, and at least one target exactly. Let
    A be the strategy matrix, w_j the rows of the workload matrix, c_j their target variances, and v
    any difference between the cell counts of neighbouring data sets. The privacy cost of the
    strategy is then

        Delta = max_v |A v| * max_j sqrt(w_j (A'A)^+ w_j' / c_j)

    (docs/theory/dual.md). No mechanism with Gaussian noise has a lower cost than
    `Plan.lower_bound`. The lower bound is certified. The variances and the cost of the strategy are
    computed in floating point, from the singular values of A. Under `fp.ReplaceOne` the public
    totals are used as exact numbers.

    Args:
        workload: The queries and their targets.
        strategy: A `Strategy`; or the covariance (d, d) of noise on the cells, as in
            `Strategy.from_covariance`. The d columns are the cells of `workload.attributes`, in C
            order (the cell of the last attribute changes fastest), as in `workload.matrix()`.
        unit: `fp.AddRemove(records=...)` or `fp.ReplaceOne(...)`.
        plan: A plan for the same workload and unit; by default it is designed. If the plan was
            designed for a budget, the strategy is evaluated with the plan's scaled targets.

    Returns:
        The evaluation.

    Raises:
        TypeError: `workload`, `strategy` or `plan` has the wrong type.
        WorkloadError: The strategy and the workload have different numbers of cells, the strategy
            cannot answer one of the queries or is too large, or the unit is not supported.
        DesignError: No plan can be certified.

    Example:
        >>> cells = fp.Strategy.from_matrix(np.eye(8), name="cells")
        >>> fp.evaluate(workload, cells, unit=fp.AddRemove(), plan=plan).ratio >= 1
        True
    """
    check_type("workload", workload, Workload, "fitplug.evaluate(workload, strategy)")
    if plan is not None:
        check_type("plan", plan, Plan, "fitplug.evaluate(workload, strategy, plan=plan)")
    if isinstance(strategy, (Plan, Workload)):
        call = "fitplug.evaluate(workload, strategy, plan=plan)"
        check_type("strategy", strategy, Strategy, call)
    if not isinstance(strategy, Strategy):
        strategy = Strategy.from_covariance(strategy)
    check_unit_of_evaluation(unit)
    _check_sizes(workload, strategy)
    if plan is None:
        plan = design(workload, unit=unit)
    _check_plan(plan, workload, unit)
    A = strategy.matrix
    with guard_linear_algebra():
        variances = compute_unit_variances(A, workload, unit)
        sensitivity, cells = find_costliest_neighbours(A, workload, unit)
    ratios = variances / (plan.scale * workload.targets())
    tightest = int(ratios.argmax())
    if not sensitivity or not ratios[tightest]:
        raise WorkloadError("public totals answer all queries. Add a query that needs noise.")
    return Evaluation(
        strategy=strategy,
        plan=plan,
        privacy_cost=sensitivity * math.sqrt(ratios[tightest]),
        variances=workload.split(variances / ratios[tightest]),
        tightest_query=_locate_query(workload, tightest),
        costliest_neighbours=describe_neighbours(workload, cells),
    )


def compute_unit_variances(A: FloatArray, workload: Workload, unit: Unit) -> FloatArray:
    """Compute w_j (A'A)^+ w_j' for each query, given the public totals of the unit.

    Args:
        A: The strategy matrix, shape (p, d).
        workload: The queries.
        unit: The unit of privacy.

    Returns:
        The variance of each query's least-squares answer at noise of variance 1, shape (m,).

    Raises:
        WorkloadError: A query is not a combination of the rows of A.
    """
    regions = find_public_regions(workload, unit)
    given = workload.matrix()
    W = remove_public_totals(given, regions)
    measured = remove_public_totals(A, regions)
    if len(measured) > measured.shape[1]:
        measured = qr(measured, mode="r")[0][: measured.shape[1]]
    _, singular, directions = svd(measured, full_matrices=False)
    least = singular[0] * max(A.shape) * 2 * UNIT_ROUNDOFF
    known = singular > least
    coordinates = W @ directions[known].T
    left_over = np.linalg.norm(W - coordinates @ directions[known], axis=1)
    # After public totals are removed, the rest of a row may be mere rounding error.
    unanswered = left_over > _UNANSWERED * np.linalg.norm(given, axis=1)
    if unanswered.any():
        first = int(unanswered.argmax())
        name, at = _locate_query(workload, first)
        raise WorkloadError(
            f"the strategy cannot answer query {list(at)} of group {name!r}. Add rows to the "
            "strategy."
        )
    return np.asarray(np.square(coordinates / singular[known]).sum(axis=1))


def _check_sizes(workload: Workload, strategy: Strategy) -> None:
    """Raise WorkloadError if the matrices do not go together, or are too large."""
    rows, cells = strategy.matrix.shape
    if cells != workload.cell_count:
        raise WorkloadError(
            "the strategy must have one column per cell of "
            f"{' x '.join(workload.attributes) or 'the total'} ({workload.cell_count:,}), not "
            f"{cells:,}"
        )
    largest = max(rows, workload.query_count) * cells
    if largest > MAX_ENTRIES:
        raise WorkloadError(
            f"the matrices have up to {largest:,} coefficients; the limit is {MAX_ENTRIES:,}. Use "
            "fewer cells or queries."
        )


def _check_plan(plan: Plan, workload: Workload, unit: Unit) -> None:
    """Raise WorkloadError if the plan's bound does not hold for this workload and unit."""
    if plan.workload is not workload:
        raise WorkloadError(
            "the plan belongs to another workload. Pass plan.workload as the workload."
        )
    if plan.unit != unit:
        raise WorkloadError(f"the plan is for {plan.unit}, not for {unit}. Pass unit=plan.unit.")
    if not plan.objective.plain:
        raise WorkloadError(
            f"the plan minimizes the {plan.objective}. Give a plan without cell_budgets and "
            "total_error_weight."
        )


def _locate_query(workload: Workload, row: int) -> tuple[str, tuple[int, ...]]:
    """Return the group of a row of W, and the indices of the query in the group."""
    ends = np.cumsum([group.size for group in workload.groups])
    at = int(np.searchsorted(ends, row, side="right"))
    group = workload.groups[at]
    within = row - (int(ends[at]) - group.size)
    return group.name, tuple(int(i) for i in np.unravel_index(within, group.shape))


def _make_unit_error(unit: Unit) -> WorkloadError:
    return WorkloadError(
        f"strategies cannot be evaluated for {unit}. Use AddRemove(records=...) or ReplaceOne(...)."
    )


def check_unit_of_evaluation(unit: Unit) -> None:
    """Raise WorkloadError for units whose cost is not simply that of columns or pairs of them."""
    if isinstance(unit, AddRemove) and not allows_any_rows(unit):
        raise _make_unit_error(unit)


def find_public_regions(workload: Workload, unit: Unit) -> IndexArray | None:
    """Find which cells have a public total together.

    Args:
        workload: The queries.
        unit: The unit of privacy.

    Returns:
        The region of each cell, shape (d,), numbered from 0; None if no totals are public.
    """
    if not isinstance(unit, ReplaceOne):
        return None
    sizes = [n if name in unit.within else 1 for name, n in _list_sizes(workload)]
    regions = np.arange(math.prod(sizes)).reshape(sizes)
    return np.asarray(np.broadcast_to(regions, workload.shape).ravel(), dtype=np.intp)


def remove_public_totals(rows: FloatArray, regions: IndexArray | None) -> FloatArray:
    """Subtract from each row its mean in each region, which the public totals answer exactly.

    Args:
        rows: Shape (n, d).
        regions: See `find_public_regions`.
    """
    if regions is None:
        return rows
    sizes = np.bincount(regions)
    order = np.argsort(regions, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    means = np.add.reduceat(rows[:, order], starts, axis=1) / sizes
    return np.asarray(rows - means[:, regions])


def find_costliest_neighbours(
    A: FloatArray, workload: Workload, unit: Unit
) -> tuple[float, tuple[int, ...]]:
    """Find the difference of neighbours that costs most.

    Args:
        A: The strategy matrix, shape (p, d).
        workload: Its attributes' cells are the columns.
        unit: Rows added or removed anywhere, or one row replaced.

    Returns:
        The largest |A v|, and the cell or the two cells at which it is attained.
    """
    squares = np.einsum("ij,ij->j", A, A)
    if isinstance(unit, AddRemove):
        cell = int(squares.argmax())
        return unit.records * math.sqrt(squares[cell]), (cell,)
    regions = find_public_regions(workload, unit)
    if regions is None:
        raise _make_unit_error(unit)
    most, pair = 0.0, (0, 0)
    for region in range(int(regions.max()) + 1):
        cells = np.flatnonzero(regions == region)
        # Distances do not change when all columns are moved, and fewer digits cancel then.
        columns = A[:, cells] - A[:, cells].mean(axis=1, keepdims=True)
        lengths = np.einsum("ij,ij->j", columns, columns)
        step = max(1, _MOST_DISTANCES // len(cells))
        for start in range(0, len(cells), step):
            part = slice(start, start + step)
            squared = lengths[part, None] + lengths - 2.0 * (columns[:, part].T @ columns)
            first, second = np.unravel_index(int(squared.argmax()), squared.shape)
            i, j = start + int(first), int(second)
            # Measure the pair again: no digits cancel in the difference of two columns.
            distance = float(np.linalg.norm(columns[:, i] - columns[:, j]))
            if distance > most:
                most, pair = distance, (int(cells[i]), int(cells[j]))
    return most, pair


def describe_neighbours(workload: Workload, cells: tuple[int, ...]) -> str:
    """Say which cell, or which two cells, neighbours differ in."""
    if not workload.attributes:
        return "the total"
    places = (
        name_cell(workload.domain, workload.attributes, np.unravel_index(cell, workload.shape))
        for cell in cells
    )
    return " and ".join(places)


def _list_sizes(workload: Workload) -> list[tuple[str, int]]:
    return list(zip(workload.attributes, workload.shape, strict=True))
