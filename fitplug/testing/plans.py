"""Checks of a plan's claims, by running its mechanism on rows.

A table of one row, for each cell in turn, goes through the mechanism, and each answer in turn
through the estimates. So the checks do not use the plan's own computation of its cost, its
variances and its room for rows. All of it is brute force, for workloads of a few dozen cells.
"""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fitplug.counts import Tables
from fitplug.domain import count_shares, get_shape
from fitplug.families import SATURATION
from fitplug.numeric import FloatArray
from fitplug.plan import Plan
from fitplug.sensitivity import AnswerPath, check_sensitivity
from fitplug.workload import ReplaceOne, Unit, Workload, allows_any_rows

Cell: TypeAlias = tuple[int, ...]
"""A cell, as an index for each attribute of a workload."""

Difference: TypeAlias = list[tuple[Cell, int]]
"""Cells in which the numbers of rows of two neighbours differ, and by how much."""

ListNeighbours: TypeAlias = Callable[[Workload, Any], Iterable[Difference]]
"""Lists the differences between all neighbours in a unit, over the cells of a workload."""

_LOOSEST = 1e-8
"""The largest relative excess of a number that a plan states in floats."""

_ROUNDING = 1e-12
"""The relative rounding error of variances that are summed in floats here."""

_ACCURACY = 1e-5
"""What the interior-point solver may be off, relatively."""


def require(holds: Any, problem: str) -> None:
    """Raise AssertionError with a message unless something holds, also under `python -O`."""
    if not holds:
        raise AssertionError(problem)


def list_neighbours(workload: Workload, unit: Unit) -> Iterator[Difference]:
    """List the differences between all neighbours in a unit of fitplug.

    It lists them from the definition of the unit in `fitplug.workload`.

    Args:
        workload: The workload, of few cells.
        unit: The unit of privacy.

    Yields:
        Each difference as pairs: a cell, and the number of rows that one neighbour has there minus
        the number that the other has.

    Example:
        >>> next(iter(fitplug.testing.list_neighbours(workload, fp.ReplaceOne())))
        [((0, 0), 1), ((0, 1), -1)]
    """
    names = workload.attributes
    cells = list(itertools.product(*map(range, workload.shape)))
    if isinstance(unit, ReplaceOne):
        fixed = [names.index(name) for name in unit.within if name in names]
        for i, j in itertools.combinations(cells, 2):
            if all(i[a] == j[a] for a in fixed):
                yield [(i, 1), (j, -1)]
        return
    if allows_any_rows(unit):
        yield from ([(cell, unit.records)] for cell in cells)
        return
    at = None if unit.once_per is None else names.index(unit.once_per)
    for number in range(1, unit.records + 1):
        for chosen in itertools.combinations(cells, number):
            if at is None or len({cell[at] for cell in chosen}) == number:
                yield [(cell, 1) for cell in chosen]


def answer_cell(plan: Plan, cell: Cell, rows: int) -> Any:
    """Compute all integers of a release for a number of rows in a cell, at bounds of measures."""
    names, tables = plan.workload.attributes, {}
    for attributes in plan.tables:
        table = np.zeros(get_shape(plan.domain, attributes), dtype=np.int64)
        shares = count_shares(plan.domain, attributes)
        table[tuple(cell[names.index(name)] for name in attributes)] = rows * shares
        tables[attributes] = table
    answers = plan.strategy.answer_exactly(Tables(plan.domain, tables).marginal)
    return np.array([int(a) for a in answers], dtype=object)


def _answer_cells(plan: Plan) -> dict[Cell, Any]:
    """Compute the integers of a release for one row, for each cell in which it may be."""
    cells = itertools.product(*map(range, plan.workload.shape))
    return {cell: answer_cell(plan, cell, 1) for cell in cells}


def _measure_cells(
    plan: Plan, columns: dict[Cell, Any], neighbours: ListNeighbours
) -> dict[Cell, int]:
    """Measure the largest |A v|^2 of the differences that contain each cell, in exact integers."""
    size, largest = plan.strategy.size, dict.fromkeys(columns, 0)
    for difference in neighbours(plan.workload, plan.unit):
        moved = sum(times * columns[cell] for cell, times in difference)
        require(not any(moved[size:]), "two neighbours have different public totals")
        square = int((moved[:size] * moved[:size]).sum())
        for cell, _ in difference:
            largest[cell] = max(largest[cell], square)
    return largest


def measure_cost(plan: Plan) -> int:
    """Measure the largest |A v|^2 of all differences between neighbours, in exact integers."""
    return max(_measure_cells(plan, _answer_cells(plan), list_neighbours).values())


