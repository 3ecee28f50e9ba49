"""Hierarchies: cells, levels, what is refused, and the whole way from spec file to answers."""

from __future__ import annotations

import itertools
import math
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_codec
from fitplug.domain.encoder import OUTSIDE
from fitplug.workload.factors import build_factor
from fitplug_cli.spec import SpecError, load_spec

LEVELS = ("state", "county", "tract")
LEAVES = [
    ("01", "001", "0100101"),
    ("01", "001", "0100102"),
    ("01", "003", "0100301"),
    ("02", "001", "0200101"),
    ("02", "001", "0200102"),
    ("02", "001", "0200103"),
    ("11", "11", "11"),
]
GEO = fp.Hierarchy(LEVELS, LEAVES)
CODES = [leaf[-1] for leaf in LEAVES]
DOMAIN = fp.Domain({"geo": GEO, "sex": ["1", "2"]})


def number(code: str) -> int:
    return int("9" + code)


NUMBERED = fp.Hierarchy(LEVELS, [(s, int(c), number(t)) for s, c, t in LEAVES])


class TestCells:
    def test_the_cells_are_the_leaves(self):
        assert GEO.size == 7
        assert GEO.labels == tuple(CODES)
        assert (
            get_codec(GEO).value_type,
            get_codec(GEO).null_code,
            get_codec(NUMBERED).value_type,
        ) == (str, OUTSIDE, int)
        assert get_codec(GEO).codes(["0200101", None, "01", "11", "x"]).tolist() == [
            3,
            -1,
            -1,
            6,
            -1,
        ]
        codes = np.array([number("0100301"), 0, -1, number("11")])
        assert get_codec(NUMBERED).codes(codes).tolist() == [2, OUTSIDE, OUTSIDE, 6]
        assert get_codec(GEO).codes(np.array(CODES)).tolist() == list(range(7))
        assert (
            get_codec(GEO).find_end("0200103"),
            get_codec(GEO).find_end("02"),
            get_codec(GEO).find_end(3),
        ) == (5, None, None)
        assert (DOMAIN.shape, DOMAIN.size) == ((7, 2), 14)

    @pytest.mark.parametrize(
        ("attribute", "column"), [(GEO, [10101]), (NUMBERED, ["SECRET"]), (NUMBERED, [1.5, None])]
    )
    def test_columns_of_another_type_are_refused_without_a_value(self, attribute, column):
        with pytest.raises(fp.DataError, match="expects") as caught:
            get_codec(attribute).codes(column)
        assert str(column[0]) not in str(caught.value)

    def test_levels_are_intervals_of_leaves(self):
        assert get_codec(GEO).intervals("state").tolist() == [[0, 2], [3, 5], [6, 6]]
        assert get_codec(GEO).intervals("county").tolist() == [[0, 1], [2, 2], [3, 5], [6, 6]]
        assert get_codec(GEO).intervals("tract").tolist() == [[i, i] for i in range(7)]

    def test_a_label_that_two_nodes_have_is_shown_with_its_path(self):
        assert GEO.labels_at("state") == ("01", "02", "11")
        assert GEO.labels_at("county") == ("01/001", "003", "02/001", "11")
        assert NUMBERED.labels_at("county") == ("01/1", "3", "02/1", "11")
        assert GEO.labels_at("tract") == tuple(CODES)

    def test_leaves_of_a_node_are_put_together(self):
        mixed = [LEAVES[i] for i in (4, 0, 2, 3, 6, 1, 5)]
        grouped = fp.Hierarchy(LEVELS, mixed)
        assert grouped.leaves == tuple(LEAVES[i] for i in (4, 3, 5, 0, 1, 2, 6))
        assert grouped.labels_at("county") == ("02/001", "01/001", "003", "11")

    def test_prefixes_of_codes(self):
        codes = ["0100101", "0100102", "0100301", "0200101"]
        by_prefix = fp.Hierarchy({"state": 2, "county": 5, "tract": 7}, codes)
        assert by_prefix == fp.Hierarchy(LEVELS, [(c[:2], c[:5], c) for c in codes])
        assert by_prefix.labels_at("county") == ("01001", "01003", "02001")

    def test_one_level_and_one_leaf(self):
        one = fp.Hierarchy(["area"], [["a"]])
        assert (one.size, get_codec(one).intervals("area").tolist()) == (1, [[0, 0]])

    def test_equality_and_hash(self):
        same = fp.Hierarchy(list(LEVELS), [list(leaf) for leaf in LEAVES])
        assert same == GEO
        assert hash(GEO) == hash(same)
        assert fp.Hierarchy(("a", "b", "c"), LEAVES) != GEO
        assert fp.Hierarchy(LEVELS, LEAVES[:-1]) != GEO
        assert fp.Categories(CODES) != GEO
        assert pickle.loads(pickle.dumps(GEO)) == GEO
        assert repr(GEO) == "Hierarchy(state > county > tract, 7 leaves)"

    @pytest.mark.parametrize("hierarchy", [GEO, NUMBERED])
    def test_spec_round_trip(self, hierarchy):
        domain = fp.Domain({"a": [True, False], "geo": hierarchy})
        assert fp.Domain.from_spec(domain.spec()) == domain

    @given(paths=st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=25))
    def test_levels_against_enumeration(self, paths):
        leaves = [(a, b, c, 1000 + i) for i, (a, b, c) in enumerate(paths)]
        tree = fp.Hierarchy(("one", "two", "three", "four"), leaves)
        assert sorted(tree.leaves) == sorted(leaves)
        assert list(tree.labels_at("one")) == [str(a) for a in dict.fromkeys(a for a, *_ in paths)]
        for depth, level in enumerate(tree.levels, 1):
            nodes = list(dict.fromkeys(leaf[:depth] for leaf in tree.leaves))
            rows = [[float(leaf[:depth] == node) for leaf in tree.leaves] for node in nodes]
            asked = build_factor("geo", tree, level)
            np.testing.assert_array_equal(asked.matrix(), rows)
            assert asked.rows == len(nodes) == len(set(asked.labels(tree)))

    def test_a_large_tree_is_quick(self):
        """Seconds; a loop over pairs of leaves or nodes would take an hour."""
        codes = [f"{i:05}" for i in range(0, 100_000, 2)]
        tree = fp.Hierarchy({"two": 2, "three": 3, "four": 4, "five": 5}, codes)
        workload = fp.Workload(
            fp.Domain({"geo": tree}),
            [
                fp.queries({"geo": "four"}, std=1.0),
                fp.queries({"geo": "five"}, std=1.0),
                fp.queries({"geo": fp.ranges([(c, codes[-1]) for c in codes[::5]])}, std=1.0),
            ],
        )
        assert [g.size for g in workload.groups] == [10_000, 50_000, 10_000]
        assert workload.groups[0].factors[0].intervals()[-1].tolist() == [49_995, 49_999]
        assert get_codec(tree).codes(np.array(codes[::-1], dtype=object))[0] == 49_999


