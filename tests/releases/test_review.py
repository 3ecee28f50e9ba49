"""The review of a release: the registry's fields, and every figure against where it comes from."""

from __future__ import annotations

import dataclasses
import datetime
import html
import json
import math
import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import yaml

import fitplug as fp
from fitplug.releases.release import Release
from fitplug.releases.review_texts import MISSING, format_markdown
from fitplug_opendp import release_files

# The schema of the OpenDP deployments registry, November 2026: the fields of each section.
FIELDS = {
    "basic": {
        *("name", "data_curators", "intended_use", "data_product_type", "data_product_region"),
        *("description", "publication_date", "data_product_sector"),
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        *("privacy_unit", "privacy_unit_details", "privacy_parameters"),
        "privacy_parameters_details",
    },
    "deployment_model": {
        *("model_name", "model_name_details", "actors", "release_type", "release_type_details"),
        *("data_source_type", "data_source_type_details", "access_type", "access_type_details"),
    },
    "accounting": {"post_processing", "composition"},
    "implementation": {
        *("preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"),
    },
    "administrative": {"sources", "notes", "registry_authors"},
}
REQUIRED = FIELDS["basic"] - {"data_product_sector"}

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 3)})
PLAN = fp.design(
    fp.Workload(
        DOMAIN, [fp.queries({"sex": "identity", "age": "prefix"}, std=3.0), fp.total(std=1.0)]
    )
)
MARGINALS = fp.design(
    fp.Workload(
        fp.Domain({name: ["x", "y", "z"] for name in "abc"}),
        [fp.marginal("a", "b", std=3.0), fp.marginal("c", std=2.0), fp.total(std=1.0)],
    )
)


def tables(plan, counts=None):
    names = plan.domain.names
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 50, plan.domain.shape) if counts is None else counts
    return fp.Tables(plan.domain, {names: cells})


def assert_of_the_registry(record):
    assert set(record) == {"url_slug", "status", "tier", "deployment"}
    assert re.fullmatch(r"[\w-]+", record["url_slug"])
    assert record["status"] == "Draft"
    assert record["tier"] == 3
    deployment = record["deployment"]
    assert set(deployment) == set(FIELDS)
    for section, fields in deployment.items():
        assert set(fields) <= FIELDS[section], section
    assert set(deployment["basic"]) >= REQUIRED
    datetime.date.fromisoformat(deployment["basic"]["publication_date"])
    parameters = deployment["privacy_loss"]["privacy_parameters"]
    assert set(parameters) == {"epsilon", "delta", "rho"}
    assert all(type(value) is float for value in parameters.values())
    for section, fields in deployment.items():
        for field, value in fields.items():
            if field == "privacy_parameters":
                continue
            texts = value if field in ("data_curators", "registry_authors") else [value]
            assert texts, (section, field)
            assert all(type(text) is str and text for text in texts), (section, field)


