"""Bound units: what a ledger charges is never below what a person costs, by brute force."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_codec
from fitplug.errors import BudgetError, DomainError, LedgerError
from fitplug.ledger import read_statement
from fitplug.workload import BoundUnit, allows_any_rows, read_bound_unit
from tests.helpers.unit_persons import MONTHS, Release, freeze, list_persons


@cache
def list_histograms(release: Release) -> frozenset[Any]:
    """What a change in the unit of a release adds to its histogram, and takes from it."""
    return frozenset(
        (freeze(release.count(before)), freeze(release.count(after)))
        for before, after in list_persons(release)
    )


@cache
def count_by_search(release: Release, added: tuple[Any, ...]) -> float:
    """The number of changes in the unit of a release that such a histogram is made of."""
    wanted = Counter(dict(added))
    if not wanted:
        return 0
    parts = [Counter(dict(own)) for _, own in list_histograms(release)]
    return 1 + min(count_by_search(release, freeze(wanted - p)) for p in parts if p and p <= wanted)


def list_releases() -> Iterator[Release]:
    for kind in MONTHS:
        both = (("month", kind), ("region", "region"))
        month = both[:1]
        for k in (2, 3):
            yield Release(fp.AddRemove(k, once_per="month"), both)
            yield Release(fp.AddRemove(k, distinct=True), both)
            yield Release(fp.AddRemove(k, distinct=True), month)
        for within in ((), ("month",), ("region",), ("month", "region")):
            yield Release(fp.ReplaceOne(within), both)
        for within in ((), ("month",)):
            yield Release(fp.ReplaceOne(within), month)
    for k in (1, 2, 3):
        yield Release(fp.AddRemove(k), (("month", "fine"), ("region", "region")))
        yield Release(fp.AddRemove(k), (("region", "region"),))
    for k in (2, 3):
        yield Release(fp.AddRemove(k, distinct=True), (("region", "region"),))
        both = (("month", "coarse"), ("region", "region"))
        yield Release(fp.AddRemove(k, once_per="region"), both)


RELEASES = list(list_releases())


@pytest.mark.parametrize("kept", RELEASES, ids=str)
def test_a_person_makes_no_more_changes_than_are_counted(kept: Release) -> None:
    for release in RELEASES:
        changes = release.bound.count_changes(kept.bound)
        if isinstance(kept.unit, fp.ReplaceOne) or isinstance(release.unit, fp.ReplaceOne):
            if changes is None:
                continue
            assert changes == 1
            for before, after in list_persons(kept):
                counted = freeze(release.count(before)), freeze(release.count(after))
                is_change = counted in list_histograms(release)
                assert is_change or counted[0] == counted[1], (str(kept), str(release))
            continue
        assert changes is not None
        most = max(
            count_by_search(release, freeze(release.count(records)))
            for _, records in list_persons(kept)
        )
        assert changes >= most, (str(kept), str(release))
        if release.bound == kept.bound or (
            allows_any_rows(kept.unit) and allows_any_rows(release.unit)
        ):
            assert changes == most


def test_what_is_provable_is_not_charged_more() -> None:
    """Records in other cells of some attributes are in other cells of more attributes."""
    both, month = (("month", "fine"), ("region", "region")), (("month", "fine"),)
    region = (("region", "region"),)
    in_both = Release(fp.AddRemove(3, distinct=True), both).bound
    in_region = Release(fp.AddRemove(3, distinct=True), region).bound
    in_month = Release(fp.AddRemove(3, distinct=True), month).bound
    monthly = Release(fp.AddRemove(3, once_per="month"), both).bound
    by_two = Release(fp.AddRemove(2, distinct=True), both).bound
    coarse = Release(fp.AddRemove(3, once_per="month"), (("month", "coarse"), both[1])).bound
    assert in_both.count_changes(in_region) == in_both.count_changes(monthly) == 1
    assert by_two.count_changes(in_region) == by_two.count_changes(monthly) == 2
    assert in_month.count_changes(monthly) == monthly.count_changes(in_month) == 1
    assert in_region.count_changes(in_both) == monthly.count_changes(in_both) == 3
    assert coarse.count_changes(monthly) == monthly.count_changes(coarse) == 3


def test_replacements_are_compared_by_cells_and_by_what_is_counted() -> None:
    def bind(within: tuple[str, ...], **kinds: str) -> BoundUnit:
        return Release(fp.ReplaceOne(within), tuple(kinds.items())).bound

    kept = bind(("month",), month="coarse", region="region")
    assert bind((), month="coarse", region="region").count_changes(kept) == 1
    assert bind(("month",), month="coarse").count_changes(kept) == 1
    # Exact totals by finer months tell where the record went, as do those of other attributes.
    assert bind(("month",), month="fine", region="region").count_changes(kept) is None
    assert bind(("region",), month="coarse", region="region").count_changes(kept) is None
    # A record that is counted may not be counted any more.
    assert bind((), month="fewer").count_changes(bind((), month="fine")) is None
    assert bind((), month="fine", region="region").count_changes(bind((), month="fine")) is None


@pytest.mark.parametrize("kept", RELEASES, ids=str)
def test_what_is_spent_is_what_any_person_costs_at_most(kept: Release, tmp_path: Path) -> None:
    """Releases with random integer strategies, charged one after another or refused."""
    rng = np.random.default_rng(RELEASES.index(kept))
    ledger = fp.Ledger(tmp_path / "l.db", rho=10**9, unit=kept.unit, domain=kept.domain)
    strategies = []
    picked = [kept, *(RELEASES[i] for i in rng.permutation(len(RELEASES))[:12])]
    for release in picked:
        shape = release.domain.shape
        strategy = rng.integers(-5, 6, (3, math.prod(shape)))
        costs = (
            measure(strategy, shape, Counter(dict(after)), Counter(dict(before)))
            for before, after in list_histograms(release)
        )
        cost = max(costs, default=0)
        rho, said = Fraction(cost, 2) or 1, {"unit": release.unit, "domain": release.domain}
        if release.bound.count_changes(kept.bound) is None:
            with pytest.raises(LedgerError, match="Use this unit instead of"):
                ledger.charge(rho, what="a", **said)
        else:
            ledger.charge(rho, what="a", **said)
            strategies.append((release, strategy, shape))
    assert len(ledger.entries()) == len(strategies) > 0
    spent = read_statement(ledger)[0].spent
    for before, after in list_persons(kept):
        total = sum(
            measure(strategy, shape, release.count(after), release.count(before))
            for release, strategy, shape in strategies
        )
        assert Fraction(total, 2) <= spent
        for release, _, _ in strategies:
            if isinstance(release.unit, fp.ReplaceOne):  # exact totals are published
                totals = [
                    Counter(release.find_cell(r, release.unit.within) for r in records
                            if release.find_cell(r) is not None)
                    for records in (before, after)
                ]  # fmt: skip
                assert totals[0] == totals[1]


def measure(strategy: Any, shape: Any, after: Counter[Any], before: Counter[Any]) -> int:
    """The squared length of what a strategy answers more after a change than before."""
    v = np.zeros(shape, dtype=np.int64)
    for cell, n in after.items():
        v[cell] += n
    for cell, n in before.items():
        v[cell] -= n
    return int(((strategy @ v.ravel()) ** 2).sum())


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_the_spec_form_is_read_back(release: Release) -> None:
    bound = release.bound
    assert read_bound_unit(bound.to_spec()) == bound
    assert read_bound_unit(release.unit.to_spec()) == BoundUnit(release.unit)
    assert bound.is_known
    assert BoundUnit(release.unit).complete(bound) == bound


@pytest.mark.parametrize(
    "spec",
    [
        {"records": 3, "cells": {}},
        {"records": 3, "distinct": True, "cells": ["a"]},
        {"records": 3, "distinct": True, "cells": {"a": 1}},
    ],
)
def test_cells_that_are_no_digests_are_refused(spec: Any) -> None:
    with pytest.raises(BudgetError, match="a table of attribute names and texts"):
        read_bound_unit(spec)


def test_words_name_the_attributes_and_the_cells() -> None:
    both = (("month", "fine"), ("region", "region"))
    distinct, coarse = Release(fp.AddRemove(3, distinct=True), both), (("month", "coarse"), both[1])
    said = str(distinct.bound)
    assert "at most 3, each in a different cell of month x region (cells " in said
    assert said != str(Release(fp.AddRemove(3, distinct=True), coarse).bound)
    monthly = str(Release(fp.AddRemove(3, once_per="month"), both).bound)
    assert "at most one in each cell of month (cells " in monthly
    replaced = str(Release(fp.ReplaceOne(("region",)), both).bound)
    assert "of the same region, both in the domain of month x region (cells " in replaced
    assert str(BoundUnit(fp.AddRemove(3))) == str(fp.AddRemove(3))
    assert "cells not known yet" in str(BoundUnit(fp.AddRemove(3, distinct=True)))


def test_equal_attributes_have_equal_cells() -> None:
    domains = [fp.Domain({"a": fp.Bins(edges)}) for edges in ([0, 1, 2], [0.0, 1.0, 2.0])]
    assert domains[0] == domains[1]
    assert get_codec(domains[0]["a"]).digest == get_codec(domains[1]["a"]).digest
    others: list[Any] = [["0", "1"], [0, 1], [False, True], fp.Integers(0, 1), fp.Bins([0, 1, 3])]
    digests = {get_codec(fp.Domain({"a": own})["a"]).digest for own in others}
    assert len(digests | {get_codec(domains[0]["a"]).digest}) == len(others) + 1


def test_records_with_measures_are_in_no_distinct_cells() -> None:
    domain = fp.Domain({"a": ["1"], "income": fp.Measure(0, 10)})
    with pytest.raises(DomainError, match="combined with the measure income"):
        BoundUnit.bind(fp.AddRemove(2, distinct=True), domain)
    BoundUnit.bind(fp.ReplaceOne(), domain)
