"""Random strategies of trees, and what they measure, written out by its definition."""

from __future__ import annotations

import itertools

import numpy as np

import fitplug as fp
from fitplug.domain import get_codec, get_shape
from fitplug.errors import WorkloadError
from fitplug.families import analyse_structure
from fitplug.families.base.contrasts import build_contrasts, make_contrasts
from fitplug.families.base.family import build_strategy
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.strategy.blocks import TreeBlock
from fitplug.families.tree.strategy.child_matrices import StepMatrices
from fitplug.workload import ONE_RECORD

LEVELS = ("state", "county", "tract")

PAIR_UNITS = [
    fp.ReplaceOne(),
    fp.ReplaceOne(within=("sex",)),
    fp.ReplaceOne(within=("race",)),
    fp.ReplaceOne(within=("sex", "race")),
    fp.ReplaceOne(within=("age",)),
    fp.ReplaceOne(within=("place",)),
    fp.ReplaceOne(within=("age", "place")),
]
"""Units in which records of the workloads here are replaced."""


def random_place(rng, sizes=(1, 2, 3, 4, 7, 9)):
    """A hierarchy of three levels."""
    leaves, labels = [], itertools.count()
    for s in range(int(rng.integers(1, 4))):
        for c in range(int(rng.choice(sizes[:4]))):
            for _ in range(int(rng.choice(sizes))):
                leaves.append((f"s{s}", f"s{s}c{c}", f"t{next(labels)}"))
    return fp.Hierarchy(LEVELS, leaves)


def random_workload(rng, *, symmetric=True, dense=True, varying=False):
    """Queries level by level, with what else is asked chosen at random."""
    place = random_place(rng)
    attributes = {"sex": fp.Integers(0, 1), "place": place}
    if symmetric:
        attributes["race"] = fp.Integers(0, int(rng.integers(2, 5)))
    if dense:
        attributes["age"] = fp.Integers(0, 4)
    domain = fp.Domain(attributes)
    groups = [fp.queries({"place": "state", "sex": "identity"}, variance=1.0, name="states")]
    for level in ("county", "identity"):
        asked = {"place": level}
        if symmetric and rng.random() < 0.6:
            asked = {"race": "identity", **asked}
        if dense and rng.random() < 0.5:
            asked["age"] = str(rng.choice(["prefix", "identity", "total"]))
        target = float(rng.uniform(0.5, 4))
        if varying:
            nodes = place.size if level == "identity" else len(get_codec(place).intervals(level))
            target = [target] * len(asked)
            at = list(asked).index("place")
            shape = [1] * len(asked)
            shape[at] = nodes
            target = rng.choice([1.0, 2.0], nodes).reshape(shape)
        groups.append(fp.queries(asked, variance=target, name=level))
    groups.append(fp.total(variance=3.0))
    if dense:
        groups.append(
            fp.queries({"age": fp.ranges([(1, 3), (1, 2)]), "sex": "identity"}, variance=1.0)
        )
    return fp.Workload(domain, groups)


def wide_workload(rng):
    """Nodes of 40 children with targets of their own, and of 12 that are identical."""
    leaves = [
        (f"s{s}", f"s{s}c{c}", f"s{s}c{c}t{t}")
        for s, counties in enumerate((40, 12))
        for c in range(counties)
        for t in range(1 + s * (c % 3))
    ]
    domain = fp.Domain({"place": fp.Hierarchy(LEVELS, leaves), "race": fp.Integers(0, 2)})
    targets = np.where(np.arange(52) < 40, rng.uniform(1, 9, 52), 3.0)[:, None]
    groups = [
        fp.queries({"place": "state"}, variance=1.0),
        fp.queries({"place": "county", "race": "identity"}, variance=targets, name="counties"),
    ]
    return fp.Workload(domain, groups)


def find_structure(workload, varying=(), unit=ONE_RECORD):
    structure = analyse_structure(workload, varying, tree=("place", "merged"), unit=unit)
    assert isinstance(structure, TreeStructure)
    return structure


def random_triangle(rng, size, most):
    M = np.triu(rng.integers(-most, most + 1, (size, size)))
    M[np.diag_indices(size)] = rng.integers(1, most + 1, size)
    return M


def random_blocks(rng, structure, most=5):
    """Random integers for each block."""
    blocks = []
    for block in structure.noisy_blocks.tolist():
        classes = structure.classes[block]
        steps = []
        for step in structure.tree.steps:
            if step.depth > structure.find_block_depth(block):
                continue
            b, r = len(step.parents), classes[step.depth].size
            if step.counts is not None:
                children = rng.integers(1, most + 1, b)
            else:
                k = step.children.shape[1]
                children = np.zeros((b, k - 1, k), dtype=np.int64)
                for i in range(b):
                    while abs(np.linalg.det(np.vstack([children[i], np.ones(k)]))) < 0.5:
                        children[i] = rng.integers(-most, most + 1, (k - 1, k))
            dense = [random_triangle(rng, r, most) for _ in range(b)]
            steps.append(StepMatrices(children, np.array(dense, dtype=np.int64).reshape(b, r, r)))
        root = random_triangle(rng, len(structure.find_totals(block).measured), most)
        blocks.append(TreeBlock(block, root, tuple(steps)))
    return tuple(blocks)


