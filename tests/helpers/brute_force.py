"""The cost of a plan by brute force: all differences between neighbours, in exact integers."""

from __future__ import annotations

import itertools

import numpy as np

import fitplug as fp
from fitplug.domain import count_shares, get_shape


def list_neighbours(workload, unit):
    """All differences of a unit, as lists of signed cells, by the words of its docs."""
    names = workload.attributes
    cells = list(itertools.product(*map(range, workload.shape)))
    if isinstance(unit, fp.ReplaceOne):
        fixed = [names.index(name) for name in unit.within if name in names]
        for i, j in itertools.combinations(cells, 2):
            if all(i[a] == j[a] for a in fixed):
                yield [(i, 1), (j, -1)]
        return
    if unit.is_of_records:
        yield from ([(cell, unit.records)] for cell in cells)
        return
    at = None if unit.distinct else names.index(unit.once_per)
    for number in range(1, unit.records + 1):
        for chosen in itertools.combinations(cells, number):
            if at is None or len({cell[at] for cell in chosen}) == number:
                yield [(cell, 1) for cell in chosen]


def answer_one(plan, cell):
    """What a count of one record in a cell, at a bound of each measure, is answered."""
    names = plan.workload.attributes
    tables = {}
    for attributes in plan.tables:
        table = np.zeros(get_shape(plan.domain, attributes), dtype=np.int64)
        place = tuple(cell[names.index(name)] for name in attributes)
        table[place] = count_shares(plan.domain, attributes)
        tables[attributes] = table
    answers = plan.strategy.answer_exactly(fp.Tables(plan.domain, tables).marginal)
    return [int(a) for a in answers[: plan.strategy.size]]


def cost_by_brute_force(plan):
    """The largest |A v|^2, in Python's integers."""
    cells = itertools.product(*map(range, plan.workload.shape))
    column = {cell: answer_one(plan, cell) for cell in cells}
    return max(
        sum(
            sum(times * a for (_, times), a in zip(v, answers, strict=True)) ** 2
            for answers in zip(*(column[cell] for cell, _ in v), strict=True)
        )
        for v in list_neighbours(plan.workload, plan.unit)
    )