def rows(text):
    """Rows of the Markdown tables in a text, the headings and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    split = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = [i for i, row in enumerate(split) if set(row) == {"---"}]
    return [row for i, row in enumerate(split) if i not in rules and i + 1 not in rules]


@pytest.mark.parametrize("plan", [PLAN, MARGINALS], ids=["dense", "symmetric"])
@pytest.mark.parametrize("records", [1, 3])
def test_every_figure_is_the_plans(plan, records):
    of_one = plan.rho_exact
    plan = fp.design(plan.workload, unit=fp.AddRemove(records))
    released = fp.release(plan, tables(plan))
    record = fp.review(released, delta=1e-6)
    assert_of_the_registry(record)
    loss = record["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {
        "epsilon": released.epsilon(1e-6),
        "delta": 1e-6,
        "rho": released.rho,
    }
    rho = plan.rho_exact
    assert rho == of_one * records**2
    assert Fraction(released.rho) >= rho
    number = r"(?:(?:rho|epsilon) =|rho of one row,) (\d+\.\d+(?:e-\d+)?)"
    told = [Fraction(n) for n in re.findall(number, loss["privacy_parameters_details"])]
    exact = [rho, *([of_one] if records > 1 else [])]
    exact += [Fraction(released.epsilon(1e-6))]
    assert len(told) == len(exact)
    for shown, value in zip(told, exact, strict=True):
        assert value <= shown <= value * (1 + Fraction(2, 10**5))

    mechanisms = rows(record["deployment"]["implementation"]["mechanisms"])
    assert len(mechanisms) == len(plan.mechanisms())
    assert sum(int(row[2].replace(",", "")) for row in mechanisms) == plan.strategy.size
    together = sum(Fraction(row[5]) for row in mechanisms)
    assert plan.rho_exact <= together <= plan.rho_exact * (1 + Fraction(1, 10**4))
    for row in mechanisms:
        sensitivity, sigma = (float(text.replace(",", "")) for text in row[3:5])
        own = (sensitivity / sigma) ** 2 / 2
        assert float(row[5]) == pytest.approx(own, rel=1e-4)

    asked = rows(record["deployment"]["implementation"]["justification"])
    assert [row[0] for row in asked] == [name.replace("*", r"\*") for name in plan.workload.names]
    most = [math.sqrt(plan.variances[name].max()) for name in plan.workload.names]
    assert [float(row[3]) for row in asked] == pytest.approx(most, rel=1e-3)


def test_only_a_plan_within_its_tolerance_is_called_the_least():
    def justified(plan, **asked):
        released = fp.release(plan, tables(plan), **asked)
        return fp.review(released)["deployment"]["implementation"]["justification"]

    assert PLAN.gap <= PLAN.tolerance
    assert "meets every target at the least rho. It is proven within" in justified(PLAN)
    early = fp.design(PLAN.workload, max_iterations=1, tolerance=1e-9)
    assert early.gap > early.tolerance
    said = justified(early)
    assert "least rho." not in said
    percent = re.search(
        r"meets every target. It is proven within ([0-9.]+)% of the least possible: no mech", said
    )
    assert 100 * early.gap <= float(percent[1]) <= 110 * early.gap
    weighed = justified(fp.design(PLAN.workload, total_error_weight=0.01))
    assert "least rho." not in weighed


def test_epsilon_of_several_records_is_that_of_their_distance():
    plan = fp.design(PLAN.workload, unit=fp.AddRemove(3))
    released = fp.release(plan, tables(plan))
    assert Fraction(released.privacy_cost) ** 2 >= 2 * plan.rho_exact == 18 * PLAN.rho_exact
    assert released.privacy_cost == pytest.approx(3 * PLAN.privacy_cost, rel=1e-15)
    louder = Release(plan, released.answers, rho=1.0, noise_scale=2.0)
    assert louder.privacy_cost == plan.privacy_cost / 2


def test_it_tells_nothing_of_the_rows():
    one = fp.review(fp.release(PLAN, tables(PLAN)))
    other = fp.review(fp.release(PLAN, tables(PLAN, np.full((2, 4), 424242))))
    assert one == other
    assert "4242" not in json.dumps(other)


def test_what_only_the_publisher_knows_is_said_or_asked_for():
    released = fp.release(PLAN, tables(PLAN))
    silent = fp.review(released)["deployment"]
    assert silent["basic"]["intended_use"] == f"{MISSING}, as intended_use in [about]."
    assert silent["basic"]["data_curators"] == [f"{MISSING}, as curators in [about]."]
    asked = set(re.findall(f"{MISSING}, as ([a-z_]+) in ", json.dumps(silent)))
    assert asked < {field.name for field in dataclasses.fields(fp.About)}
    assert asked == {"actors", "authors", "curators", "intended_use", "preprocessing", "region",
                     "sources"}  # fmt: skip
    about = fp.About(
        name="Ages | by sex",
        curators=("Office",),
        description="Counts.",
        intended_use="Planning.",
        region="Nowhere",
        sector="Government",
        unit="household",
        actors="Us.",
        preprocessing="None.",
        sources="A page.",
        notes="A note.",
        authors=("A", "B"),
    )
    record = fp.review(released, about=about, published=datetime.date(2026, 1, 2))
    assert_of_the_registry(record)
    assert MISSING not in json.dumps(record)
    assert record["url_slug"] == "ages-by-sex-office-2026"
    said = record["deployment"]
    assert said["basic"]["publication_date"] == "2026-01-02"
    assert said["basic"]["data_product_sector"] == "Government"
    assert said["privacy_loss"]["privacy_unit"] == "household"
    assert (
        "all rows of one household, added or removed"
        in said["privacy_loss"]["privacy_unit_details"]
    )
    assert said["administrative"]["registry_authors"] == ["A", "B"]


def test_whether_records_were_limited_is_told():
    released = fp.release(fp.design(PLAN.workload, unit=fp.AddRemove(4)), tables(PLAN))
    declared, enforced = (
        fp.review(released, limited=limited)["deployment"] for limited in ("declared", "enforced")
    )
    details = declared["privacy_loss"]["privacy_unit_details"]
    assert "assumes at most 4 rows per person; fitplug did not check this." in details
    assert "rows were left out before counting" in enforced["privacy_loss"]["privacy_unit_details"]
    kept = enforced["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "At most 4 row(s) per person are kept" in kept


class TestComposition:
    @staticmethod
    def told(released, ledger):
        return fp.review(released, ledger=ledger)["deployment"]["accounting"]["composition"]

    def test_units_that_differ_are_named_with_their_cells(self, tmp_path):
        ledger = fp.Ledger(tmp_path / "b.db", rho=9.0, unit=fp.AddRemove(2))
        plan = fp.design(PLAN.workload, unit=fp.AddRemove(2))
        released = fp.release(plan, tables(plan), ledger=ledger)
        text = self.told(released, ledger)
        assert "for one person's rows added or removed: at most 2, anywhere. Spent" in text
        assert "unit of privacy" not in text
        domain = fp.Domain({"MONTH": ["1", "2"], "SEX": ["1"]})
        unit = fp.AddRemove(2, distinct=True)
        ledger.charge(0.25, what="census", unit=unit, domain=domain)
        text = self.told(released, ledger)
        assert "| unit of privacy |" in text
        assert "at most 2, each in a different cell of MONTH x SEX (cells " in text

    def test_no_ledger(self):
        assert "No ledger was charged" in self.told(fp.release(PLAN, tables(PLAN)), None)

    def test_all_charges_so_far(self, tmp_path):
        ledger = fp.Ledger(tmp_path / "b.db", epsilon=9.0, delta=1e-6, any_noise=True)
        ledger.charge(0.125, what="census | of\n`2020`")
        released = fp.release(PLAN, tables(PLAN), ledger=ledger)
        text = self.told(released, ledger)
        assert "epsilon = 9.0 at delta = 1e-6, for any noise" in text
        first, second = rows(text)
        assert first[2:] == ["0.125", r"census &#124; of \`2020\`", ""]
        assert second[4] == PLAN.digest[:12]
        assert text.endswith("This release is number 2.")
        spent, left = re.search(r"Spent: rho = (\S+) .* Left: rho = (\S+)\.", text).groups()
        assert ledger.spent <= float(spent) <= ledger.spent * 1.00001
        assert ledger.remaining * 0.99999 <= float(left) <= ledger.remaining
        model = fp.review(released, ledger=ledger)["deployment"]["deployment_model"]
        assert model["release_type"] == "Many releases"

    def test_a_free_release(self, tmp_path):
        ledger = fp.Ledger(tmp_path / "b.db", rho=9.0)
        fp.release(PLAN, tables(PLAN), ledger=ledger, key="first")
        more = fp.Workload(DOMAIN, [fp.queries({"age": fp.ranges([(0, 0)])}, std=1.0)])
        free = fp.design(more, cell_budgets=ledger.unused_budget("first", DOMAIN))
        released = fp.release(free, tables(free), ledger=ledger, covered_by="first")
        assert released.entry.rho == 0
        text = self.told(released, ledger)
        assert rows(text)[1][2] == "covered"
        assert "stay within what the charge paid" in text
        assert text.endswith("number 2, covered by number 1.")


def test_long_lists_are_cut_and_summed_up(monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules["fitplug.releases.review_texts"], "MOST_ROWS", 2)
    ledger = fp.Ledger(tmp_path / "b.db", rho=9.0)
    for i in range(3):
        ledger.charge(0.5, what=f"charge {i}")
    released = fp.release(MARGINALS, tables(MARGINALS), ledger=ledger)
    said = fp.review(released, ledger=ledger)["deployment"]
    mechanisms = said["implementation"]["mechanisms"]
    shown = sum(Fraction(row[5]) for row in rows(mechanisms))
    count, rest = re.search(r"and (\d+) more, with rho = (\S+) together\.", mechanisms).groups()
    assert int(count) == len(MARGINALS.mechanisms()) - 2
    exact = MARGINALS.rho_exact
    assert exact <= shown + Fraction(rest) <= exact * (1 + Fraction(1, 10**4))
    assert "2 older charge(s) are not listed" in said["accounting"]["composition"]
    assert "and 1 more." in said["implementation"]["justification"]


def test_the_review_says_what_ran():
    released = fp.release(PLAN, tables(PLAN))

    def software(**keywords):
        record = fp.review(released, **keywords)["deployment"]["implementation"]
        return record["mechanisms"].partition("**Software.** ")[2].replace("\\", "")

    assert software() == ""
    assert software(versions={"fitplug": "1", "numpy": "2"}) == "fitplug 1, numpy 2."


def test_files_hold_the_same(tmp_path):
    record = fp.review(fp.release(PLAN, tables(PLAN)), about=fp.About(name="Ü: 'x' # y"))
    release_files.write_review(tmp_path, record)
    text = (tmp_path / "review.yaml").read_text()
    assert yaml.safe_load(text) == record
    assert "mechanisms: |-\n" in text
    page = (tmp_path / "review.md").read_text()
    assert page == format_markdown(record)
    assert page.startswith("# Ü: 'x' \\# y\n")
    page = re.sub(r"\\([^\w\s]|_)", r"\1", html.unescape(page))
    for section in record["deployment"].values():
        for value in section.values():
            if isinstance(value, str):
                assert re.sub(r"\\([^\w\s])", r"\1", html.unescape(value)) in page


SPEC = """
[data]
path = "people.parquet"
[privacy]
unit = { records = 1 }
[domain]
sex = ["1", "2"]
[[query]]
name = "sexes"
sex = "identity"
std = 2.0
[ledger]
path = "b.db"
rho = 1.0
[about]
name = "Sexes"
curators = ["An office"]
unit = "patient"
{more}
"""


def run(folder, more=""):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"sex": ["1", "2", "2"]}), folder / "people.parquet")
    (folder / "spec.toml").write_text(SPEC.replace("{more}", more))
    command = [sys.executable, "-m", "fitplug_cli.main", "run", str(folder / "spec.toml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_run_writes_it(tmp_path):
    assert run(tmp_path).returncode == 0
    record = yaml.safe_load((tmp_path / "release" / "review.yaml").read_text())
    assert_of_the_registry(record)
    said = json.loads((tmp_path / "release" / "release.json").read_text())
    assert record["deployment"]["privacy_loss"]["privacy_parameters"]["rho"] == said["rho"]
    assert said["rho_charged"] == said["rho"]
    assert said["ledger_entry"] == 1
    assert record["deployment"]["basic"]["data_curators"] == ["An office"]
    assert record["deployment"]["privacy_loss"]["privacy_unit"] == "patient"
    assert "OpenDP 0." in record["deployment"]["implementation"]["mechanisms"]


@pytest.mark.slow
def test_a_wrong_about_is_refused_before_anything(tmp_path):
    done = run(tmp_path, 'sector = "Governement"')
    assert done.returncode == 2
    assert "[about] sector = 'Governement'" in done.stderr
    assert not (tmp_path / "b.db").exists()
