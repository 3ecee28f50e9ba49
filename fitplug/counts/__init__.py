"""Counts: exact tables of records. They are confidential."""

from fitplug.counts.columns import can_name_columns, find_separator, suggest_column
from fitplug.counts.consistency import AttributeSet, Counts
from fitplug.counts.joint_tables import (
    choose_joint_tables,
    is_measure,
    split_into_atoms,
    sum_to_tables,
)
from fitplug.counts.outside import OutsideCounts
from fitplug.counts.records import (
    MOST_WEIGHT,
    WEIGHT,
    Filters,
    check_weight,
    describe_rows,
    is_weighted,
    make_filters,
)
from fitplug.counts.requests import (
    check_person,
    check_request,
    choose_limit,
    list_tables,
)
from fitplug.counts.seals import seal_slab, seal_slabs
from fitplug.counts.source import (
    DatabaseTable,
    DeltaTable,
    IcebergTable,
    Preview,
    Source,
    name_person,
)
from fitplug.counts.tables import Tables

__all__ = [
    "MOST_WEIGHT",
    "WEIGHT",
    "AttributeSet",
    "Counts",
    "DatabaseTable",
    "DeltaTable",
    "Filters",
    "IcebergTable",
    "OutsideCounts",
    "Preview",
    "Source",
    "Tables",
    "can_name_columns",
    "check_person",
    "check_request",
    "check_weight",
    "choose_joint_tables",
    "choose_limit",
    "describe_rows",
    "find_separator",
    "is_measure",
    "is_weighted",
    "list_tables",
    "make_filters",
    "name_person",
    "seal_slab",
    "seal_slabs",
    "split_into_atoms",
    "suggest_column",
    "sum_to_tables",
]
