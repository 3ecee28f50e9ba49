"""The report of a plan as one HTML page, which needs no other file and no network."""

from __future__ import annotations

from typing import Any

from fitplug.display import MOST_BARS, format_down, format_up
from fitplug.plan import describe_overstatement, describe_public_totals
from fitplug_cli.reporting import plots
from fitplug_cli.reporting.contribution_limits import explain_limits
from fitplug_cli.reporting.facts import DELTAS, RELAXED, Facts
from fitplug_cli.reporting.numbers import format_factor, format_percent


def render_page(facts: Facts, warning: str | None = None) -> str:
    """Render the report of a plan as a page.

    Args:
        facts: The facts of the plan.
        warning: A warning that the page shows, if there is one.

    Returns:
        The HTML.

    Raises:
        ImportError: If a library is missing; the message names the extra to install.
    """
    try:
        import jinja2
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(
            'a page needs matplotlib and jinja2; install them with: pip install "fitplug[plot]"'
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fitplug_cli.reporting", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters = {
        "up": format_up,
        "below": format_down,
        "percent": format_percent,
        "factor": format_factor,
        "count": lambda n: f"{n:,}",
    }
    environment.filters |= filters
    return environment.get_template("page.html.j2").render(
        facts=facts,
        warning=warning,
        public=describe_public_totals(facts.plan),
        overstated=describe_overstatement(facts.plan),
        plan=facts.plan,
        rules=facts.plan.workload.measure_rules,
        deltas=DELTAS,
        relaxed=f"{RELAXED - 1:.0%}",
        most_bars=MOST_BARS,
        explained_limits=explain_limits(facts.plan, facts.population, facts.limited),
        plots=_draw_plots(facts),
    )


def _draw_plots(facts: Facts) -> dict[str, Any]:
    from markupsafe import Markup  # comes with jinja2

    drawn = {"curve": plots.draw_curve(facts)}
    if facts.even_note is None:
        drawn["profile"] = plots.draw_profile(facts)
    if any(group.price is not None for group in facts.groups) and len(facts.groups) > 1:
        drawn["shares"] = plots.draw_shares(facts)
    if any(usual.factor is not None for usual in facts.usual_mechanisms):
        drawn["usual"] = plots.draw_usual(facts)
    return {name: Markup(svg) for name, svg in drawn.items()}
