"""Persons on products with equal periods, against all persons and the dense optimum."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import analysis
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.family import build_strategy
from fitplug.families.product.shape.products import ProductPersonStructure


def design(periods, k, sums=()):
    """Design for two tables in each period, and sums, by the family of large products."""
    workload = fp.Workload(
        fp.Domain({"a": fp.Integers(0, 3), "b": fp.Integers(0, 2), "m": fp.Integers(1, periods)}),
        [
            fp.queries({"a": "prefix", "b": "prefix", "m": "identity"}, std=3.0),
            fp.queries({"a": "prefix", "m": "identity"}, std=2.0),
            *(fp.queries({name: "prefix"}, std=3.0) for name in sums),
        ],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 1)
        plan = fp.design(workload, unit=fp.AddRemove(records=k, once_per="m"))
    assert isinstance(plan.strategy.structure, ProductPersonStructure)
    return plan


def measure_all_persons(strategy):
    """Compute the largest cost of a person, in integers."""
    structure, (blocks,) = strategy.structure, strategy.block_sets
    names = structure.block_attributes
    sizes, matrices = structure.sizes, strategy.attribute_matrices
    T, rows = structure.periods.n, []
    for block, multiple in zip(blocks.blocks.tolist(), blocks.M[:, 0, 0].tolist(), strict=True):
        own, A = structure.name_attributes(block), np.array([[multiple]], dtype=object)
        for name, n, matrix in zip(names, sizes, matrices, strict=True):
            mine = matrix if name in own else None
            part = np.ones((1, n), dtype=object)
            if mine is not None:
                contrasts = build_contrasts(n) if name == "m" else mine
                part = contrasts.apply(np.eye(n, dtype=np.int64), 0).astype(object)
            A = np.kron(A, part)
        rows.append(A)
    A = np.concatenate(rows).reshape(-1, *sizes)
    A = np.moveaxis(A, 1 + names.index("m"), 1).reshape(len(A), T, -1)
    return max(
        int(column @ column)
        for r in range(1, structure.periods.most + 1)
        for cells in itertools.combinations_with_replacement(range(A.shape[2]), r)
        for column in [sum(A[:, t, x] for t, x in enumerate(cells))]
    )


@pytest.mark.parametrize(
    ("periods", "k", "sums"),
    [(2, 2, ""), (3, 3, "ab"), (4, 2, ""), (4, 2, "b"), (4, 3, "ab"), (4, 4, "a")],
)
def test_no_person_costs_more(periods, k, sums):
    strategy = design(periods, k, sums).strategy
    (blocks,) = strategy.block_sets
    partner = blocks.blocks.tolist().index(int(strategy.structure.periods.partners[0]))
    for times, of_total in ((1, 1), (3, 1), (1, 5), (20, 1)):
        M = blocks.M.copy()
        M[partner] *= times
        M[blocks.blocks.tolist().index(0)] *= of_total
        structure, matrices = strategy.structure, strategy.attribute_matrices
        changed = build_strategy(structure, matrices, (replace(blocks, M=M),))
        truth = measure_all_persons(changed)
        attained = changed.compute_attained_square()
        assert truth <= changed.record_square <= truth * 1.25
        assert attained is None or attained <= truth


@pytest.mark.slow
@pytest.mark.parametrize(
    ("periods", "k", "sums"), [(3, 3, ""), (4, 2, ""), (4, 2, "ab"), (3, 3, "b"), (4, 3, "a")]
)
def test_plan_and_bound_are_near_the_dense_optimum(periods, k, sums):
    plan = design(periods, k, sums)
    dense = fp.design(plan.workload, unit=fp.AddRemove(records=k, once_per="m"))
    assert not isinstance(dense.strategy.structure, ProductPersonStructure)
    assert plan.rho / (1 + plan.gap) <= dense.rho * (1 + 1e-6)
    assert dense.rho / (1 + dense.gap) <= plan.rho <= dense.rho * 1.06