@pytest.mark.parametrize(
    ("levels", "leaves", "says"),
    [
        ("state", LEAVES, "levels must be a list or a mapping of names"),
        (None, LEAVES, "levels must be a list or a mapping of names"),
        ([], LEAVES, "a hierarchy needs at least one level"),
        (["state", ""], LEAVES, "level '' must be"),
        (["state", 2], LEAVES, "level 2 must be"),
        (["state", "state"], LEAVES, "'state' is named twice"),
        (["state", "identity"], LEAVES, "the level name 'identity' is reserved"),
        (["state", "prefix"], LEAVES, "the level name 'prefix' is reserved"),
        (["all_ranges"], LEAVES, "the level name 'all_ranges' is reserved"),
        (["total"], LEAVES, "the level name 'total' is reserved"),
        (["ranges"], LEAVES, "the level name 'ranges' is reserved"),
        (["matrix"], LEAVES, "the level name 'matrix' is reserved"),
        (["s", "t"], [], "no leaves"),
        (["s", "t"], "xy", "leaves must be a list, not str"),
        (["s", "t"], {"a": "b"}, "leaves must be a list, not dict"),
        (["s", "t"], None, "leaves must be a list, not NoneType"),
        (["s", "t"], ["ab"], "leaf 'ab' must be a list with one label per level: s, t"),
        (["s", "t"], [("1", "11"), ("1",)], r"leaf \('1',\) must be a list with one label"),
        (["s", "t"], [("1", "2", "3")], "must be a list with one label per level"),
        (["s", "t"], [("1", 1.5)], "label 1.5 must be a string or an integer, not float"),
        (["s", "t"], [("1", None)], "not NoneType"),
        (["s", "t"], [(True, "a")], "not bool"),
        (["s", "t"], [("1", "a"), (1, "b")], "level 's' mixes strings and integers"),
        (["s", "t"], [("1", "a"), ("1", 2)], "level 't' mixes strings and integers"),
        (["s", "t"], [("1", "a"), ("2", "a")], "leaf 'a' is listed twice"),
        (["s", "t"], [("1", "a"), ("1", "a")], "leaf 'a' is listed twice"),
        (["s"], [(2**62,)], r"2\*\*62"),
        (
            ["s", "t", "u"],
            [("a", "b/c", "1"), ("a/b", "c", "2"), ("x", "c", "3"), ("x", "b/c", "4")],
            "two nodes of level 't' would have the same name 'a/b/c'",
        ),
        ({"s": 2, "t": 2}, ["0101"], r"must be increasing positive integers, not \[2, 2\]"),
        ({"s": 0, "t": 2}, ["01"], "must be increasing positive integers"),
        ({"s": "2"}, ["01"], "must be increasing positive integers"),
        ({"s": True}, ["0"], "must be increasing positive integers"),
        ({"s": 2}, [101], "leaf 101 must be a string"),
        ({"s": 2, "t": 4}, ["0101", "011"], "leaf '011' must have 4 characters, not 3"),
        ({"s": 2, "t": 4}, ["0101", "0101"], "leaf '0101' is listed twice"),
    ],
)
def test_bad_hierarchies_say_what_and_why(levels, leaves, says):
    with pytest.raises(fp.DomainError, match=says) as caught:
        fp.Hierarchy(levels, leaves)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"levels": ["s"]}, "'geo': 'leaves' is missing"),
        ({"leaves": [["a"]]}, "'geo': 'levels' is missing"),
        ({"levels": ["s"], "leafs": [["a"]]}, "unknown key 'leafs'. Did you mean 'leaves'"),
        ({"level": ["s"]}, "unknown key 'level'. Did you mean 'levels'"),
        ({"levels": ["s"], "leaves": [["a", "b"]]}, "'geo': leaf"),
        (7, "7 must be a list of categories, or a table"),
    ],
)
def test_bad_specs_say_what_and_why(written, says):
    with pytest.raises(fp.DomainError, match=says):
        fp.Domain.from_spec({"geo": written})


