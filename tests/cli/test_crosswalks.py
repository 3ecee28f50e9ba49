"""Crosswalks of codes and regions: as levels, as rows and in `fitplug estimate`; against sums by
pandas and DuckDB.
"""

from __future__ import annotations

import json
import re

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.domain import get_codec
from fitplug_cli.spec import SpecError, load_spec
from tests.helpers.command_line import fitplug

TRACTS = [f"{s}{c}{t}" for s in ("01", "02") for c in ("001", "003") for t in ("10", "11", "12")]
SECRET = "ZEBRACANARY"


class TestLevels:
    TREE = fp.Hierarchy({"state": 2, "county": 5, "tract": 7}, TRACTS)

    @pytest.mark.parametrize(
        ("region", "levels"),
        [
            (lambda code: "all", ["new", "state", "county", "tract"]),
            (lambda code: code[:2], ["new", "state", "county", "tract"]),
            (lambda code: code[:5], ["state", "new", "county", "tract"]),
            (lambda code: code[:5] + ("a" if code[-1] == "0" else "b"),
             ["state", "county", "new", "tract"]),
            (lambda code: "r" + code, ["state", "county", "new", "tract"]),
        ],
    )  # fmt: skip
    def test_goes_where_it_nests(self, region, levels):
        made = self.TREE.with_level("new", {code: region(code) for code in TRACTS})
        assert list(made.levels) == levels
        assert sorted(made.values) == sorted(TRACTS)
        groups = pd.Series(TRACTS).groupby([region(code) for code in TRACTS], sort=False)
        expected = {label: set(own) for label, own in groups}
        ends = get_codec(made).intervals("new").tolist()
        found = {
            label: set(made.values[first : last + 1])
            for label, (first, last) in zip(made.labels_at("new"), ends, strict=True)
        }
        assert found == expected

    def test_regions_need_not_be_contiguous(self):
        flat = fp.Hierarchy(["city"], [["a"], ["b"], ["c"], ["d"]])
        made = flat.with_level("side", {"a": 1, "b": 2, "c": 1, "d": 2})
        assert made.leaves == ((1, "a"), (1, "c"), (2, "b"), (2, "d"))

    def test_what_does_not_nest_is_refused(self):
        with pytest.raises(fp.DomainError, match="does not nest with the levels state"):
            self.TREE.with_level("new", {code: code[-1] for code in TRACTS})
        with pytest.raises(
            fp.DomainError,
            match="leaf '0100110' has no label on the level new",
        ):
            self.TREE.with_level("new", {})

    @given(st.lists(st.integers(0, 2), min_size=12, max_size=12))
    def test_any_regions_nest_or_are_refused(self, labels):
        region_of = dict(zip(TRACTS, labels, strict=True))
        try:
            made = self.TREE.with_level("new", region_of)
        except fp.DomainError:
            return
        for level in self.TREE.levels:
            own = set(zip(self.TREE.labels_at(level), range(99), strict=False))
            assert len(made.labels_at(level)) == len(own)
        ends = get_codec(made).intervals("new").tolist()
        for label, (first, last) in zip(get_codec(made).named_at("new"), ends, strict=True):
            assert {region_of[code] for code in made.values[first : last + 1]} == {label}


SPEC = """
ledger = false

[data]
path = "people.parquet"
[privacy]
unit = {{ records = 1 }}
[domain]
SEX = ["1", "2"]
{domain}
[[query]]
name = "regions"
SEX = "identity"
GEOID = {query}
std = 2.0
[output]
path = "out"
"""
PREFIX = "levels = { state = 2, county = 5, tract = 7 }, leaves = 'codes.txt'"


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(5)
    people = {"GEOID": rng.choice(TRACTS, 3000), "SEX": rng.choice(["1", "2"], 3000)}
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    (tmp_path / "codes.txt").write_text("\n".join(TRACTS))
    return tmp_path


def spec(place, domain, query):
    (place / "spec.toml").write_text(SPEC.format(domain=domain, query=query))
    return load_spec(place / "spec.toml").workload


def refused(place, domain, query, says):
    with pytest.raises(SpecError) as caught:
        spec(place, domain, query)
    assert re.search(says, str(caught.value)), caught.value
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def counted(place, regions):
    """People by region and sex, as DuckDB joins them."""
    walk = pd.DataFrame(regions, columns=["code", "region"])  # noqa: F841
    rows = duckdb.sql(
        f"SELECT region, SEX, count(*) FROM '{place}/people.parquet' "
        "JOIN walk ON starts_with(GEOID, code) GROUP BY ALL"
    ).fetchall()
    return {(region, sex): n for region, sex, n in rows}


