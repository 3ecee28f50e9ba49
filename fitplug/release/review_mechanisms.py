"""The section of a review on the implementation: preprocessing, mechanisms and justification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fitplug.display import format_down, format_up
from fitplug.families import Mechanism
from fitplug.release.about import About, ask_publisher
from fitplug.release.release import Release
from fitplug.release.review_markdown import escape_cell, make_table, split_rows
from fitplug.release.review_privacy import describe_apart
from fitplug.workload import ONE_RECORD


def describe_implementation(
    release: Release, about: About, versions: Mapping[str, str], compiled: Mapping[str, bool]
) -> dict[str, str]:
    """Describe what ran, on which data, and why."""
    return {
        "preprocessing_and_hyperparameter_tuning": _describe_preprocessing(release, about),
        "mechanisms": _describe_mechanisms(release, versions, compiled),
        "justification": _justify(release),
    }


def _describe_preprocessing(release: Release, about: About) -> str:
    """Describe what was done with the rows before they were counted."""
    most, unit = release.most_records, about.unit
    apart = describe_apart(release.plan)
    apart += "," if apart else ""
    kept = (
        f"Of each {unit}, at most {most} row(s){apart} are kept, chosen by "
        f"a keyed hash of the {unit}'s own rows; the others are in no count. "
        if release.limited == "enforced"
        else ""
    )
    rules = release.plan.workload.measure_rules
    values = f"\n\n{escape_cell(' '.join(rules))}\n\n" if rules else " "
    return (
        f"{about.preprocessing or ask_publisher('preprocessing')}\n\n"
        f"{_describe_rows(release)}{kept}Records outside the domain are left out.{values}The noise "
        "was fitted to the targets alone, before any row was read: nothing is tuned on the data."
    )


def _describe_rows(release: Release) -> str:
    """Describe how rows were understood, if they were weighted or filtered."""
    if release.rows is None:
        return ""
    return f"How rows were read: {escape_cell(release.rows)}. "


def _describe_mechanisms(
    release: Release, versions: Mapping[str, str], compiled: Mapping[str, bool]
) -> str:
    """Describe the mechanisms in a table, and what protects them in practice."""
    # The costliest mechanisms come first; equal ones stay in order.
    found = sorted(release.plan.mechanisms(), key=lambda m: -m.rho)
    shown, rest = split_rows(found)
    scale = release.noise_scale
    rows = [
        (
            escape_cell(m.name),
            m.kind,
            f"{m.dimension:,}",
            format_up(m.sensitivity),
            format_down(m.sigma * scale),
            format_up(m.rho / scale**2),
        )
        for m in shown
    ]
    is_of_record = release.plan.unit == ONE_RECORD
    whose = "one record" if is_of_record else "one person"
    changed = "one record added or removed" if is_of_record else str(release.plan.unit)
    columns = (
        "answers about",
        "mechanism",
        "answers",
        "L2 sensitivity",
        "sigma",
        f"rho, {whose}",
    )
    library = f"OpenDP {versions['opendp']}" if "opendp" in versions else "OpenDP"
    return "\n\n".join(
        [
            make_table(columns, rows) + _describe_rest(rest, scale),
            f"Sensitivity is to {changed}; sigma is in the same unit, the "
            f"integer answers before they are scaled back to counts.{_describe_shares(release)}",
            f"Noise is drawn once, by the discrete Gaussian sampler of {library}.",
            "**Floating point.** Counts, answers and noise are integers, and the sampler is exact: "
            "no floating-point number comes before the noise. rho is a rational number, and what "
            "is shown of it is rounded up. Estimates are computed in floating point from the noisy "
            "answers.",
            "**Timing and platform.** Not protected: run it where only the publisher can observe "
            "it. Publish what it writes, not how long it took.",
            *_describe_software(versions, compiled),
        ]
    )


def _describe_software(versions: Mapping[str, str], compiled: Mapping[str, bool]) -> list[str]:
    """Describe the software that ran, in no sentence or in one paragraph."""
    said = []
    if versions:
        said.append(f"{', '.join(f'{name} {version}' for name, version in versions.items())}.")
    for state, is_so in (("Compiled", True), ("Not compiled", False)):
        modules = [escape_cell(module) for module, value in compiled.items() if value is is_so]
        if modules:
            said.append(f"{state}: {', '.join(modules)}.")
    return [f"**Software.** {' '.join(said)}"] if said else []


def _describe_shares(release: Release) -> str:
    """Say what integer answers count if the plan has measures."""
    shares = release.plan.structure.shares
    if shares == 1:
        return ""
    return (
        f" They count {shares:,} shares of each record, which measures divide between their "
        "bounds; no value between the bounds costs more than one of them."
    )


def _describe_rest(rest: Sequence[Mechanism], scale: float) -> str:
    """Say what the mechanisms cost that are not in the table."""
    if not rest:
        return ""
    together = sum(m.rho for m in rest) / scale**2
    return f"\n\nand {len(rest):,} more, which have rho = {format_up(together)} together."


def _justify(release: Release) -> str:
    """Say why the noise is as it is: the targets, and how far the cost is above the bound."""
    plan, scale = release.plan, release.noise_scale
    rows = [
        (
            escape_cell(row.name),
            f"{row.queries:,}",
            row.target,
            format_up(row.largest_std * scale, 4),
            f"{format_up(100 * row.used * scale**2, 4)} %",
        )
        for row in plan.group_rows()
    ]
    shown, rest = split_rows(rows)
    table = make_table(
        ("queries", "number", "target", "largest std", "variance over target"), shown
    )
    more = f"\n\nand {len(rest):,} more." if rest else ""
    is_least = plan.objective.plain and plan.gap <= plan.tolerance
    if plan.scale == 1.0:
        at_least_cost = " at the least privacy cost" if is_least else ""
        how = (
            "The publisher said how accurate each answer must be to be fit for use, and the plan's "
            f"noise meets every target{at_least_cost}."
        )
    else:
        end = "the least that the budget allows" if is_least else "so that the plan fits the budget"
        how = (
            "The publisher gave the budget, and the accuracy wanted of each answer: all target "
            f"variances were scaled by {format_up(plan.scale)}, {end}."
        )
    if scale != 1.0:
        how += (
            " Here the standard deviation of the plan's noise was multiplied by "
            f"{format_up(scale)}."
        )
    minimised = (
        "The plan's privacy cost Delta (rho = Delta^2 / 2)"
        if plan.objective.plain
        else "The objective that the design minimised"
    )
    return (
        f"{how} {minimised} is at most {format_up(100 * plan.gap, 2)} % above a bound that no "
        "mechanism with Gaussian noise can go below, which is certified: "
        f"{plan.certificate}.\n\n{table}{more}"
    )
