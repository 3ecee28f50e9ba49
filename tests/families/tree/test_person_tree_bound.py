"""The bound of persons with several records in trees, against what it says written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fitplug.families import NO_FRAME, Duals, Objective, certify_bound
from tests.helpers.person_trees import (
    arrange_cells,
    compute_norm,
    random_person_structure,
    write_out_moment,
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
def test_dense_periods_have_the_bound_of_persons_with_records_in_random_places() -> None:
    rng = np.random.default_rng(8)
    seen, ratios = 0, []
    while seen < 12:
        structure = random_person_structure(rng)
        if structure.kinds:
            continue
        seen += 1
        structure = replace(structure, relaxed=None)
        T, k = structure.period_count, structure.most_records
        p = rng.exponential(size=(len(structure.tree.leaves), structure.cells))
        # Each period has the same weight, so that all sets of k periods may be equally likely.
        for t in range(T):
            p[:, structure.periods == t] /= p[:, structure.periods == t].sum()
        q = rng.exponential(size=structure.rows)
        bound = certify_bound(structure, PLAIN, 1.0, Duals(p.ravel(), q, NO_FRAME))
        tree, domain = structure.tree, structure.workload.domain
        by_node = np.zeros((tree.size, structure.cells))
        by_node[tree.leaves] = p / T
        finest = np.searchsorted(tree.starts, np.arange(len(tree.leaf_nodes)), side="right") - 1
        share = by_node[tree.leaf_nodes] / tree.multiplicities[tree.leaf_nodes][:, None]
        share = share / np.bincount(finest)[finest][:, None]
        periods = np.broadcast_to(structure.periods, share.shape).ravel()
        single = np.diag(share.ravel())
        pairs = np.outer(share.ravel(), share.ravel()) * (periods[:, None] != periods)
        pairs *= T / (T - 1) * (k - 1)
        for size in reversed(structure.sizes):
            single = np.kron(np.eye(size) / size, single)
            pairs = np.kron(np.full((size, size), 1 / size**2), pairs)
        names = (*structure.symmetric, structure.tree_attribute, *structure.dense)
        moment = arrange_cells(structure, names, k * (single + pairs))
        assert np.linalg.eigvalsh(moment).min() > -1e-12
        exact = compute_norm(structure, moment, q) / np.sqrt(q.sum())
        assert 0 < bound <= exact * (1 + 1e-10)
        ratios.append(bound / exact)
        assert domain.size >= len(moment)
    assert max(ratios) > 0.5