def check_plan(plan: Plan, neighbours: ListNeighbours | None = None) -> None:
    """Check every claim of a small plan about its mechanism.

    It compares the cost and the profile with all differences between neighbours, in exact integers.
    It also checks that answers do not overflow at the most rows that the plan allows, and that the
    estimates have the stated variances and meet the targets. `check_bound` checks the optimum.

    Args:
        plan: The plan, over at most a few hundred cells.
        neighbours: Lists the differences between neighbours in the plan's unit, each as pairs
            of a cell and a number of rows. By default `list_neighbours`.

    Raises:
        AssertionError: A claim is not true.

    Example:
        >>> fitplug.testing.check_plan(plan)
    """
    columns = _answer_cells(plan)
    largest = _measure_cells(plan, columns, neighbours or list_neighbours)
    _check_cost(plan, largest)
    _check_room(plan, columns)
    _check_variances(plan, columns)
    _check_charge(plan, max(largest.values()))


def _check_cost(plan: Plan, largest: dict[Cell, int]) -> None:
    """Check the cost against all differences between neighbours."""
    stated, most = plan.strategy.sensitivity_squared, max(largest.values())
    noise = Fraction(plan.noise_std) ** 2
    require(2 * plan.rho_exact * noise == stated, "rho_exact is not |A v|^2 / (2 noise_std^2)")
    require(most <= stated, "the answers of two neighbours differ by more than the plan states")
    loosest = Fraction((1 + plan.overstatement) ** 2 * (1 + _ROUNDING))
    require(stated <= most * loosest, "the cost is overstated by more than the plan says")
    require(plan.overstatement or stated == most, "the cost is overstated")
    require(Fraction(plan.rho) >= plan.rho_exact, "rho is below rho_exact")
    require(Fraction(plan.privacy_cost) ** 2 >= 2 * plan.rho_exact, "privacy_cost is too small")
    names = plan.workload.attributes
    used = tuple(slice(None) if name in names else 0 for name in plan.domain.names)
    profile = np.broadcast_to(plan.profile(), plan.domain.shape)[used]
    for cell, square in largest.items():
        require(
            Fraction(square) / noise <= Fraction(float(profile[cell])),
            f"the profile is below the cost of a person in the cell {cell}",
        )


def _check_room(plan: Plan, columns: dict[Cell, Any]) -> None:
    """Check that nothing overflows if as many rows as there is room for are in one cell."""
    room, size = plan.strategy.max_records, plan.strategy.size
    for cell, column in columns.items():
        is_linear = (answer_cell(plan, cell, room) == room * column).all()
        require(is_linear, f"{room} rows in the cell {cell} do not have {room} times its answers")
        largest = max(map(abs, room * column[:size]), default=0)
        require(largest <= SATURATION, f"answers to {room} rows in the cell {cell} are clamped")


def _check_variances(plan: Plan, columns: dict[Cell, Any]) -> None:
    """Check that estimates are unbiased, and how they transform the noise of each answer."""
    workload, strategy = plan.workload, plan.strategy
    of_answers = []
    for unit in np.eye(strategy.released_size, dtype=np.int64):
        estimates = strategy.make_estimates(unit)
        of_answers.append(np.concatenate([estimates[name].ravel() for name in workload.names]))
    R, A = np.array(of_answers).T, np.array(list(columns.values())).T.astype(float)
    W, targets = workload.matrix(), workload.targets()
    rounding = np.linalg.norm(R, axis=1)[:, None] * np.linalg.norm(A, axis=0)
    is_unbiased = (np.abs(R @ A - W) <= 1e-11 * (rounding + np.abs(W))).all()
    require(is_unbiased, "estimates of noiseless answers are not the queries' counts")
    variances = (R[:, : strategy.size] ** 2).sum(axis=1) * plan.noise_std**2
    stated, of_targets = (
        np.concatenate([by[name].ravel() for name in workload.names])
        for by in (plan.variances, plan.targets)
    )
    require((of_targets == targets).all(), "the plan's targets are not the workload's")
    # The variance of public totals is 0, so only rounding errors of coefficients are left here.
    is_stated = (variances * (1 - _ROUNDING) <= stated + _ROUNDING**2 * targets).all()
    require(is_stated, "an estimate has a larger variance than the plan says")
    require((stated <= plan.scale * targets).all(), "a target is missed")
    tightest = (stated / targets).max()
    require(plan.scale * (1 - _LOOSEST) <= tightest, "no target is reached, so noise is too small")


def _check_charge(plan: Plan, most: int) -> None:
    """Check that the check before a charge sees the same differences between neighbours."""
    measured = check_sensitivity(AnswerPath.in_memory(plan))
    require(measured.is_complete, "the check before a charge does not see all neighbours")
    is_same = measured.largest_squared == most or plan.coverage is not None
    require(is_same, "the check before a charge sees other neighbours")


