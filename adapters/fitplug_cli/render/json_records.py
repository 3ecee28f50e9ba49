"""JSON records that commands print with --json, with all digits."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from typing import Any

from fitplug.counts import Preview
from fitplug.files import Place
from fitplug.ledger import Ledger
from fitplug.plan import Plan, describe_public_totals
from fitplug.releases import RECORD


def compute_rho(plan: Plan) -> float:
    """Compute the rho charged for a person in the plan's unit of privacy, rounded up."""
    from fitplug_opendp.noise_source import compute_charged_rho

    return compute_charged_rho(plan)


def build_plan_record(plan: Plan, delta: float) -> dict[str, Any]:
    """Build the record of a plan."""
    from fitplug_opendp.release_files import build_measures_record

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
    """Describe the answers about rows outside the domain, if the plan has any."""
    if plan.coverage is None:
        return {}
    stds = plan.coverage.upper_variances(plan.noise_std) ** 0.5
    return {"coverage": {"attributes": list(plan.coverage.names), "std": float(stds.max())}}


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


def read_release_record(folder: Place) -> dict[str, Any]:
    """Read release.json of a release.

    Returns:
        Its content and the folder; only the folder if there is no readable file.
    """
    record: Any = None
    with suppress(OSError, ValueError):
        record = json.loads(folder.read(RECORD))
    return {"folder": str(folder), **(record if isinstance(record, dict) else {})}
