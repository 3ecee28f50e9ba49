"""Pairs of all cells of a workload, none of whose attributes is taken for symmetric."""

from __future__ import annotations

import itertools

import numpy as np

import fitplug as fp
from fitplug.structure import PairStructure
from fitplug.structure.subsets import AttributeSets, find_subsets


def tell_all_cells_apart(workload: fp.Workload, unit: fp.ReplaceOne) -> PairStructure:
    """The structure of one block over all cells."""
    no_sets = AttributeSets(np.full((len(workload.groups), 0), -1, dtype=np.int64))
    subsets = find_subsets((), no_sets)
    return PairStructure(workload, unit, (), workload.attributes, subsets)


def list_pairs(workload: fp.Workload, unit: fp.ReplaceOne) -> np.ndarray:
    """All pairs of cells between which a record may move, as the cells' numbers, shape (v, 2)."""
    names = workload.attributes
    cells = list(itertools.product(*map(range, workload.domain.shape_of(names))))
    kept = [i for i, name in enumerate(names) if name in unit.within]
    return np.array(
        [
            (i, j)
            for (i, x), (j, y) in itertools.combinations(enumerate(cells), 2)
            if all(x[a] == y[a] for a in kept)
        ],
        dtype=np.int64,
    ).reshape(-1, 2)
