"""Measurements for mbi (private-pgm), which fits a graphical model and draws synthetic rows.

mbi minimises the sum of |(Q mu - y) / std|^2 / 2 over measurements y of marginals mu, which is the
negative logarithm of a Gaussian likelihood if the noise of all entries of y is independent. The
noise of estimates is not, so what is handed over are the noisy answers of the integer strategy:
each block measures one table, and the noise of all its answers is independent and has one standard
deviation. Answers and queries are divided by it. docs/howto/synthetic.md says what this leaves out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitplug.domain import get_shape, list_measures
from fitplug.errors import WorkloadError
from fitplug.families import list_measured_tables
from fitplug.files import import_library
from fitplug.numeric import AnyArray, FloatArray
from fitplug.plan import Plan
from fitplug.releases import Release
from fitplug.workload import Factor, Workload

if TYPE_CHECKING:
    import mbi

_MOST_ENTRIES = 10**6
"""The most entries of a query's matrix that is searched for a sum that counts everybody."""


class MbiMeasurements(NamedTuple):
    """The inputs from which mbi estimates a model.

    Attributes:
        domain: The attributes that queries use, with the labels of their cells.
        measurements: The noisy answers that the plan measures, as mbi measurements for sets of
            attributes. The noise of all entries is independent and has standard deviation 1.
        total: The number of rows, to pass to mbi as `known_total`.
    """

    domain: mbi.Domain
    measurements: list[mbi.LinearMeasurement]
    total: float


@dataclass(frozen=True, eq=False)
class TableQuery:
    """A linear query of a table: a Kronecker product of matrices times its counts.

    Attributes:
        matrices: A_1 to A_k, whose numbers of columns multiply to the number of cells.
        norm_squared: The square of the largest singular value of the query, or a bound on it.
        multiples: The factors of the rows of the product, shape (rows,); None for 1.
    """

    matrices: tuple[FloatArray, ...]
    norm_squared: float
    multiples: FloatArray | None = None

    def __call__(self, marginal: Any) -> Any:
        """Answer the query from an mbi.Factor, shape (rows,)."""
        # These are operations of NumPy arrays and of JAX arrays, so no library is imported. Each
        # step takes the first axis to the end, and after the last one all are in order again.
        counts = marginal.datavector()
        for matrix in self.matrices:
            counts = (matrix @ counts.reshape(matrix.shape[1], -1)).T.reshape(-1)
        return counts if self.multiples is None else counts * self.multiples

    def op_norm_sq(self) -> float:
        """Return `norm_squared`, by which mbi chooses the lengths of its steps.

        Without it mbi iterates from a table of ones, which no contrast sees.
        """
        return self.norm_squared


class TableMeasurement(NamedTuple):
    """A measurement of a table, with noise of standard deviation one.

    Attributes:
        attributes: The attributes of the table, whose cells are in C order.
        values: The noisy values, shape (rows,).
        query: The query that they answer.
    """

    attributes: tuple[str, ...]
    values: FloatArray
    query: TableQuery


def to_mbi(release: Release, *, total: float | None = None) -> MbiMeasurements:
    """Make measurements for mbi (private-pgm), which draws synthetic rows from a model.

    The measurements are the strategy's noisy answers. Their noise is independent, so mbi's loss
    function is the Gaussian likelihood of this release. See the page "Draw synthetic data" in the
    documentation.

    Args:
        release: The release.
        total: The number of rows, if it is publicly known; if None, it is estimated.

    Returns:
        The domain, the measurements and the number of rows.

    Raises:
        ImportError: mbi is not installed.
        WorkloadError: The queries use a measure; or `total` is not given and no group counts all
            rows; or the unit of privacy has public totals other than the number of all rows.
    """
    tables = list_measurements(release)
    known_total = _check_estimate(release) if total is None else _check_total(total)
    library = import_library("mbi")
    workload = release.plan.workload
    names = workload.attributes
    labels = tuple(workload.domain[name].labels for name in names)
    return MbiMeasurements(
        domain=library.Domain(names, get_shape(workload.domain, names), labels),
        measurements=[
            library.LinearMeasurement(table.values, table.attributes, stddev=1.0, query=table.query)
            for table in tables
        ],
        total=known_total,
    )


