"""Neighbours other than one record more or less go through the same cost, bound and reduction."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

import fitplug as fp
from fitplug.numeric import AnyArray, guard_linear_algebra
from fitplug.optimizer import Options, draft_plan
from fitplug.optimizer.drafts import Draft
from fitplug.proof import certify_bound
from fitplug.structure import Objective, Structure, analyse_structure
from fitplug.workload import ADD_REMOVE, Neighbours


@dataclass(frozen=True)
class SeveralRecords:
    """One person is several records of one cell."""

    records: int

    def count_differences(self, cells: int) -> int:
        return cells

    def take_differences(self, rows: AnyArray, attributes: tuple[str, ...]) -> AnyArray:
        return rows * self.records


@dataclass(frozen=True)
class ReplaceOne:
    """One record is in another cell."""

    def count_differences(self, cells: int) -> int:
        return cells * (cells - 1) // 2

    def take_differences(self, rows: AnyArray, attributes: tuple[str, ...]) -> AnyArray:
        pairs = np.array(list(itertools.combinations(range(rows.shape[1]), 2)))
        return rows[:, pairs[:, 0]] - rows[:, pairs[:, 1]]


def analyse(workload: fp.Workload, neighbours: Neighbours) -> Structure:
    """The structure with every attribute dense: these units bring no symmetry of their own."""
    return analyse_structure(workload, workload.attributes, False, neighbours=neighbours)


def cost_of(draft: Draft) -> float:
    """The privacy cost squared at the targets."""
    strategy = draft.strategy
    worst = (strategy.unit_variances / strategy.structure.targets).max()
    return float(strategy.sensitivity_squared * worst)


def draft(structure: Structure) -> Draft:
    options = Options("dual", 1e-6, 2000, refine=True, progress=None)
    with guard_linear_algebra():
        return draft_plan(structure, Objective(), options, 1e-6)


def bound_of(structure: Structure, found: Draft) -> float:
    return certify_bound(structure, Objective(), 1.0, found.duals) ** 2


def prefixes(d: int) -> fp.Workload:
    """All sums of the first cells but that of all, which a public number of records answers."""
    return fp.Workload.from_matrix(np.tri(d - 1, d), variance=1.0)


@pytest.mark.parametrize(("d", "alpha"), [(2, 1.0), (4, 1.666667), (8, 2.515058), (12, 3.095298)])
def test_replacing_one_record_costs_what_it_must(d: int, alpha: float) -> None:
    """The values are of an independent semidefinite program."""
    structure = analyse(prefixes(d), ReplaceOne())
    found = draft(structure)
    assert structure.differences == d * (d - 1) // 2 == len(found.duals.p)
    assert found.strategy.column_squares.shape == (structure.differences,)
    assert bound_of(structure, found) <= alpha * (1 + 1e-6)
    assert cost_of(found) == pytest.approx(alpha, rel=1e-5)
    assert bound_of(structure, found) == pytest.approx(alpha, rel=1e-5)


def test_the_cost_of_replacing_is_that_of_the_integers_that_run() -> None:
    structure = analyse(prefixes(5), ReplaceOne())
    strategy = draft(structure).strategy
    (block_set,) = strategy.block_sets
    matrix = structure.build_block_matrix(0)
    A = block_set.M[0].astype(object) @ block_set.basis.build_matrix(matrix).astype(object)
    squares = [int(((A[:, i] - A[:, j]) ** 2).sum()) for i in range(5) for j in range(i)]
    assert strategy.sensitivity_squared == max(squares)


def test_several_records_cost_their_square() -> None:
    workload = fp.Workload.from_matrix(np.tri(6), variance=1.0)
    one, three = (analyse(workload, unit) for unit in (ADD_REMOVE, SeveralRecords(3)))
    drafts = [draft(structure) for structure in (one, three)]
    assert cost_of(drafts[1]) == pytest.approx(9 * cost_of(drafts[0]), rel=1e-5)
    bounds = [bound_of(s, d) for s, d in zip((one, three), drafts, strict=True)]
    assert bounds[1] == pytest.approx(9 * bounds[0], rel=1e-5)


def test_adding_or_removing_one_record_copies_nothing() -> None:
    rows = np.eye(3)
    assert ADD_REMOVE.take_differences(rows, ("a",)) is rows
    structure = analyse_structure(fp.Workload.from_matrix(rows + np.tri(3), variance=1.0))
    (queries,) = structure.gather_all_queries()
    assert queries.differences is queries.matrix


def test_a_unit_is_refused_where_blocks_cost_what_one_record_does() -> None:
    domain = fp.Domain({"a": ["1", "2", "3"], "b": fp.Integers(0, 3)})
    for groups in (
        [fp.marginal("a", std=3.0)],
        [fp.queries({"a": "identity", "b": "prefix"}, std=3.0)],
        [fp.total(std=3.0)],
    ):
        with pytest.raises(NotImplementedError, match="all attributes dense"):
            analyse_structure(fp.Workload(domain, groups), neighbours=ReplaceOne())
    prefixes = fp.Workload(domain, [fp.queries({"b": "prefix"}, std=3.0)])
    with pytest.raises(NotImplementedError, match="all attributes dense"):
        analyse_structure(prefixes, family=True, neighbours=ReplaceOne())