def test_an_unknown_level_gets_a_hint():
    with pytest.raises(fp.WorkloadError, match=r"geo = 'contry' .*Did you mean 'county'"):
        fp.Workload(DOMAIN, [fp.queries({"geo": "contry"}, std=1.0)])
    with pytest.raises(fp.WorkloadError, match=r"not a kind of query\. Known: .*'total', 'state'"):
        fp.Workload(DOMAIN, [fp.queries({"geo": "?"}, std=1.0)])
    with pytest.raises(fp.WorkloadError, match="sex = 'county' is not a kind"):
        fp.Workload(DOMAIN, [fp.queries({"sex": "county"}, std=1.0)])
    for ask in (get_codec(GEO).intervals, GEO.labels_at):
        with pytest.raises(fp.DomainError, match="Did you mean 'state'"):
            ask("stat")


# Designs


def by_level(levels=LEVELS, domain=DOMAIN) -> fp.Workload:
    groups = [
        fp.queries({"geo": level, "sex": "identity"}, std=3.0 - i) for i, level in enumerate(levels)
    ]
    return fp.Workload(domain, [*groups, fp.total(std=4.0)])


def test_rows_names_and_targets_of_levels():
    workload = by_level()
    assert workload.names == ("geo state x sex", "geo county x sex", "geo tract x sex", "total")
    assert [group.shape for group in workload.groups] == [(3, 2), (4, 2), (7, 2), ()]
    rows = [
        [float(leaf[:depth] == node and own == sex) for leaf in LEAVES for own in "12"]
        for depth in (1, 2, 3)
        for node in dict.fromkeys(leaf[:depth] for leaf in LEAVES)
        for sex in "12"
    ]
    np.testing.assert_array_equal(workload.matrix(), [*rows, [1.0] * 14])
    targets = fp.queries({"geo": "county"}, variance=[1.0, 2, 3, 4])
    assert fp.Workload(DOMAIN, [targets]).targets().tolist() == [1, 2, 3, 4]
    block = fp.Hierarchy(["block_group"], [["a"], ["b"]])
    assert fp.Workload(
        fp.Domain({"geo": block}), [fp.queries({"geo": "block_group"}, std=1.0)]
    ).names == ("geo block group",)


