"""The bound of trees where neighbours replace a record, against nuclear norms of dense matrices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import NO_FRAME, Duals, Objective, certify_bound
from tests.helpers.tree_strategies import (
    PAIR_UNITS,
    find_regions,
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


def is_free(structure, name):
    return name in [structure.symmetric[a] for a in structure.free.tolist()]


def evaluate_bound(structure, p, phi, q):
    """T(p, q) at the weights of pairs that p and phi stand for, from matrices over all cells."""
    workload, tree = structure.workload, structure.tree
    names = (structure.tree_attribute, *structure.dense, *structure.symmetric)
    by_leaf = np.zeros((tree.size, structure.cells))
    counts = tree.multiplicities[tree.leaves]
    by_leaf[tree.leaves] = p.reshape(len(counts), -1) / counts[:, None]
    shape = workload.domain.shape_of(names)
    cells = np.zeros((shape[0], structure.cells))
    # Cells that no query tells apart are one.
    cells[tree.starts] = by_leaf[tree.leaf_nodes[tree.starts]]
    moved = cells.size // cells.size * int(np.prod(structure.sizes, initial=1))
    full = np.repeat(cells.ravel() / moved, moved).reshape(shape)
    full = full.transpose([names.index(name) for name in workload.attributes]).ravel()
    regions = find_regions(workload, structure.unit)
    mass = np.bincount(regions, full)
    M = np.outer(full, full) * (regions[:, None] == regions[None, :])
    M = M / np.where(mass > 0, mass, 1)[regions][:, None]
    # Of the pairs that differ along a move, all together have phi in the place of what is even.
    at = np.array(list(itertools.product(*map(range, workload.shape))))
    move = np.zeros((len(at), len(at)), dtype=int)
    even = np.ones(1)
    for bit, a in enumerate(structure.free.tolist()):
        own = at[:, workload.attributes.index(structure.symmetric[a])]
        move += (own[:, None] != own[None, :]) << bit
        n = structure.sizes[a]
        even = np.concatenate([even / n, even * (n - 1) / n])
    phi = phi / phi.sum()
    anywhere = np.zeros(structure.moves) if structure.keeps_tree else phi[: structure.moves]
    alike = np.append(0.0, phi[structure.kinds - structure.moves + 1 :])
    M = M * (anywhere / even)[move]
    # Of the pairs that differ in nothing else, too.
    rest = [i for i, name in enumerate(workload.attributes) if not is_free(structure, name)]
    same = (at[:, None, rest] == at[None, :, rest]).all(axis=2)
    sizes = np.prod([structure.sizes[a] for a in structure.free.tolist()], initial=1.0)
    M += full[:, None] * same * (alike / (even * sizes))[move]
    weight = full.sum() - np.trace(M)
    P = 2 * (np.diag(full) - M)
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
    p = rng.uniform(0.1, 1, structure.differences - structure.kinds)
    phi = rng.uniform(0, 1, structure.kinds) ** 4
    if seed == 3 and structure.cells > 1:
        p = np.outer(rng.uniform(0.1, 1, len(p) // structure.cells), p[: structure.cells]).ravel()
    q = rng.uniform(0.1, 1, structure.rows) * structure.repeats
    truth = evaluate_bound(structure, p, phi, q)
    found = certify_bound(structure, Objective(), 1.0, Duals(np.append(p, phi), q, NO_FRAME))
    assert found <= truth * (1 + 1e-12)
    # Where leaves share more than nothing with dense cells, this is left out.
    loose = structure.cells > 1 and len(structure.free) > 0
    assert found >= truth * (0.9 if loose else 1 - 1e-5)
