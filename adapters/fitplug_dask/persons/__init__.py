"""Persons: at most k rows of each person, chosen by a keyed hash and counted bucket by bucket."""

from fitplug_dask.persons.selection import Selection
from fitplug_dask.persons.shuffle import count_by_person, cut_person_partitions

__all__ = ["Selection", "count_by_person", "cut_person_partitions"]
