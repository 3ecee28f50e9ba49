"""Records: what commands print with --json, for machines; amounts with all digits."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fitplug.ledger import Ledger
from fitplug.plan import Plan
from fitplug.privacy import epsilon_at
from fitplug_cli import costs

if TYPE_CHECKING:
    from fitplug.plan import Relaxation
    from fitplug_cli.reporting.facts import Facts


def printed(record: Mapping[str, Any]) -> None:
    """Print a record on the standard output."""
    json.dump(record, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def of_plan(plan: Plan, contributions: int, delta: float) -> dict[str, Any]:
    """A plan; rho, Delta and epsilon for all records of one person."""
    cost = costs.privacy_cost(plan, contributions)
    return {
        "plan_digest": plan.digest,
        "contributions": contributions,
        "rho": costs.rho(plan, contributions),
        "privacy_cost": cost,
        "delta": delta,
        "epsilon_zcdp": epsilon_at(cost, delta, "zcdp"),
        "epsilon_gaussian_curve": epsilon_at(cost, delta),
        "plan_rho": plan.rho,
        "plan_rho_exact": str(plan.rho_exact),
        "plan_privacy_cost": plan.privacy_cost,
        "lower_bound": plan.lower_bound,
        "certified_gap": plan.gap,
        "status": plan.status,
        "target_scale": plan.scale,
        "counts_needed": [list(names) for names in plan.tables],
        "groups": [dataclasses.asdict(row) for row in plan.group_rows()],
    }


def of_report(facts: Facts, relaxation: Relaxation | None) -> dict[str, Any]:
    """Everything that a report shows."""
    from fitplug_cli.reporting.facts import DELTAS

    record = of_plan(facts.plan, facts.contributions, facts.delta)
    cost = facts.profile
    return record | {
        "groups": [
            {
                ("saves_at_most" if key == "saves" else key): value
                for key, value in dataclasses.asdict(group).items()
            }
            for group in facts.groups
        ],
        "curve": [
            {
                "delta": delta,
                "epsilon_zcdp": facts.epsilon(delta),
                "epsilon_gaussian_curve": facts.epsilon(delta, proven=False),
            }
            for delta in DELTAS
        ],
        "limits": [dataclasses.asdict(limit) for limit in facts.limits],
        "limited": facts.limited,
        "profile": {
            "cells": len(cost),
            "least_share_of_rho": float(cost[-1]),
            "mean_share_of_rho": float(cost.mean()),
        },
        "free": [dataclasses.asdict(free) for free in facts.free],
        "usual_mechanisms": [dataclasses.asdict(usual) for usual in facts.usual],
        "relaxation": None
        if relaxation is None
        else {"proportional": relaxation.proportional, "groups": dict(relaxation.groups)},
    }


def of_ledger(ledger: Ledger | None) -> dict[str, Any] | None:
    """What a ledger has left."""
    if ledger is None:
        return None
    return {
        "path": str(ledger.path),
        "total": ledger.total,
        "spent": ledger.spent,
        "remaining": ledger.remaining,
    }
