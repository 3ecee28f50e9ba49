"""The options of `fitplug estimate`, `export` and `lost`, which read releases and cost nothing.

Everything that takes long to import is imported inside the commands, so that `fitplug --help` is
quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fitplug_cli.options import ConfidenceOption, JsonOption, QuietOption


def estimate(
    folder: Annotated[str, typer.Argument(help="Folder of a release, or its URL.", metavar="OUT")],
    expressions: Annotated[
        list[str] | None,
        typer.Argument(
            help='For example "pyramid[SEX=1, AGEP<=17] + total" or "a / b".', metavar="EXPRESSION"
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A CSV with the columns name and expression, or lines of name: expression.",
        ),
    ] = None,
    confidence: ConfidenceOption = 0.95,
    simultaneous: Annotated[
        bool,
        typer.Option("--simultaneous", help="Let all intervals hold together, not each alone."),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="Estimate for each cell of an attribute, for each node of a tree's level, or for "
            "each region of a CSV or Parquet of codes and their regions.",
            metavar="NAME|FILE",
        ),
    ] = None,
    attribute: Annotated[
        str | None,
        typer.Option("--attribute", help="Attribute whose codes --by has, if no column names it."),
    ] = None,
    leaf: Annotated[str | None, typer.Option("--leaf", help="Column of the codes in --by.")] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="Column of the regions in --by.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write a CSV or Parquet instead of a table.")
    ] = None,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe",
            help="With --output: put an apostrophe before texts that begin as formulas do.",
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead, with all digits.")
    ] = False,
) -> None:
    """Estimate sums, differences and ratios of answers. No data is read."""
    from fitplug_cli.commands import estimates
    from fitplug_cli.inputs import collect_expressions, read_region_options
    from fitplug_cli.render import set_up_output
    from fitplug_cli.render.estimate_tables import (
        check_estimates_target,
        print_estimates,
        print_estimates_as_json,
        write_estimates,
    )

    set_up_output(quiet=quiet, as_json=as_json)
    check_estimates_target(output, spreadsheet_safe=spreadsheet_safe)
    named = collect_expressions(expressions or [], table)
    regions = read_region_options(by, attribute, leaf, region)
    results = estimates.estimate_expressions(folder, named, confidence, simultaneous, regions)
    if output is not None:
        write_estimates(output, results, spreadsheet_safe=spreadsheet_safe)
    if as_json:
        print_estimates_as_json(results)
    elif output is None:
        print_estimates(results)


def export(
    folder: Annotated[str, typer.Argument(help="Folder of a release, or its URL.", metavar="OUT")],
    output: Annotated[Path, typer.Option("--output", help="The folder to write, new or empty.")],
    export_format: Annotated[
        str, typer.Option("--format", help="sdmx-csv or frictionless.", metavar="FORMAT")
    ],
    agency: Annotated[
        str | None,
        typer.Option("--agency", help="With sdmx-csv: the agency that maintains the structures."),
    ] = None,
    structure_version: Annotated[
        str | None,
        typer.Option(
            "--structure-version",
            help="With sdmx-csv: the version of the structures. [default: 1.0.0]",
        ),
    ] = None,
    confidence: ConfidenceOption = 0.95,
    quiet: QuietOption = False,
) -> None:
    """Write a release for other tools, with std and margins of error. No data is read."""
    from fitplug_cli.commands import exports
    from fitplug_cli.render import set_up_output

    set_up_output(quiet=quiet, as_json=False)
    sdmx = exports.read_sdmx_options(export_format, agency, structure_version)
    exports.export_release(folder, output, sdmx, confidence)


def estimate_lost(
    kept: Annotated[
        Path, typer.Argument(help="Folder of the release limited by person.", metavar="KEPT")
    ],
    coarse: Annotated[
        Path,
        typer.Argument(
            help="Folder of a coarse release with more records of each person.", metavar="WHOLE"
        ),
    ],
    expression: Annotated[
        str, typer.Argument(help="What to count in both.", metavar="EXPRESSION")
    ] = "total",
    of: Annotated[
        str | None,
        typer.Option("--of", help="What to count in WHOLE instead, if it has other groups."),
    ] = None,
    confidence: ConfidenceOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Estimate how many records a limit by person left out. No data is read."""
    from fitplug_cli.commands import records_lost
    from fitplug_cli.render import print_json

    lost = records_lost.estimate_records_lost(kept, coarse, expression, of)
    if as_json:
        print_json(records_lost.build_lost_record(lost, confidence))
    else:
        records_lost.print_records_lost(lost, confidence)
