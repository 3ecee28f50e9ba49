"""Node trees against the nodes that intervals of leaves define."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.families import analyse_structure
from fitplug.families.tree.shape import node_tree as node_tree
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.node_tree import build_node_tree


def random_levels(rng, depths, most):
    """The first cell of each node of each level, the coarsest first, and the number of cells."""
    counts = [np.ones(int(rng.integers(1, 4)), dtype=np.int64)]
    children = [rng.integers(1, most + 1, len(counts[0]))]
    for _ in range(depths - 1):
        children.append(rng.integers(1, most + 1, int(children[-1].sum())))
    starts, below = [], np.ones(int(children[-1].sum()), dtype=np.int64)
    sizes = [below]
    for own in reversed(children):
        ends = np.cumsum(own)
        below = np.add.reduceat(below, (ends - own).astype(np.intp))
        sizes.insert(0, below)
    for own in sizes:
        starts.append(np.cumsum(own) - own)
    return {f"level{i}": start for i, start in enumerate(starts)}, int(sizes[-1].sum())


@given(seed=st.integers(0, 10**6), depths=st.integers(1, 4), merge=st.booleans())
def test_a_tree_has_the_nodes_of_its_levels(seed, depths, merge) -> None:
    rng = np.random.default_rng(seed)
    first, n = random_levels(rng, depths, 9)
    weights = {level: rng.integers(0, 2, (len(own), 1)) * 1.0 for level, own in first.items()}
    tree = build_node_tree(first, n, weights, merge=merge)
    # The cells below each node, from its children.
    below = np.zeros((tree.size, n), dtype=np.int64)
    below[tree.leaf_nodes, np.arange(n)] = 1
    tree.add_upwards(below)
    assert below.max() <= 1
    assert below[0].all()
    for level, own in first.items():
        ends = np.append(own[1:], n)
        for node, start, end in zip(tree.level_nodes[level].tolist(), own, ends, strict=True):
            cells = np.flatnonzero(below[node])
            if tree.multiplicities[node] == 1:
                assert cells.tolist() == list(range(start, end))
            else:
                assert start in cells
                assert tree.multiplicities[node] == len(set(cells.tolist()) & set(own.tolist()))
    assert tree.multiplicities[tree.leaves].sum() == len(next(reversed(first.values())))
    seen = {0}
    for step in tree.steps:
        assert seen.issuperset(step.parents.tolist())
        assert (tree.depths[step.parents] == step.parent_depth).all()
        assert (tree.depths[step.children] == step.depth).all()
        assert (np.min(step.children) > step.parents).all()
        assert not seen & set(step.children.ravel().tolist())
        seen |= set(step.children.ravel().tolist())
    assert seen == set(range(tree.size))
    assert [step.depth for step in tree.steps] == sorted(step.depth for step in tree.steps)


@given(seed=st.integers(0, 10**6))
def test_only_leaves_of_equal_weights_are_one_node(seed) -> None:
    rng = np.random.default_rng(seed)
    first, n = random_levels(rng, 2, 9)
    finest = list(first)[-1]
    weights = {level: np.zeros((len(own), 0)) for level, own in first.items()}
    weights[finest] = rng.integers(0, 2, (len(first[finest]), 1)).repeat(1, axis=1) * 1.0
    tree = build_node_tree(first, n, weights)
    for step in tree.steps:
        for child in step.children[:, 0].tolist() if step.counts is not None else ():
            own = weights[finest][tree.level_nodes[finest] == child]
            assert len(np.unique(own)) == 1
    separate = build_node_tree(first, n, weights, merge=False)
    assert all(step.counts is None for step in separate.steps)
    assert len(separate.leaves) == len(first[finest])


@pytest.mark.parametrize("children", [257, 1000, 70_000])
def test_wide_nodes_get_nodes_below_them(children) -> None:
    first = {"leaf": np.arange(children)}
    weights = {"leaf": np.arange(children)[:, None] * 1.0}  # no two are identical
    tree = build_node_tree(first, children, weights)
    widths = [step.children.shape[1] for step in tree.steps]
    assert max(widths) <= node_tree.MOST_CHILDREN
    # As even as can be, so that no node has one child or two.
    assert min(widths) >= min(children // node_tree.MOST_CHILDREN, 2)
    assert all(step.counts is None for step in tree.steps)
    assert len(np.unique(tree.leaf_nodes)) == children


def test_identical_leaves_are_one_node_however_many_they_are() -> None:
    tree = build_node_tree({"leaf": np.arange(10**6)}, 10**6, {"leaf": np.zeros((10**6, 0))})
    assert tree.size == 2
    (step,) = tree.steps
    assert step.counts.tolist() == [10**6]


def mixed_workload():
    leaves = [
        (f"s{s}", f"s{s}c{c}", f"s{s}c{c}t{t}")
        for s in range(3)
        for c in range(s + 1)
        for t in range(4 + 5 * c)
    ]
    place = fp.Hierarchy(["state", "county", "tract"], leaves)
    domain = fp.Domain({"age": fp.Integers(0, 5), "place": place, "sex": ["1", "2"]})
    counties = np.arange(6) + 1.0
    return fp.Workload(
        domain,
        [
            fp.queries({"sex": "identity", "place": "county", "age": "prefix"}, variance=3.0),
            fp.queries({"place": "county"}, variance=counties, name="counties"),
            fp.queries({"place": "identity"}, std=2.0, name="tracts"),
            fp.queries({"age": "prefix", "place": "state"}, std=1.0, name="states"),
            fp.total(variance=1.0),
        ],
    )


def test_rows_stand_for_all_queries() -> None:
    workload = mixed_workload()
    structure = analyse_structure(workload, tree=("place", "merged"))
    assert isinstance(structure, TreeStructure)
    assert structure.symmetric == ("sex",)
    assert structure.dense == ("age",)
    assert structure.repeats.sum() == workload.query_count
    values = structure.group_values(structure.targets)
    for group in workload.groups:
        assert np.array_equal(values[group.name], group.variances)
    # Leaves are asked for totals only; their classes are one, and no query tells ages apart there.
    assert [[own.size for own in classes] for classes in structure.classes] == [
        [6, 6, 6, 1],
        [6, 6, 6],
    ]


def test_the_profile_has_an_axis_for_the_leaves() -> None:
    structure = analyse_structure(mixed_workload(), tree=("place", "merged"))
    assert isinstance(structure, TreeStructure)
    values = np.arange(structure.differences, dtype=float)
    cells = structure.arrange_by_cell(values)
    assert cells.shape == (6, structure.workload.domain["place"].size)
    tree = structure.tree
    for leaf in range(cells.shape[1]):
        at = np.flatnonzero(tree.leaves == tree.leaf_nodes[leaf])[0]
        assert np.array_equal(cells[:, leaf], values.reshape(-1, 6)[at])


def test_a_large_tree_is_chosen_and_a_small_one_is_not() -> None:
    leaves = [(f"s{s}", f"t{s}_{t}") for s in range(70) for t in range(70)]
    for count, kind in ((100, "MatrixStructure"), (4900, "TreeStructure")):
        domain = fp.Domain({"place": fp.Hierarchy(["state", "tract"], leaves[:count])})
        workload = fp.Workload(
            domain,
            [
                fp.queries({"place": "tract"}, variance=2.0),
                fp.queries({"place": "state"}, variance=1.0),
                fp.total(variance=1.0),
            ],
        )
        structure = analyse_structure(workload)
        assert type(structure).__name__ == kind
        named = structure.names_in_files
        again = analyse_structure(workload, named["dense"], False, tree=named.get("tree", ()))
        assert type(again) is type(structure)
