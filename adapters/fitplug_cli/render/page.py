"""A plan's report as one self-contained HTML page with plots.

Text in plots stays text, and the colours suit colour-blind readers.
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from fitplug.display import (
    BLUE,
    GREY,
    MOST_BARS,
    ORANGE,
    format_delta,
    format_down,
    format_percent_up,
    format_up,
    open_figure,
    separate_thousands,
    shorten,
)
from fitplug.plan import describe_overstatement, describe_public_totals
from fitplug.workload import list_measure_rules
from fitplug_cli.render.facts import DELTAS, RELAXED, Facts, format_factor, format_percent
from fitplug_cli.render.messages import describe_coverage, describe_not_counted
from fitplug_cli.render.record_limits import explain_limits


def render_page(facts: Facts, warning: str | None = None) -> str:
    """Render a plan's report as a page.

    Args:
        facts: The facts of the plan.
        warning: A warning to show, if any.

    Raises:
        ImportError: If a library is missing; the message names the extra to install.
    """
    try:
        import jinja2
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(
            "A report page needs matplotlib and jinja2. Install them with: "
            'pip install "fitplug[plot]"'
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fitplug_cli.render", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters = {
        "up": format_up,
        "delta": format_delta,
        "percent_up": format_percent_up,
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
        rules=list_measure_rules(facts.plan.workload),
        not_counted=[
            describe_not_counted(facts.plan, facts.limited),
            *describe_coverage(facts.plan),
            *([] if facts.display_note is None else [("display tables", facts.display_note)]),
        ],
        deltas=DELTAS,
        relaxed=f"{RELAXED - 1:.0%}",
        most_bars=MOST_BARS,
        explained_limits=explain_limits(facts.plan, facts.population, facts.limited),
        plots=_draw_plots(facts),
    )


def _draw_plots(facts: Facts) -> dict[str, Any]:
    from markupsafe import Markup  # comes with jinja2

    drawn = {"curve": draw_curve(facts)}
    if facts.even_note is None:
        drawn["profile"] = draw_profile(facts)
    if any(group.price is not None for group in facts.groups) and len(facts.groups) > 1:
        drawn["shares"] = draw_shares(facts)
    if any(usual.factor is not None for usual in facts.usual_mechanisms):
        drawn["usual"] = draw_usual(facts)
    return {name: Markup(svg) for name, svg in drawn.items()}


_WIDTH = 5.0
"""The width in inches, at which text stays readable when a narrow page shrinks the plot."""


def draw_curve(facts: Facts) -> str:
    """Draw epsilon over delta, and return the SVG."""
    fine = np.logspace(np.log10(DELTAS[0]), np.log10(DELTAS[-1]), 60)
    with open_figure(_WIDTH, 3.0) as (figure, axes):
        axes.plot(fine, [facts.epsilon(float(delta)) for delta in fine], color=BLUE, linewidth=2)
        axes.set(xscale="log", xlabel="delta", ylabel="epsilon")
        axes.invert_xaxis()
        axes.axvline(facts.delta, color=GREY, linewidth=1, linestyle=":")
        axes.set_ylim(bottom=0)
        separate_thousands(axes.yaxis)
        return _write_svg(figure)


def draw_shares(facts: Facts) -> str:
    """Draw each group's share of the cost, the largest first, and return the SVG."""
    groups = sorted(facts.groups, key=lambda g: -(g.price or 0.0))[:MOST_BARS]
    values = [100 * (g.price or 0.0) for g in groups]
    labels = [format_percent(v / 100) for v in values]
    return _draw_bars([g.name for g in groups], values, labels, BLUE)


def draw_profile(facts: Facts) -> str:
    """Draw the cost of each cell over the largest one, the costliest first; return the SVG."""
    cost = facts.profile
    with open_figure(_WIDTH, 2.4) as (figure, axes):
        share = np.linspace(0, 100, len(cost) + 1)
        heights = 100 * np.append(cost, cost[-1])
        if len(share) > 800:  # a screen shows no more
            drawn = np.unique(np.linspace(0, len(share) - 1, 800).astype(int))
            share, heights = share[drawn], heights[drawn]
        axes.fill_between(share, heights, step="post", color=BLUE, linewidth=0)
        axes.fill_between(
            share, heights, 100, step="post", facecolor="white", edgecolor=ORANGE, hatch="///",
            linewidth=0,
        )  # fmt: skip
        axes.set(
            xlim=(0, 100), ylim=(0, 100), xlabel="cells, costliest first (%)",
            ylabel="privacy cost (% of rho)",
        )  # fmt: skip
        return _write_svg(figure)


def draw_usual(facts: Facts) -> str:
    """Draw the rho of other mechanisms over the plan's, and return the SVG."""
    usual = [(u.name, u.factor) for u in facts.usual_mechanisms if u.factor is not None]
    names, factors = ["this plan", *(n for n, _ in usual)], [1.0, *(f for _, f in usual)]
    labels = [f"{format_factor(f)}x" for f in factors]
    return _draw_bars(names, factors, labels, GREY, first=BLUE, log=True)


def _draw_bars(
    names: list[str],
    values: list[float],
    labels: list[str],
    colour: str,
    first: str | None = None,
    log: bool = False,
) -> str:
    """Draw horizontal bars with names and labels; `first` is the colour of the first bar."""
    with open_figure(_WIDTH, 0.45 + 0.32 * len(names)) as (figure, axes):
        positions = np.arange(len(names))[::-1]
        left = min(values) / 2 if log else 0.0
        colours = [first or colour, *[colour] * (len(names) - 1)]
        axes.barh(positions, np.array(values) - left, left=left, color=colours, height=0.68)
        for position, value, label in zip(positions, values, labels, strict=True):
            axes.annotate(label, (value, position), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(positions, [shorten(name, 36) for name in names])
        axes.tick_params(left=False)
        if log:
            axes.set_xscale("log")
            axes.set_xlim(left, max(values) ** 1.3 * 2)
        else:
            axes.set_xlim(0, max(values) * 1.2)
        axes.set_xticks([])
        axes.minorticks_off()
        axes.spines["bottom"].set_visible(False)
        return _write_svg(figure)


def _write_svg(figure: Any) -> str:
    """Return the <svg> element of a figure, scaled to the page.

    Screen readers skip it and read the table instead.
    """
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return re.sub(r'^<svg([^>]*?) width="[^"]*"', r'<svg aria-hidden="true"\1', svg, count=1)