def random_strategy(rng, structure, most=5):
    return build_strategy(structure, make_contrasts(structure), random_blocks(rng, structure, most))


def draw_pair_strategy(seed, unit=None, sizes=(1, 5, 200, 2**20)):
    """A random strategy of a random tree; None where the unit does not go with it."""
    rng = np.random.default_rng(seed)
    symmetric, dense, varying = (rng.random(3) < [0.6, 0.6, 0.3]).tolist()
    workload = random_workload(rng, symmetric=symmetric, dense=dense, varying=varying)
    if unit is None:
        unit = PAIR_UNITS[seed % len(PAIR_UNITS)]
    within = tuple(name for name in unit.within if name in workload.domain.names)
    try:
        structure = find_structure(workload, unit=fp.ReplaceOne(within))
    except WorkloadError:
        return rng, None
    assert isinstance(structure, TreePairStructure)
    return rng, random_strategy(rng, structure, int(rng.choice(sizes)))


def write_out(strategy):
    """A over the cells of the workload's attributes, Python integers, by its definition."""
    structure, tree = strategy.structure, strategy.structure.tree
    domain = structure.workload.domain
    names = (*structure.symmetric, structure.tree_attribute, *structure.dense)
    place = domain[structure.tree_attribute]
    n, D = place.size, structure.cells
    below = {v: np.zeros(n, dtype=np.int64) for v in range(tree.size)}
    for cell, v in enumerate(tree.leaf_nodes.tolist()):
        below[v][cell] = 1
    for step in reversed(tree.steps):
        for i, parent in enumerate(step.parents.tolist()):
            for child in np.atleast_1d(step.children[i]).tolist():
                below[parent] = below[parent] + below[child]
    finest = get_codec(place).intervals(list(tree.level_nodes)[-1])
    leaf_rows = (finest[:, :1] <= np.arange(n)) & (np.arange(n) <= finest[:, 1:])
    parts = []
    for tree_block in strategy.tree_blocks:
        attributes = structure.name_attributes(tree_block.block)
        rows = np.ones((1, 1), dtype=object)
        for name in structure.symmetric:
            size = domain[name].size
            H = build_contrasts(size).apply(np.eye(size, dtype=np.int64), 0)
            rows = np.kron(rows, H if name in attributes else np.ones((1, size), dtype=object))
        classes = structure.classes[tree_block.block]
        indicators = [
            np.array(
                [[int(i == c) for i in one.of_cell] for c in range(one.size)], dtype=object
            ).reshape(one.size, D)
            for one in classes
        ]
        at_root = indicators[0][structure.find_totals(tree_block.block).measured]
        measured = [np.kron(below[0][None], tree_block.root.astype(object) @ at_root)]
        for step, matrices in zip(tree.steps, tree_block.steps, strict=False):
            C = indicators[step.depth]
            order = range(len(step.parents))
            if step.counts is not None:
                order = np.argsort(step.counts, kind="stable").tolist()
            for i in order:
                if step.counts is not None:
                    k = int(step.counts[i])
                    H = build_contrasts(k).apply(np.eye(k, dtype=np.int64), 0)
                    A = matrices.children[i].astype(object) * H
                    children = leaf_rows[leaf_rows @ below[int(step.children[i, 0])] > 0]
                else:
                    A = matrices.children[i].astype(object)
                    children = np.stack([below[v] for v in step.children[i].tolist()])
                dense = matrices.dense[i].astype(object) @ C
                measured.append(np.kron(A @ children.astype(object), dense))
        full = np.kron(rows, np.concatenate(measured))
        shaped = full.reshape(len(full), *get_shape(domain, names))
        order = [1 + names.index(name) for name in structure.workload.attributes]
        parts.append(shaped.transpose(0, *order).reshape(len(full), -1))
    return np.concatenate(parts)


def find_regions(workload, unit):
    """The region of each cell of the workload's attributes, in C order."""
    cells = np.array(list(itertools.product(*map(range, workload.shape))))
    fixed = [i for i, name in enumerate(workload.attributes) if name in unit.within]
    return np.unique(cells[:, fixed], axis=0, return_inverse=True)[1].ravel()


def make_reader(strategy, x):
    """Reads marginals of counts x over the workload's attributes."""
    names = strategy.structure.workload.attributes

    def read(asked):
        rest = tuple(i for i, name in enumerate(names) if name not in asked)
        kept = [name for name in names if name in asked]
        return x.sum(axis=rest).transpose([kept.index(name) for name in asked])

    return read
