"""`fitplug truncation`: how many rows a limit per person left out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fitplug.families import list_names
from fitplug.releases import Release, TruncationLoss, estimate_truncation
from fitplug.workload import check_confidence, describe_apart
from fitplug_cli.options import ConfidenceOption, JsonOption, QuietOption
from fitplug_cli.render import out, print_json, print_table, set_up_output
from fitplug_cli.render.facts import format_percent


def truncation(
    limited: Annotated[
        Path,
        typer.Argument(
            help="Folder of the release with the lower limit on rows per person.", metavar="KEPT"
        ),
    ],
    coarse: Annotated[
        Path,
        typer.Argument(
            help="Folder of a less accurate release with a higher limit on rows per person.",
            metavar="WHOLE",
        ),
    ],
    expression: Annotated[
        str, typer.Argument(help="What to count in both releases.", metavar="EXPRESSION")
    ] = "total",
    of: Annotated[
        str | None,
        typer.Option("--of", help="Expression to use for WHOLE instead of EXPRESSION."),
    ] = None,
    confidence: ConfidenceOption = 0.95,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate how many rows a limit on rows per person left out. No data is read."""
    set_up_output(quiet=quiet, as_json=as_json)
    truncated = estimate_truncation(Release.load(limited), Release.load(coarse), expression, of=of)
    if as_json:
        print_json(build_truncation_record(truncated, confidence))
    else:
        print_truncation(truncated, confidence)


def build_truncation_record(lost: TruncationLoss, confidence: float) -> dict[str, Any]:
    """Build the JSON record of an estimate.

    Raises:
        WorkloadError: If the confidence is out of range.
        InputError: If the coarse count is within a few stds of zero.
    """
    check_confidence(confidence)
    return {
        "confidence": confidence,
        "kept": {"unit": lost.kept_unit.to_spec(), **lost.kept._asdict()},
        "whole": {"unit": lost.whole_unit.to_spec(), **lost.whole._asdict()},
        "lost": {**lost.rows._asdict(), "interval": lost.rows.interval(confidence)},
        "share": {"value": lost.share, "interval": lost.share_interval(confidence)},
        "left_out_by_one_only": list(lost.apart),
    }


def print_truncation(lost: TruncationLoss, confidence: float) -> None:
    """Print a table of an estimate.

    Raises:
        WorkloadError: If the confidence is out of range.
        InputError: If the coarse count is within a few stds of zero.
    """
    low, high = lost.share_interval(confidence)
    limit, whole = (
        f"{unit.records}{{}}{describe_apart(unit)}" for unit in (lost.kept_unit, lost.whole_unit)
    )
    table = Table(box=None)
    table.add_column("rows")
    for column in ("estimate", "std", "lower", "upper"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, count in (
        (f"with at most {limit.format(' per person')}", lost.kept),
        (f"with at most {whole.format(' per person')}", lost.whole),
        (f"left out by the limit of {limit.format('')}", lost.rows),
    ):
        numbers = (count.value, count.std, *count.interval(confidence))
        table.add_row(name, *(f"{number:,.0f}" for number in numbers))
    share, lower, upper = map(format_percent, (lost.share, low, high))
    table.add_row("share left out", share, "", lower, upper)
    print_table(table)
    out.print(f"Each interval holds at {100 * confidence:g}% confidence.")
    unit = lost.whole_unit
    words = describe_apart(unit).removeprefix(", ")
    apart = f" ({words})" if words else ""
    out.print(f"Neither release counts more than {unit.records} rows per person{apart}.")
    if lost.apart:
        out.print(
            f"The domains of {list_names(list(lost.apart))} differ. Rows inside only one of the "
            "two domains are part of the difference."
        )
