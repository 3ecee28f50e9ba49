"""What a plan claims, derived again from what its mechanism does with records.

Tables of one record in each cell go through the mechanism, and answers through its estimates, one
at a time. So nothing of how the plan knows its cost, its variances and its room is used.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

import fitplug as fp
from fitplug.domain import count_shares, get_shape
from fitplug.families.base.mechanism import SATURATION
from tests.helpers.brute_force import list_neighbours
from tests.helpers.least_cost import find_least_cost

LOOSEST = 1e-8
"""How far above the truth what is stated in floats may be, relatively."""

ROUNDING = 1e-12
"""What rounding may do to variances that are summed in floats here."""


def answer(plan, cell, records):
    """All integers of a release for so many records in a cell, at the bounds of the measures."""
    names, tables = plan.workload.attributes, {}
    for attributes in plan.tables:
        table = np.zeros(get_shape(plan.domain, attributes), dtype=np.int64)
        shares = count_shares(plan.domain, attributes)
        table[tuple(cell[names.index(name)] for name in attributes)] = records * shares
        tables[attributes] = table
    answers = plan.strategy.answer_exactly(fp.Tables(plan.domain, tables).marginal)
    return np.array([int(a) for a in answers], dtype=object)


def assert_claims_hold(plan):
    """Assert that the cost, the profile, the room, the variances and the targets are true."""
    columns = {
        cell: answer(plan, cell, 1) for cell in itertools.product(*map(range, plan.workload.shape))
    }
    _assert_cost(plan, columns)
    _assert_room(plan, columns)
    _assert_variances(plan, columns)


def _assert_cost(plan, columns):
    """The cost of all differences between neighbours, in integers."""
    size, largest = plan.strategy.size, dict.fromkeys(columns, 0)
    for difference in list_neighbours(plan.workload, plan.unit):
        moved = sum(times * columns[cell][:size] for cell, times in difference)
        for cell, _ in difference:
            largest[cell] = max(largest[cell], int((moved * moved).sum()))
    noise, most = Fraction(plan.noise_std) ** 2, max(largest.values())
    assert 2 * plan.rho_exact * noise == plan.strategy.sensitivity_squared
    assert most <= plan.strategy.sensitivity_squared
    assert plan.strategy.sensitivity_squared <= most * (1 + plan.overstatement) ** 2 * (1 + 1e-12)
    assert plan.overstatement or plan.strategy.sensitivity_squared == most
    assert Fraction(plan.rho) >= plan.rho_exact
    assert Fraction(plan.privacy_cost) ** 2 >= 2 * plan.rho_exact
    names = plan.workload.attributes
    used = tuple(slice(None) if name in names else 0 for name in plan.domain.names)
    profile = np.broadcast_to(plan.profile(), plan.domain.shape)[used]
    for cell, square in largest.items():
        assert Fraction(square) / noise <= Fraction(float(profile[cell]))


def _assert_room(plan, columns):
    """As many records as there is room for lie in one cell, and nothing overflows."""
    room, size = plan.strategy.max_records, plan.strategy.size
    for cell, column in columns.items():
        assert (answer(plan, cell, room) == room * column).all()
        assert max(map(abs, room * column[:size]), default=0) <= SATURATION


def _assert_variances(plan, columns):
    """The estimates are unbiased, and what they do with the noise of each answer is stated."""
    workload, strategy = plan.workload, plan.strategy
    of_answers = []
    for unit in np.eye(strategy.released_size, dtype=np.int64):
        estimates = strategy.make_estimates(unit)
        of_answers.append(np.concatenate([estimates[name].ravel() for name in workload.names]))
    R, A = np.array(of_answers).T, np.array(list(columns.values())).T.astype(float)
    W, targets = workload.matrix(), workload.targets()
    rounding = np.linalg.norm(R, axis=1)[:, None] * np.linalg.norm(A, axis=0)
    assert (np.abs(R @ A - W) <= 1e-11 * (rounding + np.abs(W))).all()
    variances = (R[:, : strategy.size] ** 2).sum(axis=1) * plan.noise_std**2
    stated, of_targets = (
        np.concatenate([by[name].ravel() for name in workload.names])
        for by in (plan.variances, plan.targets)
    )
    assert (of_targets == targets).all()
    assert (variances * (1 - ROUNDING) <= stated).all()
    assert (stated <= plan.scale * targets).all()
    assert plan.scale * (1 - LOOSEST) <= (stated / targets).max()


def find_least_objective(plan):
    """The least that any mechanism which meets the plan's targets costs, by another solver."""
    workload, objective, differences = plan.workload, plan.objective, []
    budgets = np.ones(workload.shape)
    if objective.budgets is not None:
        names = plan.structure.profile_attributes
        arranged = plan.structure.arrange_by_cell(objective.budgets)
        ones = [i for i, name in enumerate(workload.attributes) if name not in names]
        budgets = budgets * np.expand_dims(arranged, tuple(ones))
    for difference in list_neighbours(workload, plan.unit):
        v = np.zeros(workload.shape)
        for cell, times in difference:
            v[cell] += times / np.sqrt(budgets[cell])
        differences.append(v.ravel())
    least = find_least_cost(
        workload.matrix(),
        plan.scale * workload.targets(),
        np.array(differences),
        objective.weight,
    )
    return np.sqrt(least)
