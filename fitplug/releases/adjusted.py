"""Adjusted tables: without negative counts, or of integers, for showing. They are biased.

Noise makes small counts negative at times, and sums of measures less or more than so many records
can have. Tables without negative counts that all agree with one
histogram x >= 0 are found by generalised least squares, min |(y - A x) / sigma|^2. The noise of the
answers y is independent and of equal variance, so this is the least squares of their true
covariance. A count raised to zero pulls the counts next to it up, so the estimates are no
longer right on average, and by how much depends on the unknown counts. That is why adjusted tables
have no standard deviations: nobody knows their bias. Statistics are for the release itself.
docs/theory/post-processing.md has the proofs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from fitplug.domain import list_measures
from fitplug.errors import FitplugError, WorkloadError
from fitplug.expressions import DenseTerms, Quotient, parse
from fitplug.families import build_dense_strategy
from fitplug.files import ArrowTable, Columns
from fitplug.numeric import AnyArray, FloatArray, freeze
from fitplug.releases import tables as exports
from fitplug.releases.least_squares import (
    NoSolutionError,
    round_to_integers,
    solve_nonnegative,
)
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.stepwise_adjustment import adjust_stepwise, find_finest
from fitplug.workload import QueryGroup, Workload

MOST_ENTRIES = 10_000_000
"""The largest number of cells times answers; a problem of this size takes about a minute."""


@dataclass(frozen=True, eq=False)
class DisplayTables:
    """Tables of one nonnegative histogram: for display, not for statistics.

    The tables are biased, so they have no variances and no intervals.

    Attributes:
        release: The unbiased release that the tables were made from; use it for statistics.
        method: "nonnegative", or "integers" if the counts are integers too.
        totals: The public numbers that the tables keep.
        histogram: The histogram of all tables, with an axis for each attribute of the workload.
            Where the queries do not distinguish cells, other histograms fit as well.
        by_steps: Whether the release is large, so that the histogram was made from the total down
            (`fitplug.releases.stepwise_adjustment`) instead of by least squares over all cells.
        biased: True.

    Example:
        >>> shown = release.integers()
        >>> shown.method
        'integers'
    """

    release: NoisyAnswers
    method: Literal["nonnegative", "integers"]
    totals: Mapping[str, float]
    histogram: AnyArray
    by_steps: bool = False
    biased: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze(self.histogram)

    @cached_property
    def estimates(self) -> Mapping[str, AnyArray]:
        """The tables by group, of the group's shape; int64 if histogram and queries are integer."""
        workload = self.release.plan.workload
        return MappingProxyType(
            {group.name: _answer(workload, group, self.histogram) for group in workload.groups}
        )

    def to_arrow(self, name: str) -> ArrowTable:
        """Make an Arrow table of a group: its attributes and the estimate, a row for each answer.

        The metadata say that the table is biased.

        Args:
            name: The group.

        Raises:
            ImportError: pyarrow is not installed.
            KeyError: There is no such group.
            WorkloadError: An attribute has the name of a result column.
        """
        return exports.make_arrow(*self._make_table(name))

    def to_pandas(self, name: str) -> exports.PandasFrame:
        """Make the table of `to_arrow` as a pandas DataFrame, with the metadata as `attrs`."""
        return exports.make_pandas(*self._make_table(name))

    def to_polars(self, name: str) -> exports.PolarsFrame:
        """Make the table of `to_arrow` as a Polars DataFrame, without the metadata."""
        return exports.make_polars(self._make_table(name)[0])

    def _make_table(self, name: str) -> tuple[Columns, dict[str, str]]:
        """Make the columns of a group's table, and its metadata."""
        plan = self.release.plan
        labels = exports.label_rows(plan.domain, plan.workload[name])
        metadata = {
            "fitplug.group": name,
            "fitplug.biased": "true",
            "fitplug.adjustment": f"{self.method}, by steps" if self.by_steps else self.method,
            "fitplug.plan_digest": plan.digest,
            "fitplug.rho": repr(self.release.rho),
            "fitplug.units": f"estimate: {plan.workload[name].quantity}",
        }
        return labels | {"estimate": self.estimates[name].ravel()}, metadata

    def __repr__(self) -> str:
        return f"DisplayTables({self.method}, biased, of {self.release!r})"


