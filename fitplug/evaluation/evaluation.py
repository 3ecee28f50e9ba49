"""Evaluations: a given strategy compared with the certified optimum, as numbers, text and plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from fitplug.display import (
    BLUE,
    LINE_COLOURS,
    MOST_BARS,
    ORANGE,
    Figure,
    format_down,
    format_up,
    label_powers,
    open_figure,
    separate_thousands,
    shorten,
)
from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray, freeze, guard_linear_algebra
from fitplug.plan import Plan
from fitplug.workload import ONE_RECORD, Unit, Workload, read_matrix

_ASYMMETRY = 1e-9
"""The largest difference between an entry of a covariance and its mirror image, relative to the
standard deviations of the two answers, that counts as rounding."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """Linear queries that get Gaussian noise, and from which all answers are estimated.

    A strategy is for comparison with the optimum (`fitplug.evaluate`) and cannot be released. Make
    a strategy with `from_matrix` or `from_covariance`.

    Attributes:
        matrix: A, shape (p, d). The mechanism publishes A x + z, where x has the counts of the
            cells and the entries of z are independent and have equal variances. It estimates all
            queries from A x + z by least squares. `fitplug.evaluate` describes the d columns.
        name: The name of the strategy in summaries and plots.

    Example:
        >>> fp.Strategy.from_matrix(np.eye(8), name="cells")
        Strategy('cells': 8 queries over 8 cells)
    """

    matrix: FloatArray = field(repr=False)
    name: str = "strategy"

    @classmethod
    def from_matrix(cls, A: Any, *, name: str = "strategy") -> Strategy:
        """Make a strategy whose answers get independent noise of equal variance.

        If answers have different variances, divide each row of A by the standard deviation of its
        answer. Multiplying all rows by the same number has no effect.

        Args:
            A: Shape (p, d): an array, or a SciPy sparse matrix or linear operator, which becomes a
                dense array.
            name: The name of the strategy in summaries and plots.

        Raises:
            WorkloadError: The matrix is invalid, too large, or zero.
        """
        matrix = read_matrix("A", A)
        largest = np.abs(matrix).max()
        if not largest:
            raise WorkloadError(
                "the strategy matrix is zero. Give at least one non-zero coefficient."
            )
        return cls(freeze(matrix / largest), name)

    @classmethod
    def from_covariance(cls, sigma: Any, basis: Any = None, *, name: str = "strategy") -> Strategy:
        """Make a strategy from the covariance of its noise (the paper's Sigma).

        Args:
            sigma: Shape (k, k), symmetric and positive definite, in squared counts.
            basis: B, shape (k, d): the queries that this noise is added to. Without a basis, the
                noise is added to the cells, and k = d. `Plan.sigma()` returns this pair for a plan.
            name: The name of the strategy in summaries and plots.

        Raises:
            WorkloadError: A matrix is invalid, or the covariance is not symmetric and positive
                definite.

        Example:
            >>> fp.Strategy.from_covariance(np.eye(8), name="cells")
            Strategy('cells': 8 queries over 8 cells)
        """
        covariance = read_matrix("sigma", sigma)
        k = len(covariance)
        if covariance.shape != (k, k):
            raise WorkloadError(
                f"the covariance must be a square matrix, not of shape {covariance.shape}"
            )
        B = np.eye(k) if basis is None else read_matrix("basis", basis)
        if len(B) != k:
            raise WorkloadError(f"'basis' must have one row per answer ({k}), not {len(B)}")
        stds = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        if (stds == 0).any():
            at = int(np.argmin(stds))
            raise WorkloadError(
                f"the variance at row {at} of the covariance must be positive, not "
                f"{covariance[at, at]:g}"
            )
        correlations = covariance / np.multiply.outer(stds, stds)
        if not np.allclose(correlations, correlations.T, rtol=0.0, atol=_ASYMMETRY):
            raise WorkloadError("the covariance is not symmetric. Give sigma with sigma = sigma.T.")
        try:
            factor = cholesky(correlations, lower=True)
        except LinAlgError:
            raise WorkloadError(
                "the covariance is not positive definite, so some combination of the answers has "
                "no noise. Give a matrix 'basis' with fewer rows, or add noise to every "
                "combination."
            ) from None
        with guard_linear_algebra():
            whitened = solve_triangular(factor, B / stds[:, None], lower=True)
        return cls.from_matrix(whitened, name=name)

    def __repr__(self) -> str:
        rows, cells = self.matrix.shape
        return f"Strategy({self.name!r}: {rows:,} queries over {cells:,} cells)"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The cost of a strategy whose noise is scaled so that it just meets every target.

    `lower_bound` and `rho_lower_bound` are certified. All other numbers are computed in floating
    point, without a certificate.

    Attributes:
        strategy: The strategy.
        plan: The plan that the strategy is compared with. The certified bound comes from this plan.
        privacy_cost: Delta, the privacy cost of the strategy.
        variances: For each group, an array of the group's shape: the variance of each query's
            least-squares answer.
        tightest_query: The query whose target is met exactly, so that it fixes the scale of the
            noise: the name of the query's group and its indices there.
        costliest_neighbours: The cell in which adding or removing a row costs the most; if rows are
            replaced, the old and the new cell of the costliest replacement.

    Example:
        >>> cells = fp.Strategy.from_matrix(np.eye(8), name="cells")
        >>> evaluation = fp.evaluate(workload, cells, unit=fp.AddRemove(), plan=plan)
        >>> evaluation.rho >= evaluation.rho_lower_bound
        True
    """

    strategy: Strategy
    plan: Plan = field(repr=False)
    privacy_cost: float
    variances: Mapping[str, FloatArray] = field(repr=False)
    tightest_query: tuple[str, tuple[int, ...]]
    costliest_neighbours: str

    @property
    def workload(self) -> Workload:
        """The queries and their targets."""
        return self.plan.workload

    @property
    def unit(self) -> Unit:
        """The unit of privacy."""
        return self.plan.unit

    @property
    def rho(self) -> float:
        """The privacy cost in rho of zCDP: Delta^2 / 2."""
        return self.privacy_cost**2 / 2

    @property
    def lower_bound(self) -> float:
        """The certified lower bound on Delta, for any Gaussian noise that meets the targets."""
        return self.plan.lower_bound

    @property
    def rho_lower_bound(self) -> float:
        """The certified lower bound on rho, for any Gaussian noise that meets the targets."""
        return self.plan.rho_lower_bound

    @property
    def ratio(self) -> float:
        """The strategy's Delta divided by the certified lower bound on Delta.

        At equal rho, the strategy's standard deviations are this many times the best possible
        standard deviations. The square of this number is the strategy's rho divided by the lower
        bound on rho.
        """
        return self.privacy_cost / self.lower_bound

    def summary(self) -> str:
        """Return a text table that compares the strategy with the optimum.

        Returns:
            The text. For each group, the table shows the strategy's largest standard deviation and
            its largest ratio of a standard deviation to the target. The last column shows the
            plan's largest standard deviation after the plan's noise is scaled to the strategy's
            privacy cost.
        """
        rows, cells = self.strategy.matrix.shape
        name, at = self.tightest_query
        lines = [] if self.unit == ONE_RECORD else [f"unit          {self.unit}"]
        lines += [
            f"strategy      {self.strategy.name}: {rows:,} queries over {cells:,} cells",
            f"privacy cost  rho = {self.rho:.6g}, not certified",
            f"optimum       rho >= {format_down(self.rho_lower_bound, 6)}, proven; the plan has "
            f"{format_up(self.plan.rho, 6)}",
            f"ratio         {self.ratio**2:.4f} in rho, {self.ratio:.4f} in standard deviations",
            f"tightest      query {list(at)} of group {name!r}",
            f"costliest     {self.costliest_neighbours}",
            "",
        ]
        table = [("group", "queries", "target", "achieved std", "% of target", "optimum's std")]
        slack = self.plan.privacy_cost / self.privacy_cost
        for group, target in zip(
            self.workload.groups, self.workload.groups.describe_targets(), strict=True
        ):
            variances = self.variances[group.name]
            targets = self.plan.scale * self.plan.targets[group.name]
            ratio = float(np.sqrt((variances / targets).max()))
            best = slack * float(np.sqrt(self.plan.variances[group.name].max()))
            std = float(np.sqrt(variances.max()))
            table.append(
                (group.name, f"{group.size:,}", target, f"{std:.4g}", f"{ratio:.1%}", f"{best:.4g}")
            )
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        lines += [
            "",
            "optimum's std: the plan's std at the strategy's privacy cost",
        ]
        return "\n".join(lines)

    def plot(self, *others: Evaluation) -> Figure:
        """Draw the rho of one or several strategies, and the accuracy of each in each group.

        Args:
            others: Evaluations of other strategies, for the same workload and compared with the
                same plan.

        Returns:
            A matplotlib Figure. The left panel shows the rho of the certified bound and of each
            strategy. The right panel shows the largest standard deviation in each group, if each
            strategy spends the rho of the bound.

        Raises:
            ImportError: matplotlib is not installed.
            WorkloadError: An evaluation was made with another plan, or there are too many
                evaluations.
        """
        shown = [self, *others]
        if any(evaluation.plan is not self.plan for evaluation in others):
            raise WorkloadError(
                "the evaluations belong to different plans. Evaluate all strategies with the same "
                "plan=."
            )
        if len(shown) >= len(LINE_COLOURS):
            raise WorkloadError(
                f"cannot plot {len(shown)} evaluations together; the limit is "
                f"{len(LINE_COLOURS) - 1}. Plot fewer."
            )
        return _plot_evaluations(sorted(shown, key=lambda evaluation: evaluation.rho))


def _plot_evaluations(shown: list[Evaluation]) -> Figure:
    """Draw evaluations of the same plan; see `Evaluation.plot`."""
    plan = shown[0].plan
    names = ["certified optimum", *(evaluation.strategy.name for evaluation in shown)]
    costs = [plan.rho_lower_bound, *(evaluation.rho for evaluation in shown)]
    # Of the optimum, the plan is drawn, as if its noise were scaled down to the bound.
    stds = [_list_largest_stds(plan.variances, plan.privacy_cost / plan.lower_bound)]
    stds += [_list_largest_stds(evaluation.variances, evaluation.ratio) for evaluation in shown]
    groups = [name for name, _ in zip(plan.workload.names, range(MOST_BARS), strict=False)]
    colours = [ORANGE, BLUE, *LINE_COLOURS[2:]]
    size = 10.0, 1.6 + max(0.32 * len(names), 0.4 * len(groups))
    with open_figure(*size, panels=2) as (figure, (left, right)):
        heights = np.arange(len(names))[::-1]
        left.barh(heights, costs, color=colours[: len(names)], height=0.62)
        for height, cost in zip(heights, costs, strict=True):
            left.annotate(
                f"{cost:.4g}", (cost, height), (4, 0), textcoords="offset points", va="center"
            )
        left.set_yticks(heights, [shorten(name) for name in names])
        left.set(xlim=(0, 1.2 * max(costs)), xlabel="rho at which every target holds")
        places = np.arange(len(groups))[::-1]
        for i, (name, largest, colour) in enumerate(zip(names, stds, colours, strict=False)):
            at = places + 0.5 * ((i + 0.5) / len(names) - 0.5) * -1
            right.plot(
                [largest[g] for g in groups], at, "o", color=colour, ms=5, label=shorten(name)
            )
        right.set_yticks(places, [shorten(name) for name in groups])
        units = "the quantity's own units" if _asks_sums(plan) else "rows"
        right.set(xscale="log", xlabel=f"largest std ({units}), at the least rho")
        separate_thousands(right.xaxis)
        label_powers(right)
    return figure


def _list_largest_stds(variances: Mapping[str, FloatArray], factor: float) -> dict[str, float]:
    """List the largest standard deviation of each group times a factor."""
    return {name: factor * float(np.sqrt(of_group.max())) for name, of_group in variances.items()}


def _asks_sums(plan: Plan) -> bool:
    """Return whether some group asks for sums of a measure."""
    return any(quantity != "rows" for quantity in plan.workload.groups.list_quantities())
