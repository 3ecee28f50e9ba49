"""Files: the headers and the rows of files, and the snapshot of all files before they are read."""

from fitplug_dask.files.checked_file import CheckedFile, ColumnRules, DamagedFileError
from fitplug_dask.files.parquet import ReadAhead, sample_checksums
from fitplug_dask.files.snapshot import (
    CheckAll,
    CheckOne,
    check_on_threads,
    describe_damage,
    open_file,
    read_source_header,
    take_snapshot,
)

__all__ = [
    "CheckAll",
    "CheckOne",
    "CheckedFile",
    "ColumnRules",
    "DamagedFileError",
    "ReadAhead",
    "check_on_threads",
    "describe_damage",
    "open_file",
    "read_source_header",
    "sample_checksums",
    "take_snapshot",
]
