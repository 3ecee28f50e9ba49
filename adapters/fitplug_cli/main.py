"""The command line: its commands and their options.

Everything that takes long to import is imported inside the commands, so that `fitplug --help` is
quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from fitplug_cli import ledger_commands, reading_commands, series_commands
from fitplug_cli.exit_codes import (
    INTERRUPTED,
    explain_error,
    explain_import_error,
    explain_os_error,
    fail,
    open_missing_streams,
)
from fitplug_cli.options import (
    AgainOption,
    JsonOption,
    KeyOption,
    PlanOption,
    QuietOption,
    ReplaceOption,
    SpecArgument,
    VerboseOption,
    WithinOption,
)

app = typer.Typer(
    help="Release counts about people: every accuracy target met, at the least privacy cost.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(ledger_commands.app, name="ledger")
app.add_typer(series_commands.app, name="series")


def _print_version(wanted: bool) -> None:
    if wanted:
        from fitplug_cli.software import print_version

        print_version()
        raise typer.Exit


@app.callback()
def _take_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version, and which parts are compiled.",
        ),
    ] = False,
) -> None:
    pass


@app.command()
def init(
    data: Annotated[str, typer.Argument(help="File, folder, glob or URL.", metavar="DATA")],
    output: Annotated[Path, typer.Option("--output", help="Where to write the spec.")] = Path(
        "release.toml"
    ),
    codebook: Annotated[
        Path | None, typer.Option("--codebook", help="Codebook of the attributes' values.")
    ] = None,
    records: Annotated[
        int | None,
        typer.Option("--records", min=1, help="The most rows that one person may have."),
    ] = None,
    header: Annotated[
        bool,
        typer.Option(
            "--header", help="The first line names the columns, although it looks like data."
        ),
    ] = False,
) -> None:
    """Begin a spec from the names and types of the columns. No row is read."""
    from fitplug_cli.commands import new_spec
    from fitplug_cli.output import out

    new_spec.write_new_spec(data, output, codebook, records, header=header)
    asked = "domain and queries" if records else "unit of privacy, domain and queries"
    out.print(f"new spec: {output}. Fill in its {asked}.")


@app.command()
def run(
    spec_file: SpecArgument,
    plan_file: PlanOption = None,
    key: KeyOption = None,
    within: WithinOption = None,
    again: AgainOption = False,
    replace: ReplaceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Design, count and release in one, exactly once.

    The ledger is charged, the noise is drawn and the tables are written. A run that was
    interrupted is finished by the same command, at no further cost.
    """
    from fitplug_cli.commands import counts, plans, releases
    from fitplug_cli.output import print_json, print_plan, set_up_output
    from fitplug_cli.spec import load_spec

    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    spec = load_spec(spec_file)
    charge = releases.read_charge_options(spec, key, within, again, replace)
    releases.check_counts_are_kept(spec, charge)
    releases.check_paths(spec)
    plan = plans.get_plan(spec, plan_file, charge.key)
    print_plan(plan, spec.privacy.delta)
    if spec.output.parts:
        from fitplug_cli.commands.parted_releases import publish_in_parts

        record = publish_in_parts(spec, plan, charge)
    else:
        publication = releases.prepare_release(spec, plan, charge)
        tables = counts.count_tables(spec, plan) if publication.needs_counts else None
        record = releases.publish_release(spec, publication, charge, tables)
    if as_json:
        print_json(record)


