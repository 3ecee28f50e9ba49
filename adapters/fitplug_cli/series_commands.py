"""The options of `fitplug series`; `fitplug_cli.commands.series` does the work.

Everything else is imported inside the commands, so that `fitplug --help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fitplug_cli.options import JsonOption, PlanOption, QuietOption, SpecArgument, VerboseOption

app = typer.Typer(
    help="Release period by period, by one plan that is charged once.",
    rich_markup_mode=None,
)


@app.command()
def begin(
    spec_file: SpecArgument,
    key: Annotated[str, typer.Option("--key", help="Name of the series in the ledger.")],
    plan_file: PlanOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Charge a series for all its periods, which [design] periods names. Nothing is drawn.

    The exact counts of the periods are kept encrypted beside [output] path. Their key is in the
    file [output] key_file, or in your account if the spec names none. Back it up apart from the
    counts: without it no later period can be drawn.
    """
    from fitplug_cli.commands import series
    from fitplug_cli.render import print_json, set_up_output
    from fitplug_cli.spec import load_spec

    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    record = series.begin(load_spec(spec_file), plan_file, key)
    if as_json:
        print_json(record)


@app.command()
def add(
    spec_file: SpecArgument,
    period: Annotated[str, typer.Argument(help="The next period.", metavar="PERIOD")],
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Count the rows of a period, draw it once and write its folder.

    A command that was interrupted is finished by the same command, with the same counts.
    """
    from fitplug_cli.commands import series
    from fitplug_cli.render import print_json, set_up_output
    from fitplug_cli.spec import load_spec

    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    record = series.add(load_spec(spec_file), period)
    if as_json:
        print_json(record)


@app.command()
def close(
    spec_file: SpecArgument,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """End a series before its last period, and remove its sealed counts."""
    from fitplug_cli.commands import series
    from fitplug_cli.render import print_json, set_up_output
    from fitplug_cli.spec import load_spec

    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    record = series.close(load_spec(spec_file))
    if as_json:
        print_json(record)
