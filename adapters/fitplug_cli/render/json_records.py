"""JSON records that commands print with --json, with all digits."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from fitplug.counts import Preview
from fitplug.domain import get_codec, list_measures
from fitplug.ledger import Ledger
from fitplug.plan import Plan, describe_public_totals
from fitplug.releases import Release


def compute_rho(plan: Plan) -> float:
    """Compute the rho charged for a person in the plan's unit of privacy, rounded up."""
    from fitplug_opendp.noise_source import compute_charged_rho

    return compute_charged_rho(plan)


def build_plan_record(plan: Plan, delta: float) -> dict[str, Any]:
    """Build the record of a plan."""
    return {
        "plan_digest": plan.digest,
        "unit": plan.unit.to_spec(),
        "publishes_exactly": describe_public_totals(plan) or None,
        "rho": compute_rho(plan),
        "delta": delta,
        "epsilon": plan.epsilon(delta),
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
        **_describe_coverage(plan),
    }


def _describe_coverage(plan: Plan) -> dict[str, Any]:
    """Describe the answers about rows in no table, if the plan has any."""
    if plan.coverage is None:
        return {}
    stds = plan.coverage.upper_variances(plan.noise_std) ** 0.5
    return {"coverage": {"attributes": list(plan.coverage.names), "std": float(stds.max())}}


def build_coverage_record(release: Release, confidence: float) -> dict[str, Any]:
    """Build the record of the rows in no table, with their share of all rows, if counted."""
    rows = []
    for row in release.coverage():
        record = {
            "attribute": row.attribute,
            "rows": row.rows.value,
            "std": row.rows.std,
            "moe": row.rows.moe(confidence),
        }
        if row.share is not None:
            ends = row.share.interval(confidence)
            named = zip(("share", "lower", "upper"), (row.share.value, *ends), strict=True)
            # JSON has no infinities, which stand for a share that nothing is known of.
            record |= {name: end if math.isfinite(end) else None for name, end in named}
        rows.append(record)
    return {"coverage": rows, "coverage_confidence": confidence} if rows else {}


def build_measures_record(plan: Plan) -> dict[str, Any]:
    """Build the record of a plan's measures and of rules no margin of error covers, if any."""
    rules, domain = plan.workload.measure_rules, plan.domain
    if not rules:
        return {}
    measures = list_measures(domain, plan.workload.attributes)
    return {
        "measures": {name: get_codec(domain[name]).spec() for name in measures},
        "measure_rules": list(rules),
    }


def build_preview_record(preview: Preview) -> dict[str, Any]:
    """Build the record of a preview, with the number of rows to one digit."""
    names = ("files", "format", "left_out", "rows_are", "tasks", "threads", "cells", "memory")
    # The exact number of rows is confidential.
    rows = None if preview.rows is None else int(float(f"{preview.rows:.1g}"))
    return {name: getattr(preview, name) for name in names} | {"rows": rows}


def build_ledger_record(ledger: Ledger | None) -> dict[str, Any] | None:
    """Build the record of a ledger's budget in rho; None without a ledger."""
    if ledger is None:
        return None
    return {
        "path": str(ledger.path),
        "total": ledger.total,
        "spent": ledger.spent,
        "remaining": ledger.remaining,
    }
