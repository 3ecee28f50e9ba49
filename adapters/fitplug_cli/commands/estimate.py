"""`fitplug estimate`: expressions of released numbers, overall or by region.

The joint covariance of the estimates is never formed, so there may be any number of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fitplug.errors import WorkloadError
from fitplug.expressions import Expression, Expressions, Runs, list_sums
from fitplug.releases import (
    MEASURES,
    RESULT_COLUMNS,
    QuantileExpression,
    Release,
    estimate_quantiles,
    estimate_read,
    find_ends,
    find_moe,
    parse_quantile,
    read_combination,
)
from fitplug.workload import check_confidence, find_quantile, list_measure_rules
from fitplug_cli.inputs import (
    NamedExpression,
    RegionOptions,
    Regions,
    collect_expressions,
    find_regions,
    read_region_options,
)
from fitplug_cli.options import ConfidenceOption, QuietOption
from fitplug_cli.render import err, set_up_output
from fitplug_cli.render.estimate_tables import (
    Estimates,
    check_estimates_target,
    print_estimates,
    print_estimates_as_json,
    write_estimates,
)

_SECONDS_PER_REPORT = 2.0
"""Seconds between progress messages."""


def estimate(
    folder: Annotated[
        str, typer.Argument(help="Folder of a release, or its URL.", metavar="RELEASE")
    ],
    expressions: Annotated[
        list[str] | None,
        typer.Argument(
            help='For example "pyramid[SEX=1, AGEP<=17] + total", "a / b" or "median(ages)".',
            metavar="EXPRESSION",
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="CSV file with the columns name and expression, or text file with lines such as "
            "name: expression.",
        ),
    ] = None,
    confidence: ConfidenceOption = 0.95,
    simultaneous: Annotated[
        bool,
        typer.Option(
            "--simultaneous", help="Make all intervals hold together with this confidence."
        ),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="Estimate for each value of an attribute, each node of a level, or each region of "
            "a CSV or Parquet file with codes and regions.",
            metavar="NAME|FILE",
        ),
    ] = None,
    attribute: Annotated[
        str | None,
        typer.Option(
            "--attribute",
            help="Attribute of the codes in the --by file, if no column is named after it.",
        ),
    ] = None,
    leaf: Annotated[
        str | None, typer.Option("--leaf", help="Column with the codes in the --by file.")
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="Column with the regions in the --by file.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write a CSV or Parquet file instead of printing."),
    ] = None,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe",
            help="In a CSV, put an apostrophe before text that looks like a formula.",
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead, with all digits.")
    ] = False,
) -> None:
    """Estimate sums, differences and ratios of released numbers. No data is read."""
    set_up_output(quiet=quiet, as_json=as_json)
    check_estimates_target(output, spreadsheet_safe=spreadsheet_safe)
    named = collect_expressions(expressions or [], table)
    regions = read_region_options(by, attribute, leaf, region)
    results = estimate_expressions(folder, named, confidence, simultaneous, regions)
    if output is not None:
        write_estimates(output, results, spreadsheet_safe=spreadsheet_safe)
    if as_json:
        print_estimates_as_json(results)
    elif output is None:
        print_estimates(results)


def estimate_expressions(
    folder: str | Path,
    expressions: Sequence[NamedExpression],
    confidence: float,
    simultaneous: bool,
    options: RegionOptions | None = None,
) -> Estimates:
    """Estimate every expression, in every region if there are regions.

    Args:
        folder: The folder of the release, or the URL of a release in parts.
        expressions: The expressions.
        confidence: The confidence of the intervals.
        simultaneous: Whether all intervals hold jointly at this confidence.
        options: How to find the regions, if there are any.

    Returns:
        The estimates, region by region.

    Raises:
        InputError: If the release or the regions cannot be read, or an expression is wrong.
    """
    check_confidence(confidence)
    release = Release.load(folder)
    parser = Expressions(release.plan.workload)
    regions = None if options is None else find_regions(parser.selector, options)
    pairs = [*product([""] if regions is None else regions.cells, expressions)]
    share = len(pairs) if simultaneous else 1
    results = np.full((len(MEASURES), len(pairs)), math.nan)
    approximate = np.zeros(len(pairs), dtype=bool)
    sums = []
    for k, (region, named) in enumerate(pairs):
        wanted = parse_quantile(named.text)
        if wanted is None:
            sums.append(k)
            continue
        within = None if regions is None else {regions.attribute: regions.cells[region]}
        each = 1 - (1 - confidence) / share  # Bonferroni's inequality
        results[:, k] = _estimate_quantile(release, parser, named, wanted, within, each)
    terms = _read_expressions(parser, [pairs[k] for k in sums], regions)
    width = find_quantile(confidence, share)
    estimates = _report_progress(estimate_read(release, terms), len(sums))
    for k, estimate in zip(sums, estimates, strict=True):
        results[:2, k], approximate[k] = (estimate.value, estimate.std), estimate.approximate
        if not math.isnan(estimate.value):
            results[2:, k] = find_moe(estimate, width), *find_ends(estimate, width)
    return Estimates(
        expressions=[expression for _, expression in pairs],
        region_column=None if regions is None else _name_region_column(regions),
        regions=[region for region, _ in pairs],
        results=dict(zip(MEASURES, results, strict=True)),
        approximate=approximate,
        confidence=confidence,
        simultaneous=simultaneous,
        population=release.population,
        is_of_all_rows=_counts_all_rows(release),
    )


def _estimate_quantile(
    release: Release,
    parser: Expressions,
    named: NamedExpression,
    wanted: QuantileExpression,
    within: dict[str, Runs] | None,
    confidence: float,
) -> list[float]:
    """Estimate a quantile; returns the numbers of MEASURES, of which the std is nan."""
    try:
        (found,) = estimate_quantiles(
            release,
            wanted.asked,
            [wanted.q],
            of=wanted.of,
            within=within,
            confidence=confidence,
            simultaneous=False,
            reader=parser,
        )
    except WorkloadError as error:
        raise WorkloadError(named.explain_error(str(error))) from None
    if isinstance(found.low, str):
        raise WorkloadError(
            f"{named.name!r} is a date, but `fitplug estimate` gives numbers only. Use "
            "release.quantile in Python."
        )
    value = math.nan if found.value is None else float(found.value)
    moe = max(value - found.low, found.high - value)
    return [value, math.nan, moe, float(found.low), float(found.high)]


def _counts_all_rows(release: Release) -> bool:
    """Return whether a release counted every row once and divided no values."""
    if release.limited != "declared" or release.rows is not None or release.outside:
        return False
    return not list_measure_rules(release.plan.workload)


def _name_region_column(regions: Regions) -> str:
    """Return the name of the regions' column, or "region" if a column of results has it."""
    taken = ("name", "expression", "approximate", "value", *RESULT_COLUMNS)
    return "region" if regions.column in taken else regions.column


