"""`fitplug run`, and `fitplug release` for data that is already counted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fitplug_cli.commands.design import get_plan
from fitplug_cli.commands.releases import (
    check_counts_are_kept,
    check_paths,
    publish_release,
    read_charge_options,
)
from fitplug_cli.options import (
    AgainOption,
    CoveredByOption,
    FullOption,
    JsonOption,
    KeyOption,
    PlanOption,
    QuietOption,
    ReplaceOption,
    SpecArgument,
    VerboseOption,
)
from fitplug_cli.render import print_json, print_plan, set_up_output, warn_of_release
from fitplug_cli.spec import SpecError, load_spec


def run(
    spec_file: SpecArgument,
    plan_file: PlanOption = None,
    key: KeyOption = None,
    covered_by: CoveredByOption = None,
    again: AgainOption = False,
    replace: ReplaceOption = False,
    full: FullOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Design, count and release in one step.

    Charge the ledger, draw the noise and write the tables, each exactly once. After an
    interruption the same command finishes the work at no further cost.
    """
    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    _release(spec_file, None, plan_file, (key, covered_by, again, replace), as_json, full)


def release(
    spec_file: SpecArgument,
    counts_file: Annotated[
        Path, typer.Option("--counts", help="File of exact counts from `fitplug count`.")
    ],
    plan_file: PlanOption = None,
    key: KeyOption = None,
    covered_by: CoveredByOption = None,
    again: AgainOption = False,
    replace: ReplaceOption = False,
    full: FullOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Release counts: charge the ledger, draw noise, write tables.

    This happens exactly once. After an interruption the same command finishes the work.
    """
    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    _release(spec_file, counts_file, plan_file, (key, covered_by, again, replace), as_json, full)


def _release(
    spec_file: Path,
    counts_file: Path | None,
    plan_file: Path | None,
    asked: tuple[str | None, str | None, bool, bool],
    as_json: bool,
    full: bool,
) -> None:
    """Release the counts of a file, or count the data of the spec and release them.

    `asked` contains --key, --covered-by, --again and --replace.
    """
    spec = load_spec(spec_file)
    if spec.design.periods is not None:
        raise SpecError(
            f"{spec.path} describes a series ([design] periods). Use `fitplug series begin` and "
            "`fitplug series add`."
        )
    charge = read_charge_options(spec, *asked)
    if counts_file is None:
        check_counts_are_kept(spec, charge)
    check_paths(spec)
    plan = get_plan(spec, plan_file, charge.key)
    warn_of_release(spec, plan)
    print_plan(plan, spec.privacy.delta, spec, full=full)
    record = publish_release(spec, plan, charge, counts_file)
    if as_json:
        print_json(record)
