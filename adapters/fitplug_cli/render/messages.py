"""Printed messages about plans, previews, charges and releases."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Column, Table

from fitplug.counts import describe_rows, make_filters
from fitplug.display import format_down, format_std_range, format_up
from fitplug.files import LocalPlace
from fitplug.ledger import Ledger
from fitplug.numeric import ceil_float
from fitplug.plan import (
    Plan,
    describe_cost,
    describe_overstatement,
    describe_public_totals,
    describe_weakness,
    has_sums,
)
from fitplug.releases import (
    Limited,
    Ratio,
    Release,
    describe_assumption,
    describe_rows_outside,
    name_population,
)
from fitplug.workload import DEFAULT_CONFIDENCE, Workload, allows_any_rows, list_measure_rules
from fitplug_cli.render.console import out, print_facts, print_table, warn
from fitplug_cli.render.json_records import build_preview_record, read_release_record
from fitplug_opendp.csv_tables import neutralise

if TYPE_CHECKING:
    from fitplug.counts import Preview
    from fitplug_cli.spec import Spec
    from fitplug_opendp.folder_release import PublishedRelease
    from fitplug_opendp.release_request import ReleaseState

_MOST_VALUES = 3
"""A message names at most this many values or labels."""


def print_plan(plan: Plan, delta: float, spec: Spec | None = None, *, full: bool = False) -> None:
    """Print what a plan costs and what each group of queries gets.

    Args:
        plan: The plan.
        delta: The delta at which epsilon is shown.
        spec: The spec that the plan is for, if there is one.
        full: Whether to also print how rho adds up and which counts are needed.
    """
    if weakness := describe_weakness(plan, delta):
        warn(weakness)
    if plan.gap > plan.tolerance:
        warn(plan.status)
    facts = [("privacy cost", describe_cost(plan, delta)), ("unit", str(plan.unit))]
    facts += [("", text) for text in (describe_public_totals(plan), describe_overstatement(plan))]
    if plan.scale != 1.0:
        facts.append(("budget", f"all target variances multiplied by {format_up(plan.scale)}"))
    if full:
        facts += _list_details(plan)
    print_facts(*(fact for fact in facts if fact[1]))
    _print_groups(plan)
    print_facts(
        describe_not_counted(plan), *_advise_not_counted(plan, spec), *describe_coverage(plan)
    )
    for rule in list_measure_rules(plan.workload):
        out.print(rule)


def describe_not_counted(plan: Plan, limited: Limited | None = None) -> tuple[str, str]:
    """Describe by rule which rows are not counted, as a fact; see `describe_rows_outside`."""
    nothing = "no rows: every attribute in use has a cell for other values"
    return "not counted", describe_rows_outside(plan, limited) or nothing


def _advise_not_counted(plan: Plan, spec: Spec | None) -> list[tuple[str, str]]:
    """Advise how to count the rows that a plan leaves out, as a fact without a label.

    The attribute of a series' periods cannot have `other`. A series has no coverage, and neither
    has a count by person.
    """
    if not describe_rows_outside(plan):
        return []
    advice = 'To count them, set other = "missing" in [domain]'
    periods = None if spec is None else spec.design.periods
    if periods is not None:
        advice += f" (not possible for {periods})"
    by_person = spec is not None and spec.data.person is not None
    if plan.coverage is None and allows_any_rows(plan.unit) and periods is None and not by_person:
        advice += "; to estimate how many, set coverage = true in [design]"
    return [("", f"{advice}.")]


def describe_coverage(plan: Plan) -> list[tuple[str, str]]:
    """Describe how accurately rows outside the domain are counted, if they are."""
    if plan.coverage is None:
        return []
    std = float(plan.coverage.upper_variances(plan.noise_std).max()) ** 0.5
    return [
        (
            "coverage",
            f"estimates the rows not counted, by attribute (std {std:.4g}), at no further cost",
        )
    ]


def print_coverage(release: Release, confidence: float = DEFAULT_CONFIDENCE) -> None:
    """Print how many rows are not counted, by attribute, if the release has coverage."""
    rows = release.coverage()
    if not rows:
        return
    table = Table(
        "outside the domain of",
        *(Column(name, justify="right") for name in ("rows", "moe", "share of all", "moe")),
        title=f"rows not counted ({100 * confidence:g}% margins of error)",
        title_justify="left",
        title_style="bold",
        box=None,
    )
    for row in rows if len(rows) > 2 else rows[:1]:
        moe = row.rows.moe(confidence)
        shares = ["unknown", ""] if row.share is None else _format_share(row.share, confidence)
        name = row.attribute or "any attribute"
        table.add_row(name, f"{row.rows.value + 0.0:,.0f}", f"{moe:,.1f}", *shares)
    print_table(table)


def _format_share(share: Ratio, confidence: float) -> list[str]:
    """Format a share and its margin of error in percent, with two digits of the margin."""
    moe = 100 * share.moe(confidence)
    if not (math.isfinite(moe) and math.isfinite(share.value)):
        return ["unknown", ""]
    decimals = min(max(1 - math.floor(math.log10(moe)), 0), 6)
    return [f"{100 * share.value + 0.0:.{decimals}f}%", f"{moe:.{decimals}f}%"]


def _list_details(plan: Plan) -> list[tuple[str, str]]:
    """List how rho adds up over a person's rows, the lower bound, and the counts needed."""
    details = []
    if (k := plan.strategy.structure.changes) > 1:
        rho_of_record = ceil_float(plan.rho_exact * plan.strategy.structure.compare_records(1) ** 2)
        details.append(("", f"{k:,} rows per person cost {k**2:,} x {format_up(rho_of_record)}"))
    cost = f"rho = {format_up(plan.rho, 6)}; " if plan.objective.plain else ""
    details.append(("optimality", cost + plan.certificate))
    counts = ", ".join(" x ".join(names) or "total" for names in plan.tables)
    return [*details, ("counts", counts)]


