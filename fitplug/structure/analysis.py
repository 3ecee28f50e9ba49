"""Symmetry analysis: from a workload to its structure, or a sentence on why it is too large."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.domain import Hierarchy, suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray, IntArray
from fitplug.structure.structure import Structure, check_products, listed
from fitplug.workload import Workload

MAX_PAIRS = 50_000_000
"""Most pairs of a group and a block that it has a part in."""

MAX_TABLE = 14
"""Most symmetric attributes of one table: it takes time that is quadratic in its 2^k margins."""

MAX_ENTRIES = 150_000_000
"""Most coefficients of all blocks together, 1.2 GB; the design takes a few times that."""

MAX_ROWS = 20_000_000
"""Most rows of a structure of the residual family."""

MAX_FACTORS = 1e10
"""Largest sum of r n min(r, n) over the factors (r, n) of split attributes: a minute's singular
values."""

MAX_ANSWERS = 2**32
"""Most answers of a group, 34 GB when they are released."""

LEAST_TREE = 256
"""Hierarchies of more leaves are split level by level (`tree_shape`) where they are split."""

MOST_CELLS, MOST_WORK = 4096, 1e11
"""Up to so many dense cells of several attributes, and operations an iteration over all blocks
(a few minutes' design), the optimum is found through their product; beyond, the residual family's.
"""


def analyse_structure(
    workload: Workload, varying: Sequence[str] = (), family: bool | None = None
) -> Structure:
    """The symmetry of a workload; attributes in `varying` are kept dense.

    family: whether attributes that are not symmetric are split apart; if None, whether that is
        possible and their product is too large.
    Raises WorkloadError if it has too many answers, blocks or coefficients.
    """
    for group in workload.groups:
        if group.size > MAX_ANSWERS:
            raise WorkloadError(
                f"query {group.name!r} has {group.size} answers, of {', '.join(group.attributes)}; "
                f"up to {MAX_ANSWERS} can be released: use fewer attributes together, or "
                + suggest_fewer_cells(workload.domain, group.attributes)
            )
    apart = _told_apart(workload, varying)
    if not family:
        found = _structure(workload, apart, family=False)
        possible = len(apart) > 1 or any(tree_levels(workload, name) for name in apart)
        if family is False or not possible or _fits(found):
            _check_product(found)
            return found
    check_products(workload.groups)
    found = _structure(workload, apart, family=True)
    _check_family(found)
    return found


def _check_product(found: Structure) -> None:
    # Before anything of this size is made, and in Python integers: the product may be any size.
    entries = found.cells * sum(
        2 ** len(own) * rows for own, rows in zip(found.used, found.row_counts, strict=True)
    )
    if entries > MAX_ENTRIES:
        raise WorkloadError(
            f"the attributes {', '.join(found.dense)} are asked for in ways, or with targets, "
            f"that tell their cells apart, which takes {entries} coefficients together; up to "
            f"{MAX_ENTRIES} can be held: use fewer of them together, or "
            + suggest_fewer_cells(found.workload.domain, found.dense)
        )


def _check_family(found: Structure) -> None:
    if found.rows > MAX_ROWS:
        raise WorkloadError(
            f"the workload has {found.rows} queries of {', '.join(found.ordered)}, and up to "
            f"{MAX_ROWS} can be designed for: use fewer of them together, or "
            + suggest_fewer_cells(found.workload.domain, found.ordered)
        )
    if (work := _singular_values(found)) > MAX_FACTORS:
        raise WorkloadError(
            f"the attributes {', '.join(found.ordered)} have too many cells, or are asked too many "
            f"different queries, that tell their cells apart: {work:.1e} operations an iteration, "
            f"and up to {MAX_FACTORS:.0e} can be waited for: use fewer of them, or "
            + suggest_fewer_cells(found.workload.domain, found.ordered)
        )


def _told_apart(workload: Workload, varying: Sequence[str]) -> set[str]:
    """The attributes that are not symmetric."""
    apart = set(varying)
    for group in workload.groups:
        for axis, factor in enumerate(group.factors):
            if factor.kind == "total" or factor.attribute in apart:
                continue
            if factor.kind != "identity" or _varies(group.variances, axis):
                apart.add(factor.attribute)
    return apart


def tree_levels(workload: Workload, name: str) -> tuple[str, ...]:
    """The levels asked of a hierarchy of more than LEAST_TREE leaves; none if it is no such, or is
    asked for, or given targets, in other ways.
    """
    attribute = workload.domain[name]
    if not isinstance(attribute, Hierarchy) or attribute.size <= LEAST_TREE:
        return ()
    levels: dict[str, None] = {}
    for group in workload.groups:
        for axis, factor in enumerate(group.factors):
            if factor.attribute == name and factor.kind != "total":
                if factor.kind not in ("identity", *attribute.levels):
                    return ()
                if _varies(group.variances, axis):
                    return ()
                levels[factor.kind] = None
    return tuple(levels)


def _varies(targets: FloatArray, axis: int) -> bool:
    # Targets are views that repeat what was asked, however many queries share it.
    once = targets[tuple(slice(None if step else 1) for step in targets.strides)]
    return bool((once != once.take([0], axis)).any())


def _singular_values(found: Structure) -> float:
    """About the operations that the singular values of all different factors take."""
    seen: dict[tuple[object, ...], float] = {}
    trees = {name for name in found.ordered if tree_levels(found.workload, name)}
    for group in found.workload.groups:
        for factor in group.factors:
            if factor.attribute in found.ordered and factor.attribute not in trees:
                given = factor.cells if factor.array is None else factor.array
                n, r = float(factor.size), float(factor.rows)
                key = (factor.attribute, factor.kind, id(given) if given is not None else None)
                seen[key] = r * n * min(r, n)
    return sum(seen.values())


def _fits(found: Structure) -> bool:
    """Whether the dense product is small enough for its optimum."""
    counts = np.array([float(rows) for rows in found.row_counts])
    rows = np.bincount(found.pairs[1], counts[found.pairs[0]], len(found.blocks))
    rank = np.minimum(rows, float(found.cells))
    work = float((rank**2 * (rank + rows + float(found.cells))).sum())
    return found.cells <= MOST_CELLS and work <= MOST_WORK


def _structure(workload: Workload, apart: set[str], family: bool) -> Structure:
    """The structure with the attributes `apart` ordered, if family, or dense."""
    split = tuple(name for name in workload.attributes if family or name not in apart)
    used = _used(workload, split, apart)
    sizes = np.array(workload.domain.shape_of(split), dtype=np.float64)
    blocks, pairs, shares, subsets = _blocks(used, sizes)
    return Structure(
        workload=workload,
        split=split,
        dense=tuple(name for name in workload.attributes if name not in split),
        ordered=tuple(name for name in split if name in apart),
        used=used,
        blocks=blocks,
        pairs=pairs,
        shares=shares,
        subsets=subsets if family else (),
    )


def _used(workload: Workload, split: Sequence[str], apart: set[str]) -> tuple[tuple[int, ...], ...]:
    """A_t of each group."""
    position = {name: i for i, name in enumerate(split)}
    used = []
    for group in workload.groups:
        own = sorted(
            position[f.attribute]
            for f in group.factors
            # The one cell of an attribute without others has no contrasts.
            if f.kind != "total"
            and f.attribute in position
            and (f.attribute in apart or workload.domain[f.attribute].size > 1)
        )
        nothing = any(f.kind == "matrix" and not f.matrix().any() for f in group.factors)
        used.append(() if nothing and not apart.intersection(split) else tuple(own))
    largest = max(range(len(used)), key=lambda g: len(used[g]))
    if len(used[largest]) > MAX_TABLE:
        group = workload.groups[largest]
        name = repr(group.name) if len(group.name) < 60 else listed(group.attributes)
        raise WorkloadError(
            f"query {name} is a table of {len(used[largest])} attributes; up to {MAX_TABLE} can be "
            "designed for, ask tables of fewer attributes together"
        )
    pairs = sum(2 ** len(own) for own in used)
    if pairs > MAX_PAIRS:
        raise WorkloadError(
            f"the workload's tables hold {pairs} tables of fewer attributes, and up to {MAX_PAIRS} "
            "can be designed for; ask fewer tables, or of fewer attributes"
        )
    return tuple(used)


def _blocks(
    used: Sequence[tuple[int, ...]], sizes: FloatArray
) -> tuple[IntArray, IntArray, FloatArray, tuple[tuple[IntArray, IntArray], ...]]:
    """The blocks, pairs, shares and subsets of a structure."""
    most = max(map(len, used))
    lengths = np.array([len(own) for own in used])
    factor, rest = np.append(1 - 1 / sizes, 1.0), np.append(sizes**-2.0, 1.0)
    groups: list[IntArray] = []
    members: list[IntArray] = []
    shares: list[FloatArray] = []
    of_lengths = [(k, np.flatnonzero(lengths == k)) for k in range(most + 1)]
    for k, of_length in of_lengths:
        own = np.array([used[int(g)] for g in of_length], dtype=np.int64)
        own = own.reshape(len(of_length), k)
        for chosen in range(2**k if len(of_length) else 0):
            held = np.array([chosen >> a & 1 for a in range(k)], dtype=bool)
            subset = np.full((len(of_length), most), -1)
            subset[:, : held.sum()] = own[:, held]
            groups.append(of_length)
            members.append(subset)
            shares.append(factor[own[:, held]].prod(axis=1) * rest[own[:, ~held]].prod(axis=1))
    blocks, block_of = _unique_rows(np.concatenate(members), len(sizes))
    order = np.argsort(block_of, kind="stable")
    pairs = np.stack([np.concatenate(groups)[order], block_of[order]])
    ends = np.cumsum([len(g) * 2**k for k, g in of_lengths])[:-1]
    subsets = tuple(
        (g, ids.reshape(2**k, len(g)).T)
        for (k, g), ids in zip(of_lengths, np.split(block_of, ends), strict=True)
    )
    return blocks, pairs, np.concatenate(shares)[order], subsets


def _unique_rows(subsets: IntArray, attributes: int) -> tuple[IntArray, IntArray]:
    """The different rows (b, most), the smaller sets first, and which of them each row is."""
    most = subsets.shape[1]
    if (attributes + 1.0) ** most < 2**62:  # one number says it all
        key = np.zeros(len(subsets), dtype=np.int64)
        for column in subsets.T:
            key = key * (attributes + 1) + (column + 1)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(subsets, axis=0, return_index=True, return_inverse=True)
    blocks = subsets[first]
    order = np.argsort((blocks >= 0).sum(axis=1), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return blocks[order], rank[inverse.ravel()]
