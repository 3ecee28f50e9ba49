"""Persons: the rows that each person keeps, chosen by a keyed hash and counted bucket by bucket."""

from fitplug_dask.persons.selected_rows import RowStore, count_person_shards
from fitplug_dask.persons.selection import Selection, find_record_groups
from fitplug_dask.persons.selection_check import check_selection_once
from fitplug_dask.persons.shuffle import count_by_person, cut_person_partitions

__all__ = [
    "RowStore",
    "Selection",
    "check_selection_once",
    "count_by_person",
    "count_person_shards",
    "cut_person_partitions",
    "find_record_groups",
]
