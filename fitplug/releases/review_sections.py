"""The sections of a review: data domain, privacy loss, composition and mechanisms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from fitplug.display import format_delta, format_down, format_up
from fitplug.domain import Attribute, Domain, get_codec
from fitplug.families import Mechanism
from fitplug.ledger import Budget, Entry
from fitplug.numeric import ceil_float, ceil_written, floor_written
from fitplug.plan import Plan, describe_gap, describe_overstatement
from fitplug.releases.noisy_answers import (
    describe_assumption,
    describe_population,
    describe_rows_outside,
)
from fitplug.releases.release import Release
from fitplug.releases.review_texts import About, ask_publisher, escape_cell, make_table, split_rows
from fitplug.workload import ONE_RECORD, ReplaceOne, count_changes, list_measure_rules


def describe_variant(plan: Plan) -> dict[str, Any]:
    """Describe the variant of differential privacy, and the data that it is about."""
    return {
        "variant_name": "Zero-concentrated DP",
        "data_domain": _describe_domain(plan),
        "unprotected_quantities": _describe_unprotected(plan),
    }


def describe_loss(release: Release, unit: str, delta: float) -> dict[str, Any]:
    """Describe who is protected, and how much it costs in rho and in epsilon at a delta."""
    k = count_changes(release.plan.unit)
    one = ceil_float(_compute_record_rho(release))
    epsilon = release.epsilon(delta)
    most, apart = release.plan.unit.records, describe_apart(release.plan)
    records = "one row" if most == 1 else f"{most:,} rows"
    limit = (
        f"Counting kept at most {records} per {unit}{apart}; further rows were left out before "
        "counting."
        if release.limited == "enforced"
        else describe_assumption(most, unit, apart, release.rows)
    )
    overstated = describe_overstatement(release.plan)
    overstated = f" {overstated[0].upper()}{overstated[1:]}" if overstated else ""
    per_record = "" if k == 1 else f", {k}^2 times the rho of one row, {format_up(one, 6)}"
    return {
        "privacy_unit": unit,
        "privacy_unit_details": f"{_describe_adjacent(release.plan, unit)} {limit}",
        "privacy_parameters": {"epsilon": epsilon, "delta": delta, "rho": release.rho},
        "privacy_parameters_details": f"rho = {format_up(release.rho, 6)} of zero-concentrated "
        f"differential privacy{per_record}. It is a rational number, computed from the "
        "integer matrix and "
        "the standard deviation of the noise that was drawn, and rounded "
        f"up.{overstated}\n\nAt delta = {format_delta(delta)}, epsilon = {format_up(epsilon, 6)}, "
        "by the exact curve of the Gaussian mechanism, proven for the discrete noise that was "
        "drawn.",
    }


_DISPLAY = (
    "\n\nDisplay tables are published too: numbers without negative counts that agree with each "
    "other, computed from the same answers. They are biased. Their intervals are those of the "
    "unbiased estimates, without impossible values such as negative counts."
)


def describe_accounting(
    release: Release,
    unit: str,
    statement: tuple[Budget, tuple[Entry, ...]] | None,
    *,
    display: bool,
) -> dict[str, Any]:
    """Describe post-processing and composition, with a ledger's budget and entries if given."""
    return {
        "post_processing": "Estimates are fixed linear combinations of the noisy answers. "
        "They are unbiased for the rows that were counted: not clipped at zero, not rounded "
        "and not adjusted to "
        "other figures. Their standard deviations come from the plan and cover the noise "
        "alone.\n\n"
        + describe_population(
            release.plan.unit.records,
            release.limited,
            unit,
            release.outside,
            describe_apart(release.plan),
            release.rows,
        )
        + _describe_sums(release.plan)
        + (_DISPLAY if display else ""),
        "composition": _describe_composition(release, statement),
    }


def _describe_sums(plan: Plan) -> str:
    """State that sums are of clamped and rounded values; empty without measures."""
    if not list_measure_rules(plan.workload):
        return ""
    return (
        "\n\nSums are of values that were clamped to public bounds and rounded. No standard "
        "deviation and no interval covers the effect of clamping and rounding."
    )


