"""The report of a plan: every figure against the plan, on the page as in the terminal."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

import fitplug as fp
from fitplug import baselines
from fitplug.display.numbers import format_percent_up, format_up
from fitplug.errors import BudgetError
from fitplug.families import analysis as symmetry
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.plan import relaxation
from fitplug.plan.relaxation import Relaxation
from fitplug.plan.summary import estimate_saving, price_groups as prices
from fitplug_cli.commands import design as design_command, report as report_command
from fitplug_cli.render import set_up_output
from fitplug_cli.render.facts import DELTAS, RELAXED, collect_facts
from fitplug_cli.render.page import render_page
from fitplug_cli.render.terminal import build_report_record, print_relaxation, print_report
from tests.helpers.command_line import SPEC
from tests.helpers.forked_processes import run_command as fitplug
from tests.helpers.places import EXAMPLES
from tests.helpers.plans import MIXED, geography

EXAMPLE = EXAMPLES / "acs" / "release.toml"


class Page(HTMLParser):
    """Tables, texts, and whatever a browser would fetch or run."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.fetched, self.tags, self.open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br", "use", "path", "rect", "circle"):
            self.open.append(tag)
        given = dict(attributes)
        self.fetched += [
            v for k, v in given.items() if k in ("src", "href", "srcset", "data", "action")
        ]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data.replace("\xa0", " ").strip()

    def table(self, first):
        """The rows of the table whose first column has this heading."""
        (found,) = [t[1:] for t in self.tables if t[0][0] == first and len(t[0]) > 1]
        return found


PLANS = {
    "example": lambda: fp.design(MIXED["pyramid"]()),
    "budget given": lambda: fp.design(MIXED["pyramid"](), rho=0.01),
    "symmetric": lambda: fp.design(MIXED["marginals"]()),
    "one group": lambda: fp.design(fp.Workload.from_matrix(np.tri(5), std=2.0)),
    "cells that cost less": lambda: fp.design(
        fp.Workload(
            fp.Domain({"x": fp.Integers(0, 5), "y": ["a", "b"]}),
            [fp.queries({"x": np.eye(6)[:3]}, std=1.0, name="few"), fp.total(std=9.0)],
        ),
        refine=True,
    ),
    "three rows per person": lambda: fp.design(MIXED["pyramid"](), unit=fp.AddRemove(3)),
    "total error": lambda: fp.design(MIXED["pyramid"](), total_error_weight=0.1),
}


@pytest.fixture(autouse=True)
def speaks():
    """Commands of other tests, such as those with --json, leave the console silent."""
    set_up_output(quiet=False, as_json=False)


@pytest.fixture(scope="module", params=PLANS)
def told(request):
    return collect_facts(PLANS[request.param](), delta=1e-6)


@pytest.fixture(scope="module")
def shown(told):
    return Page(render_page(told))


def close(text, value, digits=4):
    return math.isclose(float(text.replace(",", "")), value, rel_tol=10.0 ** (1 - digits))


@pytest.mark.slow
def test_the_page_is_whole_and_fetches_nothing(told, shown):
    assert not shown.open
    assert all(link.startswith("#") for link in shown.fetched), shown.fetched
    assert not {tag for tag, _ in shown.tags} & {"script", "link", "img", "iframe", "object"}
    text = render_page(told)
    urls = set(re.findall(r"https?://[^\s\"'<>)]+", text))
    assert all("w3.org" in url for url in urls), urls  # names of XML's own
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text)
    assert text == render_page(told)


def test_pictures_have_a_text_beside_them(shown):
    count = sum(tag == "figure" for tag, _ in shown.tags)
    assert count == sum(tag == "figcaption" for tag, _ in shown.tags) >= 1
    for tag, attributes in shown.tags:
        if tag == "svg":
            assert attributes["aria-hidden"] == "true"


@pytest.mark.slow
def test_costs(told, shown):
    plan = told.plan
    text = render_page(told)
    assert f"<h1>{plan.workload.query_count:,} counts at rho = " in text
    rho = re.search(r"counts at rho = (\S+)</h1>", text)[1]
    assert float(rho) >= plan.rho_exact
    assert close(rho, plan.rho, 3)
    assert plan.digest in text
    assert format_percent_up(plan.gap) in text
    rows = shown.table("delta")
    assert [float(row[0]) for row in rows] == pytest.approx(DELTAS)
    for delta, text in rows:
        value = plan.epsilon(float(delta))
        assert float(text) >= value * (1 - 1e-9)
        assert close(text, value, 3)


