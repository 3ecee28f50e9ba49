"""Reviews of a release: who is protected, how much, by what, and what was released.

The fields are those of the deployments registry of OpenDP (registry.opendp.org; its schema in
github.com/opendp/deployments-registry-data, commit 3e9c812 of July 2026). All texts are Markdown.
Nothing here is secret: plans are public, and of the data only what was released is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from fitplug.errors import BudgetError, check_type
from fitplug.ledger import Ledger, read_statement
from fitplug.plan import Plan
from fitplug.releases.noisy_answers import Limited
from fitplug.releases.release import Release
from fitplug.releases.review_sections import (
    describe_accounting,
    describe_implementation,
    describe_loss,
    describe_variant,
)
from fitplug.releases.review_texts import About, ask_publisher
from fitplug.workload import list_measure_rules


def review(
    release: Release,
    *,
    about: About | None = None,
    ledger: Ledger | None = None,
    delta: float = 1e-9,
    limited: Limited | None = None,
    published: date | None = None,
    versions: Mapping[str, str] | None = None,
    display: bool = False,
) -> dict[str, Any]:
    """Draft a record that describes a release by the fields of OpenDP's registry.

    Args:
        release: The release.
        about: Facts that only the publisher knows.
        ledger: The ledger whose charges so far the field `composition` lists.
        delta: The delta at which epsilon is reported.
        limited: How the limit on the rows per contributor is ensured: "declared" if every row was
            counted and the limit is assumed, "enforced" if rows beyond the limit were left out. By
            default this is read from the release, which does not state it if an OpenDP measurement
            made the release. Give "enforced" if you removed each person's excess rows before the
            count.
        published: The date of publication; today if None.
        versions: A mapping from the names of the libraries that made the release to their versions.
        display: Whether display tables are published too.

    Returns:
        The record. It has only dicts, lists, texts and numbers, so YAML and JSON can hold it.

    Raises:
        TypeError: The release has the wrong type.
        BudgetError: `delta` is out of range, or `limited` contradicts the release.
        LedgerError: The ledger cannot be read.

    Example:
        >>> review = fp.review(release, about=fp.About(name="People by sex and age"))
        >>> "deployment" in review
        True
    """
    check_type("release", release, Release, "fitplug.review(release)")
    about = about or About()
    release = _set_limit(release, limited)
    plan = release.plan
    statement = None if ledger is None else read_statement(ledger)
    basic = _describe_product(about, plan, published or date.today())
    has_several = statement is not None and len(statement[1]) > 1
    return {
        "url_slug": _make_slug(basic),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": basic,
            "dp_variant": describe_variant(plan),
            "privacy_loss": describe_loss(release, about.unit, delta),
            "deployment_model": {
                "model_name": "Central",
                "actors": about.actors or ask_publisher("actors"),
                "release_type": "Many releases" if has_several else "One release",
                "access_type": "Non-interactive",
            },
            "accounting": describe_accounting(release, about.unit, statement, display=display),
            "implementation": describe_implementation(release, about, versions or {}),
            "administrative": {
                "sources": about.sources or ask_publisher("sources"),
                "notes": " ".join(filter(None, [about.notes, f"Plan {plan.digest}."])),
                "registry_authors": list(about.authors) or [ask_publisher("authors")],
            },
        },
    }


def _set_limit(release: Release, limited: Limited | None) -> Release:
    """Return the release with this source of the limit on the rows per person."""
    if release.limited == "enforced" and limited == "declared":
        raise BudgetError(
            "limited = 'declared' contradicts the release, which limited the rows per person. "
            "Remove the setting 'limited'."
        )
    return replace(release, limited=limited or release.limited)


def _make_slug(basic: Mapping[str, Any]) -> str:
    """Make the end of a record's URL by the rule of the registry: name, curators and year."""
    texts = (basic["name"], "-".join(basic["data_curators"]), basic["publication_date"][:4])
    return "-".join(re.sub(r"\W+", "_", text.lower()) for text in texts).replace("_", "-")


def _describe_product(about: About, plan: Plan, published: date) -> dict[str, Any]:
    """Describe the data product."""
    counted = plan.workload.query_count
    basic: dict[str, Any] = {
        "name": about.name
        or f"{_name_answers(plan).capitalize()}: {_list_first(plan.workload.names)}",
        "data_curators": list(about.curators) or [ask_publisher("curators")],
        "description": about.description
        or f"{counted:,} {_name_answers(plan)} in {len(plan.workload.groups)} tables: "
        f"{_list_first(plan.workload.names)}.",
        "intended_use": about.intended_use or ask_publisher("intended_use"),
        "data_product_type": "Summary statistics",
        "data_product_region": about.region or ask_publisher("region"),
        "publication_date": published.isoformat(),
    }
    return basic | ({"data_product_sector": about.sector} if about.sector else {})


def _name_answers(plan: Plan) -> str:
    """Name the answers of a plan: counts, or counts and sums."""
    return "counts and sums" if list_measure_rules(plan.workload) else "counts"


def _list_first(names: Sequence[str]) -> str:
    """List the first names, and say how many more there are."""
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5:,} more"
