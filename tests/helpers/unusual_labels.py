"""A release whose names and labels are hard to write, and one with public totals and a measure."""

from __future__ import annotations

import functools

import numpy as np

import fitplug as fp

LABELS = ["", "a,b", 'say "x"', "two\nlines", "ä", "a b", "a_b", "=1+1", "\x01", "A", "01", "_T"]


@functools.cache
def release_unusual() -> fp.Release:
    """Labels with every character that a file might trip over, and two rows that are the same."""
    domain = fp.Domain(
        {
            "kind of place": LABELS,
            "action": fp.Integers(-2, 1),
            "ACTION": [True, False],
            "9": ["x", "y"],
        },
        value_labels={"kind of place": {"": "two\nlines", "=1+1": "-1"}, "9": {"x": 'a "b", c'}},
    )
    groups = [
        fp.marginal("kind of place", "9", std=3.0, name="places / kinds"),
        fp.queries(
            {"action": fp.ranges([(-2, 0), (-2, 0), (1, 1)]), "ACTION": "identity"},
            std=2.0,
            name="Places, kinds",
        ),
        fp.marginal("action", std=4.0, name="group"),
        fp.total(std=3.0, name="GROUP"),
    ]
    plan = fp.design(fp.Workload(domain, groups), tolerance=0.1)
    counts = np.random.default_rng(1).integers(0, 40, domain.shape)
    return fp.release(plan, fp.Tables(domain, {domain.names: counts}))


@functools.cache
def release_public() -> fp.Release:
    """The number of records of each state is public, and nothing else."""
    domain = fp.Domain({"state": ["1", "2", "3"], "sex": ["f", "m"]})
    groups = [
        fp.marginal("state", std=1.0, name="states"),
        fp.marginal("state", "sex", std=3.0, name="sexes"),
        fp.total(std=0.5, name="all"),
    ]
    plan = fp.design(fp.Workload(domain, groups), unit=fp.ReplaceOne(within=("state",)))
    counts = np.random.default_rng(2).integers(0, 90, domain.shape)
    return fp.release(plan, fp.Tables(domain, {domain.names: counts}))


@functools.cache
def release_sums() -> fp.Release:
    """Sums of incomes beside counts, for persons with up to three records."""
    domain = fp.Domain({"sex": ["1", "2"], "income": fp.Measure(0, 2000, unit=100)})
    groups = [
        fp.queries({"sex": "identity", "income": "sum"}, std=5000.0, name="incomes"),
        fp.marginal("sex", std=5.0, name="people"),
    ]
    plan = fp.design(fp.Workload(domain, groups), unit=fp.AddRemove(records=3))
    records = {"sex": ["1", "2", "2"] * 30, "income": list(range(0, 1800, 20))}
    tables = fp.Tables.from_records(domain, records, plan.tables)
    return fp.release(plan, tables)
