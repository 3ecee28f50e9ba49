"""Tree blocks in parts against the matrix that they measure, written out by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fitplug.families.tree.shape import node_tree as node_tree
from tests.helpers.parts import check_parts
from tests.helpers.tree_strategies import (
    PAIR_UNITS,
    draw_pair_strategy,
    find_structure,
    random_strategy,
    random_workload,
    wide_workload,
    write_out,
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
    parted = strategy.cut(most)
    x = rng.integers(0, 1000, strategy.structure.workload.shape)
    check_parts(parted, x, rng, write_out(strategy))
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
    check_parts(strategy.cut(most), x, rng, write_out(strategy))


@pytest.mark.parametrize("kind", KINDS[::3])
@pytest.mark.parametrize("largest_entry", [2**20, 2**51])
def test_answers_are_exact_for_every_integer(kind, largest_entry) -> None:
    rng = np.random.default_rng(2)
    strategy = make(rng, kind, largest_entry)
    shape = strategy.structure.workload.shape
    parted, A = strategy.cut(50), write_out(strategy)
    for largest in (2**20, (2**63 - 1) // int(np.prod(shape))):
        check_parts(parted, rng.integers(-largest, largest, shape, endpoint=True), rng, A)
    one = np.zeros(shape, dtype=np.int64)
    one.flat[0] = -(2**63)
    check_parts(parted, one, rng, A)


@pytest.mark.parametrize("unit", PAIR_UNITS, ids=str)
def test_public_totals_are_a_part_without_noise(unit) -> None:
    tried = 0
    for seed, most in enumerate([1, 20, 2**20, 1, 20, 2**20]):
        rng, strategy = draw_pair_strategy(seed, unit, (1, 5))
        if strategy is None:
            continue
        parted = strategy.cut(most)
        assert parted.is_public(len(parted.sizes) - 1)
        x = rng.integers(0, 1000, strategy.structure.workload.shape)
        check_parts(parted, x, rng, write_out(strategy), rtol=1e-9)
        tried += 1
    assert tried > 1
