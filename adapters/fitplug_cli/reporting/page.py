"""The page: a plan's report as one HTML file that needs no other, and no network."""

from __future__ import annotations

from typing import Any

from fitplug.display import MOST_BARS, format_down, format_up
from fitplug_cli.reporting import plots
from fitplug_cli.reporting.facts import DELTAS, RELAXED, Facts
from fitplug_cli.reporting.limits import explain_limits
from fitplug_cli.reporting.numbers import factor, percent


def html(facts: Facts, warning: str | None = None) -> str:
    """The page, with a sentence that warns, if there is one. Raises ImportError saying which extra
    to install.
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
        "percent": percent,
        "factor": factor,
        "count": lambda n: f"{n:,}",
    }
    environment.filters |= filters
    return environment.get_template("page.html.j2").render(
        facts=facts,
        warning=warning,
        plan=facts.plan,
        deltas=DELTAS,
        relaxed=f"{RELAXED - 1:.0%}",
        most_bars=MOST_BARS,
        explained_limits=explain_limits(facts.contributions, facts.limited),
        plots=_plots(facts),
    )


def _plots(facts: Facts) -> dict[str, Any]:
    from markupsafe import Markup  # comes with jinja2

    made = {"curve": plots.curve(facts)}
    if facts.even is None:
        made["profile"] = plots.profile(facts)
    if any(group.price is not None for group in facts.groups) and len(facts.groups) > 1:
        made["shares"] = plots.shares(facts)
    if any(usual.factor is not None for usual in facts.usual):
        made["usual"] = plots.usual(facts)
    return {name: Markup(svg) for name, svg in made.items()}
