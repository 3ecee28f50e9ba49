"""Workloads: query groups, their factors and their targets."""

from fitplug.workload.cell_classes import (
    CellClasses,
    classify_cells,
    find_classes,
    number_classes,
)
from fitplug.workload.factors import (
    Factor,
    build_factor,
    build_interval_factor,
    build_labelled_factor,
    ranges,
    read_matrix,
)
from fitplug.workload.labelled_rows import check_matrix_size, is_blank, is_misnamed, subsets
from fitplug.workload.query_group import (
    QueryGroup,
    UnboundQueryGroup,
    marginal,
    marginals,
    queries,
    total,
)
from fitplug.workload.query_groups import QueryGroups, check_coefficients, check_products
from fitplug.workload.targets import (
    DEFAULT_CONFIDENCE,
    LEAST_CONFIDENCE,
    check_confidence,
    find_quantile,
    read_target,
    two_sided_quantile,
)
from fitplug.workload.units import (
    ONE_RECORD,
    AddRemove,
    BoundUnit,
    ReplaceOne,
    Unit,
    read_bound_unit,
    read_unit,
)
from fitplug.workload.workload import ArraysByGroup, Workload, select_largest_sets

__all__ = [
    "DEFAULT_CONFIDENCE",
    "LEAST_CONFIDENCE",
    "ONE_RECORD",
    "AddRemove",
    "ArraysByGroup",
    "BoundUnit",
    "CellClasses",
    "Factor",
    "QueryGroup",
    "QueryGroups",
    "ReplaceOne",
    "UnboundQueryGroup",
    "Unit",
    "Workload",
    "build_factor",
    "build_interval_factor",
    "build_labelled_factor",
    "check_coefficients",
    "check_confidence",
    "check_matrix_size",
    "check_products",
    "classify_cells",
    "find_classes",
    "find_quantile",
    "is_blank",
    "is_misnamed",
    "marginal",
    "marginals",
    "number_classes",
    "queries",
    "ranges",
    "read_bound_unit",
    "read_matrix",
    "read_target",
    "read_unit",
    "select_largest_sets",
    "subsets",
    "total",
    "two_sided_quantile",
]
