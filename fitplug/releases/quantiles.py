"""Quantiles of ordered attributes from released counts, with intervals that cover.

With F_j the number of rows up to cell j, N the number of all rows with a value and T_j = F_j - q N,
the q-quantile is the first cell j whose T_j is at least zero. Each T_j is a linear combination of
released answers, so the estimate has an exact standard deviation s_j. The interval begins at the
first cell with T_j >= -z s_j, and ends after the last one with T_j <= z s_j. Its lower end fails
only if T_j < -z s_j at the quantile, and its upper end only if T > z s at the cell before, so it
covers with at least the confidence of z, even at ties. docs/theory/post-processing.md has the
proof.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from fitplug.domain import Attribute, Bins, get_codec
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.expressions import CumulativeBox, Expressions, Runs, Terms
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.releases.linear_combinations import (
    add_terms,
    estimate_stds,
    read_combination,
)
from fitplug.releases.noisy_answers import NoisyAnswers, list_parts
from fitplug.workload import check_confidence, find_quantile

_QUOTED = r"\"[^\"]*\"|'[^']*'"
_PART = re.compile(rf"(?:\[(?:\[[^\]]*\]|{_QUOTED}|[^\[\]\"'])*\]|{_QUOTED}|[^,\[\"'])+")

_MOST_STDS_AT_ONCE = 32
"""The most cells whose s_j are computed together in the search for an end of the interval."""


@dataclass(frozen=True)
class Quantile:
    """A quantile of an ordered attribute, with an interval for its exact value.

    Example:
        >>> release.quantile("age", 0.5)  # doctest: +SKIP
        Quantile(0.5: 38, 95% interval 37 to 39)

    Attributes:
        q: The quantile's probability, such as 0.5 for the median.
        value: The estimate, a value of the attribute. For bins, a number within a bin, computed as
            if rows were spread evenly in the bin. None if the estimated number of rows is not above
            zero.
        low: The least value of the interval.
        high: The largest value of the interval; for bins, the upper edge, which is not included.
        confidence: The probability that the interval covers the exact quantile.
        cells: The indices of the first and the last cell of the interval.
    """

    q: float
    value: Any
    low: Any
    high: Any
    confidence: float
    cells: tuple[int, int]

    def __repr__(self) -> str:
        interval = f"{100 * self.confidence:g}% interval {self.low} to {self.high}"
        return f"Quantile({self.q:g}: {self.value}, {interval})"


class QuantileExpression(NamedTuple):
    """A quantile as people write it.

    Attributes:
        asked: The expression of the rows.
        q: Which quantile.
        of: The attribute; None for the only ordered one.
    """

    asked: str
    q: float
    of: str | None


def parse_quantile(text: str) -> QuantileExpression | None:
    """Read "median(EXPRESSION)" or "quantile(EXPRESSION, Q)", which may end in ", ATTRIBUTE".

    Returns:
        The parts; None for any other text.

    Raises:
        WorkloadError: The parts are not those of a quantile.
    """
    match = re.fullmatch(r"\s*(median|quantile)\s*\((.*)\)\s*", text, re.DOTALL)
    if match is None:
        return None
    # Commas in brackets and quotes are part of the expression.
    parts = _PART.findall(match[2])
    asked, *rest = (part.strip() for part in parts)
    q = 0.5
    if match[1] == "quantile":
        try:
            q = float(rest.pop(0))
        except (IndexError, ValueError):
            raise WorkloadError(
                f"{text!r} names no quantile. Write, for example, quantile({asked}, 0.9)."
            ) from None
    if len(rest) > 1:
        raise WorkloadError(f"{text!r} has too many arguments. Name at most one attribute.")
    return QuantileExpression(asked, q, rest[0].strip("\"'") if rest else None)


def estimate_quantiles(
    release: NoisyAnswers,
    asked: str,
    quantiles: Sequence[float],
    *,
    of: str | None,
    within: Mapping[str, Runs] | None,
    confidence: float,
    simultaneous: bool,
    reader: Expressions | None = None,
) -> list[Quantile]:
    """Estimate quantiles of the rows that an expression counts: see `Release.quantile`.

    Args:
        release: The release.
        asked: A sum of counts, as an expression.
        quantiles: Numbers between 0 and 1.
        of: The attribute; None for the only ordered one.
        within: Cells, by attribute, to which all rows that are counted must belong.
        confidence: The confidence of the intervals.
        simultaneous: Whether all intervals cover simultaneously with this confidence.
        reader: The reader of expressions of the workload, to keep what it looked up.
    """
    for q in quantiles:
        if isinstance(q, bool) or not isinstance(q, (int, float, np.floating)) or not 0 < q < 1:
            raise WorkloadError(f"A quantile must be a number between 0 and 1, not {q!r}.")
    check_confidence(confidence)
    share = len(quantiles) if simultaneous else 1  # Bonferroni's inequality
    z = find_quantile(1 - (1 - confidence) / share)
    reader = Expressions(release.plan.workload) if reader is None else reader
    counts = _CumulativeCounts(release, reader, asked, of, dict(within or {}))
    return [counts.find(float(q), z, confidence) for q in quantiles]


class _CumulativeCounts:
    """The estimates F_j of how many rows lie up to cell j, of the rows that an expression counts.

    Attributes:
        cuts: The cells j up to which the groups can count, (k,), ascending.
        values: The estimates (k,).
    """

    def __init__(
        self,
        release: NoisyAnswers,
        reader: Expressions,
        asked: str,
        of: str | None,
        within: dict[str, Runs],
    ) -> None:
        whole = _read_whole(reader, asked, within)
        name = _find_attribute(release, whole, of)
        self._release, self._name = release, name
        self._attribute = release.plan.domain[name]
        ends = _list_ends(release, whole, name)
        outer = within.get(name, [(0, get_codec(self._attribute).value_count)])
        if len(outer) > 1:
            raise WorkloadError(
                f"Quantiles of {name!r} need a selection of adjacent values. Select every value "
                "from the first to the last."
            )
        ((self._first, stop),) = outer
        self._reader, self._asked, self._within = reader, asked, within
        ends = ends[(ends >= self._first) & (ends < stop)]
        refusal = WorkloadError(
            f"{asked!r} does not give the counts below each value of {name!r}. Use a query group "
            "that lists these values or their prefixes."
        )
        try:
            boxes = reader.read_cumulative(asked, {**within, name: outer}, name)
        except WorkloadError:  # the selection, or the rows of a group, have no such sum
            raise refusal from None
        values = _accumulate_values(release, boxes)[ends]
        self.cuts, self.values = ends[~np.isnan(values)], values[~np.isnan(values)]
        if not len(self.cuts):
            raise refusal
        self._upper = _accumulate_stds(release, boxes)[self.cuts]
        self._is_nested = all(box.is_nested for summands in boxes.values() for box in summands)
        self._total = self._read(len(self.cuts) - 1)

    def _read(self, k: int) -> Terms:
        """Read the combination that counts up to a cut."""
        cells = [(self._first, int(self.cuts[k]) + 1)]
        return _read_sum(self._reader, self._asked, {**self._within, self._name: cells})

    def find(self, q: float, z: float, confidence: float) -> Quantile:
        """Find a quantile and its interval by z standard deviations."""
        sums = self.values - q * self.values[-1]
        total_std = estimate_stds(self._release, [self._total])[0]
        upper = self._upper + q * total_std  # s_j is at most the sum of both stds
        cuts, last = np.arange(len(self.cuts)), len(self.cuts) - 1
        low = self._search(q, z, sums, upper.copy(), cuts)
        high = self._search(q, z, -sums, upper.copy(), cuts[::-1])
        # With few rows no cell may be left. Then every cell is possible.
        first_cut = last if low is None else low
        last_cut = 0 if high is None else min(high + 1, last)
        if low is None or first_cut > last_cut:
            first_cut, last_cut = 0, last
        begin = self._first if not first_cut else int(self.cuts[first_cut - 1]) + 1
        end = int(self.cuts[last_cut])
        low_value, high_value = _name_ends(self._attribute, begin, end)
        return Quantile(
            q, self._interpolate(sums, q), low_value, high_value, confidence, (begin, end)
        )

    def _search(
        self, q: float, z: float, sums: FloatArray, upper: FloatArray, cuts: IntArray
    ) -> int | None:
        """Find the first cut whose sum is at least -z s_j.

        Args:
            q: The quantile.
            z: The number of standard deviations.
            sums: The sums (k,).
            upper: Upper bounds on s_j (k,), which this method tightens in place.
            cuts: The indices of the cuts, in the order of the search.
        """
        at_once = 1
        while len(cuts := cuts[sums[cuts] >= -z * upper[cuts]]):
            chunk, cuts = cuts[:at_once], cuts[at_once:]
            stds = estimate_stds(
                self._release,
                [add_terms([self._read(k), self._total], [1.0, -q]) for k in chunk.tolist()],
            )
            right = np.flatnonzero(sums[chunk] >= -z * stds)
            if len(right):
                return int(chunk[right[0]])
            if self._is_nested:  # s_k is at most s_j plus the stds of the answers between
                between = np.abs(self._upper[cuts] - self._upper[chunk[-1]])
                bounds = (stds[-1] + between) * (1 + 1e-9)
                upper[cuts] = np.minimum(upper[cuts], bounds)
            else:
                at_once = min(2 * at_once, _MOST_STDS_AT_ONCE)
        return None

    def _interpolate(self, sums: FloatArray, q: float) -> Any:
        """Return the value where the monotone regression of the sums crosses zero."""
        monotone: AnyArray = isotonic_regression(sums).x
        crossed = np.flatnonzero(monotone >= 0)
        if self.values[-1] <= 0 or not len(crossed):
            return None
        k = int(crossed[0])
        begin = self._first if not k else int(self.cuts[k - 1]) + 1
        low, high = _name_ends(self._attribute, begin, int(self.cuts[k]))
        if not isinstance(self._attribute, Bins):
            return high if begin < int(self.cuts[k]) else low
        below = -q * self.values[-1] if not k else float(monotone[k - 1])
        share = -below / (float(monotone[k]) - below)
        return low + (high - low) * min(max(share, 0.0), 1.0)


def _accumulate_values(
    release: NoisyAnswers, boxes: Mapping[str, Sequence[CumulativeBox]]
) -> FloatArray:
    """Compute the estimates F_j, shape (cells,); nan where the groups cannot count."""
    total = np.zeros(())
    for name, summands in boxes.items():
        along = [np.zeros(box.factors[box.axis].count) for box in summands]
        for part in list_parts(release, name):
            # Only parts that hold answers of some sum are read.
            inside = [box.keep_range(part.axis, part.start, part.stop) for box in summands]
            estimates = part.read() if any(inside) else None
            for box, in_part, sums in zip(summands, inside, along, strict=True):
                if in_part is None or estimates is None:
                    continue
                rows = box.factors[box.axis].positions
                is_divided = part.axis == box.axis
                at = (rows >= part.start) & (rows < part.stop) if is_divided else slice(None)
                sums[at] += in_part.add_up(in_part.take(estimates), box.axis)
        for box, sums in zip(summands, along, strict=True):
            total = total + box.accumulate(sums)
    return total


def _accumulate_stds(
    release: NoisyAnswers, boxes: Mapping[str, Sequence[CumulativeBox]]
) -> FloatArray:
    """Bound the std of each F_j by the sum of the stds of all its answers, shape (cells,)."""
    total = np.zeros(())
    for name, summands in boxes.items():
        for box in summands:
            along = box.bound_stds(release.variances[name], box.axis)
            total = total + box.accumulate(along, absolute=True)
    return total


def _read_sum(reader: Expressions, asked: str, within: Mapping[str, Runs]) -> Terms:
    """Read a sum of counts.

    Raises:
        WorkloadError: It is not a sum but, for example, a ratio, or it cannot be read.
    """
    expression = read_combination(reader, asked, within)
    if not isinstance(expression, Mapping):
        raise WorkloadError(f"Quantiles need counts, but {asked!r} is a ratio.")
    return expression


def _read_whole(reader: Expressions, asked: str, within: Mapping[str, Runs]) -> Terms:
    """Read a sum over all rows, or over rows with a value if the groups count only those."""
    domain = reader.selector.workload.domain
    valued = {
        name: [(0, get_codec(domain[name]).value_count)]
        for name in domain.names
        if get_codec(domain[name]).is_ordered and domain[name].other is not None
    }
    try:
        return _read_sum(reader, asked, within)
    except WorkloadError:
        if not valued:
            raise
    return _read_sum(reader, asked, {**valued, **within})


def _find_attribute(release: NoisyAnswers, terms: Terms, of: str | None) -> str:
    """Find the attribute whose quantiles are asked for.

    Raises:
        WorkloadError: No ordered attribute is in all groups, or several are and `of` names none.
    """
    domain, groups = release.plan.domain, [release.plan.workload[name] for name in terms]
    ordered = [
        name
        for name in domain.names
        if get_codec(domain[name]).is_ordered
        and all(any(f.attribute == name and f.rows > 1 for f in g.factors) for g in groups)
    ]
    if of is not None:
        if of not in ordered:
            raise WorkloadError(f"{of!r} has no quantiles. {suggest_nearest(of, ordered)}")
        return of
    if len(ordered) != 1:
        if not ordered:
            raise WorkloadError(
                "Quantiles need a query group that lists values in order, such as ages"
            )
        raise WorkloadError(
            f"Several attributes have quantiles: {', '.join(map(repr, ordered))}. Name one, as in "
            "median(GROUP, NAME) or of=NAME."
        )
    return ordered[0]


def _list_ends(release: NoisyAnswers, terms: Terms, attribute: str) -> IntArray:
    """List the cells up to which the rows of every group may count, in order."""
    domain = release.plan.domain
    ends = np.arange(get_codec(domain[attribute]).value_count)
    for name in terms:
        (factor,) = [f for f in release.plan.workload[name].factors if f.attribute == attribute]
        if factor.array is not None:
            raise WorkloadError(
                f"Quantiles of {attribute!r} need its values, prefixes or ranges, but {name!r} "
                "uses a matrix"
            )
        if factor.kind not in ("identity", "prefix", "all_ranges"):
            first, last = factor.intervals().T
            ends = np.intersect1d(ends, np.union1d(last, first - 1))
    return ends


def _name_ends(attribute: Attribute, first: int, last: int) -> tuple[Any, Any]:
    """Return the least and the largest value of a run of cells."""
    if isinstance(attribute, Bins):
        return attribute.edges[first], attribute.edges[last + 1]
    values = attribute.values
    return values[first], values[last]