@pytest.mark.slow
def test_only_a_plain_bound_is_called_one_on_rho(told):
    plain = told.plan.objective.plain
    page = " ".join(render_page(told).split())
    assert ("no Gaussian noise meets the targets with rho below" in page) == plain
    assert "Delta" not in render_page(told)


def test_a_relaxation_without_groups_is_told(capsys):
    plan = PLANS["example"]()
    print_relaxation(Relaxation(plan.rho, 2.0, {}, plan), 0.5)
    said = " ".join(capsys.readouterr().out.split())
    assert "multiply every std and moe by 2" in said
    assert "only those of" not in said


def test_what_is_asked_and_got(told, shown):
    plan = told.plan
    rows = next(t[1:] for t in shown.tables if "achieved std" in t[0])
    assert [row[0] for row in rows] == list(plan.workload.names)
    for name, number, target, stds, used, held in rows:
        group, variances = plan.workload[name], plan.variances[name]
        of_target = np.sqrt(variances / (plan.scale * plan.targets[name]))
        assert int(number.replace(",", "")) == group.size
        assert target == group.target.describe()
        low, _, high = stds.rpartition(" to ")
        assert close(high, math.sqrt(variances.max()))
        assert not low or close(low, math.sqrt(variances.min()))
        assert float(used.removesuffix("%")) == pytest.approx(100 * of_target.max(), abs=0.06)
        assert int(held.replace(",", "")) == int((of_target >= 0.999).sum())


def test_prices_on_the_page(told, shown):
    plan = told.plan
    found = [t[1:] for t in shown.tables if "share of rho" in t[0]]
    if plan.objective.weight:
        assert not found
        return
    exact = prices(plan)
    for name, price, saves in found[0]:
        assert float(price.removesuffix("%")) == pytest.approx(100 * exact[name], abs=0.06)
        most = 100 * (1 - RELAXED ** (-2 * exact[name]))
        assert float(saves.removesuffix("%")) == pytest.approx(most, abs=0.06)


def test_usual_mechanisms_on_the_page(told, shown):
    plan = told.plan
    cost = plan.privacy_cost / plan.strategy.structure.changes  # of one record, as a mechanism's is
    own = {
        "independent noise per cell": lambda: baselines.input_perturbation(plan.workload, cost),
        "Gaussian mechanism, equal noise": lambda: baselines.gaussian(plan.workload, cost),
        "hierarchical mechanism": lambda: baselines.hierarchical(plan.workload, cost),
        "matrix mechanism": lambda: baselines.matrix_mechanism(plan.workload, cost),
    }
    rows = {row[0]: row for row in shown.table("mechanism")}
    assert len(rows) == 6
    for name, mechanism in own.items():
        variances = mechanism()
        needs = max(
            (variances[g] / (plan.scale * plan.targets[g])).max() for g in plan.workload.names
        )
        assert close(rows[name][1], needs, 3)
    if not plan.objective.weight:
        weighted = baselines.matrix_mechanism(plan.workload, cost, weights="inverse_squared")
        needs = max((weighted[g] / (plan.scale * plan.targets[g])).max() for g in weighted)
        assert close(rows["matrix mechanism, weights 1/target^2"][1], needs, 3)
        factors = [float(row[1].replace(",", "")) for row in rows.values()]
        assert min(factors) > 0.999  # none is below the optimum


def test_what_is_free_is_free():
    """Queries of the std that the report calls free, as a plan within the slack."""
    plan = PLANS["cells that cost less"]()
    (free,) = collect_facts(plan).free_counts
    assert (free.attribute, free.of) == ("x", 6)
    left = plan.unused_budget().max(axis=1)
    cells = np.flatnonzero(left > 0.01 * plan.privacy_cost**2)
    assert free.cells == len(cells)
    for std in (free.least_std, free.largest_std):
        at = cells[np.argmin(np.abs(1 / np.sqrt(left[cells]) - std))]
        one = np.eye(6)[[at]]
        more = fp.Workload(plan.domain, [fp.queries({"x": one}, std=std * (1 + 1e-9))])
        beside = fp.design(more, cell_budgets=np.maximum(plan.unused_budget(), 1e-12))
        assert beside.scale <= 1.001


