"""`evaluate`: the variances and the privacy cost of a strategy beside the certified optimum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import qr, svd

from fitplug.errors import WorkloadError
from fitplug.evaluation.evaluation import Evaluation
from fitplug.evaluation.neighbours import (
    check_unit_of_evaluation,
    describe_neighbours,
    find_costliest_neighbours,
    find_public_regions,
    remove_public_totals,
)
from fitplug.evaluation.strategy import Strategy
from fitplug.families import MAX_ENTRIES
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, guard_linear_algebra
from fitplug.plan import Plan, design
from fitplug.workload import ONE_RECORD, Unit, Workload

_UNANSWERED = 1e-8
"""A query is not a combination of the strategy's rows if more than this part of it is left over."""


def evaluate(
    workload: Workload,
    strategy: Strategy | Any,
    *,
    unit: Unit = ONE_RECORD,
    plan: Plan | None = None,
) -> Evaluation:
    """Compare a strategy of one's own with the certified optimum.

    The strategy's noise is scaled so that every target holds and the tightest holds exactly. With
    the strategy matrix A and the unit's differences v between neighbours, its privacy cost is then

        Delta = max_v |A v| * max_j sqrt(w_j (A'A)^+ w_j' / c_j)

    (docs/theory/dual.md). No mechanism with Gaussian noise has less than `Plan.lower_bound`. The
    variances and the cost of the strategy are computed in floating point, with singular values of
    A; the bound is certified. Under `fp.ReplaceOne` the public totals are known exactly.

    Args:
        workload: The queries and their targets.
        strategy: A `Strategy`; or the covariance (d, d) of noise on the cells, as in
            `Strategy.from_covariance`. The d columns are the cells of `workload.attributes`, in C
            order: the cells of the last attribute follow one another. They are those of
            `workload.matrix()`.
        unit: `fp.AddRemove(records=...)` or `fp.ReplaceOne(...)`.
        plan: A plan for the same workload and unit, so that it is not designed again. If it meets
            scaled targets, the strategy is evaluated at these.

    Returns:
        The evaluation.

    Raises:
        WorkloadError: The strategy has other cells than the workload, does not answer some query,
            is too large, or the unit is neither of the two.
        DesignError: No plan can be certified.
    """
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
        raise WorkloadError(
            "all queries are answered by public totals, so that no strategy costs anything; leave "
            "public totals out of the workload, or protect the number of records by AddRemove"
        )
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
        WorkloadError: A query is no combination of the rows of A.
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
    # What is left of a row after public totals were removed may be rounding alone.
    unanswered = left_over > _UNANSWERED * np.linalg.norm(given, axis=1)
    if unanswered.any():
        first = int(unanswered.argmax())
        name, at = _locate_query(workload, first)
        raise WorkloadError(
            f"the strategy does not answer {int(unanswered.sum()):,} of {len(W):,} queries, such "
            f"as query {list(at)} of group {name!r}, which is no combination of its rows; add rows"
        )
    return np.asarray(np.square(coordinates / singular[known]).sum(axis=1))


def _check_sizes(workload: Workload, strategy: Strategy) -> None:
    """Raise WorkloadError if the matrices do not go together, or are too large."""
    rows, cells = strategy.matrix.shape
    if cells != workload.cell_count:
        raise WorkloadError(
            f"the strategy has {cells:,} columns, and the workload has {workload.cell_count:,} "
            f"cells of {' x '.join(workload.attributes) or 'the total'}; give a column for each"
        )
    largest = max(rows, workload.query_count) * cells
    if largest > MAX_ENTRIES:
        raise WorkloadError(
            f"the matrices have up to {largest:,} coefficients, and up to {MAX_ENTRIES:,} can be "
            "evaluated; use fewer cells, queries or rows"
        )


def _check_plan(plan: Plan, workload: Workload, unit: Unit) -> None:
    """Raise WorkloadError if the plan's bound does not hold for this workload and unit."""
    if plan.workload is not workload:
        raise WorkloadError("the plan is for another workload; give plan.workload as the workload")
    if plan.unit != unit:
        raise WorkloadError(f"the plan is for {plan.unit}, and not for {unit}; give unit=plan.unit")
    if not plan.objective.plain:
        raise WorkloadError(
            f"the plan bounds the {plan.objective}; give one without cell_budgets and "
            "total_error_weight"
        )


def _locate_query(workload: Workload, row: int) -> tuple[str, tuple[int, ...]]:
    """Return the group of a row of W, and the indices of the query in the group."""
    ends = np.cumsum([group.size for group in workload.groups])
    at = int(np.searchsorted(ends, row, side="right"))
    group = workload.groups[at]
    within = row - (int(ends[at]) - group.size)
    return group.name, tuple(int(i) for i in np.unravel_index(within, group.shape))
