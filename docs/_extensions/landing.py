"""Draw the plots of the first page, for light and dark pages, whenever the site is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure
from sphinx.application import Sphinx

import fitplug as fp

PEOPLE = Path(__file__).parents[2] / "examples" / "acs" / "people"
BLUE, GREY = "#3B8EC2", "#9AA3AD"
SEXES = {"1": "men", "2": "women"}


def make_release() -> fp.Release:
    """Release the ages of the first example in steps of five years, by sex."""
    domain = fp.Domain({"SEX": ["1", "2"], "AGEP": fp.Integers(0, 95)})
    ages = fp.ranges([(age, age + 4) for age in range(0, 95, 5)])
    groups = [
        fp.queries({"SEX": "identity", "AGEP": ages}, moe=50.0, name="ages"),
        fp.queries({"SEX": "identity", "AGEP": "prefix"}, std=30.0, name="up to each age"),
        fp.total(std=20.0),
    ]
    plan = fp.design(fp.Workload(domain, groups))
    return fp.release(plan, fp.count(PEOPLE, plan))


def draw_pyramid(release: fp.Release, axes: Any) -> None:
    release.plot("ages", kind="pyramid", ax=axes)
    for text in axes.texts:  # the note on intervals is in the title
        text.set_text(SEXES.get(text.get_text(), ""))
    axes.set_title("", loc="left")
    axes.set_title("Published: people by age, with 95% margins", fontsize=11, pad=20)
    axes.set(xlabel="people", ylabel="age")


def draw_costs(release: fp.Release, axes: Any) -> None:
    """Draw the rho that usual mechanisms need for the targets of a plan, relative to its rho."""
    plan = release.plan
    mechanisms = {
        "noise on each age": fp.baselines.input_perturbation,
        "noise on each answer": fp.baselines.gaussian,
        "matrix mechanism": fp.baselines.matrix_mechanism,
    }
    costs = []
    for compute_variances in mechanisms.values():
        variances = compute_variances(plan.workload, plan.privacy_cost)
        costs.append(max(float((variances[g] / plan.targets[g]).max()) for g in plan.targets))
    names, costs = [*mechanisms, "fitplug"], [*costs, 1.0]
    bars = axes.barh(names, costs, color=[GREY] * 3 + [BLUE], height=0.6)
    axes.bar_label(bars, [f"{cost:.2g} ×" for cost in costs], padding=4)
    axes.set_title("Privacy cost (rho) of this accuracy", fontsize=11, pad=20)
    axes.set(xlim=(0, 1.2 * max(costs)), xticks=[])
    axes.tick_params(length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def write_plots(app: Sphinx) -> None:
    """Write _static/landing/NAME-MODE.svg, where the first page finds them."""
    folder = Path(app.srcdir) / "_static" / "landing"
    folder.mkdir(parents=True, exist_ok=True)
    release = make_release()
    for mode, look in {"light": "default", "dark": "dark_background"}.items():
        for name, draw in {"pyramid": draw_pyramid, "costs": draw_costs}.items():
            with style.context([look, {"font.size": 11}]):
                figure = Figure(figsize=(5.2, 4.4), layout="constrained")
                draw(release, figure.subplots())
                figure.savefig(folder / f"{name}-{mode}.svg", transparent=True)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_plots)
    return {"parallel_read_safe": True}
