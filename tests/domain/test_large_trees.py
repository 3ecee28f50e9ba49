"""Trees as arrays: what they are made of, written and read level by level, and their size."""

from __future__ import annotations

import copy
import json
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.domain import get_codec, hierarchy

CODES = [f"{i // 50:03}{i:05}" for i in range(300)]
TREE = fp.Hierarchy({"state": 1, "county": 3, "tract": 8}, CODES)
PLACES = {"region": ["n", "s", "n"], "kind": [1, 2, 2], "city": ["Ulm", "Rom", "Kiel"]}
LABEL = st.sampled_from(["a", "b", "a/b", "b/c", "c", "é", ""]) | st.integers(-1, 2)


EVERY_TREE = [
    TREE,
    fp.Hierarchy.from_columns(PLACES),
    fp.Hierarchy(["area"], [[7], [-3]]),
    fp.Hierarchy(["a", "b"], [["é", "€1"], ["é", "\ud800"], ["", "😀"]]),
]


@pytest.mark.parametrize(
    "leaves",
    [np.array(CODES), np.array(CODES, dtype=object), tuple(CODES)],
    ids=["texts", "objects", "tuple"],
)
def test_codes_may_be_an_array(leaves):
    assert fp.Hierarchy({"state": 1, "county": 3, "tract": 8}, leaves) == TREE


def test_paths_may_be_an_array():
    paths = [[code[:1], code[:3], code] for code in CODES]
    for leaves in (paths, np.array(paths), np.array(paths, dtype=object)):
        assert fp.Hierarchy(["state", "county", "tract"], leaves) == TREE
    numbers = fp.Hierarchy(["a", "b"], np.array([[1, 10], [2, 20], [1, 11]]))
    assert numbers.leaves == ((1, 10), (1, 11), (2, 20))
    assert [type(label) for label in numbers.leaves[0]] == [int, int]


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_columns_of_any_table(make):
    tree = fp.Hierarchy.from_columns(make(PLACES))
    assert tree == fp.Hierarchy(list(PLACES), list(zip(*PLACES.values(), strict=True)))
    assert tree.labels_at("kind") == ("1", "n/2", "s/2")
    assert tree.values == ("Ulm", "Kiel", "Rom")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([1, 2], "mapping of level names to labels, not list"),
        ({}, "a hierarchy needs at least one level"),
        ({"total": [1]}, "level name 'total' is reserved"),
        ({"a": [1, 2], "b": [1]}, r"the levels have different numbers of labels, \[1, 2\]"),
        ({"a": [], "b": []}, "no leaves"),
        ({"a": "xy", "b": [1, 2]}, "level 'a' must be a list or an array of labels, not str"),
        ({"a": [1, None], "b": [1, 2]}, "label None must be a string or an integer"),
        ({"a": [1, "1"], "b": [1, 2]}, "level 'a' mixes strings and integers"),
        ({"a": [1, 1], "b": [2, 2]}, "leaf 2 is listed twice"),
        ({"a": [2**62], "b": [1]}, r"between -2\*\*62 and 2\*\*62"),
        (pd.DataFrame([[1, 2]]), "level 0 must be a non-empty string"),
    ],
)
def test_columns_that_make_no_tree(columns, says):
    with pytest.raises(fp.DomainError, match=says):
        fp.Hierarchy.from_columns(columns)


@pytest.mark.parametrize(
    ("levels", "leaves", "says"),
    [
        (["a", "b"], np.zeros((0, 2)), "no leaves"),
        (["a", "b"], np.zeros((3, 2)), "label 0.0 must be a string or an integer, not float"),
        (["a", "b"], np.zeros((3, 3), int), "with one label per level: a, b"),
        (["a", "b"], np.array(3), "leaves must be a list, not int"),
        ({"a": 1, "b": 2}, np.array([["0", "01"]]), "must be a string"),
        ({"a": 1, "b": 2}, np.array([1, 10]), "leaf 1 must be a string"),
    ],
)
def test_arrays_that_make_no_tree(levels, leaves, says):
    with pytest.raises(fp.DomainError, match=says):
        fp.Hierarchy(levels, leaves)