def list_measurements(release: Release) -> list[TableMeasurement]:
    """List what was measured of each table.

    Raises:
        WorkloadError: A query uses a measure, the unit of privacy has public totals of several
            groups of rows, or a matrix has too many entries.
    """
    check_plan(release.plan, counts_everybody=False)
    std, answers = release.noise_std, np.asarray(release.answers)
    norms: dict[int, float] = {}
    measurements = []
    for table in list_measured_tables(release.plan.strategy):
        split, last = table.matrices[:-1], table.matrices[-1] / std
        for matrix in split:
            if id(matrix) not in norms:
                norms[id(matrix)] = _square_norm(matrix)
        norm = math.prod(norms[id(matrix)] for matrix in split) * _square_norm(last)
        values = answers[table.answers].astype(np.float64) / std
        if table.multiples is not None:
            norm *= float(table.multiples.max(initial=1.0)) ** 2
        query = TableQuery((*split, last), norm, table.multiples)
        measurements.append(TableMeasurement(table.attributes, values, query))
    return measurements


def _square_norm(matrix: FloatArray) -> float:
    """Compute the square of the largest singular value, 0 for a matrix without rows."""
    return float(np.linalg.norm(matrix, 2)) ** 2 if matrix.size else 0.0


def check_plan(plan: Plan, *, counts_everybody: bool = True) -> None:
    """Check that releases of a plan have synthetic rows.

    Args:
        plan: The plan.
        counts_everybody: Whether a query must count all rows.

    Raises:
        WorkloadError: A query uses a measure, the unit of privacy has public totals of several
            groups of rows, or no query counts all rows.
    """
    for name in list_measures(plan.domain, plan.workload.attributes):
        raise WorkloadError(f"synthetic rows cannot have the measure {name!r}. Use fp.Bins.")
    if plan.strategy.structure.public_attributes:
        raise WorkloadError(
            f"mbi does not support the unit of privacy {plan.unit}. Design the plan for "
            "fp.ReplaceOne() or fp.AddRemove()."
        )
    is_public = plan.strategy.structure.public_attributes is not None
    if counts_everybody and not is_public and _count_everybody(plan.workload) is None:
        raise WorkloadError(
            "synthetic rows need the number of all rows. Give total=, or add fp.total to the "
            "workload."
        )


def _check_total(total: float) -> float:
    """Raise WorkloadError unless a number of rows is positive and finite."""
    is_number = isinstance(total, (int, float, np.integer, np.floating))
    if not is_number or isinstance(total, bool) or not 0 < total < math.inf:
        raise WorkloadError(f"total = {total!r} must be a positive number of rows")
    return float(total)


def find_total(release: Release) -> float:
    """Find the number of rows: a public one, or else the estimate.

    Raises:
        WorkloadError: No group counts everybody.
    """
    check_plan(release.plan)
    if release.public_totals is not None:
        return float(release.public_totals.sum())
    return float(release.estimate(_count_everybody(release.plan.workload) or {}).value)


def _check_estimate(release: Release) -> float:
    """Find the number of rows, or raise WorkloadError if the estimate is not positive."""
    estimate = find_total(release)
    if estimate <= 0:
        raise WorkloadError(
            f"the estimated number of rows must be above 0, not {estimate:.6g}. Give total= if the "
            "number is public."
        )
    return estimate


def _count_everybody(workload: Workload) -> dict[str, AnyArray] | None:
    """Find coefficients of a group's answers whose sum counts each row once.

    Any group will do, as all estimates come from one reconstruction.
    """
    for group in sorted(workload.groups, key=lambda group: group.size):
        weights = [sums for sums in map(_sum_cells, group.factors) if sums is not None]
        if len(weights) == len(group.factors):
            product: AnyArray = np.ones(())
            for sums in weights:
                product = np.multiply.outer(product, sums)
            return {group.name: product}
    return None


def _sum_cells(factor: Factor) -> FloatArray | None:
    """Find weights of a factor's rows whose sum is one in each cell; None if there are none."""
    if factor.array is not None:
        if factor.array.size > _MOST_ENTRIES:
            return None
        weights = np.linalg.lstsq(factor.array.T, np.ones(factor.size), rcond=None)[0]
        counts = np.abs(factor.array.T @ weights - 1).max() <= 1e-12
        return np.asarray(weights) if counts else None
    if factor.kind == "identity":
        return np.ones(factor.size)
    first, last = factor.intervals().T
    whole = np.flatnonzero((first == 0) & (last == factor.size - 1))
    if len(whole):
        return np.asarray(np.arange(factor.rows) == whole[0], dtype=np.float64)
    order = np.argsort(first)
    ends = np.concatenate([[0], last[order] + 1])
    divides = np.array_equal(first[order], ends[:-1]) and ends[-1] == factor.size
    return np.ones(factor.rows) if divides else None