def make_nonnegative(release: NoisyAnswers, totals: Mapping[str, float]) -> DisplayTables:
    """Make tables without negative counts: see `Release.nonnegative`."""
    _check_unit(release)
    workload = release.plan.workload
    if _is_large(release):
        return _adjust_stepwise(release, "nonnegative", totals)
    E, values = _read_totals(workload, totals)
    histogram = _solve(release, E, values).reshape(workload.shape)
    return DisplayTables(release, "nonnegative", MappingProxyType(dict(totals)), histogram)


def make_integers(release: NoisyAnswers, totals: Mapping[str, int]) -> DisplayTables:
    """Make tables of integers without negative counts: see `Release.integers`."""
    _check_unit(release)
    measures = list_measures(release.plan.domain, release.plan.workload.attributes)
    if measures:
        raise WorkloadError(
            f"integer tables are not available with sums of {measures[0]}, because a row is "
            "divided between two cells of a measure. Use nonnegative()."
        )
    for name, value in totals.items():
        if isinstance(value, (float, np.floating)) and not float(value).is_integer():
            raise WorkloadError(f"total {name!r} = {value!r} is not an integer")
    workload = release.plan.workload
    if _is_large(release):
        return _adjust_stepwise(release, "integers", totals)
    E, values = _read_totals(workload, totals)
    real = _solve(release, E, values)
    try:
        rounded = round_to_integers(_scale_strategy(release), real, E, values)
    except NoSolutionError:
        raise WorkloadError(
            f"no rounded counts have the totals {dict(totals)}. Give fewer totals."
        ) from None
    histogram = rounded.reshape(workload.shape)
    return DisplayTables(release, "integers", MappingProxyType(dict(totals)), histogram)


def _check_unit(release: NoisyAnswers) -> None:
    """Raise WorkloadError where totals are public, which least squares here does not know."""
    if release.plan.structure.public_attributes is not None:
        raise WorkloadError(
            "nonnegative tables are not available for plans with public totals "
            f"({release.plan.unit}). Use the unbiased estimates."
        )


def _is_large(release: NoisyAnswers) -> bool:
    """Return whether least squares over all cells would take too long."""
    return release.plan.workload.cell_count * release.plan.strategy.size > MOST_ENTRIES


def _adjust_stepwise(
    release: NoisyAnswers, method: Literal["nonnegative", "integers"], totals: Mapping[str, float]
) -> DisplayTables:
    """Adjust a large release from the total down. Raises WorkloadError."""
    workload = release.plan.workload
    finest = find_finest(workload)
    if finest is None:
        raise WorkloadError(
            f"{release.plan.strategy.size} answers over {workload.cell_count} cells are too many "
            f"to adjust together (at most {MOST_ENTRIES:,} answers times cells), and no group "
            "lists all cells, which the adjustment of large releases needs (with a measure: two "
            "groups, of the counts and the sums of the same cells). Show the unbiased estimates, "
            "or release tables of fewer attributes with a separate plan."
        )
    for name in totals:
        whole = name in workload.positions and workload[name].size == 1
        if not whole or workload[name].attributes or len(totals) > 1:
            raise WorkloadError(
                f"a release this large cannot be adjusted to the total {name!r}. Give only the "
                "number of all rows, by the name of its group."
            )
    _check_numbers(totals)
    histogram = adjust_stepwise(
        release, finest, next(iter(totals.values()), None), integers=method == "integers"
    )
    return DisplayTables(release, method, MappingProxyType(dict(totals)), histogram, by_steps=True)


