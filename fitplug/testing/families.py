"""Checks of a family and of a unit of privacy, on small workloads of every shape."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np

from fitplug.domain import Domain, Hierarchy, Integers, Measure
from fitplug.errors import InputError
from fitplug.plan import Plan, design as design_optimum
from fitplug.testing.plans import (
    Difference,
    ListNeighbours,
    check_bound,
    check_plan,
    check_plan_file,
    has_solver,
    list_neighbours,
    require,
)
from fitplug.workload import (
    AddRemove,
    BoundUnit,
    ReplaceOne,
    Unit,
    Workload,
    marginal,
    queries,
    ranges,
    read_bound_unit,
    read_unit,
    total,
)

UNITS: Mapping[str, Unit] = {
    "one row": AddRemove(),
    "three rows": AddRemove(records=3),
    "distinct": AddRemove(records=2, distinct=True),
    "once per M": AddRemove(records=3, once_per="M"),
    "once per M, two": AddRemove(records=2, once_per="M"),
    "replaced": ReplaceOne(),
    "replaced within M": ReplaceOne(within=("M",)),
}
"""The units of privacy of the cases of `check_family`."""

_MOST_SOLVED = 50
"""The most cells of workloads whose optimum an interior-point solver finds within seconds."""

_DRAWN = 20
"""So many matrices are drawn to compare two units."""


@cache
def make_workloads() -> Mapping[str, Workload]:
    """Make the workloads of the cases: of each structure that fitplug has for large workloads."""
    months, numbers, values = ["1", "2", "3"], Integers(1, 3), Integers(0, 4)
    regions, sexes = ["x", "y", "z"], ["1", "2"]
    tracts = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1"), ("c", "c2")]
    places = Hierarchy(["county", "tract"], tracts)
    industries = [("f", "f1"), ("f", "f2"), ("f", "f3"), ("g", "g1"), ("g", "g2")]
    jobs = Hierarchy(["sector", "industry"], industries)
    few_places = Hierarchy(["county", "tract"], tracts[:3])
    few_jobs = Hierarchy(["sector", "industry"], industries[1:4])
    variances = np.random.default_rng(1).lognormal(size=(3, 5))
    described: dict[str, tuple[dict[str, Any], list[Any]]] = {
        "numbers": (
            {"M": months, "R": regions},
            [marginal("M", "R", std=3.0), marginal("R", std=5.0), total(std=4.0)],
        ),
        "matrices": (
            {"M": numbers, "R": regions, "S": sexes},
            [
                queries({"M": "prefix", "R": "identity"}, std=3.0),
                marginal("S", "R", std=4.0),
                total(std=2.0),
            ],
        ),
        "sums": (
            {"M": months, "pay": Measure(0, 10)},
            [queries({"M": "identity", "pay": "sum"}, std=20.0), marginal("M", std=3.0)],
        ),
        "product": (
            {"M": numbers, "X": values},
            [queries({"M": "prefix", "X": "prefix"}, std=3.0), queries({"X": "prefix"}, std=2.0)],
        ),
        "periods": (
            {"M": months, "X": numbers, "Y": Integers(0, 1)},
            [
                queries({"X": "prefix", "M": "identity"}, std=3.0),
                queries({"X": ranges([(1, 1), (2, 3)]), "Y": "prefix", "M": "identity"}, std=2.0),
                queries({"X": "prefix", "Y": "prefix"}, std=3.0),
                queries({"Y": "identity"}, std=3.0),
                total(std=4.0),
            ],
        ),
        "some pairs": (
            {"M": numbers, "R": regions, "X": values},
            [
                queries({"M": "prefix", "X": "prefix"}, variance=variances),
                queries({"X": ranges([(0, 2), (1, 3)]), "R": "identity"}, std=2.0),
                queries({"M": "identity"}, std=3.0),
            ],
        ),
        "bins": (
            {"M": months, "X": Integers(0, 8)},
            [
                queries({"X": "prefix"}, std=3.0),
                queries({"X": ranges([(0, 2), (3, 5), (6, 8), (4, 7)]), "M": "identity"}, std=3.0),
                total(std=2.0),
            ],
        ),
        "nested": (
            {"M": numbers, "X": values},
            [
                queries({"M": "prefix", "X": ranges([(0, 1), (2, 4)])}, std=2.0),
                queries({"X": "prefix"}, std=3.0),
                total(std=1.0),
            ],
        ),
        "three trees": (
            {"P": few_places, "W": few_jobs, "V": few_jobs},
            [
                queries({"P": "tract", "W": "sector"}, std=3.0),
                queries({"W": "industry", "V": "sector"}, std=2.0),
                queries({"P": "county", "V": "industry"}, std=2.0),
                total(std=1.0),
            ],
        ),
        "two trees": (
            {"M": sexes, "P": places, "W": few_jobs},
            [
                queries({"P": "tract", "W": "industry"}, std=3.0),
                queries({"P": "county", "W": "sector", "M": "identity"}, std=2.0),
                queries({"P": "tract"}, std=2.0),
                total(std=1.0),
            ],
        ),
        "crossed trees": (
            {"P": places, "W": jobs},
            [
                queries({"P": "tract", "W": "sector"}, std=6.0),
                queries({"P": "county", "W": "industry"}, std=2.0),
                total(std=2.0),
            ],
        ),
        "unfolded trees": (
            {"M": sexes, "P": few_places, "W": few_jobs},
            [
                queries({"P": "tract", "W": "sector"}, std=[[4.0], [4.0], [2.0]]),
                queries({"P": "county", "W": "industry", "M": "identity"}, std=3.0),
                total(std=2.0),
            ],
        ),
        "unfolded trees and cells": (
            {"S": sexes, "M": few_places, "X": numbers},
            [
                queries({"M": "tract", "X": "prefix"}, std=[[4.0], [4.0], [2.0]]),
                queries({"M": "county", "S": "identity", "X": "identity"}, std=3.0),
                queries({"M": "tract"}, std=3.0),
                total(std=2.0),
            ],
        ),
        "tree": (
            {"M": months, "P": places},
            [
                queries({"P": "tract", "M": "identity"}, std=3.0),
                queries({"P": "county"}, std=2.0),
                total(std=2.0),
            ],
        ),
        "cells apart": (
            {"M": months, "X": values},
            [
                marginal("X", "M", std=[[4.0], [4.0], [2.0], [5.0], [3.0]]),
                marginal("X", std=[2.0, 3.0, 1.0, 2.0, 2.0]),
                total(std=2.0),
            ],
        ),
        "tree and dense cells": (
            {"M": numbers, "P": places},
            [
                queries({"P": "tract", "M": "prefix"}, std=3.0),
                queries({"P": "county"}, std=2.0),
                total(std=2.0),
            ],
        ),
        "chain": (
            {"M": months, "X": values},
            [
                queries({"X": "prefix", "M": "identity"}, std=3.0),
                queries({"X": "prefix"}, std=3.0),
            ],
        ),
    }
    return {
        name: Workload(Domain(attributes), groups)
        for name, (attributes, groups) in described.items()
    }


def list_family_cases() -> tuple[tuple[str, str], ...]:
    """List the cases of `check_family`: the names of a workload and of a unit of privacy.

    Some workloads have no case for some units: with two crossed trees, for example, persons can
    differ in too many ways to list.

    Example:
        >>> fitplug.testing.list_family_cases()[0]
        ('numbers', 'one row')
    """
    return tuple(
        (name, unit)
        for (name, workload), unit in itertools.product(make_workloads().items(), UNITS)
        if " trees" not in name
        or "row" in unit
        or unit == "replaced"
        or (unit == "replaced within M" and "M" in workload.domain.names)
    )


class DesignFunction(Protocol):
    """A function that designs a plan, with the two arguments of `fitplug.design` that are used."""

    def __call__(self, workload: Workload, /, *, unit: Any) -> Plan:
        """Design a plan, or raise an InputError for what the family does not have."""


def check_family(
    design: DesignFunction, case: tuple[str, str] | None = None, *, solves: bool = True
) -> None:
    """Check the plans of a family of covariances, for small workloads and every unit of privacy.

    Each plan is verified, saved and loaded, and its claims are computed again by brute force
    (`check_plan`). If cvxpy is installed, its optimum is compared with the plan's cost and bound.

    Args:
        design: `design(workload, unit=unit)` returns a plan of the family, and raises an InputError
            for a workload or unit that the family does not support.
        case: One of `list_family_cases()`. None checks all cases, of which the family must
            support at least one.
        solves: Whether to compare with cvxpy, which takes up to a few seconds for each case.

    Raises:
        AssertionError: A claim of a plan is not true; the message names the case.
        PlanError: A plan does not verify.

    Example:
        >>> fitplug.testing.check_family(fp.design, ("numbers", "one row"))
    """
    designed = 0
    for name, unit in list_family_cases() if case is None else (case,):
        try:
            plan = design(make_workloads()[name], unit=UNITS[unit])
        except InputError as refusal:
            require(str(refusal), f"{name}, {unit}: the refusal has no message")
            continue
        designed += 1
        try:
            plan.verify()
            check_plan(plan)
            check_plan_file(plan)
            if solves and has_solver() and plan.workload.cell_count <= _MOST_SOLVED:
                check_bound(plan)
        except AssertionError as error:
            raise AssertionError(f"{name}, {unit}: {error}") from error
    require(designed or case is not None, "the family refuses every case")


def check_unit(
    unit: Any,
    neighbours: ListNeighbours | None = None,
    *,
    design: DesignFunction = design_optimum,
) -> None:
    """Check a unit of privacy: its plans, its form in files, and its relation to other units.

    The cost of each plan is compared with all differences that you list, so write them down from
    the unit's definition and not from its code.

    Args:
        unit: The unit. It may name the attribute M, which most workloads have.
        neighbours: Lists the differences between all neighbours, each as pairs of a cell and a
            number of rows. By default `list_neighbours`.
        design: Designs the plans.

    Raises:
        AssertionError: Two neighbours cost more than a plan says, or another claim is not true.

    Example:
        >>> fitplug.testing.check_unit(fp.AddRemove(records=2, once_per="M"))
    """
    require(str(unit), "str(unit) is empty, but messages need a text")
    require(read_unit(unit.to_spec()) == unit, "the unit changes when it is written")
    designed = 0
    for name, workload in make_workloads().items():
        if workload.cell_count > _MOST_SOLVED:
            continue
        try:
            plan = design(workload, unit=unit)
        except InputError:
            continue
        designed += 1
        try:
            check_plan(plan, neighbours)
            check_plan_file(plan)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    require(designed, "no workload has a plan for the unit")
    _check_comparisons(unit, neighbours or list_neighbours)


def _check_comparisons(unit: Any, neighbours: ListNeighbours) -> None:
    """Check what one unit's claim of rho is in another unit, by random strategies."""
    workload = make_workloads()["numbers"]
    bound = BoundUnit.bind(unit, workload.domain)
    require(read_bound_unit(bound.to_spec()) == bound, "the bound unit changes when it is written")
    require(bound.count_changes(bound) == 1, "the unit does not cover itself")
    generator = np.random.default_rng(1)
    strategies = generator.integers(-9, 10, (_DRAWN, 4, workload.cell_count))
    mine = list(neighbours(workload, unit))
    for name, other in UNITS.items():
        other_bound = BoundUnit.bind(other, workload.domain)
        theirs = list(list_neighbours(workload, other))
        for first, second, one, two in (
            (bound, other_bound, mine, theirs),
            (other_bound, bound, theirs, mine),
        ):
            changes = first.count_changes(second)
            if changes is None:
                continue
            for A in strategies:
                most = _measure(A, workload, one) * changes**2
                is_covered = _measure(A, workload, two) <= most
                require(
                    is_covered, f"a claim in {first} covers less of {second} ({name}) than stated"
                )


def _measure(A: Any, workload: Workload, differences: list[Difference]) -> int:
    """Measure the largest |A v|^2 of some differences, A (n, cells)."""
    columns = A.reshape(len(A), *workload.shape)
    moved = (sum(times * columns[(slice(None), *cell)] for cell, times in v) for v in differences)
    return max(int((one**2).sum()) for one in moved)
