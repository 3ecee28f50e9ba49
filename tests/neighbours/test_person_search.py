"""The branch and bound for the largest cost of a person, against all persons."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fitplug.neighbours import PersonRecords, RecordProducts, RecordSets, person_search
from fitplug.neighbours.person_cost import upper_largest_cost
from fitplug.neighbours.person_search import search_costliest

PERSONS = {
    "five months, three regions": PersonRecords(5, np.arange(5), (3,)),
    "three of five months": PersonRecords(3, np.arange(5), (2,)),
    "two attributes": PersonRecords(4, np.arange(4), (2, 2)),
    "two attributes of different size": PersonRecords(3, np.arange(4), (2, 3)),
    "six months": PersonRecords(6, np.arange(6), (3,)),
    "five months, two attributes": PersonRecords(5, np.arange(5), (2, 3)),
    "several cells a month": PersonRecords(3, np.array([0, 0, 1, 1, 2]), (2,)),
    "no attributes": PersonRecords(2, np.array([0, 0, 1, 1, 2, 2]), ()),
    "distinct cells": PersonRecords(4, np.arange(7), ()),
    "two months": PersonRecords(2, np.array([0, 0, 0, 1, 1]), (2, 2)),
    "symmetric months": PersonRecords(3, np.zeros(3, dtype=int), (4, 2), 1),
    "all symmetric months": PersonRecords(4, np.zeros(2, dtype=int), (2, 4), 2),
    "symmetric months alone": PersonRecords(4, np.zeros(3, dtype=int), (5,), 1),
    "symmetric months, two attributes": PersonRecords(3, np.zeros(2, dtype=int), (2, 3, 3), 4),
    "distinct in one attribute": PersonRecords(4, np.arange(4), (2,), 1),
    "distinct in two attributes": PersonRecords(4, np.arange(3), (2, 2), 3),
    "distinct in symmetric attributes": PersonRecords(3, np.zeros(1, dtype=int), (2, 2, 3), 7),
    "months of years": PersonRecords(4, np.array([0, 0, 1]), (3, 2), 1),
}


def list_records(person):
    """All differences of a person, some of them several times."""
    labels = itertools.product(*(range(n) for n in person.sizes))
    in_period = {}
    for cell, label in itertools.product(range(len(person.periods)), labels):
        own = (person.periods[cell], *(n for a, n in enumerate(label) if person.apart >> a & 1))
        in_period.setdefault(own, [None]).append((cell, label))
    found = []
    for chosen in itertools.product(*in_period.values()):
        records = [record for record in chosen if record is not None]
        if 0 < len(records) <= person.most:
            found.append(records)
    cells = np.full((len(found), person.most), -1)
    own = np.zeros((len(found), person.most, len(person.sizes)), dtype=np.int64)
    for v, records in enumerate(found):
        for r, (cell, label) in enumerate(records):
            cells[v, r], own[v, r] = cell, label
    return RecordSets(cells, own)


def draw_products(person, rng, entries):
    """The products of random blocks, some of them of low rank or zero, in Python integers."""
    m, d = len(person.sizes), len(person.periods)
    products = np.zeros((2**m, d, d), dtype=object)
    for block in range(2**m):
        A = rng.integers(-entries, entries + 1, (int(rng.integers(1, d + 1)), d)).astype(object)
        gram = (A.T @ A) * int(rng.integers(0 if block else 1, 4))
        for differing in range(2**m):
            factor = 1
            for a in range(m):
                if block >> a & 1:
                    factor *= -1 if differing >> a & 1 else person.sizes[a] - 1
            products[differing] += factor * gram
    return RecordProducts(person, products)


def check_person(person, seed, strategies):
    sets, rng, exact = list_records(person), np.random.default_rng(seed), 0
    for trial in range(strategies):
        products = draw_products(person, rng, (2, 6, 1000, 10**7)[trial % 4])
        costliest = int(products.compute_costs(sets).max())
        if not costliest:
            continue
        searched = search_costliest(products)
        assert costliest <= searched.bound <= costliest * (1 + 1e-6)
        assert not searched.is_exact or searched.bound == costliest
        assert products.compute_costs(searched.costly).max() <= costliest
        exact += searched.is_exact
        if trial % 4 == 1:
            assert search_costliest(products, claimed=searched.bound).bound == searched.bound
            assert search_costliest(products, claimed=costliest - 1) is None
            floats = search_costliest(products.to_floats())
            assert costliest * (1 - 1e-12) <= floats.bound <= costliest * (1 + 1e-6)
    # Integers up to 28 bits are not rounded.
    assert exact >= 0.7 * strategies


@pytest.mark.parametrize(
    "strategies",
    [pytest.param(40, marks=pytest.mark.slow), pytest.param(140, marks=pytest.mark.long)],
)
@pytest.mark.parametrize("name", PERSONS)
def test_no_person_costs_more_than_the_search_proves(name, strategies):
    check_person(PERSONS[name], 1, strategies)


@pytest.mark.parametrize("most", [0, 60])
def test_a_search_that_ends_early_states_a_bound(most, monkeypatch):
    """Nodes with too many children are left open."""
    person = PERSONS["symmetric months, two attributes"]
    products = draw_products(person, np.random.default_rng(5), 1000)
    costliest = int(products.compute_costs(list_records(person)).max())
    monkeypatch.setattr(person_search, "_MOST_LABELS", most)
    searched = search_costliest(products)
    assert searched.bound >= costliest
    assert searched.is_exact == (searched.bound == products.compute_costs(searched.costly).max())


def draw_months(periods, most, size, seed):
    """Products of a person whose cells of a month differ, as those of a design do."""
    rng = np.random.default_rng(seed)
    person = PersonRecords(most, np.arange(periods), (size,))
    A, B = rng.integers(-9, 10, (2, periods, periods))
    apart, summed = A.T @ A, (B.T @ B) // size
    return RecordProducts(person, np.stack([summed + (size - 1) * apart, summed - apart]))


def test_a_claim_is_confirmed_whatever_a_search_would_state():
    products = draw_months(14, 14, 20, 3)
    stated = int(upper_largest_cost(products).of_cells.max())
    for claimed in (stated, stated + stated // 100):
        assert upper_largest_cost(products, claimed).of_cells.max() == claimed
    assert upper_largest_cost(products, stated // 2).of_cells.max() > stated // 2
