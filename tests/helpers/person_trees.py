"""Small trees for persons with several records, and what all of these persons cost."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.families import PersonTreeStructure, analyse_structure, analysis
from fitplug.neighbours import RecordSets
from fitplug.workload import build_rows
from tests.helpers.tree_strategies import random_place, write_out


def design_person_tree(workload, unit, **keywords):
    """Design as if the optimum over all cells were too large to find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 0)
        made = fp.design(workload, unit=unit, **keywords)
    assert isinstance(made.strategy.structure, PersonTreeStructure)
    return made


def random_person_structure(rng):
    """A small tree with months, of which queries ask each, their sum or prefixes, and a unit."""
    place = random_place(rng, sizes=(1, 2, 3))
    while not 1 < place.size < 12:
        place = random_place(rng, sizes=(1, 2, 3))
    months = int(rng.integers(2, 4 if place.size > 6 else 5))
    attributes = {"place": place, "month": fp.Integers(1, months)}
    other = str(rng.choice(["none", "sex", "age"])) if place.size * months < 24 else "none"
    if other != "none":
        attributes[other] = fp.Integers(0, 1)
    groups = []
    is_prefix = rng.random() < 0.3
    for level in ("state", "county", "identity"):
        for month in ("identity", "prefix" if is_prefix else "total"):
            if groups and rng.random() < 0.3:
                continue
            asked = {"place": level, "month": month}
            if other != "none" and rng.random() < 0.6:
                asked[other] = (
                    "identity" if other == "sex" else str(rng.choice(["prefix", "total"]))
                )
            name = f"{level} {month}"
            groups.append(fp.queries(asked, variance=float(rng.uniform(0.5, 4)), name=name))
    if not any("identity" in name for name in (group.name.split()[1] for group in groups)):
        groups.append(fp.queries({"month": "identity"}, variance=1.0, name="months"))
    if not any(group.name.startswith("identity") for group in groups):
        groups.append(fp.queries({"place": "identity"}, variance=1.0, name="places"))
    workload = fp.Workload(fp.Domain(attributes), groups)
    unit = fp.AddRemove(records=int(rng.integers(2, 5)), once_per="month")
    varying = ("age",) if other == "age" else ()
    structure = analyse_structure(workload, varying, tree=("place", "merged"), unit=unit)
    assert isinstance(structure, PersonTreeStructure)
    return structure


def list_costs(strategy):
    """The largest |A v|^2 of all persons with at most k records, exact if it is below 2^53."""
    structure = strategy.structure
    A = write_out(strategy).astype(np.float64)
    gram = A.T @ A
    names = structure.workload.attributes
    shape = get_shape(structure.workload.domain, names)
    periods = np.indices(shape)[names.index(structure.period_attribute)].ravel()
    T = structure.period_count
    cells = [np.flatnonzero(periods == t) for t in range(T)]
    total = np.zeros([1 + len(cells_of_period) for cells_of_period in cells])
    count = np.zeros_like(total)
    for t, cells_of_period in enumerate(cells):
        axis = [1] * T
        axis[t] = -1
        total = total + np.append(0.0, np.diagonal(gram)[cells_of_period]).reshape(axis)
        count = count + np.append(0, np.ones(len(cells_of_period))).reshape(axis)
        for u in range(t):
            pairs = np.zeros((1 + len(cells[u]), 1 + len(cells_of_period)))
            pairs[1:, 1:] = gram[np.ix_(cells[u], cells_of_period)]
            axes = [1] * T
            axes[u], axes[t] = pairs.shape
            total = total + 2 * pairs.reshape(axes)
    return float(total[count <= structure.most_records].max())


def write_out_moment(structure, p, of_kinds):
    """E v v' over all cells of the workload's attributes, for persons drawn by their kinds.

    Args:
        structure: The structure, with symmetric months.
        p: The weights of leaves and dense cells, shape (leaves, D).
        of_kinds: Those of the kinds.
    """
    tree, domain = structure.tree, structure.workload.domain
    place = domain[structure.tree_attribute]
    names = (*structure.symmetric, structure.tree_attribute, *structure.dense)
    by_node = np.zeros((tree.size, structure.cells))
    by_node[tree.leaves] = p / p.sum()
    # A finest node has equal shares of what identical leaves have together, and cells below it too.
    finest = np.searchsorted(tree.starts, np.arange(place.size), side="right") - 1
    sizes = np.bincount(finest)
    share = by_node[tree.leaf_nodes] / tree.multiplicities[tree.leaf_nodes][:, None]
    share = share / sizes[finest][:, None]
    parents = np.full(tree.size, -1)
    for step in tree.steps:
        parents[step.children] = step.parents[:, None]

    def find_cluster(cell, depth):
        node = int(tree.leaf_nodes[cell])
        if tree.depths[node] <= depth:
            return node, int(finest[cell])
        while tree.depths[node] > depth:
            node = int(parents[node])
        return node, -1

    T, found = structure.period_count, 0
    n, D = share.shape
    for weight, kind in zip(of_kinds, structure.kinds, strict=True):
        k = kind.records
        single, pair = np.diag(share.ravel()), np.zeros((n, D, n, D))
        clusters = [find_cluster(cell, kind.depth) for cell in range(n)]
        for cluster in set(clusters):
            inside = np.array([own == cluster for own in clusters])
            for i in range(D):
                own = share[:, i] * inside
                if own.sum() > 0:
                    pair[:, i, :, i] += np.outer(own, own) / own.sum()
        pair = pair.reshape(n * D, n * D)
        for a in reversed(range(len(structure.symmetric))):
            size = structure.sizes[a]
            single = np.kron(np.eye(size) / size, single)
            if a == structure.period_index:
                own = (1 - np.eye(size)) / (T * (T - 1))
            elif a in kind.shared:
                own = np.eye(size) / size
            else:
                own = np.full((size, size), 1 / size**2)
            pair = np.kron(own, pair)
        found = found + weight * (k * single + k * (k - 1) * pair)
    return arrange_cells(structure, names, found)


