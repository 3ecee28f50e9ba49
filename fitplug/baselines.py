"""Baselines: the variances that the usual mechanisms achieve at the same privacy cost.

Each function takes a workload and a privacy cost Delta, where Delta^2 = 2 rho for one row added
or removed. It returns the variance of every answer, like `Plan.variances`. All mechanisms are
unbiased and add real-valued Gaussian noise that costs exactly Delta. A mechanism with the strategy
matrix A, whose columns are a_i, measures A x + z, where the entries of z have the variance
`max_i |a_i|^2 / Delta^2`. It answers by least squares, which gives
`variance_j = max_i |a_i|^2 / Delta^2 * w_j (A'A)^+ w_j'`. The mechanisms are::

    IP   input_perturbation     A = I
    GM   gaussian               A = W, the noisy answers published as they are
    HM   hierarchical           A = Kronecker product of trees
    CA, wCA-I, wCA-II           A optimal for a weighted total of the variances: matrix_mechanism
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Literal, TypeAlias

import numpy as np

from fitplug.domain import get_codec
from fitplug.errors import BudgetError, DesignError, WorkloadError, suggest_nearest
from fitplug.families import MAX_ENTRIES
from fitplug.numeric import FloatArray, guard_linear_algebra, to_positions
from fitplug.solve import TotalErrorOptimum, minimise_total_error
from fitplug.workload import Factor, Workload, check_coefficients

ByGroup: TypeAlias = Mapping[str, FloatArray]
Weights: TypeAlias = Literal["none", "inverse", "inverse_sqrt", "inverse_squared"]

_POWERS = {"none": 0.0, "inverse": -1.0, "inverse_sqrt": -0.5, "inverse_squared": -2.0}
_TOLERANCE = 1e-6
_MAX_ITERATIONS = 2000


def input_perturbation(workload: Workload, privacy_cost: float) -> ByGroup:
    """Compute the variances of input perturbation (IP).

    It adds independent noise of variance 1 / Delta^2 to every cell of the attributes that queries
    use, so the variance of the query w_j is `|w_j|^2 / Delta^2`.

    Args:
        workload: The query groups.
        privacy_cost: Delta, between 1e-100 and 1e100.

    Returns:
        The variance of each answer; for each group an array of the group's shape.

    Raises:
        BudgetError: The privacy cost is out of range.
        WorkloadError: There are too many queries.

    Example:
        >>> fp.baselines.input_perturbation(workload, privacy_cost=0.5)["total"].shape
        ()
    """
    return _multiply_variances(workload, _square_cost(privacy_cost), _sum_row_squares)


def gaussian(workload: Workload, privacy_cost: float) -> ByGroup:
    """Compute the variances of the Gaussian mechanism (GM).

    It adds independent noise to every answer. All answers, including those of queries that are
    zero, get the same variance, `max_i |column i of W|^2 / Delta^2`: the square of the L2
    sensitivity of W over the square of Delta.

    Args:
        workload: The query groups.
        privacy_cost: Delta, between 1e-100 and 1e100.

    Returns:
        The variance of each answer; for each group an array of the group's shape.

    Raises:
        BudgetError: The privacy cost is out of range.
        WorkloadError: There are too many queries or cells.

    Example:
        >>> fp.baselines.gaussian(workload, privacy_cost=0.5)["total"].shape
        ()
    """
    cost_squared = _square_cost(privacy_cost)
    _check_size("cells", workload.cell_count)
    _check_size("queries", workload.query_count)
    sensitivity = np.zeros(())
    for group in workload.groups:
        factors = {f.attribute: f for f in group.factors}
        squares = np.ones(())
        for name in workload.attributes:
            columns = _sum_column_squares(factors[name]) if name in factors else np.ones(1)
            squares = np.multiply.outer(squares, columns)
        sensitivity = sensitivity + squares
    largest = float(sensitivity.max()) / cost_squared
    return workload.split(np.full(workload.query_count, largest))


def hierarchical(workload: Workload, privacy_cost: float) -> ByGroup:
    """Compute the variances of the hierarchical mechanism (HM).

    It counts the nodes of a tree over every attribute whose cells have an order, and makes the
    counts consistent by least squares. An attribute of Integers, Bins or Dates gets a tree with the
    branching factor b of `choose_branching_factor`: level k counts blocks of b^k neighbouring
    cells, level 0 counts the cells, and the root is not counted (Qardaji, Yang, Li 2013; Hay et al.
    2010). The cells of other attributes are counted one by one. Several attributes are measured by
    the Kronecker product of their trees, which crosses every node of one tree with every node of
    the others. The privacy cost is split evenly between the levels. Every cell is in one node of
    each level, so `|a_i|^2` is the product of the trees' heights.

    Args:
        workload: The query groups.
        privacy_cost: Delta, between 1e-100 and 1e100.

    Returns:
        The variance of each answer; for each group an array of the group's shape.

    Raises:
        BudgetError: The privacy cost is out of range.
        WorkloadError: An attribute or a group is too large.

    Example:
        >>> fp.baselines.hierarchical(workload, privacy_cost=0.5)["total"].shape
        ()
    """
    cost_squared = _square_cost(privacy_cost)
    covariances = {name: _compute_tree_covariance(workload, name) for name in workload.attributes}

    def compute_variances(f: Factor) -> FloatArray:
        _check_size(f"coefficients on {f.attribute}", f.rows * f.size)
        rows = f.matrix()
        return np.asarray(((rows @ covariances[f.attribute]) * rows).sum(axis=1))

    with guard_linear_algebra():
        return _multiply_variances(workload, cost_squared, compute_variances)


def matrix_mechanism(
    workload: Workload, privacy_cost: float, *, weights: Weights = "none"
) -> ByGroup:
    """Compute the variances of the strategy with the least weighted total variance (CA).

    The strategy follows Yuan et al. (2016). Its weighted total is certified to be within a
    relative 1e-6 of the least possible. Single variances are not certified; the total depends on
    them to second order only.

    The paper weights the queries, and thus weights the variances by the squares of these weights.
    The paper's wCA-I is "inverse_squared", which divides the rows by c_j as the authors' code does.
    The paper's wCA-II is "inverse".

    Args:
        workload: The query groups.
        privacy_cost: Delta, between 1e-100 and 1e100.
        weights: The weight of each variance, for a target c_j: "none" for 1, "inverse" for 1 / c_j,
            "inverse_sqrt" for 1 over the square root of c_j, "inverse_squared" for 1 / c_j^2.

    Returns:
        The variance of each answer; for each group an array of the group's shape.

    Raises:
        BudgetError: The privacy cost is out of range.
        WorkloadError: The weights are unknown, or the workload is too large.
        DesignError: The total cannot be certified to 1e-6.

    Example:
        >>> fp.baselines.matrix_mechanism(workload, privacy_cost=0.5)["total"].shape
        ()
    """
    cost_squared = _square_cost(privacy_cost)
    return workload.split(_minimise_total_error(workload, weights).variances / cost_squared)


def total_error_optimum(workload: Workload, weights: Weights = "none") -> tuple[float, float]:
    """Compute the weighted total of the variances of `matrix_mechanism` at privacy cost 1.

    At another privacy cost, both numbers are divided by Delta^2.

    Args:
        workload: The query groups.
        weights: As for `matrix_mechanism`.

    Returns:
        The weighted total, and a certified lower bound on the total of every strategy.

    Raises:
        WorkloadError: The weights are unknown, or the workload is too large.
        DesignError: The total cannot be certified to 1e-6.

    Example:
        >>> total, bound = fp.baselines.total_error_optimum(workload)
        >>> bound <= total
        True
    """
    optimum = _minimise_total_error(workload, weights)
    return optimum.value, optimum.lower_bound


def choose_branching_factor(cells: int) -> int:
    """Choose the branching factor of the tree that the hierarchical mechanism builds.

    This is the rule of Qardaji, Yang, Li (2013). On average over all ranges, an answer without
    consistency adds up (b - 1) h - 2 (b + 1) / 3 nodes, where h is log_b(cells) rounded up. With
    Laplace noise the variance of a node is proportional to h^2; with Gaussian noise it is
    proportional to h. So the smallest b that minimises h ((b - 1) h - 2 (b + 1) / 3) is taken.

    Args:
        cells: The number of cells of the attribute.

    Returns:
        b >= 2. If b >= cells, there is no tree, and only the cells are counted.

    Example:
        >>> fp.baselines.choose_branching_factor(100) >= 2
        True
    """

    def mean_variance(b: int) -> int:
        h = _compute_height(cells, b)
        return h * (3 * (b - 1) * h - 2 * (b + 1))  # times 3, so that ties are exact

    return min(range(2, max(cells, 2) + 1), key=mean_variance)


def _compute_height(cells: int, b: int) -> int:
    """Compute the least h >= 1 with b^h >= cells; in integers, as logarithms miss exact powers."""
    h = 1
    while b**h < cells:
        h += 1
    return h


def _compute_tree_covariance(workload: Workload, name: str) -> FloatArray:
    """Compute the covariance (n, n) of an attribute's cell estimates at privacy cost 1."""
    attribute = workload.domain[name]
    n = attribute.size
    _check_size(f"pairs of cells of {name}", n * n)
    if not get_codec(attribute).is_ordered:
        return np.eye(n)
    b = choose_branching_factor(n)
    h = _compute_height(n, b)
    gram = np.zeros((n, n))
    for level in range(h):
        block = np.arange(n) // b**level
        gram += block[:, None] == block
    with guard_linear_algebra():
        return np.asarray(h * np.linalg.inv(gram), dtype=np.float64)


