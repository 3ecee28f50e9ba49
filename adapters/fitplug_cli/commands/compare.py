"""`fitplug compare`: two plans side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from fitplug.display import format_delta, format_percent_up, format_up
from fitplug.errors import DesignError
from fitplug.plan import GroupRow, Plan, price_groups
from fitplug.privacy import check_delta
from fitplug.releases import choose_intervals
from fitplug_cli.commands.design import find_plan
from fitplug_cli.options import JsonOption, QuietOption
from fitplug_cli.render import (
    build_plan_record,
    print_facts,
    print_json,
    print_table,
    set_up_output,
    warn,
)
from fitplug_cli.render.json_records import compute_rho


def compare(
    first_file: Annotated[
        Path, typer.Argument(help="Spec, plan file or folder of a release.", metavar="A")
    ],
    second_file: Annotated[
        Path, typer.Argument(help="Another spec, plan file or folder.", metavar="B")
    ],
    delta: Annotated[
        float, typer.Option("--delta", help="Delta at which epsilon is reported.")
    ] = 1e-9,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the costs and margins of error of two specs, plans or releases. No data is read."""
    set_up_output(quiet=quiet, as_json=as_json)
    check_delta(delta)
    plans = [find_plan(path)[0] for path in (first_file, second_file)]
    if plans[0].bound_unit != plans[1].bound_unit:
        warn("The plans protect different units of privacy, so their rho cannot be compared.")
    if as_json:
        first, second = (build_plan_record(plan, delta) | _list_prices(plan) for plan in plans)
        print_json({"a": first, "b": second, "rho_ratio": second["rho"] / first["rho"]})
        return
    units = list(dict.fromkeys(str(plan.unit) for plan in plans))
    print_facts(("A", str(first_file)), ("B", str(second_file)), ("unit", "; ".join(units)))
    _print_costs(plans, delta)
    _print_groups(plans)


def _list_prices(plan: Plan) -> dict[str, Any]:
    """List the price of each group's targets; empty for a plan without prices."""
    try:
        return {"prices": dict(price_groups(plan))}
    except DesignError:
        return {"prices": {}}


def _print_costs(plans: list[Plan], delta: float) -> None:
    table = Table("", "A", "B", "B / A", box=None)
    rho = [compute_rho(plan) for plan in plans]
    epsilon = [plan.epsilon(delta) for plan in plans]
    table.add_row("rho", *map(format_up, rho), f"{rho[1] / rho[0]:.3g}")
    ratio = f"{epsilon[1] / epsilon[0]:.3g}"
    label = f"epsilon at delta {format_delta(delta)}"
    table.add_row(label, *map(format_up, epsilon), ratio)
    table.add_row(
        "above the least rho by at most", *(format_percent_up(plan.gap) for plan in plans)
    )
    print_table(table)


def _print_groups(plans: list[Plan]) -> None:
    """Print a row for each group of each plan, groups of the same name together."""
    table = Table("group", "plan", "queries", "target", "largest margin", "% of rho", box=None)
    rows = [{row.name: row for row in plan.group_rows()} for plan in plans]
    prices = [_list_prices(plan)["prices"] for plan in plans]
    for name in dict.fromkeys([*rows[0], *rows[1]]):
        shown = name
        for letter, plan, groups, priced in zip("AB", plans, rows, prices, strict=True):
            if name not in groups:
                table.add_row(shown, letter, "-", "-", "-", "-")
            else:
                row = groups[name]
                price = f"{priced[name]:.1%}" if name in priced else "-"
                margin = _format_margin(plan, row)
                table.add_row(shown, letter, f"{row.queries:,}", row.target, margin, price)
            shown = ""
    print_table(table)


def _format_margin(plan: Plan, row: GroupRow) -> str:
    """Format the largest margin of error of a group, at the confidence of its table."""
    group = plan.workload[row.name]
    kind = choose_intervals(group, None)
    moe = float(kind.compute_moe(group, np.asarray(row.largest_std)))
    return f"{format_up(moe, 4)} at {100 * kind.confidence:g}%"
