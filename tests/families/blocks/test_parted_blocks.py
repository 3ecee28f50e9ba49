"""Block sets in parts against the matrix that they measure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug.errors import TablesError, WorkloadError
from fitplug.families import PART, Output, Slab, analysis
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.chain.shape import bins
from fitplug.families.chain.shape.bins import BinnedChainStructure
from tests.helpers.parts import check_parts
from tests.helpers.plans import (
    all_marginals,
    ordered_workload,
    product_plan,
    rows_of_numbers,
    symmetric_plan,
    two_trees_plan,
)


def symmetric(*sizes, ways=None):
    return fp.design(all_marginals(sizes, len(sizes) if ways is None else ways), tolerance=0.1)


def chain():
    groups = [
        fp.queries({"x": "prefix", "s": "identity"}, variance=4.0),
        fp.queries({"s": "identity"}, variance=1.0),
        fp.queries({"x": "identity"}, variance=9.0),
    ]
    domain = fp.Domain({"s": [str(i) for i in range(5)], "x": fp.Integers(0, 39)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 0)
        patch.setattr(analysis, "LEAST_CHAIN", 1)
        return fp.design(fp.Workload(domain, groups), tolerance=0.1)


def binned_chain():
    pairs = [(at, at + 4) for at in range(0, 40, 5)]
    groups = [
        fp.queries({"x": "prefix"}, variance=4.0),
        fp.queries({"x": fp.ranges(pairs), "s": "identity", "t": "identity"}, variance=4.0),
        fp.queries({"t": "identity"}, variance=1.0),
    ]
    domain = fp.Domain(
        {"s": [str(i) for i in range(15)], "x": fp.Integers(0, 39), "t": ["a", "b", "c"]}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_AGAIN", 0)
        patch.setattr(analysis, "LEAST_CHAIN", 1)
        patch.setattr(bins, "MOST_CLASSES", 9)
        plan = fp.design(fp.Workload(domain, groups), tolerance=0.1)
    assert type(plan.strategy.structure) is BinnedChainStructure
    return plan


def mixed():
    """Blocks that are matrices over an ordered attribute, beside symmetric ones."""
    domain = fp.Domain(
        {"a": fp.Integers(0, 6), "age": fp.Integers(0, 3), "b": fp.Integers(0, 4), "c": ["u", "v"]}
    )
    groups = [
        fp.queries({"age": "prefix", "b": "identity", "a": "identity"}, variance=2.0),
        fp.queries({"c": "identity", "a": "identity"}, variance=1.0),
        fp.queries({"age": fp.ranges([(1, 2)]), "b": "identity"}, variance=3.0, name="ranges"),
    ]
    return fp.design(fp.Workload(domain, groups), tolerance=0.1)


def blocks_over_queries():
    domain = fp.Domain({"a": fp.Integers(0, 3), "b": fp.Integers(0, 7), "c": fp.Integers(0, 2)})
    groups = [
        fp.queries({"b": "identity", "a": [[1.0, 0.5, 0, -1], [0, 0.25, 1, 1]]}, variance=2.0),
        fp.queries({"a": [[3.0, 0, 1, 1]], "c": "identity", "b": "identity"}, variance=3.0),
        fp.queries({"c": "identity"}, variance=1.0),
    ]
    return fp.design(fp.Workload(domain, groups), tolerance=0.1)


def larger_product():
    """Ordered attributes in the product family, with more and with fewer queries than cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 4)
        domain = fp.Domain(
            {"a": fp.Integers(0, 8), "s": [str(i) for i in range(7)], "b": fp.Integers(0, 5)}
        )
        groups = [
            fp.queries({"b": "all_ranges", "a": "prefix", "s": "identity"}, variance=2.0),
            fp.queries({"s": "identity", "a": fp.ranges([(1, 4)]), "b": "prefix"}, variance=2.0),
            fp.queries({"b": "prefix", "s": "identity"}, variance=1.0),
        ]
        return fp.design(fp.Workload(domain, groups), tolerance=0.5)


def replaced(*within, ages=4, is_split=False):
    """Blocks of which public totals tell, and those that they answer."""
    places, ages_of = [str(i) for i in range(7)], fp.Integers(0, ages)
    domain = fp.Domain({"s": places, "sex": ["f", "m"], "age": ages_of, "t": ["a", "b"]})
    groups = [
        fp.queries({"age": "prefix", "s": "identity"}, variance=2.0),
        fp.marginal("sex", "s", "t", variance=3.0),
        fp.marginal("s", variance=1.0),
        fp.total(variance=0.5),
    ]
    if ages == 0:
        domain, groups = fp.Domain({n: domain[n] for n in ("s", "sex", "t")}), groups[1:]
    with pytest.MonkeyPatch.context() as patch:
        if is_split:
            patch.setattr(PairStructure, "fits", False)
        return fp.design(fp.Workload(domain, groups), tolerance=0.3, unit=fp.ReplaceOne(within))


