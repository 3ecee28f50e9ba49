"""Counts: exact tables of records. They are confidential."""

from fitplug.counts.columns import are_names, hint
from fitplug.counts.tables import Counts, Names, Tables
from fitplug.counts.weights_and_filters import (
    WEIGHT,
    Filters,
    Where,
    check_rows,
    filters_of,
    say_rows,
)

__all__ = [
    "WEIGHT",
    "Counts",
    "Filters",
    "Names",
    "Tables",
    "Where",
    "are_names",
    "check_rows",
    "filters_of",
    "hint",
    "say_rows",
]
