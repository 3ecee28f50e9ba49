"""Domains: which attributes there are, and which cells each has."""

from fitplug.domain.attribute import NAMES, OUTSIDE, Codes
from fitplug.domain.bins import Bins
from fitplug.domain.categories import Categories
from fitplug.domain.dates import Dates, day_of_text
from fitplug.domain.domain import Domain
from fitplug.domain.hierarchy import Hierarchy
from fitplug.domain.integers import Integers
from fitplug.domain.kinds import Attribute
from fitplug.domain.prefix import Prefix
from fitplug.domain.remedies import fewer_cells
from fitplug.domain.value_lookup import Members

__all__ = [
    "NAMES",
    "OUTSIDE",
    "Attribute",
    "Bins",
    "Categories",
    "Codes",
    "Dates",
    "Domain",
    "Hierarchy",
    "Integers",
    "Members",
    "Prefix",
    "day_of_text",
    "fewer_cells",
]
