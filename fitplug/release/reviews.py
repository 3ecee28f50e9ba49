"""What reviewers read of a release: who is protected, how much, by what, and what it did.

The fields are those of the deployments registry of OpenDP (registry.opendp.org; its schema of
November 2026). All texts are Markdown. Nothing here is secret: plans are public, and of the data
only what was released is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from typing import Any

from fitplug.display import format_down, format_up
from fitplug.domain import Attribute, Domain
from fitplug.errors import BudgetError
from fitplug.ledger import Budget, Entry, Ledger, check_contributions
from fitplug.mechanism import Mechanism
from fitplug.numeric import ceil_float, floor_float
from fitplug.plan import Plan
from fitplug.release.population import Limited, describe_population
from fitplug.release.release import Release
from fitplug.release.review_markdown import escape_cell, make_table

MISSING = "To be said by the publisher."
"""What stands where only the publisher knows."""

_MOST_ROWS = 100
"""Of a table in the review; what is beyond is summed up in a line."""


@dataclass(frozen=True)
class About:
    """What only the publisher knows of a release; all of it is published.

    name: of the data product. curators: who publishes it. region: that it describes, or whose law
    applies. sector: Technology, Healthcare, Education, Government, Energy or Finance. unit: what
    all records of one contributor stand for, such as a person or a household. preprocessing: what
    was done with the rows, or found out about them, before they were counted. sources: where more
    is said. authors: of this review.
    """

    name: str | None = None
    curators: tuple[str, ...] = ()
    description: str | None = None
    intended_use: str | None = None
    region: str | None = None
    sector: str | None = None
    unit: str = "person"
    actors: str | None = None
    preprocessing: str | None = None
    sources: str | None = None
    notes: str | None = None
    authors: tuple[str, ...] = ()


def review(
    release: Release,
    *,
    about: About | None = None,
    ledger: Ledger | None = None,
    delta: float = 1e-9,
    contributions: int | None = None,
    limited: Limited | None = None,
    published: date | None = None,
    versions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A record of a release in the fields of OpenDP's deployments registry, as a draft.

    ledger: whose charges so far are told under composition. delta: at which epsilon is told.
    contributions: most records of one contributor, where the release does not know it: one that an
    OpenDP measurement made. rho is then told for all of them.
    limited: whether the records of one contributor are at most `release.contributions` because the
    publisher says so, "declared", or were cut down to it, "enforced"; what the release says if not
    given. It may be "enforced" for a release that says "declared", where records were left out
    before they were counted. versions: of the libraries that ran, by name.
    Returns dicts, lists, texts and numbers only, ready for YAML or JSON. Raises BudgetError for
    delta or contributions, and LedgerError.
    """
    about, release = about or About(), _of_all_records(release, contributions)
    release = _of_known_limit(release, limited)
    plan, held = release.plan, None if ledger is None else ledger.statement()
    name = about.name or "Counts: " + _listed(plan.workload.names)
    several = held is not None and len(held[1]) > 1
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "release",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(name, about, plan, published or date.today()),
            "dp_variant": {
                "variant_name": "Zero-concentrated DP",
                "data_domain": _domain(plan),
                "unprotected_quantities": "None. The plan, with all costs and variances, is made "
                "from the domain, the queries and their targets, before any row is read, and the "
                "number of records is not released.",
            },
            "privacy_loss": _privacy_loss(release, about.unit, delta),
            "deployment_model": {
                "model_name": "Central",
                "actors": about.actors or MISSING,
                "release_type": "Many releases" if several else "One release",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "Estimates are fixed linear combinations of the noisy answers. "
                "They are unbiased for the records that were counted: not clipped at zero, not "
                "rounded and not made to agree with other figures. Their standard deviations are "
                "those of the plan, of the noise alone.\n\n"
                + describe_population(
                    release.contributions, release.limited, about.unit, release.outside
                ),
                "composition": _composition(release, held),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _preprocessing(release, about),
                "mechanisms": _mechanisms(release, versions or {}),
                "justification": _justification(release),
            },
            "administrative": {
                "sources": about.sources or MISSING,
                "notes": " ".join(filter(None, [about.notes, f"Plan {plan.digest}."])),
                "registry_authors": list(about.authors) or [MISSING],
            },
        },
    }


