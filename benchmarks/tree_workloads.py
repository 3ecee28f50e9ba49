"""Workloads on trees: synthetic geographies of up to nine million leaves, with tables on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

import fitplug as fp
from fitplug.domain import get_codec
from fitplug.families.tree.shape.blocks import TreeStructure

Counts = npt.NDArray[np.int64]

REDISTRICTING = {
    "nation": 1.0,
    "state": 1.0,
    "county": 4.0,
    "tract": 16.0,
    "group": 25.0,
    "block": 36.0,
}
"""The target variance of the total of a node, by level. Its shares have two or three times that."""


def draw_places(states: int, counties: int, tracts: int) -> list[tuple[str, str, str]]:
    """Draw tracts of a tree whose nodes have at least 5, and fewer than these, children."""
    rng = np.random.default_rng(20261121)
    return [
        (f"s{s}", f"s{s}c{c}", f"s{s}c{c}t{t}")
        for s in range(states)
        for c in range(rng.integers(5, counties))
        for t in range(rng.integers(5, tracts))
    ]


def divide_tracts(states: int, counties: int, tracts: int) -> list[tuple[str, str, str]]:
    """Divide tracts unequally among counties, of which each state has equally many."""
    rng = np.random.default_rng(1)
    weights = rng.lognormal(0, 0.6, counties)
    ends = np.cumsum(weights / weights.sum() * (tracts - 5 * counties)).round().astype(int)
    numbers = 5 + np.diff(ends, prepend=0)
    return [
        (f"s{c * states // counties}", f"c{c}", f"c{c}t{t}")
        for c in range(counties)
        for t in range(numbers[c])
    ]


def build_places(leaves: list[tuple[str, str, str]], ages: bool) -> fp.Workload:
    """Build tables of states, counties and tracts."""
    place = fp.Hierarchy(["state", "county", "tract"], leaves)
    groups = [
        fp.queries({"place": "tract"}, variance=4.0),
        fp.queries({"place": "county"}, variance=2.0, name="counties"),
        fp.queries({"place": "state"}, variance=1.0, name="states"),
        fp.total(variance=1.0),
    ]
    if not ages:
        return fp.Workload(fp.Domain({"place": place}), groups)
    domain = fp.Domain({"place": place, "sex": ["1", "2"], "age": fp.Integers(0, 99)})
    by_age = {"place": "county", "sex": "identity", "age": "prefix"}
    groups += [
        fp.queries(by_age, variance=3.0),
        fp.queries({"age": "prefix"}, variance=1.0),
        fp.queries({"place": "tract", "sex": "identity"}, variance=5.0, name="tracts by sex"),
    ]
    return fp.Workload(domain, groups)


def build_redistricting(place: fp.Hierarchy) -> fp.Workload:
    """Ask for the tables of redistricting at every level: total, race, voting age, both."""
    domain = fp.Domain({"place": place, "race": list("01234567"), "adult": ["0", "1"]})
    groups = []
    for level in place.levels:
        for names, factor in (((), 1), (("race",), 2), (("adult",), 2), (("race", "adult"), 3)):
            asked = {"place": level, **dict.fromkeys(names, "identity")}
            variance = factor * REDISTRICTING[level]
            groups.append(fp.queries(asked, variance=variance, name=" ".join([level, *names])))
    return fp.Workload(domain, groups)


def build_blocks(counties: int) -> fp.Workload:
    """Build the tables of redistricting for a state with blocks like real ones."""
    rng = np.random.default_rng(1)
    leaves = [
        ("s", f"{c:03}", f"{c:03}{t:04}", f"{c:03}{t:04}{g}", f"{c:03}{t:04}{g}{b:03}")
        for c in range(counties)
        for t in range(rng.integers(10, 60))
        for g in range(rng.integers(1, 6))
        for b in range(int(rng.lognormal(3.0, 0.6)) + 1)
    ]
    levels = ["state", "county", "tract", "group", "block"]
    return build_redistricting(fp.Hierarchy(levels, leaves))


def build_pyramids() -> fp.Workload:
    """Build pyramids of single ages at all levels of a tree with as many counties as the nation."""
    rng = np.random.default_rng(5)
    weights = rng.lognormal(4, 0.7, 51)
    counties = np.maximum(1, np.round(weights / weights.sum() * 3143)).astype(int)
    leaves = [("US", f"s{s}", f"s{s}c{c}") for s in range(51) for c in range(counties[s])]
    place = fp.Hierarchy(["nation", "state", "county"], leaves)
    domain = fp.Domain({"place": place, "sex": ["m", "f"], "age": fp.Integers(0, 85)})
    groups = []
    for level, variance in (("nation", 1.0), ("state", 4.0), ("county", 25.0)):
        pyramid = {"place": level, "sex": "identity", "age": "prefix"}
        groups.append(fp.queries(pyramid, variance=variance, name=f"{level} pyramid"))
        groups.append(fp.queries({"place": level}, variance=variance / 2, name=f"{level} total"))
    return fp.Workload(domain, groups)


def build_nation(share: float = 1.0) -> fp.Workload:
    """Build the tables of redistricting for 51 states with nine million blocks.

    Args:
        share: The share of the counties to take.
    """
    rng = np.random.default_rng(3)

    def draw(parents: int, mean: float, spread: float) -> Counts:
        """Draw numbers of children, at least 1, from a lognormal distribution of this mean."""
        drawn = rng.lognormal(np.log(mean) - spread**2 / 2, spread, parents)
        return np.maximum(1, np.round(drawn)).astype(np.int64)

    counts = [np.array([51])]
    for mean, spread in ((62 * share, 0.8), (27, 1.0), (2.85, 0.4), (33, 0.6)):
        counts.append(draw(int(counts[-1].sum()), mean, spread))
    columns = {"nation": np.zeros(int(counts[-1].sum()), dtype=np.int64)}
    for i, level in enumerate(("state", "county", "tract", "group")):
        of_leaf = np.arange(len(counts[i + 1]))
        for own in counts[i + 1 :]:
            of_leaf = np.repeat(of_leaf, own)
        columns[level] = of_leaf
    columns["block"] = np.arange(len(columns["nation"]))
    return build_redistricting(fp.Hierarchy.from_columns(columns))


def count_free(structure: TreeStructure) -> int:
    """Count the dimensions of what a workload asks, which any strategy must at least measure."""
    place = structure.workload.domain[structure.tree_attribute]
    free = 0
    for block, own in enumerate(structure.blocks):
        classes = structure.classes[block]
        asked, above = classes[0].size, 1
        for level, depth in structure.tree.level_depths.items():
            if depth < len(classes) and depth > 0:
                nodes = len(get_codec(place).intervals(level))
                asked, above = asked + (nodes - above) * classes[depth].size, nodes
        free += asked * int(np.prod([structure.sizes[name] - 1 for name in own]))
    return free


CASES: Mapping[str, Callable[[], fp.Workload]] = {
    "tracts": lambda: build_places(draw_places(51, 100, 80), ages=False),
    "60 counties' tracts x sex x 100 ages": lambda: build_places(
        divide_tracts(5, 60, 1278), ages=True
    ),
    "tracts x sex x 100 ages": lambda: build_places(draw_places(20, 30, 50), ages=True),
    "blocks x race x voting age": lambda: build_blocks(8),
    "counties x sex x 86 ages": build_pyramids,
    "a nation's blocks x race x voting age": build_nation,
}


def build_months(counties: int, year: float, *, months: int = 12) -> fp.Workload:
    """Build monthly tables of places by sex for a state with blocks like real ones, and their sums.

    Args:
        counties: The number of counties; there are about 2,400 blocks in each.
        year: The target variance of a sum over the months, as a multiple of that of a month.
        months: The number of months.
    """
    place = build_blocks(counties).domain["place"]
    attributes = {"place": place, "month": fp.Integers(1, months), "sex": ["1", "2"]}
    groups = []
    for level in get_codec(place).levels:
        variance = REDISTRICTING[level]
        for factor, more in ((1, {}), (2, {"sex": "identity"})):
            if more and level == "block":
                continue
            name = " ".join([level, *more])
            by_month = {"place": level, "month": "identity", **more}
            groups.append(fp.queries(by_month, variance=factor * variance, name=f"{name} by month"))
            total = factor * variance * year
            groups.append(fp.queries({"place": level, **more}, variance=total, name=name))
    return fp.Workload(fp.Domain(attributes), groups)
