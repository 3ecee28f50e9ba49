"""The JSON records that commands print with --json, and the costs that every command reports.

Their amounts have all digits.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

from fitplug.counts import Preview
from fitplug.ledger import Ledger
from fitplug.numeric import ceil_float
from fitplug.plan import Plan, describe_public_totals
from fitplug.privacy import epsilon_at


def compute_rho(plan: Plan, records: int | None = None) -> float:
    """Compute the rho that is charged for one person.

    Args:
        plan: The plan.
        records: The number of records of a person, who may have them anywhere; None for a person
            in the plan's unit of privacy.

    Returns:
        The rho, rounded up.
    """
    from fitplug_opendp.noise_source import compute_charged_rho

    return compute_charged_rho(plan, records or plan.structure.changes)


def compute_privacy_cost(plan: Plan, records: int | None = None) -> float:
    """Compute Delta for one person.

    Args:
        plan: The plan.
        records: As for `compute_rho`.

    Returns:
        Delta, rounded up.
    """
    changes = plan.compare_records(records or plan.structure.changes)
    return ceil_float(Fraction(plan.privacy_cost) * changes)


def compute_epsilon(plan: Plan, delta: float, records: int | None = None) -> float:
    """Compute epsilon at a delta for one person.

    Args:
        plan: The plan.
        delta: The delta.
        records: As for `compute_rho`.

    Returns:
        epsilon, rounded up.
    """
    return epsilon_at(compute_privacy_cost(plan, records), delta, plan.noise.loss)


def build_plan_record(plan: Plan, delta: float) -> dict[str, Any]:
    """Build the record of a plan."""
    return {
        "plan_digest": plan.digest,
        "unit": plan.unit.to_spec(),
        "publishes_exactly": describe_public_totals(plan) or None,
        "contributions": plan.unit.choose_records(1),
        "rho": compute_rho(plan),
        "delta": delta,
        "epsilon": compute_epsilon(plan, delta),
        "plan_rho": plan.rho,
        "overstatement": plan.overstatement,
        "plan_rho_exact": str(plan.rho_exact),
        "rho_lower_bound": plan.rho_lower_bound if plan.objective.plain else None,
        "gap": plan.gap,
        "status": plan.status,
        "target_scale": plan.scale,
        "counts_needed": [list(names) for names in plan.tables],
        "groups": [dataclasses.asdict(row) for row in plan.group_rows()],
        **build_measures_record(plan),
    }


def build_measures_record(plan: Plan) -> dict[str, Any]:
    """Build the record of the measures of a plan, and of what no margin of error covers.

    Returns:
        The record, which is empty without measures.
    """
    rules, domain = plan.workload.measure_rules, plan.domain
    if not rules:
        return {}
    measures = [name for name in plan.workload.attributes if domain[name].quantities]
    return {
        "measures": {name: domain[name].spec() for name in measures},
        "measure_rules": list(rules),
    }


def build_preview_record(preview: Preview) -> dict[str, Any]:
    """Build the record of what a count would read; its number of rows has one digit."""
    names = ("files", "format", "left_out", "rows_are", "tasks", "threads", "cells", "memory")
    # The exact number of rows is confidential.
    rows = None if preview.rows is None else int(float(f"{preview.rows:.1g}"))
    return {name: getattr(preview, name) for name in names} | {"rows": rows}


def build_ledger_record(ledger: Ledger | None) -> dict[str, Any] | None:
    """Build the record of a ledger.

    Returns:
        Its budget in rho and what is left; None without a ledger.
    """
    if ledger is None:
        return None
    return {
        "path": str(ledger.path),
        "total": ledger.total,
        "spent": ledger.spent,
        "remaining": ledger.remaining,
    }