def _print_groups(plan: Plan) -> None:
    """Print a table of the groups with their targets and achieved stds."""
    listed = plan.group_rows()
    quantity = ["quantity"] if has_sums(listed) else []
    table = Table("group", "queries", *quantity, "target", "achieved std", "% of target", box=None)
    for row in listed:
        quantities = [row.quantity] if quantity else []
        spread = format_std_range(row.smallest_std, row.largest_std)
        ratio = f"{row.std_ratio:.1%}"
        table.add_row(row.name, f"{row.queries:,}", *quantities, row.target, spread, ratio)
    print_table(table)


def print_row_rules(spec: Spec) -> None:
    """Print how rows are weighted and filtered, if they are."""
    data = spec.data
    rules = describe_rows(data.weight, make_filters(data.where), _MOST_VALUES)
    if rules is not None:
        print_facts(("rows counted", rules))


def print_preview(preview: Preview, plan: Plan) -> None:
    """Print what a count would read and how much memory it would need."""
    rows = "unknown before reading"
    if (rounded := build_preview_record(preview)["rows"]) is not None:
        rows = f"about {rounded:,} (from the files' footers)"
    files = f"{preview.files:,} {preview.format}"
    if preview.left_out:
        files += f"; {preview.left_out:,} more in folders that the filter 'where' excludes"
    print_facts(
        ("files", files),
        ("rows", rows),
        ("rows counted", preview.rows_are),
        ("tasks", f"{preview.tasks:,} on {preview.threads:,} threads"),
        ("cells", f"{preview.cells:,} in the tables to count"),
        ("memory", f"about {preview.memory / 2**30:.1f} GiB"),
    )
    if public := describe_public_totals(plan):
        out.print(public)
    if preview.counts:
        names = " or ".join(f"weight = {json.dumps(n, ensure_ascii=False)}" for n in preview.counts)
        out.print(
            f"If each row stands for several people, set [data] {names}. A survey's sampling "
            "weight must not be set here: each row of a survey is one person."
        )
    out.print("Nothing was counted or charged.")


def warn_of_release(spec: Spec, plan: Plan) -> None:
    """Warn of formulas in the tables of a release.

    Releases in parts have no CSV tables that a spreadsheet would open.
    """
    if not (spec.output.is_in_parts(plan) or spec.output.spreadsheet_safe):
        warn_of_formulas(spec.workload)


