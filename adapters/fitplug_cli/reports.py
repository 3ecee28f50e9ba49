"""`fitplug report`: a plan's report, in the terminal or as a page, and what a budget would take."""

from __future__ import annotations

import zipfile
from fractions import Fraction
from pathlib import Path

from fitplug.display import format_up
from fitplug.errors import InputError, OverBudget
from fitplug.numeric import ceil_float, floor_float
from fitplug.plan import Plan, Relaxation, relax
from fitplug.privacy import check_delta, check_rho
from fitplug.release import Limited
from fitplug_cli import csvfile, records, show, spec, steps
from fitplug_cli.files import check_target, replacing
from fitplug_cli.reporting import terminal
from fitplug_cli.reporting.facts import facts


def report(
    path: Path,
    html: Path | None,
    contributions: int | None,
    delta: float | None,
    max_rho: float | None,
    *,
    as_json: bool = False,
) -> None:
    """Print the report of a plan or spec file, or write it as a page; with a largest rho, tell how
    the targets fit it. What is None is taken from the spec, or 1, 1e-9 and no limit. as_json: print
    all of it as one JSON object.

    Raises InputError, OverBudget if the targets cost more than max_rho, WriteError.
    """
    if html is not None:
        check_target(html, _check_is_page)
    plan, asked = _plan(path)
    limited: Limited | None = None
    if asked is not None:
        contributions = contributions or asked.data.contributions
        delta = delta or asked.privacy.delta
        max_rho = max_rho or asked.privacy.max_rho
        limited = "declared" if asked.data.person is None else "enforced"
    contributions, delta = contributions or 1, 1e-9 if delta is None else delta
    check_delta(delta)
    found = None if max_rho is None else _relaxation(plan, max_rho, contributions)
    with show.bar("compare") as bar:
        told = facts(
            plan,
            contributions=contributions,
            delta=delta,
            limited=limited,
            about=None if asked is None else asked.about.about,
            progress=bar.show,
        )
    safe = asked is not None and asked.output.spreadsheet_safe
    warning = None if safe else csvfile.warning(plan.workload)
    if as_json:
        records.printed(records.of_report(told, found) | {"warnings": [warning] if warning else []})
    if html is None:
        terminal.report(told)
    else:
        from fitplug_cli.reporting import page

        text = page.html(told, warning)
        with replacing(html) as partial:
            partial.write_text(text, encoding="utf-8")
            partial.chmod(0o644)
        show.out.print(f"report written: {html}")
    show.formulas(plan.workload, safe=safe)
    if found is not None:
        assert max_rho is not None
        terminal.relaxation(found, max_rho)
        needed = ceil_float(Fraction(found.rho) * contributions**2)
        raise OverBudget(
            f"{path}: the targets cost rho = {format_up(needed)}, more than {max_rho:g}",
            requested=needed,
            remaining=max_rho,
        )


def _plan(path: Path) -> tuple[Plan, spec.Spec | None]:
    """A plan file's plan, or that of a spec file, whatever it may cost."""
    if zipfile.is_zipfile(path):
        return Plan.load(path), None
    asked = spec.load(path)
    return steps.optimum(asked), asked


def _relaxation(plan: Plan, max_rho: float, contributions: int) -> Relaxation | None:
    check_rho(max_rho)
    most = floor_float(Fraction(max_rho) / contributions**2)
    with show.bar("relax") as bar:
        return relax(
            plan.workload,
            most,
            plan=plan,
            tolerance=plan.tolerance,
            progress=lambda made, over: bar.show(None, f"design {made}"),
        )


def _check_is_page(html: Path) -> None:
    if not html.read_bytes()[:15].lower().startswith(b"<!doctype html"):
        raise InputError(f"{html} is no page")
