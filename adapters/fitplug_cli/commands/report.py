"""`fitplug report`: what a plan costs, and how to relax its targets to fit a budget."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from fitplug.counts import describe_source_rows
from fitplug.display import format_up
from fitplug.errors import InputError, OverBudget
from fitplug.numeric import floor_written
from fitplug.plan import Plan, Relaxation, describe_weakness, relax
from fitplug.privacy import check_delta
from fitplug.releases import Limited
from fitplug_cli.commands.budgets import find_budget_warning
from fitplug_cli.commands.design import find_plan
from fitplug_cli.files import PUBLIC, check_target, replace_file
from fitplug_cli.inputs import match_rows
from fitplug_cli.options import JsonOption, QuietOption, read_amount
from fitplug_cli.render import (
    find_formula_warning,
    open_progress_bar,
    out,
    print_facts,
    print_json,
    set_up_output,
    warn,
)
from fitplug_cli.render.facts import collect_facts
from fitplug_cli.render.page import render_page
from fitplug_cli.render.terminal import build_report_record, print_relaxation, print_report
from fitplug_cli.spec import Spec


def report(
    plan_file: Annotated[
        Path, typer.Argument(help="Spec, plan file or folder of a release.", metavar="PLAN")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write an HTML page with plots instead of printing."),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta", help="Delta at which epsilon is reported. [default: the spec's, or 1e-9]"
        ),
    ] = None,
    max_rho: Annotated[
        Fraction | None,
        typer.Option(
            "--max-rho",
            parser=read_amount,
            metavar="<float>",
            help="If the targets cost more than this, show how to relax them and exit with code 3.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Also print the cost of other limits on rows per person and of other mechanisms, "
            "and epsilon at other deltas.",
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the privacy cost of a plan and of each target. No data is read."""
    set_up_output(quiet=quiet, as_json=as_json)
    if output is not None:
        check_target(output, _check_is_page)
    plan, spec = find_plan(plan_file)
    limited: Limited | None = None
    if spec is not None:
        delta = spec.privacy.delta if delta is None else delta
        max_rho = spec.privacy.max_rho if max_rho is None else max_rho
        limited = "declared" if spec.data.person is None else "enforced"
    delta = 1e-9 if delta is None else delta
    check_delta(delta)
    relaxation = None if max_rho is None else _relax(plan, max_rho)
    with open_progress_bar("compare") as bar:
        facts = collect_facts(
            plan,
            delta=delta,
            limited=limited,
            rows=None if spec is None else describe_source_rows(spec.source),
            about=None if spec is None else spec.about.about,
            display=None if spec is None else spec.output.display_request,
            compare=full or as_json or output is not None,
            progress=bar.show,
        )
    safe = spec is not None and spec.output.spreadsheet_safe
    of_formulas = None if safe else find_formula_warning(plan.workload)
    of_data = None if spec is None else _find_data_warning(spec)
    of_budget = None
    if spec is not None and max_rho is None:
        of_budget = find_budget_warning(spec, plan)
    warnings = [warning for warning in (of_formulas, of_data, of_budget) if warning is not None]
    for warning in warnings:
        warn(warning)
    if as_json:
        warnings += [text for text in (describe_weakness(plan, delta),) if text]
        print_json(build_report_record(facts, relaxation) | {"warnings": warnings})
    if output is None:
        print_report(facts, spec, full=full)
        if not full:
            out.print("For more, use --full, or -o report.html for a page with plots.")
    else:
        text = render_page(facts, of_formulas)
        with replace_file(output, PUBLIC) as partial:
            partial.write_text(text, encoding="utf-8")
        print_facts(("report", str(output)))
    if relaxation is not None:
        assert max_rho is not None
        print_relaxation(relaxation, float(max_rho))
        needed = relaxation.rho
        raise OverBudget(
            f"{plan_file}: the targets cost rho = {format_up(needed)}, more than "
            f"{float(max_rho):g}. Relax the targets as shown, or raise max_rho.",
            requested=needed,
            remaining=floor_written(max_rho),
        )


def _find_data_warning(spec: Spec) -> str | None:
    """Return a warning if nothing is at the local path of the data, which is not opened."""
    data = spec.data.local_path
    if data is None or any(path.exists() for path in match_rows(spec.path.parent, data)):
        return None
    return (
        f"{spec.path}: there is no file or folder at [data] path = {spec.data.path!r}. The report "
        "does not need it, but `fitplug run` will."
    )


def _relax(plan: Plan, max_rho: Fraction) -> Relaxation | None:
    """Find how to relax the targets; None if they cost at most max_rho."""
    with open_progress_bar("relax") as bar:
        return relax(
            plan.workload,
            max_rho,
            plan=plan,
            tolerance=plan.tolerance,
            progress=lambda count, _: bar.show(None, f"design {count}"),
        )


def _check_is_page(html: Path) -> None:
    if not html.read_bytes()[:15].lower().startswith(b"<!doctype html"):
        raise InputError(f"{html} is not an HTML page. Name another file.")
