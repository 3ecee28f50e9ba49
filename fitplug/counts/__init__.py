"""Counts: exact tables of records. They are confidential."""

from fitplug.counts.columns import (
    can_name_columns as can_name_columns,
    find_separator as find_separator,
    suggest_column as suggest_column,
)
from fitplug.counts.consistency import AttributeSet as AttributeSet, Counts as Counts
from fitplug.counts.joint_tables import (
    choose_joint_tables as choose_joint_tables,
    is_measure as is_measure,
    split_into_atoms as split_into_atoms,
    sum_to_tables as sum_to_tables,
)
from fitplug.counts.outside import OutsideCounts as OutsideCounts
from fitplug.counts.records import (
    MOST_WEIGHT as MOST_WEIGHT,
    WEIGHT as WEIGHT,
    Filters as Filters,
    check_weight as check_weight,
    describe_rows as describe_rows,
    is_weighted as is_weighted,
    make_filters as make_filters,
)
from fitplug.counts.requests import (
    check_person as check_person,
    check_request as check_request,
    choose_limit as choose_limit,
    list_tables as list_tables,
)
from fitplug.counts.seals import seal_slab as seal_slab, seal_slabs as seal_slabs
from fitplug.counts.source import (
    DatabaseTable as DatabaseTable,
    DeltaTable as DeltaTable,
    IcebergTable as IcebergTable,
    Preview as Preview,
    Source as Source,
    describe_source_rows as describe_source_rows,
    is_in_database as is_in_database,
    list_person_columns as list_person_columns,
    name_person as name_person,
    read_source as read_source,
)
from fitplug.counts.tables import Tables as Tables