def _of_all_records(release: Release, contributions: int | None) -> Release:
    """The release with its rho for all records of one contributor."""
    if release.contributions is not None:
        if contributions not in (None, release.contributions):
            raise BudgetError(
                f"contributions = {contributions!r}, but the release is for "
                f"{release.contributions}: leave it out"
            )
        return release
    if contributions is None:
        raise BudgetError(
            "how many records a person may have is not known to this release, which an OpenDP "
            "measurement made: give contributions, as in the context's privacy unit"
        )
    check_contributions(contributions)
    rho = ceil_float(_of_one_record(release) * contributions**2)
    return replace(release, contributions=contributions, rho=rho)


def _of_known_limit(release: Release, limited: Limited | None) -> Release:
    if release.limited == "enforced" and limited == "declared":
        raise BudgetError(
            f"limited = 'declared', but the count of this release kept at most "
            f"{release.contributions} records of each contributor: leave it out"
        )
    return replace(release, limited=limited or release.limited or "declared")


def _of_one_record(release: Release) -> Fraction:
    return release.plan.strategy.rho_exact(release.plan.noise_std * release.noise_scale)


def _basic(name: str, about: About, plan: Plan, published: date) -> dict[str, Any]:
    counted = plan.workload.query_count
    basic: dict[str, Any] = {
        "name": name,
        "data_curators": list(about.curators) or [MISSING],
        "description": about.description
        or f"{counted:,} counts in {len(plan.workload.groups)} tables: "
        f"{_listed(plan.workload.names)}.",
        "intended_use": about.intended_use or MISSING,
        "data_product_type": "Summary statistics",
        "data_product_region": about.region or MISSING,
        "publication_date": published.isoformat(),
    }
    return basic | ({"data_product_sector": about.sector} if about.sector else {})


def _domain(plan: Plan) -> str:
    used = plan.domain.ordered(tuple({name for names in plan.tables for name in names}))
    lines = [f"* {escape_cell(name)}: {_values(plan.domain[name])}" for name in used]
    return (
        "Tables of any number of records with these attributes; a record with another value, or "
        "none, on one of them is left out of all counts.\n\n" + "\n".join(lines)
    )


def _values(attribute: Attribute) -> str:
    spec = Domain({"a": attribute}).spec()["a"]
    kind = next(iter(spec)) if isinstance(spec, Mapping) else "categories"
    return f"{attribute.size:,} cells ({kind})"


def _privacy_loss(release: Release, unit: str, delta: float) -> dict[str, Any]:
    k = release.contributions
    one = ceil_float(_of_one_record(release))
    proven, curve = release.epsilon(delta, "zcdp"), release.epsilon(delta)
    records = "at most one record" if k == 1 else f"at most {k} records"
    how = (
        "what is more is left out before it is counted"
        if release.limited == "enforced"
        else "so the publisher says of the data"
    )
    per_record = "" if k == 1 else f", {k}^2 times that of one record, rho = {format_up(one)}"
    return {
        "privacy_unit": unit,
        "privacy_unit_details": f"Adjacent datasets differ by all records of one {unit} added or "
        f"removed (symmetric distance). A {unit} has {records}; {how}.",
        "privacy_parameters": {"epsilon": proven, "delta": delta, "rho": release.rho},
        "privacy_parameters_details": f"rho = {format_up(release.rho)} of zero-concentrated "
        f"differential privacy{per_record}. It is a rational number, computed from the integer "
        f"matrix and the standard deviation that run, and rounded up.\n\nAt delta = {delta:g}: "
        f"epsilon = {format_up(proven)}, which follows from rho and is proven for the discrete "
        f"noise; and epsilon = {format_up(curve)} on the exact curve of continuous Gaussian noise "
        "of the same size.",
    }


def _composition(release: Release, held: tuple[Budget, tuple[Entry, ...]] | None) -> str:
    alone = (
        "The answers of this release are one mechanism: its rho is of all of them together, from "
        "their joint sensitivity. "
    )
    if held is None:
        return alone + "It was charged to no ledger: whatever else was released about the same "
        "people adds its rho to this one's."
    budget, entries = held
    whole = f"rho = {format_down(floor_float(budget.total))}"
    if budget.epsilon is not None:
        whole += f" (epsilon = {budget.epsilon!r} at delta = {budget.delta!r})"
    rows = [
        (
            str(entry.id),
            entry.time[:19].replace("T", " "),
            "free" if entry.within is not None else format_up(ceil_float(entry.rho)),
            escape_cell(entry.what),
            (entry.plan_digest or "")[:12],
        )
        for entry in entries[-_MOST_ROWS:]
    ]
    left_out = len(entries) - len(rows)
    table = make_table(("no.", "time (UTC)", "rho", "what", "plan"), rows)
    free = [entry for entry in entries if entry.within is not None]
    return (
        f"{alone}rho adds up over releases. The budget for these people is {whole}; spent are "
        f"rho = {format_up(ceil_float(budget.spent))} by {len(entries)} release(s), and "
        f"rho = {format_down(floor_float(budget.left))} is left.\n\n{table}"
        + (f"\n\n{left_out} older charge(s) are not listed." if left_out else "")
        + (
            "\n\nA free release costs no cell more than an earlier charge paid for: their costs "
            "were added up cell by cell, and rho is the largest sum over cells."
            if free
            else ""
        )
        + (_own(release.entry) if release.entry is not None else "")
    )


