"""Work: estimates of how long a design takes, from its structure alone."""

from __future__ import annotations

import math

import numpy as np

from fitplug.domain import get_codec, get_shape, suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.subsets import pad_sets
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import FloatArray, to_positions


def estimate_work(matrices: MatrixStructure, part: float) -> float:
    """Estimate the operations per iteration over all blocks; of those over cells, count a part."""
    rows, ranks = count_rows(matrices), _bound_ranks(matrices)
    return float((ranks**2 * (ranks + rows + part * matrices.cells)).sum())


MOST_DENSE_WORK = 2.5e11
"""The most operations of an iteration where there is no other structure: about 4,000 cells that
queries distinguish, for which the design takes ten minutes and 2 GB."""


def check_work(matrices: MatrixStructure, part: float) -> MatrixStructure:
    """Return matrices over all cells, or raise WorkloadError if their design would take hours."""
    matrices.check_size()
    if (work := estimate_work(matrices, part)) <= MOST_DENSE_WORK:
        return matrices
    domain, names = matrices.workload.domain, matrices.dense
    name = max(names, key=lambda name: domain[name].size)
    plain = ("prefix", "identity", "total", *get_codec(domain[name]).levels)
    causes = [
        f" ({factor.kind!r} in query {group.name!r})"
        for group in matrices.workload.groups
        for factor in group.factors
        if factor.attribute == name and factor.kind not in plain
    ]
    raise WorkloadError(
        f"the design for {domain[name].size:,} cells of {name}{(causes or [''])[0]} would take "
        f"{work:.1e} operations per iteration; the limit is {MOST_DENSE_WORK:.1e}. Use "
        f"{suggest_fewer_cells(domain, names)}."
    )


def estimate_tree_work(structure: TreeStructure) -> float:
    """Estimate the operations of a sweep through a tree: the cube of the cells at each node."""
    nodes = np.bincount(to_positions(structure.tree.depths)).astype(np.float64)
    sizes = [np.array([float(one.size) for one in classes]) for classes in structure.classes]
    return float(sum(nodes[: len(cells)] @ cells**3 for cells in sizes))


def count_rows(matrices: MatrixStructure) -> FloatArray:
    """Count the rows of the queries of each block, shape (b,)."""
    groups, blocks = matrices.subsets.pairs
    counts = matrices.row_counts[groups].astype(np.float64)
    return np.asarray(np.bincount(blocks, counts, len(matrices.blocks)), dtype=np.float64)


def _bound_ranks(matrices: MatrixStructure) -> FloatArray:
    """Bound the rank of the queries of each block, shape (b,).

    Groups of the same dense attributes have no more dimensions together than these have cells.
    """
    groups, names = matrices.workload.groups, matrices.dense
    places = {name: place for place, name in enumerate(names)}
    asked = [-1 if f.kind == "total" else places.get(f.attribute, -1) for f in groups.factors]
    sets, kinds = np.unique(
        pad_sets(*groups.gather_sets(np.array(asked, dtype=np.int64))).padded,
        axis=0,
        return_inverse=True,
    )
    shape = (*get_shape(matrices.workload.domain, names), 1)
    cells = np.array([math.prod(shape[place] for place in places) for places in sets.tolist()])
    of_pairs, blocks = matrices.subsets.pairs
    of_kinds = kinds.ravel()[of_pairs]
    pairs, inverse = np.unique(blocks * len(sets) + of_kinds, return_inverse=True)
    rows = np.bincount(inverse.ravel(), matrices.row_counts[of_pairs].astype(np.float64))
    ranks = np.minimum(rows, cells[pairs % len(sets)])
    of_blocks = np.bincount(pairs // len(sets), ranks, len(matrices.blocks))
    return np.minimum(of_blocks, float(matrices.cells))