def warn_of_formulas(workload: Workload) -> None:
    """Warn of labels that spreadsheets may run as formulas."""
    warning = find_formula_warning(workload)
    if warning is not None:
        warn(warning)


def find_formula_warning(workload: Workload) -> str | None:
    """Warn of names and labels of a workload's tables that spreadsheets may run as formulas.

    Labels come from the domain and are public.

    Returns:
        The warning; None if there is nothing to warn of.
    """
    by_attribute: dict[str, list[str]] = {}
    for group in workload.groups:
        for factor in group.factors:
            texts = (factor.attribute, *factor.labels(workload.domain[factor.attribute]))
            formulas = by_attribute.setdefault(factor.attribute, [])
            formulas += [
                text
                for text in texts
                if isinstance(text, str) and neutralise(text) != text and text not in formulas
            ]
    named = [f"{name!r} ({_name_some(texts)})" for name, texts in by_attribute.items() if texts]
    if not named:
        return None
    shown = ", ".join(named[:_MOST_VALUES]) + (", ..." if len(named) > _MOST_VALUES else "")
    return (
        f"Spreadsheets may run labels of {shown} in the CSV tables as formulas. Set [output] "
        "spreadsheet_safe = true to put an apostrophe before them."
    )


def _name_some(texts: list[str]) -> str:
    """List the first few texts and the number of others."""
    more = len(texts) - _MOST_VALUES
    named = ", ".join(map(repr, texts[:_MOST_VALUES]))
    return named if more <= 0 else f"{named} and {more:,} more"


def print_release(
    published: PublishedRelease, ledger: Ledger | None, directory: Path | str, state: ReleaseState
) -> None:
    """Print what a release assumes about people, its charge, and its folder.

    Args:
        published: The release and its folder.
        ledger: The ledger; None if the spec says `ledger = false`.
        directory: The folder that the spec names.
        state: The state of this release before the run.
    """
    release = published.release
    if state == "published":
        text = f"{published.output} (already done; nothing was charged or drawn)"
        print_facts(("release", text))
        return
    answers = f"{release.plan.workload.query_count:,} answers"
    if state == "drawn":
        answers += ", drawn by an earlier run; the data was not counted again"
    print_facts(
        ("people", describe_people(release)),
        *_describe_charge(ledger, release, state),
        ("release", f"{directory} ({answers})"),
    )
    print_coverage(release)
    if release.public_totals is not None:
        out.print(f"{describe_public_totals(release.plan)} See public_totals in release.json.")
    if published.earlier is not None:
        print_facts(("", f"the earlier release is now {published.earlier}"))
        earlier = read_release_record(LocalPlace(published.earlier))
        if "rho" in earlier and earlier.get("ledger_entry") is None:
            warn(
                f"The earlier release cost rho = {format_up(earlier['rho'])}, which no ledger "
                "records. Enter this cost with Ledger.charge in Python."
            )


def describe_people(release: Release) -> str:
    """Describe what a release assumes about people's rows, or which of them it counts."""
    most, apart = release.plan.unit.records, release.plan.bound_unit.apart
    if release.limited == "enforced":
        return f"the tables count {name_population(most, 'enforced', apart)}, not all rows"
    return describe_assumption(most, apart=apart, rows=release.rows)


def _describe_charge(
    ledger: Ledger | None, release: Release, state: ReleaseState
) -> list[tuple[str, str]]:
    """Describe the charge of a release and what the ledger has left."""
    if ledger is None:
        charge = f"none (ledger = false): rho = {format_up(release.rho)} was not charged"
        return [("ledger", charge)]
    entry = release.entry
    assert entry is not None
    charge = f"rho = {format_up(ceil_float(entry.rho))} charged"
    if entry.covered_by is not None:
        charge = f"covered by charge {entry.covered_by}"
    if state != "new":
        charge += f" earlier (charge {entry.id}), nothing more now"
    new = " (new)" if state == "new" and len(ledger.entries()) == 1 else ""
    left = f"{format_down(ledger.remaining)} of {format_down(ledger.total, 6)} left"
    return [("ledger", f"{ledger.path}{new}: {charge}, {left}")]
