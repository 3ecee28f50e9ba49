"""Random trees and weights, and the bound that weights give by its definition."""

from __future__ import annotations

import math

import numpy as np

import fitplug as fp
from fitplug.domain import get_codec, get_shape
from fitplug.families import Objective, analyse_structure
from fitplug.families.tree.shape.blocks import TreeStructure
from tests.helpers.extended_precision import LONG, singular_values

PLAIN = Objective()


def random_place(rng, most):
    """A hierarchy of up to five levels with at most so many leaves, single children included."""
    levels = ("a", "b", "c", "d", "e")[: rng.integers(1, 6)]
    paths = [()]
    for depth, level in enumerate(levels):
        room = most // len(paths)
        counts = rng.choice([1, 1, 2, 3, 4, 8], len(paths))
        counts = np.minimum(counts, max(room, 1)) if depth else np.maximum(counts, 2)
        labels = iter(range(10**6))
        paths = [(*path, f"{level}{next(labels)}") for path, k in zip(paths, counts, strict=True)
                 for _ in range(k)]  # fmt: skip
    return fp.Hierarchy(levels, paths)


def random_workload(rng, *, dense, most=12):
    """Levels crossed with a symmetric and a dense attribute; some levels are asked as totals."""
    place = random_place(rng, most)
    attributes = {"place": place}
    if rng.random() < 0.4:
        attributes["sex"] = ["1", "2"]
    if dense:
        attributes["age"] = fp.Integers(0, int(rng.integers(1, 5)))
    groups = []
    for level in ("total", *place.levels):
        finest = level == place.levels[-1]
        for _ in range(int(rng.integers(1 if finest else 0, 3))):
            asked = {} if level == "total" else {"place": level}
            if "sex" in attributes and rng.random() < 0.4:
                asked["sex"] = "identity"
            if dense and rng.random() < (0.3 if finest else 0.7):
                asked["age"] = str(rng.choice(["prefix", "identity", "all_ranges"]))
            target = float(rng.uniform(0.5, 4))
            if level != "total" and rng.random() < 0.4:
                targets = rng.choice(
                    [1.0, 2.0, rng.uniform(1, 3)], len(get_codec(place).intervals(level))
                )
                target = targets.reshape(-1, *[1] * (len(asked) - 1))
            groups.append(fp.queries(asked, variance=target, name=f"g{len(groups)}"))
    return fp.Workload(fp.Domain(attributes), groups)


def random_structure(rng, **kinds):
    """A tree that is told apart, whatever its size."""
    while True:
        workload = random_workload(rng, **kinds)
        structure = analyse_structure(workload, ("place",), tree=("place", "merged"))
        assert isinstance(structure, TreeStructure)
        if structure.tree.level_depths:
            return structure


def random_weights(rng, size, orders=1.0, zeros=0.0):
    weights = 10.0 ** rng.uniform(-orders, orders, size)
    weights[rng.random(size) < zeros] = 0.0
    weights[rng.integers(size)] = 1.0
    return weights


def spread(structure, p, q):
    """Weights of all cells and of all queries, in extended precision, by their definition."""
    workload, tree, place = structure.workload, structure.tree, structure.workload.domain["place"]
    each = p.astype(LONG).reshape(-1, structure.cells)
    each = each / tree.multiplicities[tree.leaves, None]
    by_node = np.zeros((tree.size, structure.cells), LONG)
    by_node[tree.leaves] = each
    lengths = np.diff(tree.starts, append=place.size)
    by_cell = by_node[tree.leaf_nodes] / np.repeat(lengths, lengths)[:, None]
    names = ("place", *structure.dense)
    cells = by_cell.reshape(get_shape(workload.domain, names))
    order = [names.index(name) for name in structure.asymmetric]
    shape = [
        workload.domain[name].size if name in structure.asymmetric else 1
        for name in workload.attributes
    ]
    cells = cells.transpose(order).reshape(shape)
    whole = get_shape(workload.domain, workload.attributes)
    repeats = math.prod(whole) // math.prod(cells.shape)
    cells = np.broadcast_to(cells / repeats, whole).ravel()
    rows = structure.group_values(q.astype(LONG) / structure.repeats)
    return cells, np.concatenate([np.asarray(rows[g.name]).ravel() for g in workload.groups])


def exact(structure, p, q, objective=PLAIN):
    """The bound that weights give, by its definition, in extended precision."""
    cells, rows = spread(structure, p, q)
    mass = np.sqrt(cells.sum() * rows.sum())
    c = structure.workload.targets().astype(LONG)
    if objective.budgets is not None:
        cells, _ = spread(structure, p / objective.budgets, q)
    rows = rows / c + LONG(objective.weight) * rows.sum()
    X = np.sqrt(rows)[:, None] * structure.workload.matrix() * np.sqrt(cells)
    return singular_values(X[np.ix_(rows > 0, cells > 0)]).sum() / mass
