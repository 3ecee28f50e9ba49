"""The bound of persons with several records in trees, against what it says written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fitplug.families import Duals, Objective, certify_bound
from fitplug.families.base.family import NO_FRAME
from fitplug.families.tree.design.person_descent import find_varied_differences
from fitplug.neighbours import PersonRecords, RecordProducts
from tests.helpers.person_trees import (
    compute_norm,
    random_person_structure,
    random_sets,
    write_out_moment,
    write_out_sets,
)

PLAIN = Objective(None, 0.0)


@pytest.mark.slow
def test_the_bound_is_the_norm_of_the_moments_of_random_persons() -> None:
    rng = np.random.default_rng(7)
    equal = below = 0
    while equal < 25 or below < 8:
        structure = random_person_structure(rng)
        if not structure.kinds:
            continue
        p = rng.exponential(size=structure.profile_size)
        kinds = rng.exponential(size=len(structure.kinds)) * (
            rng.random(len(structure.kinds)) < rng.choice([0.1, 1.0])
        )
        kinds[rng.integers(len(kinds))] += 1
        q = rng.exponential(size=structure.rows)
        bound = certify_bound(structure, PLAIN, 1.0, Duals(np.append(p, kinds), q, NO_FRAME))
        moment = write_out_moment(structure, p.reshape(-1, structure.cells), kinds)
        assert np.linalg.eigvalsh(moment).min() > -1e-12
        exact = compute_norm(structure, moment, q) / np.sqrt(kinds.sum() * q.sum())
        assert bound <= exact * (1 + 1e-10)
        if structure.cells == 1:
            assert bound == pytest.approx(exact, rel=1e-7)
            equal += 1
        else:
            assert bound > 0
            below += 1


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_dense_periods_have_the_bound_of_records_in_random_leaves(apart: bool) -> None:
    rng = np.random.default_rng(8)
    ratios: list[float] = []
    while len(ratios) < 15:
        structure = random_person_structure(rng)
        if structure.kinds:
            continue
        sets = random_sets(rng, structure.person, 6, apart=apart)
        structure = replace(structure, named=sets)
        p = rng.exponential(size=len(structure.tree.leaves))
        of_sets = rng.exponential(size=len(sets))
        q = rng.exponential(size=structure.rows)
        bound = certify_bound(structure, PLAIN, 1.0, Duals(np.append(p, of_sets), q, NO_FRAME))
        moment = write_out_sets(structure, p, of_sets)
        assert np.linalg.eigvalsh(moment).min() > -1e-12
        exact = compute_norm(structure, moment, q) / np.sqrt(of_sets.sum() * q.sum())
        assert 0 < bound <= exact * (1 + 1e-10)
        ratios.append(bound / exact)
    if apart:
        assert np.mean(ratios) > 0.99, ratios
    else:
        assert min(ratios) > 1 - 1e-5


def test_costly_differences_are_with_and_without_each_period() -> None:
    rng = np.random.default_rng(9)
    factors = rng.normal(size=(2, 8, 8))
    same, other = (F @ F.T for F in factors)
    person = PersonRecords(3, np.repeat(np.arange(4), 2), (5,))
    found = find_varied_differences(RecordProducts(person, np.stack([same + other, other])), 4)
    periods = np.where(found.cells >= 0, person.periods[found.cells], -1)
    for period in range(4):
        has = (periods == period).any(axis=1)
        assert has.any()
        assert not has.all()
    assert len(found.leave_out()) == len(found)