def _read_expressions(
    parser: Expressions,
    pairs: Iterable[tuple[str, NamedExpression]],
    regions: Regions | None,
) -> Iterator[Expression]:
    """Read each expression, restricted to its region. Raises WorkloadError."""
    for region, named in pairs:
        within: dict[str, Runs] | None = None
        where = ""
        if regions is not None:
            within = {regions.attribute: regions.cells[region]}
            where = f"{regions.origins[region]}: "
        try:
            expression = read_combination(parser, named.text, within)
        except WorkloadError as error:
            raise WorkloadError(where + named.explain_error(str(error))) from None
        if regions is not None:
            _check_has_attribute(parser, named, expression, regions.attribute)
        yield expression


def _check_has_attribute(
    parser: Expressions, named: NamedExpression, expression: Expression, attribute: str
) -> None:
    """Raise WorkloadError unless a group of the expression has the regions' attribute."""
    workload = parser.selector.workload
    groups = [workload[name] for terms in list_sums(expression) for name in terms]
    if any(attribute in group.attributes for group in groups):
        return
    suitable = [group.name for group in workload.groups if attribute in group.attributes]
    if suitable:
        error = (
            f"expression {named.text!r}: none of its groups has the attribute {attribute!r}. Use a "
            f"group that does: {', '.join(map(repr, suitable))}"
        )
        raise WorkloadError(named.explain_error(error))
    others = dict.fromkeys(name for group in workload.groups for name in group.attributes)
    known = ", ".join(map(repr, others))
    fix = f"Use --by with one of: {known}" if known else "Remove --by."
    raise WorkloadError(f"no query of this release uses the attribute {attribute!r}. {fix}")


def _report_progress(estimates: Iterable[Any], total: int) -> Iterator[Any]:
    """Yield the same items, and print progress if this takes long."""
    begun = last = time.monotonic()
    for k, estimate in enumerate(estimates):
        now = time.monotonic()
        if now - last > _SECONDS_PER_REPORT:
            err.print(f"{k:,} of {total:,} estimated after {now - begun:.0f} s")
            last = now
        yield estimate
