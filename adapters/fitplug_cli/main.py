"""The command line. Exit codes: 0 done; 1 failed; 2 spec or arguments wrong; 3 refused; 4 the key
is that of another release.

Everything heavy is imported inside the commands, so that `fitplug --help` is quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fitplug_cli import ledgers

app = typer.Typer(
    help="Release counts about people: every accuracy target met, at the least privacy cost.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(ledgers.app, name="ledger")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"fitplug {version('fitplug')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


SpecArgument = Annotated[Path, typer.Argument(help="Spec file (TOML).", metavar="SPEC")]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", help="Use this plan file instead of designing anew.")
]

KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="Name of the release. The same key again finishes or finds the same release.",
    ),
]
WithinOption = Annotated[
    str | None,
    typer.Option(
        "--within",
        help="Number or key of an earlier charge: charge nothing, if no cell costs more with both.",
    ),
]
AgainOption = Annotated[
    bool,
    typer.Option("--again", help="Pay for another draw of a plan that was released before."),
]
ReplaceOption = Annotated[
    bool,
    typer.Option(
        "--replace", help="Keep the release that [output] holds aside, under another name."
    ),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="Folder that keeps finished counts, to resume a count that was killed. CONFIDENTIAL.",
    ),
]


QuietOption = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead; errors are JSON too.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Log what is done on the standard error.")
]


@app.command()
def init(
    data: Annotated[str, typer.Argument(help="File, folder, glob or URL.", metavar="DATA")],
    output: Annotated[Path, typer.Option("--output", help="Where to write the spec.")] = Path(
        "release.toml"
    ),
    codebook: Annotated[
        Path | None, typer.Option("--codebook", help="CSV or JSON of the attributes' values.")
    ] = None,
    header: Annotated[
        bool,
        typer.Option(
            "--header", help="The first line names the columns, though it looks like data."
        ),
    ] = False,
) -> None:
    """Begin a spec from the names and types of the columns. Reads no row."""
    from fitplug_cli import beginning, show

    written = beginning.begin(data, output, codebook, header=header)
    show.out.print(f"spec begun, fill in its domain and queries: {written}")


@app.command()
def run(
    spec: SpecArgument,
    plan: PlanOption = None,
    key: KeyOption = None,
    within: WithinOption = None,
    again: AgainOption = False,
    replace: ReplaceOption = False,
    checkpoint: CheckpointOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Design, count, charge the ledger, draw the noise and write the tables, exactly once.

    A run that was interrupted is finished by the same command, at no further cost.
    """
    from fitplug_cli import publishing, records, show, steps
    from fitplug_cli.spec import load

    show.mode(quiet=quiet, as_json=as_json, verbose=verbose)
    asked = load(spec)
    charge = publishing.charging(asked, key, within, again, replace)
    publishing.check_counts_kept(asked, charge)
    steps.check_places(asked)
    steps.check_checkpoint(asked, checkpoint)
    designed = steps.plan_for(asked, plan, charge.key)
    show.plan(designed, asked.data.contributions, asked.privacy.delta)
    release = publishing.prepare(asked, designed, charge)
    tables = steps.count(asked, designed, checkpoint) if release.needs_counts else None
    made = publishing.release(asked, release, charge, tables)
    if as_json:
        records.printed(made)


