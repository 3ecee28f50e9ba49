"""Checks that an extension keeps its contract: the checks that fitplug's own tests run.

Each check raises AssertionError with what is wrong, so it runs in any test framework:

    def test_my_export():
        fitplug.testing.check_export(write_and_read)

`check_attribute`, `check_source` and `check_export` are for extensions in other packages;
`check_family` and `check_unit` for what is contributed to fitplug, since a charge relies on their
proofs; `check_plan` for a plan of your own, if it is small. The checks need only NumPy and SciPy.
cvxpy, if it is installed, finds the optimum that bounds and costs are compared with.
"""

from fitplug.testing.attributes import check_attribute
from fitplug.testing.exports import check_export, list_export_cases
from fitplug.testing.families import check_family, check_unit, list_family_cases
from fitplug.testing.plans import check_bound, check_plan, list_neighbours
from fitplug.testing.sources import check_source, list_source_cases

__all__ = [
    "check_attribute",
    "check_bound",
    "check_export",
    "check_family",
    "check_plan",
    "check_source",
    "check_unit",
    "list_export_cases",
    "list_family_cases",
    "list_neighbours",
    "list_source_cases",
]