def test_the_finest_level_is_the_identity():
    for asked in ("tract", "identity"):
        assert build_factor("geo", GEO, asked).kind == "identity"
    asked = [fp.queries({"geo": "tract"}, std=1.0), fp.marginal("geo", std=1.0)]
    assert fp.Workload(DOMAIN, asked).names == ("geo tract", "geo")


def test_a_design_is_that_of_the_dense_matrix():
    workload = by_level()
    plan = fp.design(workload)
    dense = fp.design(fp.Workload.from_matrix(workload.matrix(), variance=workload.targets()))
    assert math.isclose(plan.privacy_cost, dense.privacy_cost, rel_tol=2e-4)
    assert plan.lower_bound <= dense.privacy_cost
    assert dense.lower_bound <= plan.privacy_cost
    for name in workload.names:
        assert (plan.variances[name] <= plan.targets[name]).all()
    plan.verify()


@pytest.mark.parametrize("hierarchy", [GEO, NUMBERED])
def test_plan_files(tmp_path, hierarchy):
    domain = fp.Domain({"geo": hierarchy, "sex": ["1", "2"]})
    plan = fp.design(by_level(domain=domain))
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    again.verify()
    assert again.domain == domain
    assert again.digest == plan.digest
    assert again.workload.names == plan.workload.names
    np.testing.assert_array_equal(again.workload.matrix(), plan.workload.matrix())
    county = again.workload["geo county x sex"].factors[0]
    assert county.labels(again.domain["geo"]) == list(hierarchy.labels_at("county"))


# Counts

RECORDS = [*CODES * 2, "0100102", "0100102", "01", "elsewhere", None, CODES[-1]]
BY_HAND = np.array([2, 4, 2, 2, 2, 2, 3])


def test_from_records():
    tables = fp.Tables.from_records(DOMAIN, {"geo": RECORDS}, [("geo",)])
    np.testing.assert_array_equal(tables[("geo",)], BY_HAND)


def numbers() -> list[int | None]:
    return [None if r is None else 0 if r not in CODES else number(r) for r in RECORDS]


@pytest.mark.parametrize(
    ("hierarchy", "column"),
    [
        (GEO, pa.array(RECORDS, pa.string())),
        (GEO, pa.array(RECORDS, pa.large_string())),
        (GEO, pa.array(RECORDS, pa.binary())),
        (GEO, pa.array(RECORDS).dictionary_encode()),
        (NUMBERED, pa.array(numbers(), pa.int64())),
        (NUMBERED, pa.array(numbers(), pa.uint32())),
        (NUMBERED, pa.array(numbers(), pa.int64()).dictionary_encode()),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_parquet(tmp_path, hierarchy, column, use_dictionary):
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"geo": column}), path, row_group_size=5, use_dictionary=use_dictionary)
    tables = fpd.count(path, (fp.Domain({"geo": hierarchy}), [("geo",)]))
    np.testing.assert_array_equal(tables[("geo",)], BY_HAND)


