"""What notebooks show: tables of HTML that hold what is public, and plots of matplotlib."""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import analysis as symmetry
from tests.helpers import people
from tests.helpers.plans import geography

ODD = '<b onmouseover="x">&'


class Tables(HTMLParser):
    """Rows of cells, and the tags that are open."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open, self.seen = [], [], set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            assert tag == "td" or dict(attributes)["scope"] in ("col", "row")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def release():
    return people.release(noise=1.0)


def test_a_plan(release):
    plan = release.plan
    shown = Tables(plan._repr_html_())
    assert plan.digest[:12] in plan._repr_html_()
    rows = {row[0]: row[1:] for row in shown.rows}
    for row in plan.group_rows():
        assert rows[row.name][0] == f"{row.queries:,}"
        assert rows[row.name][1] == row.target


def test_a_release_shows_noisy_answers_only(release):
    rows = Tables(release._repr_html_()).rows
    names = release.plan.workload.names
    assert [row[0] for row in rows[1 : 1 + len(names)]] == list(names)
    (at,) = (i for i, row in enumerate(rows) if row[:3] == ["sex", "age", "estimate"])
    held = release.to_arrow("pyramid").to_pylist()
    for row, own in zip(rows[at + 1 : at + 6], held, strict=False):
        assert row[:2] == [own["sex"], own["age"]]
        assert float(row[2].replace(",", "")) == pytest.approx(own["estimate"], abs=0.051)
        assert float(row[4].replace(",", "")) == pytest.approx(own["lower"], abs=0.051)


def test_a_workload_and_a_domain(release):
    workload = release.plan.workload
    rows = Tables(workload._repr_html_()).rows
    assert [row[0] for row in rows[1:]] == list(workload.names)
    rows = Tables(workload.domain._repr_html_()).rows
    cells = [int(row[2].replace(",", "")) for row in rows[1:]]
    assert cells == list(workload.domain.shape)


def test_names_are_escaped_and_many_groups_cut_short():
    names = [f"q{i}" for i in range(40)]
    domain = fp.Domain({ODD: [ODD, "2"], **{name: ["y", "n"] for name in names}})
    groups = [fp.marginal(ODD, std=2.0, name=ODD), *(fp.marginal(n, std=1e4) for n in names)]
    plan = fp.design(fp.Workload(domain, groups))
    release = fp.Release(plan, np.zeros(plan.strategy.size, np.int64), plan.rho)
    for shown in (plan, release, plan.workload, domain):
        text = shown._repr_html_()
        tables = Tables(text)
        assert "b" not in tables.seen
        assert ODD in [row[0] for row in tables.rows]
        assert "and 11 more" in text
        assert len(tables.rows) < 60
    assert "std 10,000" in plan._repr_html_()


def test_of_an_attribute_with_the_name_of_a_result():
    plan = fp.design(fp.Workload(fp.Domain({"std": ["a", "b"]}), [fp.marginal("std", std=2.0)]))
    release = fp.Release(plan, np.zeros(plan.strategy.size, np.int64), plan.rho)
    assert "rho" in release._repr_html_()


def texts(figure):
    """All that stands on a figure."""
    figure.canvas.draw()
    return [found.get_text() for found in figure.findobj(match=lambda a: hasattr(a, "get_text"))]


def test_a_plot_of_a_plan(release):
    plan = release.plan
    figure = plan.plot()
    left, right = figure.axes
    asked = {line.get_ydata()[0] > round(line.get_ydata()[0]) for line in left.lines}
    assert asked == {True, False}
    rows = {row.name: [row.smallest_std, row.largest_std] for row in plan.group_rows()}
    names = [label.get_text() for label in left.get_yticklabels()]
    for line, name in zip(left.lines[1::2], names, strict=True):
        assert list(line.get_xdata()) == rows[name]
    shares = [bar.get_width() for bar in right.patches]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100)
    assert set(plan.workload.names) <= set(texts(figure))


@pytest.mark.slow
def test_plots_of_other_plans(monkeypatch):
    monkeypatch.setattr(symmetry, "MOST_CELLS", 1)
    monkeypatch.setattr(symmetry, "MOST_DENSE", 0)
    assert len(fp.design(geography()).plot().axes) == 2
    domain = fp.Domain({"x": fp.Integers(0, 3)})
    workload = fp.Workload(domain, [fp.queries({"x": "prefix"}, std=2.0)])
    assert len(fp.design(workload, total_error_weight=0.1).plot().axes) == 1
    groups = [fp.marginal("x", std=1.0 + i, name=f"$x_{i}") for i in range(30)]
    figure = fp.design(fp.Workload(domain, groups)).plot()
    assert len(figure.axes[1].patches) == 15
    assert figure._repr_png_()[:4] == b"\x89PNG"


@pytest.mark.parametrize("name", ["pyramid", "voting age", "regions", "cities", "total"])
def test_a_plot_of_a_release(release, name):
    figure = release.plot(name)
    (axes,) = figure.axes
    if name == "regions":
        drawn = np.array([bar.get_width() for bar in axes.patches])
        np.testing.assert_allclose(np.sort(drawn), np.sort(release.estimates[name].ravel()))
    else:
        drawn = np.concatenate([bar[0].get_ydata() for bar in axes.containers])
        np.testing.assert_allclose(np.sort(drawn), np.sort(release.estimates[name].ravel()))
    confidence = release.plan.workload[name].target.confidence or 0.95
    assert any(f"{100 * confidence:g}%" in text for text in texts(figure))


@pytest.mark.parametrize("ages", [2, 10, 61])
@pytest.mark.parametrize("name", ["people", "people by race and age in the whole of the country"])
def test_titles_notes_and_legends_stand_apart(ages, name):
    races = [f"{colour} alone, not Hispanic or Latino" for colour in ("White", "Black", "Other")]
    domain = fp.Domain({"race of the person": races, "age": fp.Integers(0, ages - 1)})
    plan = fp.design(fp.Workload(domain, [fp.marginal(*domain.names, std=3.0, name=name)]))
    figure = fp.Release(plan, np.zeros(plan.strategy.size, np.int64), plan.rho).plot(name)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (note,) = axes.texts
    assert "for the noise alone" in note.get_text()
    title = axes.get_title(loc="left")
    assert title[:25] == name[:25]
    (heading,) = axes.findobj(match=lambda a: hasattr(a, "get_text") and a.get_text() == title)
    boxes = [part.get_window_extent() for part in (heading, note, axes.get_legend(), axes.patch)]
    for at, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[at + 1 :])
        assert one.x0 >= 0
        assert one.x1 <= figure.bbox.x1
    width = boxes[-1].width / figure.dpi
    assert width > 3  # the legend does not take the place of the axes
    if ages > len(races):
        legend = axes.get_legend()
        assert legend.get_title().get_text() == "race of the person"
        assert [text.get_text()[:11] for text in legend.get_texts()] == [r[:11] for r in races]


def test_plots_of_many_values_and_of_too_many_attributes():
    domain = fp.Domain({n: fp.Integers(0, 99) for n in "ab"} | {"c": ["$x$", "y"]})
    groups = [fp.marginal("a", "b", std=3.0), fp.marginal("a", "b", "c", std=9.0, name="three"),
              fp.marginal("a", "c", std=3.0)]  # fmt: skip
    plan = fp.design(fp.Workload(domain, groups))
    answers = np.arange(plan.strategy.size) * 10_000
    release = fp.Release(plan, answers, plan.rho)
    a_map = release.plot(plan.workload.names[0])
    assert len(a_map.axes) == 2
    bands = release.plot("a x c")
    assert len(bands.axes[0].collections) == 2
    assert any("," in text for text in texts(bands))
    with pytest.raises(fp.WorkloadError, match="'three' has 3"):
        release.plot("three")
    with pytest.raises(KeyError, match="Did you mean"):
        release.plot("thre")
    with pytest.raises(fp.WorkloadError, match="confidence"):
        release.plot("a x c", confidence=2.0)


REGIONS = ["01", "02", "03"]


@pytest.fixture
def by_region():
    domain = fp.Domain({"region": REGIONS, "sex": ["F", "M"], "age": fp.Integers(0, 4)})
    groups = [
        fp.marginal("region", std=2.0),
        fp.marginal("sex", "age", std=2.0),
        fp.marginal("region", "age", std=2.0),
    ]
    plan = fp.design(fp.Workload(domain, groups))
    return fp.Release(plan, 9 * np.arange(plan.strategy.size), plan.rho)


def square(x, y):
    return [[[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]]


def make_geojson(codes, key="CODE"):
    """Squares in a row, the last of them with an island."""
    features = [
        {
            "type": "Feature",
            "properties": {"NAME": f"R{i}", key: code},
            "geometry": {"type": "Polygon", "coordinates": square(i, 47)},
        }
        for i, code in enumerate(codes)
    ]
    island = [square(len(codes), 47), square(len(codes) + 3, 47)]
    features[-1]["geometry"] = {"type": "MultiPolygon", "coordinates": island}
    return {"type": "FeatureCollection", "features": features}


def test_a_map_joins_outlines_by_code(by_region, tmp_path):
    geojson = make_geojson(["03", "99", "01", "02"])
    path = tmp_path / "regions.geojson"
    path.write_text(json.dumps(geojson), encoding="utf-8")
    for regions in (geojson, path, str(path), (geojson, "CODE"), (path, "CODE")):
        axes, _ = by_region.plot("region", regions=regions).axes
        coloured, others = axes.collections
        expected = by_region.estimates["region"][[2, 0, 1]]
        np.testing.assert_allclose(coloured.get_array(), expected)
        assert len(others.get_paths()) == 1
        assert axes.get_aspect() == pytest.approx(1 / np.cos(np.radians(47.5)), rel=1e-2)


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        (make_geojson(["01", "02", "04"]), "1 of 3 labels have no region, for example '03'"),
        ((make_geojson(REGIONS), "GEOID"), "the regions have no property 'GEOID'"),
        ({"type": "Topology"}, "must be a GeoJSON FeatureCollection"),
        ("missing.geojson", "cannot read the GeoJSON file"),
        (
            {"features": [{"id": c, "geometry": {"type": "Point"}} for c in REGIONS]},
            "must be Polygons or MultiPolygons, not Point",
        ),
        (
            {
                "features": [
                    {"id": c, "geometry": {"type": "Polygon", "coordinates": 3}} for c in REGIONS
                ]
            },
            "not rings of points",
        ),
    ],
)
def test_outlines_that_cannot_be_joined(by_region, regions, message):
    with pytest.raises(fp.WorkloadError, match=message):
        by_region.plot("region", regions=regions)


def test_a_pyramid_has_two_sides_and_positive_labels(by_region):
    (axes,) = by_region.plot("sex x age", kind="pyramid").axes
    widths = np.array([bar.get_width() for bar in axes.patches]).reshape(2, 5)
    np.testing.assert_allclose(widths * [[-1], [1]], by_region.estimates["sex x age"])
    low, high = axes.get_xlim()
    assert low == -high
    assert axes.xaxis.get_major_formatter()(-1200.0, 0) == "1,200"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("region", {"kind": "pie"}, "unknown kind 'pie'"),
        ("region", {"kind": "map"}, "needs regions="),
        ("region", {"kind": "bars", "regions": {}}, "is for maps"),
        ("region", {"kind": "pyramid"}, "two attributes"),
        ("region x age", {"kind": "pyramid"}, "an attribute with two rows"),
        ("sex x age", {"kind": "bars"}, "one attribute"),
        ("sex x age", {"regions": make_geojson(REGIONS)}, "one attribute"),
    ],
)
def test_plots_of_the_wrong_kind(by_region, name, options, message):
    with pytest.raises(fp.WorkloadError, match=message):
        by_region.plot(name, **options)


def test_a_plot_is_drawn_into_given_axes_and_follows_a_dark_style(by_region):
    from matplotlib import style
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert by_region.plot("region", ax=left) is figure
    assert by_region.plot("sex x age", ax=right) is figure
    assert left.patches
    assert right.containers
    assert by_region.plot("region").get_facecolor()[:3] == (1.0, 1.0, 1.0)
    bars = [bar.get_width() for bar in left.patches]
    assert bars == sorted(bars, reverse=True)
    with style.context("dark_background"):
        dark = by_region.plot("region")
    assert dark.get_facecolor()[:3] == (0.0, 0.0, 0.0)
    assert dark.axes[0].xaxis.label.get_color() == "white"


def test_attributes_with_one_row_get_no_axis_of_a_plot():
    domain = fp.Domain({"sex": ["F", "M"], "race": ["1", "2", "9"], "pay": fp.Measure(0, 900)})
    by_sex = {"sex": "identity", "race": "identity", "pay": "sum"}
    groups = [
        fp.queries(by_sex, std=3e3, name="pay"),
        fp.queries({"pay": "sum"}, std=9e3, name="all"),
    ]
    plan = fp.design(fp.Workload(domain, groups))
    release = fp.Release(plan, np.arange(plan.strategy.size), plan.rho)
    figure = release.plot("pay")
    (axes,) = figure.axes
    estimates = np.asarray(release.estimates["pay"]).reshape(2, 3)
    for bars, of_sex in zip(axes.containers, estimates, strict=True):
        np.testing.assert_array_equal(bars[0].get_ydata(), of_sex)
    assert {"race", "sex", "F", "M"} <= set(texts(figure))
    assert len(release.plot("all").axes[0].containers) == 1


def test_without_matplotlib(release, monkeypatch):
    from fitplug.display import plotting as plots

    plots._import_figure_class.cache_clear()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for plot in (release.plan.plot, lambda: release.plot("total")):
        with pytest.raises(ImportError, match=r'pip install "fitplug\[plot\]"'):
            plot()


def test_plots_open_no_window_and_import_nothing_before(tmp_path):
    import subprocess

    code = (
        "import sys, fitplug as fp; assert 'matplotlib' not in sys.modules\n"
        "domain = fp.Domain({'x': ['1', '2']})\n"
        "plan = fp.design(fp.Workload(domain, [fp.marginal('x', std=2.0)]))\n"
        "plan.plot().savefig('plan.svg')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert (tmp_path / "plan.svg").stat().st_size > 1000
