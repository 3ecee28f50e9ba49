"""`fitplug estimate`: it estimates expressions on a release, without the data.

There may be any number of expressions, each alone or in each region of a crosswalk. Their joint
covariance is not formed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fitplug.errors import InputError, WorkloadError
from fitplug.expressions import Expression, Expressions, Runs, list_sums
from fitplug.release import RESULT_COLUMNS, Release, estimate_each, read_combination
from fitplug.workload import check_confidence, quantile
from fitplug_cli.inputs import Crosswalk, NamedExpression, read_crosswalk_of_release
from fitplug_cli.output import err
from fitplug_cli.output.estimate_tables import Estimates

_SECONDS_PER_REPORT = 2.0
"""Seconds before progress is printed for the first time, and between two times."""


class RegionOptions(NamedTuple):
    """The options that name the regions in which each expression is estimated.

    Attributes:
        file: The crosswalk.
        attribute: The attribute whose codes it has; None to find it from the file's columns.
        leaf: Its column of codes; None to find it.
        region: Its column of regions; None to find it.
    """

    file: Path
    attribute: str | None = None
    leaf: str | None = None
    region: str | None = None


def read_region_options(
    file: Path | None, attribute: str | None, leaf: str | None, region: str | None
) -> RegionOptions | None:
    """Check the options of regions.

    Args:
        file: The crosswalk of --by.
        attribute: The attribute of --attribute.
        leaf: The column of --leaf.
        region: The column of --region.

    Returns:
        The options; None if there are none.

    Raises:
        InputError: If columns are named without a file.
    """
    if file is not None:
        return RegionOptions(file, attribute, leaf, region)
    if attribute or leaf or region:
        raise InputError("--attribute, --leaf and --region say what --by has; give --by FILE too")
    return None


def estimate_expressions(
    folder: str | Path,
    expressions: Sequence[NamedExpression],
    confidence: float,
    simultaneous: bool,
    regions: RegionOptions | None = None,
) -> Estimates:
    """Estimate every expression, with regions in every region.

    Args:
        folder: The folder of the release, or the URL of a release in parts.
        expressions: The expressions.
        confidence: The confidence of the intervals.
        simultaneous: Whether all intervals hold together with this confidence.
        regions: The regions, if there are any.

    Returns:
        The estimates, with regions those of the first region first.

    Raises:
        InputError: If the release or the crosswalk cannot be read, or an expression is wrong.
    """
    check_confidence(confidence)
    release = Release.read(folder)
    parser = Expressions(release.plan.workload)
    crosswalk = None
    if regions is not None:
        crosswalk = read_crosswalk_of_release(parser.selector, *regions)
    pairs = [*_pair_with_regions(expressions, crosswalk)]
    terms = _read_expressions(parser, pairs, crosswalk)
    width = quantile(confidence, len(pairs) if simultaneous else 1)
    values, stds, moes, lower, upper = np.full((5, len(pairs)), math.nan)
    approximate = np.zeros(len(pairs), dtype=bool)
    for k, found in enumerate(_report_progress(estimate_each(release, terms), len(pairs))):
        values[k], stds[k], approximate[k] = found.value, found.std, found.approximate
        if not math.isnan(found.value):
            moes[k], (lower[k], upper[k]) = found.find_moe(width), found.find_ends(width)
    return Estimates(
        expressions=[one for _, one in pairs],
        region_column=None if crosswalk is None else _name_region_column(crosswalk),
        regions=[region for region, _ in pairs],
        values=values,
        stds=stds,
        moes=moes,
        lower=lower,
        upper=upper,
        approximate=approximate,
        confidence=confidence,
        simultaneous=simultaneous,
        population=release.population,
    )


def _name_region_column(crosswalk: Crosswalk) -> str:
    """Return the name of the regions' column in the file, unless a column of results has it."""
    taken = ("name", "expression", "approximate", "value", *RESULT_COLUMNS)
    return "region" if crosswalk.column in taken else crosswalk.column


def _pair_with_regions(
    expressions: Sequence[NamedExpression], crosswalk: Crosswalk | None
) -> Iterator[tuple[str, NamedExpression]]:
    for region in [""] if crosswalk is None else crosswalk.regions:
        for one in expressions:
            yield region, one


def _read_expressions(
    parser: Expressions,
    pairs: Iterable[tuple[str, NamedExpression]],
    crosswalk: Crosswalk | None,
) -> Iterator[Expression]:
    """Read each expression, restricted to its region. Raises WorkloadError."""
    for region, one in pairs:
        within: dict[str, Runs] | None = None
        where = ""
        if crosswalk is not None:
            within = {crosswalk.attribute: crosswalk.regions[region]}
            where = f"region of {crosswalk.first[region]} of {crosswalk.file.path}: "
        try:
            found = read_combination(parser, one.text, within)
            if crosswalk is not None:
                _check_has_attribute(parser, found, crosswalk.attribute)
        except WorkloadError as error:
            raise WorkloadError(where + one.explain_error(str(error))) from None
        yield found


def _check_has_attribute(parser: Expressions, found: Expression, attribute: str) -> None:
    """Raise WorkloadError unless a group of the expression has the attribute of the regions."""
    workload = parser.selector.workload
    groups = [workload[name] for terms in list_sums(found) for name in terms]
    if not any(attribute in group.attributes for group in groups):
        suitable = [group.name for group in workload.groups if attribute in group.attributes]
        raise WorkloadError(
            f"none of its groups tells {attribute!r} apart; use one that does: "
            f"{', '.join(map(repr, suitable)) or 'there is none in this release'}"
        )


def _report_progress(found: Iterable[Any], total: int) -> Iterator[Any]:
    """Yield the same items, and print how many there were if it takes long."""
    begun = last = time.monotonic()
    for k, one in enumerate(found):
        now = time.monotonic()
        if now - last > _SECONDS_PER_REPORT:
            err.print(f"{k:,} of {total:,} estimated after {now - begun:.0f} s")
            last = now
        yield one