def check_plan_file(plan: Plan) -> None:
    """Check that a plan that is saved and loaded is the same plan.

    Raises:
        AssertionError: The loaded plan differs from the saved plan.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan.save(Path(folder) / "plan.npz")
        loaded = Plan.load(Path(folder) / "plan.npz")
    loaded.verify()
    require(loaded.digest == plan.digest, "a loaded plan has another digest")
    require(
        type(loaded.strategy.structure) is type(plan.strategy.structure),
        "a loaded plan has another structure",
    )
    for name in ("domain", "unit", "rho_exact", "lower_bound", "noise_std", "scale"):
        are_equal = getattr(loaded, name) == getattr(plan, name)
        require(are_equal, f"a loaded plan has another {name}")
    for name, variances in plan.variances.items():
        are_equal = (loaded.variances[name] == variances).all()
        require(are_equal, f"a loaded plan has other variances of {name}")


def has_solver() -> bool:
    """Return whether cvxpy, with which `check_bound` finds the optimum, is installed."""
    return find_spec("cvxpy") is not None


def check_bound(plan: Plan, neighbours: ListNeighbours | None = None) -> None:
    """Check that the optimum, by the interior-point solver of cvxpy, lies between bound and cost.

    Args:
        plan: The plan, over at most a few dozen cells.
        neighbours: As for `check_plan`.

    Raises:
        AssertionError: The optimum lies outside this range.
        ImportError: cvxpy is not installed.

    Example:
        >>> fitplug.testing.check_bound(plan)
    """
    least = find_least_objective(plan, neighbours or list_neighbours)
    is_proven = plan.lower_bound <= least * (1 + _ACCURACY)
    require(is_proven, "a mechanism costs less than the plan's lower bound")
    if plan.objective.plain:
        is_possible = least <= plan.privacy_cost * (1 + _ACCURACY)
        require(is_possible, "the plan costs less than any mechanism that meets its targets")


def find_least_objective(plan: Plan, neighbours: ListNeighbours = list_neighbours) -> float:
    """Find the least that any mechanism which meets the plan's targets costs, by cvxpy."""
    workload, objective, differences = plan.workload, plan.objective, []
    budgets = np.ones(workload.shape)
    if objective.budgets is not None:
        names = plan.strategy.structure.profile_attributes
        arranged = plan.strategy.structure.arrange_by_cell(objective.budgets)
        ones = [i for i, name in enumerate(workload.attributes) if name not in names]
        budgets = budgets * np.expand_dims(arranged, tuple(ones))
    for difference in neighbours(workload, plan.unit):
        v = np.zeros(workload.shape)
        for cell, times in difference:
            v[cell] += times / np.sqrt(budgets[cell])
        differences.append(v.ravel())
    targets = plan.scale * workload.targets()
    least = find_least_cost(workload.matrix(), targets, np.array(differences), objective.weight)
    return float(np.sqrt(least))


def find_least_cost(
    W: FloatArray, targets: FloatArray, differences: FloatArray, total_error_weight: float = 0.0
) -> float:
    """Find Delta squared of the best Gaussian mechanism, by an interior-point solver.

    Args:
        W: Shape (m, d).
        targets: Variances, shape (m,).
        differences: Those between neighbours, shape (v, d).
        total_error_weight: The weight of the sum of the variances in
            Delta^2 * (max_j variance_j / target_j + weight * sum_j variance_j).

    Raises:
        ImportError: cvxpy is not installed.
    """
    import cvxpy as cp

    # Coordinates of the span of W V: any orthonormal basis of its column space.
    answers = W @ differences.T
    U, s, _ = np.linalg.svd(answers)
    U = U[:, : int((s > 1e-9 * s[0]).sum())]
    Y = cp.Variable((U.shape[1],) * 2, PSD=True)
    alpha = cp.Variable()
    within = [
        cp.sum(cp.multiply(np.outer(v, v), Y)) <= alpha
        for v in np.unique((U.T @ answers).round(12), axis=1).T
    ]
    counted = np.abs(U).max(axis=1) > 1e-9
    variances = [cp.matrix_frac(row, Y) for row in U[counted]]
    # The product of cost and error is least where the error is 1.
    most = 1 - total_error_weight * cp.sum(variances) if total_error_weight else 1
    within += [v <= c * most for v, c in zip(variances, targets[counted], strict=True)]
    problem = cp.Problem(cp.Minimize(alpha), within)
    with warnings.catch_warnings():
        # On some processors the last digits are not reached.
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        problem.solve(solver=cp.CLARABEL)
    require(problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE), f"cvxpy: {problem.status}")
    return float(alpha.value)
