"""The steps of a release: design, count, draw and write. Each command is some of them."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

from fitplug.design import design as design_plan
from fitplug.errors import InputError, OverBudget
from fitplug.ledger import Ledger
from fitplug.plan import Plan
from fitplug.planfile import describe, digest
from fitplug.rounding import floor_float
from fitplug.tables import Tables
from fitplug_cli import countsfile, output, show
from fitplug_cli.spec import Spec


def design(spec: Spec) -> Plan:
    """The plan for a spec. Raises OverBudget if the targets cost more than max_rho."""
    square = spec.data.contributions**2
    rho = spec.privacy.rho
    if rho is not None and square > 1:
        # Below rho / k^2 by more than OpenDP's map for k records rounds up by.
        rho = floor_float(Fraction(rho) / square * (1 - Fraction(1, 2**49)))
    with show.bar("design") as bar:
        start: list[float] = []

        def progress(iteration: int, gap: float) -> None:
            wanted = spec.design.tolerance
            start.append(gap)
            span = math.log(max(start[0], 2 * wanted) / wanted)
            share = 1 - math.log(max(gap, wanted) / wanted) / span
            bar.show(min(max(share, 0.0), 1.0), f"iteration {iteration}, gap {gap:.1e}")

        plan = design_plan(
            spec.workload,
            rho=rho,
            tolerance=spec.design.tolerance,
            max_iterations=spec.design.max_iterations,
            progress=progress,
        )
    most = spec.privacy.max_rho
    needed = plan.rho * square
    if most is not None and needed > most:
        raise OverBudget(
            f"{spec.path}: the targets cost rho = {needed:.6g}, more than max_rho = {most:g}; "
            f"multiply every std and moe by {math.sqrt(needed / most):.4g}, or raise max_rho",
            requested=needed,
            remaining=most,
        )
    return plan


def saved_plan(spec: Spec, path: Path) -> Plan:
    """A plan from a file. Raises PlanError, and InputError if it was designed for another spec."""
    plan = Plan.load(path)
    plan.verify()
    basis = plan.strategy.basis
    if digest(*describe(plan.workload, basis)) != digest(*describe(spec.workload, basis)):
        raise InputError(f"{path}: this plan was designed for another spec than {spec.path}")
    return plan


def count(spec: Spec, plan: Plan) -> Tables:
    """The exact tables the plan needs. Raises DataError."""
    import fitplug_dask

    with show.bar("count") as bar:
        return fitplug_dask.count(
            spec.source, plan, progress=lambda done, rows: bar.show(done / rows if rows else 1.0)
        )


def counted(path: Path) -> Tables:
    """The exact tables that `fitplug count` wrote. Raises TablesError."""
    return countsfile.read(path)


def release(spec: Spec, plan: Plan, tables: Tables) -> None:
    """Charge, draw, write. Everything that can be refused is refused before the charge."""
    import fitplug_opendp

    for names in plan.tables:
        tables.marginal(names)
    with output.folder(spec.output_dir, plan) as folder:
        ledger = None
        if spec.ledger is not None:
            ledger = Ledger(spec.resolve(spec.ledger.path), rho=spec.ledger.rho)
        with show.bar("draw"):
            drawn = fitplug_opendp.release(
                plan,
                tables,
                contributions=spec.data.contributions,
                ledger=ledger,
                what=f"{spec.path.name}: {', '.join(spec.workload.names)}",
            )
        earlier = folder.finish(drawn, spec.output.confidence, spec.privacy.delta)
    if ledger is not None:
        show.charged(ledger, drawn.rho)
    show.released(drawn, spec.output_dir, earlier)


def check_budget(spec: Spec, plan: Plan) -> None:
    """Refuse early, before rows are read, what the ledger would refuse. Raises OverBudget."""
    if spec.ledger is None:
        return
    needed = plan.rho * spec.data.contributions**2
    path = spec.resolve(spec.ledger.path)
    if path.exists():
        Ledger(path, rho=spec.ledger.rho).check(needed)
    elif needed > spec.ledger.rho:
        raise OverBudget(
            f"{spec.path}: the release costs rho = {needed:.6g}, more than the whole budget of "
            f"{spec.ledger.rho:g}",
            requested=needed,
            remaining=spec.ledger.rho,
        )
