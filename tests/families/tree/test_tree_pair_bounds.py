"""The bound of trees where neighbours replace a record, against nuclear norms of dense matrices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fitplug as fp
from fitplug import errors
from fitplug.families import Duals, Objective, certify_bound
from fitplug.families.base.family import NO_FRAME
from fitplug.families.tree.design.bound_ascent import ascend_pair_rows
from tests.helpers.tree_strategies import (
    PAIR_UNITS,
    find_structure,
    random_workload,
)


def draw_structure(rng, unit):
    """A random tree; None where the unit does not go with it."""
    symmetric, dense, varying = (rng.random(3) < [0.6, 0.6, 0.3]).tolist()
    workload = random_workload(rng, symmetric=symmetric, dense=dense, varying=varying)
    within = tuple(name for name in unit.within if name in workload.domain.names)
    try:
        return find_structure(workload, unit=fp.ReplaceOne(within))
    except fp.WorkloadError:
        return None


def divide_pairs(structure, share, place, parts):
    """The weights of pairs of leaves, one kind's, by (U19) node by node, without vectors.

    Args:
        share: The weight of each cell of the tree's attribute, one of each node's, shape (n,).
        place: These cells, shape (n,).
        parts: The part that is left below the nodes of each step, shape (steps,).
    """
    tree = structure.tree
    at, density = tree.leaf_nodes[place], np.zeros((len(place), len(place)))

    def spread(node, members, as_leaf):
        steps = [s for s, step in enumerate(tree.steps) if node in step.parents]
        if not steps:
            density[np.ix_(members, members)] = as_leaf
            return
        step = tree.steps[steps[0]]
        children = step.children[list(step.parents).index(node)].tolist()
        below = []
        for child in children:
            under = {child}
            for later in tree.steps:
                for parent, its in zip(later.parents, later.children, strict=True):
                    under |= set(its.tolist()) if parent in under else set()
            found = [i for i in members if at[i] in under]
            identical = step.counts is not None
            below += [(child, [i]) for i in found] if identical else [(child, found)]
        sums = [share[found].sum() for _, found in below]
        whole, least, part = sum(sums), min(sums), parts[steps[0]]
        apart = (1 - part) * as_leaf / (1 - least / whole)
        density[np.ix_(members, members)] = apart
        for (child, found), own in zip(below, sums, strict=True):
            of_child = apart * (1 - least / own) + part * whole * as_leaf / own
            if len(found) == 1:
                density[found[0], found[0]] = of_child
            else:
                spread(child, found, of_child)

    spread(0, list(range(len(place))), 1.0)
    weights = density * np.outer(share, share)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), share, rtol=1e-12)
    return weights


def evaluate_bound(structure, p, kinds, q, parts=None):
    """T(p, q) at the weights of pairs that p and kinds stand for, from matrices over all cells."""
    workload, tree, attributes = structure.workload, structure.tree, structure.workload.attributes
    counts = tree.multiplicities[tree.leaves]
    by_leaf = np.zeros((tree.size, structure.cells))
    by_leaf[tree.leaves] = p.reshape(len(counts), -1) / counts[:, None]
    at = np.array(list(itertools.product(*map(range, workload.shape))))
    dense = np.zeros(len(at), dtype=int)
    for name in structure.dense:
        size = workload.domain[name].size
        dense = dense * size + at[:, attributes.index(name)]
    place = at[:, attributes.index(structure.tree_attribute)]
    # Cells that no query tells apart are one: the first leaf of a node has all its weight.
    is_first = np.isin(place, tree.starts)
    share = np.where(is_first, by_leaf[tree.leaf_nodes[place], dense], 0.0)
    share /= by_leaf[tree.leaf_nodes[tree.starts]].sum(axis=0)[dense]
    move, even, of_move = np.zeros((len(at), len(at)), dtype=int), 1.0, np.ones(1)
    for bit, a in enumerate(structure.free.tolist()):
        own, n = at[:, attributes.index(structure.symmetric[a])], structure.sizes[a]
        move += (own[:, None] != own[None, :]) << bit
        of_move = np.concatenate([of_move, of_move * (n - 1)])
        even *= n
    kept = [
        at[:, attributes.index(name)]
        for a, name in enumerate(structure.symmetric)
        if a not in structure.free
    ]
    # What is kept is the same in both cells, and its weight is divided evenly.
    same = np.ones((len(at), len(at)), dtype=bool)
    for own in kept:
        same &= own[:, None] == own[None, :]
        even *= own.max() + 1
    kinds = kinds / kinds.sum()
    split = structure.moves * structure.cell_pairs.shape[1]
    M = np.zeros((len(at), len(at)))
    for k, weight in enumerate(kinds[:split].tolist()):
        number, pair = divmod(k, structure.cell_pairs.shape[1])
        c, d = structure.cell_pairs[:, pair]
        both = np.outer(dense == c, dense == d)
        both = (both + both.T) / 2 if c != d else both
        chosen = same & (move == number)
        leaves = np.outer(share, share)
        if parts is not None:
            # The shares of leaves are the same for all dense cells.
            places = np.unique(place[share > 0])
            of_place = np.zeros(place.max() + 1)
            of_place[place] = np.maximum(of_place[place], share)
            every = np.zeros((len(of_place), len(of_place)))
            own = divide_pairs(structure, of_place[places], places, parts[:, number, pair])
            every[np.ix_(places, places)] = own
            leaves = every[np.ix_(place, place)] * np.outer(share > 0, share > 0)
        M += weight * both * chosen * leaves / (even * of_move[number])
    for k, weight in enumerate(kinds[split:].tolist()):
        number, c = divmod(k, structure.cells)
        chosen = same & (move == number + 1) & (place[:, None] == place) & (dense == c)
        chosen &= dense[:, None] == c
        M += weight * chosen * share / (even * of_move[number + 1])
    np.testing.assert_allclose(M, M.T, atol=1e-15)
    np.testing.assert_allclose(M.sum(), 1)
    weight = 1 - np.trace(M)
    P = 2 * (np.diag(M.sum(axis=1)) - M)
    values, vectors = np.linalg.eigh(P)
    root = vectors * np.sqrt(np.maximum(values, 0))
    by_group = structure.group_values(q / structure.repeats)
    rows = np.concatenate([by_group[name].ravel() for name in workload.names])
    targets = np.concatenate([group.variances.ravel() for group in workload.groups])
    X = np.sqrt(rows / targets)[:, None] * workload.matrix() @ root
    return np.linalg.norm(X, "nuc") / np.sqrt(weight * q.sum())


@pytest.mark.slow
@pytest.mark.parametrize("unit", PAIR_UNITS, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_the_bound_is_the_norm(unit, seed):
    rng = np.random.default_rng(100 + seed)
    structure = draw_structure(rng, unit)
    if structure is None:
        return
    p = rng.uniform(0.1, 1, (len(structure.tree.leaves), structure.cells))
    if seed != 2:
        # The dense cells of a class have equal shares of leaves.
        p = p[:, :1] * rng.uniform(0.1, 1, structure.cells)
    p = p.ravel()
    kinds = rng.uniform(0, 1, structure.kinds) ** 4
    q = rng.uniform(0.1, 1, structure.rows) * structure.repeats
    truth = evaluate_bound(structure, p, kinds, q)
    p = np.concatenate([p, kinds, np.zeros(structure.parts_below)])
    found = certify_bound(structure, Objective(), 1.0, Duals(p, q, NO_FRAME))
    assert found <= truth * (1 + 1e-12)
    loose = structure.cells > 1 and seed == 2
    assert found >= truth * (0.5 if loose else 1 - 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("unit", PAIR_UNITS[:5], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_by_where_paths_part_is_the_norm(unit, seed):
    rng = np.random.default_rng(200 + seed)
    structure = draw_structure(rng, unit)
    if structure is None:
        return
    p = rng.uniform(0.1, 1, len(structure.tree.leaves)) ** (seed % 3)
    p *= structure.tree.multiplicities[structure.tree.leaves]
    p = np.repeat(p, structure.cells)
    kinds = rng.uniform(0, 1, structure.kinds) ** 4
    shape = len(structure.tree.steps), structure.moves, len(structure.cell_pairs[0])
    parts = rng.uniform(0, 1, shape) ** rng.uniform(0.1, 3)
    parts[rng.random(shape) < 0.1] = 0
    parts[rng.random(shape) < 0.1] = 1
    q = rng.uniform(0.1, 1, structure.rows) * structure.repeats
    truth = evaluate_bound(structure, p, kinds, q, parts)
    # A part of more than 1 counts as 1.
    parts[parts > 0.999] = 7
    parts = parts.ravel()
    duals = Duals(np.concatenate([p, kinds, parts]), q, NO_FRAME)
    found = certify_bound(structure, Objective(), 1.0, duals)
    assert truth * (1 - 1e-4) <= found <= truth * (1 + 1e-12)


def test_wrong_factors_are_found_out(monkeypatch):
    """Whatever LAPACK returns, the bound is no larger."""
    rng = np.random.default_rng(3)
    structure = None
    while structure is None or structure.cells == 1:
        structure = draw_structure(rng, fp.ReplaceOne())
    p, q = rng.uniform(0.5, 1, structure.differences), np.ones(structure.rows)
    own = structure.differences - structure.kinds - structure.parts_below
    p[:own] = np.repeat(p[: own // structure.cells], structure.cells)
    duals = Duals(p, q, NO_FRAME)
    true = certify_bound(structure, Objective(), 1.0, duals)
    inverse = np.linalg.inv
    for error in (1e-9, 1e-3, 0.5, np.nan):
        monkeypatch.setattr(np.linalg, "inv", lambda x, error=error: inverse(x) * (1 + error))
        found = certify_bound(structure, Objective(), 1.0, duals)
        assert 0 <= found <= true * (1 + 1e-7)
        assert found > 0.99 * true or error != 1e-9


def test_parts_of_pairs_that_are_no_weights_prove_nothing():
    rng = np.random.default_rng(1)
    structure = None
    while structure is None or structure.cells == 1:
        structure = draw_structure(rng, fp.ReplaceOne())
    before = structure.differences - structure.parts_below
    p, q = np.ones(structure.differences), np.ones(structure.rows)
    assert certify_bound(structure, Objective(), 1.0, Duals(p, q, NO_FRAME)) > 0
    for wrong in (-1e-9, np.nan, np.inf):
        p[before] = wrong
        with pytest.raises(ValueError, match=errors.BAD_PROOF):
            certify_bound(structure, Objective(), 1.0, Duals(p, q, NO_FRAME))
    # A leaf without weight has no density of pairs.
    p[before] = 1
    p[: structure.cells] = 0
    assert certify_bound(structure, Objective(), 1.0, Duals(p, q, NO_FRAME)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("unit", [fp.ReplaceOne(), fp.ReplaceOne(("sex",))], ids=str)
def test_the_ascent_by_rows_finds_the_best_rows(unit):
    """The bound is concave in q, so that all starts lead to one value."""
    rng = np.random.default_rng(3)
    structure = None
    while structure is None or structure.cells == 1:
        structure = draw_structure(rng, unit)
    p = np.outer(rng.uniform(0.1, 1, len(structure.tree.leaves)), np.ones(structure.cells))
    p = np.concatenate([p.ravel(), rng.uniform(0.1, 1, structure.kinds)])
    p = np.append(p, np.zeros(structure.parts_below))
    bounds = []
    for _ in range(3):
        start = Duals(p, rng.uniform(0.1, 1, structure.rows), NO_FRAME)
        found = ascend_pair_rows(structure, start, 1e-3)
        bounds += [certify_bound(structure, Objective(), 1.0, one) for one in (start, found)]
    before, after = bounds[::2], bounds[1::2]
    assert max(after) <= min(after) * 1.001
    assert min(after) > max(before) * 1.01