def _multiply_variances(
    workload: Workload, cost_squared: float, compute_variances: Callable[[Factor], FloatArray]
) -> ByGroup:
    """Multiply the variances of factors, where strategy and groups are Kronecker products.

    compute_variances returns the variances (rows,) of a factor at privacy cost 1.
    """
    _check_size("queries", workload.query_count)
    summed_out = {
        name: compute_variances(Factor(name, "total", workload.domain[name].size))[0]
        for name in workload.attributes
    }
    variances = []
    for group in workload.groups:
        named = {f.attribute for f in group.factors}
        product = np.prod([v for name, v in summed_out.items() if name not in named])
        for f in group.factors:
            # The cells are those of the attributes that some group uses.
            factor_variances = (
                compute_variances(f) if f.attribute in workload.attributes else np.ones(1)
            )
            product = np.multiply.outer(product, factor_variances)
        variances.append(product.ravel())
    return workload.split(np.concatenate(variances) / cost_squared)


def _sum_row_squares(f: Factor) -> FloatArray:
    """Sum the squares of each row of a factor, shape (rows,)."""
    if f.array is not None:
        return np.asarray((f.matrix() ** 2).sum(axis=1))
    first, last = f.intervals().T
    return (last - first + 1).astype(np.float64)


def _sum_column_squares(f: Factor) -> FloatArray:
    """Sum the squares of each column of a factor, shape (n,)."""
    if f.array is not None:
        return np.asarray((f.matrix() ** 2).sum(axis=0))
    first, last = f.intervals().T
    begins = np.bincount(to_positions(first), minlength=f.size + 1)
    ends = np.bincount(to_positions(last + 1), minlength=f.size + 1)
    return np.cumsum(begins - ends)[: f.size].astype(np.float64)


