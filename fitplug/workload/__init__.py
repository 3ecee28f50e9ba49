"""Workloads: query groups, their factors and their targets."""

from fitplug.workload.factors import Factor, factor, interval_factor, labelled_factor, ranges
from fitplug.workload.labelled_rows import check_entries, is_blank, is_misnamed, rows
from fitplug.workload.neighbours import ADD_REMOVE, Neighbours
from fitplug.workload.query_group import Queries, QueryGroup, marginal, queries, total
from fitplug.workload.targets import (
    DEFAULT_CONFIDENCE,
    LEAST_CONFIDENCE,
    check_confidence,
    quantile,
    two_sided_quantile,
)
from fitplug.workload.workload import Workload, largest_sets

__all__ = [
    "ADD_REMOVE",
    "DEFAULT_CONFIDENCE",
    "LEAST_CONFIDENCE",
    "Factor",
    "Neighbours",
    "Queries",
    "QueryGroup",
    "Workload",
    "check_confidence",
    "check_entries",
    "factor",
    "interval_factor",
    "is_blank",
    "is_misnamed",
    "labelled_factor",
    "largest_sets",
    "marginal",
    "quantile",
    "queries",
    "ranges",
    "rows",
    "total",
    "two_sided_quantile",
]
