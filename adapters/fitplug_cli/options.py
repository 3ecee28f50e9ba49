"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """A group of commands that prints its help when run without a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; without any, show the help."""
        return super().parse_args(ctx, args or ["--help"])


SpecArgument = Annotated[Path, typer.Argument(help="Spec file (TOML).", metavar="SPEC")]

PlanOption = Annotated[
    Path | None, typer.Option("--plan", help="Use this plan file instead of designing a plan.")
]

KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="Name of the release. Running with the same key again finishes the same release.",
    ),
]


def read_amount(text: str) -> Fraction:
    """Read an amount of rho exactly as written."""
    try:
        number = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number.") from None
    if not 0 < number < math.inf:
        raise typer.BadParameter(f"{text!r} must be a finite number above zero.")
    return Fraction(Decimal(text))


CoveredByOption = Annotated[
    str | None,
    typer.Option(
        "--covered-by",
        help="Number or key of an earlier charge. Nothing is charged if the earlier charge also "
        "covers this release.",
    ),
]

AgainOption = Annotated[
    bool,
    typer.Option("--again", help="Draw new noise for a released plan, and charge again."),
]

ReplaceOption = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Rename the folder of the earlier release and write a new release in its place. "
        "Needs a [ledger].",
    ),
]

ConfidenceOption = Annotated[
    float, typer.Option("--confidence", help="Confidence of the intervals.")
]

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead. Errors are JSON, too.")
]

VerboseOption = Annotated[bool, typer.Option("--verbose", help="Log progress on standard error.")]

FullOption = Annotated[
    bool,
    typer.Option(
        "--full", help="Also print the proven lower bound on rho and the tables that are counted."
    ),
]
