"""Units of privacy: their words and their spec form."""

from __future__ import annotations

import pytest

import fitplug as fp
from fitplug.workload import check_unit, get_limit
from fitplug.workload.units import read_unit

UNITS = [
    fp.AddRemove(),
    fp.AddRemove(records=2),
    fp.AddRemove(records=3),
    fp.AddRemove(records=2, distinct=True),
    fp.AddRemove(records=3, distinct=True),
    fp.AddRemove(records=2, once_per="month"),
    fp.AddRemove(records=3, once_per="month"),
    fp.ReplaceOne(),
    fp.ReplaceOne(within=("month",)),
]
DOMAIN = fp.Domain({"month": fp.Integers(1, 3), "sex": ["1", "2"]})


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_the_spec_form_is_read_back(unit):
    assert read_unit(unit.to_spec()) == unit
    check_unit(unit, DOMAIN)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: fp.AddRemove(records=0), "must be an integer from 1 to 1000000, not 0"),
        (lambda: fp.AddRemove(records=True), "must be an integer from 1 to 1000000, not True"),
        (lambda: fp.AddRemove(records=10**6 + 1), "from 1 to 1000000"),
        (lambda: fp.AddRemove(records=2, distinct=1), "distinct must be True or False"),
        (lambda: fp.AddRemove(records=2, once_per=3), "the name of an attribute, not 3"),
        (
            lambda: fp.AddRemove(2, distinct=True, once_per="a"),
            "'once_per' cannot be combined",
        ),
        (lambda: fp.AddRemove(once_per="a"), "and 'once_per' need 'records' to be at least 2"),
        (
            lambda: fp.ReplaceOne(within="STATE"),
            r'must be a tuple of attribute names, such as \("STATE",\)',
        ),
        (lambda: fp.ReplaceOne(within=("a", "a")), "names an attribute twice: a"),
        (
            lambda: read_unit({"replace_one": "a"}),
            r"\{ records = 3 \} or \{ replace_one = \[\] \}",
        ),
        (lambda: read_unit({"once_per": "a"}), "lacks the key 'records'"),
        (
            lambda: read_unit({"record": 2}),
            r"\{ records = 3 \} or \{ replace_one = \[\] \}",
        ),
    ],
)
def test_what_is_no_unit_is_refused(make, says):
    with pytest.raises(fp.BudgetError, match=says):
        make()


@pytest.mark.parametrize(
    "unit", [fp.AddRemove(records=2, once_per="MONTH"), fp.ReplaceOne(within=("MONTH",))], ids=str
)
def test_an_attribute_that_the_domain_lacks_is_named(unit):
    with pytest.raises(fp.DomainError, match="MONTH"):
        check_unit(unit, DOMAIN)


@pytest.mark.parametrize(
    ("unit", "limit", "shown"),
    [
        (fp.AddRemove(), fp.AddRemove(), "AddRemove(records=1)"),
        (fp.AddRemove(3), fp.AddRemove(3), "AddRemove(records=3)"),
        (fp.AddRemove(3, True), fp.AddRemove(3, True), "AddRemove(records=3, distinct=True)"),
        (fp.ReplaceOne(("age",)), fp.AddRemove(), "ReplaceOne(within=('age',))"),
    ],
)
def test_a_unit_says_what_a_count_keeps_of_a_person(unit, limit, shown):
    assert (get_limit(unit), unit.records, repr(unit)) == (limit, limit.records, shown)
