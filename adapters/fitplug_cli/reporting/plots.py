"""Plots of a plan's facts, as SVG for a page. Texts stay texts; colours differ for every eye."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from fitplug.display import (
    BLUE,
    GREY,
    INK,
    MOST_BARS,
    ORANGE,
    open_figure,
    separate_thousands,
    shorten,
)
from fitplug_cli.reporting.facts import DELTAS, Facts
from fitplug_cli.reporting.numbers import factor, percent

_WIDTH = 5.0
"""Inches: texts stay readable where a narrow page makes it smaller."""


def curve(facts: Facts) -> str:
    """Epsilon at every delta, proven and on the Gaussian curve."""
    fine = np.logspace(np.log10(DELTAS[0]), np.log10(DELTAS[-1]), 60)
    with open_figure(_WIDTH, 3.0) as (figure, axes):
        for proven, colour, style in ((True, BLUE, "-"), (False, ORANGE, "--")):
            epsilon = [facts.epsilon(float(delta), proven) for delta in fine]
            axes.plot(fine, epsilon, style, color=colour, linewidth=2)
            label = "proven for the discrete noise" if proven else "continuous Gaussian curve"
            place = (0, 6) if proven else (0, -14)
            at = len(fine) // 2
            axes.annotate(
                label, (fine[at], epsilon[at]), place, textcoords="offset points", color=INK,
                ha="right" if proven else "left",
            )  # fmt: skip
        axes.set(xscale="log", xlabel="delta", ylabel="epsilon")
        axes.invert_xaxis()
        axes.axvline(facts.delta, color=GREY, linewidth=1, linestyle=":")
        axes.set_ylim(bottom=0)
        separate_thousands(axes.yaxis)
        return _svg(figure)


def shares(facts: Facts) -> str:
    """Which part of the cost each group's targets make, the largest first."""
    groups = sorted(facts.groups, key=lambda g: -(g.price or 0.0))[:MOST_BARS]
    values = [100 * (g.price or 0.0) for g in groups]
    return _bars([g.name for g in groups], values, [percent(v / 100) for v in values], BLUE)


def profile(facts: Facts) -> str:
    """The cost of the cells, the costliest first, over the largest."""
    cost = facts.profile
    with open_figure(_WIDTH, 2.4) as (figure, axes):
        share = np.linspace(0, 100, len(cost) + 1)
        heights = 100 * np.append(cost, cost[-1])
        if len(share) > 800:  # what a screen can show
            kept = np.unique(np.linspace(0, len(share) - 1, 800).astype(int))
            share, heights = share[kept], heights[kept]
        axes.fill_between(share, heights, step="post", color=BLUE, linewidth=0)
        axes.fill_between(
            share, heights, 100, step="post", facecolor="white", edgecolor=ORANGE, hatch="///",
            linewidth=0,
        )  # fmt: skip
        axes.set(
            xlim=(0, 100), ylim=(0, 100), xlabel="cells told apart, the costliest first (%)",
            ylabel="privacy cost (% of rho)",
        )  # fmt: skip
        return _svg(figure)


def usual(facts: Facts) -> str:
    """The rho that the usual mechanisms need for the same targets, over the plan's."""
    found = [(u.short, u.factor) for u in facts.usual if u.factor is not None]
    names, factors = ["this plan", *(n for n, _ in found)], [1.0, *(f for _, f in found)]
    return _bars(names, factors, [f"{factor(f)}x" for f in factors], GREY, first=BLUE, log=True)


def _bars(
    names: list[str],
    values: list[float],
    labels: list[str],
    colour: str,
    first: str | None = None,
    log: bool = False,
) -> str:
    with open_figure(_WIDTH, 0.45 + 0.32 * len(names)) as (figure, axes):
        places = np.arange(len(names))[::-1]
        left = min(values) / 2 if log else 0.0
        colours = [first or colour, *[colour] * (len(names) - 1)]
        axes.barh(places, np.array(values) - left, left=left, color=colours, height=0.68)
        for place, value, label in zip(places, values, labels, strict=True):
            axes.annotate(label, (value, place), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(places, [shorten(name, 24) for name in names])
        axes.tick_params(left=False)
        if log:
            axes.set_xscale("log")
            axes.set_xlim(left, max(values) ** 1.3 * 2)
        else:
            axes.set_xlim(0, max(values) * 1.2)
        axes.set_xticks([])
        axes.minorticks_off()
        axes.spines["bottom"].set_visible(False)
        return _svg(figure)


def _svg(figure: Any) -> str:
    """The <svg> element alone, as wide as the page lets it be; hidden from screen readers, who get
    the table beside it.
    """
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return re.sub(r'^<svg([^>]*?) width="[^"]*"', r'<svg aria-hidden="true"\1', svg, count=1)
