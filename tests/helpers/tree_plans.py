"""Plans of small trees, which are designed as large ones are."""

from __future__ import annotations

import pytest

import fitplug as fp
from fitplug.families import analysis
from fitplug.families.tree.shape.blocks import TreeStructure


def design_tree(workload, **keywords):
    """Design as if the optimum over all cells were too large to find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 0)
        made = fp.design(workload, **keywords)
    assert isinstance(made.strategy.structure, TreeStructure)
    return made


def people_by_place(*, ages=False):
    """Counties with identical tracts, with tracts told apart and with one; by sex, and by age."""
    leaves = [
        (f"s{s}", f"s{s}c{c}", f"s{s}c{c}t{t}")
        for s, counties in enumerate([[7, 3, 1], [4, 2]])
        for c, tracts in enumerate(counties)
        for t in range(tracts)
    ]
    attributes = {
        "sex": ["1", "2"],
        "place": fp.Hierarchy(["state", "county", "tract"], leaves),
        "age": fp.Integers(0, 2),
    }
    if not ages:
        del attributes["age"]
    groups = [
        fp.queries({"place": "tract", "sex": "identity"}, variance=6.0, name="tracts"),
        fp.queries({"place": "county"}, variance=3.0, name="counties"),
        fp.queries({"place": "state", "sex": "identity"}, variance=1.0, name="states"),
        fp.total(variance=2.0),
    ]
    if ages:
        asked = {"place": "county", "age": "prefix"}
        groups.append(fp.queries(asked, variance=4.0, name="pyramids"))
    return fp.Workload(fp.Domain(attributes), groups)


TREES = {
    "numbers": people_by_place,
    "with ages": lambda: people_by_place(ages=True),
}
