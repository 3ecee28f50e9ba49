"""Sources: from a path, table or frame to the files, or parts of a table, that it refers to.

Nothing here reads rows of files, or imports Dask or PyArrow before it is used.
"""

from fitplug_dask.sources.catalog import find_files
from fitplug_dask.sources.locations import BlockReader, Location
from fitplug_dask.sources.source_files import (
    LIBRARY_FORMATS,
    TEXT_FORMATS,
    FolderKey,
    Format,
    SourceFile,
    StoredColumn,
    find_remaining,
    unpack_rows,
)
from fitplug_dask.sources.stores import (
    ChangedError,
    Options,
    State,
    StoreError,
    get_request_pool,
)

__all__ = [
    "LIBRARY_FORMATS",
    "TEXT_FORMATS",
    "BlockReader",
    "ChangedError",
    "FolderKey",
    "Format",
    "Location",
    "Options",
    "SourceFile",
    "State",
    "StoreError",
    "StoredColumn",
    "find_files",
    "find_remaining",
    "get_request_pool",
    "unpack_rows",
]