def _minimise_total_error(workload: Workload, weights: str) -> TotalErrorOptimum:
    """Find and certify the strategy of least weighted total variance at privacy cost 1."""
    if weights not in _POWERS:
        raise WorkloadError(
            f"unknown weights {weights!r}. {suggest_nearest(str(weights), _POWERS)}"
        )
    W = _build_dense_matrix(workload)
    with guard_linear_algebra():
        try:
            optimum = minimise_total_error(
                W,
                workload.targets() ** _POWERS[weights],
                tolerance=_TOLERANCE,
                max_iterations=_MAX_ITERATIONS,
            )
        except (np.linalg.LinAlgError, DesignError):
            optimum = None
    if optimum is None or not optimum.gap <= _TOLERANCE:
        raise DesignError(
            "the least total error could not be computed to a relative precision of "
            f"{_TOLERANCE:g}. Use targets of more similar size."
        )
    return optimum


def _build_dense_matrix(workload: Workload) -> FloatArray:
    """Build W (m, d), or raise WorkloadError if it is too large or zero."""
    _check_size("coefficients (queries x cells)", workload.query_count * workload.cell_count)
    W = workload.matrix()
    check_coefficients([W])
    return W


def _square_cost(privacy_cost: float) -> float:
    """Square the privacy cost, or raise BudgetError if it is out of range."""
    real = isinstance(privacy_cost, Real) and not isinstance(privacy_cost, bool)
    if not real or not 1e-100 <= privacy_cost <= 1e100:  # so that its square is a normal float
        raise BudgetError(
            f"privacy_cost must be a number from 1e-100 to 1e100, not {privacy_cost!r}"
        )
    return float(privacy_cost) ** 2


def _check_size(what: str, size: int) -> None:
    """Raise WorkloadError if the workload has more of something than a baseline takes."""
    if size > MAX_ENTRIES:
        raise WorkloadError(
            f"the workload has {size} {what}; the limit is {MAX_ENTRIES}. Use fewer attributes "
            "per table."
        )
