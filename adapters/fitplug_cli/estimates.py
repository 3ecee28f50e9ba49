"""`fitplug estimate`: what expressions come to on a release, without the data.

Any number of them, each by itself or in each region of a crosswalk; their joint covariance is not
formed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import InputError, WorkloadError
from fitplug.expressions import Expressions, Quotient, Runs, Terms
from fitplug.release import RESULT_COLUMNS, Release, estimate_each, read_combination
from fitplug.workload import check_confidence, quantile
from fitplug_cli import crosswalks, show
from fitplug_cli.crosswalks import Crosswalk
from fitplug_cli.expressionfiles import Asked

Array: TypeAlias = npt.NDArray[np.float64]

_PATIENCE = 2.0
"""Seconds before progress is told, and between tellings."""


class Regions(NamedTuple):
    """The file of regions to estimate each expression in, and if they were given, the attribute
    whose codes it has, and its columns of codes and of regions.
    """

    file: Path
    attribute: str | None = None
    leaf: str | None = None
    region: str | None = None


def regions_of(
    file: Path | None, attribute: str | None, leaf: str | None, region: str | None
) -> Regions | None:
    """The regions asked for, if any. Raises InputError for columns of no file."""
    if file is not None:
        return Regions(file, attribute, leaf, region)
    if attribute or leaf or region:
        raise InputError("--attribute, --leaf and --region say what --by has; give --by FILE too")
    return None


@dataclass(frozen=True, eq=False)
class Estimates:
    """What k expressions come to.

    regions (k,): the region of each, if any, and `by`, what these are called. approximate (k,):
    which are ratios. values and stds (k,): nan for ratios whose denominator is too near to zero.
    population: which records they are about; see `Release.population`.
    """

    asked: Sequence[Asked]
    by: str | None
    regions: Sequence[str]
    values: Array
    stds: Array
    approximate: npt.NDArray[np.bool_]
    confidence: float
    simultaneous: bool
    population: str

    @cached_property
    def moes(self) -> Array:
        """Margins of error (k,), each alone or all together."""
        return quantile(self.confidence, len(self.asked) if self.simultaneous else 1) * self.stds

    @property
    def columns(self) -> dict[str, Any]:
        """Columns (k,) of a table: what was asked, then the results. In regions, the name alone, as
        an expression may be long.
        """
        labels: dict[str, Any] = {} if self.by is None else {self.by: list(self.regions)}
        labels["name"] = [one.name for one in self.asked]
        if self.by is None:
            labels["expression"] = [one.text for one in self.asked]
        return labels | {
            "estimate": self.values,
            "std": self.stds,
            "moe": self.moes,
            "lower": self.values - self.moes,
            "upper": self.values + self.moes,
            "confidence": np.full(len(self.asked), self.confidence),
            "approximate": self.approximate,
        }


def estimate(
    folder: Path,
    asked: Sequence[Asked],
    confidence: float,
    simultaneous: bool,
    regions: Regions | None = None,
) -> Estimates:
    """Estimate every expression, or in every region every expression. Raises InputError."""
    check_confidence(confidence)
    release = Release.read(folder)
    expressions = Expressions(release.plan.workload)
    crosswalk = None if regions is None else crosswalks.of_any(expressions.selector, *regions)
    places = [*_in_regions(asked, crosswalk)]
    terms = _read(expressions, places, crosswalk)
    values, stds = np.zeros(len(places)), np.zeros(len(places))
    approximate = np.zeros(len(places), dtype=bool)
    for k, found in enumerate(_told(estimate_each(release, terms), len(places))):
        values[k], stds[k], approximate[k] = found.value, found.std, found.approximate
    return Estimates(
        asked=[one for _, one in places],
        by=None if crosswalk is None else _column(crosswalk),
        regions=[region for region, _ in places],
        values=values,
        stds=stds,
        approximate=approximate,
        confidence=confidence,
        simultaneous=simultaneous,
        population=release.population,
    )


def _column(crosswalk: Crosswalk) -> str:
    """What to call the column of regions: as in the file, unless a result is called so."""
    taken = ("name", "expression", "approximate", "value", *RESULT_COLUMNS)
    return "region" if crosswalk.column in taken else crosswalk.column


def _in_regions(asked: Sequence[Asked], crosswalk: Crosswalk | None) -> Iterator[tuple[str, Asked]]:
    for region in [""] if crosswalk is None else crosswalk.regions:
        for one in asked:
            yield region, one


def _read(
    expressions: Expressions, places: Iterable[tuple[str, Asked]], crosswalk: Crosswalk | None
) -> Iterator[Terms | Quotient[Terms]]:
    for region, one in places:
        within: dict[str, Runs] | None = None
        where = ""
        if crosswalk is not None:
            within = {crosswalk.attribute: crosswalk.regions[region]}
            where = f"region of {crosswalk.first[region]} of {crosswalk.file.path}: "
        try:
            found = read_combination(expressions, one.text, within)
            if crosswalk is not None:
                _check_apart(expressions, found, crosswalk.attribute)
        except WorkloadError as error:
            raise WorkloadError(where + one.told(str(error))) from None
        yield found


def _check_apart(expressions: Expressions, found: Terms | Quotient[Terms], attribute: str) -> None:
    parts = (found.numerator, found.denominator) if isinstance(found, Quotient) else (found,)
    workload = expressions.selector.workload
    groups = [workload[name] for part in parts for name in part]
    if not any(attribute in group.attributes for group in groups):
        telling = [group.name for group in workload.groups if attribute in group.attributes]
        raise WorkloadError(
            f"none of its groups tells {attribute!r} apart; use one that does: "
            f"{', '.join(map(repr, telling)) or 'there is none in this release'}"
        )


def _told(found: Iterable[Any], total: int) -> Iterator[Any]:
    """The same, telling people how far it is if it takes long."""
    begun = last = time.monotonic()
    for k, one in enumerate(found):
        now = time.monotonic()
        if now - last > _PATIENCE:
            show.err.print(f"{k:,} of {total:,} estimated after {now - begun:.0f} s")
            last = now
        yield one