@given(st.lists(st.tuples(LABEL, LABEL), min_size=1, max_size=25))
def test_nodes_stand_where_their_first_leaf_does(paths):
    """Against sorting the paths by when their nodes come first, as Python does it."""
    leaves = [(str(a), str(b), i) for i, (a, b) in enumerate(paths)]
    first: dict[tuple, int] = {}
    for leaf in leaves:
        for depth in (1, 2, 3):
            first.setdefault(leaf[:depth], len(first))
    expected = sorted(leaves, key=lambda leaf: [first[leaf[:depth]] for depth in (1, 2, 3)])
    nodes = list(dict.fromkeys(leaf[:2] for leaf in expected))
    labels = [b for _, b in nodes]
    named = [b if labels.count(b) == 1 else f"{a}/{b}" for a, b in nodes]
    if len(set(named)) < len(named):
        with pytest.raises(fp.DomainError, match="level 'two' would have the same name"):
            fp.Hierarchy(["one", "two", "three"], leaves)
        return
    tree = fp.Hierarchy(["one", "two", "three"], leaves)
    assert list(tree.leaves) == expected
    assert list(get_codec(tree).named_at("two")) == named


@pytest.mark.parametrize("tree", EVERY_TREE, ids=str)
def test_copies_are_equal_and_cannot_be_changed(tree):
    assert tree.leaves
    hash(tree)
    assert get_codec(tree).codes(np.array(tree.values, dtype=object)).tolist() == list(
        range(tree.size)
    )
    for array in (get_codec(tree)._index._keys, get_codec(tree)._index._order):
        assert not array.flags.writeable
    for same in (pickle.loads(pickle.dumps(tree)), copy.deepcopy(tree)):
        assert same == tree
        assert hash(same) == hash(tree)
        assert not {"leaves", "_codec"} & set(vars(same))
        for level in same._coarser:
            with pytest.raises(ValueError, match="read-only"):
                level.first[:] = 0


def test_trees_differ_by_each_of_their_parts():
    paths = [["a", 1, "x"], ["a", 2, "y"], ["b", 2, "z"]]
    tree = fp.Hierarchy(["one", "two", "three"], paths)
    changed = [
        fp.Hierarchy(["one", "two", "other"], paths),
        fp.Hierarchy(["one", "two", "three"], [*paths[:2], ["a", 2, "z"]]),
        fp.Hierarchy(["one", "two", "three"], [*paths[:2], ["b", 3, "z"]]),
        fp.Hierarchy(["one", "two", "three"], [*paths[:2], ["b", 2, "w"]]),
        fp.Hierarchy(["one", "two", "three"], [[a, str(b), c] for a, b, c in paths]),
        fp.Categories(["x", "y", "z"]),
    ]
    for other in changed:
        assert tree != other


# Large trees in specs


@pytest.mark.parametrize("tree", EVERY_TREE, ids=str)
def test_a_tree_that_is_written_level_by_level(tree, monkeypatch):
    listed = get_codec(tree).spec()
    monkeypatch.setattr(hierarchy, "MOST_LISTED", 1)
    packed = json.loads(json.dumps(get_codec(tree).spec()))
    assert set(packed) == {"levels", "nodes"}
    domain = fp.Domain({"geo": tree})
    assert fp.Domain.from_spec({"geo": packed}) == fp.Domain.from_spec({"geo": listed}) == domain
    assert len(json.dumps(CODES)) > len(json.dumps(get_codec(TREE).spec()))


def test_a_top_node_without_a_label_is_written_too(monkeypatch):
    monkeypatch.setattr(hierarchy, "MOST_LISTED", 0)
    tree = fp.Hierarchy(["all", "county", "tract"], [["", c, c + t] for c in "pq" for t in "123"])
    packed = json.loads(json.dumps(get_codec(tree).spec()))
    assert fp.Domain.from_spec({"geo": packed})["geo"] == tree


def pack(**changes):
    nodes = [
        {"labels": "nös", "lengths": [2, 1], "leaves": [2, 1]},
        {"labels": [1, 2, 2], "leaves": [1, 1, 1]},
        {"labels": "UlmRomKyk", "lengths": 3},
    ]
    for level, change in changes.items():
        nodes["abc".index(level)] |= change
    return {"levels": ["region", "kind", "city"], "nodes": nodes}


