"""Persons with several records, by listing all of them: what faster ways must agree with."""

from __future__ import annotations

import itertools

import numpy as np

import fitplug as fp


def list_persons(domain, unit):
    """Each set of records that one person may have, as a histogram over all cells (persons, d)."""
    cells = list(itertools.product(*(range(n) for n in domain.shape)))
    if unit.once_per is None:
        periods = list(range(len(cells)))
    else:
        axis = domain.names.index(unit.once_per)
        periods = [cell[axis] for cell in cells]
    by_period = [
        [i for i, t in enumerate(periods) if t == period] for period in sorted(set(periods))
    ]
    persons = []
    for chosen in itertools.product(*([None, *in_period] for in_period in by_period)):
        records = [i for i in chosen if i is not None]
        if 0 < len(records) <= unit.records:
            persons.append(np.bincount(records, minlength=len(cells)))
    return np.array(persons)


MONTHS = fp.Domain({"month": ["1", "2", "3"], "region": ["a", "b", "c"]})


def monthly(domain=MONTHS, *, sum_variance=None, cumulative=False):
    """Tables by month and region, and sums over the months."""
    groups = [fp.marginal("month", "region", variance=1.0)]
    if sum_variance is not None:
        groups.append(fp.marginal("region", variance=sum_variance))
    if cumulative:
        prefixes = {"month": "prefix", "region": "identity"}
        groups.append(fp.queries(prefixes, variance=2.0, name="so far"))
    return fp.Workload(domain, groups)


def small_person_problems():
    """Name, workload and unit of problems whose persons can all be listed."""
    ages = fp.Domain({"month": ["1", "2"], "age": fp.Integers(0, 2)})
    sexes = fp.Domain({"month": ["1", "2", "3"], "sex": ["f", "m"], "race": ["1", "2"]})
    two, three = (fp.AddRemove(records=k, once_per="month") for k in (2, 3))
    prefixes = fp.Workload(ages, [fp.queries({"month": "identity", "age": "prefix"}, variance=1.0)])
    by_sex = [
        fp.marginal("month", "sex", variance=1.0),
        fp.queries({"month": "prefix", "race": "identity"}, variance=3.0),
    ]
    cells = fp.Domain({"state": ["1", "2"], "sex": ["f", "m"], "age": fp.Integers(0, 2)})
    by_age = [
        fp.queries({"state": "identity", "sex": "identity", "age": "prefix"}, variance=1.0),
        fp.queries({"age": "prefix"}, variance=2.0, name="ages"),
        fp.marginal("state", variance=0.5),
    ]
    together = [*by_sex, fp.marginal("month", "sex", "race", variance=2.0)]
    return [
        ("monthly", monthly(), three),
        ("monthly, two records", monthly(cumulative=True), two),
        (
            "few regions",
            monthly(fp.Domain({"month": ["1", "2", "3"], "region": ["a", "b"]})),
            three,
        ),
        ("with a sum", monthly(sum_variance=3.0, cumulative=True), three),
        ("ages in blocks of months", prefixes, two),
        ("two attributes apart", fp.Workload(sexes, by_sex), three),
        ("two attributes together", fp.Workload(sexes, together), three),
        (
            "distinct",
            fp.Workload(ages, [fp.queries({"month": "identity", "age": "prefix"}, variance=1.0)]),
            fp.AddRemove(records=3, distinct=True),
        ),
        (
            "distinct in symmetric attributes",
            fp.Workload(cells, by_age),
            fp.AddRemove(records=3, distinct=True),
        ),
        (
            "once in a symmetric state",
            fp.Workload(cells, by_age),
            fp.AddRemove(2, once_per="state"),
        ),
    ]