def check_run(place, regions):
    """A run's estimates are the counts of DuckDB, up to the noise."""
    ran = fitplug("run", place / "spec.toml")
    assert ran.code == 0, ran.err
    table = pd.read_csv(place / "out" / "regions.csv", dtype={"SEX": str})
    expected = counted(place, regions)
    assert len(table) == len(expected)
    for row in table.itertuples():
        assert abs(row.estimate - expected[row.GEOID, row.SEX]) < 2.0 * 8


def test_a_level_of_regions_that_are_not_contiguous(place):
    regions = [("01001", "inland"), ("01003", "coast"), ("02001", "coast"), ("02003", "inland")]
    lines = "".join(f"{code},{region}\n" for code, region in regions)
    (place / "r.csv").write_text("GEOID,region\n" + lines)
    (place / "codes.txt").write_text("\n".join(TRACTS))
    flat = "GEOID = { categories = 'codes.txt', crosswalk = { region = 'r.csv' } }"
    # Counties of plain categories are no nodes: the crosswalk has the codes themselves.
    refused(place, flat, '"region"', "r.csv: line 2: the code is not a value of GEOID")
    tracts = [(code, dict(regions)[code[:5]]) for code in TRACTS]
    pq.write_table(pa.table(dict(zip(("code", "region"), zip(*tracts, strict=True), strict=True))),
                   place / "r.parquet")  # fmt: skip
    flat = flat.replace("r.csv", "r.parquet")
    workload = spec(place, flat, '"region"')
    assert workload["regions"].factors[1].labels(workload.domain["GEOID"]) == ["inland", "coast"]
    check_run(place, regions)
    asked = spec(place, flat, '"GEOID"')["regions"]  # the finest level has the attribute's name
    assert asked.shape == (2, 12)


def test_a_level_within_states(place):
    regions = [("01001", "a"), ("01003", "b"), ("02", "c")]
    lines = "".join(f"{code},x,{region}\n" for code, region in regions)
    (place / "r.csv").write_text("FIPS,title,CBSA\n" + lines)
    walk = "crosswalk = { cbsa = { file = 'r.csv', leaf = 'FIPS', region = 'CBSA' } }"
    workload = spec(place, f"GEOID = {{ {PREFIX}, {walk} }}", '"cbsa"')
    assert get_codec(workload.domain["GEOID"]).levels == ("state", "cbsa", "county", "tract")
    check_run(place, regions)


def test_rows_of_regions_that_overlap(place):
    regions = [("01001", "west"), ("0200110", "west"), ("01", "first state"), ("02", "second")]
    lines = "".join(f"{code},{region}\n" for code, region in [*regions, ("0100110", "west")])
    (place / "r.csv").write_text("GEOID,region\n" + lines)
    workload = spec(place, f"GEOID = {{ {PREFIX} }}", '{ crosswalk = "r.csv" }')
    factor = workload["regions"].factors[1]
    assert factor.names == ("west", "first state", "second")
    assert factor.matrix().sum(axis=1).tolist() == [4, 6, 6]
    check_run(place, regions)
    ran = fitplug("estimate", place / "out", "regions[GEOID = west, SEX = 1 or 2]", "--json")
    (row,) = json.loads(ran.out)["estimates"]
    expected = counted(place, regions)
    assert abs(row["value"] - expected["west", "1"] - expected["west", "2"]) < 40


def test_rows_written_in_the_spec(place):
    query = '{ rows = { west = ["01001", "0200110"], change = { "01" = 1, "02" = -1 } } }'
    workload = spec(place, f"GEOID = {{ {PREFIX} }}", query)
    expected = [[1.0] * 3 + [0.0] * 3 + [1.0] + [0.0] * 5, [1.0] * 6 + [-1.0] * 6]
    assert workload["regions"].factors[1].matrix().tolist() == expected


BAD = {
    "code,region\n0100110,a\nZEBRACANARY,a\n": "line 3: the code is not a value of GEOID",
    "code,region\n0100110,\n": "line 2: no value in column 2",
    "code,region\n,a\n": "line 2: no value in column 1",
    "code,region\n0100110, a\n": "line 2: the value in column 2 must not start or end with",
    "0100110,a\n0100111,b\n": "the first line must name the columns, for example GEOID,region",
    "a,b,ZEBRACANARY\n1,2,3\n": "columns of codes and regions are unclear",
    "a\n1\n": "columns of codes and regions are unclear",
    "a,a\n1,2\n": "columns of codes and regions are unclear",
    "code,region\n01, \t\n": "line 2: the value in column 2 must not start or end",
    "code,region\n01,\x1f\n": "line 2: the value in column 2 must not start or end",
    "": "the crosswalk is empty",
    "code,region\n": "column 1 has no values",
}