def random_sets(rng, person, count, *, apart):
    """Differences of random records; all are in one leaf, or leaves are drawn apart at random."""
    cells = np.full((count, person.most), -1)
    labels = np.zeros((count, person.most, len(person.sizes)), dtype=np.int64)
    for v in range(count):
        chosen = rng.permutation(person.period_count)[: rng.integers(1, person.most + 1)]
        for r, period in enumerate(chosen):
            cells[v, r] = rng.choice(np.flatnonzero(person.periods == period))
            labels[v, r] = rng.integers(0, person.sizes)
    if not apart:
        labels[..., -1] = 0
    return RecordSets(cells, labels)


def write_out_sets(structure, p, of_sets):
    """E v v' over all cells, for differences over the dense cells whose leaves are drawn by p."""
    tree, names = structure.tree, (*structure.symmetric, structure.tree_attribute, *structure.dense)
    by_node = np.zeros(tree.size)
    by_node[tree.leaves] = p / p.sum()
    finest = np.searchsorted(tree.starts, np.arange(len(tree.leaf_nodes)), side="right") - 1
    share = by_node[tree.leaf_nodes] / tree.multiplicities[tree.leaf_nodes]
    share = share / np.bincount(finest)[finest]
    found = 0
    for weight, cells, labels in zip(
        of_sets, structure.sets.cells, structure.sets.labels, strict=True
    ):
        records = np.flatnonzero(cells >= 0)
        for r in records:
            for s in records:
                dense = np.zeros((structure.cells, structure.cells))
                dense[cells[r], cells[s]] = 1
                same = labels[r] == labels[s]
                moment = np.kron(np.diag(share) if same[-1] else np.outer(share, share), dense)
                for a in reversed(range(len(structure.symmetric))):
                    n = structure.sizes[a]
                    equal, J = np.eye(n), np.ones((n, n))
                    # What no query tells apart does not matter.
                    own = equal / n if same[a] or n == 1 else (J - equal) / (n * (n - 1))
                    moment = np.kron(own, moment)
                found = found + weight * moment
    return arrange_cells(structure, names, found)


def arrange_cells(structure, names, moment):
    """Arrange a matrix over the cells of some names by the order of the workload's attributes."""
    shape = get_shape(structure.workload.domain, names)
    order = [names.index(name) for name in structure.workload.attributes]
    m = len(shape)
    shaped = moment.reshape(*shape, *shape).transpose([*order, *(m + i for i in order)])
    return shaped.reshape(moment.shape)


def compute_norm(structure, moment, q):
    """|| diag(q / c)^1/2 W F ||_* with F F' = moment, from the queries as they are written out."""
    workload = structure.workload
    of_queries = structure.group_values(q / structure.repeats)
    W = [build_rows(workload, group, workload.attributes) for group in workload.groups]
    scale = [(of_queries[g.name] / g.variances).ravel() for g in workload.groups]
    values, vectors = np.linalg.eigh(moment)
    # Smaller values are what rounding makes of zero.
    F = vectors * np.sqrt(np.where(values > 1e-14 * values.max(), values, 0))
    X = np.sqrt(np.concatenate(scale))[:, None] * np.concatenate(W) @ F
    return float(np.linalg.svd(X, compute_uv=False).sum())


def build_months(
    tracts=(7, 3, 1, 4, 2),
    *,
    months=4,
    year=1.0,
    sex=False,
    age=None,
    targets=None,
    cumulative=False,
):
    """Tables by month and their sums over the months, at three levels of a small tree.

    Args:
        tracts: The tracts of each county.
        months: The number of months.
        year: The variance of a sum over the months, as a multiple of that of a month; None if no
            sums are asked for.
        sex: Whether tables by sex are asked for, too.
        age: Whether tables by age are asked for, as "identity" or "prefix".
        targets: Multiples of the variance of each month, if they differ.
        cumulative: Whether sums over the first months are asked for, too.
    """
    leaves = [
        (f"s{c % 2}", f"s{c % 2}c{c}", f"s{c % 2}c{c}t{t}")
        for c in sorted(range(len(tracts)), key=lambda c: (c % 2, c))
        for t in range(tracts[c])
    ]
    place = fp.Hierarchy(["state", "county", "tract"], leaves)
    attributes = {"place": place, "month": fp.Integers(1, months)}
    others = [{}]
    if sex:
        attributes["sex"] = ["1", "2"]
        others.append({"sex": "identity"})
    if age:
        attributes["age"] = fp.Integers(0, 2)
        others.append({"age": age})
    groups = []
    for level, variance in (("state", 1.0), ("county", 3.0), ("tract", 6.0)):
        for more in others:
            group_variance = variance * (1 + len(more))
            name = " ".join([level, *more])
            monthly = (
                group_variance
                if targets is None or more
                else group_variance * np.array(targets)[:, None]
            )
            asked = {"month": "identity", "place": level, **more}
            groups.append(fp.queries(asked, variance=monthly, name=f"{name} by month"))
            if year is not None:
                groups.append(
                    fp.queries({"place": level, **more}, variance=group_variance * year, name=name)
                )
    if cumulative:
        asked = {"month": "prefix", "place": "county"}
        groups.append(fp.queries(asked, variance=4.0, name="so far"))
    return fp.Workload(fp.Domain(attributes), groups)
