"""Tree blocks in parts against all of their answers and estimates at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitplug.families import cut_strategy
from fitplug.families.tree.shape import node_tree
from tests.helpers.parts import check_parts
from tests.helpers.tree_strategies import (
    find_structure,
    random_strategy,
    random_workload,
    wide_workload,
)

KINDS = [
    {"symmetric": symmetric, "dense": dense, "varying": varying}
    for symmetric in (False, True)
    for dense in (False, True)
    for varying in (False, True)
]
KINDS.append({"wide": True})


def make(rng, kind, most=5):
    if "wide" in kind:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node_tree, "MOST_CHILDREN", 16)
            structure = find_structure(wide_workload(rng))
            assert structure.tree.size > 2 + 40 + 3
    else:
        structure = find_structure(random_workload(rng, **kind))
    return random_strategy(rng, structure, most)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 20, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_those_of_the_whole(kind, most) -> None:
    rng = np.random.default_rng(most)
    strategy = make(rng, kind)
    parted = cut_strategy(strategy, most)
    check_parts(parted, rng.integers(0, 1000, strategy.structure.workload.shape), rng)
    assert most > 1 or len(parted.sizes) > 5
    assert most > 1 or len(parted.slabs) > 1
    assert most > 1 or any(output.axis is not None for output in parted.outputs)


@settings(max_examples=20)
@given(kind=st.sampled_from(KINDS), most=st.integers(1, 400), seed=st.integers(0, 2**32))
@pytest.mark.slow
def test_random_trees(kind, most, seed) -> None:
    rng = np.random.default_rng(seed)
    strategy = make(rng, kind)
    x = rng.integers(-50, 1000, strategy.structure.workload.shape)
    check_parts(cut_strategy(strategy, most), x, rng)


@pytest.mark.parametrize("kind", KINDS[::3])
@pytest.mark.parametrize("largest_entry", [2**20, 2**51])
def test_answers_are_exact_for_every_integer(kind, largest_entry) -> None:
    rng = np.random.default_rng(2)
    strategy = make(rng, kind, largest_entry)
    shape = strategy.structure.workload.shape
    parted = cut_strategy(strategy, 50)
    for largest in (2**20, (2**63 - 1) // int(np.prod(shape))):
        check_parts(parted, rng.integers(-largest, largest, shape, endpoint=True), rng)
    one = np.zeros(shape, dtype=np.int64)
    one.flat[0] = -(2**63)
    check_parts(parted, one, rng)