def _own(entry: Entry) -> str:
    if entry.within is not None:
        return f"\n\nThis release is number {entry.id}, free within number {entry.within}."
    return f"\n\nThis release is number {entry.id}."


def _preprocessing(release: Release, about: About) -> str:
    k, unit = release.contributions, about.unit
    kept = (
        f"Of each {unit}, at most {k} record(s) are kept, chosen by a keyed hash of the {unit}'s "
        "own records; the others are in no count. "
        if release.limited == "enforced"
        else ""
    )
    return (
        f"{about.preprocessing or MISSING}\n\n{_rows(release)}{kept}Records outside the domain "
        "are left out. The noise was fitted to the targets alone, before any row was read: nothing "
        "is tuned on the data."
    )


def _rows(release: Release) -> str:
    """How rows were understood, if they were weighted or filtered."""
    if release.rows is None:
        return ""
    return f"How rows were read: {escape_cell(release.rows)}. "


def _mechanisms(release: Release, versions: Mapping[str, str]) -> str:
    # The costliest first; equal ones stay in order.
    found = sorted(release.plan.mechanisms(), key=lambda m: -m.rho)
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
        for m in found[:_MOST_ROWS]
    ]
    columns = (
        "answers about",
        "mechanism",
        "answers",
        "L2 sensitivity",
        "sigma",
        "rho, one record",
    )
    ran = ", ".join(f"{name} {version}" for name, version in versions.items())
    library = f"OpenDP {versions['opendp']}" if "opendp" in versions else "OpenDP"
    return "\n\n".join(
        [
            make_table(columns, rows) + _beyond(found[_MOST_ROWS:], scale),
            "Sensitivity is to one record added or removed; sigma is in the same unit, the "
            "integer answers before they are scaled back to counts.",
            f"Noise is drawn once, by the discrete Gaussian sampler of {library}.",
            "**Floating point.** Counts, answers and noise are integers, and the sampler is exact: "
            "no floating-point number comes before the noise. rho is a rational number, and what "
            "is shown of it is rounded up. Estimates are computed in floating point from the noisy "
            "answers.",
            "**Timing and platform.** Not protected: run it where only the publisher can observe "
            "it. Publish what it writes, not how long it took.",
            *([f"**Software.** {ran}."] if ran else []),
        ]
    )


def _beyond(rest: Sequence[Mechanism], scale: float) -> str:
    if not rest:
        return ""
    together = sum(m.rho for m in rest) / scale**2
    return f"\n\nand {len(rest):,} more of together rho = {format_up(together)}."


def _justification(release: Release) -> str:
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
    table = make_table(
        ("queries", "number", "target", "largest std", "variance over target"), rows[:_MOST_ROWS]
    )
    more = f"\n\nand {len(rows) - _MOST_ROWS:,} more." if len(rows) > _MOST_ROWS else ""
    least = plan.objective.plain and plan.gap <= plan.tolerance
    if plan.scale == 1.0:
        how = "The publisher said how accurate each answer must be to be fit for use, and the "
        how += f"plan's noise meets every target{' at the least privacy cost' if least else ''}."
    else:
        how = "The publisher gave the budget, and the accuracy wanted of each answer: all target "
        how += f"variances were scaled by {format_up(plan.scale)}, "
        how += "the least that the budget allows." if least else "so that the plan fits the budget."
    if scale != 1.0:
        how += (
            f" Here the plan's noise was multiplied by {format_up(scale)}, in its standard "
            "deviation."
        )
    what = (
        "The plan's privacy cost Delta (rho = Delta^2 / 2)"
        if plan.objective.plain
        else "What the search made small"
    )
    return (
        f"{how} {what} is at most {format_up(100 * plan.gap, 2)} % above a bound that no mechanism "
        f"can go below, which is certified: {plan.certificate}.\n\n{table}{more}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5:,} more"
