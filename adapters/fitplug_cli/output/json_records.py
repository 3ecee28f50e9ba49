"""The JSON records that commands print with --json; their amounts have all digits."""

from __future__ import annotations

import dataclasses
from typing import Any

from fitplug.ledger import Ledger
from fitplug.plan import Plan, describe_public_totals
from fitplug.privacy import epsilon_at
from fitplug_cli import person_costs


def build_plan_record(plan: Plan, delta: float) -> dict[str, Any]:
    """Build the record of a plan.

    Args:
        plan: The plan.
        delta: The delta at which epsilon is given.

    Returns:
        The record.
    """
    cost = person_costs.compute_privacy_cost(plan)
    return {
        "plan_digest": plan.digest,
        "unit": plan.unit.to_spec(),
        "publishes_exactly": describe_public_totals(plan) or None,
        "contributions": plan.unit.choose_records(1),
        "rho": person_costs.compute_rho(plan),
        "privacy_cost": cost,
        "delta": delta,
        "epsilon_zcdp": epsilon_at(cost, delta, "zcdp"),
        "epsilon_gaussian_curve": epsilon_at(cost, delta),
        "plan_rho": plan.rho,
        "overstatement": plan.overstatement,
        "plan_rho_exact": str(plan.rho_exact),
        "plan_privacy_cost": plan.privacy_cost,
        "lower_bound": plan.lower_bound,
        "certified_gap": plan.gap,
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


def build_ledger_record(ledger: Ledger | None) -> dict[str, Any] | None:
    """Build the record of a ledger.

    Args:
        ledger: The ledger, if there is one.

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
