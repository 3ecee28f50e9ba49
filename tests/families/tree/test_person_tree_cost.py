"""The cost of persons with several records in trees, against all persons."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.families.tree.strategy import person_cost as person_tree_cost
from tests.helpers.person_trees import list_costs, random_person_structure
from tests.helpers.tree_strategies import random_strategy, write_out


@pytest.mark.parametrize("structures", [12, pytest.param(100, marks=pytest.mark.long)])
def test_no_person_costs_more_than_ten_random_strategies_of_each_say(structures: int) -> None:
    rng = np.random.default_rng(20261123)
    kinds, ratios = set(), []
    for _ in range(structures):
        structure = random_person_structure(rng)
        kinds.add((structure.period_index is None, structure.cells > 1, len(structure.differing)))
        for _ in range(10):
            strategy = random_strategy(rng, structure, most=4)
            largest = list_costs(strategy)
            assert largest <= strategy.sensitivity_squared
            assert (strategy.column_squares <= strategy.sensitivity_squared * (1 + 1e-8)).all()
            ratios.append(strategy.sensitivity_squared / largest)
        stated = strategy.upper_overstatement()
        assert (1 + stated) ** 2 * largest >= strategy.sensitivity_squared * (1 - 1e-12)
    assert len(kinds) >= min(structures // 4, 5)
    assert np.mean(ratios) < 1.15


def test_without_the_products_of_pairs_the_cost_is_still_a_bound(monkeypatch) -> None:
    rng = np.random.default_rng(5)
    monkeypatch.setattr(person_tree_cost, "MOST_PRODUCTS", 0)
    for _ in range(15):
        structure = random_person_structure(rng)
        for _ in range(4):
            strategy = random_strategy(rng, structure, most=4)
            largest = list_costs(strategy)
            assert largest <= strategy.sensitivity_squared
            squares = (write_out(strategy).astype(np.float64) ** 2).sum(axis=0)
            most = structure.most_records**2 * squares.max()
            assert strategy.sensitivity_squared <= most * (1 + 1e-8) + 1


def test_products_of_records_that_are_negative_lower_the_cost() -> None:
    """Without sums over the periods, contrasts are measured more precisely than sums.

    As if all products were positive, the best plan costs 60% more, with independent periods.
    """
    counties = [(f"{i}", f"{i}.{j}") for i in range(40) for j in range(20 + i)]
    place = fp.Hierarchy(["state", "county"], counties)
    quarters = ["1", "2", "3", "4"]
    groups = [
        fp.queries({"place": "county", "quarter": "identity"}, std=10.0),
        fp.queries({"place": "state", "quarter": "identity"}, std=5.0),
        fp.marginal("quarter", std=3.0),
    ]
    workload = fp.Workload(fp.Domain({"place": place, "quarter": quarters}), groups)
    plan = fp.design(workload, unit=fp.AddRemove(records=4, once_per="quarter"))
    plan.verify()
    assert "tree" in str(plan.strategy.structure)
    assert plan.gap < 0.002
    # One person may be in every quarter: each quarter's plan alone costs a fourth of the sum.
    alone = [fp.queries({"place": "county"}, std=10.0), fp.queries({"place": "state"}, std=5.0)]
    single = fp.design(fp.Workload(fp.Domain({"place": place}), [*alone, fp.total(std=3.0)]))
    assert plan.rho < 0.7 * 4 * single.rho
