"""Small trees for persons with several records, and what all of these persons cost."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.structure import PersonTreeStructure, analysis, analyse_structure
from tests.helpers.tree_strategies import random_place, write_out


def design_person_tree(workload, unit, **keywords):
    """Design as if the optimum over all cells were too large to find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 0)
        made = fp.design(workload, unit=unit, **keywords)
    assert isinstance(made.structure, PersonTreeStructure)
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
                asked[other] = "identity" if other == "sex" else str(rng.choice(["prefix", "total"]))
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
    """The largest |A v|^2 of all persons with at most k records, by listing them."""
    structure = strategy.structure
    A = write_out(strategy).astype(np.float64)
    gram = A.T @ A
    assert np.abs(gram).max() < 2**52
    names = structure.workload.attributes
    shape = structure.workload.domain.shape_of(names)
    periods = np.indices(shape)[names.index(structure.period_attribute)].ravel()
    T = structure.period_count
    cells = [np.flatnonzero(periods == t) for t in range(T)]
    total = np.zeros([1 + len(own) for own in cells])
    count = np.zeros_like(total)
    for t, own in enumerate(cells):
        axis = [1] * T
        axis[t] = -1
        total = total + np.append(0.0, np.diagonal(gram)[own]).reshape(axis)
        count = count + np.append(0, np.ones(len(own))).reshape(axis)
        for u in range(t):
            pairs = np.zeros((1 + len(cells[u]), 1 + len(own)))
            pairs[1:, 1:] = gram[np.ix_(cells[u], own)]
            axes = [1] * T
            axes[u], axes[t] = pairs.shape
            total = total + 2 * pairs.reshape(axes)
    return float(total[count <= structure.most_records].max())