def test_what_is_free_is_free_for_persons_with_several_records():
    plan = PLANS["cells that cost less"]()
    (one,) = collect_facts(plan).free_counts
    several = fp.design(plan.workload, unit=fp.AddRemove(records=3))
    (free,) = collect_facts(several).free_counts
    # All costs are nine times as large, so that the same counts are free as for one record.
    assert (free.cells, free.of) == (one.cells, one.of)
    assert free.least_std == pytest.approx(one.least_std, rel=1e-6)
    assert free.largest_std == pytest.approx(one.largest_std, rel=1e-6)


def test_nothing_is_free_at_a_cell_where_records_are_replaced():
    plan = fp.design(PLANS["cells that cost less"]().workload, unit=fp.ReplaceOne())
    assert not collect_facts(plan).free_counts
    with pytest.raises(BudgetError, match="has no unused budget"):
        plan.unused_budget()


@pytest.mark.parametrize(
    "unit", [fp.AddRemove(records=3, distinct=True), fp.AddRemove(records=3, once_per="x")]
)
def test_nothing_is_said_in_the_cost_of_single_records_where_these_are_apart(unit, capsys):
    """A person with 3 records costs neither 9 times one record's rho, nor what a mechanism for one
    record does: the report has no such numbers.
    """
    few = fp.queries({"x": np.eye(6)[:3]}, std=1.0, name="few")
    workload = fp.Workload(fp.Domain({"x": fp.Integers(0, 5)}), [few, fp.total(std=9.0)])
    plan = fp.design(workload, unit=unit)
    facts = collect_facts(plan, limited="enforced")
    assert not facts.limits
    assert not facts.free_counts
    assert {usual.factor for usual in facts.usual_mechanisms} == {None}
    print_report(facts, full=True)
    printed = " ".join(capsys.readouterr().out.split())
    page = render_page(facts)
    assert not Page(page).open
    for text in (printed, " ".join(page.split())):
        assert f"Counting will keep at most 3 rows per person{plan.bound_unit.apart}, and" in text
        assert "change the unit of privacy" in text
        assert "not computed for this unit of privacy" in text
        assert "(this plan)" not in text
        assert "too small for further counts" not in text
    assert "rho of zCDP, for one person" in text
    apart = plan.bound_unit.apart
    assert f"differ by the rows of one person (at most 3{apart}). The releases" in text
    assert "for one person, rounded up" in text
    record = build_report_record(facts, None)
    assert record["unit"]["records"] == 3
    assert not record["limits"]


@pytest.mark.parametrize(
    ("unit", "kept"),
    [(fp.ReplaceOne(), ""), (fp.ReplaceOne(("y",)), ", except y")],
)
def test_the_page_says_what_is_public_where_records_are_replaced(unit, kept):
    workload = fp.Workload(
        fp.Domain({"x": fp.Integers(0, 5), "y": ["a", "b"]}), [fp.marginal("x", "y", std=2.0)]
    )
    text = " ".join(render_page(collect_facts(fp.design(workload, unit=unit))).split())
    said = f"differ in the values of one row{kept}. The number of"
    assert said in text
    assert "rows is public. The releases" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a$b_c^d$", "x" * 300, "ü & ö"])
def test_odd_names(name):
    domain = fp.Domain({"sex": ["1", "2"]})
    plan = fp.design(
        fp.Workload(domain, [fp.marginal("sex", std=1.0, name=name), fp.total(std=1.0)])
    )
    text = render_page(collect_facts(plan))
    assert "<script" not in text
    assert html.escape(name, quote=False) in text
    assert not Page(text).open


@pytest.mark.slow
def test_large_plans(monkeypatch):
    monkeypatch.setattr(symmetry, "MOST_CELLS", 1)
    monkeypatch.setattr(symmetry, "MOST_DENSE", 0)
    apart = collect_facts(fp.design(geography()))
    assert all("not computed" in u.why for u in apart.usual_mechanisms if "matrix" in u.name)
    assert not apart.free_counts
    assert not Page(render_page(apart)).open
    names = [f"q{i}" for i in range(20)]
    domain = fp.Domain({name: ["y", "n", "?"] for name in names})
    pairs = [fp.marginal(a, b, std=20.0) for i, a in enumerate(names) for b in names[:i]]
    many = collect_facts(fp.design(fp.Workload(domain, pairs)))
    assert many.usual_mechanisms[1].factor is None
    text = render_page(many)
    assert max(len(table) for table in Page(text).tables) == 191
    assert "the 15 largest of 190" in text


