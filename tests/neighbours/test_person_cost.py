"""The cost of persons with several records, against every person there can be."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.families import analyse_structure, build_dense_strategy
from fitplug.families.base.basis import Basis
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.family import build_strategy
from fitplug.neighbours import PersonRecords, RecordProducts
from fitplug.neighbours.person_cost import upper_largest_cost
from tests.helpers.persons import list_persons, small_person_problems

PROBLEMS = small_person_problems()
CASES = {"argvalues": [p[1:] for p in PROBLEMS], "ids": [p[0] for p in PROBLEMS]}
STRATEGIES = 40


def draw_strategy(structure, rng, entries):
    """A strategy of random integers, and with blocks of very different size."""
    block_sets = []
    for block in range(len(structure.blocks)):
        n = structure.cells
        M = np.triu(rng.integers(-entries, entries + 1, (n, n)))
        M[np.arange(n), np.arange(n)] = rng.integers(1, entries + 1, n)
        M = M * int(rng.integers(1, 4))
        basis = Basis("cells", np.arange(n), np.ones(n))
        block_sets.append(BlockSet(np.array([block]), basis, M[None]))
    return build_strategy(structure, make_contrasts(structure), tuple(block_sets))


@pytest.mark.parametrize(
    ("workload", "unit"), [p[1:] for p in PROBLEMS], ids=[p[0] for p in PROBLEMS]
)
def test_no_person_costs_more(workload, unit):
    """The exact cost is that of the costliest of all persons."""
    structure = analyse_structure(workload, unit=unit)
    persons = list_persons(workload.domain, unit)
    rng = np.random.default_rng(len(persons))
    exact = 0
    for trial in range(STRATEGIES):
        strategy = draw_strategy(structure, rng, 4 if trial % 2 else 1000)
        A = build_dense_strategy(strategy).astype(np.int64)
        costs = ((A @ persons.T) ** 2).sum(axis=0)
        worst, stated = int(costs.max()), strategy.sensitivity_squared
        assert worst <= stated
        overstatement = strategy.upper_overstatement()
        most = worst * (1 + overstatement) ** 2
        assert stated <= most * (1 + 1e-12)
        if not overstatement:
            assert stated == worst
            exact += 1
        squares = strategy.column_squares.reshape(get_shape(workload.domain, structure.dense))
        full = np.moveaxis(
            np.broadcast_to(
                squares,
                get_shape(workload.domain, structure.symmetric) + squares.shape,
            ),
            range(len(structure.symmetric)),
            [workload.domain.names.index(name) for name in structure.symmetric],
        )
        for cell, square in enumerate(full.ravel()):
            assert costs[persons[:, cell] > 0].max() <= square
    # Two attributes that blocks join have more partitions than the programme tries.
    assert exact == STRATEGIES or len(structure.blocks) == 4


def test_integers_beyond_64_bits_are_exact():
    workload, unit = PROBLEMS[3][1:]
    structure = analyse_structure(workload, unit=unit)
    strategy = draw_strategy(structure, np.random.default_rng(0), 2**40)
    A = np.rint(build_dense_strategy(strategy)).astype(object)
    persons = list_persons(workload.domain, unit).astype(object)
    rough = max(int((a * a).sum()) for a in (A @ persons.T).T)
    assert strategy.sensitivity_squared > 2**80
    assert strategy.sensitivity_squared == pytest.approx(rough, rel=1e-9)


@pytest.mark.parametrize(("periods", "each"), [(14, 1), (18, 1), (6, 4)])
def test_persons_who_are_too_many_to_list_are_bounded(periods, each):
    """Persons are drawn, and none of them costs more than the bound."""
    rng = np.random.default_rng(periods)
    at = np.repeat(np.arange(periods), each)
    person = PersonRecords(min(periods, 5), at, (3,))
    A = rng.integers(-5, 6, (2, len(at), len(at)))
    gram = [a.T @ a for a in A]
    products = RecordProducts(person, np.stack([gram[0] + 2 * gram[1], gram[0] - gram[1]]))
    largest = upper_largest_cost(products)
    for _ in range(200):
        own = rng.permutation(periods)[: rng.integers(1, person.most + 1)]
        cells = own * each + rng.integers(each, size=len(own))
        labels = rng.integers(3, size=len(own))
        numbers = (labels[:, None] != labels).astype(int)
        cost = products.products[numbers, cells[:, None], cells].sum()
        assert cost <= largest.of_cells[cells].min()


@pytest.mark.parametrize("periods", [12, 16, 40])
def test_strategies_that_do_not_cross_periods_cost_the_sum_of_the_largest(periods):
    own = np.random.default_rng(periods).integers(1, 100, (periods, 3))
    at = np.repeat(np.arange(periods), 3)
    person = PersonRecords(4, at, ())
    products = RecordProducts(person, np.diag(own.ravel())[None])
    largest = upper_largest_cost(products)
    assert largest.is_exact
    assert largest.of_cells.max() == np.sort(own.max(axis=1))[-4:].sum()


def test_a_domain_with_attributes_that_no_query_asks_for_is_refused():
    domain = fp.Domain({"a": ["1", "2"], "b": ["1", "2", "3"]})
    workload = fp.Workload(domain, [fp.marginal("a", variance=1.0)])
    with pytest.raises(fp.WorkloadError, match="no query uses b"):
        analyse_structure(workload, unit=fp.AddRemove(records=2, distinct=True))
    with pytest.raises(fp.WorkloadError, match="no query uses 'b', the attribute of once_per"):
        analyse_structure(workload, unit=fp.AddRemove(records=2, once_per="b"))