def describe_apart(plan: Plan) -> str:
    """Describe how the rows of one person differ in a plan's unit, in words after their number."""
    return escape_cell(plan.bound_unit.apart)


def _compute_record_rho(release: Release) -> Fraction:
    """Compute the exact cost of a release for one row, in rho of zCDP."""
    in_unit = release.plan.strategy.compute_rho(release.noise_std)
    return in_unit * release.plan.strategy.structure.compare_records(1) ** 2


def _describe_unprotected(plan: Plan) -> str:
    """Describe what is released without protection."""
    made = (
        "The plan, with all costs and variances, depends only on the domain, the queries and their "
        "targets. It was made before any row was read."
    )
    names = plan.strategy.structure.public_attributes
    if names is None:
        return f"None, not even the number of rows. {made}"
    which = f" in each cell of {' and '.join(map(escape_cell, names))}" if names else ""
    return (
        f"The number of counted rows{which} is released exactly, without noise, because it is the "
        f"same in adjacent data sets. Nothing else is released unprotected. {made}"
    )


def _describe_adjacent(plan: Plan, unit: str) -> str:
    """Describe which data sets are adjacent."""
    any_value = ""
    if list_measure_rules(plan.workload):
        any_value = (
            " These rows may have any values, of measures too: a value costs at most as much as "
            "the costliest value within the bounds."
        )
    if isinstance(plan.unit, ReplaceOne):
        names = plan.strategy.structure.public_attributes
        fixed = f", which keep their {' and '.join(map(escape_cell, names))}" if names else ""
        return (
            f"Adjacent data sets differ in the values of all rows of one {unit}{fixed}; the number "
            f"of rows is the same (change-one distance).{any_value}"
        )
    return (
        f"Adjacent data sets differ by all rows of one {unit}, added or removed (symmetric "
        f"distance).{any_value}"
    )


def _describe_domain(plan: Plan) -> str:
    """Describe the attributes that are counted, and what happens to other values."""
    used = plan.domain.ordered(tuple({name for names in plan.tables for name in names}))
    lines = [f"* {escape_cell(name)}: {_describe_values(plan.domain[name])}" for name in used]
    return (
        "Tables with any number of rows and these attributes. A row is left out of all counts if "
        "one of its values is missing or not listed, unless the attribute's line states "
        "otherwise.\n\n" + "\n".join(lines)
    )


def _describe_values(attribute: Attribute) -> str:
    """Describe the cells of an attribute in a few words."""
    if rule := get_codec(attribute).rule:
        return f"a measure; {escape_cell(rule)}"
    spec = Domain({"a": attribute}).spec()["a"]
    kind = next(iter(spec)) if isinstance(spec, Mapping) else "categories"
    other = attribute.other
    takes = "" if other is None else f"; {escape_cell(other)} counts missing values and all others"
    return f"{attribute.size:,} cells ({kind}{takes})"