def test_a_column_of_another_type_is_refused(tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"geo": [1, 2]}), path)
    with pytest.raises(fp.DataError, match="has the type int64, but the domain expects strings"):
        fpd.count(path, (DOMAIN, [("geo",)]))


@pytest.mark.parametrize("hierarchy", [GEO, NUMBERED])
def test_hive_folders(tmp_path, hierarchy):
    codes = [str(value) for value in hierarchy.values] + ["123", "__HIVE_DEFAULT_PARTITION__"]
    for i, code in enumerate(codes, 1):
        (tmp_path / f"geo={code}").mkdir()
        pq.write_table(pa.table({"sex": ["1", "2"] * i}), tmp_path / f"geo={code}" / "a.parquet")
    domain = fp.Domain({"geo": hierarchy, "sex": ["1", "2"]})
    tables = fpd.count(tmp_path, (domain, [("geo", "sex")]))
    np.testing.assert_array_equal(tables[("geo", "sex")], [[i, i] for i in range(1, 8)])


# The command line

SPEC = """
ledger = false

[data]
path = "people.parquet"

[privacy]
unit = { records = 1 }

[domain.GEOID]
levels = { state = 2, county = 5, tract = 7 }
leaves = ["0100101", "0100102", "0100301", "0200101"]

[domain.AREA]
levels = ["region", "place"]
leaves = [[1, 10], [1, 11], [2, 20]]

[[query]]
GEOID = "county"
std = 2.0

[[query]]
name = "regions by state"
AREA = "region"
GEOID = "state"
std = 3.0

[output]
path = "release/"
"""


def written(folder: Path, text: str = SPEC) -> Path:
    (folder / "spec.toml").write_text(text, encoding="utf-8")
    return folder / "spec.toml"


def test_a_spec_file(tmp_path):
    workload = load_spec(written(tmp_path)).workload
    assert get_codec(workload.domain["GEOID"]).labels_at("county") == ("01001", "01003", "02001")
    assert workload.domain["AREA"] == fp.Hierarchy(("region", "place"), [(1, 10), (1, 11), (2, 20)])
    assert workload.names == ("GEOID county", "regions by state")


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ('"county"', '"contry"', "Did you mean 'county'"),
        (
            "county = 5",
            "total = 5",
            "[domain] attribute 'GEOID': the level name 'total' is reserved",
        ),
        (
            "[1, 11]",
            "[1]",
            "[domain] attribute 'AREA': leaf [1] must be a list with one label per level",
        ),
        ("leaves = [[", "leafs = [[", "[domain] attribute 'AREA': unknown key 'leafs'"),
    ],
)
def test_a_bad_spec_file(tmp_path, right, wrong, says):
    with pytest.raises(SpecError) as caught:
        load_spec(written(tmp_path, SPEC.replace(right, wrong)))
    assert str(caught.value).startswith(f"{tmp_path / 'spec.toml'}: ")
    assert says in str(caught.value)


@pytest.mark.slow
def test_a_release_names_the_nodes(tmp_path):
    geoids = ["0100101", "0100102", "0100301", "0200101", "9999999"]
    areas = [10, 11, 20, 99]
    rows = list(itertools.product(geoids, areas)) * 3
    columns = {"GEOID": [g for g, _ in rows], "AREA": [a for _, a in rows]}
    pq.write_table(pa.table(columns), tmp_path / "people.parquet")
    ran = subprocess.run(
        [sys.executable, "-m", "fitplug_cli.main", "run", written(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    table = pq.read_table(tmp_path / "release" / "geoid_county.parquet")
    assert table["GEOID"].to_pylist() == ["01001", "01003", "02001"]
    assert np.abs(table["estimate"].to_numpy() - [18, 9, 9]).max() < 2.0 * 6
    table = pq.read_table(tmp_path / "release" / "regions_by_state.parquet")
    named = list(zip(table["AREA"].to_pylist(), table["GEOID"].to_pylist(), strict=True))
    assert named == [(1, "01"), (1, "02"), (2, "01"), (2, "02")]
