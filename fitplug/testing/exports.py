"""The check of an export: another library reads the numbers that the release has."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fitplug.counts import Tables
from fitplug.domain import Bins, Domain, Hierarchy, Integers, Measure
from fitplug.plan import Plan, design
from fitplug.releases import Release, choose_intervals, write_folder
from fitplug.testing.plans import require
from fitplug.workload import (
    DEFAULT_CONFIDENCE,
    AddRemove,
    ReplaceOne,
    Workload,
    marginal,
    queries,
    ranges,
    total,
)

WriteAndRead: TypeAlias = Callable[[Release, Path], Mapping[str, Sequence[Mapping[str, Any]]]]
"""Exports a release, to a folder if to files, and reads it: the rows of each group, by column."""

_SEAL = "SEALEDCANARY"
"""A text that no export may contain: the key of exact counts."""

_CLOSE = 1e-12
"""How far numbers that are written with all digits may be off, relatively and in counts."""

_PART = 7
"""The most answers in a part of a release in parts."""

LABELS = ["", "a,b", 'say "x"', "two\nlines", "ä", "a b", "a_b", "=1+1", "\x01", "A", "01", "_T"]
"""Labels with every character that a file might trip over."""

PEOPLE = Domain(
    {
        "sex": ["1", "2"],
        "age": Integers(0, 5),
        "income": Bins([0, 10, 50]),
        "place": Hierarchy(
            ["region", "city"], [("north", "ulm"), ("north", "kiel"), ("south", "rom")]
        ),
    }
)


@cache
def plan_people(records: int = 1) -> Plan:
    """Plan identity, prefix, ranges, all ranges, level, matrix, total, and targets of each kind."""
    groups = [
        queries({"sex": "identity", "age": "prefix"}, std=5.0, name="pyramid"),
        queries({"age": ranges([(2, 5), (4, 5)])}, moe=8.0, confidence=0.9, name="voting age"),
        queries({"place": "region", "sex": "total"}, std=4.0, name="regions"),
        marginal("place", "income", moe=20.0, confidence=0.9, simultaneous=True, name="cities"),
        queries({"age": "all_ranges"}, std=9.0, name="spans"),
        queries({"sex": [[1.0, -1.0], [0.5, 0.25]]}, std=3.0, name="weighted"),
        total(std=3.0),
    ]
    return design(Workload(PEOPLE, groups), unit=AddRemove(records), tolerance=1e-2)


def _plan_unusual() -> Plan:
    """Plan groups whose names and labels are hard to write, and two rows that are the same."""
    domain = Domain(
        {
            "kind of place": LABELS,
            "action": Integers(-2, 1),
            "ACTION": [True, False],
            "9": ["x", "y"],
        },
        value_labels={"kind of place": {"": "two\nlines", "=1+1": "-1"}, "9": {"x": 'a "b", c'}},
    )
    bounds = ranges([(-2, 0), (-2, 0), (1, 1)])
    groups = [
        marginal("kind of place", "9", std=3.0, name="places / kinds"),
        queries({"action": bounds, "ACTION": "identity"}, std=2.0, name="Places, kinds"),
        marginal("action", std=4.0, name="group"),
        total(std=3.0, name="GROUP"),
    ]
    return design(Workload(domain, groups), tolerance=0.1)


def _plan_public() -> Plan:
    """Plan tables where the number of rows of each state is public, and nothing else."""
    domain = Domain({"state": ["1", "2", "3"], "sex": ["f", "m"]})
    groups = [
        marginal("state", std=1.0, name="states"),
        marginal("state", "sex", std=3.0, name="sexes"),
        total(std=0.5, name="all"),
    ]
    return design(Workload(domain, groups), unit=ReplaceOne(within=("state",)))


def _plan_sums() -> Plan:
    """Plan sums of incomes beside counts, for persons with up to three rows."""
    domain = Domain({"sex": ["1", "2"], "income": Measure(0, 2000, unit=100)})
    groups = [
        queries({"sex": "identity", "income": "sum"}, std=5000.0, name="incomes"),
        marginal("sex", std=5.0, name="people"),
    ]
    return design(Workload(domain, groups), unit=AddRemove(records=3))


_PLANS: Mapping[str, Callable[[], Plan]] = {
    "queries of each kind": plan_people,
    "unusual labels": _plan_unusual,
    "public totals": _plan_public,
    "sums": _plan_sums,
}
_IN_PARTS = "a release in parts"


def list_export_cases() -> tuple[str, ...]:
    """List the cases of `check_export`. The case of a release in parts needs pyarrow.

    Example:
        >>> "public totals" in fitplug.testing.list_export_cases()
        True
    """
    return (*_PLANS, *([_IN_PARTS] if find_spec("pyarrow") else []))


@cache
def make_release(case: str) -> Release:
    """Make the release of a case. Its noise is fixed and protects nobody."""
    plan = _PLANS[case]()
    generator = np.random.default_rng(1)
    domain, rows = plan.domain, 200
    values = {
        name: generator.choice(np.array(_list_values(domain, name), dtype=object), rows).tolist()
        for name in domain.names
    }
    tables = Tables.from_records(domain, values, plan.tables)
    answers = plan.strategy.answer_exactly(tables.marginal)
    noise = generator.normal(size=plan.strategy.size) * plan.noise_std
    answers[: plan.strategy.size] += np.rint(noise).astype(np.int64)
    return Release(plan=plan, answers=answers, rho=plan.rho, seal=_SEAL)


def _list_values(domain: Domain, name: str) -> list[Any]:
    """List values of rows: of bins their lower edges, of measures some numbers."""
    attribute = domain[name]
    if isinstance(attribute, Bins):
        return [float(edge) for edge in attribute.edges[:-1]]
    if isinstance(attribute, Measure):
        return list(range(0, 1800, 20))
    return list(attribute.values)


def check_export(write_and_read: WriteAndRead, case: str | None = None) -> None:
    """Check that an export has the rows, the labels and the numbers of the release, and no more.

    Args:
        write_and_read: `write_and_read(release, folder)` exports the release, with all files in the
            new folder, and reads the export, preferably with a library other than yours. It
            returns the rows of each group, in any order. A row maps each attribute of the group to
            a label, "estimate" and "std" to numbers and, if they are exported, "moe", "lower",
            "upper" to numbers and "protected" to whether the answer carries noise.
        case: One of `list_export_cases()`; None for all of them.

    Raises:
        AssertionError: A row is missing, a number or label differs, or a file holds something
            confidential; the message names the case and the group.

    Example:
        >>> def read_tables(release, folder):
        ...     names = release.plan.workload.names
        ...     return {name: release.to_polars(name).to_dicts() for name in names}
        >>> fitplug.testing.check_export(read_tables, "public totals")
    """
    for name in list_export_cases() if case is None else (case,):
        with tempfile.TemporaryDirectory() as folder:
            release = _make_release_in(name, Path(folder))
            exported = Path(folder) / "export"
            exported.mkdir()
            try:
                groups = write_and_read(release, exported)
                _check_groups(release, groups)
                _check_files(exported)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


def _make_release_in(case: str, folder: Path) -> Release:
    """Make the release of a case; one in parts is written to a folder and read from there."""
    if case != _IN_PARTS:
        return make_release(case)
    write_folder(
        make_release("queries of each kind"), folder / "parts", DEFAULT_CONFIDENCE, most=_PART
    )
    return Release.load(folder / "parts")


def _check_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        is_silent = path.is_dir() or _SEAL.encode() not in path.read_bytes()
        require(is_silent, f"{path.name} holds the sealed key of exact counts")


def _check_groups(release: Release, groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    names, exported = sorted(release.plan.workload.names), sorted(groups)
    require(exported == names, f"the groups are {exported}, not {names}")
    for name in names:
        try:
            _check_rows(release, name, groups[name])
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def _check_rows(release: Release, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Check the rows of a group, by their labels."""
    group = release.plan.workload[name]
    require(len(rows) == group.size, f"{len(rows)} rows, not {group.size}")
    attributes = [factor.attribute for factor in group.factors]
    by_labels: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        lacking = {*attributes, "estimate", "std"} - {*row}
        require(not lacking, f"a row has no {', '.join(sorted(lacking))}")
        by_labels[tuple(str(row[attribute]) for attribute in attributes)].append(row)
    expected = _list_numbers(release, name)
    allowed = _CLOSE * (1 + np.abs(expected["estimate"]))
    labels = [factor.labels(release.plan.domain[factor.attribute]) for factor in group.factors]
    for index in np.ndindex(*group.shape):
        key = tuple(str(one[k]) for one, k in zip(labels, index, strict=True))
        require(by_labels.get(key), f"the row of {key} is missing")
        # Rows with the same labels ask the same, and have the same numbers.
        row = by_labels[key].pop()
        for column in expected.keys() & row.keys():
            number, wanted = row[column], expected[column][index]
            is_close = abs(float(number) - wanted) <= allowed[index]
            require(is_close, f"{column} of {key} is {number}, not {wanted}")


def _list_numbers(release: Release, name: str) -> dict[str, Any]:
    """List the arrays of a group's numbers, by column."""
    group = release.plan.workload[name]
    estimates, std = release.estimates[name], np.sqrt(release.variances[name])
    intervals = choose_intervals(group, None, None)
    low, high = release.interval(name, intervals.confidence, simultaneous=intervals.simultaneous)
    protected = np.ones(group.shape) if release.public_totals is None else (std > 0).astype(float)
    return {
        "estimate": estimates,
        "std": std,
        "moe": (high - low) / 2,
        "lower": low,
        "upper": high,
        "protected": protected,
    }
