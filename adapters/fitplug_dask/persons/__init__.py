"""Persons: the rows that each person keeps, chosen by a keyed hash and counted bucket by bucket."""

from fitplug_dask.persons.selected_rows import count_person_shards
from fitplug_dask.persons.selection import Selection, find_record_groups
from fitplug_dask.persons.selection_check import check_selection_once
from fitplug_dask.persons.shuffle import RowStore, count_by_person

__all__ = [
    "RowStore",
    "Selection",
    "check_selection_once",
    "count_by_person",
    "count_person_shards",
    "find_record_groups",
]