LEAVES = [f"{s:02d}{c:03d}{t:02d}" for s in range(3) for c in range(2) for t in range(9 + s)]
WIDE = {
    "long names": lambda: fp.design(
        fp.Workload(
            fp.Domain({"x": fp.Integers(0, 5), "y" * 70: ["a", "b"]}),
            [
                fp.queries({"x": "prefix"}, moe=123456.0, simultaneous=True, name="w" * 90),
                fp.queries({"x": np.eye(6)[:3]}, std=1.0, name="of " * 30),
            ],
        )
    ),
    "a tree": lambda: fp.design(
        fp.Workload(
            fp.Domain({
                "GEOID": fp.Hierarchy({"state": 2, "county": 5, "tract": 7}, LEAVES),
                "AGE": fp.Integers(0, 99),
            }),
            [
                fp.queries({"GEOID": "tract"}, std=20.0),
                fp.queries({"GEOID": "county", "AGE": "prefix"}, std=30.0),
                fp.total(std=5.0),
            ],
        )
    ),
}  # fmt: skip

CLIPPED = """<script>
const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest("thead") &&
  (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1 ||
   e instanceof HTMLElement && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0));
const names = wide.slice(0, 5).map(e => e.tagName + ":" + e.textContent.slice(0, 20));
parent.postMessage("clipped " + wide.length + " at " + innerWidth + " " + names.join(" | "), "*");
</script>"""
FRAME = """<!doctype html><title>not told</title>
<iframe src="page.html" width="{width}" height="900" style="border: 0"></iframe>
<script>onmessage = told => document.title = told.data</script>"""


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs the browser Chromium")
@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("name", ["example", "one group", "cells that cost less", *WIDE])
def test_nothing_is_clipped_in_a_browser(name, width, tmp_path):
    plan = {**PLANS, **WIDE}[name]()
    about = fp.About(name="A title " * 9 + "t" * 60, authors=("Somebody",) * 20)
    text = render_page(collect_facts(plan, about=about))
    (tmp_path / "page.html").write_text(text.replace("</body>", CLIPPED + "</body>"))
    # A window has a least width, a frame has none.
    (tmp_path / "frame.html").write_text(FRAME.format(width=width))
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", "--dump-dom",
        "frame.html",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    told = re.search(r"<title>(.*?)</title>", ran.stdout, re.DOTALL)[1]
    assert told.startswith(f"clipped 0 at {width}"), told


@pytest.mark.long
def test_a_chart_that_says_nothing_is_left_out():
    flat = collect_facts(PLANS["example"]())
    assert flat.even_note is not None
    assert "privacy cost (% of rho)" not in render_page(flat)
    assert "Every cell costs the same" in render_page(flat)
    uneven = collect_facts(PLANS["cells that cost less"]())
    assert uneven.even_note is None
    assert "privacy cost (% of rho)" in render_page(uneven)
    tree = collect_facts(WIDE["a tree"]())
    assert isinstance(tree.plan.strategy.structure, TreeStructure)
    assert "cost of each single cell was not computed" not in render_page(tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symmetry, "MOST_DENSE", 0)
        patch.setattr(symmetry, "MOST_CELLS", 0)  # the optimum over all cells is affordable
        apart = collect_facts(WIDE["a tree"]())
    assert isinstance(apart.plan.strategy.structure, ProductStructure)
    assert "cost of each single cell was not computed" in render_page(apart)


@pytest.mark.long
def test_prices_of_a_plan_of_the_product_family_are_told_with_its_gap(capsys):
    told = collect_facts(WIDE["a tree"]())
    found = prices(told.plan)
    shown = Page(render_page(told))
    rows = next(t[1:] for t in shown.tables if "share of rho" in t[0])
    for name, price, saves in rows:
        assert float(price.removesuffix("%")) == pytest.approx(100 * found[name], abs=0.06)
        most = 100 * estimate_saving(told.plan, found[name], RELAXED**2)
        assert float(saves.removesuffix("%")) == pytest.approx(most, abs=0.06)
    assert f"within {format_percent_up(told.plan.gap)} of the least" in render_page(told)
    print_report(told, full=False)
    assert f"within {format_percent_up(told.plan.gap)} of the least" in capsys.readouterr().out


def test_a_plan_without_prices_says_why(capsys):
    told = collect_facts(PLANS["total error"]())
    assert "shares of rho are not shown" in render_page(told)
    print_report(told, full=False)
    assert "shares of rho are not shown" in capsys.readouterr().out