@app.command()
def design(
    spec: SpecArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Where to write the plan. [default: SPEC.plan.npz]"),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Design the plan, show it and write it to a file. Reads no data."""
    from fitplug_cli import records, show, steps
    from fitplug_cli.spec import load

    show.mode(quiet=quiet, as_json=as_json, verbose=verbose)
    asked = load(spec)
    path = output or spec.with_suffix(".plan.npz")
    steps.check_plan_target(path)
    designed = steps.design(asked)
    show.plan(designed, asked.data.contributions, asked.privacy.delta)
    steps.save_plan(designed, path)
    show.out.print(f"plan {designed.digest[:12]} written: {path}")
    if as_json:
        told = records.of_plan(designed, asked.data.contributions, asked.privacy.delta)
        records.printed({"plan": str(path), **told})


@app.command()
def report(
    plan: Annotated[Path, typer.Argument(help="Plan file, or spec file.", metavar="PLAN")],
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write it as one HTML page, to open in a browser."),
    ] = None,
    contributions: Annotated[
        int | None, typer.Option("--contributions", min=1, help="Rows one person may have.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option("--delta", help="At which epsilon is told.")
    ] = None,
    max_rho: Annotated[
        float | None,
        typer.Option("--max-rho", help="If the targets cost more: how to relax them; exit code 3."),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Report what a plan asks, gets and costs. Reads no data."""
    from fitplug_cli import reports, show

    show.mode(quiet=quiet, as_json=as_json)
    reports.report(plan, output, contributions, delta, max_rho, as_json=as_json)


@app.command()
def count(
    spec: SpecArgument,
    plan: PlanOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Where to write the counts. [default: SPEC.counts.npz]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show files, rows, tasks and memory.")
    ] = False,
    checkpoint: CheckpointOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Count the exact tables the plan needs into a file. The file is CONFIDENTIAL."""
    from fitplug_cli import countsfile, show, steps
    from fitplug_cli.spec import load

    show.mode(quiet=quiet, as_json=False, verbose=verbose)
    asked = load(spec)
    path = output or spec.with_suffix(".counts.npz")
    if not dry_run:
        steps.check_counts_target(path)
        steps.check_checkpoint(asked, checkpoint)
    needed = steps.saved_plan(asked, plan) if plan else steps.design(asked)
    if dry_run:
        steps.survey(asked, needed)
        return
    tables = steps.count(asked, needed, checkpoint)
    countsfile.write(path, tables)
    show.out.print(f"exact counts written, CONFIDENTIAL, delete after the release: {path}")


@app.command()
def release(
    spec: SpecArgument,
    counts: Annotated[Path, typer.Option("--counts", help="Exact counts, by `fitplug count`.")],
    plan: PlanOption = None,
    key: KeyOption = None,
    within: WithinOption = None,
    again: AgainOption = False,
    replace: ReplaceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Charge the ledger, draw the noise and write the tables, exactly once, from exact counts."""
    from fitplug_cli import countsfile, publishing, records, show, steps
    from fitplug_cli.spec import load

    show.mode(quiet=quiet, as_json=as_json, verbose=verbose)
    asked = load(spec)
    charge = publishing.charging(asked, key, within, again, replace)
    steps.check_places(asked)
    designed = steps.plan_for(asked, plan, charge.key)
    show.plan(designed, asked.data.contributions, asked.privacy.delta)
    publication = publishing.prepare(asked, designed, charge)
    tables = countsfile.read(counts) if publication.needs_counts else None
    made = publishing.release(asked, publication, charge, tables, counts)
    if as_json:
        records.printed(made)


@app.command()
def estimate(
    folder: Annotated[Path, typer.Argument(help="Folder of a release.", metavar="OUT")],
    expressions: Annotated[
        list[str] | None,
        typer.Argument(
            help='Such as "pyramid[SEX=1, AGEP<=17] + total" or "a / b".', metavar="EXPRESSION"
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--from", help="A CSV with columns name, expression, or lines name: expression."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Of the intervals.")] = 0.95,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Of all intervals together.")
    ] = False,
    by: Annotated[
        Path | None,
        typer.Option("--by", help="A CSV or Parquet of codes and their regions: in each region."),
    ] = None,
    attribute: Annotated[
        str | None, typer.Option("--attribute", help="Whose codes --by has, if no column says it.")
    ] = None,
    leaf: Annotated[str | None, typer.Option("--leaf", help="Column of the codes in --by.")] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="Column of the regions in --by.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write a CSV or Parquet instead of a table.")
    ] = None,
    spreadsheet_safe: Annotated[
        bool, typer.Option("--spreadsheet-safe", help="Of --output: no text begins as a formula.")
    ] = False,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with all digits.")] = False,
) -> None:
    """Sums, differences and ratios of a release's answers, with their std. Reads no data."""
    from fitplug_cli import estimatefiles, estimates, expressionfiles, show

    show.mode(quiet=quiet, as_json=as_json)
    estimatefiles.check_target(output, spreadsheet_safe=spreadsheet_safe)
    asked = expressionfiles.asked(expressions or [], table)
    regions = estimates.regions_of(by, attribute, leaf, region)
    found = estimates.estimate(folder, asked, confidence, simultaneous, regions)
    if output is not None:
        estimatefiles.write(output, found, spreadsheet_safe=spreadsheet_safe)
    if as_json:
        estimatefiles.as_json(found)
    elif output is None:
        estimatefiles.as_table(found)


@app.command()
def lost(
    kept: Annotated[
        Path, typer.Argument(help="Folder of the release limited by person.", metavar="KEPT")
    ],
    whole: Annotated[
        Path,
        typer.Argument(
            help="Folder of a coarse release with more records of each person.", metavar="WHOLE"
        ),
    ],
    expression: Annotated[
        str, typer.Argument(help="What to count in both.", metavar="EXPRESSION")
    ] = "total",
    of: Annotated[
        str | None, typer.Option("--of", help="The same in WHOLE, if it has other groups.")
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Of the intervals.")] = 0.95,
    as_json: JsonOption = False,
) -> None:
    """How many records a limit on the records of a person left out. Reads no data."""
    from fitplug_cli import losses, records

    found = losses.estimate(kept, whole, expression, of)
    if as_json:
        records.printed(losses.as_record(found, confidence))
    else:
        losses.as_table(found, confidence)


def main() -> None:
    """Entry point: runs a command, and turns errors into one sentence and an exit code."""
    try:
        sys.exit(app(standalone_mode=False))
    except (KeyboardInterrupt, typer.Abort):
        _fail(1, "Interrupted", "interrupted; run the same again to finish what was begun")
    except ImportError as error:
        _fail(1, "ImportError", str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(1, "OSError", f"{place}{error.strerror or 'cannot be read or written'}")
    except Exception as error:
        _fail(*_explained(error))


def _explained(error: Exception) -> tuple[int, str, str]:
    """Exit code, kind and sentence for an error that is somebody's to mend; others are raised
    again.
    """
    usage = getattr(error, "format_message", None)  # of the parser that typer brings along
    if usage is not None:
        return 2, "UsageError", f"{usage().rstrip('.')}; see: fitplug --help"
    from fitplug.errors import AlreadyReleased, FitplugError, InputError, KeyTaken, OverBudget

    codes = {OverBudget: 3, AlreadyReleased: 3, KeyTaken: 4, InputError: 2, FitplugError: 1}
    for kind, code in codes.items():
        if isinstance(error, kind):
            return code, type(error).__name__, str(error)
    raise error


def _fail(code: int, kind: str, message: str) -> None:
    """End with an exit code and a sentence; as JSON if the arguments ask for that."""
    if "--json" in sys.argv[1:]:
        import json

        said = {"error": {"code": code, "kind": kind, "message": message}}
        print(json.dumps(said), file=sys.stderr)
    else:
        print(f"fitplug: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
