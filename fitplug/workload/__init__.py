"""Workloads: query groups, their factors and their targets."""

from fitplug.workload.cell_classes import (
    CellClasses as CellClasses,
    classify_cells as classify_cells,
    find_classes as find_classes,
    number_classes as number_classes,
)
from fitplug.workload.factors import (
    Factor as Factor,
    build_factor as build_factor,
    build_interval_factor as build_interval_factor,
    build_labelled_factor as build_labelled_factor,
    ranges as ranges,
    read_matrix as read_matrix,
)
from fitplug.workload.labelled_rows import (
    check_matrix_size as check_matrix_size,
    is_blank as is_blank,
    is_misnamed as is_misnamed,
    subsets as subsets,
)
from fitplug.workload.query_group import (
    QueryGroup as QueryGroup,
    UnboundQueryGroup as UnboundQueryGroup,
    marginal as marginal,
    marginals as marginals,
    queries as queries,
    total as total,
)
from fitplug.workload.query_groups import (
    QueryGroups as QueryGroups,
    check_coefficients as check_coefficients,
    check_products as check_products,
)
from fitplug.workload.targets import (
    DEFAULT_CONFIDENCE as DEFAULT_CONFIDENCE,
    LEAST_CONFIDENCE as LEAST_CONFIDENCE,
    check_confidence as check_confidence,
    find_quantile as find_quantile,
    read_target as read_target,
    two_sided_quantile as two_sided_quantile,
)
from fitplug.workload.units import (
    ONE_RECORD as ONE_RECORD,
    AddRemove as AddRemove,
    BoundUnit as BoundUnit,
    ReplaceOne as ReplaceOne,
    Unit as Unit,
    allows_any_rows as allows_any_rows,
    check_measures as check_measures,
    check_unit as check_unit,
    count_changes as count_changes,
    describe_apart as describe_apart,
    get_limit as get_limit,
    read_bound_unit as read_bound_unit,
    read_unit as read_unit,
    select_public as select_public,
)
from fitplug.workload.workload import (
    ArraysByGroup as ArraysByGroup,
    Workload as Workload,
    build_rows as build_rows,
    list_measure_rules as list_measure_rules,
    make_bound_workload as make_bound_workload,
    select_largest_sets as select_largest_sets,
)
