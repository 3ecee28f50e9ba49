"""The cost of persons with several records in trees, against all persons."""

from __future__ import annotations

import numpy as np

from fitplug.mechanism import bound_overstatement
from tests.helpers.person_trees import list_costs, random_person_structure
from tests.helpers.tree_strategies import random_strategy


def test_no_person_costs_more_than_a_thousand_random_strategies_say() -> None:
    rng = np.random.default_rng(20261123)
    kinds, exact, ratios = set(), 0, []
    for _ in range(100):
        structure = random_person_structure(rng)
        kinds.add((structure.period_index is None, structure.cells > 1, len(structure.differing)))
        for _ in range(10):
            strategy = random_strategy(rng, structure, most=4)
            largest = list_costs(strategy)
            assert largest <= strategy.sensitivity_squared
            assert (strategy.column_squares <= strategy.sensitivity_squared * (1 + 1e-8)).all()
            ratios.append(strategy.sensitivity_squared / largest)
            exact += ratios[-1] == 1
        stated = bound_overstatement(strategy)
        assert (1 + stated) ** 2 * largest >= strategy.sensitivity_squared * (1 - 1e-12)
    assert len(kinds) >= 5
    print(kinds, exact, np.mean(ratios), np.max(ratios))