def _describe_composition(
    release: Release, statement: tuple[Budget, tuple[Entry, ...]] | None
) -> str:
    """Describe how the cost adds up with the costs of other releases."""
    one_mechanism = (
        "The answers of this release are one mechanism: its rho covers all of them together, from "
        "their joint sensitivity. "
    )
    if statement is None:
        return (
            f"{one_mechanism}No ledger was charged. The rho of every other release about the same "
            "people adds to this one."
        )
    budget, entries = statement
    total = f"rho = {format_down(floor_written(budget.total), 6)}"
    if budget.epsilon is not None and budget.delta is not None:
        of_noise = "any noise" if budget.any_noise else "Gaussian noise"
        delta = format_delta(budget.delta)
        total += f" (epsilon = {budget.epsilon!r} at delta = {delta}, for {of_noise})"
    shown, rest = split_rows(entries[::-1])
    is_of_one_unit = {entry.bound_unit for entry in entries} <= {budget.bound_unit}
    rows = [
        (
            str(entry.id),
            entry.time[:19].replace("T", " "),
            "covered" if entry.covered_by is not None else format_up(ceil_float(entry.rho), 6),
            escape_cell(entry.what),
            (entry.plan_digest or "")[:12],
            *([] if is_of_one_unit else [escape_cell(str(entry.bound_unit))]),
        )
        for entry in reversed(shown)
    ]
    units = () if is_of_one_unit else ("unit of privacy",)
    table = make_table(("no.", "time (UTC)", "rho", "what", "plan", *units), rows)
    person = "" if budget.bound_unit is None else f", for {escape_cell(str(budget.bound_unit))}"
    has_covered = any(entry.covered_by is not None for entry in entries)
    return (
        f"{one_mechanism}The rho of releases adds up. The budget for these people is "
        f"{total}{person}. Spent: rho = {format_up(ceil_written(budget.spent), 6)} by "
        f"{len(entries)} release(s). Left: rho = {format_down(floor_written(budget.left), 6)}."
        f"\n\n{table}"
        + (f"\n\n{len(rest)} older charge(s) are not listed." if rest else "")
        + (
            "\n\nA release that an earlier charge covers costs nothing more: in every cell, its "
            "cost and the costs of the other releases under that charge stay within what the "
            "charge paid. The rho of all these releases together is the largest of these sums."
            if has_covered
            else ""
        )
        + (_describe_number(release.entry) if release.entry is not None else "")
    )


def _describe_number(entry: Entry) -> str:
    """Say which number this release has in the ledger."""
    if entry.covered_by is not None:
        return f"\n\nThis release is number {entry.id}, covered by number {entry.covered_by}."
    return f"\n\nThis release is number {entry.id}."


def describe_implementation(
    release: Release, about: About, versions: Mapping[str, str]
) -> dict[str, str]:
    """Describe what ran, on which data, and why."""
    return {
        "preprocessing_and_hyperparameter_tuning": _describe_preprocessing(release, about),
        "mechanisms": _describe_mechanisms(release, versions),
        "justification": _justify(release),
    }


def _describe_preprocessing(release: Release, about: About) -> str:
    """Describe what was done with the rows before counting, after the publisher's own text.

    Neither is escaped here: `format_markdown` escapes this field.
    """
    most, unit = release.plan.unit.records, about.unit
    apart = describe_apart(release.plan)
    apart += "," if apart else ""
    limit = (
        f"At most {most} row(s) per {unit}{apart} are kept, chosen by a keyed hash of the {unit}'s "
        "own rows; no count contains the others. "
        if release.limited == "enforced"
        else ""
    )
    rules = list_measure_rules(release.plan.workload)
    values = f"\n\n{' '.join(rules)}\n\n" if rules else " "
    outside = describe_rows_outside(release.plan, release.limited)
    left_out = f"Not counted: {outside}." if outside else "Every row is in the tables."
    left_out += _describe_coverage(release)
    return (
        f"{about.preprocessing or ask_publisher('preprocessing')}\n\n"
        f"{_describe_rows(release)}{limit}{left_out}{values}The "
        "noise depends only on the targets and was "
        "chosen before any row was read: nothing is tuned on the data."
    )


def _describe_coverage(release: Release) -> str:
    """Say how many rows are not counted, if the release has coverage."""
    rows = release.coverage()
    if not rows:
        return ""
    listed = [
        f"{row.attribute or 'any of them'}: {row.rows.value + 0.0:,.0f} rows "
        f"(std {row.rows.std:,.1f})"
        for row in (rows if len(rows) > 2 else rows[:1])
    ]
    return (
        " The numbers of these rows are released with noise of the same sigma, by attribute: "
        f"{'; '.join(listed)}. They cost nothing more, because each row is either in all tables or "
        "in none of them."
    )


def _describe_rows(release: Release) -> str:
    """Describe how rows were weighted or filtered, if they were."""
    if release.rows is None:
        return ""
    return f"How rows were read: {release.rows}. "


