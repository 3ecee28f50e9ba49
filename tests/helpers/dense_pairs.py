"""Pairs of all cells of random workloads, none of whose attributes is taken for symmetric."""

from __future__ import annotations

import itertools

import numpy as np

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.families import analyse_structure
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.subsets import AttributeSets, find_subsets
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.neighbours import CellPairs


def tell_all_cells_apart(workload: fp.Workload, unit: fp.ReplaceOne) -> PairStructure:
    """The structure of one block over all cells."""
    no_sets = AttributeSets(np.full((len(workload.groups), 0), -1, dtype=np.int64))
    subsets = find_subsets((), no_sets)
    return PairStructure(workload, unit, (), subsets)


def list_pairs(workload: fp.Workload, unit: fp.ReplaceOne) -> np.ndarray:
    """All pairs of cells between which a record may move, as the cells' numbers, shape (v, 2)."""
    names = workload.attributes
    cells = list(itertools.product(*map(range, get_shape(workload.domain, names))))
    fixed = [i for i, name in enumerate(names) if name in unit.within]
    return np.array(
        [
            (i, j)
            for (i, x), (j, y) in itertools.combinations(enumerate(cells), 2)
            if all(x[a] == y[a] for a in fixed)
        ],
        dtype=np.int64,
    ).reshape(-1, 2)


def list_differences(workload: fp.Workload, unit: fp.ReplaceOne) -> np.ndarray:
    """All e_i - e_j of pairs of cells, as columns, written out one by one."""
    pairs = list_pairs(workload, unit)
    V = np.zeros((workload.cell_count, len(pairs)), dtype=np.int64)
    V[pairs[:, 0], np.arange(len(pairs))] = 1
    V[pairs[:, 1], np.arange(len(pairs))] = -1
    return V


def random_workload(
    rng: np.random.Generator, *, symmetric: int = 2
) -> tuple[fp.Workload, fp.ReplaceOne]:
    """Two attributes, queries with few different columns, and some symmetric attributes.

    The unit keeps any of the attributes.
    """
    sizes = {f"s{i}": int(rng.integers(2, 5 if symmetric < 3 else 3)) for i in range(symmetric)}
    attributes = {
        "a": fp.Integers(1, int(rng.integers(1, 4))),
        **{name: [str(i) for i in range(n)] for name, n in sizes.items()},
        "b": fp.Integers(0, 3),
    }
    names = list(attributes)
    domain = fp.Domain({name: attributes[name] for name in rng.permutation(names).tolist()})
    n = domain["a"].size

    def draw(**factors: object) -> dict[str, object]:
        beside = {name: "identity" for name in sizes if rng.random() < 0.5}
        return {**factors, **beside}

    groups = [
        fp.queries(
            draw(a=rng.integers(-2, 3, (2, n)), b=rng.integers(-1, 2, (2, 4))),
            variance=float(rng.uniform(0.5, 2.0)),
            name="first",
        ),
        fp.queries(draw(b="prefix"), variance=float(rng.uniform(0.5, 4.0)), name="second"),
        fp.queries(dict.fromkeys(sizes, "identity"), variance=float(rng.uniform(0.5, 4.0))),
    ]
    within = [name for name in names if rng.random() < 0.3]
    return fp.Workload(domain, groups[: 3 if sizes else 2]), fp.ReplaceOne(within=tuple(within))


def draw_workload(
    rng: np.random.Generator, symmetric: int
) -> tuple[fp.Workload, fp.ReplaceOne, PairStructure]:
    """A random workload that is not answered by public totals alone, and its structure."""
    while True:
        workload, unit = random_workload(rng, symmetric=symmetric)
        if (workload.matrix() @ list_differences(workload, unit)).any():
            structure = analyse_structure(workload, unit=unit)
            assert isinstance(structure, PairStructure)
            return workload, unit, structure


def write_out_strategy(structure: PairStructure, block_sets: tuple[BlockSet, ...]) -> np.ndarray:
    """A of any integers, in Python's, from its definition: a Kronecker product for each block."""
    names = (*structure.symmetric, *structure.dense)
    shape = get_shape(structure.workload.domain, names)
    matrices = []
    for block_set in block_sets:
        (subset,) = structure.subsets.list_attributes(block_set.blocks)
        rows = np.ones((1, 1), dtype=object)
        for a, (n, H) in enumerate(zip(structure.sizes, make_contrasts(structure), strict=True)):
            eye = np.eye(n, dtype=np.int64)
            factor = H.apply(eye, 0) if a in subset else np.ones((1, n), dtype=np.int64)
            rows = np.kron(rows, factor.astype(object))
        B = block_set.basis.build_matrix(structure.build_block_matrix(int(block_set.blocks[0])))
        rows = np.kron(rows, block_set.M[0].astype(object) @ B.astype(object))
        shaped = rows.reshape(len(rows), *shape)
        order = [names.index(name) for name in structure.workload.attributes]
        matrices.append(shaped.transpose(0, *(1 + i for i in order)).reshape(len(rows), -1))
    return np.concatenate(matrices)


def list_ends(pairs: CellPairs) -> tuple[np.ndarray, np.ndarray]:
    """List the first cells of the two nodes of each pair of different nodes."""
    cells = (pairs.cells[region] for region in pairs.region_slices)
    of_region = zip(cells, pairs.region_pairs, strict=True)
    ends = [(nodes[first], nodes[second]) for nodes, (first, second) in of_region]
    return tuple(map(np.concatenate, zip(*ends, strict=True)))


def number_classes(pairs: CellPairs) -> np.ndarray:
    """Find the number of the class of each set D and pair of nodes, (2^m, N, N); -1 if none."""
    table = np.zeros((pairs.sets, pairs.nodes, pairs.nodes), dtype=int)
    numbers = pairs.sum_weights(np.arange(pairs.count) + 1.0)
    for region, of_region in zip(pairs.region_slices, numbers, strict=True):
        table[:, region, region] = of_region
    table[:, np.arange(pairs.nodes), np.arange(pairs.nodes)] //= 2
    return table - 1


def spread_weights(
    structure: PairStructure, dense: PairStructure, p: np.ndarray, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Divide the weight of each class of pairs evenly among its pairs, and of rows, likewise."""
    names = structure.workload.attributes
    domain = structure.workload.domain
    cells = np.array(list(itertools.product(*map(range, get_shape(domain, names)))))
    at = [names.index(name) for name in structure.dense]
    shape = get_shape(domain, structure.dense)
    node = structure.pairs.node_of_cell[np.ravel_multi_index(tuple(cells[:, at].T), shape)]
    table = number_classes(structure.pairs)
    first, second = list_ends(dense.pairs)
    free = [names.index(structure.symmetric[a]) for a in structure.free]
    D = sum(((cells[first][:, a] != cells[second][:, a]).astype(int) << bit)
            for bit, a in enumerate(free)) + np.zeros(len(first), int)  # fmt: skip
    number = table[D, node[first], node[second]]
    assert (number >= 0).all()
    weights = p[number] / np.bincount(number, minlength=len(p))[number]
    q_of = {}
    for name, values in structure.group_values(q / structure.repeats).items():
        q_of[name] = np.asarray(values).ravel()
    return weights, np.concatenate([q_of[g.name] for g in structure.workload.groups])