@pytest.mark.parametrize("content", BAD)
def test_what_is_wrong_with_a_file(place, content):
    (place / "r.csv").write_text(content)
    domain = f"GEOID = {{ {PREFIX} }}"
    refused(place, domain, '{ crosswalk = "r.csv" }', BAD[content])
    walk = "crosswalk = { new = 'r.csv' }"
    refused(place, f"GEOID = {{ {PREFIX}, {walk} }}", '"new"', BAD[content])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("01,a\n02001,b\n", "3 of the 12 leaves of GEOID have no region"),
        ("01,a\n02,b\n01001,b\n", "the regions of a level must not overlap"),
        ("01,a\n02001,a\n02003,ZEBRACANARY\n", "a region cuts across nodes of the levels"),
    ],
)
def test_what_makes_no_level(place, content, says):
    (place / "r.csv").write_text("code,region\n" + content)
    walk = "crosswalk = { new = 'r.csv' }"
    refused(place, f"GEOID = {{ {PREFIX}, {walk} }}", '"new"', says)
    spec(place, f"GEOID = {{ {PREFIX} }}", '{ crosswalk = "r.csv" }')  # as rows it may be


def test_a_region_with_the_label_of_other_codes(place):
    (place / "r.csv").write_text("code,region\n02,a\n01001,02\n")
    says = r"r.csv: line 3: the region has the label of another value of GEOID"
    refused(place, f"GEOID = {{ {PREFIX} }}", '{ crosswalk = "r.csv" }', says)
    (place / "r.csv").write_text("code,region\n02,02\n01001,b\n")
    spec(place, f"GEOID = {{ {PREFIX} }}", '{ crosswalk = "r.csv" }')


@pytest.mark.parametrize(
    ("walk", "says"),
    [
        ("'r.csv'", "crosswalk must map each new level to a file"),
        ("{}", "crosswalk must map each new level"),
        ("{ file = 'r.csv' }", "crosswalk must map each new level"),
        ("{ state = 'r.csv' }", "level 'state' is named twice"),
        ("{ total = 'r.csv' }", "level name 'total' is reserved"),
        ("{ new = 3 }", "crosswalk must be the path of a file"),
        ("{ new = { file = 'r.csv', leef = 'x' } }", "Did you mean 'leaf'"),
        ("{ new = { file = 'r.csv', leaf = 3 } }", "leaf must be a string"),
        ("{ new = { file = 'r.csv', leaf = 'a', region = 'a' } }", "must be different columns"),
        ("{ new = { file = 'r.csv', leaf = 'x', region = 'b' } }", "no column 'x'"),
        ("{ new = 'none.csv' }", "no such crosswalk"),
    ],
)
def test_what_is_wrong_with_an_entry(place, walk, says):
    (place / "r.csv").write_text("a,b\n01,x\n02,y\n")
    refused(place, f"GEOID = {{ {PREFIX}, crosswalk = {walk} }}", '"tract"', says)


def test_what_takes_no_levels(place):
    (place / "r.csv").write_text("a,b\n1,x\n")
    walk = "crosswalk = { new = 'r.csv' }"
    for domain, says in {
        f"GEOID = {{ integers = [0, 3], {walk} }}": "categories and hierarchies",
        f"GEOID = {{ prefix = 1, categories = ['1'], {walk} }}": "categories and hierarchies",
    }.items():
        refused(place, domain, '"identity"', says)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    """A release without noise of 2 x 12 cells, its histogram, and its folder."""
    place = tmp_path_factory.mktemp("blocks")
    domain = fp.Domain({"GEOID": TestLevels.TREE, "SEX": ["1", "2"]})
    groups = [
        fp.queries({"GEOID": "tract", "SEX": "identity"}, std=3.0, name="tracts"),
        fp.queries({"GEOID": "county"}, std=3.0, name="counties"),
        fp.marginal("SEX", std=3.0, name="sexes"),
        fp.total(std=3.0),
    ]
    plan = fp.design(fp.Workload(domain, groups), tolerance=1e-1)
    x = np.random.default_rng(2).poisson(40.0, (12, 2))
    answers = plan.strategy.answer_exactly(fp.Tables(domain, {domain.names: x}).marginal)
    release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
    release.save(place / "out")
    return place, release, pd.DataFrame(x, index=TRACTS, columns=["1", "2"])