def test_packed_trees_by_hand():
    tree = fp.Domain.from_spec({"geo": pack()})["geo"]
    assert isinstance(tree, fp.Hierarchy)
    assert tree.leaves == (("nö", 1, "Ulm"), ("nö", 2, "Rom"), ("s", 2, "Kyk"))


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (pack(c={"lengths": 4}), "'labels' must be a list, or one text with 'lengths'"),
        (pack(c={"lengths": 0}), "'labels' must be a list, or one text with 'lengths'"),
        (pack(c={"lengths": [3, 3]}), "'labels' must be a list, or one text with 'lengths'"),
        (
            pack(c={"lengths": [3, 3, True]}),
            "'labels' must be a list, or one text with 'lengths'",
        ),
        (pack(c={"lengths": [4, 6, -1]}), "'labels' must be a list, or one text with 'lengths'"),
        (pack(c={"labels": 5}), "'labels' must be a list, or one text with 'lengths'"),
        (pack(c={"labels": []}), "'labels' must be a list, or one text with 'lengths'"),
        (pack(b={"labels": [1, 2, "2"]}), "'labels' must be a list, or one text with 'lengths'"),
        (
            pack(b={"labels": [1, 2, 2**62]}),
            "'labels' must be a list, or one text with 'lengths'",
        ),
        (pack(b={"leaves": [1, 1]}), "number of leaves of each node"),
        (pack(b={"leaves": [1, 1, 2]}), "number of leaves of each node"),
        (pack(b={"leaves": [1, 1, 0]}), "number of leaves of each node"),
        (pack(b={"leaves": [1, 1, 1.0]}), "number of leaves of each node"),
        (pack(b={"leaves": None}), "number of leaves of each node"),
        (
            pack(b={"labels": [1, 2], "leaves": [1, 2]}),
            "each node must lie within one node of the level above",
        ),
        (
            pack(b={"labels": [1], "leaves": [3]}),
            "each node must lie within one node of the level above",
        ),
        (pack(c={"labels": "UlmRomUlm"}), "leaf 'Ulm' is listed twice"),
        ({"levels": ["a"], "nodes": [3]}, "'labels' must be a list, or one text with 'lengths'"),
        ({"levels": ["a", "b"], "nodes": [{"labels": [1]}]}, "a list of 2 tables"),
        ({"levels": ["a"], "nodes": {}}, "a list of 1 tables"),
        ({"levels": ["a"], "nodes": [], "leafs": 1}, "unknown key 'leafs'"),
        (pack() | {"leaves": [["n", 1, "Ulm"]]}, "have either 'leaves' or 'nodes', not both"),
        ({"nodes": pack()["nodes"]}, "unknown key 'nodes'"),
    ],
)
def test_packed_trees_that_are_no_trees(packed, says):
    with pytest.raises(fp.DomainError, match=says):
        fp.Domain.from_spec({"geo": packed})


# Size


def test_a_tree_takes_what_its_codes_take():
    """Bytes and not seconds: what is held, pickled and written of 300,000 leaves in five levels."""
    levels = {"state": 2, "county": 5, "tract": 11, "group": 12, "block": 15}
    codes = [
        f"{i // 6000:02}{i // 600 % 1000:03}{i // 60:06}{i // 20 % 3}{i % 1000:03}"
        for i in range(300_000)
    ]
    tracemalloc.start()
    tree = fp.Hierarchy(levels, codes)
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 35 * len(codes)
    assert most < 350 * len(codes)
    assert len(pickle.dumps(tree)) < 20 * len(codes)
    text = json.dumps(get_codec(tree).spec())
    assert len(text) < 20 * len(codes)
    assert fp.Domain.from_spec({"geo": json.loads(text)})["geo"] == tree
    assert [len(get_codec(tree).intervals(level)) for level in levels] == [
        50,
        500,
        5000,
        15_000,
        300_000,
    ]
    np.testing.assert_array_equal(
        get_codec(tree).codes(np.array(codes[::-1000])), np.arange(300_000)[::-1000]
    )
