"""Strategies of one's own: a strategy matrix, or the covariance of the noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray, freeze, guard_linear_algebra
from fitplug.workload import read_matrix

_ASYMMETRY = 1e-9
"""The largest difference between an entry of a covariance and its mirror image, relative to the
standard deviations of the two answers, that counts as rounding."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """Linear queries that are answered with Gaussian noise, to be compared with the optimum.

    A strategy is for comparison only: no release can be made with it. `from_matrix` and
    `from_covariance` make one.

    Attributes:
        matrix: A, shape (p, d). The mechanism publishes A x + z, where the entries of z are
            independent and have equal variances, and estimates all queries from it by least
            squares. `fitplug.evaluate` says which cells the columns are.
        name: What summaries and plots call it.
    """

    matrix: FloatArray = field(repr=False)
    name: str = "strategy"

    @classmethod
    def from_matrix(cls, A: Any, *, name: str = "strategy") -> Strategy:
        """Make a strategy whose answers get independent noise of one variance.

        Answers with different variances are stated by rows that are divided by their standard
        deviations. The scale of A as a whole has no meaning.

        Args:
            A: Shape (p, d): an array, a sparse matrix or a linear operator of SciPy. It is held as
                a dense array.
            name: What summaries and plots call it.

        Raises:
            WorkloadError: The matrix is not well formed, too large, or zero.
        """
        matrix = read_matrix("A", A)
        largest = np.abs(matrix).max()
        if not largest:
            raise WorkloadError(
                "the strategy matrix is zero; give a matrix that measures something"
            )
        return cls(freeze(matrix / largest), name)

    @classmethod
    def from_covariance(cls, sigma: Any, basis: Any = None, *, name: str = "strategy") -> Strategy:
        """Make a strategy from the covariance of its noise (the paper's Sigma).

        Args:
            sigma: Shape (k, k), symmetric and positive definite, in squared records.
            basis: B, shape (k, d): the queries that this noise is added to. Without it the noise
                is added to the cells, and k = d. `Plan.sigma()` returns such a pair.
            name: What summaries and plots call it.

        Raises:
            WorkloadError: A matrix is not well formed, or the covariance is not symmetric and
                positive definite.
        """
        covariance = read_matrix("sigma", sigma)
        k = len(covariance)
        if covariance.shape != (k, k):
            raise WorkloadError(
                f"the covariance has the shape {covariance.shape}; give a square matrix"
            )
        B = np.eye(k) if basis is None else read_matrix("basis", basis)
        if len(B) != k:
            raise WorkloadError(
                f"the basis has {len(B)} rows for the noise of {k} answers; give a row for each"
            )
        stds = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        if (stds == 0).any():
            at = int(np.argmin(stds))
            raise WorkloadError(
                f"the covariance has the variance {covariance[at, at]:g} at row {at}; answers "
                "without noise cost too much: give each a positive variance"
            )
        correlations = covariance / np.multiply.outer(stds, stds)
        if not np.allclose(correlations, correlations.T, rtol=0.0, atol=_ASYMMETRY):
            raise WorkloadError("the covariance is not symmetric; give sigma with sigma = sigma.T")
        try:
            factor = cholesky(correlations, lower=True)
        except LinAlgError:
            raise WorkloadError(
                "the covariance is not positive definite, so that some combination of the answers "
                "has no noise; give a basis of fewer queries, or noise to each combination"
            ) from None
        with guard_linear_algebra():
            whitened = solve_triangular(factor, B / stds[:, None], lower=True)
        return cls.from_matrix(whitened, name=name)

    def __repr__(self) -> str:
        rows, cells = self.matrix.shape
        return f"Strategy({self.name!r}: {rows:,} queries over {cells:,} cells)"
