"""Files: the headers and the rows of files, and the snapshot of all files before they are read."""

from fitplug_dask.files.checked_file import CheckedFile
from fitplug_dask.files.fetching import Fetcher
from fitplug_dask.files.header import DamagedFileError
from fitplug_dask.files.page_checksums import sample_checksums
from fitplug_dask.files.portions import (
    Fetched,
    Member,
    Portion,
    can_be_portioned,
    cut_portions,
    decode,
    holds_pages,
)
from fitplug_dask.files.readers import describe_damage, open_file
from fitplug_dask.files.snapshot import (
    CheckAll,
    CheckOne,
    check_on_threads,
    read_found_header,
    take_snapshot,
)
from fitplug_dask.files.wanted_columns import ColumnRules

__all__ = [
    "CheckAll",
    "CheckOne",
    "CheckedFile",
    "ColumnRules",
    "DamagedFileError",
    "Fetched",
    "Fetcher",
    "Member",
    "Portion",
    "can_be_portioned",
    "check_on_threads",
    "cut_portions",
    "decode",
    "describe_damage",
    "holds_pages",
    "open_file",
    "read_found_header",
    "sample_checksums",
    "take_snapshot",
]
