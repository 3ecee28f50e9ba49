"""Baselines: what the usual mechanisms achieve at the same privacy cost.

Each takes a workload and a privacy cost Delta (Delta^2 = 2 rho, one record added or removed) and
gives the variance of every answer, per group and of the group's shape, like `Plan.variances`. All
are unbiased and add real-valued Gaussian noise that costs exactly Delta. With a strategy matrix A
they measure A x + z, z of variance max_i |a_i|^2 / Delta^2 (a_i: columns), and answer by least
squares: variance_j = max_i |a_i|^2 / Delta^2 * w_j (A'A)^+ w_j'.

    IP   input_perturbation     A = I
    GM   gaussian               A = W, the noisy answers published as they are
    HM   hierarchical           A = Kronecker product of trees
    CA, wCA-I, wCA-II           A optimal for a weighted total of the variances: matrix_mechanism
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Literal, TypeAlias

import numpy as np

from fitplug.domain import Bins, Dates, Integers, fewer_cells
from fitplug.errors import BudgetError, DesignError, WorkloadError, suggest_nearest
from fitplug.numeric import FloatArray, guard_linear_algebra
from fitplug.optimizer import TotalErrorOptimum, minimise
from fitplug.structure import MAX_ENTRIES, check_coefficients
from fitplug.workload import Factor, Workload

ByGroup: TypeAlias = Mapping[str, FloatArray]
Weights: TypeAlias = Literal["none", "inverse", "inverse_sqrt", "inverse_squared"]

_POWERS = {"none": 0.0, "inverse": -1.0, "inverse_sqrt": -0.5, "inverse_squared": -2.0}
_TOLERANCE = 1e-6
_MAX_ITERATIONS = 2000


def input_perturbation(workload: Workload, privacy_cost: float) -> ByGroup:
    """IP: independent noise of variance 1 / Delta^2 on every cell of the attributes used.

    Variances |w_j|^2 / Delta^2. Raises BudgetError, and WorkloadError if there are too many.
    """
    return _kronecker(workload, _squared(privacy_cost), _row_squares)


def gaussian(workload: Workload, privacy_cost: float) -> ByGroup:
    """GM: independent noise on every query, the same for all, scaled to the L2 sensitivity of W.

    Variances max_i |column i of W|^2 / Delta^2; queries that are zero are noised like the others.
    Raises BudgetError, and WorkloadError if there are too many queries or cells.
    """
    cost_squared = _squared(privacy_cost)
    _check_size("cells", workload.cell_count)
    _check_size("queries", workload.query_count)
    sensitivity = np.zeros(())
    for group in workload.groups:
        own = {f.attribute: f for f in group.factors}
        squares = np.ones(())
        for name in workload.attributes:
            columns = _column_squares(own[name]) if name in own else np.ones(1)
            squares = np.multiply.outer(squares, columns)
        sensitivity = sensitivity + squares
    largest = float(sensitivity.max()) / cost_squared
    return workload.split(np.full(workload.query_count, largest))


def hierarchical(workload: Workload, privacy_cost: float) -> ByGroup:
    """HM: noisy counts in a tree over every ordered attribute, consistent by least squares.

    An attribute of Integers, Bins or Dates gets a tree with the factor of `branching_factor`:
    level k counts blocks of b^k neighbouring cells, down to the cells; the root is not asked
    (Qardaji, Yang, Li 2013; Hay et al. 2010). Categories have no order to build on: their cells
    are counted singly. Several attributes are measured by the Kronecker product of their trees,
    every node of one crossed with every node of the others. The privacy cost is split evenly over
    the levels, of which every cell is in all: |a_i|^2 = product of the trees' heights.

    Raises BudgetError, and WorkloadError if an attribute or a group is too large.
    """
    cost_squared = _squared(privacy_cost)
    covariances = {name: _tree_covariance(workload, name) for name in workload.attributes}

    def variances(f: Factor) -> FloatArray:
        _check_size(f"coefficients on {f.attribute}", f.rows * f.size)
        rows = f.matrix()
        return np.asarray(((rows @ covariances[f.attribute]) * rows).sum(axis=1))

    with guard_linear_algebra():
        return _kronecker(workload, cost_squared, variances)


def matrix_mechanism(
    workload: Workload, privacy_cost: float, *, weights: Weights = "none"
) -> ByGroup:
    """CA: the strategy of least total variance (Yuan et al. 2016), each variance weighted by

    "none": 1.  "inverse": 1 / c_j.  "inverse_sqrt": 1 / sqrt(c_j).  "inverse_squared": 1 / c_j^2,

    where c_j is its target. The paper weights the queries, so the variances by the squares: its
    wCA-I is "inverse_squared" (rows over c_j, as its authors' code has it), its wCA-II "inverse".
    The weighted total is certified to be within 1e-6, relative, of the least possible; single
    variances, on which it depends to second order only, are not.
    Raises BudgetError, WorkloadError, and DesignError if this is not reached.
    """
    cost_squared = _squared(privacy_cost)
    return workload.split(_optimum(workload, weights).variances / cost_squared)


def total_error_optimum(workload: Workload, weights: Weights = "none") -> tuple[float, float]:
    """The weighted total of the variances of `matrix_mechanism` at privacy cost 1, and a certified
    lower bound on that of every strategy. Both go with 1 / Delta^2. Raises like it.
    """
    found = _optimum(workload, weights)
    return found.value, found.lower_bound


def branching_factor(cells: int) -> int:
    """b >= 2 of the tree over so many ordered cells (b >= cells: no tree, the cells alone).

    The rule of Qardaji, Yang, Li (2013): over all ranges, an answer without consistency adds up
    (b - 1) h - 2 (b + 1) / 3 nodes on average, h = ceil(log_b cells). Their nodes have a Laplace
    variance in proportion to h^2; with Gaussian noise it is h, so the smallest b that minimises
    h ((b - 1) h - 2 (b + 1) / 3) is taken.
    """

    def mean_variance(b: int) -> int:
        h = _height(cells, b)
        return h * (3 * (b - 1) * h - 2 * (b + 1))  # times 3, so that ties are exact

    return min(range(2, max(cells, 2) + 1), key=mean_variance)


def _height(cells: int, b: int) -> int:
    """The least h >= 1 with b^h >= cells, in integers: logarithms miss exact powers."""
    h = 1
    while b**h < cells:
        h += 1
    return h


def _tree_covariance(workload: Workload, name: str) -> FloatArray:
    """Covariance (n, n) of an attribute's cell estimates from its tree at privacy cost 1."""
    attribute = workload.domain[name]
    n = attribute.size
    _check_size(f"pairs of cells of {name}", n * n)
    if not isinstance(attribute, Integers | Bins | Dates):
        return np.eye(n)
    b = branching_factor(n)
    h = _height(n, b)
    gram = np.zeros((n, n))
    for level in range(h):
        block = np.arange(n) // b**level
        gram += block[:, None] == block
    with guard_linear_algebra():
        return np.asarray(h * np.linalg.inv(gram), dtype=np.float64)


def _kronecker(
    workload: Workload, cost_squared: float, variances: Callable[[Factor], FloatArray]
) -> ByGroup:
    """Variances where both the strategy and the groups are Kronecker products: the products of
    `variances` (rows,) of each factor at privacy cost 1, over cost_squared.
    """
    _check_size("queries", workload.query_count)
    summed_out = {
        name: variances(Factor(name, "total", workload.domain[name].size))[0]
        for name in workload.attributes
    }
    parts = []
    for group in workload.groups:
        named = {f.attribute for f in group.factors}
        product = np.prod([v for name, v in summed_out.items() if name not in named])
        for f in group.factors:
            # An attribute that no group uses is no part of the cells.
            own = variances(f) if f.attribute in workload.attributes else np.ones(1)
            product = np.multiply.outer(product, own)
        parts.append(product.ravel())
    return workload.split(np.concatenate(parts) / cost_squared)


def _row_squares(f: Factor) -> FloatArray:
    if f.kind == "matrix":
        return np.asarray((f.matrix() ** 2).sum(axis=1))
    first, last = f.intervals().T
    return (last - first + 1).astype(np.float64)


def _column_squares(f: Factor) -> FloatArray:
    if f.kind == "matrix":
        return np.asarray((f.matrix() ** 2).sum(axis=0))
    first, last = f.intervals().T
    opened = np.bincount(first, minlength=f.size + 1)
    closed = np.bincount(last + 1, minlength=f.size + 1)
    return np.cumsum(opened - closed)[: f.size].astype(np.float64)


def _optimum(workload: Workload, weights: str) -> TotalErrorOptimum:
    if weights not in _POWERS:
        raise WorkloadError(
            f"weights = {weights!r} is unknown; {suggest_nearest(str(weights), _POWERS)}"
        )
    W = _dense_matrix(workload)
    with guard_linear_algebra():
        try:
            found = minimise(
                W,
                workload.targets() ** _POWERS[weights],
                tolerance=_TOLERANCE,
                max_iterations=_MAX_ITERATIONS,
            )
        except np.linalg.LinAlgError:
            found = None
    if found is None or not found.gap <= _TOLERANCE:
        raise DesignError(
            f"the least total error could not be certified to {_TOLERANCE:g}; bring targets and "
            "coefficients closer together, or split the workload"
        )
    return found


def _dense_matrix(workload: Workload) -> FloatArray:
    """W, shape (m, d). Raises WorkloadError if it is too large to hold or asks nothing."""
    entries = workload.query_count * workload.cell_count
    if entries > MAX_ENTRIES:
        raise WorkloadError(
            f"the workload has {workload.query_count} queries over {workload.cell_count} cells of "
            f"{', '.join(workload.attributes)}; a dense baseline holds up to {MAX_ENTRIES} "
            "entries: use fewer attributes together, or "
            + fewer_cells(workload.domain, workload.attributes)
        )
    W = workload.matrix()
    check_coefficients([W])
    return W


def _squared(privacy_cost: float) -> float:
    real = isinstance(privacy_cost, Real) and not isinstance(privacy_cost, bool)
    if not real or not 0 < privacy_cost < math.inf:
        raise BudgetError(
            f"privacy_cost = {privacy_cost!r} must be a finite number greater than zero"
        )
    if not 1e-100 <= privacy_cost <= 1e100:  # so that its square is a normal float
        raise BudgetError(f"privacy_cost = {privacy_cost!r} must lie between 1e-100 and 1e100")
    return float(privacy_cost) ** 2


def _check_size(what: str, size: int) -> None:
    if size > MAX_ENTRIES:
        raise WorkloadError(
            f"the workload has {size} {what}; a baseline takes up to {MAX_ENTRIES}: use fewer "
            "attributes together, or fewer cells of them"
        )