PLANS = {
    "numbers": symmetric_plan,
    "numbers of three attributes": lambda: symmetric(9, 4, 6),
    "contrasts of Hadamard matrices": lambda: symmetric(8, 12, 2, ways=2),
    "matrices": mixed,
    "rows of the workload": blocks_over_queries,
    "queries of numbers": lambda: fp.design(rows_of_numbers(), tolerance=0.1),
    "prefixes": lambda: fp.design(ordered_workload([4, 3], 2), tolerance=0.1),
    "product": product_plan,
    "product, larger": larger_product,
    "two trees": two_trees_plan,
    "a chain": chain,
    "a chain with bins": binned_chain,
    "pairs": replaced,
    "pairs within s": lambda: replaced("s"),
    "pairs within age and sex": lambda: replaced("age", "sex"),
    "moves": lambda: replaced(ages=0),
    "moves within s": lambda: replaced("s", "t", ages=0),
    "split pairs": lambda: replaced(is_split=True),
    "split pairs within s": lambda: replaced("s", is_split=True),
}


@pytest.fixture(scope="module", params=PLANS.values(), ids=PLANS.keys())
def strategy(request):
    return request.param().strategy


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 7, 40, 2**20])
def test_parts_are_those_of_the_whole(strategy, most) -> None:
    rng = np.random.default_rng(most)
    parted = strategy.cut(most)
    check_parts(parted, rng.integers(0, 1000, strategy.structure.workload.shape), rng)
    if most == 2**20:
        assert parted.noisy_parts == 1
        assert all(output.axis is None for output in parted.outputs)
    if most == 1 and strategy.structure.symmetric:
        assert len(parted.sizes) > 1


def test_answers_are_exact_for_every_integer(strategy) -> None:
    rng = np.random.default_rng(3)
    shape = strategy.structure.workload.shape
    parted = strategy.cut(20)
    for largest in (2**40, (2**63 - 1) // int(np.prod(shape))):
        check_parts(parted, rng.integers(-largest, largest, shape, endpoint=True), rng)
    one = np.zeros(shape, dtype=np.int64)
    one.flat[-1] = -(2**63)
    check_parts(parted, one, rng)


@settings(max_examples=15)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    ways=st.integers(1, 4),
    most=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)
def test_marginals_of_any_sizes(sizes, ways, most, seed) -> None:
    rng = np.random.default_rng(seed)
    strategy = symmetric(*sizes, ways=min(ways, len(sizes))).strategy
    x = rng.integers(0, 100, strategy.structure.workload.shape)
    check_parts(strategy.cut(most), x, rng)


def test_tables_and_groups_are_cut_along_their_largest_attribute() -> None:
    strategy = symmetric(4, 9, 2).strategy
    parted = strategy.cut(32)
    names = ("a0", "a1", "a2")
    assert parted.slabs == (
        Slab(names, "a1", 0, 3),
        Slab(names, "a1", 3, 6),
        Slab(names, "a1", 6, 9),
    )
    of_group = [one for one in parted.outputs if len(one.shape) == 3]
    assert of_group == [
        Output(of_group[0].group, 1, start, start + 3, (4, 3, 2)) for start in (0, 3, 6)
    ]
    assert (parted.sizes <= 32).all()
    assert strategy.cut().slabs == (Slab(names, None, 0, 0),)
    assert PART == 2**20


def test_wrong_pieces_are_refused() -> None:
    parted = symmetric(4, 9, 2).strategy.cut(32)
    x = np.ones((4, 9, 2), dtype=np.int64)
    pieces = {s: parted.split_counts(s, x[slab.index]) for s, slab in enumerate(parted.slabs)}
    one = {s: own[0] for s, own in pieces.items()}
    parted.answer_part(0, one)
    with pytest.raises(TablesError, match="1 are missing and 0 extra"):
        parted.answer_part(0, {s: piece for s, piece in one.items() if s})
    with pytest.raises(TablesError, match=r"must have type int64 and shape \(4, 3, 2\), not"):
        parted.split_counts(0, x)
    with pytest.raises(TablesError, match="not float64 and"):
        parted.split_counts(0, x[parted.slabs[0].index].astype(float))
    narrow = parted.split_counts(0, np.full((4, 3, 2), 100, dtype=np.int8))
    wide = parted.split_counts(0, np.full((4, 3, 2), 100))
    assert all((narrow[part] == wide[part]).all() for part in wide)
    with pytest.raises(TablesError, match=r"needs \d+ integers as answers, not 3"):
        parted.split_answers(0, np.zeros(3, dtype=np.int64))
    with pytest.raises(TablesError, match="are missing"):
        parted.estimate(0, {})
    with pytest.raises(KeyError):
        pieces[0][len(parted.sizes)]


def test_what_cannot_be_cut_is_refused() -> None:
    sizes = {f"a{i}": fp.Integers(0, 7) for i in range(10)}
    plan = fp.design(fp.Workload(fp.Domain(sizes), [fp.marginal(*sizes, variance=1.0)]))
    with pytest.raises(
        WorkloadError, match=r"the counts of a0.* would need 134,217,728 numbers in memory"
    ):
        plan.strategy.cut()
