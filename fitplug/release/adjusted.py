"""Adjusted tables: without negative counts, or of whole numbers, for showing. They are biased.

Noise makes small counts negative at times. Tables without negative counts that all agree with one
histogram x >= 0 are found by generalised least squares, min |(y - A x) / sigma|^2: the noise of the
answers y is independent and of one variance, so this is the least squares of their true
covariance. What is held at zero pulls the counts beside it up, so the estimates are no longer
right on average, and by how much depends on the unknown counts. That is why they have no std: the
error would be a bias that nobody knows as well as a spread. Statistics are for the release itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from fitplug.errors import FitplugError, WorkloadError
from fitplug.expressions import DenseTerms, Quotient, parse
from fitplug.files import ArrowTable, Columns
from fitplug.mechanism import dense_strategy
from fitplug.numeric import AnyArray, FloatArray
from fitplug.release import tables as exports
from fitplug.release.least_squares import (
    NoSolutionError,
    nearest_integers,
    nonnegative_least_squares,
)
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.workload import QueryGroup, Workload

MOST_ENTRIES = 10_000_000
"""Cells times answers; a problem of this size takes about a minute."""


@dataclass(frozen=True, eq=False)
class Adjusted:
    """Tables of one histogram without negative counts: for showing, not for statistics.

    release: the unbiased release they were made of, which is the one for statistics.
    method: "nonnegative", or "integers" if the counts are whole numbers too.
    totals: the public numbers that are kept.
    histogram: a histogram that all tables are of, over the cells of the workload's attributes;
        where the queries do not tell cells apart, one of many.

    There are no variances and no intervals: see `fitplug.release.adjusted`.
    """

    release: NoisyAnswers
    method: Literal["nonnegative", "integers"]
    totals: Mapping[str, float]
    histogram: AnyArray
    biased: ClassVar[bool] = True

    @cached_property
    def estimates(self) -> Mapping[str, AnyArray]:
        """The tables, each of its group's shape; int64 where whole numbers are counted whole."""
        workload = self.release.plan.workload
        return MappingProxyType(
            {group.name: _answers(workload, group, self.histogram) for group in workload.groups}
        )

    def to_arrow(self, name: str) -> ArrowTable:
        """A group as a table: attributes and estimate; its metadata says that it is biased.

        Raises ImportError without pyarrow, and KeyError.
        """
        return exports.arrow(*self._table(name))

    def to_pandas(self, name: str) -> exports.PandasFrame:
        """`to_arrow` for pandas, with the metadata as its `attrs`."""
        return exports.pandas_frame(*self._table(name))

    def to_polars(self, name: str) -> exports.PolarsFrame:
        """`to_arrow` for Polars, without the metadata."""
        return exports.polars_frame(self._table(name)[0])

    def _table(self, name: str) -> tuple[Columns, dict[str, str]]:
        plan = self.release.plan
        table = exports.labels(plan.domain, plan.workload[name])
        said = {
            "fitplug.group": name,
            "fitplug.biased": "true",
            "fitplug.adjustment": self.method,
            "fitplug.plan_digest": plan.digest,
            "fitplug.rho": repr(self.release.rho),
            "fitplug.units": "estimate: records",
        }
        return table | {"estimate": self.estimates[name].ravel()}, said

    def __repr__(self) -> str:
        return f"Adjusted({self.method}, biased, of {self.release!r})"


def nonnegative(release: NoisyAnswers, totals: Mapping[str, float]) -> Adjusted:
    """See `Release.nonnegative`."""
    E, kept = _totals(release.plan.workload, totals)
    histogram = _solved(release, E, kept).reshape(release.plan.workload.shape)
    return _made(release, "nonnegative", totals, histogram)


