"""Tables of measures: shares of records against sums written out, their limits and agreement."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_codec, get_shape

DOMAIN = fp.Domain(
    {
        "sex": ["f", "m"],
        "income": fp.Measure(-2, 6, unit=2),
        "age": fp.Integers(0, 2),
        "fare": fp.Measure(0, 1, unit=0.25, other="none"),
    }
)
SHARES = {"income": 4, "fare": 4}
WANTED = [chosen for k in range(5) for chosen in itertools.combinations(DOMAIN.names, k)]


def draw_records(n, seed=0):
    rng = np.random.default_rng(seed)
    fare = rng.normal(0.5, 0.6, n).round(2).astype(object)
    fare[rng.random(n) < 0.3] = None
    return {
        "sex": rng.choice(["f", "m", "?"], n),
        "income": rng.integers(-5, 9, n),
        "age": rng.integers(0, 3, n),
        "fare": fare,
    }


def divide(name, value):
    """What a record has in each cell of an attribute, in shares."""
    if name == "sex":
        return [int(value == own) for own in ("f", "m")]
    if name == "age":
        return [int(value == own) for own in range(3)]
    if name == "income":
        units = int((min(max(value, -2), 6) + 2 + 1) // 2)
        return [4 - units, units]
    if value is None:
        return [0, 0, 4]
    units = int(np.floor(min(max(value, 0), 1) * 4 + 0.5))
    return [4 - units, units, 0]


def write_out(records, names):
    """The table over some attributes, one record after another."""
    table = np.zeros(get_shape(DOMAIN, names), dtype=object)
    for row in zip(*records.values(), strict=True):
        values = dict(zip(records, row, strict=True))
        if values["sex"] == "?":
            continue
        parts = [divide(name, values[name]) for name in names]
        for cell in itertools.product(*map(range, table.shape)):
            table[cell] += int(np.prod([p[i] for p, i in zip(parts, cell, strict=True)]))
    return table


@pytest.mark.parametrize("names", WANTED, ids=" ".join)
def test_records_are_divided(names):
    records = draw_records(40)
    # All attributes are counted, so that the same records are inside for every table.
    tables = fp.Tables.from_records(DOMAIN, records, [names, DOMAIN.names])
    np.testing.assert_array_equal(tables[names], write_out(records, names).astype(np.int64))


def test_marginals_are_whole_records():
    tables = fp.Tables.from_records(DOMAIN, draw_records(60), [DOMAIN.names])
    for names in WANTED:
        np.testing.assert_array_equal(
            tables.marginal(names), write_out(draw_records(60), names).astype(np.int64)
        )


def test_weights_multiply_shares():
    records = draw_records(30)
    weights = np.random.default_rng(3).integers(0, 4, 30)
    names = ("sex", "income")
    used = {name: records[name] for name in names}
    repeated = {name: np.repeat(column, weights.astype(np.intp)) for name, column in used.items()}
    codes = {name: get_codec(DOMAIN[name]).codes(column) for name, column in used.items()}
    found = fp.Tables.from_codes(DOMAIN, codes, [names], records=30, weights=weights)
    expected = fp.Tables.from_records(DOMAIN, repeated, [names])
    np.testing.assert_array_equal(found[names], expected[names])


def test_tables_that_hold_no_whole_records_are_refused():
    given = {("sex", "income"): [[1, 2], [4, 0]], ("sex",): [1, 1]}
    with pytest.raises(fp.TablesError, match=r"do not add up to whole rows"):
        fp.Tables(DOMAIN, given)
    whole = fp.Tables(DOMAIN, given | {("sex", "income"): [[1, 3], [4, 0]]})
    assert whole.marginal(("sex",)).tolist() == [1, 1]


def test_tables_that_disagree_are_refused():
    given = {("sex", "income"): [[1, 3], [4, 0]], ("sex",): [1, 2]}
    with pytest.raises(fp.TablesError, match="disagree"):
        fp.Tables(DOMAIN, given)
    given = {("sex", "income"): [[1, 3], [4, 0]], ("income", "age"): [[6, 0, 0], [0, 2, 0]]}
    with pytest.raises(fp.TablesError, match="disagree"):
        fp.Tables(DOMAIN, given)


def test_too_many_shares_are_refused():
    wide = fp.Domain({"a": fp.Measure(0, 2**25), "b": fp.Measure(0, 2**25)})
    largest = fp.Tables(wide, {("a",): [2**57, 2**57]})
    assert largest.marginal(()).tolist() == 2**33
    with pytest.raises(fp.TablesError, match="counts more than 8,589,934,592 rows"):
        fp.Tables(wide, {("a",): [2**57, 2**57 + 2**10]})
    codes = {"a": np.zeros(257, np.int64), "b": np.zeros(257, np.int64)}
    with pytest.raises(fp.TablesError, match="larger units"):
        fp.Tables.from_codes(wide, codes, [("a", "b")], records=257)
    fewer = {name: column[:256] for name, column in codes.items()}
    found = fp.Tables.from_codes(wide, fewer, [("a", "b")], records=256)
    assert found["a", "b"].tolist() == [[2**58, 0], [0, 0]]
    weights = np.full(256, 2, np.int64)
    with pytest.raises(fp.TablesError, match="larger units"):
        fp.Tables.from_codes(wide, fewer, [("a", "b")], records=256, weights=weights)


def test_the_total_counts_weights():
    tables = fp.Tables.from_codes(
        DOMAIN,
        {"sex": np.array([0, 1, -1])},
        [(), ("sex",)],
        records=3,
        weights=np.array([2, 3, 4]),
    )
    assert (tables[()].tolist(), tables["sex",].tolist()) == (5, [2, 3])
