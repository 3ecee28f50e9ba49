"""`fitplug design`, and how other commands get the plan of a spec."""

from __future__ import annotations

import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from fitplug.errors import InputError
from fitplug.files import compute_digest
from fitplug.plan import Plan, describe_workload, design as design_plan
from fitplug.releases import PLAN
from fitplug.workload import ONE_RECORD
from fitplug_cli.commands.budgets import check_max_rho, has_ledger_file, open_ledger
from fitplug_cli.files import PUBLIC, check_target, replace_file
from fitplug_cli.options import FullOption, JsonOption, QuietOption, SpecArgument, VerboseOption
from fitplug_cli.render import (
    build_plan_record,
    make_gap_reporter,
    open_progress_bar,
    print_facts,
    print_json,
    print_plan,
    set_up_output,
)
from fitplug_cli.render.json_records import compute_rho
from fitplug_cli.spec import Spec, SpecError, load_spec, name_place
from fitplug_opendp.staging import find_unfinished_plan


def design(
    spec_file: SpecArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write the plan. [default: SPEC.plan.npz]"),
    ] = None,
    full: FullOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Design a plan, show it and write it to a file. No data is read."""
    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    spec = load_spec(spec_file)
    path = output or spec_file.with_suffix(".plan.npz")
    check_target(path, Plan.load)
    plan = design_within_limit(spec)
    print_plan(plan, spec.privacy.delta, spec, full=full)
    with replace_file(path, PUBLIC) as partial:
        plan.save(partial)
    print_facts(("plan", f"{path} (digest {plan.digest[:12]})"))
    if as_json:
        record = build_plan_record(plan, spec.privacy.delta)
        print_json({"plan": str(path), **record})


def design_within_limit(spec: Spec) -> Plan:
    """Design the plan for a spec.

    Raises:
        SpecError: If no plan can meet the spec.
        OverBudget: If the targets cost more than max_rho.
    """
    plan = design_at_any_cost(spec)
    check_max_rho(spec, plan)
    return plan


def design_at_any_cost(spec: Spec) -> Plan:
    """Design the plan for a spec, even if it costs more than max_rho.

    Raises:
        SpecError: If no plan can meet the spec.
    """
    rho = spec.privacy.rho
    if rho is not None and spec.unit != ONE_RECORD:
        # The margin exceeds the amount by which OpenDP's map for k records rounds up.
        rho *= 1 - Fraction(1, 2**49)
    with open_progress_bar("design") as bar:
        try:
            plan = design_plan(
                spec.workload,
                unit=spec.unit,
                rho=rho,
                **spec.design.model_dump(),
                progress=make_gap_reporter(bar.show, spec.design.tolerance),
            )
        except InputError as error:
            raise SpecError(f"{spec.path}: {name_place(str(error))}") from None
    return plan


def find_plan(path: Path) -> tuple[Plan, Spec | None]:
    """Load the plan of a file or a release, or design that of a spec even above its max_rho."""
    file = path / PLAN if path.is_dir() else path
    if zipfile.is_zipfile(file):
        return Plan.load(file), None
    if path.is_dir():
        raise InputError(f"{path} contains no plan. Give a spec, a plan file or a release.")
    spec = load_spec(path)
    return design_at_any_cost(spec), spec


def get_plan(spec: Spec, path: Path | None, key: str | None) -> Plan:
    """Get the plan of a release.

    Args:
        spec: The spec.
        path: The plan file, if one is given.
        key: The key of the release, if it has one. An interrupted release of this key keeps its
            plan if that plan fits the spec.

    Returns:
        The plan from the file, the plan of the interrupted release, or a new one.

    Raises:
        InputError: If the file is damaged or belongs to another spec.
        SpecError: If no plan can meet the spec.
        OverBudget: If the plan costs more than max_rho.
    """
    if path is not None:
        return load_plan(spec, path)
    if has_ledger_file(spec):
        ledger = open_ledger(spec)
        assert ledger is not None
        folder = spec.output.path if spec.output.is_url else spec.output_dir
        interrupted = find_unfinished_plan(ledger, folder, key)
        if (
            interrupted is not None
            and _fits(spec, interrupted)
            and _has_design_options(spec, interrupted)
        ):
            return interrupted
    return design_within_limit(spec)


def _fits(spec: Spec, plan: Plan) -> bool:
    return plan.unit == spec.unit and _fits_budget(spec, plan) and has_queries(spec, plan)


def _has_design_options(spec: Spec, plan: Plan) -> bool:
    """Return whether a plan was designed with the options of the spec's [design]."""
    weight, periods = plan.objective.weight, spec.design.periods
    if periods is not None and periods not in plan.causal_attributes:
        return False
    options = plan.tolerance, weight, plan.has_coverage
    asked = spec.design
    return options == (asked.tolerance, asked.total_error_weight, asked.coverage)


def has_queries(spec: Spec, plan: Plan) -> bool:
    """Return whether a plan has the spec's queries and targets."""
    return compute_digest(*describe_workload(plan.workload)) == compute_digest(
        *describe_workload(spec.workload)
    )


def _fits_budget(spec: Spec, plan: Plan) -> bool:
    """Return whether a plan meets the targets, or spends the rho that the spec gives."""
    rho, spent = spec.privacy.rho, compute_rho(plan)
    return plan.scale == 1.0 if rho is None else rho * (1 - 1e-9) <= spent <= float(rho)


def load_plan(spec: Spec, path: Path) -> Plan:
    """Load a plan from a file, and verify it.

    Raises:
        InputError: If the file is damaged, or was designed for another spec.
        OverBudget: If the plan costs more than max_rho.
    """
    plan = Plan.load(path)
    try:
        plan.verify()
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if plan.unit != spec.unit:
        raise InputError(
            f"{path}: the plan has the unit of privacy {plan.unit}, but {spec.path} has "
            f"{spec.unit}. Design the plan again."
        )
    is_same = has_queries(spec, plan) and plan.has_coverage == spec.design.coverage
    if not is_same or not _fits_budget(spec, plan):
        what = "rho of" if is_same else "queries, targets or coverage of"
        raise InputError(
            f"{path}: this plan does not have the {what} {spec.path}. Design the plan again."
        )
    check_max_rho(spec, plan)
    return plan