class TestEstimate:
    WALK = pd.DataFrame(
        {"GEOID": [*TRACTS, *TRACTS[:5]], "zone": [f"z{i % 3}" for i in range(12)] + ["new"] * 5}
    )

    def test_each_region_is_the_sum_of_its_leaves(self, blocks):
        place, release, x = blocks
        self.WALK.sample(frac=1, random_state=1).to_csv(place / "w.csv", index=False)
        asked = ["tracts[SEX=1]", "100 * tracts[SEX=1] / tracts", "tracts/total"]
        options = ["--by", place / "w.csv", "--output", place / "e.csv"]
        ran = fitplug("estimate", place / "out", *asked, *options)
        assert (ran.code, ran.out) == (0, "")
        assert "12 estimates written" in ran.err
        found = pd.read_csv(place / "e.csv").set_index(["zone", "name"])
        joined = self.WALK.join(x, on="GEOID").groupby("zone")[["1", "2"]].sum()
        for zone, own in joined.iterrows():
            men, people = own["1"], own.sum()
            estimates = found.loc[zone, "estimate"]
            # Written to the digits that matter of a std of about 6.
            assert estimates["tracts[SEX=1]"] == pytest.approx(men, abs=6e-3)
            assert estimates["100 * tracts[SEX=1] / tracts"] == pytest.approx(
                100 * men / people, abs=6e-3
            )
            assert estimates["tracts/total"] == pytest.approx(people / x.sum().sum(), abs=6e-3)
        leaves = ", ".join(TRACTS[:5])
        std = release.estimate(f"tracts[GEOID in [{leaves}], SEX=1]").std
        assert found.loc[("new", "tracts[SEX=1]"), "std"] == pytest.approx(std, rel=1e-3)

    def test_coarser_rows_count_regions_of_whole_nodes(self, blocks):
        place, _, x = blocks
        (place / "c.csv").write_text(
            "GEOID,zone\n01001,a\n0200110,b\n0200111,b\n0200112,b\n02003,a\n"
        )
        ran = fitplug("estimate", place / "out", "counties", "--by", place / "c.csv", "--json")
        values = {row["zone"]: row["value"] for row in json.loads(ran.out)["estimates"]}
        by_county = x.sum(axis=1).groupby(lambda code: code[:5]).sum()
        assert values["a"] == pytest.approx(by_county["01001"] + by_county["02003"], abs=1e-6)
        assert values["b"] == pytest.approx(by_county["02001"], abs=1e-6)
        ran = fitplug("estimate", place / "out", "counties", "--by", place / "c.csv")
        assert re.search(r"zone +estimate of +value", ran.out)
        (place / "c.csv").write_text("GEOID,zone\n01001,a\n0200110,b\n")
        ran = fitplug("estimate", place / "out", "counties", "--by", place / "c.csv")
        assert ran.code == 2
        assert "cannot count all of GEOID in the region" in ran.err
        assert re.search(r"c\.csv: line 3: .*cannot count all of GEOID", ran.err)

    @pytest.mark.parametrize(
        ("content", "options", "says"),
        [
            ("GEOID,z\nZEBRACANARY,a\n", [], "line 2: the code is not a value of GEOID"),
            ("x,z\n01,a\n", [], "the attribute that the codes belong to is unclear"),
            ("GEOID,SEX\n01,a\n", [], "the attribute that the codes belong to is unclear"),
            ("GEOID,a,b\n01,a,b\n", [], "columns of codes and regions are unclear"),
            ("x,z\n01,a\n", ["--attribute", "GEOIT"], "Did you mean 'GEOID'"),
            ("GEOID,z\n01,a\n", ["--region", "y"], "no column 'y'"),
            ("GEOID,z\n01,a\n", ["sexes"], "none of its groups has the attribute 'GEOID'"),
        ],
    )
    def test_what_is_wrong(self, blocks, content, options, says):
        place, _, _ = blocks
        (place / "bad.csv").write_text(content)
        asked = options if options and not options[0].startswith("-") else ["tracts", *options]
        ran = fitplug("estimate", place / "out", *asked, "--by", place / "bad.csv")
        assert ran.code == 2
        assert re.search(says, ran.err), ran.err
        assert SECRET not in ran.err

    def test_an_attribute_that_groups_do_not_have(self, blocks, tmp_path):
        place, _, _ = blocks
        ran = fitplug("estimate", place / "out", "sexes", "--by", "GEOID")
        assert "expression 'sexes': none of its groups has the attribute 'GEOID'. Use" in ran.err
        (tmp_path / "e.csv").write_text("name,expression\nx,sexes\n")
        ran = fitplug("estimate", place / "out", "--from", tmp_path / "e.csv", "--by", "GEOID")
        assert "sexes" not in ran.err
        domain = fp.Domain({"SEX": ["1", "2"], "AGE": fp.Integers(0, 3)})
        plan = fp.design(fp.Workload(domain, [fp.marginal("SEX", std=3.0)]))
        answers = np.zeros(2, dtype=np.int64)
        fp.Release(plan=plan, answers=answers, rho=plan.rho).save(tmp_path / "out")
        ran = fitplug("estimate", tmp_path / "out", "SEX", "--by", "AGE")
        assert "no query of this release uses the attribute 'AGE'. Use --by with one of" in ran.err
        assert ran.err.endswith(": 'SEX'\n")

    def test_columns_by_name(self, blocks):
        place, _, x = blocks
        (place / "n.csv").write_text("n,FIPS,CBSA\n1,01,a\n2,02,b\n")
        ran = fitplug("estimate", place / "out", "tracts", "--by", place / "n.csv", "--attribute",
                      "GEOID", "--leaf", "FIPS", "--region", "CBSA", "--json")  # fmt: skip
        values = [row["value"] for row in json.loads(ran.out)["estimates"]]
        assert values == pytest.approx([x[:6].sum().sum(), x[6:].sum().sum()], abs=1e-6)
        ran = fitplug("estimate", place / "out", "tracts", "--leaf", "FIPS")
        assert ran.code == 2
        assert "Add --by FILE" in ran.err

    def test_each_value_of_an_attribute(self, blocks):
        place, release, x = blocks
        asked = ["tracts[GEOID=01]", "tracts / sexes"]
        ran = fitplug("estimate", place / "out", *asked, "--by", "SEX", "--json")
        assert ran.code == 0, ran.err
        rows = json.loads(ran.out)["estimates"]
        assert [(row["SEX"], row["name"]) for row in rows] == [
            (sex, text) for sex in ("1", "2") for text in asked
        ]
        for sex, (men, share) in zip(("1", "2"), (rows[:2], rows[2:]), strict=True):
            assert men["value"] == pytest.approx(x[sex][:6].sum(), abs=1e-6)
            assert men["std"] == pytest.approx(release.estimate(f"tracts[GEOID=01,SEX={sex}]").std)
            assert share["value"] == pytest.approx(1.0)

    def test_each_node_of_a_level(self, blocks):
        place, release, x = blocks
        ran = fitplug("estimate", place / "out", "tracts[SEX=2]", "--by", "county", "--json")
        found = {row["county"]: row for row in json.loads(ran.out)["estimates"]}
        by_county = x["2"].groupby(lambda code: code[:5]).sum()
        assert list(found) == list(by_county.index)
        for county, own in by_county.items():
            assert found[county]["value"] == pytest.approx(own, abs=1e-6)
            expected = release.estimate(f"tracts[GEOID={county}, SEX=2]").std
            assert found[county]["std"] == pytest.approx(expected)

    def test_a_file_with_the_name_of_an_attribute(self, blocks, monkeypatch):
        place, _, x = blocks
        monkeypatch.chdir(place)
        (place / "SEX").write_text("SEX,both\n1,all\n2,all\n")
        ran = fitplug("estimate", "out", "sexes", "--by", "./SEX", "--json")
        (row,) = json.loads(ran.out)["estimates"]
        assert row["both"] == "all"
        assert row["value"] == pytest.approx(x.sum().sum(), abs=1e-6)

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (
                ["--by", "countie"],
                "unknown attribute, level or file 'countie'. Did you mean 'county'",
            ),
            (["--by", "SEX", "--leaf", "x"], "need a file, but --by SEX is not a file"),
            (["--by", "none.csv"], "no such crosswalk"),
        ],
    )
    def test_what_names_no_region(self, blocks, options, says):
        place, _, _ = blocks
        ran = fitplug("estimate", place / "out", "sexes", *options)
        assert ran.code == 2
        assert re.search(says, ran.err), ran.err

    def test_a_level_of_two_trees(self, tmp_path):
        domain = fp.Domain({name: fp.Hierarchy(["top"], [["a"], ["b"]]) for name in ("x", "y")})
        groups = [fp.queries({"x": "top", "y": "top"}, std=3.0, name="both")]
        plan = fp.design(fp.Workload(domain, groups))
        counts = fp.Tables(domain, {("x", "y"): np.eye(2, dtype=int)}).marginal
        answers = plan.strategy.answer_exactly(counts)
        fp.Release(plan=plan, answers=answers, rho=plan.rho).save(tmp_path / "out")
        ran = fitplug("estimate", tmp_path / "out", "both", "--by", "top")
        assert ran.code == 2
        assert "'top' is a level of several attributes: 'x', 'y'. Give --by a file" in ran.err
