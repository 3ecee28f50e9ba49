"""The report of a plan as a JSON record, with all digits."""

from __future__ import annotations

import dataclasses
from typing import Any

from fitplug.plan import Relaxation
from fitplug_cli.output import build_plan_record
from fitplug_cli.reporting.facts import DELTAS, Facts


def build_report_record(facts: Facts, relaxation: Relaxation | None) -> dict[str, Any]:
    """Build the record of everything that a report shows.

    Args:
        facts: The facts of the plan.
        relaxation: How to relax the targets, if the report says so.

    Returns:
        The record.
    """
    record = build_plan_record(facts.plan, facts.delta)
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
        "free": [dataclasses.asdict(free) for free in facts.free_counts],
        "usual_mechanisms": [dataclasses.asdict(usual) for usual in facts.usual_mechanisms],
        "relaxation": None
        if relaxation is None
        else {"proportional": relaxation.proportional, "groups": dict(relaxation.groups)},
    }
