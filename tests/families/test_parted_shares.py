"""Answers and estimates of measures in parts, against those of the whole."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_codec
from tests.helpers.parts import answer_in_parts, estimate_in_parts
from tests.helpers.tree_plans import design_tree

PAY = fp.Measure(-10, 90, unit=5)
HOURS = fp.Measure(0, 4, other="none")


def dense():
    domain = fp.Domain({"age": fp.Integers(0, 6), "pay": PAY, "sex": ["f", "m"]})
    groups = [
        fp.queries({"age": "prefix", "pay": "sum"}, std=20.0, name="pay"),
        fp.queries({"age": "prefix", "sex": "identity"}, std=3.0, name="people"),
    ]
    return fp.Workload(domain, groups)


def symmetric():
    places = [str(i) for i in range(9)]
    domain = fp.Domain({"place": places, "sex": ["f", "m"], "pay": PAY, "hours": HOURS})
    groups = [
        fp.queries({"place": "identity", "pay": "sum"}, std=20.0, name="pay"),
        fp.queries({"sex": "identity", "hours": "sum"}, std=2.0, name="hours"),
        fp.queries({"pay": "sum", "hours": "sum"}, std=90.0, name="both"),
        fp.marginal("place", "sex", std=3.0),
    ]
    return fp.Workload(domain, groups)


def tree():
    paths = [(f"c{i}", f"c{i} t{j}") for i in range(8) for j in range(i % 4 + 2)]
    domain = fp.Domain({"pay": PAY, "tract": fp.Hierarchy(["county", "tract"], paths)})
    groups = [
        fp.queries({"tract": level, "pay": "sum"}, std=std, name=f"pay {level}")
        for level, std in [("county", 30.0), ("tract", 20.0)]
    ]
    groups += [fp.queries({"tract": "tract"}, std=3.0, name="people"), fp.total(std=2.0)]
    return fp.Workload(domain, groups)


def draw_tables(plan: fp.Plan, rows: int = 2000) -> fp.Tables:
    rng = np.random.default_rng(3)
    domain, columns = plan.domain, {}
    codes = {}
    for name in domain.names:
        codes[name] = rng.integers(0, get_codec(domain[name]).code_count, rows)
    for name in domain.names:
        own = domain[name]
        if get_codec(own).quantities:
            values = float(own.low) + codes[name] * own.unit
            columns[name] = [
                None if c > get_codec(own).shares else v
                for c, v in zip(codes[name], values, strict=True)
            ]
        else:
            values = list(get_codec(own).column_values())
            columns[name] = [values[c] for c in codes[name]]
    return fp.Tables.from_records(domain, columns, plan.tables)


@pytest.mark.parametrize("most", [1, 16, 2**20])
@pytest.mark.parametrize("make", [dense, symmetric, tree])
@pytest.mark.slow
def test_parts_are_those_of_the_whole(make, most):
    plan = design_tree(make()) if make is tree else fp.design(make())
    tables, strategy = draw_tables(plan), plan.strategy
    parted = strategy.cut(most)
    answers = strategy.answer_exactly(tables.marginal)
    np.testing.assert_array_equal(answer_in_parts(parted, tables.marginal), answers)
    expected = strategy.make_estimates(answers)
    for name, found in estimate_in_parts(parted, answers).items():
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(found, expected[name], rtol=1e-9, atol=1e-9 * scale)


def test_estimates_of_exact_answers_are_the_sums_of_the_values():
    plan = fp.design(symmetric())
    tables = draw_tables(plan)
    parted = plan.strategy.cut(16)
    found = estimate_in_parts(parted, answer_in_parts(parted, tables.marginal))
    low, high = tables.marginal(("pay", "place")) / get_codec(PAY).shares
    np.testing.assert_allclose(found["pay"].ravel(), -10 * low + 90 * high)
    people = tables.marginal(("place", "sex"))
    np.testing.assert_allclose(found["place x sex"], people)


def test_shares_beyond_int64_are_clamped_as_in_the_whole():
    """Each table holds 2^58 shares, and answers count 2^6 times as many."""
    large = fp.Measure(0, 2**6)
    domain = fp.Domain({"sex": ["f", "m"], "pay": large, "hours": large})
    groups = [
        fp.queries({"sex": "identity", name: "sum"}, std=9.0, name=name)
        for name in ("pay", "hours")
    ]
    plan = fp.design(fp.Workload(domain, groups))
    held = {names: np.array([[0, 2**58], [0, 0]]) for names in plan.tables}
    tables = fp.Tables(domain, held)
    strategy = plan.strategy
    parted = strategy.cut(16)
    pieces: dict = {}
    for s, slab in enumerate(parted.slabs):
        counts = np.asarray(tables.marginal(slab.names))[slab.index]
        for part, piece in parted.split_counts(s, counts).items():
            pieces.setdefault(part, {})[s] = piece
    found = np.zeros(strategy.size, dtype=np.int64)
    for part in range(len(parted.sizes)):
        found[parted.place(part)] = parted.answer_part(part, pieces[part])
    np.testing.assert_array_equal(found, strategy.answer_exactly(tables.marginal))