def test_title_and_authors():
    about = fp.About(name="Ages & <places>", authors=("A. <b>", "B"))
    text = render_page(collect_facts(PLANS["example"](), about=about))
    assert "<title>Ages &amp; &lt;places&gt;: accuracy" in text
    assert "<h1>Ages &amp; &lt;places&gt;: " in text
    assert '<meta name="author" content="A. &lt;b&gt;">' in text
    assert "<p>A. &lt;b&gt;, B</p>" in text


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "plan.npz"
    PLANS["example"]().save(path)
    return path


class TestCommand:
    def test_in_the_terminal(self, plan):
        done = fitplug("report", plan, "--full", cwd=plan.parent)
        assert (done.returncode, done.stderr) == (0, "")
        loaded = fp.Plan.load(plan)
        assert f"rho = {format_up(loaded.rho, 3)}" in done.stdout
        for name, price in prices(loaded).items():
            assert re.search(rf"{re.escape(name)} .* {price:.1%} ", done.stdout)
        for needed in ("1e-12", "weights 1/target", "Every cell costs the same", loaded.digest):
            assert needed in done.stdout

    def test_in_the_terminal_without_what_is_read_later(self, plan):
        short = fitplug("report", plan, cwd=plan.parent)
        full = fitplug("report", plan, "--full", cwd=plan.parent)
        assert (short.returncode, short.stderr) == (0, "")
        *lines, rest = short.stdout.splitlines()
        assert "For more, use --full" in rest
        assert set(lines) < set(full.stdout.splitlines())
        for left_out in ("1e-12", "weights 1/target", "Every cell costs the same", "this plan)"):
            assert left_out not in short.stdout

    @pytest.mark.parametrize("person", [False, True])
    def test_the_records_of_a_person_are_always_told(self, person, tmp_path):
        text = EXAMPLE.read_text()
        if person:
            text = text.replace("[data]", '[data]\nperson = "id"\n', 1)
        (tmp_path / "people").mkdir()
        (tmp_path / "release.toml").write_text(text)
        done = fitplug("report", "release.toml", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        if person:
            assert "Counting will keep at most one row per person, and no row " in done.stdout
        else:
            assert "assumes at most one row per person; fitplug does not check" in done.stdout

    @pytest.mark.parametrize(
        ("path", "made", "found"),
        [
            ("people/", "people/1.parquet", True),
            ("people/*.parquet", "people/1.parquet", True),
            ("a[1].csv", "a[1].csv", True),
            ("s3://bucket/people/", "other.csv", True),
            ("peopel/", "people/1.parquet", False),
            ("people/*.csv", "people/1.parquet", False),
        ],
    )
    def test_a_path_where_no_rows_lie_is_warned_of(self, path, made, found, plan, tmp_path):
        (tmp_path / made).parent.mkdir(exist_ok=True)
        (tmp_path / made).touch()
        spec = SPEC.replace('"people/"', f'"{path}"')
        (tmp_path / "spec.toml").write_text(spec)
        done = fitplug("report", "spec.toml", cwd=tmp_path)
        warning = f"spec.toml: there is no file or folder at [data] path = '{path}'. "
        warning += "The report does not need it, but `fitplug run` will."
        assert done.returncode == 0
        assert done.stderr == ("" if found else f"warning: {warning}\n")
        record = json.loads(fitplug("report", "spec.toml", "--json", cwd=tmp_path).stdout)
        assert record["warnings"] == ([] if found else [warning])

    def test_a_cost_that_protects_nobody_is_warned_of(self, tmp_path):
        spec = re.sub(r"(std|moe) = [0-9.]+", r"\1 = 1e-4", SPEC)
        (tmp_path / "spec.toml").write_text(spec)
        (tmp_path / "people").mkdir()
        done = fitplug("report", "spec.toml", cwd=tmp_path)
        assert done.returncode == 0
        assert "warning: epsilon is above 100, so a release would protect nobody." in done.stderr
        record = json.loads(fitplug("report", "spec.toml", "--json", cwd=tmp_path).stdout)
        assert any("protect nobody" in warning for warning in record["warnings"])

    @pytest.mark.slow
    def test_as_a_page(self, plan, tmp_path):
        done = fitplug("report", plan, "--output", tmp_path / "p.html", "--delta", "1e-6", cwd=".")
        assert (done.returncode, done.stderr) == (0, "")
        written = (tmp_path / "p.html").read_text(encoding="utf-8")
        assert written == render_page(collect_facts(fp.Plan.load(plan), delta=1e-6))
        again = fitplug("report", plan, "--output", tmp_path / "p.html", cwd=".")
        assert again.returncode == 0

    @pytest.mark.long
    def test_title_and_authors_of_a_spec(self, tmp_path):
        (tmp_path / "people").mkdir()
        (tmp_path / "release.toml").write_text(
            re.sub(r"(?s)\n\[about\].*?(?=\n\[|$)", "", EXAMPLE.read_text())
            + '\n[about]\nname = "Our ages"\nauthors = ["A. Author"]\n'
        )
        done = fitplug("report", "release.toml", "--output", "p.html", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        written = (tmp_path / "p.html").read_text(encoding="utf-8")
        assert "<title>Our ages: " in written
        assert "<p>A. Author</p>" in written

    def test_piped_text_is_neither_padded_nor_folded(self, tmp_path):
        name = "a group whose name is longer than a line of eighty characters can hold, or even two"
        domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 499)})
        groups = [fp.marginal("sex", "age", std=12345.0, name=name), fp.total(std=5000.0)]
        fp.design(fp.Workload(domain, groups)).save(tmp_path / "plan.npz")
        done = fitplug("report", "plan.npz", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert not [line for line in lines if line != line.rstrip()]
        (row,) = (line for line in lines if name in line and "std" in line)
        assert re.search(r"1,000 +std 12,345 +12,3\d\d +\d+\.\d%$", row)

    def test_a_page_replaces_only_pages(self, plan, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        done = fitplug("report", plan, "--output", tmp_path / "notes.txt", cwd=".")
        assert done.returncode == 2
        assert "notes.txt already exists with other content" in done.stderr
        assert (tmp_path / "notes.txt").read_text() == "mine"
        done = fitplug("report", plan, "--output", tmp_path / "no" / "p.html", cwd=".")
        assert done.returncode == 2

    def test_a_largest_rho(self, plan):
        most = fp.Plan.load(plan).rho
        assert fitplug("report", plan, "--max-rho", most, cwd=".").returncode == 0
        done = fitplug("report", plan, "--max-rho", most / 4, cwd=".")
        assert done.returncode == 3
        assert f"more than {most / 4:g}" in done.stderr
        alike = float(re.search(r"every std and moe by\s+(\S+)", done.stdout)[1])
        assert alike == pytest.approx(2, rel=2e-3)
        only = re.findall(r"^  .+ by (\S+)$", done.stdout, re.MULTILINE)
        assert only
        assert all(float(factor) > 1 for factor in only)

    @pytest.mark.parametrize("share", [1.0, 0.7])
    def test_a_finished_plan_is_designed_by_nobody(self, plan, share, monkeypatch):
        """What it costs less is found from the plan, and what more, from designs of others."""
        loaded = fp.Plan.load(plan)
        asked = []
        design = relaxation.design
        monkeypatch.setattr(
            relaxation, "design", lambda w, **k: asked.append(w.targets()) or design(w, **k)
        )
        monkeypatch.setattr(design_command, "design_plan", None)
        if share == 1.0:
            report_command.report(plan, None, None, loaded.rho)
            assert not asked
            return
        with pytest.raises(fp.OverBudget):
            report_command.report(plan, None, None, loaded.rho * share)
        assert asked
        assert not any(np.array_equal(loaded.workload.targets(), one) for one in asked)

    @pytest.mark.slow
    def test_of_a_spec_with_a_budget_it_does_not_fit(self, tmp_path):
        text = EXAMPLE.read_text().replace("[privacy]", "[privacy]\nmax_rho = 0.03\n#")
        (tmp_path / "release.toml").write_text(text)
        done = fitplug("report", "release.toml", cwd=tmp_path)
        assert done.returncode == 3
        assert "To cost at most rho = 0.03" in done.stdout
        assert "total by " in done.stdout
        assert sorted(path.name for path in tmp_path.iterdir()) == ["release.toml"]
        design = fitplug("design", "release.toml", cwd=tmp_path)
        assert design.returncode == 3
        assert "Multiply every std and moe by" in design.stderr

    def test_what_is_no_plan(self, tmp_path):
        done = fitplug("report", tmp_path / "none.npz", cwd=tmp_path)
        assert done.returncode == 2
        assert "none.npz" in done.stderr
        done = fitplug("report", EXAMPLE, "--delta", "2", cwd=tmp_path)
        assert done.returncode == 2
        assert "delta" in done.stderr