def _describe_mechanisms(release: Release, versions: Mapping[str, str]) -> str:
    """Describe the mechanisms in a table, and what protects them in practice."""
    # The costliest mechanisms come first; equal ones stay in order.
    shown, rest = split_rows(sorted(release.plan.mechanisms(), key=lambda m: -m.rho))
    scale = release.noise_scale
    rows = [
        (
            escape_cell(m.name),
            m.kind,
            f"{m.dimension:,}",
            format_up(m.sensitivity, 6),
            format_down(m.sigma * scale, 6),
            format_up(m.rho / scale**2, 6),
        )
        for m in shown
    ]
    is_of_record = release.plan.unit == ONE_RECORD
    whose = "one row" if is_of_record else "one person"
    changed = "one row added or removed" if is_of_record else str(release.plan.unit)
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
            f"Sensitivity is for {changed}. It and sigma refer to the integer answers, before "
            f"these are scaled back to counts.{_describe_shares(release)}",
            *_describe_coverage_answers(release),
            f"Noise is drawn once, by the discrete Gaussian sampler of {library}.",
            "**Floating point.** Counts, answers and noise are integers, and the sampler is exact: "
            "no floating-point number is used before the noise is added. rho is a rational number "
            "and is shown rounded up. Estimates are computed in floating point from the noisy "
            "answers.",
            "**Timing and platform.** Not protected: run it where only the publisher can observe "
            "it. Publish the files, not the running time.",
            *_describe_software(versions),
        ]
    )


def _describe_coverage_answers(release: Release) -> list[str]:
    """Describe the answers about rows outside the domain: one paragraph, or none."""
    coverage = release.plan.coverage
    if coverage is None:
        return []
    return [
        f"**Coverage.** {coverage.size} more answers count rows outside the domain, with noise of "
        "the same sigma. No row changes both these answers and the answers in the table above, and "
        "no row changes the coverage answers by more than the sensitivity. So rho covers both."
    ]


def _describe_software(versions: Mapping[str, str]) -> list[str]:
    """Describe the software that ran: one paragraph, or none."""
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    return [f"**Software.** {said}."] if said else []


def _describe_shares(release: Release) -> str:
    """Say what integer answers count if the plan has measures."""
    shares = release.plan.strategy.structure.shares
    if shares == 1:
        return ""
    return (
        f" With measures, each row counts as {shares:,} shares, which are divided between the "
        "bounds according to the row's value. No value costs more than the costlier bound."
    )


def _describe_rest(rest: Sequence[Mechanism], scale: float) -> str:
    """State the cost of the mechanisms that the table omits."""
    if not rest:
        return ""
    together = sum(m.rho for m in rest) / scale**2
    return f"\n\nand {len(rest):,} more, with rho = {format_up(together, 6)} together."


def _justify(release: Release) -> str:
    """Say why the noise is as it is: the targets, and how far the cost is above the bound."""
    plan, scale = release.plan, release.noise_scale
    rows = [
        (
            escape_cell(row.name),
            f"{row.queries:,}",
            row.target,
            format_up(row.largest_std * scale, 4),
            f"{format_up(100 * row.std_ratio * scale, 4)}%",
        )
        for row in plan.group_rows()
    ]
    shown, rest = split_rows(rows)
    table = make_table(("group", "queries", "target", "achieved std", "% of target"), shown)
    more = f"\n\nand {len(rest):,} more." if rest else ""
    is_least = plan.objective.plain and plan.gap <= plan.tolerance
    if plan.scale == 1.0:
        at_least_cost = " at the least rho" if is_least else ""
        how = (
            "The publisher specified how accurate each answer must be to be fit for use, and the "
            f"plan's noise meets every target{at_least_cost}."
        )
    else:
        end = "the least that the budget allows" if is_least else "so that the plan fits the budget"
        how = (
            "The publisher gave the budget and the desired accuracy of each answer. All target "
            f"variances were scaled by {format_up(plan.scale, 6)}, {end}."
        )
    if scale != 1.0:
        how += (
            " For this release, the standard deviation of the plan's noise was multiplied by "
            f"{format_up(scale, 6)}."
        )
    return f"{how} It is proven {describe_gap(plan)}: {plan.certificate}.\n\n{table}{more}"