def integers(release: NoisyAnswers, totals: Mapping[str, int]) -> Adjusted:
    """See `Release.integers`."""
    for name, value in totals.items():
        if isinstance(value, (float, np.floating)) and not float(value).is_integer():
            raise WorkloadError(f"total {name!r} = {value!r} is no whole number")
    workload = release.plan.workload
    E, kept = _totals(workload, totals)
    real = _solved(release, E, kept)
    try:
        whole = nearest_integers(_measured(release), real, E, kept)
    except NoSolutionError:
        raise WorkloadError(
            f"no counts rounded up or down have the totals {dict(totals)}; give fewer totals"
        ) from None
    return _made(release, "integers", totals, whole.reshape(workload.shape))


def _made(
    release: NoisyAnswers,
    method: Literal["nonnegative", "integers"],
    totals: Mapping[str, float],
    histogram: AnyArray,
) -> Adjusted:
    histogram.setflags(write=False)
    return Adjusted(release, method, MappingProxyType(dict(totals)), histogram)


def _solved(release: NoisyAnswers, E: FloatArray, kept: FloatArray) -> FloatArray:
    plan = release.plan
    cells, answers = plan.workload.cell_count, plan.strategy.size
    if cells * answers > MOST_ENTRIES:
        raise WorkloadError(
            f"{answers} answers over {cells} cells are too many to adjust together, at most "
            f"{MOST_ENTRIES:,} answers times cells; show the release as it is, or release tables "
            "of fewer attributes by a plan of their own"
        )
    try:
        return nonnegative_least_squares(
            _measured(release), release.answers / plan.noise_std, E, kept
        )
    except NoSolutionError:
        raise WorkloadError(
            "no histogram without negative counts has all the totals given; check that they "
            "agree with each other"
        ) from None
    except RuntimeError:  # SciPy's solvers, out of iterations
        raise FitplugError(
            "the least squares without negative counts did not end; adjust a release of fewer "
            "answers"
        ) from None


def _measured(release: NoisyAnswers) -> FloatArray:
    """A / sigma (n, d), whose answers have noise of variance one."""
    return dense_strategy(release.plan.strategy) / release.plan.noise_std


def _totals(workload: Workload, totals: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
    """The rows (k, d) of the totals over the cells, and their values (k,)."""
    rows = []
    for name, value in totals.items():
        number = isinstance(value, (int, float, np.integer, np.floating))
        if not number or isinstance(value, bool) or not np.isfinite(value):
            raise WorkloadError(f"total {name!r} = {value!r} is not a finite number")
        rows.append(_over_cells(workload, _asked(workload, name)).ravel())
    shape = (len(rows), workload.cell_count)
    return np.array(rows).reshape(shape), np.array(list(totals.values()), dtype=np.float64)


def _asked(workload: Workload, name: str) -> DenseTerms:
    if name in workload.positions:
        shape = workload[name].shape
        if workload[name].size > 1:
            raise WorkloadError(
                f"total {name!r} has {workload[name].size} answers; name one by an expression"
            )
        return {name: np.ones(shape)}
    asked = parse(workload, name)
    if isinstance(asked, Quotient):
        raise WorkloadError(f"total {name!r} is a ratio; give a count")
    return asked


def _over_cells(workload: Workload, coefficients: DenseTerms) -> FloatArray:
    """What each cell counts in a sum of answers, of the workload's shape."""
    total = np.zeros(workload.shape)
    for name, weights in coefficients.items():
        group, values = workload[name], np.asarray(weights)
        for axis, factor in enumerate(group.factors):
            summed = factor.kind == "total"
            values = values if summed else factor.adjoint(values, axis)
        names = [f.attribute for f in group.factors]
        out = tuple(i for i, f in enumerate(group.factors) if f.kind == "total")
        values = values.sum(axis=out)
        held = [n for n in names if n in group.attributes]
        order = [n for n in workload.attributes if n in held]
        shape = [workload.domain[n].size if n in held else 1 for n in workload.attributes]
        total += values.transpose([held.index(n) for n in order]).reshape(shape)
    return total


def _answers(workload: Workload, group: QueryGroup, histogram: AnyArray) -> AnyArray:
    """A group's answers on a histogram, of its shape."""
    used = workload.attributes
    out = tuple(i for i, name in enumerate(used) if name not in group.attributes)
    values = histogram.sum(axis=out)
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