def _solve(release: NoisyAnswers, E: FloatArray, values: FloatArray) -> FloatArray:
    """Compute the histogram (d,) without negative counts that has the totals E x = values."""
    plan = release.plan
    try:
        scaled = np.asarray(release.answers) / plan.noise_std
        return solve_nonnegative(_scale_strategy(release), scaled, E, values)
    except NoSolutionError:
        raise WorkloadError(
            "no nonnegative histogram has all the given totals. Check that they agree with each "
            "other."
        ) from None
    except RuntimeError:  # SciPy's solvers, out of iterations
        raise FitplugError(
            "nonnegative least squares did not converge. Adjust a release with fewer answers."
        ) from None


def _scale_strategy(release: NoisyAnswers) -> FloatArray:
    """Compute A / sigma (n, d), whose answers have noise of variance one."""
    return build_dense_strategy(release.plan.strategy) / release.plan.noise_std


def _read_totals(workload: Workload, totals: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients (k, d) of the totals over the cells, and their values (k,)."""
    _check_numbers(totals)
    rows = [_count_cells(workload, _read_total(workload, name)).ravel() for name in totals]
    shape = (len(rows), workload.cell_count)
    return np.array(rows).reshape(shape), np.array(list(totals.values()), dtype=np.float64)


def _check_numbers(totals: Mapping[str, float]) -> None:
    """Raise WorkloadError unless all totals are finite numbers."""
    for name, value in totals.items():
        is_number = isinstance(value, (int, float, np.integer, np.floating))
        if not is_number or isinstance(value, bool) or not np.isfinite(value):
            raise WorkloadError(f"total {name!r} = {value!r} is not a finite number")


def _read_total(workload: Workload, name: str) -> DenseTerms:
    """Read which sum of answers a total is: a group of one answer, or an expression."""
    if name in workload.positions:
        shape = workload[name].shape
        if workload[name].size > 1:
            raise WorkloadError(
                f"total {name!r} has {workload[name].size} answers. Select one with an expression."
            )
        return {name: np.ones(shape)}
    expression = parse(workload, name)
    if isinstance(expression, Quotient):
        raise WorkloadError(f"total {name!r} is a ratio. Give a count.")
    return expression


def _count_cells(workload: Workload, coefficients: DenseTerms) -> FloatArray:
    """Compute how often a sum of answers counts each cell, of the workload's shape."""
    counted = np.zeros(workload.shape)
    for name, weights in coefficients.items():
        group, values = workload[name], np.asarray(weights)
        for axis, factor in enumerate(group.factors):
            if factor.kind != "total":
                values = factor.adjoint(values, axis)
        values = values.sum(axis=_find_totals(group))
        names = [f.attribute for f in group.factors if f.attribute in group.attributes]
        order = [n for n in workload.attributes if n in names]
        shape = [workload.domain[n].size if n in names else 1 for n in workload.attributes]
        counted += values.transpose([names.index(n) for n in order]).reshape(shape)
    return counted


def _find_totals(group: QueryGroup) -> tuple[int, ...]:
    """Return the axes of a group that its factors sum out."""
    return tuple(i for i, factor in enumerate(group.factors) if factor.kind == "total")


def _answer(workload: Workload, group: QueryGroup, histogram: AnyArray) -> AnyArray:
    """Compute a group's answers on a histogram, of the group's shape."""
    used = workload.attributes
    summed_out = tuple(i for i, name in enumerate(used) if name not in group.attributes)
    values = histogram.sum(axis=summed_out)
    left = [name for name in used if name in group.attributes]
    values = values.transpose([left.index(name) for name in group.attributes])
    for axis, factor in enumerate(group.factors):
        if factor.kind == "total":
            values = np.expand_dims(values, axis)
        else:
            values = factor.apply(values, axis)
    arrays = [f.array for f in group.factors if f.array is not None]
    if histogram.dtype.kind == "i" and all((array == np.rint(array)).all() for array in arrays):
        values = np.rint(values).astype(np.int64)
    return np.asarray(values)