@app.command()
def design(
    spec_file: SpecArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Where to write the plan. [default: SPEC.plan.npz]"),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Design the plan, show it and write it to a file. No data is read."""
    from fitplug_cli.commands import plans
    from fitplug_cli.output import build_plan_record, out, print_json, print_plan, set_up_output
    from fitplug_cli.spec import load_spec

    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    spec = load_spec(spec_file)
    path = output or spec_file.with_suffix(".plan.npz")
    plans.check_plan_target(path)
    plan = plans.design_within_limit(spec)
    print_plan(plan, spec.privacy.delta)
    plans.save_plan(plan, path)
    out.print(f"plan {plan.digest[:12]} written: {path}")
    if as_json:
        record = build_plan_record(plan, spec.privacy.delta)
        print_json({"plan": str(path), **record})


@app.command()
def report(
    plan_file: Annotated[Path, typer.Argument(help="Plan file, or spec file.", metavar="PLAN")],
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write it as one HTML page, to open in a browser."),
    ] = None,
    delta: Annotated[
        float | None, typer.Option("--delta", help="The delta at which epsilon is reported.")
    ] = None,
    max_rho: Annotated[
        float | None,
        typer.Option(
            "--max-rho",
            help="If the targets cost more, show how to relax them, and exit with code 3.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Also print what other limits and deltas cost, and the usual mechanisms.",
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Report what a plan asks, gets and costs. No data is read."""
    from fitplug_cli.commands import reports
    from fitplug_cli.output import set_up_output

    set_up_output(quiet=quiet, as_json=as_json)
    reports.report_plan(plan_file, output, delta, max_rho, full=full, as_json=as_json)


@app.command()
def count(
    spec_file: SpecArgument,
    plan_file: PlanOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Where to write the counts. [default: SPEC.counts.npz]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show files, rows, tasks and memory.")
    ] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Count the exact tables the plan needs into a file. The file is CONFIDENTIAL."""
    from fitplug_cli.commands import counts, plans
    from fitplug_cli.output import out, set_up_output, write_counts
    from fitplug_cli.spec import load_spec

    set_up_output(quiet=quiet, as_json=False, verbose=verbose)
    spec = load_spec(spec_file)
    path = output or spec_file.with_suffix(".counts.npz")
    if not dry_run:
        counts.check_counts_target(path)
    plan = plans.load_plan(spec, plan_file) if plan_file else plans.design_within_limit(spec)
    if dry_run:
        counts.survey(spec, plan)
        return
    tables = counts.count_tables(spec, plan)
    write_counts(path, tables)
    out.print(f"exact counts written, CONFIDENTIAL, delete after the release: {path}")


@app.command()
def release(
    spec_file: SpecArgument,
    counts_file: Annotated[
        Path, typer.Option("--counts", help="Exact counts, by `fitplug count`.")
    ],
    plan_file: PlanOption = None,
    key: KeyOption = None,
    within: WithinOption = None,
    again: AgainOption = False,
    replace: ReplaceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Release counts: charge the ledger, draw noise, write tables.

    This happens exactly once. A release that was interrupted is finished by the same command.
    """
    from fitplug_cli.commands import plans, releases
    from fitplug_cli.output import print_json, print_plan, read_counts, set_up_output
    from fitplug_cli.spec import load_spec

    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    spec = load_spec(spec_file)
    charge = releases.read_charge_options(spec, key, within, again, replace)
    releases.check_paths(spec)
    plan = plans.get_plan(spec, plan_file, charge.key)
    print_plan(plan, spec.privacy.delta)
    if spec.output.parts:
        from fitplug_cli.commands.parted_releases import publish_in_parts

        tables = read_counts(counts_file)
        record = publish_in_parts(spec, plan, charge, tables=tables, counts_file=counts_file)
    else:
        publication = releases.prepare_release(spec, plan, charge)
        found = read_counts(counts_file) if publication.needs_counts else None
        record = releases.publish_release(spec, publication, charge, found, counts_file)
    if as_json:
        print_json(record)


app.command()(reading_commands.estimate)
app.command()(reading_commands.export)
app.command(name="lost")(reading_commands.estimate_lost)


@cache
def _build_command() -> Callable[..., Any]:
    """Build the commands. Where one process runs many, they are not built for each again."""
    return typer.main.get_command(app)


def main() -> None:
    """Run a command, and turn an error into one message and an exit code."""
    open_missing_streams()
    try:
        code = _build_command()(standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        fail(*INTERRUPTED)
    except ImportError as error:
        fail(1, "ImportError", explain_import_error(error))
    except OSError as error:
        fail(1, "OSError", explain_os_error(error))
    except SystemExit as left:
        # The parser ends so, without a word, where nobody reads the output.
        if isinstance(left.__context__, BrokenPipeError):
            fail(1, "OSError", explain_os_error(left.__context__))
        raise
    except Exception as error:
        fail(*explain_error(error))
    if code == INTERRUPTED[0]:
        fail(*INTERRUPTED)
    sys.exit(code)


if __name__ == "__main__":
    main()
